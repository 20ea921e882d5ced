"""Does AdamW with 8-bit state on bfloat16 weights learn as well as AdamW in float32? A small model, several seeds.

    python -m benchmarks.lean_optimizers [--seeds 5] [--processes 2] [--write benchmarks/results/lean_optimisers.json]

A Llama with one layer (width 128, 0.2M parameters of about 0.05) starts from random weights. It gets two words and must
answer with the second. An update has 16 prompts of 8 rollouts, with group-relative advantages; the learner of a run
trains on them, and the engine samples with the learner's own weights. Variants:

    float32            AdamW, weights and state in float32: the reference
    8-bit, rounded     bfloat16 weights with stochastic rounding, 8-bit state
    8-bit, masters     bfloat16 weights with float32 master copies, 8-bit state
    rounded to nearest bfloat16 weights, each step rounded to nearest: the control, which must learn less

For bfloat16, a step of 2.5e-5 on weights of 0.05 is like 1e-5 on weights of 0.02, as in large models. It is far less
than half of the distance between two numbers, so rounding to nearest loses most steps. Success is the exact probability
of the right answer, over all prompts. Over seeds: interquartile mean with a 95 % bootstrap interval.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("OMP_NUM_THREADS", "1")

from benchmarks.learning.summary import bootstrap, interquartile_mean
from benchmarks.result_file import write_result

PROMPTS, ROLLOUTS = 16, 8
WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett", "kilo", "lima")
UPDATES = {3e-4: 64, 2.5e-5: 320}
"""Updates of a run, by learning rate."""
LOOKS = 16
"""Looks at the policy in a run, at equal distances."""
LEAN = {"optimizer": "adamw_8bit"}
VARIANTS: dict[str, dict[str, Any]] = {
    "float32": {},
    "8-bit, rounded": {**LEAN, "bfloat16_weights": "stochastic_rounding"},
    "8-bit, masters": {**LEAN, "bfloat16_weights": "float32_masters"},
    "rounded to nearest": {**LEAN, "bfloat16_weights": "stochastic_rounding"},
}
BASELINE, CONTROL = "float32", "rounded to nearest"


def learn_words(job: dict[str, Any]) -> dict[str, Any]:
    """Train one variant with one seed; returns its success at intervals."""
    import torch

    from groupwise.data.samples import count_totals
    from groupwise.engines.model_source import ModelSource
    from groupwise.learner.config import LearnerConfig
    from groupwise.learner.local import LocalLearner
    from groupwise.losses import PolicyLoss
    from groupwise.models import TinyModel
    from groupwise.training.config.engine_config import LocalEngine

    torch.set_num_threads(1)
    variant, rate, seed = job["variant"], job["rate"], job["seed"]
    model, tokenizer = TinyModel(hidden=128, layers=1, heads=2).open(words=WORDS, seed=seed)
    precision = "float32" if variant == BASELINE else "bfloat16"
    model = model.to(getattr(torch, precision))
    source = ModelSource(model=model, tokenizer=tokenizer, path=None)
    engine = LocalEngine(precision=precision, share_weights=True).open(source)
    settings = LearnerConfig(learning_rate=rate, betas=(0.9, 0.95), token_budget=4096, **VARIANTS[variant])
    learner = LocalLearner(model, PolicyLoss(), settings)
    ids = tokenizer.convert_tokens_to_ids(WORDS)
    prompts = [(tokenizer.bos_token_id, *pair) for pair in product(ids, ids)]
    curve, draws = [measure_success(model, prompts)], np.random.default_rng(seed)
    with round_to_nearest(variant == CONTROL):
        for number in range(1, UPDATES[rate] + 1):
            chosen = [prompts[place] for place in draws.choice(len(prompts), PROMPTS, replace=False)]
            samples = play(engine, chosen, seed=(seed << 32) + number)
            learner.learn(samples, count_totals(samples, max_tokens=1))
            engine.load(learner.weights(), version=number)
            if number % (UPDATES[rate] // LOOKS) == 0:
                curve.append(measure_success(model, prompts))
    return {**job, "success": curve}


def play(engine: Any, prompts: Sequence[tuple[int, ...]], *, seed: int) -> list[Any]:
    """Rollouts with their advantages: reward 1 for the second word, compared within the prompt."""
    from groupwise.data.samples import Sample
    from groupwise.engines.engine import Request

    asked = [prompt for prompt in prompts for _ in range(ROLLOUTS)]
    requests = [Request(prompt_ids=prompt, seed=(seed << 8) + i, max_tokens=1) for i, prompt in enumerate(asked)]
    answers = engine.generate(requests)
    rewards = np.array(
        [float(answer.response_ids[0] == prompt[2]) for prompt, answer in zip(asked, answers, strict=True)]
    ).reshape(-1, ROLLOUTS)
    credit = (rewards - rewards.mean(1, keepdims=True)).reshape(-1)
    return [
        Sample(
            prompt_ids=prompt,
            response_ids=answer.response_ids,
            logp_behaviour=answer.logp,
            advantage=float(credit[i]),
            trajectory=i,
            step=0,
            group=i // ROLLOUTS,
        )
        for i, (prompt, answer) in enumerate(zip(asked, answers, strict=True))
    ]


def measure_success(model: Any, prompts: Sequence[tuple[int, ...]]) -> float:
    """The probability of the right answer, mean over all prompts."""
    import torch

    ids = torch.tensor(prompts)
    with torch.no_grad():
        logp = model(input_ids=ids, use_cache=False).logits[:, -1].float().log_softmax(-1)
    return float(logp.gather(1, ids[:, 2:]).exp().mean())


@contextmanager
def round_to_nearest(is_on: bool) -> Iterator[None]:
    """Replace stochastic rounding by rounding to nearest; the rest of the optimizer is unchanged."""
    from groupwise.learner import optimizers as lean_adamw

    real = lean_adamw.step_weight
    if is_on:
        from dataclasses import replace

        lean_adamw.step_weight = lambda target, gradient, state, settings: real(
            target, gradient, state, replace(settings, seed=None)
        )
    try:
        yield
    finally:
        lean_adamw.step_weight = real


def summarise(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Success of each variant at equal updates: the mean over the run, and at its end."""
    rows = []
    for rate, variant in product(UPDATES, VARIANTS):
        curves = [run["success"] for run in runs if run["variant"] == variant and run["rate"] == rate]
        if not curves:
            continue
        row: dict[str, Any] = {"rate": rate, "updates": UPDATES[rate], "variant": variant, "seeds": len(curves)}
        for name, values in (
            ("mean_over_run", [float(np.mean(curve)) for curve in curves]),
            ("at_end", [curve[-1] for curve in curves]),
        ):
            row[name] = {"iqm": interquartile_mean(values), "interval": bootstrap(values)}
        rows.append(row)
    return rows


def main() -> None:
    """Run all seeds, and write the result after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    jobs = [
        {"variant": variant, "rate": rate, "seed": seed}
        for seed, rate, variant in product(range(options.seeds), UPDATES, VARIANTS)
    ]
    began, runs = time.perf_counter(), list[dict[str, Any]]()
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(learn_words, job) for job in jobs]):
            runs.append(done.result())
            last = runs[-1]
            print(
                f"{len(runs)} of {len(jobs)}: {last['variant']}, rate {last['rate']:g}, seed {last['seed']}: "
                f"{last['success'][-1]:.3f} ({time.perf_counter() - began:.0f} s)",
                flush=True,
            )
            write_result(describe(runs), options.write)
    for row in summarise(runs):
        print(json.dumps(row))


def describe(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The result so far."""
    import torch

    return {
        "variants": summarise(runs),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "command": " ".join(["python -m benchmarks.lean_optimizers", *sys.argv[1:]]),
        "runs": sorted(runs, key=lambda run: (run["rate"], run["variant"], run["seed"])),
    }


if __name__ == "__main__":
    main()
