"""Runs that are killed at random instants and resumed: in the end every bit is that of the run that never was."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.faults.endings import Ending
from benchmarks.faults.processes import end_leftovers
from benchmarks.faults.same_runs import find_lost_updates
from benchmarks.faults.section import Section
from benchmarks.faults.small_runs import RUNS, UPDATES, with_workers
from tests.end_to_end.killing import Stage, choose_stages, finish, import_all, kill

WORKERS = (0, 2)
KILLS_A_LIFE = 10
KINDS = [(method, workers) for method in RUNS for workers in WORKERS]


class Kills(Section):
    """A case is the life of a run that is killed ten times."""

    name = "kills"
    count = 120
    case_seconds = 300.0

    def prepare(self) -> dict[str, Any]:
        self.lasted: dict[tuple[str, int], dict[Stage, float]] = {}
        for method, workers in KINDS[: len(self.numbers())]:
            folder = self._folder(method, workers)
            folder.mkdir(parents=True)
            (folder / "run.toml").write_text(with_workers(RUNS[method], workers), encoding="utf-8")
            import_all(folder / "run.toml")
            self.lasted[method, workers] = finish(folder / "run.toml", folder / "whole")
        return {
            "methods": list(RUNS),
            "workers": list(WORKERS),
            "updates": UPDATES,
            "kills_a_life": self._kills_a_life(),
        }

    def numbers(self) -> Sequence[int]:
        return range(-(-self.count // KILLS_A_LIFE))

    def describe(self, case: int) -> str:
        method, workers = KINDS[case % len(KINDS)]
        return f"{method} with {workers} workers, killed {self._kills_a_life()} times"

    def play(self, case: int) -> Ending:
        ending, kind = Ending(case=case, what=self.describe(case), num=0), KINDS[case % len(KINDS)]
        folder, draws, lasted = self._folder(*kind), self.draws(case), self.lasted[kind]
        life, order = folder / f"life-{case}", list(lasted)
        for stage in choose_stages(order, self._kills_a_life(), draws):
            seconds = draws.random() * lasted[stage]
            ending.num += kill(folder / "run.toml", life, set(order[order.index(stage) :]), seconds) is not None
            for leftover in end_leftovers():
                ending.fail("leftover_processes", f"killed in {stage}: {leftover}")
        try:
            finish(folder / "run.toml", life)
        except AssertionError as error:
            ending.fail("tracebacks" if "Traceback" in str(error) else "unexplained_endings", str(error))
            return ending
        for leftover in end_leftovers():
            ending.fail("leftover_processes", f"after the end: {leftover}")
        for lost in find_lost_updates(folder / "whole", life):
            ending.fail("lost_updates", lost)
        ending.ended = "resumed to the bit" if not ending.failures else "not the same"
        shutil.rmtree(life)
        return ending

    def _kills_a_life(self) -> int:
        return min(self.count, KILLS_A_LIFE)

    def _folder(self, method: str, workers: int) -> Path:
        return self.folder / f"{method}-{workers}"
