"""One start and one run from it: a process each."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.line_learning.variants import LOSS, VARIANTS

os.environ.setdefault("OMP_NUM_THREADS", "1")

RUN_FILE = Path(__file__).with_name("run.toml")
TEACHER = "benchmarks.line_learning.slipping_teacher:SlippingSums"
COUNTS = ("update", "episodes", "tokens", "probe_tokens")
"""What a run has spent: rollouts that train, and all tokens that were sampled, those of probes among them."""
RESERVE = 2.0
"""A run stops where less time is left than so many times its longest update with an evaluation."""

Job = Mapping[str, Any]


def name_record(job: Job) -> Path:
    """Where the record of a run lies."""
    return Path(job["folder"]) / "records" / f"{job['name']}.json"


def read_record(job: Job) -> dict[str, Any] | None:
    """What a run has written down so far; None = nothing."""
    path = name_record(job)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def make_start(job: Job) -> None:
    """Let a fresh model imitate the slipping teacher; every variant of the seed begins there. One that is there
    stays."""
    import torch

    from groupwise.training.config.run_file import decode_run, load_run
    from groupwise.training.loop import train
    from groupwise.training.open_run import open_run

    torch.set_num_threads(1)
    if _find_start(job) is not None:
        return
    folder = _name_start(job)
    shutil.rmtree(folder, ignore_errors=True)  # what a start left that was cut off
    content = load_run(RUN_FILE, overrides=[f"seed={job['seed']}", *job["changes"]]).config()
    content["env"] |= {"kind": TEACHER, "teacher_seed": job["seed"]}
    content["training"]["updates"] = content["evaluation"]["tasks"] = 0
    with open_run(decode_run(content), folder) as run:
        train(run)


def _find_start(job: Job) -> Path | None:
    """The checkpoint of a seed's start; None = there is none yet."""
    from groupwise.store.checkpoint_files import find_latest_checkpoint
    from groupwise.store.run_folder import RunPaths

    return find_latest_checkpoint(RunPaths(_name_start(job)).checkpoints)


def _name_start(job: Job) -> Path:
    return Path(job["folder"]) / f"start-{job['seed']}"


def go_on(job: Job) -> None:
    """Train a variant from its start until its tokens are sampled or its time is over; go on where it was stopped."""
    import torch

    from groupwise.training.checkpoints import resume_run
    from groupwise.training.loop import make_update
    from groupwise.training.observer import ObserverList

    torch.set_num_threads(1)
    began_at = time.time()
    stop_at = began_at + (job["ends_at"] - began_at) / job["waves_left"]
    path = name_record(job)
    with _open_variant(job) as run:
        number = resume_run(run) or 0
        record = _read_record(path, job, number)
        if not number:
            run.start_engine()
            _evaluate(run, record, path)
        longest, before = 0.0, time.process_time()
        while record["tokens"] < job["tokens"] and time.time() + RESERVE * longest < stop_at:
            began, number = time.time(), number + 1
            is_due = _count(record, make_update(run, number, ObserverList([])).metrics, job)
            record["core_seconds"] += time.process_time() - before
            if is_due:
                _evaluate(run, record, path)
            before = time.process_time()
            longest = max(longest, time.time() - began)
        if number > record["evaluations"][-1]["update"]:
            _evaluate(run, record, path)
    progress = f"{job['name']}: {record['evaluations'][-1]['success']:.3f} after {record['tokens']:,}"
    print(f"{progress} tokens, {number} updates, {record['core_seconds']:.0f} s", file=sys.stderr, flush=True)


def _open_variant(job: Job) -> Any:
    """The run of a variant: what all share, with its algorithm and the weights of its start."""
    from groupwise.store.checkpoint_files import find_latest_checkpoint
    from groupwise.store.run_folder import RunPaths
    from groupwise.training.config.run_file import decode_run, load_run
    from groupwise.training.open_run import open_run

    content = load_run(RUN_FILE, overrides=[f"seed={job['seed']}", *job["changes"]]).config()
    content.pop("warm_start")
    content["algorithm"] = {**VARIANTS[job["variant"]], "loss": dict(LOSS)}
    content["model"] = {"kind": "pretrained", "path": str(_find_start(job))}
    content["training"]["learner"]["learning_rate"] = job["learning_rate"]
    folder = Path(job["folder"]) / job["name"]
    if find_latest_checkpoint(RunPaths(folder).checkpoints) is None:
        shutil.rmtree(folder, ignore_errors=True)  # a run that was cut off before its first evaluation
    return open_run(decode_run(content), folder)


def _read_record(path: Path, job: Job, number: int) -> dict[str, Any]:
    """The record of a run up to the update from which it goes on, or a new one."""
    if not number:
        named = {name: job[name] for name in ("variant", "seed", "learning_rate")}
        return {**named, **dict.fromkeys(COUNTS, 0), "core_seconds": 0.0, "evaluations": []}
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    rows = [row for row in record["evaluations"] if row["update"] <= number]
    return record | {name: rows[-1][name] for name in (*COUNTS, "core_seconds")} | {"evaluations": rows}


def _count(record: dict[str, Any], metrics: Mapping[str, float], job: Job) -> bool:
    """Add what an update sampled; whether that passes a mark at which the variant is evaluated."""
    before = (record["tokens"] // job["tokens_between"], record["episodes"] // job["episodes_between"])
    probed = round(metrics.get("scorers/sampled_tokens", 0.0))
    record["update"] += 1
    record["episodes"] += round(metrics["rollout/total_steps"])  # a rollout is one step
    record["tokens"] += round(metrics["rollout/total_tokens"]) + probed
    record["probe_tokens"] += probed
    after = (record["tokens"] // job["tokens_between"], record["episodes"] // job["episodes_between"])
    is_early = record["episodes"] <= job["episodes_watched"]
    return after[0] > before[0] or (is_early and after[1] > before[1])


def _evaluate(run: Any, record: dict[str, Any], path: Path) -> None:
    """Play the held-out task set; write the record down, then the checkpoint that goes with it."""
    from groupwise.training.checkpoints import save_run
    from groupwise.training.evaluation.evaluate import evaluate_run

    counts = {name: record[name] for name in (*COUNTS, "core_seconds")}
    record["evaluations"].append({**counts, "success": round(evaluate_run(run, write=False).success, 5)})
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(record), encoding="utf-8")
    beside.replace(path)
    if record["update"]:
        save_run(run, record["update"])
