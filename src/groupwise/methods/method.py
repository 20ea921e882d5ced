"""What makes a function a method: its arguments are checked, and its docstring is its documentation."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, ParamSpec

from pydantic import ValidationError, validate_call

from groupwise.parts import Algorithm, make_config_error
from groupwise.system.errors import ConfigError, Problem

Options = ParamSpec("Options")


Average = Literal["rollout", "step"]

Alone = Literal["zero", "raw", "error"]


ScaledBy = Literal["task", "state", "none"]
"""The steps over whose advantages the root mean square is taken."""

AfterLimit = Literal["zero", "value"]
"""The value after a rollout that a limit cut off."""


def method(function: Callable[Options, Algorithm]) -> Callable[Options, Algorithm]:
    """Check a method's arguments before it builds anything; errors name the method and the argument."""
    checked = validate_call(function)
    known = inspect.signature(function).parameters

    @wraps(function)
    def build(*args: Options.args, **options: Options.kwargs) -> Algorithm:
        for name in options:
            if name not in known:
                problem = Problem.of_unknown([name], known, listed_by=f"`groupwise methods --show {function.__name__}`")
                raise ConfigError(f"{function.__name__}: {problem}", problems=[problem])
        try:
            return checked(*args, **options)
        except ValidationError as error:
            raise make_config_error(error.errors(), function.__name__) from None

    return build


@dataclass(frozen=True, kw_only=True)
class MethodSummary:
    """The documentation of a method, from its docstring."""

    name: str
    """Name in the catalogue."""
    sentence: str
    """One sentence that a colleague could repeat."""
    citation: str
    """Its source."""
    options: dict[str, Any]
    """Its options and their defaults."""
    text: str
    """The whole docstring: sentence, equation, citation, Choices."""


def summarise(name: str, function: Callable[..., Algorithm]) -> MethodSummary:
    """Read a method's docstring, whose first line is `Title (citation): sentence`."""
    text = inspect.getdoc(function) or ""
    head, _, sentence = text.partition("\n\n")[0].replace("\n", " ").partition("): ")
    options = {key: parameter.default for key, parameter in inspect.signature(function).parameters.items()}
    return MethodSummary(name=name, sentence=sentence, citation=head.partition(" (")[2], options=options, text=text)
