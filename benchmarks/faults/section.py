"""A section of the campaign, and how its cases are played: in forked processes, several at a time, each watched."""

from __future__ import annotations

import json
import os
import resource
import select
import tempfile
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from benchmarks.faults.endings import Ending, summarise
from benchmarks.faults.processes import adopt_orphans, end_leftovers, wait_for

PROGRESS_SECONDS = 15.0
SHUTDOWN_TIMEOUT = 10.0


class Section(ABC):
    """Cases of one kind. A case follows from the campaign's seed and its own number."""

    name: str
    count: int
    """Cases of the full campaign; of a shorter one, as many as it asks for."""
    case_seconds: float = 60.0
    """How long a case may take before it counts as hanging."""
    memory: int | None = None
    """Bytes of address space that a process which plays cases may have."""
    batch: int = 1
    """Cases that are played in one process, one after the other; a crash or a hang costs only the case it came in."""

    def __init__(self, *, seed: int, folder: Path, count: int | None = None) -> None:
        self.seed, self.folder = seed, folder
        self.count = type(self).count if count is None else count

    def explain_skip(self) -> str:
        """Why the section cannot be played on this machine; empty where it can."""
        return ""

    def prepare(self) -> dict[str, Any]:
        """Make what all cases need, once; what the result should say of it."""
        return {}

    def numbers(self) -> Sequence[int]:
        """The cases to play; asked for when everything is prepared."""
        return range(self.count)

    @abstractmethod
    def describe(self, case: int) -> str:
        """What the case does, in words."""

    @abstractmethod
    def play(self, case: int) -> Ending:
        """Play a case."""

    def draws(self, case: int) -> Random:
        """The random numbers of a case."""
        return Random(f"{self.seed}/{self.name}/{case}")


def play_section(section: Section, *, processes: int, budget: float, only: int | None = None) -> dict[str, Any]:
    """Play a section's cases and summarise how they ended; when the time is over, those that are left are left out."""
    began = time.monotonic()
    if reason := section.explain_skip():
        print(f"{section.name}: skipped, {reason}", flush=True)
        return {"skipped": reason, "asked": section.count, **summarise([], seed=section.seed)}
    print(f"{section.name}: preparing", flush=True)
    settings = section.prepare()
    numbers = list(section.numbers()) if only is None else [only]
    endings = _spread(section, numbers, processes=processes, until=began + budget)
    summary = summarise(endings, seed=section.seed)
    print(f"{section.name}: {summary['cases']} cases, {summary['failing_cases']} failing", flush=True)
    return {
        "seed": section.seed,
        "asked": section.count,
        "settings": settings,
        "seconds": round(time.monotonic() - began, 1),
        "stopped_early": bool(set(numbers) - {ending.case for ending in endings}),
        **summary,
    }


def _spread(section: Section, numbers: list[int], *, processes: int, until: float) -> list[Ending]:
    """Play cases in several processes at a time; each keeps its endings in a file of its own."""
    folder = Path(tempfile.mkdtemp(dir=section.folder))
    shards = {_fork_shard(section, numbers[n::processes], folder / f"{n}.jsonl", until): n for n in range(processes)}
    shown = time.monotonic()
    while shards:
        for child in list(shards):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                assert status == 0, f"a process of the campaign ended with {status}; see above"
                del shards[child]
        if time.monotonic() - shown > PROGRESS_SECONDS:
            shown = time.monotonic()
            endings = _read_endings(folder)
            failing = sum(bool(ending.failures) for ending in endings)
            print(f"{section.name}: {len(endings)} of {len(numbers)} cases, {failing} failing", flush=True)
        time.sleep(0.05)
    return _read_endings(folder)


def _read_endings(folder: Path) -> list[Ending]:
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    return [Ending.from_json(json.loads(line)) for line in lines]


def _fork_shard(section: Section, numbers: list[int], file: Path, until: float) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        adopt_orphans()
        with file.open("w", encoding="utf-8") as kept:
            for start in range(0, len(numbers), section.batch):
                if time.monotonic() > until:
                    break
                for ending in _play_batch(section, numbers[start : start + section.batch]):
                    kept.write(json.dumps(ending.as_json()) + "\n")
                    kept.flush()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _play_batch(section: Section, numbers: list[int]) -> Iterator[Ending]:
    """Play cases in one process; where it dies or hangs in a case, go on with the next one in another."""
    while numbers:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            _play_here(section, numbers, write)
        os.close(write)
        lines, last = _Lines(read), numbers[0]
        while numbers and (line := lines.next(section.case_seconds)):
            yield Ending.from_json(json.loads(line))
            last, numbers = numbers[0], numbers[1:]
        is_late = bool(numbers) and not lines.has_ended
        status = wait_for(child, 0.0 if is_late else SHUTDOWN_TIMEOUT)
        os.close(read)
        if numbers:
            last, numbers = numbers[0], numbers[1:]
        yield from _after(section, last, is_late=is_late, status=status)


def _after(section: Section, case: int, *, is_late: bool, status: int | None) -> Iterator[Ending]:
    """What is to be told of the last case that a process played, where the process did not end well after it."""
    ending = Ending(case=case, what=section.describe(case), ended="lost", num=0)
    if is_late:
        ending.fail("hangs", f"no end within {section.case_seconds:g} seconds")
    elif status != 0:
        ending.fail("crashes", f"the process that played it ended with {status}")
    for leftover in end_leftovers():
        ending.fail("leftover_processes", leftover)
    if ending.failures:
        yield ending


def _play_here(section: Section, numbers: list[int], pipe: int) -> NoReturn:
    own = os.getpid()
    try:
        adopt_orphans()
        if section.memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (section.memory, section.memory))
        for number in numbers:
            try:
                ending = section.play(number)
            except Exception:
                ending = Ending(case=number, what=section.describe(number), ended="raised")
                ending.fail("tracebacks", traceback.format_exc())
            if os.getpid() != own:  # a copy that a hostile answer made: only one of us may tell
                break
            os.write(pipe, (json.dumps(ending.as_json()) + "\n").encode())
        os._exit(0)
    finally:
        os._exit(1)


class _Lines:
    """Lines of a pipe, as they come."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._held = descriptor, b""
        self.has_ended = False
        """Whether the other end was closed."""

    def next(self, seconds: float) -> str:
        """The next line; empty where none came in time, or none will come."""
        until = time.monotonic() + seconds
        while b"\n" not in self._held:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._descriptor], [], [], left)[0]:
                return ""
            if not (got := os.read(self._descriptor, 65536)):
                self.has_ended = True
                return ""
            self._held += got
        line, _, self._held = self._held.partition(b"\n")
        return line.decode()
