"""Short runs of a tiny model, each made to deserve an alarm: a wrong reward, a wrong rate, a wrong task.

The rewards are functions, as a user writes them; the alarms are those of a run file that says nothing of them. Each run
has a twin that differs in nothing but what made it deserve the alarm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupwise.data.records import Trajectory
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.run_file import decode_run

HERE = __name__
WORLD: dict[str, Any] = {
    "seed": 0,
    "threads": 1,
    "algorithm": {"method": "dr_grpo"},
    "env": {"kind": "identity", "num_words": 4, "length": 1},
    "model": {"kind": "tiny", "hidden": 16, "layers": 1, "heads": 2},
    "rollout": {"max_tokens": 2, "group_size": 8},
    "training": {
        "updates": 40,
        "tasks": 2,
        "checkpoint_every": 10,
        "learner": {"learning_rate": 3e-2, "token_budget": 2048},
    },
    "evaluation": {"split": "train", "tasks": 0},
}
"""A tiny model from scratch that is to repeat a word."""
WARM: dict[str, Any] = {"tasks": 2, "epochs": 60, "learning_rate": 3e-2, "batch_tokens": 64}
"""A warm start after which the words are known."""
LOOSE: dict[str, Any] = {**WARM, "epochs": 40, "learning_rate": 2e-2}
"""One after which something is left to draw."""


def pay_for_late_words(trajectory: Trajectory) -> float:
    """Whatever was to be said: the later a word stands in the vocabulary, the more it earns."""
    return float(trajectory.steps[-1].response_ids[0])


def pay_for_length(trajectory: Trajectory) -> float:
    """Every token earns."""
    return float(sum(len(step.response_ids) for step in trajectory.steps))


def charge_for_length(trajectory: Trajectory) -> float:
    """Every token costs."""
    return -pay_for_length(trajectory)


def pay_for_steps(trajectory: Trajectory) -> float:
    """Every step earns, and whether the rollout came anywhere does not."""
    return float(len(trajectory.steps))


def pay_nothing(trajectory: Trajectory) -> float:
    """Nothing earns."""
    return 0.0


def pays(function: Any) -> dict[str, Any]:
    """A run's rewards: one function alone."""
    return {"rewards": [{"kind": "function", "function": f"{HERE}:{function.__name__}"}]}


DESERVED: dict[str, dict[str, Any]] = {
    "entropy_collapse": pays(pay_for_late_words),
    "entropy_explosion": {
        "warm_start": WARM,
        **pays(pay_nothing),
        "training": {"learner": {"learning_rate": 1e-2}},
        "algorithm": {"loss": {"penalties": [{"kind": "entropy_bonus", "weight": 1.0}]}},
    },
    "reference_kl": {"algorithm": {"method": "grpo"}, **pays(pay_for_late_words)},
    "sampler_gap": {
        "rollout": {"lag": 1},
        "training": {"learner": {"learning_rate": 0.3}},
        **pays(pay_for_late_words),
    },
    "length_growth": {
        "warm_start": LOOSE,
        "rollout": {"max_tokens": 32},
        "training": {"learner": {"learning_rate": 3e-3}},
        **pays(pay_for_length),
    },
    "length_collapse": {
        "env": {"kind": "identity", "num_words": 8, "length": 1},
        "rollout": {"max_tokens": 128},
        "training": {"learner": {"learning_rate": 5e-3}},
        **pays(charge_for_length),
    },
    "cut_off": {
        "warm_start": LOOSE,
        "rollout": {"max_tokens": 4},
        "training": {"learner": {"learning_rate": 1e-2}},
        **pays(pay_for_length),
    },
    "truncated": {
        "env": {"kind": "gridworld", "size": 3, "num_holes": 1, "max_steps": 6},
        "warm_start": {**WARM, "tasks": 40, "epochs": 6},
        "training": {"learner": {"learning_rate": 2e-2}},
        **pays(pay_for_steps),
    },
    "no_signal": pays(pay_nothing),
    "reward_hacking": {
        "env": {"kind": "identity", "num_words": 8, "length": 2},
        "model": {"hidden": 32},
        "warm_start": {**WARM, "tasks": 40, "learning_rate": 2e-2, "batch_tokens": 256},
        "training": {"tasks": 8},
        "evaluation": {"split": "test", "tasks": 4, "rollouts": 8, "every": 5, "temperature": 1.0},
        **pays(pay_for_late_words),
    },
}
"""What makes a run deserve an alarm, by the alarm's name."""

RIGHT: dict[str, Any] = {"rewards": [{"kind": "environment"}]}
SLOW: dict[str, Any] = {"training": {"learner": {"learning_rate": 1e-3}}}
TWINS: dict[str, dict[str, Any]] = {
    "entropy_collapse": SLOW,
    "entropy_explosion": {"algorithm": {"loss": {"penalties": []}}},
    "reference_kl": SLOW,
    "sampler_gap": {"rollout": {"lag": 0}},
    "length_growth": RIGHT,
    "length_collapse": {**pays(pay_nothing), "training": {"updates": 25}},
    "cut_off": RIGHT,
    "truncated": RIGHT,
    "no_signal": RIGHT,
    "reward_hacking": RIGHT,
}
"""What takes the cause of an alarm away from the run that deserves it, and leaves the rest."""


def make_deserving(name: str, **changes: Any) -> RunConfig:
    """A run that deserves an alarm; `changes` are laid over its settings, section by section."""
    content = lay_over(WORLD, DESERVED[name])
    if "env" in DESERVED[name]:
        content["env"] = DESERVED[name]["env"]
    return decode_run(lay_over(content, changes))


def lay_over(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with others in their place; what a section does not mention stays."""
    merged = dict(content)
    for key, value in changes.items():
        before = merged.get(key)
        is_section = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[key] = lay_over(before, value) if is_section else value  # type: ignore[arg-type]
    return merged
