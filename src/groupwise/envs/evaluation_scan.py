"""Whether the code of a package's game or service could run what a model says: found by reading it, before it is used.

Such packages are played in the environment's own process. One that evaluates text, or starts programs, is refused.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from groupwise.core.errors import ConfigError

EVALUATING = frozenset(
    (
        *("eval", "exec", "compile", "__import__", "parse_expr", "sympify", "lambdify", "system", "popen", "Popen"),
        *("check_output", "check_call", "execv", "execve", "posix_spawn", "create_subprocess_exec"),
    )
)
"""Names of what runs text or programs, by whatever module they are called."""
PATTERNS = ("re", "regex")
"""Modules whose `compile` makes a pattern."""


def refuse_evaluation(env: str, name: str, place: Path) -> None:
    """Raise where a file, or a file of a folder, calls something that evaluates."""
    found = evaluating_calls(place)
    if found:
        raise ConfigError(
            f"{env} {name!r}: its code may run what a model says ({found[0]}); name another one, or report it to the "
            "package"
        )


@cache
def evaluating_calls(place: Path) -> tuple[str, ...]:
    """Calls that evaluate in a Python file or in those of a folder, as "file:line: name"."""
    files = sorted(place.glob("*.py")) if place.is_dir() else [place]
    return tuple(
        f"{file.name}:{node.lineno}: {name}"
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and (name := _called(node.func)) in EVALUATING
    )


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        is_pattern = isinstance(function.value, ast.Name) and function.value.id in PATTERNS
        return "" if is_pattern else function.attr
    return function.id if isinstance(function, ast.Name) else ""
