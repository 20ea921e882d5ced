"""What HGPO, GiGPO, GRPO and PPO released for WebShop: settings, their values, and the files of verl-agent."""

from __future__ import annotations

from tests.published import released
from tests.published.released import BASE, Published

ENVIRONMENT = "agent_system/environments/env_package/webshop"
ENGINE = f"{ENVIRONMENT}/webshop/web_agent_site/engine"
HGPO_SCRIPT = "recipe/hgpo/run_qwen2.5_1.5b_webshop_train.sh"
HGPO_SCRIPT_7B = "recipe/hgpo/run_qwen2.5_7b_webshop_train.sh"
GIGPO_SCRIPT = "examples/gigpo_trainer/run_webshop.sh"
GRPO_SCRIPT = "examples/grpo_trainer/run_webshop.sh"
PPO_SCRIPT = "examples/ppo_trainer/run_webshop.sh"


def common(script: str, model: str) -> list[Published]:
    """What all scripts share."""
    manager = f"{'recipe/hgpo' if 'hgpo' in script else 'agent_system/environments'}/env_manager.py"
    return [
        *released.shared(script),
        Published("model.path", model, f"{script}: model.path"),
        Published("env.kind", "webshop", f"{script}: env.env_name=Webshop"),
        Published("env.size", "1000", f"{BASE}: env.webshop.use_small: True"),
        Published("env.goals", "synthetic", f"{BASE}: env.webshop.human_goals: False"),
        Published("env.num_test", 500, f"{ENVIRONMENT}/envs.py: goal_idxs = range(500)"),
        Published("env.num_validation", 0, f"{ENVIRONMENT}/envs.py: range(500, len(goals))"),
        Published("env.is_graded", False, f"{ENVIRONMENT}/envs.py: won if done and reward == 1.0"),
        Published("env.success_reward", 10.0, f"{ENVIRONMENT}/envs.py: reward = 10.0"),
        Published("env.reference", True, f"{ENVIRONMENT}/webshop/web_agent_site: the published shop"),
        Published("env.tagger", "en_core_web_sm", f"{ENGINE}/goal.py: spacy.load"),
        # LuceneSearcher; `porter` ranks as it does, without Java.
        Published("env.search", "porter", f"{ENGINE}/engine.py: LuceneSearcher"),
        Published("env.key", "observation", f"{manager}: 'anchor': next_obs.copy()"),
        Published("env.listed_search", "placeholder", f"{manager}: search[<your query>]"),
        Published("env.texts", "quoted", f"{manager}: format_obs"),
        Published("env.show_chosen", False, f"{ENVIRONMENT}/envs.py: observation_mode text"),
        Published("env.goal_in_text", False, f"{manager}: format_obs, parts[index + 1:]"),
        Published("rollout.max_prompt_tokens", 4096, f"{script}: data.max_prompt_length=4096"),
        Published("rollout.template.admissible_item", "'$action',", f"{manager}: reformatted_available_actions"),
        Published("rollout.template.admissible_join", "\n", f"{manager}: reformatted_available_actions"),
        Published("rollout.action_parser.fallback", 20, f"{ENVIRONMENT}/projection.py: actions[i][-20:]"),
        Published("training.learner.minibatch_samples", 64, f"{script}: actor.ppo_mini_batch_size=64"),
        Published("evaluation.split", "test", f"{ENVIRONMENT}/envs.py: goal_idxs = range(500)"),
        Published("evaluation.score", "graded_match", f"{manager}: webshop_task_score"),
    ]


def hgpo(script: str, model: str) -> list[Published]:
    """HGPO. After training, it has 512 episodes with each of the seeds 123, 456 and 789."""
    method = [row for row in released.hgpo(script, scale="none") if row.path != "rollout.max_prompt_tokens"]
    return [
        *common(script, model),
        *method,
        Published("env.max_steps", 30, f"{script}: step_length=30"),
        Published("evaluation.tasks", 256, f"{script}: val_data_size * 2"),
    ]


def baseline(script: str, method: list[Published], tasks: Published) -> list[Published]:
    """A method of GiGPO's release. Prompts of more than 13,000 characters show no history, too long ones are errors."""
    return [
        *common(script, "Qwen/Qwen2.5-1.5B-Instruct"),
        *method,
        Published("env.max_steps", 15, f"{script}: env.max_steps=15"),
        tasks,
    ]


HGPO = hgpo(HGPO_SCRIPT, "Qwen/Qwen2.5-1.5B-Instruct")
HGPO_7B = hgpo(HGPO_SCRIPT_7B, "Qwen/Qwen2.5-7B-Instruct")
GIGPO = baseline(
    GIGPO_SCRIPT,
    released.gigpo(GIGPO_SCRIPT, scale="none"),
    Published("evaluation.tasks", 256, f"{GIGPO_SCRIPT}: val_data_size * 2"),
)
GRPO = baseline(
    GRPO_SCRIPT,
    released.grpo(GRPO_SCRIPT),
    Published("evaluation.tasks", 128, f"{GRPO_SCRIPT}: val_data_size=128"),
)
PPO = baseline(
    PPO_SCRIPT,
    released.ppo(PPO_SCRIPT),
    Published("evaluation.tasks", 128, f"{PPO_SCRIPT}: val_data_size=128"),
)
