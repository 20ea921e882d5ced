"""What is refused of tasks before a model loads: rewards that lack a column, nobody who judges, rules that differ."""

from __future__ import annotations

from collections.abc import Mapping

from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import name_of
from groupwise.core.parts.trust import may_run
from groupwise.core.records import Task
from groupwise.envs.environment import EnvironmentPart
from groupwise.envs.mixture import list_environments
from groupwise.rewards.function import FunctionReward
from groupwise.rollout.actions import Choice
from groupwise.rollout.hosts.host import Fault, Host
from groupwise.training.run_config import RunConfig


def check_first_tasks(config: RunConfig, host: Host, first_tasks: Mapping[str, Task]) -> None:
    """Refuse what a task of each environment, by the environment's name, shows to be impossible."""
    for name, env in list_environments(config.env).items():
        if name not in first_tasks:
            raise ConfigError(f"env ({name}): {name_of(env)} has no training tasks; give its train panel some")
        _check_judged(config, env, name)
        _check_columns(config, first_tasks[name])
    if len(first_tasks) > 1 and isinstance(config.rollout.action_rule, Choice):
        _check_choices(host, first_tasks)


def _check_judged(config: RunConfig, env: EnvironmentPart, name: str) -> None:
    """Refuse tasks that nobody says the success of, where that is asked for, or that nobody pays."""
    if getattr(env, "tells_success", True):
        return
    functions = [part for part in config.rewards if isinstance(part, FunctionReward)]
    whose = f"env ({name})" if name else "env"
    if not functions:
        raise ConfigError(
            f'{whose}: verifier = "none" leaves it to rewards to judge, and there is none that does; add [[rewards]] '
            'with kind = "function", or choose a verifier'
        )
    if config.evaluation.tasks and all(part.solved_at is None for part in functions):
        raise ConfigError(
            f'{whose}: with verifier = "none" nobody says which attempts of an evaluation succeeded; set solved_at of '
            "the reward that judges, or evaluation.tasks = 0"
        )


def _check_columns(config: RunConfig, task: Task) -> None:
    """Refuse a reward function that takes a column which tasks do not have; who only reads a run loads none."""
    functions = [part for part in config.rewards if isinstance(part, FunctionReward)]
    for part in functions if may_run() else ():
        if missing := part.find_missing_column(task.payload):
            there = ", ".join(sorted(task.payload)) or "none"
            raise ConfigError(
                f"rewards: the function {part.function!r} takes {missing!r}, which is no column of task {task.id!r}; "
                f"its columns are {there}: add it to the data, or give the parameter a default"
            )


def _check_choices(host: Host, first_tasks: Mapping[str, Task]) -> None:
    """Refuse to choose by number where some of the environments list what can be chosen and others do not."""
    numbered = dict(enumerate(first_tasks.items()))
    shown = host.open({number: task for number, (_, task) in numbered.items()})
    host.close([number for number, seen in shown.items() if not isinstance(seen, Fault)])
    lists = {
        numbered[number][0]: bool(seen.admissible) for number, seen in shown.items() if not isinstance(seen, Fault)
    }
    if len(set(lists.values())) == 2:
        listing, silent = (", ".join(name for name, has in lists.items() if has is wanted) for wanted in (True, False))
        raise ConfigError(
            f"env: rollout.action_rule 'choice' fits {listing}, which lists its possible actions, but not {silent}, "
            "whose actions are free text; mix environments with one action rule, or set rollout.action_rule to "
            '"whole_response" or "tagged"'
        )
