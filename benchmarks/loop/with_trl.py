"""TRL's side: GRPOTrainer on a job. `python -m benchmarks.loop.with_trl JOB`, with an interpreter that has TRL.

Given what serves it best on a CPU: float32 without autocast, no checkpoints of activations or of the model, no logs, no
bar, its default optimizer, and micro-batches of 16, which took 3 to 8 per cent less than the whole update at once in
single runs on a busy machine. A static cache was not faster; continuous batching gave no result within two minutes.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
import trl

from benchmarks.loop.job import CLIP, KL, LEARNING_RATE, ROLLOUTS, Job
from benchmarks.loop.reward import score_mentions

MICRO_BATCH = 16


def pay(completions: list[str], asked: list[str], **_: Any) -> list[float]:
    return [score_mentions(said, about) for said, about in zip(completions, asked, strict=True)]


class Clock(transformers.TrainerCallback):
    """When each update was complete: wall and processor seconds."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, float]] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.marks.append((time.perf_counter(), time.process_time()))


class Stages:
    """Seconds within some calls."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def wrap(self, owner: Any, name: str, stage: str) -> None:
        call = getattr(owner, name)

        def call_and_time(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start

        setattr(owner, name, call_and_time)


def config(job: Job, **over: Any) -> trl.GRPOConfig:
    settings: dict[str, Any] = {
        "output_dir": job.folder,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_dropout": True,
        "per_device_train_batch_size": MICRO_BATCH,
        "gradient_accumulation_steps": job.rollouts // MICRO_BATCH,
        "steps_per_generation": job.rollouts // MICRO_BATCH,
        "num_iterations": 1,
        "num_generations": ROLLOUTS,
        "max_completion_length": job.max_tokens,
        "temperature": 1.0,
        # Keeps the end token from being drawn, so that every response is as long as ours.
        "generation_kwargs": {"min_new_tokens": job.max_tokens},
        "beta": KL if job.kl else 0.0,
        "epsilon": CLIP,
        "loss_type": "dr_grpo",
        "scale_rewards": "none",
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1.0,
        "weight_decay": 0.0,
        "max_steps": job.warm + job.updates,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "log_completions": False,
        "dataloader_pin_memory": False,
    }
    return trl.GRPOConfig(**(settings | over))


def measure(job: Job, **over: Any) -> dict[str, Any]:
    torch.set_num_threads(job.threads)
    clock = Clock()
    tokenizer = transformers.AutoTokenizer.from_pretrained(job.model)
    trainer = trl.GRPOTrainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(job.model, dtype=torch.float32),
        reward_funcs=pay,
        args=config(job, **over),
        train_dataset=datasets.Dataset.from_dict(job.asked),
        processing_class=tokenizer,
        callbacks=[clock],
    )
    lengths: list[int] = []
    collected = trainer._generate_and_score_completions

    def collect_and_count(inputs: Any) -> Any:
        batch = collected(inputs)
        lengths.append(int(batch["completion_mask"].sum()))
        return batch

    trainer._generate_and_score_completions = collect_and_count
    stages = Stages()
    stages.wrap(trainer, "_generate", "generate")
    stages.wrap(trainer, "_generate_and_score_completions", "rollout")
    trainer.train()
    begin, end = clock.marks[job.warm - 1], clock.marks[-1]
    assert set(lengths) == {job.rollouts * job.max_tokens}, f"responses of unequal length: {set(lengths)}"
    updates = job.warm + job.updates
    return {
        "seconds": (end[0] - begin[0]) / job.updates,
        "core_seconds": (end[1] - begin[1]) / job.updates,
        "stages": {name: seconds / updates for name, seconds in stages.seconds.items()},
        "versions": {"trl": trl.__version__, "torch": torch.__version__, "transformers": transformers.__version__},
    }


if __name__ == "__main__":
    print(json.dumps(measure(Job.load(Path(sys.argv[1])), **json.loads(sys.argv[2] if sys.argv[2:] else "{}"))))
