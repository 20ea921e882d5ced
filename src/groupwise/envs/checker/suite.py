"""The conformance suite for environments: run it on your own before you train in it.

for result in check_environment(MyEnvironment()):
    print(result.status, result.rule, result.found)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from groupwise.core.errors import ConfigError
from groupwise.core.records import Task
from groupwise.core.rules import BrokenRuleError, RuleResult, describe_result, try_rule
from groupwise.envs.checker import key_rules, rules
from groupwise.envs.checker.subject import Subject
from groupwise.envs.environment import EnvironmentPart
from groupwise.envs.kit.keyed_draws import Draws
from groupwise.envs.part_queries import ask_panel

Rule = Callable[[Subject], str]
"""A named promise of an environment; see `conformance/rules.py` and `conformance/key_rules.py`."""
NUM_TASKS = 12
"""How many training tasks are played unless it is said."""

RULES: tuple[Rule, ...] = (
    rules.opens_and_plays,
    rules.fields_have_their_types,
    rules.is_repeatable,
    rules.observe_has_no_effect,
    rules.is_isolated,
    rules.ends_in_time,
    rules.success_is_told_at_the_end,
    rules.refuses_to_act_after_the_end,
    key_rules.state_key_is_hashable,
    key_rules.state_key_can_be_written,
    key_rules.state_key_is_equal_for_equal_situations,
    key_rules.state_key_has_no_counter_or_clock,
    rules.admissible_actions_are_accepted,
    rules.nonsense_is_refused,
    rules.rewards_are_finite,
    rules.fork_is_exact,
    rules.fork_is_independent,
    rules.expert_succeeds,
    rules.panels_are_disjoint,
    rules.panels_are_fixed,
    rules.task_ids_come_from_content,
    rules.vocabulary_covers_every_word,
    rules.acts_fast_enough,
)
"""All rules, in the order they are checked. If the first one is broken, the rest are not checked."""


def check_environment(
    part: EnvironmentPart, *, tasks: Sequence[Task] | int = NUM_TASKS, seed: int = 0
) -> list[RuleResult]:
    """Check an environment against every rule; one that cannot be had (its package is missing) raises its ConfigError.

    Args:
        part: The environment.
        tasks: The tasks to play, or how many training tasks to choose by the seed; fewer for a slow environment.
        seed: For the choice of tasks and of actions.
    """
    results: list[RuleResult] = []
    subject = cache(lambda: Subject(part=part, tasks=_choose_tasks(part, tasks, seed), seed=seed))
    for rule in RULES:
        if results and results[0].status == "broken":
            results.append(describe_result(rule, "not tested", "the environment could not be played"))
        else:  # at first a ConfigError says that a package, data or fields are not there: there is nothing to check
            results.append(try_rule(rule, subject, passing=() if results else ConfigError))
    return results


def _choose_tasks(part: EnvironmentPart, tasks: Sequence[Task] | int, seed: int) -> tuple[Task, ...]:
    if not isinstance(tasks, int):
        return tuple(tasks)
    panel = ask_panel(part, "train")
    if not panel:
        raise BrokenRuleError("the train panel is empty")
    return tuple(Draws("checker", seed).sample(panel, min(tasks, len(panel))))
