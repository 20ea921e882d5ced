"""The methods, each in a process of its own, from one start, until the time is up; then compared at equal steps."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from benchmarks.alfworld.evaluating import describe_briefly, play_in_turn
from benchmarks.alfworld.records import method_record, read_record, write_record
from benchmarks.alfworld.settings import TEMPERATURES, Measurement, Sizes, run_settings
from benchmarks.alfworld.start import Clock, has_gpu, start_checkpoint

RESERVE = 0.15
"""Share of the time that is left for the last evaluations."""
KEPT = ("success", "steps", "valid", "zero_variance")
"""Metrics of the rollout that a curve keeps."""
STAGES = ("rollout", "advantages", "learn", "sync", "write")
WAIT_SECONDS = 90.0
"""How long a method waits for the others to end their last update, once nobody begins another."""


def run_methods(jobs: Sequence[Mapping[str, Any]]) -> None:
    """Run the jobs at once; one that fails says so and leaves the others alone."""
    for job in jobs:  # before any of them looks whether the others have trained
        path = method_record(Path(job["folder"]), job["method"])
        write_record(path, {**_nothing_yet(job["method"]), **read_record(path), "is_trained": False})
    context = get_context("spawn")
    running = [context.Process(target=go_on, args=(dict(job),), name=str(job["method"])) for job in jobs]
    for process in running:
        process.start()
    left = {process.sentinel: (process, job) for process, job in zip(running, jobs, strict=True)}
    while left:
        for sentinel in wait(list(left)):
            process, job = left.pop(sentinel)
            process.join()
            if process.exitcode:
                print(
                    f"{process.name}: ended with exit code {process.exitcode}; its record ends there", file=sys.stderr
                )
                path = method_record(Path(job["folder"]), job["method"])
                write_record(path, {**read_record(path), "is_trained": True})  # the others need not wait for it


def _nothing_yet(method: str) -> dict[str, Any]:
    return {"method": method, "seconds": {}, "curve": [], "marks": [], "evaluations": {}}


def jobs_of(options: Any, games: Path, measurement: Measurement) -> list[dict[str, Any]]:
    """A job for each method; all share one deadline."""
    end = time.time() + 60 * options.minutes
    return [
        {
            "method": method,
            "methods": options.methods,
            "folder": str(options.out),
            "games": str(games),
            "measurement": measurement,
            "updates": options.updates,
            "train_until": end - RESERVE * 60 * options.minutes,
            "until": end,
        }
        for method in options.methods
    ]


def go_on(job: Mapping[str, Any]) -> None:
    """Train with a method until its time is up, then evaluate it at the last mark that all methods have reached."""
    from groupwise.training.config.run_file import decode_run
    from groupwise.training.open_run import open_run

    folder, measurement, method = Path(job["folder"]), job["measurement"], job["method"]
    path = method_record(folder, method)
    record = read_record(path)
    clock = Clock(record["seconds"])
    content = run_settings(str(start_checkpoint(folder)), job["games"], measurement, method=method, on_gpu=has_gpu())
    try:
        run = open_run(decode_run(content), folder / method)
        clock.lap("open")
        _train(run, job, record, path)
    finally:  # whatever happened, the others need not wait
        record["is_trained"] = True
        clock.lap("train")
        write_record(path, record)
    number = _common_update(folder, job["methods"], method, train_until=job["train_until"])
    clock.lap("wait")
    _evaluate(run, number, job, record, path)
    clock.lap("evaluate")
    write_record(path, record)
    rows = record["evaluations"][str(number)]
    print(f"{method} after update {number}: {describe_briefly(rows)}", file=sys.stderr, flush=True)


def _evaluate(run: Any, number: int, job: Mapping[str, Any], record: dict[str, Any], path: Path) -> None:
    """Play the task sets after update `number`, then after earlier marks, then the first again, as long as time
    allows."""
    sizes = job["measurement"].sizes
    earlier = [mark["update"] for mark in record["marks"] if mark["update"] < number]
    every = [(seed, temperature) for seed in range(sizes.evaluation_seeds) for temperature in TEMPERATURES]
    # From the last mark back, every second one: halves of the way say more than neighbours.
    turns = [(number, every[:1]), *((update, every[:1]) for update in earlier[::-2]), (number, every)]
    for update, settings in turns:

        def keep(rows: Any, update: int = update) -> None:
            record["evaluations"][str(update)] = rows
            write_record(path, record)

        before = record["evaluations"].get(str(update), [])
        if update != number and time.time() + 1.2 * record["seconds"].get("task_sets", 0.0) > job["until"]:
            continue
        _load(run, update)
        began = time.time()
        play_in_turn(run, sizes, before, settings=settings, until=job["until"], keep=keep)
        record["seconds"].setdefault("task_sets", round(time.time() - began, 2))


def _train(run: Any, job: Mapping[str, Any], record: dict[str, Any], path: Path) -> None:
    from groupwise.training.checkpoints import resume_run
    from groupwise.training.loop import make_update
    from groupwise.training.observer import ObserverList

    curve, marks, sizes = record["curve"], record["marks"], job["measurement"].sizes
    done = resume_run(run) or 0
    del curve[done:]
    marks[:] = [mark for mark in marks if mark["update"] <= done]
    last = time.time()
    while not _is_done(curve, job) and time.time() < job["train_until"]:
        update = make_update(run, len(curve) + 1, ObserverList([]))
        curve.append(_point(update.metrics, curve[-1]["total_steps"] if curve else 0))
        if _mark_of(curve[-1], sizes) > (marks[-1]["mark"] if marks else 0):
            _keep_mark(run, curve, marks, sizes)
        write_record(path, record)
        now, point = time.time(), curve[-1]
        progress = f"{job['method']} update {len(curve)}: {point['total_steps']} steps, {point['success']:.2f} succeed"
        print(f"{progress}, {now - last:.1f} s", file=sys.stderr, flush=True)
        last = now
    if curve and (not marks or marks[-1]["update"] < len(curve)):
        _keep_mark(run, curve, marks, sizes)


def _is_done(curve: Sequence[Mapping[str, float]], job: Mapping[str, Any]) -> bool:
    """Whether a method has made its updates, or its steps where no number of updates was asked for."""
    if job["updates"] is not None:
        return len(curve) >= job["updates"]
    return bool(curve) and curve[-1]["total_steps"] >= job["measurement"].sizes.compare_at


def _point(metrics: Mapping[str, float], steps_before: int) -> dict[str, float]:
    """One update of a curve."""
    return {
        "total_steps": steps_before + round(metrics["rollout/total_steps"]),
        **{name: round(metrics[f"rollout/{name}"], 4) for name in KEPT},
        **{f"{stage}_seconds": round(metrics[f"seconds/{stage}"], 2) for stage in STAGES[:-1]},
        "tokens": round(metrics["rollout/total_tokens"]),
    }


def _mark_of(point: Mapping[str, float], sizes: Sizes) -> int:
    """How many marks lie behind."""
    return int(point["total_steps"] // sizes.mark)


def _keep_mark(run: Any, curve: Sequence[Mapping[str, float]], marks: list[dict[str, Any]], sizes: Sizes) -> None:
    """Keep the weights at a mark; the optimizer's state is kept at the last one only, to go on from."""
    from groupwise.training.checkpoints import save_run

    before = [run.paths.checkpoint(mark["update"]) for mark in marks]
    save_run(run, len(curve))
    point = curve[-1]
    marks.append({"mark": _mark_of(point, sizes), "update": len(curve), "total_steps": point["total_steps"]})
    for path in before:
        (path / "optimizer.safetensors").unlink(missing_ok=True)


def _common_update(folder: Path, methods: Sequence[str], own: str, *, train_until: float) -> int:
    """The update at which a method reached the last mark that all have reached; its last one where there is none."""
    until = max(time.time(), train_until) + WAIT_SECONDS
    while True:
        records = {method: read_record(method_record(folder, method)) for method in methods}
        if all(record.get("is_trained") for record in records.values()) or time.time() > until:
            return common_updates(records)[own]
        time.sleep(0.2)


def common_updates(records: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """For each method that has made updates, the one that stands for it where all have made equal steps."""
    marks = {method: record["marks"] for method, record in records.items() if record.get("marks")}
    if not marks:
        return dict.fromkeys(records, 0)
    min_steps = min(reached[-1]["mark"] for reached in marks.values())
    return {
        method: next((mark["update"] for mark in reached if mark["mark"] >= min_steps > 0), reached[-1]["update"])
        for method, reached in marks.items()
    }


def _load(run: Any, number: int) -> None:
    """Give the engine the weights of a mark."""
    from groupwise.learner.local_files import read_weights

    weights = read_weights(run.paths.checkpoint(number)) if number else run.learner.weights()
    run.weight_sync.sync(weights, run.engine, version=number)
