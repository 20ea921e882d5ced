"""Wrong run files and wrong --set overrides, put to `groupwise train` up to where a model would load or learn."""

from __future__ import annotations

import os
import socket
import tempfile
import tomllib
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import tomli_w

from benchmarks.faults.commands import call_command, judge_printed
from benchmarks.faults.endings import ROOT, Ending
from benchmarks.faults.section import Section
from groupwise.models import TinyModel
from groupwise.rollout.environment_runner import Host, open_host
from groupwise.training.config.run_file import read_run_file
from tests.faults.mutations import mutate_bytes, mutate_toml

TINY_OPEN = TinyModel.open

ACCEPTED = 42
"""Status that stands for a run that would now load a model, or learn."""
MAX_WORKERS = 64
OPEN_EVERY = 10
"""In each tenth case a tiny model is really opened, and the run stops before its first update."""
ODD_VALUES: tuple[Any, ...] = (
    *(-1, 0, 1, 2**63 - 1, -(2**63), 0.5, -0.0, 1e308, float("nan"), float("inf"), True, False),
    *("", "x", "\u202e", "\x1b[2J", "none", ".a:b", "a:b", "os:system", "json:loads", "x" * 10_000, "²", "../..", "/"),
    *([], [1], ["x"], [[]], {}, {"kind": "x"}, {"kind": 1}, {"kind": ""}, {"a": {"b": {"c": 1}}}, [{"kind": "tiny"}]),
)
ODD_OVERRIDES = (
    "",
    "=",
    "x",
    "=1",
    "a..b=1",
    ".=1",
    "env=",
    "env.kind=",
    "model.kind=tiny=3",
    "\ud800=1",
    "seed=\ud800",
)
KINDS = (
    "tiny",
    "identity",
    "flat",
    "top_up",
    "window",
    "full",
    "clip",
    "relative",
    "by_task",
    "cosine",
    "choice",
    "dapo",
)


class ModelWouldOpen(SystemExit):
    """Everything that is looked at before a model was found in order."""


class RunFiles(Section):
    """A case is one wrong run file."""

    name = "run_files"
    count = 2500
    case_seconds = 60.0
    batch = 25

    def prepare(self) -> dict[str, Any]:
        os.environ["HF_HUB_OFFLINE"] = "1"
        _import_all()
        _refuse_far_hosts()
        self.files = sorted((ROOT / "examples").rglob("*.toml"))
        return {"run_files": len(self.files), "opened_every": OPEN_EVERY}

    def describe(self, case: int) -> str:
        return f"{self.draws(case).choice(self.files).stem}.toml, wrong"

    def play(self, case: int) -> Ending:
        ending, draws = Ending(case=case, what=self.describe(case)), self.draws(case)
        source = draws.choice(self.files)
        content, overrides, done = spoil(read_whole(source), draws)
        ending.what += f": {done}"
        opens = case % OPEN_EVERY == 0
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            os.chdir(folder)
            Path("run.toml").write_bytes(content)
            settings = [word for override in overrides for word in ("--set", override)]
            _stop_before(ending, model=not opens)
            printed = call_command("train", "run.toml", "--out", "run", "--plain", *settings)
            os.chdir(self.folder)
        judge_printed(ending, printed, name="train", allowed=(2, ACCEPTED))
        ending.ended = "accepted" if printed.status == ACCEPTED else "refused"
        return ending


def read_whole(path: Path) -> str:
    """A run file's text, which says everything itself."""
    file = read_run_file(path)
    return path.read_text(encoding="utf-8") if file.base is None else tomli_w.dumps(file.content)


def spoil(text: str, draws: Random) -> tuple[bytes, list[str], str]:
    """A run file spoilt in one of several ways, overrides to go with it, and what was done."""
    way = draws.random()
    if way < 0.3:
        return mutate_toml(text, draws).encode("utf-8", "surrogatepass"), [], "lines changed"
    if way < 0.4:
        return mutate_bytes(text.encode(), draws), [], "bytes changed"
    content = tomllib.loads(text)
    if way < 0.75:
        done = "; ".join(_change(content, draws) for _ in range(draws.choice((1, 1, 1, 2, 3))))
        return tomli_w.dumps(content).encode(), [], done
    overrides = [_override(content, draws) for _ in range(draws.randint(1, 2))]
    return text.encode(), overrides, " ".join(f"--set {each[:60]!r}" for each in overrides)


def _change(content: dict[str, Any], draws: Random) -> str:
    """Change, add or take away a setting anywhere in a run file."""
    path = draws.choice(_paths(content))
    holder = content
    for key in path[:-1]:
        holder = holder[key]
    name, way = ".".join(path), draws.random()
    if way < 0.15:
        del holder[path[-1]]
        return f"{name} taken away"
    if way < 0.3:
        holder[draws.choice(("kind", "x", "", "a.b", f"{path[-1]}s", "method"))] = draws.choice(ODD_VALUES)
        return f"something put beside {name}"
    holder[path[-1]] = draws.choice(KINDS) if way < 0.45 else draws.choice(ODD_VALUES)
    return f"{name} = {str(holder[path[-1]])[:40]!r}"


def _override(content: dict[str, Any], draws: Random) -> str:
    way = draws.random()
    if way < 0.1:
        return draws.choice(ODD_OVERRIDES)
    path = ".".join(draws.choice(_paths(content)))
    if way < 0.2:
        path += draws.choice((".x", ".kind", "s", "."))
    value = draws.choice(
        (*KINDS, *("1e999", "nan", "[", "{", "'", '"', "{kind='x'}", "[1, 2", "0x", "-1", "0", "true"))
    )
    return f"{path}={value}"


def _paths(content: dict[str, Any], before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []
    for key, value in content.items():
        paths.append((*before, key))
        if isinstance(value, dict):
            paths += _paths(value, (*before, key))
    return paths


def _import_all() -> None:
    import groupwise.cli.live
    import groupwise.cli.main
    import groupwise.training.loop
    import groupwise.training.run  # noqa: F401


def _stop_before(ending: Ending, *, model: bool) -> None:
    """Let this process stop where a model would be opened, or else where it would begin to learn."""
    import groupwise.training.loop as loop
    import groupwise.training.open_run as opening
    from groupwise.models.pretrained import PretrainedModel

    def stop(*arguments: object, **options: object) -> NoReturn:
        raise ModelWouldOpen(ACCEPTED)

    def host(env: Any, *, workers: int, **options: Any) -> Host:
        # Nobody's machine should find out what a million worker processes are like.
        if workers > MAX_WORKERS:
            ending.fail("hangs", f"nothing refuses {workers} worker processes")
        return open_host(env, workers=0, **options)

    opening.open_host = host  # type: ignore[assignment]
    loop.train = stop
    PretrainedModel.open = stop  # type: ignore[method-assign]
    TinyModel.open = stop if model else TINY_OPEN  # type: ignore[method-assign]


def _refuse_far_hosts() -> None:
    """Let nothing that a spoilt run file names be asked for over the network; this machine itself may be."""
    connect = socket.socket.connect

    def near(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise ConnectionRefusedError("the campaign does not leave this machine")
        connect(self, address)

    def unknown(*arguments: object, **options: object) -> NoReturn:
        raise socket.gaierror("the campaign does not leave this machine")

    socket.socket.connect = near  # type: ignore[method-assign,assignment]
    socket.getaddrinfo = unknown
