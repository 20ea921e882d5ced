"""`groupwise doctor`: check this machine, run a short self-test, and list what to fix."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer
from rich.markup import escape

from groupwise.cli.arguments import TRAINER, Set, Trust, Unset, argument, load_run_file, option
from groupwise.cli.screen import errors, print_line
from groupwise.parts.outside import WITHOUT_TRUST
from groupwise.parts.part import check_may_open
from groupwise.system.errors import ConfigError
from groupwise.system.processes import count_usable_cores, format_bytes, read_free_memory, read_load

if TYPE_CHECKING:
    from groupwise.training.doctor.doctor import Sizes

MIN_DISK = 2e9
"""With fewer free bytes there is a warning."""
SETTING_TO_CHANGE = {
    "weights": "model.path, model.dtype",
    "reference": "a loss without a reference",
    "gradients": "model.lora_rank",
    "optimizer": "model.lora_rank",
    "critic": 'the critic "value_head"',
    "activations": "training.learner: token_budget, checkpoint_layers",
    "work space": "training.learner: token_budget",
    "engine": "engine.precision",
    "keys and values": "engine.rows, engine.memory, rollout.history, rollout.max_tokens",
    "reading": "engine.batch_tokens",
}
"""The settings that change each part of the memory."""
COLOURS = {"ok": "green", "note": "dim", "warning": "yellow", "broken": "red"}


class Finding(NamedTuple):
    """The result of one check."""

    status: Literal["ok", "note", "warning", "broken"]
    name: str
    what: str
    fix: str = ""
    lines: tuple[str, ...] = ()
    """Details, one line each."""


def doctor(
    file: Annotated[Path | None, argument("RUN.toml", "Run file to check as well.")] = None,
    out: Annotated[Path, option("FOLDER", "Folder for runs. Its disk is checked.")] = Path("runs"),
    set_: Set = None,
    unset: Unset = None,
    trust: Trust = False,
) -> None:
    """Check whether this machine can train, and list what to fix. If something is broken, the exit status is 1."""
    missing = [package for package in TRAINER if find_version(package) is None]
    with errors().status("checking") if sys.stderr.isatty() else nullcontext():
        findings = list(_examine(file, out, set_, unset, has_trainer=not missing))
    broken = any(finding.status == "broken" for finding in findings)
    print_line(_answer(missing, is_broken=broken), markup=True)
    for finding in findings:
        colour = COLOURS[finding.status]
        line = f" [{colour}]{finding.status:<8}[/] {escape(finding.name)}: {escape(finding.what)}"
        print_line(line, markup=True)
        for row in finding.lines:
            print_line(f"          {row}")
        if finding.fix:
            print_line(f"          [bold]Fix:[/] {escape(finding.fix)}", markup=True)
    if broken:
        raise typer.Exit(1)


def _answer(missing: Sequence[str], *, is_broken: bool) -> str:
    if missing:
        install = escape("pip install 'groupwise[train]'")
        return f"[bold red]no[/], you cannot train here: {', '.join(missing)} not installed. [bold]Fix:[/] {install}"
    if is_broken:
        return "[bold red]no[/], you cannot train here: see what is broken below"
    from groupwise.training.doctor.hardware import list_gpus

    if gpus := list_gpus():
        return f"[bold green]yes[/], you can train here, on {len(gpus)} GPU{'s' if len(gpus) > 1 else ''}"
    return "[bold green]yes[/], you can train here, on the CPU: small models only"


def _examine(
    file: Path | None, out: Path, set_: list[str] | None, unset: list[str] | None, *, has_trainer: bool
) -> Iterator[Finding]:
    yield Finding("ok", "system", f"Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    versions = {package: find_version(package) for package in EXTRAS}
    yield from (Finding("ok", package, found) for package, found in versions.items() if found is not None)
    if missing := [package for package, found in versions.items() if found is None]:
        yield _describe_extras(missing)
    yield _check_disk(out)
    if has_trainer:
        from groupwise.training.doctor.doctor import self_test

        yield from _check_hardware()
        for check in self_test():
            fix = "" if check.ok else "install the versions in constraints.txt, then report this with the output above"
            yield Finding("ok" if check.ok else "broken", check.name, check.finding, fix)
    if file is not None and has_trainer:
        yield from _check_run_file(file, out, set_, unset)
    elif file is not None:
        yield Finding(
            "broken", str(file), "not checked, because packages are missing", "pip install 'groupwise[train]'"
        )


def _describe_extras(missing: Sequence[str]) -> Finding:
    extras = list(dict.fromkeys(EXTRAS[package] for package in missing))
    what = f"{', '.join(extras)} not installed; to install one: pip install 'groupwise[{extras[0]}]'"
    alone = [package for package in missing if package in ALONE]
    also = f"for {', '.join(EXTRAS[package] for package in alone)} also: pip install --no-deps {' '.join(alone)}"
    return Finding("note", "optional extras", what, lines=(also,) if alone else ())


def _check_disk(folder: Path) -> Finding:
    free, whole = read_free_disk(folder)
    what = f"{format_bytes(free)} of {format_bytes(whole)} free for {folder}"
    if folder.is_dir():
        size = 0.0
        for path in folder.rglob("*"):
            with suppress(OSError):  # it may be gone meanwhile
                size += path.lstat().st_size if path.is_file() and not path.is_symlink() else 0
        what += f", which has {format_bytes(size)}"
    if free < MIN_DISK:
        return Finding("warning", "disk", what, "free some space, or choose another disk with --out")
    return Finding("ok", "disk", what)


def _check_hardware() -> Iterator[Finding]:
    from groupwise.training.doctor.hardware import count_threads, list_gpus

    yield _check_threads(count_threads())
    memory = read_free_memory()
    if memory is not None:
        yield Finding("ok", "memory", f"{format_bytes(memory)} available")
    devices = list_gpus()
    for number, gpu in enumerate(devices):
        name, info = f"GPU {number}", f"{gpu.name}, {format_bytes(gpu.free)} of {format_bytes(gpu.memory)} free"
        if gpu.has_bfloat16:
            yield Finding("ok", name, f"{info}, bfloat16")
        else:
            yield Finding("warning", name, f"{info}, no bfloat16", 'set model.dtype = "float32"')
    if not devices and shutil.which("nvidia-smi"):
        fix = "install a torch build for CUDA, and check that the driver is new enough for it"
        yield Finding("warning", "GPU", "there is an NVIDIA driver, but torch sees no GPU", fix)
    elif not devices:
        yield Finding("note", "GPU", "none; small models train on the CPU")


def _check_threads(threads: int) -> Finding:
    cores, load = count_usable_cores(), read_load()
    free = max(1, cores - round(load))
    what = f"torch uses {threads}; there are {cores} cores, and the load is {load:.1f}"
    if threads <= free:
        return Finding("ok", "threads", what)
    fix = f"export OMP_NUM_THREADS={free}; if threads share cores, a tiny model is about ten times slower"
    return Finding("warning", "threads", what, fix)


def _check_run_file(file: Path, out: Path, set_: list[str] | None, unset: list[str] | None) -> Iterator[Finding]:
    from groupwise.training.config.checks import describe_unread_rewards
    from groupwise.training.doctor.doctor import estimate_sizes
    from groupwise.training.trackers import check_trackers

    try:
        config = load_run_file(file, set_, unset)
        check_may_open(config.env)
        check_trackers(config.trackers)
        sizes = estimate_sizes(config, available=_read_available())
    except ConfigError as error:
        fault = str(error).removeprefix(f"{file}: ")
        if WITHOUT_TRUST in fault:
            yield Finding("note", str(file), fault)
            return
        fix = "fix the run file; with `groupwise schema`, an editor marks errors" if file.exists() else ""
        yield Finding("broken", str(file), fault, fix)
        return
    yield Finding("ok", str(file), f"{config.training.updates} updates of {sizes.rollouts} rollouts")
    if unread := describe_unread_rewards(config):
        yield Finding("note", str(file), unread)
    yield Finding("ok", "tokens", f"at most {sizes.tokens:,} sampled tokens per update")
    yield _check_memory(sizes)
    if sizes.memory.has_gradients_to_add:
        what = "apply_gradients needs one micro-batch per optimizer step, but the longest rollouts need several"
        fix = "set training.learner: apply_gradients = 'together', or raise token_budget or minibatches"
        yield Finding("warning", "gradients", what, fix)
    free, _ = read_free_disk(out)
    what = f"{sizes.checkpoints} of {format_bytes(sizes.checkpoint)}"
    if sizes.checkpoint * sizes.checkpoints > free:
        fix = "set checkpoints.keep = 1, or write the run to a larger disk with --out"
        yield Finding("warning", "checkpoints", f"{what}, but {format_bytes(free)} of disk are free", fix)
    else:
        yield Finding("ok", "checkpoints", what)


def _read_available() -> float | None:
    """Free bytes of the GPU with the most, else of the main memory; None if unknown."""
    from groupwise.training.doctor.hardware import list_gpus

    return max((gpu.free for gpu in list_gpus()), default=read_free_memory())


def _check_memory(sizes: Sizes) -> Finding:
    free = _read_available()
    from groupwise.training.doctor.memory import LEARN, ROLLOUT

    memory, lines = sizes.memory, []
    for part, size in memory.parts.items():
        if size:
            when = "always" if part in LEARN and part in ROLLOUT else "learning" if part in LEARN else "rollouts"
            lines.append(f"{part:<16}{format_bytes(size):>10}  {when:<9} {SETTING_TO_CHANGE[part]}")
    for stage, size in (("rollouts", memory.rollout), ("learning", memory.learn)):
        lines.append(f"{stage:<16}{format_bytes(size):>10}")
    what = f"about {format_bytes(memory.peak)} ({sizes.parameters:,} parameters, {sizes.trained:,} trained)"
    if not memory.is_rehearsed:
        what += ", for prompts of the model's maximum length: outside environments are not run here"
    if free is not None and memory.peak > free:
        fix = "change the settings of the largest part above, or use a smaller model"
        return Finding(
            "warning", "memory of the run", f"{what}, but {format_bytes(free)} are available", fix, tuple(lines)
        )
    return Finding("ok", "memory of the run", what, lines=tuple(lines))


# Properties of this machine that need no torch.

EXTRAS = {
    **dict.fromkeys(TRAINER, "train"),
    "pyarrow": "parquet",
    "openai": "agent",
    **{name: name for name in ("pandas", "polars", "gymnasium", "datasets", "alfworld", "textworld")},
    "textworld-express": "textworld_express",
    "scienceworld": "scienceworld",
    "reasoning-gym": "reasoning",
    "math-verify": "math",
    "bm25s": "search",
    **dict.fromkeys(("rapidfuzz", "snowballstemmer"), "webshop"),
    "bfcl-eval": "bfcl",
    "minigrid": "babyai",
    "gym-sokoban": "sokoban",
    "textarena": "textarena",
    "gem-llm": "gem",
    "websockets": "openenv",
    **dict.fromkeys(("starlette", "uvicorn"), "serve"),
    "vllm": "vllm",
    "bitsandbytes": "qlora",
    "torchao": "lean",
    **{name: name for name in ("ray", "tensorboard", "wandb", "trackio", "mlflow")},
}
"""Optional packages, and the extra that installs each."""
ALONE = {"bfcl-eval", "gem-llm"}
"""Their extra installs only the dependencies that are used: the packages themselves pin many old versions."""


def find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def read_free_disk(folder: Path) -> tuple[float, float]:
    """Free bytes and size of the disk of a folder, which need not exist."""
    there = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
    usage = shutil.disk_usage(there)
    return float(usage.free), float(usage.total)
