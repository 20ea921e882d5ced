"""What verl-agent, the repository of GiGPO's and HGPO's releases, sets alike for ALFWorld and WebShop.

Paths of `[algorithm]` are options of the file's method, or parts of its algorithm. Sources are files of verl-agent;
HGPO's are in its folder recipe/hgpo.
"""

from __future__ import annotations

from typing import Any, NamedTuple

BASE = "verl/trainer/config/ppo_trainer.yaml"
ADVANTAGES = "verl/trainer/ppo/core_algos.py"


class Published(NamedTuple):
    """A published value of a setting."""

    path: str
    """The setting, as `--set` takes it."""
    value: Any
    source: str
    """The file that has the value, and what it says."""


def shared(script: str) -> list[Published]:
    """What a script shares with all others, whether it says it or the base configuration does."""
    return [
        Published("rollout.max_tokens", 512, f"{script}: data.max_response_length=512"),
        Published("rollout.temperature", 1.0, f"{BASE}: rollout.temperature: 1.0"),
        Published("rollout.history.kind", "window", "agent_system/memory/memory.py: fetch(history_length)"),
        Published("rollout.history.steps", 2, f"{BASE}: env.history_length: 2"),
        Published("rollout.template.kind", "template_file", "agent_system/environments/prompts"),
        Published(
            "rollout.template.history_line",
            "[Observation $n: '$seen', Action $n: '$done']",
            "agent_system/memory/memory.py: SimpleMemory.fetch",
        ),
        Published("rollout.action_parser.kind", "tagged", "agent_system/environments/env_package: projection.py"),
        Published("rollout.action_parser.reference", True, "agent_system/environments/env_package: projection.py"),
        Published("algorithm.loss.surrogate.kind", "clip", f"{BASE}: policy_loss.loss_mode: vanilla"),
        Published("algorithm.loss.surrogate.low", 0.2, f"{BASE}: clip_ratio_low: 0.2"),
        Published("algorithm.loss.surrogate.high", 0.2, f"{BASE}: clip_ratio_high: 0.2"),
        Published("algorithm.loss.surrogate.dual", 3.0, f"{BASE}: clip_ratio_c: 3.0"),
        Published("algorithm.loss.aggregate.kind", "token_mean", f"{BASE}: loss_agg_mode: token-mean"),
        Published("algorithm.loss.penalties.0.kind", "kl", f"{script}: use_kl_loss=True"),
        Published("algorithm.loss.penalties.0.estimator", "k3", f"{script}: kl_loss_type=low_var_kl"),
        Published("algorithm.loss.penalties.0.weight", 0.01, f"{script}: kl_loss_coef=0.01"),
        Published("algorithm.loss.penalties.1.kind", "entropy_bonus", f"{BASE}: entropy_coeff"),
        Published("algorithm.loss.penalties.1.weight", 0.001, f"{BASE}: entropy_coeff: 0.001"),
        Published("training.learner.optimizer", "adamw", "verl/workers/fsdp_workers.py: optim.AdamW"),
        Published("training.learner.learning_rate", 1e-6, f"{BASE}: actor.optim.lr: 1e-6"),
        Published("training.learner.weight_decay", 0.01, f"{BASE}: actor.optim.weight_decay: 0.01"),
        Published("training.learner.max_grad_norm", 1.0, f"{BASE}: actor.grad_clip: 1.0"),
        Published("training.learner.schedule.kind", "constant", f"{BASE}: warmup_style: constant, no warm-up"),
        Published("training.learner.passes", 1, f"{BASE}: actor.ppo_epochs: 1"),
        Published("evaluation.temperature", 0.4, f"{script}: val_kwargs.temperature=0.4"),
        Published("evaluation.every", 5, f"{script}: trainer.test_freq=5"),
        Published("evaluation.rollouts", 1, f"{BASE}: val_kwargs.n: 1"),
    ]


def groups(script: str) -> list[Published]:
    """How many tasks and rollouts an update of a group method has."""
    return [
        Published("training.tasks", 16, f"{script}: train_data_size=16"),
        Published("rollout.group_size", 8, f"{script}: env.rollout.n=$group_size"),
    ]


def hgpo(script: str, *, scale: str) -> list[Published]:
    """HGPO's settings with two steps of history."""
    return [
        *groups(script),
        Published("algorithm.method", "hgpo", f"{script}: adv_estimator=hgpo"),
        Published("algorithm.depth", 2, f"{script}: history_length=2"),
        Published("algorithm.alpha", 1.0, f"{script}: length_weight_alpha=1.0"),
        Published("algorithm.gamma", 0.95, f"{script}: algorithm.gamma=0.95"),
        Published("algorithm.scale", scale, f"{script}: mode={'mean_norm' if scale == 'none' else 'mean_std_norm'}"),
        Published("algorithm.episode", False, f"{script}: base_group=False"),
        Published("algorithm.invalid_penalty", 0.1, f"{script}: invalid_action_penalty_coef=0.1"),
        Published("algorithm.refused_penalty", 0.0, f"{script}: no such penalty"),
        Published("algorithm.reference", True, "recipe/hgpo/core_hgpo.py"),
        Published("algorithm.peers", "any", "recipe/hgpo/core_hgpo.py: clusters of any members"),
        Published("rollout.max_prompt_tokens", 4096, f"{script}: data.max_prompt_length=4096"),
        Published("rollout.over_limit", "cut_left", f"{script}: data.truncation='left'"),
        Published("training.updates", 160, f"{script}: trainer.total_epochs=160"),
    ]


def gigpo(script: str, *, scale: str) -> list[Published]:
    return [
        *groups(script),
        Published("algorithm.method", "gigpo", f"{script}: adv_estimator=gigpo"),
        Published("algorithm.step_weight", 1.0, f"{script}: gigpo.step_advantage_w=1.0"),
        Published("algorithm.gamma", 0.95, f"{script}: algorithm.gamma=0.95"),
        Published("algorithm.scale", scale, f"{script}: mode={'mean_norm' if scale == 'none' else 'mean_std_norm'}"),
        Published("algorithm.similarity", None, f"{BASE}: gigpo.enable_similarity: False"),
        Published("algorithm.invalid_penalty", 0.1, f"{script}: invalid_action_penalty_coef=0.1"),
        Published("algorithm.refused_penalty", 0.0, f"{script}: no such penalty"),
        Published("algorithm.reference", True, "gigpo/core_gigpo.py: compute_mean_std_cross_steps=True"),
        Published("algorithm.peers", "any", "gigpo/core_gigpo.py: groups of any members"),
        Published("training.updates", 150, f"{script}: trainer.total_epochs=150"),
    ]


def grpo(script: str) -> list[Published]:
    """GRPO as GiGPO's release runs it."""
    return [
        *groups(script),
        Published("algorithm.method", "grpo", f"{script}: adv_estimator=grpo"),
        Published("algorithm.ddof", 1, f"{ADVANTAGES}: torch.std"),
        Published("algorithm.eps", 1e-6, f"{ADVANTAGES}: epsilon = 1e-6"),
        Published("algorithm.average", "step", f"{ADVANTAGES}: compute_mean_std_cross_steps=True"),
        Published("algorithm.alone", "raw", f"{ADVANTAGES}: mean 0 and standard deviation 1"),
        Published("algorithm.advantage.of.kind", "penalised", f"{script}: use_invalid_action_penalty=True"),
        Published("algorithm.advantage.of.penalty", 0.1, f"{script}: invalid_action_penalty_coef=0.1"),
        Published("training.updates", 150, f"{script}: trainer.total_epochs=150"),
    ]


def ppo(script: str) -> list[Published]:
    """PPO as GiGPO's release runs it; its 128 tasks with one rollout each cannot be set."""
    return [
        Published("algorithm.method", "ppo", f"{script}: adv_estimator=gae"),
        Published("algorithm.gamma", 1.0, f"{BASE}: algorithm.gamma: 1.0"),
        Published("algorithm.lam", 1.0, f"{BASE}: algorithm.lam: 1.0"),
        Published("algorithm.whiten", True, f"{ADVANTAGES}: masked_whiten"),
        Published("algorithm.critic.kind", "value_model", f"{script}: critic.model.path, a model of its own"),
        Published("algorithm.critic.by", "token", f"{ADVANTAGES}: compute_gae_advantage_return"),
        Published("algorithm.critic.learning_rate", 1e-5, f"{script}: critic.optim.lr=1e-5"),
        Published("algorithm.critic.value_clip", 0.5, f"{BASE}: critic.cliprange_value: 0.5"),
        Published("rewards.1.kind", "malformed_response", f"{script}: use_invalid_action_penalty=True"),
        Published("rewards.1.penalty", 0.1, f"{script}: invalid_action_penalty_coef=0.1"),
        Published("training.updates", 150, f"{script}: trainer.total_epochs=150"),
    ]
