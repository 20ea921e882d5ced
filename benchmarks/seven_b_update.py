"""Full fine-tuning of a 7B model, with its engine on the same GPU: memory, seconds by stage, tokens per second.

    python -m benchmarks.seven_b_update [--shape 7B] [--forms rounded masters] [--device cuda]
                                        [--write benchmarks/results/seven_b_update.json] [--predict]

Random bfloat16 weights with the shape of Qwen2.5-7B. There is one copy, from which the engine decodes and which the
learner trains (`engine.share_weights`). Optimizer state in 8 bits; gradient checkpointing. *rounded* trains the
bfloat16 weights with stochastic rounding; *masters* keeps a float32 copy.

An update is 16 tasks of 8 rollouts with the prompts of recorded ALFWorld episodes (`benchmarks/prefix/data`, two steps
of history in a prompt). The recording has 4 tasks of 16 rollouts, which make 8 groups of 8. Each group is used twice,
with shifted token ids, so no two groups share a token. The engine answers the first step of all rollouts together, then
the second, and so on, with as many tokens as the recorded response. The learner trains on the sampled tokens, with
random advantages. The first update, of first steps only, is a warm-up and is not counted.

With `--predict` nothing is measured: the predicted peak of `groupwise doctor` is written beside the measured one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.engine.shapes import make_config, make_model
from benchmarks.prefix.recordings import DATA, Recording, num_tokens
from benchmarks.result_file import read_commit, write_result
from groupwise.data.samples import Sample, count_totals
from groupwise.engines.engine import Engine, Request
from groupwise.engines.model_source import ModelSource
from groupwise.learner.config import LearnerConfig
from groupwise.learner.local import LocalLearner
from groupwise.learner.weight_check import TOLERANCES, WeightCheck
from groupwise.learner.weight_sync import InMemory
from groupwise.losses import PolicyLoss
from groupwise.models.outline import ModelPlan
from groupwise.models.pack import Chains, pack
from groupwise.training.config.engine_config import LocalEngine
from groupwise.training.doctor.memory import RunMemory, estimate_engine, estimate_learner
from groupwise.training.doctor.memory_passes import MicroBatchShape, Rehearsal

ROLLOUTS = 8
SHIFT = 25_000
"""By how much the ids of one set of groups lie above those of the one before; the recording's end below twice that."""
FORMS = {"rounded": "stochastic_rounding", "masters": "float32_masters"}
GIB = 2**30
GPU_BYTES = 139.8 * GIB
"""What an H200 has."""


def make_update(*, tasks: int, steps: int | None, vocabulary: int) -> list[Sample]:
    """The samples of an update: groups of eight rollouts, only their first steps or all steps."""
    recorded = Recording.load(DATA, "alfworld", "window 2").samples
    first = {task: min(sample.trajectory for sample in recorded if sample.group == task) for task in range(4)}
    samples = []
    for number in range(tasks):
        task, kind = number % 4, number // 4  # two halves of a task's rollouts, then both once more
        begin = first[task] + ROLLOUTS * (kind % 2)
        samples += [
            replace(
                sample,
                prompt_ids=tuple((token + SHIFT * kind) % vocabulary for token in sample.prompt_ids),
                response_ids=tuple(token % vocabulary for token in sample.response_ids),
                trajectory=number * ROLLOUTS + sample.trajectory - begin,
                group=number,
            )
            for sample in recorded
            if sample.group == task and begin <= sample.trajectory < begin + ROLLOUTS
        ]
    return [sample for sample in samples if steps is None or sample.step < steps]


class Stages:
    """Seconds and highest memory of each stage of an update."""

    def __init__(self, device: str) -> None:
        self._device = device
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count time and memory for a stage."""
        if self._device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        yield
        if self._device == "cuda":
            torch.cuda.synchronize()
            self.peaks[name] = torch.cuda.max_memory_allocated() / GIB
        self.seconds[name] = time.perf_counter() - began

    @contextmanager
    def count_optimizer(self, learner: LocalLearner) -> Iterator[None]:
        """Count the optimizer steps separately."""
        began: list[float] = []

        def begin(*_: object) -> None:
            self._wait()
            began.append(time.perf_counter())

        def end(*_: object) -> None:
            self._wait()
            self.seconds["optimizer"] = self.seconds.get("optimizer", 0.0) + time.perf_counter() - began.pop()

        hooks = [learner.optimizer.register_step_pre_hook(begin), learner.optimizer.register_step_post_hook(end)]
        yield
        for hook in hooks:
            hook.remove()

    def _wait(self) -> None:
        if self._device == "cuda":
            torch.cuda.synchronize()


def play(engine: Engine, recorded: Sequence[Sample], *, number: int) -> list[Sample]:
    """Let the engine answer every recorded prompt, step by step for all rollouts together."""
    sampled = []
    for step in range(max(sample.step for sample in recorded) + 1):
        asked = [sample for sample in recorded if sample.step == step]
        requests = [
            Request(
                prompt_ids=sample.prompt_ids,
                seed=(number << 40) + (sample.trajectory << 20) + step,
                max_tokens=len(sample.response_ids),
                session=str(sample.trajectory),
            )
            for sample in asked
        ]
        for sample, answer in zip(asked, engine.generate(requests), strict=True):
            sampled.append(replace(sample, response_ids=answer.response_ids, logp_behaviour=answer.logp))
    return sampled


def make_engine_settings() -> LocalEngine:
    """The engine: it reads the learner's own weights."""
    return LocalEngine(precision="bfloat16", share_weights=True, rows=128, memory=0.1)


def make_learner_settings(form: str, token_budget: int) -> LearnerConfig:
    """The learner, with one form of the optimizer."""
    return LearnerConfig(
        optimizer="adamw_8bit",
        bfloat16_weights=FORMS[form],
        learning_rate=1e-6,
        token_budget=token_budget,
        precision="bfloat16",
        checkpoint_layers=True,
    )


def predict_peak(form: str, options: argparse.Namespace) -> float:
    """The peak that doctor predicts, in GiB."""
    config = make_config(options.shape)
    plan = ModelPlan(config=config, dtype=torch.bfloat16)
    samples = make_update(tasks=options.tasks, steps=None, vocabulary=int(config.vocab_size))
    packs = pack(samples, token_budget=options.token_budget)
    largest = max(packs, key=len)
    steps = [[sample for sample in samples if sample.step == step] for step in {sample.step for sample in samples}]
    rehearsal = Rehearsal(
        longest=max(len(sample.token_ids) for sample in samples),
        read=max(sum(map(len, {sample.prompt_ids for sample in asked})) for asked in steps),
        micro_batch=MicroBatchShape(
            tokens=len(largest),
            predicting=len(largest.predictions.node),
            keys=len(Chains.of(largest.position_ids[0].numpy()).source),
        ),
        num_micro_batches=len(packs),
    )
    requests = options.tasks * ROLLOUTS
    of_learner = estimate_learner(plan, make_learner_settings(form, options.token_budget), rehearsal)
    of_engine = estimate_engine(make_engine_settings(), plan, rehearsal, requests=requests, gpu=GPU_BYTES)
    return RunMemory(parts={**of_learner, **of_engine}, is_rehearsed=True).peak / GIB


def measure_form(form: str, options: argparse.Namespace) -> dict[str, Any]:
    """Make updates with one form of the optimizer; returns the measurement of the last one."""
    model = make_model(options.shape, options.device)
    weights, vocabulary = sum(value.nbytes for value in model.parameters()), int(model.config.vocab_size)
    source = ModelSource(model=model, tokenizer=None, path=None)
    engine = make_engine_settings().open(source)
    learner = LocalLearner(model, PolicyLoss(), make_learner_settings(form, options.token_budget))
    print(f"{form}: {weights / GIB:.1f} GiB of weights, engine {type(engine).__name__}", flush=True)
    plan = [options.warm_steps, *[None] * options.updates]
    weight_check, result = None, dict[str, Any]()
    for number, steps in enumerate(plan, start=1):
        recorded = make_update(tasks=options.tasks, steps=steps, vocabulary=vocabulary)
        longest = max(recorded, key=lambda sample: len(sample.token_ids))
        weight_check = weight_check or WeightCheck(
            longest.prompt_ids, longest.response_ids, tolerance=TOLERANCES["bfloat16"], decodes=True
        )
        result = time_update(engine, learner, recorded, weight_check, number=number, device=options.device)
        print(f"{form}: update {number}: {json.dumps(result)}", flush=True)
    return {"weights_gib": weights / GIB, "engine": type(engine).__name__, **result}


def time_update(
    engine: Engine,
    learner: LocalLearner,
    recorded: Sequence[Sample],
    weight_check: WeightCheck,
    *,
    number: int,
    device: str,
) -> dict[str, Any]:
    """Make an update stage by stage."""
    stages = Stages(device)
    with stages.stage("rollout"):
        samples = play(engine, recorded, number=number)
    with stages.stage("learn"), stages.count_optimizer(learner):
        learned = learner.learn(samples, count_totals(samples, max_tokens=64)).metrics
    with stages.stage("weight sync"):
        InMemory().sync(learner.weights(), engine, version=number)
    with stages.stage("weight_check"):
        gap = weight_check.check(engine, learner, version=number)
    seconds = dict(stages.seconds)
    seconds["learn"] -= seconds["optimizer"]
    total, sampled = sum(seconds.values()), sum(len(sample.response_ids) for sample in samples)
    return {
        "seconds": total,
        "seconds_by_stage": seconds,
        "peak_gib": max(stages.peaks.values(), default=0.0),
        "peak_gib_by_stage": stages.peaks,
        "reserved_gib": torch.cuda.max_memory_reserved() / GIB if device == "cuda" else 0.0,
        "responses": len(samples),
        "tokens": num_tokens(samples),
        "sampled_tokens": sampled,
        "tokens_a_second": num_tokens(samples) / total,
        "sampled_tokens_a_second_of_rollout": sampled / seconds["rollout"],
        "token_ratio": learned["learner/token_ratio"],
        "grad_norm": learned["learner/grad_norm"],
        "weight_check_gap": gap,
    }


def main() -> None:
    """Measure or predict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="7B", help="a shape of benchmarks/engine/shapes.py")
    parser.add_argument("--forms", nargs="+", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tasks", type=int, choices=range(1, 17), default=16, metavar="1 to 16")
    parser.add_argument("--updates", type=int, default=1, help="whole updates after the warm-up")
    parser.add_argument("--warm-steps", type=int, default=2, help="steps of a rollout in the warm-up")
    parser.add_argument("--token-budget", type=int, default=16_384)
    parser.add_argument("--predict", action="store_true", help="measure nothing: what doctor would foretell")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    known = json.loads(options.write.read_text(encoding="utf-8")) if options.write and options.write.exists() else {}
    if options.predict:
        for form in options.forms:
            predicted = predict_peak(form, options)
            print(f"{form}: {predicted:.1f} GiB predicted", flush=True)
            known.setdefault("forms", {}).setdefault(form, {})["predicted_peak_gib"] = predicted
        write_result(known, options.write)
        return
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("there is no CUDA device; give --device cpu --shape tiny to try the script without one")
    measure(options, known)


def measure(options: argparse.Namespace, known: dict[str, Any]) -> None:
    """Measure the requested forms; recorded results of other forms are kept."""
    forms = known.get("forms", {}) if known.get("shape") == options.shape else {}
    for form in options.forms:
        forms[form] = {"commit": read_commit(), **measure_form(form, options)}
        result = {
            "shape": options.shape,
            "tasks": options.tasks,
            "rollouts": ROLLOUTS,
            "token_budget": options.token_budget,
            "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "command": " ".join(["python -m benchmarks.seven_b_update", *sys.argv[1:]]),
            "forms": forms,
        }
        write_result(result, options.write)


if __name__ == "__main__":
    main()
