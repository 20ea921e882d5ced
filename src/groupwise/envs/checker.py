"""The conformance suite for environments: run it on your own before you train in it.

for result in check_environment(MyEnvironment()):
    print(result.status, result.rule, result.found)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from groupwise.core.errors import ConfigError
from groupwise.core.records import Task
from groupwise.core.safe_text import quote_error
from groupwise.envs import checker_key_rules as key_rules
from groupwise.envs import checker_rules as rules
from groupwise.envs.asking import ask_panel
from groupwise.envs.checker_play import BrokenRuleError, NotTestedError, Subject
from groupwise.envs.draws import Draws
from groupwise.envs.environment import EnvironmentPart

Status = Literal["kept", "broken", "not tested"]
Rule = Callable[[Subject], str]
"""A named promise of an environment; see `checker_rules` and `checker_key_rules`."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleResult:
    """What became of one rule."""

    rule: str
    """The rule's name."""
    status: Status
    """Not tested = the rule could not be tried, or there was nothing to try it on; `found` says why."""
    why: str
    """Why the rule matters."""
    found: str
    """What was seen."""


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
    subject: Subject | None = None
    for rule in RULES:
        if results and results[0].status == "broken":
            results.append(_result(rule, "not tested", "the environment could not be played"))
            continue
        try:
            subject = subject or Subject(part=part, tasks=_choose_tasks(part, tasks, seed), seed=seed)
            results.append(_result(rule, "kept", rule(subject)))
        except ConfigError as error:
            if not results:  # a package, data or fields that are not there: there is no environment to check
                raise
            results.append(_result(rule, "broken", f"it raised {quote_error(error)}"))
        except BrokenRuleError as broken:
            results.append(_result(rule, "broken", str(broken)))
        except NotTestedError as reason:
            results.append(_result(rule, "not tested", str(reason)))
        except KeyboardInterrupt:  # the user's
            raise
        except BaseException as error:  # an environment may raise anything, an exit too, and the report must say what
            results.append(_result(rule, "broken", f"it raised {quote_error(error)}"))
    return results


def _choose_tasks(part: EnvironmentPart, tasks: Sequence[Task] | int, seed: int) -> tuple[Task, ...]:
    if not isinstance(tasks, int):
        return tuple(tasks)
    panel = ask_panel(part, "train")
    if not panel:
        raise BrokenRuleError("the train panel is empty")
    return tuple(Draws("checker", seed).sample(panel, min(tasks, len(panel))))


def _result(rule: Rule, status: Status, found: str) -> RuleResult:
    return RuleResult(rule=rule.__name__, status=status, why=" ".join((rule.__doc__ or "").split()), found=found)
