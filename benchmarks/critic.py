"""PPO and Turn-PPO beside GRPO in the household example, seeds 0 to 4.

    python -m benchmarks.critic --jobs 16 --write benchmarks/results/critic.json
    python -m benchmarks.critic --short        # one seed, six updates, a short warm start: only to see that it works

All variants have the settings of examples/household.toml and the same loss settings; the method differs. The runs of a
seed begin with the same warm start. LABLOG.md says beforehand what is compared. Each finished run is a file of
`--folder`; the same command then makes only the others.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.by_seed import Comparison, run_benchmark

CRITIC_LR = 1e-3
COMPARISON = Comparison(
    module="benchmarks.critic",
    run=Path(__file__).parents[1] / "examples" / "household.toml",
    variants={
        "grpo": {"method": "grpo"},
        "ppo": {"method": "ppo", "critic_lr": CRITIC_LR},
        "turn_ppo": {"method": "turn_ppo", "critic_lr": CRITIC_LR},
        "ppo_value_head": {"method": "ppo", "critic_lr": CRITIC_LR, "critic_kind": "value_head"},
    },
    short=[
        "training.updates=6",
        "training.tasks=8",
        "evaluation.tasks=40",
        "warm_start.tasks=1000",
        "warm_start.epochs=3",
    ],
)

if __name__ == "__main__":
    run_benchmark(COMPARISON, __doc__, bases=["grpo"])
