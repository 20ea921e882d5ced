"""`groupwise sweep`: a run file with several settings and seeds, trained beside each other, and a table of them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli.arguments.run_files import Unset, print_note
from groupwise.cli.arguments.run_folders import need_trainer
from groupwise.cli.doctor import machine
from groupwise.cli.sweep.processes import FailedRun, start_process, train_runs
from groupwise.cli.sweep.table import make_results_json, print_results
from groupwise.cli.terminal.screen import errors, print_finite_json, print_line
from groupwise.core.errors import ConfigError, FileError
from groupwise.core.free_cores import read_thread_limit
from groupwise.core.run_lock import RunLock
from groupwise.core.run_paths import RunPaths

if TYPE_CHECKING:
    from groupwise.reports.runs.results import Results
    from groupwise.sweeps.places import Places
    from groupwise.sweeps.plan import PlannedRun, SweepPlan
    from groupwise.training.run_config import RunConfig


def sweep(
    file: Annotated[Path, typer.Argument(metavar="RUN.toml", help="A run file.")],
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each arm; seeds count from the run file's.")] = 5,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE,VALUE", help="Values of a setting; may repeat.")
    ] = None,
    unset: Unset = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep; sweeps/NAME otherwise.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time; as many as fit otherwise.")] = None,
    dry: Annotated[bool, typer.Option("--dry", help="Print the plan, write and train nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Train every combination of settings with several seeds, and compare: the same command again goes on."""
    need_trainer()
    from groupwise.sweeps.plan import RESULTS, read_plan, write_json

    folder = out or Path("sweeps") / file.stem
    recorded = read_plan(folder)
    plan = _make_plan(file, set_ or (), unset or (), seeds, recorded, folder)
    runs = plan.list_runs(folder)
    waiting = [run for run in runs if not _is_finished(plan, run)]
    places = _find_places(plan, waiting, jobs) if waiting else None
    _print_plan(plan, waiting, places)
    if dry:
        for run in runs:
            print_line(f"{run.name}  {run.folder}{'' if run in waiting else '  finished'}")
        return
    with RunLock(folder).hold():
        if read_plan(folder) != recorded:
            raise ConfigError(f"{folder}: another sweep was begun there just now; give the command again")
        failed = _train(plan, folder, waiting, places) if places else []
        results = _sum_up(plan, [run for run in runs if _is_finished(plan, run)])
        if results is not None:
            write_json(folder / RESULTS, make_results_json(plan, results))
    _print_end(plan, results, folder, as_json=as_json)
    if failed:
        raise typer.Exit(1)


def _make_plan(
    file: Path,
    settings: Sequence[str],
    unset: Sequence[str],
    num_seeds: int,
    recorded: SweepPlan | None,
    folder: Path,
) -> SweepPlan:
    """The plan that the command asks for, which goes on with the one in the folder."""
    from groupwise.sweeps.grid import list_choices
    from groupwise.sweeps.plan import extend_plan, plan_sweep

    if recorded is None and RunPaths(folder).holds_run():
        raise ConfigError(f"{folder} holds a run, and is no sweep; choose another folder with --out")
    num_runs = len(list_choices(settings)) * num_seeds
    threads = recorded.threads if recorded else _choose_threads(num_runs)
    wanted = plan_sweep(file, settings, num_seeds=num_seeds, threads=threads, unset=unset, tell=print_note)
    if recorded is None:
        return wanted
    plan, added = extend_plan(recorded, wanted, folder)
    if added:
        print_line(f"the sweep in {folder} gets more: {added}", to=errors())
    return plan


def _choose_threads(num_runs: int) -> int:
    """Threads of each run: its share of the cores, and no more than OMP_NUM_THREADS says."""
    share = max(1, machine.count_usable_cores() // num_runs)
    return min(share, read_thread_limit() or share)


def _is_finished(plan: SweepPlan, run: PlannedRun) -> bool:
    from groupwise.training.checkpoints.progress import is_finished

    return RunPaths(run.folder).holds_run() and is_finished(run.folder, plan.load_config(run))


def _find_places(plan: SweepPlan, waiting: Sequence[PlannedRun], jobs: int | None) -> Places:
    """Where the runs train: as many at a time as the command says, or as this machine has room for."""
    from groupwise.sweeps.places import Machine, Places, RunNeeds, find_places

    first = {run.arm: run for run in reversed(waiting)}
    configs = [plan.load_config(run) for run in first.values()]
    if jobs is not None and all(config.device == "cpu" for config in configs):
        return Places(gpus=(None,) * min(jobs, len(waiting)), reason="--jobs")
    from groupwise.training.doctor.hardware import list_gpus
    from groupwise.training.doctor.sizes import estimate_sizes
    from groupwise.training.engine.config import LocalEngine

    may_move = all(config.device in ("auto", "cuda") for config in configs)
    gpus = [gpu.free for gpu in list_gpus()] if may_move else []
    if jobs is not None:
        places = [place % len(gpus) if gpus else None for place in range(min(jobs, len(waiting)))]
        return Places(gpus=tuple(places), reason="--jobs")
    needs = RunNeeds(
        threads=max(config.threads for config in configs),
        memory=max(estimate_sizes(config).memory.peak for config in configs),
        alone_because=next(filter(None, map(_find_obstacle, configs)), ""),
        fills_gpu=any(not isinstance(config.engine, LocalEngine) for config in configs),
    )
    cores = max(1, machine.count_usable_cores() - round(machine.read_load()))
    return find_places(len(waiting), needs, Machine(cores=cores, memory=machine.read_free_memory(), gpus=gpus))


def _find_obstacle(config: RunConfig) -> str:
    """Why a run cannot have others beside it, in words; nothing where it can."""
    if getattr(config.engine, "urls", ()):
        return "they hand their weights to the same servers"
    return "they name the GPU that they compute on" if config.device.startswith("cuda:") else ""


def _print_plan(plan: SweepPlan, waiting: Sequence[PlannedRun], places: Places | None) -> None:
    arms, seeds = len(plan.arms), len(plan.seeds)
    size = f"{arms * seeds} runs: {arms} arm{'s' if arms > 1 else ''} of {seeds} seed{'s' if seeds > 1 else ''}"
    rest = "all of them finished" if places is None else f"{len(waiting)} to train, {len(places.gpus)} at a time"
    why = f" ({places.reason})" if places else ""
    print_line(f"{size}; {rest}{why}", to=errors())


def _train(plan: SweepPlan, folder: Path, waiting: Sequence[PlannedRun], places: Places) -> list[FailedRun]:
    """Write down what is about to be done, and do it."""
    from groupwise.sweeps.plan import write_plan, write_run_file

    write_plan(plan, folder)
    for run in waiting:
        write_run_file(plan, run)
    num_runs = len(plan.arms) * len(plan.seeds)
    try:
        return train_runs(waiting, places.gpus, _Lines(num_runs, num_runs - len(waiting)), start_process)
    except KeyboardInterrupt:
        print_line("stopped; the same command goes on where the runs stopped", to=errors())
        raise typer.Exit(130) from None


class _Lines:
    """Says on standard error what happens, a line each."""

    def __init__(self, num_runs: int, num_done: int) -> None:
        self._num_runs, self._num_done = num_runs, num_done

    def on_begin(self, run: PlannedRun) -> None:
        """Name the run, and whether it goes on."""
        verb = "goes on" if RunPaths(run.folder).holds_run() else "begins"
        print_line(f"{run.name} {verb}", to=errors())

    def on_end(self, run: PlannedRun, failure: FailedRun | None) -> None:
        """Count the run, or say why it failed."""
        self._num_done += failure is None
        what = f"failed: {failure.reason}" if failure else f"is finished ({self._num_done} of {self._num_runs} runs)"
        print_line(f"{run.name} {what}", to=errors())

    def on_time(self, under_way: Sequence[PlannedRun]) -> None:
        """Say how far the runs are that are under way."""
        print_line("; ".join(f"{run.name}: {_describe_progress(run)}" for run in under_way), to=errors())


def _describe_progress(run: PlannedRun) -> str:
    from groupwise.core.journal.journal import Journal

    try:
        with Journal(RunPaths(run.folder).journal, read_only=True) as journal:
            return f"update {max(journal.last_number(), 0)}"
    except (FileError, OSError):  # it has not come to its journal yet
        return "opening"


def _sum_up(plan: SweepPlan, finished: Sequence[PlannedRun]) -> Results | None:
    """The table of the runs that are finished, arms in the plan's order."""
    from groupwise.reports.runs.read_runs import make_arm, read_run
    from groupwise.reports.runs.results import sum_up

    arms = []
    for arm in plan.arms:
        runs = [read_run(run.folder) for run in finished if run.arm == arm.name]
        arms += [make_arm(arm.name, runs)] if runs else []
    return sum_up(arms)


def _print_end(plan: SweepPlan, results: Results | None, folder: Path, *, as_json: bool) -> None:
    if results is None:
        print_line(f"no run is finished, so that there is no table; look at the logs in {folder}", to=errors())
    elif as_json:
        print_finite_json(make_results_json(plan, results))
    else:
        print_results(plan, results)
        print_line(f"\nThe sweep is in {folder}. Look at it:\n  groupwise report {shlex.quote(str(folder))}")
