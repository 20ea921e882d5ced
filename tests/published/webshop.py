"""What HGPO, GiGPO and GRPO released for WebShop with Qwen2.5-1.5B-Instruct: settings, their values, and the files.

Paths of `[algorithm]` are options of the file's method, or parts of its algorithm. Sources are files of verl-agent, the
repository of both releases; HGPO's files are in its folder recipe/hgpo.
"""

from __future__ import annotations

from typing import Any, NamedTuple

ENVIRONMENT = "agent_system/environments/env_package/webshop"
BASE = "verl/trainer/config/ppo_trainer.yaml"
SCRIPTS = {
    "hgpo": "recipe/hgpo/run_qwen2.5_1.5b_webshop_train.sh",
    "gigpo": "examples/gigpo_trainer/run_webshop.sh",
    "grpo": "examples/grpo_trainer/run_webshop.sh",
}


class Published(NamedTuple):
    """A published value of a setting."""

    path: str
    """The setting, as `--set` takes it."""
    value: Any
    source: str
    """The file that has the value, and what it says."""


def common(method: str) -> list[Published]:
    """What all three scripts share."""
    script = SCRIPTS[method]
    manager = "recipe/hgpo/env_manager.py" if method == "hgpo" else "agent_system/environments/env_manager.py"
    return [
        Published("env.kind", "webshop", f"{script}: env.env_name=Webshop"),
        Published("env.size", "1000", f"{BASE}: env.webshop.use_small: True"),
        Published("env.goals", "synthetic", f"{BASE}: env.webshop.human_goals: False"),
        Published("env.num_test", 500, f"{ENVIRONMENT}/envs.py: goal_idxs = range(500)"),
        Published("env.num_validation", 0, f"{ENVIRONMENT}/envs.py: range(500, len(goals))"),
        Published("env.is_graded", False, f"{ENVIRONMENT}/envs.py: won if done and reward == 1.0"),
        Published("env.success_reward", 10.0, f"{ENVIRONMENT}/envs.py: reward = 10.0"),
        Published("env.reference", True, f"{ENVIRONMENT}/webshop/web_agent_site: the published shop"),
        Published("env.tagger", "en_core_web_sm", f"{ENVIRONMENT}/webshop/web_agent_site/engine/goal.py: spacy.load"),
        # LuceneSearcher; `porter` ranks as it does, without Java.
        Published("env.search", "porter", f"{ENVIRONMENT}/webshop/web_agent_site/engine/engine.py: LuceneSearcher"),
        Published("env.key", "observation", f"{manager}: 'anchor': next_obs.copy()"),
        Published("env.listed_search", "placeholder", f"{manager}: search[<your query>]"),
        Published("env.texts", "quoted", f"{manager}: format_obs"),
        Published("env.show_chosen", False, f"{ENVIRONMENT}/envs.py: observation_mode text"),
        Published("env.goal_in_text", False, f"{manager}: format_obs, parts[index + 1:]"),
        Published("model.path", "Qwen/Qwen2.5-1.5B-Instruct", f"{script}: model.path"),
        Published("rollout.group_size", 8, f"{script}: env.rollout.n=$group_size"),
        Published("rollout.max_tokens", 512, f"{script}: data.max_response_length=512"),
        Published("rollout.max_prompt_tokens", 4096, f"{script}: data.max_prompt_length=4096"),
        Published("rollout.temperature", 1.0, f"{BASE}: rollout.temperature: 1.0"),
        Published("rollout.history.kind", "window", f"{manager}: memory.fetch(history_length)"),
        Published("rollout.history.steps", 2, f"{BASE}: env.history_length: 2"),
        Published("rollout.template.kind", "template_file", "agent_system/environments/prompts/webshop.py"),
        Published("rollout.template.admissible_item", "'$action',", f"{manager}: reformatted_available_actions"),
        Published("rollout.template.admissible_join", "\n", f"{manager}: reformatted_available_actions"),
        Published(
            "rollout.template.history_line",
            "[Observation $n: '$seen', Action $n: '$done']",
            "agent_system/memory/memory.py: SimpleMemory.fetch",
        ),
        Published("rollout.action_parser.kind", "tagged", f"{ENVIRONMENT}/projection.py"),
        Published("rollout.action_parser.fallback", 20, f"{ENVIRONMENT}/projection.py: actions[i][-20:]"),
        Published("rollout.action_parser.reference", True, f"{ENVIRONMENT}/projection.py"),
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
        Published("training.tasks", 16, f"{script}: train_data_size=16"),
        Published("training.learner.optimizer", "adamw", "verl/workers/fsdp_workers.py: optim.AdamW"),
        Published("training.learner.learning_rate", 1e-6, f"{script}: actor.optim.lr=1e-6"),
        Published("training.learner.weight_decay", 0.01, f"{BASE}: actor.optim.weight_decay: 0.01"),
        Published("training.learner.max_grad_norm", 1.0, f"{BASE}: actor.grad_clip: 1.0"),
        Published("training.learner.schedule.kind", "constant", f"{BASE}: warmup_style: constant, no warm-up"),
        Published("training.learner.passes", 1, f"{BASE}: actor.ppo_epochs: 1"),
        Published("training.learner.minibatch_samples", 64, f"{script}: actor.ppo_mini_batch_size=64"),
        Published("evaluation.split", "test", f"{ENVIRONMENT}/envs.py: goal_idxs = range(500)"),
        Published("evaluation.temperature", 0.4, f"{script}: val_kwargs.temperature=0.4"),
        Published("evaluation.every", 5, f"{script}: trainer.test_freq=5"),
        Published("evaluation.rollouts", 1, f"{BASE}: val_kwargs.n: 1"),
    ]


HGPO = [
    *common("hgpo"),
    Published("env.max_steps", 30, f"{SCRIPTS['hgpo']}: step_length=30"),
    Published("algorithm.method", "hgpo", f"{SCRIPTS['hgpo']}: adv_estimator=hgpo"),
    Published("algorithm.depth", 2, f"{SCRIPTS['hgpo']}: history_length=2"),
    Published("algorithm.alpha", 1.0, f"{SCRIPTS['hgpo']}: length_weight_alpha=1.0"),
    Published("algorithm.gamma", 0.95, f"{SCRIPTS['hgpo']}: algorithm.gamma=0.95"),
    Published("algorithm.scale", "none", f"{SCRIPTS['hgpo']}: mode=mean_norm"),
    Published("algorithm.episode", False, f"{SCRIPTS['hgpo']}: base_group=False"),
    Published("algorithm.invalid_penalty", 0.1, f"{SCRIPTS['hgpo']}: invalid_action_penalty_coef=0.1"),
    Published("algorithm.refused_penalty", 0.0, f"{SCRIPTS['hgpo']}: no such penalty"),
    Published("algorithm.reference", True, "recipe/hgpo/core_hgpo.py"),
    Published("algorithm.peers", "any", "recipe/hgpo/core_hgpo.py: clusters of any members"),
    Published("rollout.over_limit", "cut_left", f"{SCRIPTS['hgpo']}: data.truncation='left'"),
    Published("training.updates", 160, f"{SCRIPTS['hgpo']}: trainer.total_epochs=160"),
    Published("evaluation.tasks", 256, f"{SCRIPTS['hgpo']}: val_data_size * 2"),
]
"""HGPO (arXiv:2602.22817), two steps of history. After training it has 512 episodes, with seeds 123, 456 and 789."""

GIGPO = [
    *common("gigpo"),
    Published("env.max_steps", 15, f"{SCRIPTS['gigpo']}: env.max_steps=15"),
    Published("algorithm.method", "gigpo", f"{SCRIPTS['gigpo']}: adv_estimator=gigpo"),
    Published("algorithm.step_weight", 1.0, f"{SCRIPTS['gigpo']}: gigpo.step_advantage_w=1.0"),
    Published("algorithm.gamma", 0.95, f"{SCRIPTS['gigpo']}: algorithm.gamma=0.95"),
    Published("algorithm.scale", "none", f"{SCRIPTS['gigpo']}: mode=mean_norm"),
    Published("algorithm.similarity", None, f"{BASE}: gigpo.enable_similarity: False"),
    Published("algorithm.invalid_penalty", 0.1, f"{SCRIPTS['gigpo']}: invalid_action_penalty_coef=0.1"),
    Published("algorithm.refused_penalty", 0.0, f"{SCRIPTS['gigpo']}: no such penalty"),
    Published("algorithm.reference", True, "gigpo/core_gigpo.py: compute_mean_std_cross_steps=True"),
    Published("algorithm.peers", "any", "gigpo/core_gigpo.py: groups of any members"),
    Published("training.updates", 150, f"{SCRIPTS['gigpo']}: trainer.total_epochs=150"),
    Published("evaluation.tasks", 256, f"{SCRIPTS['gigpo']}: val_data_size * 2"),
]
"""GiGPO (arXiv:2505.10978). Prompts of more than 13,000 characters show no history, and too long ones are errors."""

GRPO = [
    *common("grpo"),
    Published("env.max_steps", 15, f"{SCRIPTS['grpo']}: env.max_steps=15"),
    Published("algorithm.method", "grpo", f"{SCRIPTS['grpo']}: adv_estimator=grpo"),
    Published("algorithm.ddof", 1, "verl/trainer/ppo/core_algos.py: torch.std"),
    Published("algorithm.eps", 1e-6, "verl/trainer/ppo/core_algos.py: epsilon = 1e-6"),
    Published("algorithm.average", "step", "verl/trainer/ppo/core_algos.py: compute_mean_std_cross_steps=True"),
    Published("algorithm.alone", "raw", "verl/trainer/ppo/core_algos.py: mean 0 and standard deviation 1"),
    Published("algorithm.advantage.of.kind", "penalised", f"{SCRIPTS['grpo']}: use_invalid_action_penalty=True"),
    Published("algorithm.advantage.of.penalty", 0.1, f"{SCRIPTS['grpo']}: invalid_action_penalty_coef=0.1"),
    Published("training.updates", 150, f"{SCRIPTS['grpo']}: trainer.total_epochs=150"),
    Published("evaluation.tasks", 128, f"{SCRIPTS['grpo']}: val_data_size=128"),
]
"""GRPO as GiGPO's release runs it. Its prompts are those of GiGPO."""
