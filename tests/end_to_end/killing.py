"""Runs `groupwise train` in processes of its own and kills them, one after the other.

Importing torch takes seconds, and a process that was killed must begin anew. So this one imports everything once,
computes nothing, and forks: each child is a fresh `groupwise train`. What the loop tells its observers comes back
through a pipe, so that a child is killed in a chosen stage, a share of that stage's duration after its beginning.

    python -m tests.end_to_end.killing RUN.toml FOLDER NUM_KILLS
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NoReturn

Stage = tuple[str, int]
OPENING: Stage = ("open", -1)
"""The stage of a process that has not come to the loop yet: it opens the model, the journal and the checkpoint."""


def train_with_kills(file: Path, folder: Path, *, num_kills: int, seed: int) -> list[Stage]:
    """Train once whole and once with interruptions, in two folders; the stages after whose beginning it was killed."""
    import_all(file)
    lasted = finish(file, folder / "whole")
    order, draws = list(lasted), Random(seed)
    killed = [
        kill(file, folder / "killed", set(order[order.index(stage) :]), draws.random() * lasted[stage])
        for stage in choose_stages(order, num_kills, draws)
    ]
    finish(file, folder / "killed")
    assert None not in killed, f"a run ended before it was killed: {killed}"
    return [stage for stage in killed if stage is not None]


def finish(file: Path, folder: Path) -> dict[Stage, float]:
    """Begin or resume a run and let it come to its end; seconds by stage."""
    child, pipe = _fork(file, folder)
    began, stage, lasted = time.monotonic(), OPENING, dict[Stage, float]()
    for following in _stages(pipe):
        now = time.monotonic()
        lasted[stage], began, stage = now - began, now, following
    lasted[stage] = time.monotonic() - began
    os.close(pipe)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, folder.with_suffix(".log").read_text(encoding="utf-8")
    return lasted


def choose_stages(order: list[Stage], num: int, draws: Random) -> list[Stage]:
    """Where to kill, in the order of a run's life: in every kind of stage, and now and then before the loop goes on."""
    kinds = list(dict.fromkeys(name for name, _ in order[1:]))
    if num - num // 6 < len(kinds):
        kinds = draws.sample(kinds, num - num // 6)
    chosen = {draws.choice([stage for stage in order if stage[0] == name]) for name in kinds}
    rest = [stage for stage in order[1:] if stage not in chosen]
    chosen |= set(draws.sample(rest, num - num // 6 - len(chosen)))
    stages = sorted(chosen, key=order.index)
    for _ in range(num // 6):
        stages.insert(draws.randrange(len(stages)), OPENING)
    return stages


def kill(file: Path, folder: Path, stages: set[Stage], seconds: float) -> Stage | None:
    """Begin or resume a run, and kill it so long after it came to one of the stages.

    That stage; None where the run was at its end before that.
    """
    child, pipe = _fork(file, folder)
    reached = OPENING if OPENING in stages else next((stage for stage in _stages(pipe) if stage in stages), None)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    os.close(pipe)
    return reached if os.WIFSIGNALED(status) else None


def _stages(pipe: int) -> Iterator[Stage]:
    """The stages that a child tells, as they begin, until it ends."""
    while line := _line(pipe):
        name, number = line.split("\t")
        yield name, int(number)


def _line(pipe: int) -> str:
    line = b""
    while (byte := os.read(pipe, 1)) not in (b"", b"\n"):
        line += byte
    return line.decode()


def _fork(file: Path, folder: Path) -> tuple[int, int]:
    """Begin a process that trains; its id and the pipe that it tells its stages through."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read
    os.close(read)
    try:
        _train(file, folder, write)
    finally:
        os._exit(1)  # whatever happened: this copy of the parent must not go on as the parent would


def _train(file: Path, folder: Path, pipe: int) -> NoReturn:
    from groupwise.cli.main import main
    from groupwise.training.observer import ObserverList

    log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    tell = ObserverList.on_stage

    def announce(self: ObserverList, name: str, number: int) -> None:
        os.write(pipe, f"{name}\t{number}\n".encode())
        tell(self, name, number)

    ObserverList.on_stage = announce  # type: ignore[method-assign]
    sys.argv = ["groupwise", "train", str(file), "--out", str(folder), "--resume"]
    try:
        main()
    except SystemExit as stopped:
        sys.stdout.flush()
        os._exit(stopped.code if isinstance(stopped.code, int) else 0)
    os._exit(1)


def import_all(file: Path) -> None:
    """Import what a run imports, and draw the task sets, which are kept; nothing of it starts a thread."""
    import groupwise.cli.live
    import groupwise.cli.main
    import groupwise.cli.train
    import groupwise.training.loop  # noqa: F401
    import tests.preloaded  # noqa: F401
    from groupwise.training.config.run_file import load_run

    config = load_run(file)
    config.env.task_set("train")


if __name__ == "__main__":
    killed = train_with_kills(Path(sys.argv[1]), Path(sys.argv[2]), num_kills=int(sys.argv[3]), seed=0)
    sys.stdout.write(json.dumps(killed))
