"""Our side: the loop as `groupwise train` runs it, on a job. `python -m benchmarks.loop.ours JOB`.

Time in the model is time in forward and backward passes and in the optimizer's steps, measured by timers around them
that the product knows nothing of. All else is outside: drawing tokens, the loss, clipping, even where it is tensors.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch

import groupwise.models.forward
from benchmarks.loop.job import KL, LEARNING_RATE, ROLLOUTS, Job
from benchmarks.loop.reward import score_mentions
from groupwise import RunObserver, train
from groupwise.data.records import Trajectory
from groupwise.models.forward import Forward
from groupwise.parts.part import Part
from groupwise.store.journal import Update
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.run_file import decode_run
from groupwise.training.open_run import open_run
from groupwise.training.run import Run


class Mentioned(Part, slot="reward"):
    """Pays a response for the words of the question that it mentions."""

    judges: ClassVar[bool] = True

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return tuple(score_mentions(step.action or "", step.observation or "") for step in trajectory.steps)


class Clock(RunObserver):
    """Seconds by stage, from what the loop tells and from timers around calls inside a stage."""

    def __init__(self, warm: int) -> None:
        self.warm, self.stage_name, self.number = warm, "", 0
        self.since = self.begin = self.begin_core = 0.0
        self.whole: dict[str, float] = {}
        self.inside: dict[str, float] = {}
        self.marks: list[tuple[float, float]] = []

    def on_stage(self, name: str, number: int) -> None:
        now = time.perf_counter()
        if self.stage_name and self.number > self.warm:
            self.whole[self.stage_name] = self.whole.get(self.stage_name, 0.0) + now - self.since
        self.stage_name, self.since, self.number = name, now, number

    def on_update(self, update: Update) -> None:
        self.on_stage("", update.number + 1)
        self.marks.append((time.perf_counter(), time.process_time()))

    def wrap(self, owner: Any, name: str, part: str) -> None:
        call: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(call)  # the model's signature is looked at
        def call_and_time(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                if self.number > self.warm:
                    key = f"{self.stage_name}: {part}"
                    self.inside[key] = self.inside.get(key, 0.0) + time.perf_counter() - start

        setattr(owner, name, call_and_time)


def config(job: Job) -> RunConfig:
    penalties = [{"kind": "kl", "estimator": "k3", "weight": KL}] if job.kl else []
    return decode_run(
        {
            "algorithm": {"method": "dr_grpo", "loss": {"penalties": penalties}},
            "device": "cpu",
            "env": {"kind": "benchmarks.loop.task:ShownLookup", "examples": job.examples},
            "rewards": [{"kind": "benchmarks.loop.ours:Mentioned"}],
            "model": {"kind": "pretrained", "path": job.model},
            # Its task is none of the catalogue's, and would run in a worker; the other trainer's runs in its process.
            "rollout": {"max_tokens": job.max_tokens, "group_size": ROLLOUTS, "workers": 0},
            "training": {
                "updates": job.warm + job.updates,
                "tasks": job.tasks,
                "learner": {"learning_rate": LEARNING_RATE},
            },
            "evaluation": {"tasks": 0},
        }
    )


def watch(run: Run, model: Any, clock: Clock) -> None:
    """Timers around the model and what surrounds it; the product knows nothing of them."""
    clock.wrap(run.engine, "generate", "engine")
    clock.wrap(run.engine._model, "forward", "model")
    for name in ("open", "act", "close"):
        clock.wrap(run.host, name, "environments")
    clock.wrap(Forward, "lay_out", "pack")
    clock.wrap(model.model, "forward", "model")
    clock.wrap(groupwise.models.forward, "compute_head_logps", "model")
    clock.wrap(torch.Tensor, "backward", "model")
    clock.wrap(torch.optim.AdamW, "step", "model")


def measure(job: Job) -> dict[str, Any]:
    torch.set_num_threads(job.threads)
    settings = config(job)
    model, tokenizer = settings.model.open(words=settings.words(), seed=0)
    run = open_run(settings, Path(job.folder), model_and_tokenizer=(model, tokenizer))
    # No token ends a response, so that all are of one length.
    run.prompter.frame = replace(run.prompter.frame, end_id=-1)
    clock = Clock(job.warm)
    watch(run, model, clock)
    train(run, observers=[clock])
    begin, end = clock.marks[job.warm - 1], clock.marks[-1]
    tokens = {value for _, value in run.journal.curve("learner/tokens")}
    assert tokens == {job.rollouts * job.max_tokens}, f"responses of unequal length: {tokens}"
    seconds = (end[0] - begin[0]) / job.updates
    stages = {name: value / job.updates for name, value in stages_of(clock).items()}
    return {
        "seconds": seconds,
        "core_seconds": (end[1] - begin[1]) / job.updates,
        "stages": stages,
    }


def stages_of(clock: Clock) -> dict[str, float]:
    """Seconds by stage, each counted once: what is within another is taken out of it."""
    whole, inside = clock.whole, clock.inside
    return {
        "rollout: model": inside["rollout: model"],
        "rollout: sampling": inside["rollout: engine"] - inside["rollout: model"],
        "rollout: environments": inside["rollout: environments"],
        "rollout: prompts and records": whole["rollout"] - inside["rollout: engine"] - inside["rollout: environments"],
        "credit": whole["advantages"],
        "learn: pack": inside["learn: pack"],
        "learn: model": inside["learn: model"],
        "learn: loss and the rest": whole["learn"] - inside["learn: pack"] - inside["learn: model"],
        "weight sync: model (weight check)": inside["sync: model"],
        "weight sync: the rest": whole["sync"] - inside["sync: model"],
        "journal": whole["write"],
        "checkpoint": whole["checkpoint"],
    }


if __name__ == "__main__":
    print(json.dumps(measure(Job.load(Path(sys.argv[1])))))
