"""Spoilt files and run folders put to everything that reads them, and damaged runs that are resumed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.faults.commands import Printed, call_command, judge_ended, judge_printed, watch_command
from benchmarks.faults.endings import Ending
from benchmarks.faults.file_sources import Source, long_line, make_sources
from benchmarks.faults.run_damage import copy_run, damage
from benchmarks.faults.same_runs import find_lost_updates
from benchmarks.faults.section import Section
from benchmarks.faults.small_runs import R3, UPDATES
from tests.end_to_end.killing import finish, import_all, kill

GIGABYTES = 4
RESUME_SECONDS = 60.0
RUN_EVERY, RESUME_EVERY, LONG_EVERY = 5, 40, 500
"""A folder of a run in place of a file in each fifth case, a resumed one in each fortieth, and now and then a file that
would fill any memory."""
KILLED_IN = UPDATES - 1


class Files(Section):
    """A case is one spoilt file or folder, put to all commands that read its kind."""

    name = "files"
    count = 5000
    case_seconds = 90.0
    memory = GIGABYTES * 2**30
    batch = 25

    def prepare(self) -> dict[str, Any]:
        self.sources = make_sources(self.folder)
        self.long_line = long_line()
        self.run, self.whole = self.folder / "run", self.folder / "whole"
        file = self.folder / "run.toml"
        file.write_text(R3, encoding="utf-8")
        import_all(file)
        finish(file, self.whole)
        if kill(file, self.run, {("rollout", KILLED_IN)}, 0.0) is None:
            raise RuntimeError("the run to be damaged ended before it was killed")
        return {
            "kinds": [*dict.fromkeys(each.name for each in self.sources), self.long_line.name, "run", "resumed run"],
            "limit_gigabytes": GIGABYTES,
        }

    def describe(self, case: int) -> str:
        if case % RUN_EVERY == 0:
            return "a damaged run, resumed" if case % RESUME_EVERY == 0 else "a damaged run, read"
        return f"{self._source(case).name}, spoilt"

    def play(self, case: int) -> Ending:
        ending, draws = Ending(case=case, what=self.describe(case)), self.draws(case)
        # As a user's own folder: a relative path, nothing of the campaign around it.
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            os.chdir(folder)
            if case % RUN_EVERY:
                _read_file(ending, self._source(case), draws)
            elif case % RESUME_EVERY:
                self._read_run(ending, draws)
            else:
                self._resume_run(ending, draws)
            os.chdir(self.folder)
        return ending

    def _source(self, case: int) -> Source:
        return self.long_line if case % LONG_EVERY == LONG_EVERY - 1 else self.draws(case).choice(self.sources)

    def _read_run(self, ending: Ending, draws: Random) -> None:
        run = copy_run(self.run, Path("run"))
        ending.what += f": {damage(run, draws, rows_too=True)}"
        commands = [
            ("inspect", "run"),
            ("inspect", "run", "--json"),
            ("inspect", "run", "--update", "2"),
            ("inspect", "run", "--update", "3", "--task", "gridworld"),
            ("inspect", "run", "--update", "3", "--task", "gridworld", "--step", "0"),
            ("report", "run", "--out", "report.html"),
            ("audit", "run"),
            ("check", "rollouts", "run"),
        ]
        # A report takes longest, so each damage meets it and a few of the others.
        chosen = [commands[5], *draws.sample([*commands[:5], *commands[6:]], 3)]
        ending.ended = _judge_all(ending, chosen, sure_to_fail=False)

    def _resume_run(self, ending: Ending, draws: Random) -> None:
        run = copy_run(self.run, Path("run"))
        done = damage(run, draws, rows_too=False)
        ending.what += f": {done}"
        ended = watch_command("train", "run", "--resume", "--plain", seconds=RESUME_SECONDS)
        judge_ended(ending, ended, name="train --resume")
        ending.ended = "refused to resume" if ended.status else "resumed"
        if ended.status == 0 and not done.startswith("config.toml"):  # other settings are another run
            for lost in find_lost_updates(self.whole, run, since=KILLED_IN - 1):
                ending.fail("lost_updates", lost)


def _read_file(ending: Ending, source: Source, draws: Random) -> None:
    name = source.name
    Path(name).write_bytes(source.spoil(source.content, draws))
    if name.startswith("task_set"):
        commands: list[tuple[str, ...]] = [("tasks", name), ("tasks", "identity", "--check", name)]
    else:
        commands = [
            ("audit", name, *draws.choice(((), ("--json",), ("--method", "gigpo")))),
            ("check", "rollouts", name, *draws.choice(((), ("--json",)))),
            ("explain", name, "--rollout", draws.choice(("0", "7", "1")), "--step", draws.choice(("0", "1"))),
        ]
    ending.ended = _judge_all(ending, commands, sure_to_fail=source.sure_to_fail)


def _judge_all(ending: Ending, commands: list[tuple[str, ...]], *, sure_to_fail: bool) -> str:
    """Put something to commands, one after the other; whether it was read or refused."""
    statuses = set[int]()
    for words in commands:
        printed: Printed = call_command(*words)
        named = " ".join(words[:2] if words[0] == "check" else words[:1])
        judge_printed(ending, printed, name=named, allowed=(0, 1, 2) if words[0] == "check" else (0, 2))
        statuses.add(printed.status)
        if sure_to_fail and printed.status == 0:
            ending.fail("silent_successes", f"{named}: status 0 for a file that cannot be read")
    return "refused" if statuses == {2} else "read" if 2 not in statuses else "read by some"
