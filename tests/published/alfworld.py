"""What HGPO, GiGPO, GRPO and PPO released for ALFWorld: settings, their values, and the files of verl-agent.

GiGPO's release has scripts for the model of 1.5B only. Its paper also trains the one of 7B.
"""

from __future__ import annotations

from tests.published import released
from tests.published.released import BASE, Published

ENVIRONMENT = "agent_system/environments/env_package/alfworld"
HGPO_SCRIPT = "recipe/hgpo/run_qwen2.5_1.5b_alfworld_train.sh"
HGPO_SCRIPT_7B = "recipe/hgpo/run_qwen2.5_7b_alfworld_train.sh"
GIGPO_SCRIPT = "examples/gigpo_trainer/run_alfworld.sh"
GRPO_SCRIPT = "examples/grpo_trainer/run_alfworld.sh"
PPO_SCRIPT = "examples/ppo_trainer/run_alfworld.sh"
SMALL, LARGE = "Qwen/Qwen2.5-1.5B-Instruct", "Qwen/Qwen2.5-7B-Instruct"


def common(script: str) -> list[Published]:
    """What all scripts share."""
    manager = f"{'recipe/hgpo' if 'hgpo' in script else 'agent_system/environments'}/env_manager.py"
    return [
        *released.shared(script),
        Published("env.kind", "alfworld", f"{script}: env.env_name=alfworld/AlfredTWEnv"),
        Published("env.max_steps", 50, f"{script}: env.max_steps=50"),
        Published("env.success_reward", 10.0, f"{ENVIRONMENT}/envs.py: compute_reward"),
        Published("env.key", "observation", f"{manager}: 'anchor': text_obs"),
        Published("rollout.template.admissible_item", "'$action'", f"{manager}: reformatted_admissible_actions"),
        Published("rollout.template.admissible_join", "\n ", f"{manager}: reformatted_admissible_actions"),
        Published("rollout.action_parser.fallback", 30, f"{ENVIRONMENT}/projection.py: actions[i][-30:]"),
        Published("training.learner.minibatch_samples", 256, f"{script}: actor.ppo_mini_batch_size=256"),
        Published("evaluation.tasks", 128, f"{script}: val_data_size=128"),
    ]


def hgpo(script: str, model: str) -> list[Published]:
    """HGPO. After training, it has 512 episodes with each of the seeds 123, 456 and 789, in both sets of games."""
    return [
        *common(script),
        *released.hgpo(script, scale="std"),
        Published("model.path", model, f"{script}: model.path"),
        Published("evaluation.split", "validation", "recipe/hgpo/config/hgpo_trainer.yaml: val_out: False, valid_seen"),
    ]


def baseline(script: str, method: list[Published]) -> list[Published]:
    """A method of GiGPO's release, but for the model."""
    return [
        *common(script),
        *method,
        Published("rollout.max_prompt_tokens", 2048, f"{script}: data.max_prompt_length=2048"),
        Published("rollout.over_limit", "refuse", f"{script}: data.truncation='error'"),
        Published("evaluation.split", "validation", f"{BASE}: env.alfworld.eval_dataset: eval_in_distribution"),
    ]


def of_1_5b(rows: list[Published], script: str) -> list[Published]:
    return [*rows, Published("model.path", SMALL, f"{script}: model.path")]


def of_7b(rows: list[Published], script: str) -> list[Published]:
    return [*rows, Published("model.path", LARGE, f"{script} has the model of 1.5B; the paper has both")]


_GIGPO = baseline(GIGPO_SCRIPT, released.gigpo(GIGPO_SCRIPT, scale="std"))
_GRPO = baseline(GRPO_SCRIPT, released.grpo(GRPO_SCRIPT))
HGPO = hgpo(HGPO_SCRIPT, SMALL)
HGPO_7B = hgpo(HGPO_SCRIPT_7B, LARGE)
GIGPO = of_1_5b(_GIGPO, GIGPO_SCRIPT)
GIGPO_7B = of_7b(_GIGPO, GIGPO_SCRIPT)
GRPO = of_1_5b(_GRPO, GRPO_SCRIPT)
GRPO_7B = of_7b(_GRPO, GRPO_SCRIPT)
PPO = of_1_5b(baseline(PPO_SCRIPT, released.ppo(PPO_SCRIPT)), PPO_SCRIPT)
