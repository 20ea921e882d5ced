"""From a run file to a trained run: `load_run` reads the file, `open_run` opens what it names, `train` learns.

These three are what a program of your own calls, and what `groupwise` passes on when somebody first asks for them.
Opening and the loop are defined in `training`, which opens runs itself (to resume one) and knows no run files.
"""

from __future__ import annotations

from groupwise.config.run_file import load_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run

__all__ = ["load_run", "open_run", "train"]
