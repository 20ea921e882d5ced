"""The start that all methods share: the model as it comes, then imitation of a teacher that searches."""

from __future__ import annotations

import hashlib
import math
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.alfworld.evaluating import Rows, describe_briefly, play_in_turn, play_task_sets
from benchmarks.alfworld.records import read_record, start_record, write_record
from benchmarks.alfworld.settings import SCRATCH, TEMPERATURES, Measurement, Sizes, run_settings
from benchmarks.alfworld.teacher import teach, weigh_observations
from groupwise.data.samples import Sample
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import ConfigError

START = "start"
"""The folder of the run, below the measurement's own."""
SCRATCH_START = Path(__file__).parent / "scratch"
"""A measurement's folder with nothing but a start: that of the model named `scratch`, with which seeds are compared."""
ADOPTED = "adopted"
"""What the record of a start says where it was made elsewhere: the digest of its weights."""
WEIGHTS = "model.safetensors"
"""The file of a start's weights."""


def start_checkpoint(folder: Path) -> Path:
    """Where the weights are that all methods begin with."""
    return RunPaths(folder / START).checkpoint(0)


def make_start(
    model: str, games: Path, folder: Path, measurement: Measurement, *, skip_base: bool = False
) -> dict[str, Any]:
    """Evaluate the model, let it imitate the teacher, evaluate it again; what was done before is not done again."""
    from groupwise.learner.local_files import read_weights
    from groupwise.training.checkpoints import save_checkpoint
    from groupwise.training.config.run_file import decode_run
    from groupwise.training.open_run import open_run

    path = start_record(folder)
    record = read_record(path) or {"seed": measurement.seed, "seconds": {}}
    clock = Clock(record["seconds"])
    sizes = measurement.sizes
    content = run_settings(model, str(games), measurement, method="grpo", on_gpu=has_gpu())
    run = open_run(decode_run(content), folder / START)
    clock.lap("open")
    record["engine"] = type(run.engine).__name__
    if "base" not in record and not skip_base:
        record["base"] = play_task_sets(run, sizes, 0, TEMPERATURES[0])
        clock.lap("evaluate_base")
        write_record(path, record)
        _tell("as it comes", record["base"])
    if start_checkpoint(folder).is_dir():
        run.weight_sync.sync(read_weights(start_checkpoint(folder)), run.engine, version=0)
    else:
        record |= _warm_start(run, measurement, clock)
        state = {"seed": measurement.seed, "curriculum": {}, "journal": run.journal.digest()}
        save_checkpoint(run.checkpoints, 0, run.learner, run.tokenizer, state)
        clock.lap("save")
        write_record(path, record)

    def keep(rows: Rows) -> None:
        record["warm_start"] = rows
        clock.lap("evaluate_warm_start")
        write_record(path, record)
        _tell("after imitation", rows)

    once = [(0, temperature) for temperature in TEMPERATURES]
    play_in_turn(run, sizes, record.get("warm_start", []), settings=once, until=math.inf, keep=keep)
    return record


def adopt_start(source: Path, folder: Path) -> None:
    """Go on from the start in another measurement's folder; one that is there already must be the same."""
    digest = digest_start(source)
    if start_checkpoint(folder).is_dir():
        if digest_start(folder) != digest:
            raise ConfigError(f"--start: {folder} has another start than {source}; give another --out")
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_record(start_record(folder), {**read_record(start_record(source)), ADOPTED: digest})
    draft = folder / f"{START}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(start_checkpoint(source), RunPaths(draft).checkpoint(0))
    draft.rename(folder / START)  # last: whoever is cut off before begins again


def check_start(source: Path | None, folder: Path, measurement: Measurement) -> None:
    """Refuse a start of another kind of model, and to go on from one that was given without naming it again."""
    if source is None:
        if ADOPTED in read_record(start_record(folder)):
            raise ConfigError(f"{folder} goes on from a given start; give it again as --start, or another --out")
    elif ("imitated_noisy" in read_record(start_record(source))) != measurement.is_from_scratch:
        wanted = (
            "no start of `scratch`" if measurement.is_from_scratch else "a start of `scratch`; give --model scratch"
        )
        raise ConfigError(f"--start: {source} is {wanted}")


def digest_start(source: Path) -> str:
    """Digest of the weights of a start."""
    file = start_checkpoint(source) / WEIGHTS
    if not file.is_file() or not start_record(source).is_file():
        raise ConfigError(f"--start: {source} holds no start; `--stage start --out {source}` makes one")
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def has_gpu() -> bool:
    """Whether there is one to compute on."""
    import torch

    return torch.cuda.is_available()


def _warm_start(run: Any, measurement: Measurement, clock: Clock) -> dict[str, Any]:
    sizes = measurement.sizes
    tasks = run.tasks[: sizes.warm_games]
    if not measurement.is_from_scratch:
        samples = teach(run, tasks, noise=sizes.noise)
        clock.lap("teacher")
        return {"imitated": _imitate(run, samples, sizes, clock)}
    samples = teach(run, tasks, noise=sizes.noise, searches=SCRATCH.searches)
    clock.lap("teacher")
    careful = _imitate(run, weigh_observations(samples, SCRATCH.observation_weight), sizes, clock)
    samples = teach(run, tasks[: SCRATCH.noisy_games], noise=sizes.noise, expert_noise=SCRATCH.expert_noise)
    clock.lap("teacher")
    once = replace(sizes, warm_epochs=1, warm_rate=SCRATCH.noisy_rate)
    noisy = _imitate(run, weigh_observations(samples, SCRATCH.observation_weight), once, clock)
    return {"imitated": careful, "imitated_noisy": noisy}


def _imitate(run: Any, samples: Sequence[Sample], sizes: Sizes, clock: Clock) -> dict[str, Any]:
    """Let the model learn to say what a teacher said; what that was, and the losses."""
    from groupwise.training.config.run_config import WarmStartConfig
    from groupwise.training.warm_start import imitate_samples

    games = len({sample.trajectory for sample in samples})
    config = WarmStartConfig(
        epochs=sizes.warm_epochs, learning_rate=sizes.warm_rate, batch_tokens=sizes.warm_tokens, tasks=games
    )
    losses = imitate_samples(run, samples, config)
    clock.lap("imitate")
    print(f"imitated {len(samples)} steps of {games} games; loss by epoch {losses}", file=sys.stderr, flush=True)
    return {"games": games, "steps": len(samples), "losses": losses}


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
