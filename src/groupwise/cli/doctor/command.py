"""`groupwise doctor`: what this machine has, whether training works on it, and what to mend."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer
from rich.markup import escape

from groupwise.cli.arguments.trust import Trust
from groupwise.cli.doctor import machine
from groupwise.cli.terminal.screen import in_bytes, output
from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import check_may_open
from groupwise.core.parts.trust import WITHOUT_TRUST

if TYPE_CHECKING:
    from groupwise.training.doctor.sizes import Sizes

LEAST_DISK = 2e9
"""Free bytes below which checkpoints are at risk."""
COLOURS = {"ok": "green", "note": "dim", "warning": "yellow", "broken": "red"}


class Finding(NamedTuple):
    """One thing that was looked at."""

    status: Literal["ok", "note", "warning", "broken"]
    """Warnings hurt; what is broken does not work."""
    name: str
    """What was looked at."""
    found: str
    """What it is."""
    fix: str = ""
    """What to do about it."""


def doctor(
    file: Annotated[Path | None, typer.Argument(metavar="[RUN.toml]", help="A run file to look at as well.")] = None,
    out: Annotated[Path, typer.Option(help="Where runs will be written.")] = Path("runs"),
    trust: Trust = False,
) -> None:
    """Look at this machine, test the trainer on it, and say what to mend; exit with status 1 if something is broken."""
    console = output()
    has_trainer = machine.installed("torch") is not None and machine.installed("transformers") is not None
    broken = False
    for finding in _findings(file, out, has_trainer=has_trainer):
        broken |= finding.status == "broken"
        colour = COLOURS[finding.status]
        line = f" [{colour}]{finding.status:<8}[/] {escape(finding.name)}: {escape(finding.found)}"
        console.print(line, highlight=False, soft_wrap=True)
        if finding.fix:
            console.print(f"          [bold]Fix:[/] {escape(finding.fix)}", highlight=False, soft_wrap=True)
    if broken:
        raise typer.Exit(1)


def _findings(file: Path | None, out: Path, *, has_trainer: bool) -> Iterator[Finding]:
    yield Finding("ok", "system", machine.python())
    yield from _packages()
    yield _disk(out)
    if has_trainer:
        yield from _hardware()
        yield from _self_test()
    if file is not None and has_trainer:
        yield from _run_file(file, out)
    elif file is not None:
        yield Finding("broken", str(file), "torch is not installed", "pip install 'groupwise[train]'")


def _packages() -> Iterator[Finding]:
    for package in machine.EXTRAS:
        version = machine.installed(package)
        if version is None:
            yield Finding("note", package, f"not installed; {machine.install_command(package)} brings it")
        else:
            yield Finding("ok", package, version)


def _disk(folder: Path) -> Finding:
    free, whole = machine.free_disk(folder)
    found = f"{in_bytes(free)} of {in_bytes(whole)} free for {folder}"
    if free < LEAST_DISK:
        return Finding("warning", "disk", found, "free some space, or write runs elsewhere with --out")
    return Finding("ok", "disk", found)


def _hardware() -> Iterator[Finding]:
    from groupwise.training.doctor.hardware import gpus, num_threads

    yield _threads(num_threads())
    memory = machine.free_memory()
    if memory is not None:
        yield Finding("ok", "memory", f"{in_bytes(memory)} available")
    found = gpus()
    for number, gpu in enumerate(found):
        name, facts = f"GPU {number}", f"{gpu.name}, {in_bytes(gpu.free)} of {in_bytes(gpu.memory)} free"
        if gpu.has_bfloat16:
            yield Finding("ok", name, f"{facts}, bfloat16")
        else:
            yield Finding("warning", name, f"{facts}, no bfloat16", 'set model.dtype = "float32"')
    if not found and shutil.which("nvidia-smi"):
        fix = "install a torch build for CUDA, and check that the driver is new enough for it"
        yield Finding("warning", "GPU", "there is an NVIDIA driver, but torch sees no GPU", fix)
    elif not found:
        yield Finding("note", "GPU", "none; small models train on the CPU")


def _threads(threads: int) -> Finding:
    cores, load = machine.usable_cores(), machine.load()
    free = max(1, cores - round(load))
    found = f"torch uses {threads}; there are {cores} cores, and the load is {load:.1f}"
    if threads <= free:
        return Finding("ok", "threads", found)
    fix = f"export OMP_NUM_THREADS={free}; threads that wait for a core make a tiny model about ten times slower"
    return Finding("warning", "threads", found, fix)


def _self_test() -> Iterator[Finding]:
    from groupwise.training.doctor.self_test import self_test

    for check in self_test():
        fix = "" if check.ok else "install the versions in constraints.txt, then report this with the output above"
        yield Finding("ok" if check.ok else "broken", check.name, check.found, fix)


def _run_file(file: Path, out: Path) -> Iterator[Finding]:
    from groupwise.config.run_file import load_run
    from groupwise.training.doctor.sizes import sizes_of
    from groupwise.training.trackers import check_trackers

    try:
        config = load_run(file)
        check_may_open(config.env)
        check_trackers(config.trackers)
        sizes = sizes_of(config)
    except ConfigError as error:
        if WITHOUT_TRUST in str(error):
            yield Finding("note", str(file), str(error))
            return
        yield Finding("broken", str(file), str(error), "mend the run file; `groupwise schema` helps editors to")
        return
    yield Finding("ok", str(file), f"{config.training.updates} updates of {sizes.attempts} attempts")
    yield Finding("ok", "tokens", f"at most {sizes.tokens:,} sampled tokens an update")
    yield _memory(sizes)
    yield _checkpoints(sizes, out)


def _memory(sizes: Sizes) -> Finding:
    from groupwise.training.doctor.hardware import gpus

    free = max((gpu.free for gpu in gpus()), default=machine.free_memory())
    found = f"about {in_bytes(sizes.memory)} ({sizes.parameters:,} weights, {sizes.trained:,} of them train)"
    if free is not None and sizes.memory > free:
        fix = "lower training.learner.token_budget or engine.memory, set model.lora_rank, or take a smaller model"
        return Finding("warning", "memory of the run", f"{found}, but {in_bytes(free)} are available", fix)
    return Finding("ok", "memory of the run", found)


def _checkpoints(sizes: Sizes, out: Path) -> Finding:
    free, _ = machine.free_disk(out)
    whole = sizes.checkpoint * sizes.checkpoints
    found = f"{sizes.checkpoints} of {in_bytes(sizes.checkpoint)}"
    if whole > free:
        fix = "raise training.checkpoint_every, or write the run to a larger disk with --out"
        return Finding("warning", "checkpoints", f"{found}, but {in_bytes(free)} of disk are free", fix)
    return Finding("ok", "checkpoints", found)
