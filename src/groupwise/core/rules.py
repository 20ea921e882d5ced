"""Rules that somebody's environment or engine is put to, and what became of each.

A rule is a function of what is checked. It returns what it saw; it raises `BrokenRuleError` with what is wrong, or
`NotTestedError` where it could not be tried. Its docstring says why it matters, to whoever breaks it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from groupwise.core.text.exceptions import quote_error

Subject = TypeVar("Subject")
Status = Literal["kept", "broken", "not tested"]


class BrokenRuleError(Exception):
    """A rule is broken; the message says what was found."""


class NotTestedError(Exception):
    """The rule could not be tried, or there is nothing to try it on; the message says why."""


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


def describe_result(rule: Callable[[Subject], str], status: Status, found: str) -> RuleResult:
    """What became of a rule, with its name and its reason."""
    return RuleResult(rule=rule.__name__, status=status, why=" ".join((rule.__doc__ or "").split()), found=found)


def try_rule(
    rule: Callable[[Subject], str],
    ask_subject: Callable[[], Subject],
    *,
    passing: type[Exception] | tuple[()] = (),
) -> RuleResult:
    """Put something to a rule; whatever it raises breaks the rule.

    Args:
        rule: the rule.
        ask_subject: gives what is checked; what that raises counts as well.
        passing: an error that is let through.
    """
    try:
        return describe_result(rule, "kept", rule(ask_subject()))
    except passing:
        raise
    except BrokenRuleError as broken:
        return describe_result(rule, "broken", str(broken))
    except NotTestedError as reason:
        return describe_result(rule, "not tested", str(reason))
    except KeyboardInterrupt:  # the user's
        raise
    except BaseException as error:  # it may raise anything, an exit too, and the report must say what
        return describe_result(rule, "broken", f"it raised {quote_error(error)}")
