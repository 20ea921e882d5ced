"""Saving and loading a checkpoint: a folder with everything a run needs to go on, written whole or not at all.

No pickle anywhere.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import PreTrainedTokenizerBase

from groupwise.core.errors import TrainingError
from groupwise.core.run_paths import name_checkpoint
from groupwise.training.checkpoints.state_file import read_state, set_latest, write_state
from groupwise.training.learner.protocol import Learner


def save_checkpoint(
    folder: Path, number: int, learner: Learner, tokenizer: PreTrainedTokenizerBase, state: Mapping[str, Any]
) -> Path:
    """Write checkpoint `number`: the learner's weights and optimiser, the tokenizer, and the run's own state.

    It is written beside its place, with the digest of every file, and moved there when complete; `latest` then names
    it. A write that fails (a full disk) leaves the earlier checkpoints untouched.
    """
    target = folder / name_checkpoint(number)
    draft = folder / f".{target.name}.tmp"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        learner.save(draft)
        save_tokenizer(tokenizer, draft)
        write_state(draft, {**state, "update": number, "learner_steps": learner.steps})
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
        set_latest(folder, target.name)
    except (OSError, SafetensorError) as error:  # the latter is what safetensors makes of a full disk
        shutil.rmtree(draft, ignore_errors=True)
        reason = getattr(error, "strerror", None) or error
        raise TrainingError(
            f"checkpoint {target} could not be written ({reason}); the earlier ones are untouched. "
            "Free some space, then go on with --resume"
        ) from error
    return target


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a tokenizer; OSError where the disk does not take it."""
    try:
        tokenizer.save_pretrained(folder)
    except OSError:
        raise
    except Exception as error:  # what the tokenizers' own library makes of a full disk has no class of its own
        raise OSError(str(error)) from error


def load_checkpoint(path: Path, learner: Learner) -> dict[str, Any]:
    """Let a learner load what it saved; the run's own state is returned.

    Every file is compared with its digest, and a file that was not written with the others is refused, before anything
    is loaded.
    """
    state = read_state(path)
    learner.load(path, steps=int(state["learner_steps"]))
    return state
