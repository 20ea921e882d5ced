"""Some variants that take turns in one process: `python -m benchmarks.vllm_update.phase FOLDER`.

What a variant measured is written after every update, so that a phase that is stopped leaves what it has.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import groupwise.training.loop
from benchmarks.overlap.turns import TurnTaker, run_in_turns
from benchmarks.overlap.variants import Recorder
from benchmarks.vllm_update.watch import watch_parts
from groupwise import train
from groupwise.store.journal import Update
from groupwise.training.config.run_file import decode_run
from groupwise.training.observer import RunObserver
from groupwise.training.open_run import open_run

JOB = "job.json"
"""What the process waits for, in its folder, before it touches the GPU."""
POLL_SECONDS = 0.1
MAX_WAIT = 600.0


class FileRecorder(Recorder):
    """Waits for the GPU where a stage ends, and writes what was recorded after every update."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.inside: dict[str, float] = {}

    def on_stage(self, name: str, number: int) -> None:
        """A stage ends when its last kernel has."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        super().on_stage(name, number)

    def add_inside(self, part: str, seconds: float) -> None:
        """Count seconds of a part of the stage that is going on."""
        key = f"{self.stage}: {part}"
        self.inside[key] = self.inside.get(key, 0.0) + seconds

    def on_update(self, update: Update) -> None:
        """Write everything so far."""
        super().on_update(update)
        self.updates[-1]["inside"], self.inside = self.inside, {}
        self._path.write_text(json.dumps(self.updates))


class Gate(RunObserver):
    """Holds the first update that is timed back until a file is there: others may still be starting on the GPU."""

    def __init__(self, path: Path, first_timed: int) -> None:
        self._path, self._first_timed = path, first_timed

    def on_stage(self, name: str, number: int) -> None:
        """Wait where the first timed update begins."""
        if number == self._first_timed:
            wait_for(self._path)


def wait_for(path: Path) -> None:
    """Wait until a file is there."""
    deadline = time.monotonic() + MAX_WAIT
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not come within {MAX_WAIT:.0f} s")
        time.sleep(POLL_SECONDS)


def play_variant(
    name: str, settings: Mapping[str, Any], folder: Path, job: Mapping[str, Any], turns: TurnTaker
) -> None:
    """Open a variant's run and make its updates, a turn each."""
    began = time.perf_counter()
    recorder = FileRecorder(folder / f"{name}.json")
    gate = Gate(Path(job["timed_once"]), job["warm"] + 1)
    with open_run(decode_run(settings), folder / f"run {name}") as run:
        print(f"{name}: opened in {time.perf_counter() - began:.1f} s", flush=True)
        if not settings["rollout"]["lag"]:  # parts of a stage mean nothing where two stages go on at a time
            watch_parts(run, recorder.add_inside)
        train(run, observers=[turns, gate, recorder, Printer(name, recorder)])


class Printer(RunObserver):
    """Says how far a variant is."""

    def __init__(self, name: str, recorder: Recorder) -> None:
        self._name, self._recorder = name, recorder

    def on_update(self, update: Update) -> None:
        """A line an update."""
        stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in self._recorder.updates[-1]["stages"].items())
        print(f"{self._name} {update.number}: {stages}", flush=True)


def play_phase(folder: Path) -> None:
    """Play all variants of a phase by turns; a variant that fails leaves its error beside the others' numbers."""
    wait_for(folder / JOB)
    job = json.loads((folder / JOB).read_text())

    def make_job(name: str, settings: Mapping[str, Any]) -> Any:
        def play(turns: TurnTaker) -> None:
            try:
                play_variant(name, settings, folder, job, turns)
            except BaseException:
                (folder / f"{name}.error").write_text(traceback.format_exc())
                traceback.print_exc()

        return play

    # A checkpoint of 1.5 billion weights is 18 GB, and nobody resumes from it.
    groupwise.training.loop.save_run = lambda run, number: None
    run_in_turns({name: make_job(name, settings) for name, settings in job["variants"].items()})


if __name__ == "__main__":
    play_phase(Path(sys.argv[1]))
