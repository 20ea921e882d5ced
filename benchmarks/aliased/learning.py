"""HGPO beside GiGPO and GRPO, with released conventions, where equal texts hide different pasts; seeds 0 to 4.

    python -m benchmarks.aliased.learning --jobs 16 --write benchmarks/results/aliased_learning.json
    python -m benchmarks.aliased.learning --short      # one seed, three updates: only to see that it works

All variants have the settings of examples/aliased.toml, with two hidden bits and a shorter warm start, and the same
loss; the method differs. `grpo_reference` is
released GiGPO without its state term. LABLOG.md says beforehand what is compared. Each finished run is a file of
`--folder`; the same command then makes only the others.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.by_seed import Comparison, run_benchmark

RELEASED = {"reference": True, "invalid_penalty": 0.0}
COMPARISON = Comparison(
    module="benchmarks.aliased.learning",
    run=Path(__file__).parents[2] / "examples" / "aliased.toml",
    settings=["env.hidden_bits=2", "warm_start.epochs=16"],
    variants={
        "grpo_reference": {"method": "grpo", "average": "step", "alone": "raw"},
        "gigpo_reference": {"method": "gigpo", **RELEASED},
        "hgpo_reference": {"method": "hgpo", **RELEASED},
        "hgpo_reference_depth_4": {"method": "hgpo", "depth": 4, **RELEASED},
    },
    short=[
        "training.updates=3",
        "training.tasks=4",
        "evaluation.tasks=20",
        "warm_start.tasks=100",
        "warm_start.epochs=3",
    ],
)

if __name__ == "__main__":
    run_benchmark(COMPARISON, __doc__, bases=["grpo_reference", "gigpo_reference"])
