"""The calibration of the start, and the run of a variant from it: a process each."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.r3.measures import measure_answers
from benchmarks.r3.variants import LOSS, VARIANTS

os.environ.setdefault("OMP_NUM_THREADS", "1")

RUN_FILE = Path(__file__).with_name("run.toml")
START = RUN_FILE.with_name("start")
CALIBRATION = {"split": "train", "tasks": 256, "rollouts": 8, "temperature": 1.0}
"""The answers by which a limit is judged."""
LONG_LIMIT = 240
"""Tokens of an answer while it is judged: hardly any of the start's reaches them."""
LIMITS = (42, 50, 62, 76, 82, 102, 122)
"""What else the limit might have been."""

Job = Mapping[str, Any]


def name_record(job: Job) -> Path:
    """Where the record of a run lies."""
    return Path(job["folder"]) / "records" / f"{job['variant'].replace(', ', '-').replace(' ', '-')}-{job['seed']}.json"


def read_record(job: Job) -> dict[str, Any] | None:
    """What a run has written down so far; None = nothing."""
    path = name_record(job)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def calibrate(job: Job) -> dict[str, Any]:
    """Judge limits by what the start answers to training questions where hardly anything is cut off."""
    import torch

    from groupwise.training.config.run_file import decode_run
    from groupwise.training.evaluation.evaluate import evaluate_run
    from groupwise.training.open_run import open_run

    torch.set_num_threads(1)
    path = Path(job["folder"]) / "calibration.json"
    if path.is_file():
        return _tell_calibration(json.loads(path.read_text(encoding="utf-8")))
    content = _read_settings(job)
    limit = content["rollout"]["max_tokens"]
    content["rollout"]["max_tokens"], content["evaluation"] = job["long_limit"], CALIBRATION
    folder = Path(job["folder"]) / "runs" / "calibration"
    shutil.rmtree(folder, ignore_errors=True)
    with open_run(decode_run(content), folder) as run:
        run.start_engine()
        answers = evaluate_run(run, write=False).trajectories
    limits = dict.fromkeys([limit, *job["limits"]])
    calibration = {"limit": limit, "by_limit": {str(cut): measure_answers(answers, cut) for cut in limits}}
    path.write_text(json.dumps(calibration), encoding="utf-8")
    return _tell_calibration(calibration)


def _tell_calibration(calibration: dict[str, Any]) -> dict[str, Any]:
    """Say what each limit cuts of the wrong and of the right answers, and how many are right under it."""
    for limit, measured in calibration["by_limit"].items():
        wrong, right, success = (100 * measured[name] for name in ("cut_of_wrong", "cut_of_right", "success"))
        cut = f"cuts {wrong:.1f} % of the wrong and {right:.1f} % of the right answers"
        print(f"a limit of {limit} tokens {cut}; {success:.1f} % are right under it", file=sys.stderr, flush=True)
    return calibration


def go_on(job: Job) -> None:
    """Train a variant from its start until its tokens are sampled or its time is over, and scorer it on the way."""
    import torch

    from groupwise.training.loop import make_update
    from groupwise.training.observer import ObserverList

    torch.set_num_threads(1)
    began, marks = time.process_time(), [*job["marks"], float("inf")]
    record = {name: job[name] for name in ("variant", "seed", "commit", "machine")} | {"rows": []}
    with _open_variant(job) as run:
        run.start_engine()
        spent: dict[str, float] = {"tokens": 0, "updates": 0, "seconds": 0.0}
        way: list[dict[str, float]] = []
        _measure(run, record, job, spent, way)
        while spent["tokens"] < job["tokens"] and time.time() < job["ends_at"]:
            spent["updates"] += 1
            way.append(dict(make_update(run, int(spent["updates"]), ObserverList([])).metrics))
            spent["tokens"] += round(way[-1]["rollout/total_tokens"])
            spent["seconds"] = round(time.process_time() - began, 1)
            if spent["tokens"] >= marks[0] or time.time() >= job["ends_at"]:
                marks = [mark for mark in marks if mark > spent["tokens"]]
                _measure(run, record, job, spent, way)
                way = []
    last = record["rows"][-1]
    print(f"{job['variant']} {job['seed']}: {last['success']:.3f} at {last['tokens']:,}", file=sys.stderr, flush=True)


def _read_settings(job: Job) -> dict[str, Any]:
    from groupwise.training.config.run_file import load_run

    content: dict[str, Any] = load_run(
        RUN_FILE, overrides=[f"seed={job['seed']}", f'model.path="{START}"', *job["changes"]]
    ).config()
    return content


def _open_variant(job: Job) -> Any:
    """The run of a variant: what all share, with its algorithm and its plan."""
    from groupwise.training.config.run_file import decode_run
    from groupwise.training.open_run import open_run

    content = _read_settings(job)
    variant = VARIANTS[job["variant"]]
    content["algorithm"] = {**variant["algorithm"], "loss": dict(LOSS)}
    content["rollout"]["plan"] |= variant.get("plan", {})
    folder = Path(job["folder"]) / "runs" / name_record(job).stem
    shutil.rmtree(folder, ignore_errors=True)
    return open_run(decode_run(content), folder)


WATCHED = ("advantage/groups_with_signal", "advantage/groups_rescued", "hint/success", "replay/rollouts")
"""Metrics of updates that a row has as means since the row before."""


def _measure(
    run: Any, record: dict[str, Any], job: Job, spent: Mapping[str, float], way: Sequence[Mapping[str, float]]
) -> None:
    """Play held-out questions and training ones, and write the record down."""
    from groupwise.training.config.run_config import EvaluationConfig
    from groupwise.training.evaluation.evaluate import evaluate_run

    limit = run.config.rollout.max_tokens
    held_out = measure_answers(evaluate_run(run, write=False).trajectories, limit)
    task_set = EvaluationConfig(**{**CALIBRATION, "tasks": job["training_questions"]})
    training = measure_answers(evaluate_run(run, settings=task_set, write=False).trajectories, limit)
    means = {
        name.partition("/")[2]: round(sum(metrics[name] for metrics in having) / len(having), 4)
        for name in WATCHED
        if (having := [metrics for metrics in way if name in metrics])
    }
    record["rows"].append({**spent, **held_out, "training": training, "way": means})
    path = name_record(job)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(record), encoding="utf-8")
    beside.replace(path)
