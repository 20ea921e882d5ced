"""Runs of a second that play ahead, of several kinds, and what two of them are compared by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.faults.small_runs import HGPO, R3
from groupwise.learner.protocol import hash_weights
from groupwise.store.journal import Journal
from groupwise.system.files import parse_toml
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.run_file import decode_run
from groupwise.training.loop import train
from groupwise.training.observer import RunObserver
from groupwise.training.open_run import open_run

UPDATES = 5
_PRIOR = {"kind": "above_prior"}
_REMEMBERING = {
    "advantage": {
        "kind": "relative",
        "by": "by_task",
        "of": _PRIOR,
        "baseline": "no_baseline",
        "scale": "no_scale",
        "alone": "raw",
    },
    "loss": {"kind": "policy_loss", "old": "engine"},
}
KINDS: dict[str, dict[str, Any]] = {
    "rounds": parse_toml(HGPO),
    "replayed": parse_toml(R3),
    "remembered": parse_toml(R3) | {"algorithm": _REMEMBERING},
}
"""Runs that play several rounds an update, that replay and reflect, and whose credit remembers earlier updates."""


def make_config(kind: str = "rounds", *, updates: int = UPDATES, lag: object = 1) -> RunConfig:
    """A run of a kind that plays ahead."""
    overrides = [f"training.updates={updates}", f"rollout.lag={lag}", "warm_start.tasks=30", "evaluation.tasks=4"]
    return decode_run(KINDS[kind], overrides=overrides)


def play(folder: Path, config: RunConfig, *, resume: bool = False, observers: Sequence[RunObserver] = ()) -> None:
    """Make the run, to its end."""
    with open_run(config, folder) as run:
        train(run, resume=resume, observers=observers)


def describe_end(folder: Path) -> dict[str, Any]:
    """What two runs of the same settings have alike: weights and state of every checkpoint, the chain of digests."""
    from safetensors.torch import load_file

    checkpoints = sorted(path for path in (folder / "checkpoints").iterdir() if path.is_dir())
    with Journal(folder / "journal.sqlite", read_only=True) as journal:
        chain = journal.check_digest_chain()
        assert chain.fault is None
        return {
            "chain": chain.digests,
            "weights": {path.name: hash_weights(load_file(path / "model.safetensors")) for path in checkpoints},
            "pending": {path.name: journal.digest_pending(int(path.name)) for path in checkpoints},
        }


def read_versions(folder: Path, number: int) -> set[int]:
    """The versions that sampled the steps of an update, replayed rollouts left out."""
    with Journal(folder / "journal.sqlite", read_only=True) as journal:
        return {step["version"] for rollout in journal.trajectories(number) for step in rollout["steps"]}
