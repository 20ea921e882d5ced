"""Errors of external code as one line without secrets, and the rules that such code is checked against."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from groupwise.system.secrets import redact
from groupwise.system.text import MAX_QUOTED_CHARACTERS, quote_line

MAX_SEARCHED_CHARACTERS = 8 * MAX_QUOTED_CHARACTERS
"""Characters of an external text that are searched for secrets before it is cut."""


def quote_error(error: BaseException) -> str:
    r"""An exception as one line: its class and the first line of its message.

    >>> quote_error(RuntimeError("half \ud83d\nTraceback ..."))
    'RuntimeError: half \\ud83d'
    """
    try:
        message = str(error)
    except Exception:  # from an external __str__
        message = "its message cannot be shown"
    # Secrets first: half a secret would no longer be recognised.
    return quote_line(redact(f"{type(error).__name__}: {message[:MAX_SEARCHED_CHARACTERS]}"))


def quote_error_with_place(error: Exception, module: str) -> str:
    """An exception as one line, with the last place in the package of `module` that it passed."""
    package = module.partition(".")[0]
    places = [
        (frame.f_globals.get("__name__", ""), frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    own = [place for place in places if str(place[0]).partition(".")[0] == package]
    _, file, line = (own or places)[-1]
    message = quote_line(str(error), limit=200)
    return f"{type(error).__name__}{f': {message}' if message else ''} ({file}:{line})"


def quote_line_in(error: Exception, function: Callable[..., Any]) -> str:
    """The last line of a function's own file that an error passed, in brackets; empty if there is none."""
    file = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", None)
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return f" ({Path(str(file)).name}:{lines[-1]})" if lines else ""


# Rules for external environments, engines and parts.
#
# A rule is a function of the object that is checked. It returns what it found. It raises `BrokenRuleError` if the
# object breaks the rule, or `NotTestedError` if the rule cannot be tried. Its docstring says why the rule matters.

Subject = TypeVar("Subject")
Status = Literal["kept", "broken", "not tested"]


class BrokenRuleError(Exception):
    """A rule is broken; the message says what was found."""


class NotTestedError(Exception):
    """The rule could not be tried; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleResult:
    """The result of one rule."""

    rule: str
    """The rule's name."""
    status: Status
    """Not tested = the rule could not be tried; `found` says why."""
    why: str
    """Why the rule matters."""
    found: str
    """What was found."""


def describe_result(rule: Callable[[Subject], str], status: Status, found: str) -> RuleResult:
    return RuleResult(rule=rule.__name__, status=status, why=" ".join((rule.__doc__ or "").split()), found=found)


def try_rule(
    rule: Callable[[Subject], str],
    ask_subject: Callable[[], Subject],
    *,
    passing: type[Exception] | tuple[type[Exception], ...] = (),
) -> RuleResult:
    """Check an object against a rule. Any exception breaks the rule, except `passing`, which is raised again."""
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
    except BaseException as error:  # also SystemExit, and the report must say so
        return describe_result(rule, "broken", f"it raised {quote_error(error)}")
