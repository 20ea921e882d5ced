"""verl's estimators (`verl.trainer.ppo.core_algos`), called the way its v1 trainer calls them.

An agent loop of verl may return several outputs for one rollout (a session). The worker copies the last output's
score to all of them (`v1/agent_loop_tq.py`, `_agent_loop_postprocess`), puts a row's score on the last token of its
response in single precision (`experimental/agent_loop/agent_loop.py`, `rm_scores`), and names the row
`{uid}_{session}_{index}`. The trainer (`v1/trainer_base.py`, `_compute_advantage`) hands the rows to
`compute_advantage_for_multi_trajectories` (`v1/utils.py`): for `grpo` only the row with the highest index of each
session enters `core_algos` and its result is copied to the session's other rows; every other estimator gets all
rows as they are. So here: one row of a table is one output, a rollout is a session, its score is its episode
return, and `tokens` is the length of the response.
"""

from __future__ import annotations

import warnings
from importlib import metadata
from typing import Any

import numpy as np
import torch

from conformance.case import Columns, Options
from conformance.subjects.rollouts import episode_returns, pays_only_at_the_end, rows_by_rollout

with warnings.catch_warnings():
    # verl warns of every training engine that is not installed.
    warnings.simplefilter("ignore")
    from tensordict import TensorDict
    from verl import DataProto
    from verl.trainer.config import AlgoConfig
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

ESTIMATORS = {
    "grpo": "grpo",
    "dr_grpo": "grpo",
    "rloo": "rloo",
    "reinforce_pp": "reinforce_plus_plus",
    "reinforce_pp_baseline": "reinforce_plus_plus_baseline",
}
"""Our name -> verl's; Dr. GRPO is GRPO with norm_adv_by_std_in_grpo=False."""

FIXED_EPS = {"grpo": 1e-6, "reinforce_pp": 1e-8, "reinforce_pp_baseline": 1e-8}


class VerlCoreAlgos:
    """verl, asked through the advantage step of its v1 trainer."""

    def __init__(self) -> None:
        packages = ("verl", "torch", "numpy", "tensordict")
        self.versions = {name: metadata.version(name) for name in packages}
        self.title = f"verl {self.versions['verl']}"

    def supports(self, method: str, options: Options, columns: Columns) -> str | None:
        if method not in ESTIMATORS:
            return "verl has no such estimator"
        if "eps" in options and options["eps"] != FIXED_EPS.get(method):
            return "the trainer does not pass on an eps"
        if options.get("ddof", 1) != 1:
            return "the deviation is always that of a sample"
        if options.get("average") == "step" and method in ("grpo", "dr_grpo"):
            return "the v1 trainer counts a rollout once for this estimator"
        if options.get("alone", "raw") != "raw":
            return "a group of one always keeps its reward"
        if method == "reinforce_pp":
            return self._return_to_go(options, columns)
        return None

    @staticmethod
    def _return_to_go(options: Options, columns: Columns) -> str | None:
        if options.get("gamma", 1.0) != 1.0:
            return "rewards are discounted from token to token, not from step to step"
        if not pays_only_at_the_end(columns):
            return "a rollout has one score; rewards of single steps are not carried"
        return None

    def advantage(self, method: str, options: Options, columns: Columns) -> list[float]:
        batch, keys = as_batch(columns)
        answer = compute_advantage_for_multi_trajectories(
            batch,
            batch_keys=keys,
            adv_estimator=ESTIMATORS[method],
            gamma=1.0,
            lam=1.0,
            norm_adv_by_std_in_grpo=method != "dr_grpo",
            config=AlgoConfig(adv_estimator=ESTIMATORS[method]),
        )
        # Every response starts with a sampled token, and all tokens of a row have the row's value.
        return [float(value) for value in answer.batch["advantages"][:, 0]]


def as_batch(columns: Columns) -> tuple[Any, list[str]]:
    """The trainer's batch, and the name of every row."""
    count = len(columns["reward"])
    tokens = columns.get("tokens", [1] * count)
    returns = episode_returns(columns)
    rewards = torch.zeros(count, max(tokens), dtype=torch.float32)
    mask = torch.zeros(count, max(tokens), dtype=torch.int64)
    keys = [""] * count
    for session, (rollout, members) in enumerate(rows_by_rollout(columns).items()):
        for index, row in enumerate(members):
            rewards[row, tokens[row] - 1] = returns[rollout]
            mask[row, : tokens[row]] = 1
            keys[row] = f"{rollout[0]}_{session}_{index}"
    batch = DataProto(batch=TensorDict({"token_level_rewards": rewards, "response_mask": mask}, batch_size=count))
    batch.non_tensor_batch["uid"] = np.array(columns["task"], dtype=object)
    return batch, keys
