"""`groupwise sweep`: train a run file with several settings and seeds, and compare the results in a table."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from groupwise.cli.arguments import Unset, argument, flag, need_trainer, option, print_note
from groupwise.cli.screen import errors, format_plain_percent, make_table, output, print_json, print_line
from groupwise.cli.train import STOPPED
from groupwise.store.lock import RunLock
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import ConfigError, FileError
from groupwise.system.processes import (
    count_usable_cores,
    drop_torchrun_variables,
    read_free_memory,
    read_load,
    read_thread_limit,
)
from groupwise.training.evaluation.summary import describe_task_set
from groupwise.training.sweep import PlannedRun

if TYPE_CHECKING:
    from groupwise.report.runs import Results, VariantResult
    from groupwise.training.evaluation.over_seeds import Estimate
    from groupwise.training.sweep import Places, SweepPlan


def sweep(
    file: Annotated[Path, argument("RUN.toml", "Run file.")],
    seeds: Annotated[int, option("N", "Runs per variant; seeds count from the run file's seed.", min=1)] = 5,
    set_: Annotated[list[str] | None, option("KEY=VALUE,VALUE", "Values of a setting. Repeatable.", "--set")] = None,
    unset: Unset = None,
    out: Annotated[Path | None, option("FOLDER", "Sweep folder; default: sweeps/NAME.")] = None,
    jobs: Annotated[int | None, option("N", "Runs at a time; default: as many as fit.", min=1)] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Print the plan, and train nothing.")] = False,
    as_json: Annotated[bool, flag("--json", "Print the results as JSON.")] = False,
) -> None:
    """Train combinations of settings with several seeds, and compare them. Repeat the command to resume."""
    need_trainer()
    from groupwise.training.sweep import RESULTS, read_plan, write_json

    folder = out or Path("sweeps") / file.stem
    recorded = read_plan(folder)
    plan = _make_plan(file, set_ or (), unset or (), seeds, recorded, folder)
    runs = plan.list_runs(folder)
    waiting = [run for run in runs if not _is_finished(plan, run)]
    places = _find_places(plan, waiting, jobs) if waiting else None
    _print_plan(plan, waiting, places)
    if dry_run:
        for run in runs:
            print_line(f"{run.name}  {run.folder}{'' if run in waiting else '  finished'}")
        return
    with RunLock(folder).hold():
        if read_plan(folder) != recorded:
            raise ConfigError(f"{folder}: another sweep just started there; repeat the command")
        failed = _train(plan, folder, waiting, places) if places else []
        results = _sum_up(plan, [run for run in runs if _is_finished(plan, run)])
        if results is not None:
            write_json(folder / RESULTS, make_results_json(plan, results))
    _print_end(plan, results, folder, as_json=as_json)
    if failed:
        raise typer.Exit(1)


def _make_plan(
    file: Path, settings: Sequence[str], unset: Sequence[str], num_seeds: int, recorded: SweepPlan | None, folder: Path
) -> SweepPlan:
    """The plan of the command line, as an extension of the plan in the folder."""
    from groupwise.training.sweep import extend_plan, list_choices, plan_sweep

    if recorded is None and RunPaths(folder).holds_run():
        raise ConfigError(f"{folder} is a run, not a sweep; choose another folder with --out")
    num_runs = len(list_choices(settings)) * num_seeds
    share = max(1, count_usable_cores() // num_runs)  # of the cores, at most OMP_NUM_THREADS
    threads = recorded.threads if recorded else min(share, read_thread_limit() or share)
    wanted = plan_sweep(file, settings, num_seeds=num_seeds, threads=threads, unset=unset, tell=print_note)
    if recorded is None:
        return wanted
    plan, added = extend_plan(recorded, wanted, folder)
    if added:
        print_line(f"the sweep in {folder} is extended: {added}", to=errors())
    return plan


def _is_finished(plan: SweepPlan, run: PlannedRun) -> bool:
    from groupwise.training.alarms import is_finished

    return RunPaths(run.folder).holds_run() and is_finished(run.folder, plan.load_config(run))


def _find_places(plan: SweepPlan, waiting: Sequence[PlannedRun], jobs: int | None) -> Places:
    """Where the runs train: as many at a time as --jobs says, or as fit on this machine."""
    from groupwise.training.sweep import Machine, Places, RunNeeds, find_places

    first = {run.variant: run for run in reversed(waiting)}
    configs = [plan.load_config(run) for run in first.values()]
    if jobs is not None and all(config.device == "cpu" for config in configs):
        return Places(gpus=(None,) * min(jobs, len(waiting)), reason="--jobs")
    from groupwise.training.config.engine_config import LocalEngine
    from groupwise.training.doctor.doctor import estimate_sizes
    from groupwise.training.doctor.hardware import list_gpus

    may_move = all(config.device in ("auto", "cuda") for config in configs)
    gpus = [gpu.free for gpu in list_gpus()] if may_move else []
    if jobs is not None:
        places = [place % len(gpus) if gpus else None for place in range(min(jobs, len(waiting)))]
        return Places(gpus=tuple(places), reason="--jobs")
    obstacles = ["they sync weights to the same servers" for config in configs if getattr(config.engine, "urls", ())]
    obstacles += ["they name one GPU" for config in configs if config.device.startswith("cuda:")]
    needs = RunNeeds(
        threads=max(config.threads for config in configs),
        memory=max(estimate_sizes(config).memory.peak for config in configs),
        alone_because=obstacles[0] if obstacles else "",
        fills_gpu=any(not isinstance(config.engine, LocalEngine) for config in configs),
    )
    cores = max(1, count_usable_cores() - round(read_load()))
    return find_places(len(waiting), needs, Machine(cores=cores, memory=read_free_memory(), gpus=gpus))


def _print_plan(plan: SweepPlan, waiting: Sequence[PlannedRun], places: Places | None) -> None:
    variants, seeds = len(plan.variants), len(plan.seeds)
    size = (
        f"{variants * seeds} runs: {variants} variant{'s' if variants > 1 else ''} of {seeds} "
        f"seed{'s' if seeds > 1 else ''}"
    )
    rest = "all of them finished" if places is None else f"{len(waiting)} to train, {len(places.gpus)} at a time"
    why = f" ({places.reason})" if places else ""
    print_line(f"{size}; {rest}{why}", to=errors())


def _train(plan: SweepPlan, folder: Path, waiting: Sequence[PlannedRun], places: Places) -> list[FailedRun]:
    from groupwise.training.sweep import write_plan, write_run_file

    write_plan(plan, folder)
    for run in waiting:
        write_run_file(plan, run)
    num_runs = len(plan.variants) * len(plan.seeds)
    try:
        return train_runs(waiting, places.gpus, SweepLines(num_runs, num_runs - len(waiting)), start_process)
    except KeyboardInterrupt:
        print_line("stopped; repeat the command to resume the runs", to=errors())
        raise typer.Exit(130) from None


def _sum_up(plan: SweepPlan, finished: Sequence[PlannedRun]) -> Results | None:
    from groupwise.report.runs import make_variant, read_run, sum_up

    variants = []
    for variant in plan.variants:
        runs = [read_run(run.folder) for run in finished if run.variant == variant.name]
        variants += [make_variant(variant.name, runs)] if runs else []
    return sum_up(variants)


def _print_end(plan: SweepPlan, results: Results | None, folder: Path, *, as_json: bool) -> None:
    if results is None:
        print_line(f"no run is finished, so there is no table; the logs are in {folder}", to=errors())
    elif as_json:
        print_json(make_results_json(plan, results))
    else:
        print_results(plan, results)
        print_line(f"\nThe sweep is in {folder}. Look at it:\n  groupwise report {shlex.quote(str(folder))}")


# The runs of a sweep as processes with a log each. If one dies, the others continue.

POLL_SECONDS = 0.1
REPORT_SECONDS = 10.0
"""Seconds between two lines about the active runs."""
STOP_SECONDS = 20.0
"""Seconds that runs have to stop after an interrupt, before they are killed."""
TAIL_BYTES = 8192
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, kw_only=True)
class FailedRun:
    """A run whose process ended too early."""

    run: PlannedRun
    """Which run it was."""
    status: int
    """The exit status of its process; negative = the signal that killed it."""
    reason: str
    """The last line of its log."""


class SweepLines:
    """Prints the events of a sweep on standard error, one line each."""

    def __init__(self, num_runs: int, num_done: int) -> None:
        self._num_runs, self._num_done = num_runs, num_done

    def on_begin(self, run: PlannedRun) -> None:
        verb = "resumes" if RunPaths(run.folder).holds_run() else "begins"
        print_line(f"{run.name} {verb}", to=errors())

    def on_end(self, run: PlannedRun, failure: FailedRun | None) -> None:
        self._num_done += failure is None
        what = f"failed: {failure.reason}" if failure else f"is finished ({self._num_done} of {self._num_runs} runs)"
        print_line(f"{run.name} {what}", to=errors())

    def on_time(self, under_way: Sequence[PlannedRun]) -> None:
        print_line("; ".join(f"{run.name}: {_describe_progress(run)}" for run in under_way), to=errors())


def _describe_progress(run: PlannedRun) -> str:
    from groupwise.store.journal import Journal

    try:
        with Journal(RunPaths(run.folder).journal, read_only=True) as journal:
            return f"update {max(journal.last_number(), 0)}"
    except (FileError, OSError):  # there is no journal yet
        return "opening"


RunProcess = subprocess.Popen[bytes]
StartRun = Callable[[PlannedRun, int | None], RunProcess]
"""Starts the process of a run on the GPU of this number; None = on the run file's device."""


def train_runs(
    runs: Sequence[PlannedRun], gpus: Sequence[int | None], report: SweepLines, start: StartRun
) -> list[FailedRun]:
    """Train the runs in order, one at a time on each place. Returns those that failed."""
    waiting, free = list(runs), list(gpus)
    under_way: dict[int, tuple[PlannedRun, int | None, RunProcess]] = {}
    failed: list[FailedRun] = []
    reported = time.monotonic()
    try:
        while waiting or under_way:
            while waiting and free:
                run, gpu = waiting.pop(0), free.pop(0)
                report.on_begin(run)
                process = start(run, gpu)
                under_way[id(process)] = run, gpu, process
            time.sleep(POLL_SECONDS)
            for key, (run, gpu, process) in list(under_way.items()):
                status = process.poll()
                if status is not None:
                    del under_way[key]
                    free.append(gpu)
                    failure = _describe_failure(run, status) if status not in (0, STOPPED) else None
                    failed += [failure] if failure else []
                    report.on_end(run, failure)
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                report.on_time([run for run, _, _ in under_way.values()])
    finally:
        _stop([process for _, _, process in under_way.values()])
    return failed


def start_process(run: PlannedRun, gpu: int | None) -> RunProcess:
    """Start `groupwise train --resume` for a run."""
    environment = drop_torchrun_variables(os.environ)
    package = str(Path(__file__).resolve().parents[2])  # the child must not import another groupwise
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, environment.get("PYTHONPATH", "")]))
    if gpu is not None:
        environment[VISIBLE] = name_gpu(gpu, os.environ.get(VISIBLE))
    command = [sys.executable, "-m", "groupwise.cli.sweep", str(os.getpid()), *list_arguments(run)]
    with run.log.open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)


def list_arguments(run: PlannedRun) -> list[str]:
    return ["train", str(run.file), "--out", str(run.folder), "--resume", "--plain"]


def name_gpu(number: int, visible: str | None) -> str:
    """CUDA's name of the GPU that has this number among the visible ones.

    >>> name_gpu(1, None), name_gpu(1, "4,6")
    ('1', '6')
    """
    return visible.split(",")[number].strip() if visible else str(number)


def _describe_failure(run: PlannedRun, status: int) -> FailedRun:
    if status < 0:
        with suppress(ValueError):
            return FailedRun(run=run, status=status, reason=f"killed by {signal.Signals(-status).name}")
    lines: list[str] = []
    with suppress(OSError), run.log.open("rb") as file:
        file.seek(max(0, run.log.stat().st_size - TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
    return FailedRun(run=run, status=status, reason=last)


def _stop(processes: Sequence[RunProcess]) -> None:
    """Stop processes as Ctrl-C does, and kill those that do not stop."""
    for process in processes:
        process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + STOP_SECONDS
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    for process in processes:
        if process.poll() is None:
            process.kill()


# The table of a sweep, as text and as data.

SCHEMA = 2
ENOUGH_SEEDS = 3
"""With fewer seeds an interval is not reliable."""
MIN_SEEDS = 2
"""With fewer seeds there is no interval."""
NO_INTERVAL = {"low": None, "high": None}
MAX_MISSING = 5
"""Printed missing runs; more are counted."""


def make_results_json(plan: SweepPlan, results: Results) -> dict[str, Any]:
    content = asdict(results)
    choices = {variant.name: dict(variant.choices) for variant in plan.variants}
    for variant in content["variants"]:
        variant["choices"] = choices[variant["name"]]
        if len(variant["seeds"]) < MIN_SEEDS:
            variant["final"] |= NO_INTERVAL
            variant["best"] |= NO_INTERVAL
    for pair in content["improvements"]:
        if not pair.pop("has_interval"):
            pair["probability"] |= NO_INTERVAL
    return {"schema": SCHEMA, **content, "missing": list_missing(plan, results)}


def list_missing(plan: SweepPlan, results: Results | None) -> list[str]:
    counted = (
        {(variant.name, seed.seed) for variant in results.variants for seed in variant.seeds} if results else set()
    )
    return [
        f"{variant.name} seed {seed}"
        for variant in plan.variants
        for seed in plan.seeds
        if (variant.name, seed) not in counted
    ]


def print_results(plan: SweepPlan, results: Results) -> None:
    format_value = format_plain_percent if results.measure == "success" else _format_number
    where = describe_task_set(results.name, results.split)
    print_line(
        f"{results.measure} on {results.tasks} tasks of {where} (hash {results.task_set[:12]}): "
        "interquartile mean over seeds [95 % interval]\n"
    )
    output().print(_make_table(results.variants, format_value))
    if results.improvements:
        print_line(
            "\nprobability that a run of the first variant is better than a run of the second, at the last evaluation:"
        )
    for pair in results.improvements:
        words = _format_estimate(pair.probability, _format_number, has_interval=pair.has_interval)
        print_line(f"  {pair.variant} > {pair.over}:  {words}")
    few = [variant.name for variant in results.variants if len(variant.seeds) < ENOUGH_SEEDS]
    if few:
        print_line(f"\nan interval over fewer than {ENOUGH_SEEDS} seeds is not reliable: {', '.join(few)}")
    missing = list_missing(plan, results)
    if missing:
        rest = f" and {len(missing) - MAX_MISSING} more" if len(missing) > MAX_MISSING else ""
        print_line(f"\nnot finished, so not in the table: {', '.join(missing[:MAX_MISSING])}{rest}")


def _make_table(variants: Sequence[VariantResult], format_value: Callable[[float], str]) -> Table:
    table = make_table("variant", "seeds", "last", "best", "last, lowest to highest", bold=True)
    for variant in variants:
        finals = [seed.final for seed in variant.seeds]
        spread = f"{format_value(min(finals))} to {format_value(max(finals))}"
        estimates = [
            _format_estimate(estimate, format_value, has_interval=variant.has_interval)
            for estimate in (variant.final, variant.best)
        ]
        table.add_row(escape(variant.name), str(len(variant.seeds)), *estimates, spread)
    return table


def _format_estimate(estimate: Estimate, format_value: Callable[[float], str], *, has_interval: bool) -> str:
    if not has_interval:
        return format_value(estimate.value)
    return f"{format_value(estimate.value)} [{format_value(estimate.low)}, {format_value(estimate.high)}]"


def _format_number(value: float) -> str:
    return f"{value:.3f}"


if __name__ == "__main__":  # the process of one run, which ends when the sweep's ends: PARENT train RUN.toml ...
    from groupwise.cli.main import main
    from groupwise.system.sandbox import die_with_parent

    die_with_parent(int(sys.argv[1]))
    sys.argv = ["groupwise", *sys.argv[2:]]
    main()
