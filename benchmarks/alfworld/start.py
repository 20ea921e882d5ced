"""The start that all methods share: the model as it comes, then imitation of a teacher that searches."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.alfworld.evaluating import Rows, describe_briefly, play_panels
from benchmarks.alfworld.records import read_record, start_record, write_record
from benchmarks.alfworld.settings import TEMPERATURES, Arm, Sizes, run_settings
from benchmarks.alfworld.teacher import teach
from groupwise.core.run_paths import RunPaths

START = "start"
"""The folder of the run, below the measurement's own."""


def start_checkpoint(folder: Path) -> Path:
    """Where the weights are that all methods begin with."""
    return RunPaths(folder / START).checkpoint(0)


def make_start(model: str, games: Path, folder: Path, arm: Arm, *, skip_base: bool = False) -> dict[str, Any]:
    """Evaluate the model, let it imitate the teacher, evaluate it again; what was done before is not done again."""
    from groupwise.config.run_file import decode_run
    from groupwise.training.checkpoints.checkpoint import save_checkpoint
    from groupwise.training.learner.local_files import read_weights
    from groupwise.training.open_run import open_run

    path = start_record(folder)
    record = read_record(path) or {"seconds": {}}
    clock = Clock(record["seconds"])
    sizes = arm.sizes
    content = run_settings(model, str(games), arm, method="grpo", on_gpu=has_gpu())
    run = open_run(decode_run(content), folder / START)
    clock.lap("open")
    record["engine"] = type(run.engine).__name__
    if "base" not in record and not skip_base:
        record["base"] = _play_both_panels(run, sizes)
        clock.lap("evaluate_base")
        write_record(path, record)
        _tell("as it comes", record["base"])
    if start_checkpoint(folder).is_dir():
        run.weight_transfer.hand_over(read_weights(start_checkpoint(folder)), run.engine, version=0)
    else:
        record |= _warm_start(run, sizes, clock)
        state = {"seed": arm.seed, "curriculum": {}, "journal": run.journal.digest()}
        save_checkpoint(run.checkpoints, 0, run.learner, run.tokenizer, state)
        clock.lap("save")
        write_record(path, record)
    if "warm_start" not in record:
        record["warm_start"] = _play_both_panels(run, sizes)
        clock.lap("evaluate_warm_start")
        write_record(path, record)
        _tell("after imitation", record["warm_start"])
    return record


def has_gpu() -> bool:
    """Whether there is one to compute on."""
    import torch

    return torch.cuda.is_available()


def _warm_start(run: Any, sizes: Sizes, clock: Clock) -> dict[str, Any]:
    from groupwise.training.imitation.warm_start import imitate_samples
    from groupwise.training.run_config import WarmStartConfig

    samples = teach(run, run.tasks[: sizes.warm_games], noise=sizes.noise)
    clock.lap("teacher")
    config = WarmStartConfig(
        epochs=sizes.warm_epochs, learning_rate=sizes.warm_rate, batch_tokens=sizes.warm_tokens, tasks=sizes.warm_games
    )
    losses = imitate_samples(run, samples, config)
    clock.lap("imitate")
    games = len({sample.trajectory for sample in samples})
    print(f"imitated {len(samples)} steps of {games} games; loss by epoch {losses}", file=sys.stderr, flush=True)
    return {"imitated": {"games": games, "steps": len(samples), "losses": losses}}


def _play_both_panels(run: Any, sizes: Sizes) -> list[dict[str, Any]]:
    return play_panels(run, sizes, 0, TEMPERATURES[0])


def _tell(when: str, rows: Rows) -> None:
    print(f"{when}: {describe_briefly(rows)}", file=sys.stderr, flush=True)


class Clock:
    """Seconds by stage, added to those of an earlier call."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds, self._since = seconds, time.time()

    def lap(self, name: str) -> None:
        """End a stage."""
        now = time.time()
        self._seconds[name] = round(self._seconds.get(name, 0.0) + now - self._since, 2)
        self._since = now
