"""A model of GPT-2's kind, whose linear layers are of a class of their own."""

from __future__ import annotations

from pathlib import Path

from groupwise.models import TinyModel


def write_gpt2(folder: Path) -> None:
    """Write a small one with a tokenizer."""
    from transformers import GPT2Config, GPT2LMHeadModel

    _, tokenizer = TinyModel(hidden=16, layers=1).open(words=("alpha", "bravo"), seed=0)
    GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
