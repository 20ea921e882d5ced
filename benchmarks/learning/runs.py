"""One start and one run from it: a process each."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

METRICS = ("rollout/success", "advantage/groups_with_signal", "advantage/groups_rescued", "rollout/zero_variance")


def make_start(job: Mapping[str, Any]) -> float:
    """Warm-start a model for a seed, where the run file says so; every method begins there. Success held out."""
    import torch

    from groupwise.training.config.run_file import decode_run
    from groupwise.training.evaluation.evaluate import evaluate_run
    from groupwise.training.loop import train
    from groupwise.training.open_run import open_run

    torch.set_num_threads(1)
    settings = _settings(job) | {"training": {"updates": 0}}
    evaluation = settings.pop("evaluation")
    run = open_run(decode_run({**settings, "evaluation": {"tasks": 0}}), Path(job["start"]))
    train(run)
    run.config = decode_run({**settings, "evaluation": evaluation})
    success = evaluate_run(run, write=False).success
    print(f"{job['environment']} seed {job['seed']}: starts at {success:.3f}", file=sys.stderr, flush=True)
    return success


def _settings(job: Mapping[str, Any]) -> dict[str, Any]:
    """What the run file says, for a seed; a pretrained model is the one that was named."""
    from groupwise.training.config.run_file import load_run

    over = [f"seed={job['seed']}", *([f'model.path="{job["model"]}"'] if job["model"] else [])]
    return load_run(Path(job["path"]), overrides=over).config()


def go_on(job: Mapping[str, Any]) -> dict[str, Any]:
    """Train with a method from a start until its budget is spent, or the updates are made."""
    import torch

    from groupwise.training.evaluation.evaluate import evaluate_run
    from groupwise.training.loop import make_update
    from groupwise.training.observer import ObserverList

    torch.set_num_threads(1)
    run = _open_job(job)
    began, curve, steps, tokens = time.process_time(), list[list[float]](), 0.0, 0.0
    spent = 0.0
    while spent < job["budget"] if job["budget"] else len(curve) < run.config.training.updates:
        update = make_update(run, len(curve) + 1, ObserverList([]))
        steps += update.metrics["rollout/total_steps"]
        tokens += update.metrics["rollout/total_tokens"]
        spent = steps if job["unit"] == "steps" else tokens
        curve.append([round(steps), round(tokens), *(round(update.metrics[name], 4) for name in METRICS)])
    after = evaluate_run(run, write=False).success
    progress = f"{job['environment']} {job['method']} seed {job['seed']}: {after:.3f} after {steps:.0f} steps"
    print(progress, file=sys.stderr, flush=True)
    seconds = round(time.process_time() - began, 1)
    named = {name: job[name] for name in ("environment", "method", "seed", "before")}
    return {**named, "after": after, "curve": curve, "core_seconds": seconds}


def _open_job(job: Mapping[str, Any]) -> Any:
    """The run of a job: the run file's, but for the algorithm, the plan, and where the model comes from."""
    from groupwise.store.run_folder import RunPaths
    from groupwise.training.config.run_file import decode_run
    from groupwise.training.open_run import open_run

    content = _settings(job)
    content.pop("warm_start", None)
    loss = {key: content["algorithm"]["loss"][key] for key in ("old", "penalties")}
    content["algorithm"] = {**job["settings"]["algorithm"], "loss": loss}
    content["rollout"]["plan"] |= job["settings"].get("plan", {})
    if not job["model"]:
        content["model"] = {"kind": "pretrained", "path": str(RunPaths(Path(job["start"])).checkpoint(0))}
    return open_run(decode_run(content), Path(job["folder"]))
