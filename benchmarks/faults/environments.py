"""Runs in environments that do something wrong: it costs rollouts and is recorded, or stops the run with a sentence."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.faults.commands import judge_ended, watch_command
from benchmarks.faults.endings import Ending
from benchmarks.faults.section import Section
from benchmarks.faults.troubled import BREAKS, CAME, ENDS, NUISANCES, SHOWN, VALUES
from groupwise.store.journal import Journal
from groupwise.store.run_folder import RunPaths
from tests.end_to_end.killing import import_all

PLACES = ("open", "observe", "act", "expert", "task_set")
RUN = """
seed = {seed}
threads = 1

[algorithm]
method = "gigpo"

[env]
kind = "benchmarks.faults.troubled:Troubled"
place = "{place}"
deed = "{deed}"
always = {always}
trace = "trace"

[model]
kind = "tiny"
hidden = 16
layers = 1
heads = 2

[rollout]
max_tokens = 1
workers = {workers}
env_timeout = {timeout}
group_size = 6

[training]
updates = 2
tasks = 2
min_survivors = 0.1

[evaluation]
tasks = {evaluated}
split = "train"
"""
WARM_START = """
[warm_start]
tasks = 6
epochs = 1
"""
TRUTHS = ("terminated", "truncated", "accepted", "success")
TEXTS = ("text", "goal", "note")
NO_TRUTH = {"a text", "complex", "10**400", "nan", "inf", "bytes", "a surrogate", "controls", "a quarrelsome key"} | {
    "an object",
    "a lambda",
    "a long text",
    "np.array",
    "np.float32",
}
NO_NUMBER = {"None", "np.array", "a text", "complex", "10**400", "nan", "inf", "bytes", "a surrogate", "an object"}
NO_TEXT = {"None", "np.float32", "np.array", "complex", "10**400", "nan", "bytes", "an object", "a list", "a dict"}
NO_LIST = {"a text", "complex", "10**400", "nan", "bytes", "an object", "np.float32"}
SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What goes wrong, where, how often, in which part of a run, and in how many workers."""

    place: str
    deed: str
    always: bool
    phase: str
    workers: int

    @property
    def must_be_recorded(self) -> bool:
        """Whether a rollout in which it happens cannot count as one that was played."""
        if self.place in ("open", "observe", "act"):
            return self.deed in BREAKS or self.deed in ENDS or self.deed in VALUES
        if self.place in TRUTHS:
            return self.deed in NO_TRUTH
        wrong = {"reward": NO_NUMBER, "admissible": NO_LIST, "state_key": {"a quarrelsome key"}, "observation": VALUES}
        return self.deed in (NO_TEXT if self.place in TEXTS else wrong.get(self.place, ()))

    def __str__(self) -> str:
        often = "always" if self.always else "now and then"
        return f"{self.deed} at {self.place}, {often}, in {self.phase}, {self.workers} workers"


def all_troubles(draws: Random) -> list[Trouble]:
    """Every trouble, shuffled, those that break and those that return wrong values by turns."""
    broken = [
        Trouble(place=place, deed=deed, always=always, phase=phase, workers=workers)
        for deed, place, always, phase, workers in product(
            (*BREAKS, *ENDS, *NUISANCES), PLACES, (False, True), ("rollout", "warm start", "evaluation"), (0, 1, 2)
        )
        if (workers or deed in BREAKS)
        and (place != "expert" or phase == "warm start")
        # Task sets are asked for here, before there is a worker, as a run file's other parts are.
        and (place != "task_set" or deed in BREAKS)
    ]
    wrong = [
        Trouble(place=place, deed=deed, always=always, phase=phase, workers=workers)
        for deed, place, always, phase, workers in product(
            VALUES, (*SHOWN, *CAME, *PLACES), (False, True), ("rollout", "rollout", "warm start"), (0, 1)
        )
        if place != "expert" or phase == "warm start"
    ]
    draws.shuffle(broken)
    draws.shuffle(wrong)
    return [trouble for pair in zip(broken, wrong, strict=False) for trouble in pair]


class Environments(Section):
    """A case is a run of two updates in an environment that does one thing wrong."""

    name = "environments"
    count = 200
    case_seconds = 150.0

    def prepare(self) -> dict[str, Any]:
        self.troubles = all_troubles(self.draws(0))
        sound = Trouble(place="nowhere", deed="raise", always=False, phase="rollout", workers=0)
        file = self._write(sound, 0, self.folder)
        import_all(file)
        return {
            "different_troubles": len(self.troubles),
            "deeds": len(BREAKS) + len(ENDS) + len(NUISANCES) + len(VALUES),
        }

    def describe(self, case: int) -> str:
        return str(self.troubles[case % len(self.troubles)])

    def play(self, case: int) -> Ending:
        trouble = self.troubles[case % len(self.troubles)]
        ending, folder = Ending(case=case, what=str(trouble)), self.folder / f"case-{case}"
        folder.mkdir()
        os.chdir(folder)
        self._write(trouble, case, folder)
        ended = watch_command("train", "run.toml", "--out", "run", "--plain", seconds=SECONDS)
        judge_ended(ending, ended, name="train")
        ending.ended = {0: "went on", 2: "stopped with a sentence"}.get(ended.status or 0, "otherwise")
        if ended.status == 0:
            judge_success(ending, trouble, folder)
            for words in (("inspect", "run", "--update", "1"), ("report", "run", "--out", "report.html")):
                judge_ended(ending, watch_command(*words, seconds=SECONDS), name=words[0], allowed=(0,))
        os.chdir(self.folder)
        shutil.rmtree(folder)
        return ending

    def _write(self, trouble: Trouble, case: int, folder: Path) -> Path:
        run = RUN.format(
            seed=case,
            place=trouble.place,
            deed=trouble.deed,
            always=str(trouble.always).lower(),
            workers=trouble.workers,
            timeout=0.4 if trouble.deed in ("hang", "stop", "fork") else 10.0,
            evaluated=2 if trouble.phase == "evaluation" else 0,
        )
        (folder / "run.toml").write_text(run + (WARM_START if trouble.phase == "warm start" else ""), encoding="utf-8")
        return folder / "run.toml"


def judge_success(ending: Ending, trouble: Trouble, folder: Path) -> None:
    """A run that went on has made its updates, and has recorded what went wrong."""
    happened = (folder / "trace").stat().st_size if (folder / "trace").exists() else 0
    try:
        with Journal(RunPaths(folder / "run").journal, read_only=True) as journal:
            made = journal.update_numbers()
            faults = sum(len(journal.faults(number)) for number in made)
    except Exception as error:
        ending.fail("silent_successes", f"status 0, and no journal to read ({error})")
        return
    if made != [1, 2]:
        ending.fail("silent_successes", f"status 0 with the updates {made}")
    # In a warm start it costs the expert's rollouts, which no journal holds.
    if happened and trouble.must_be_recorded and trouble.phase == "rollout" and not faults:
        ending.fail("silent_successes", f"it happened {happened} times, and no fault is recorded")
