"""A public conformance suite for group-based credit: named cases any library can be asked.

A case is a small table of steps, a method with its options, and what a correct library must answer. The cases
import nothing but the standard library; a subject (`conformance/subjects/`) puts them to one library.

`python -m conformance.run --subject ours` asks groupwise; `python -m conformance.with_peers` also asks verl and TRL
and writes conformance/README.md.
"""
