"""Find `eval` and its like in the code of other packages, which could run what a model says, before that code is used.

Such packages are played in the environment's own process. One that evaluates text, or starts programs, is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from groupwise.system.errors import ConfigError

EVALUATORS = frozenset(("eval", "exec", "compile", "__import__"))
"""Built-in functions that run text: no mention of them by name is let through, whether called or handed on."""
CALLED_EVALUATORS = EVALUATORS | frozenset(
    (
        *("parse_expr", "sympify", "lambdify", "system", "popen", "Popen", "check_output", "check_call", "execv"),
        *("execve", "posix_spawn", "create_subprocess_exec"),
    )
)
"""Names of what runs text or programs when it is called, of whatever module."""
PROGRAM_STARTERS = frozenset(("subprocess", "pty", "multiprocessing"))
"""Modules that are there to start programs; to import one and use nothing of it, as BFCL does, is no harm."""
PATTERN_MODULES = ("re", "regex")
"""Modules whose `compile` makes a pattern."""


def refuse_eval(env: str, name: str, place: Path) -> None:
    """Raise where a file, or a file of a folder, mentions something that evaluates."""
    mentions = find_eval_calls(place)
    if mentions:
        raise ConfigError(
            f"{env} {name!r}: its code may run what a model says ({mentions[0]}); name another one, or report it to "
            "the package"
        )


@cache
def find_eval_calls(place: Path) -> tuple[str, ...]:
    """What may evaluate in a Python file, or in those of a folder and the folders below, as "file:line: name"."""
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return tuple(mention for file in files for mention in _find_eval_calls_in_file(file))


def _find_eval_calls_in_file(file: Path) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        yield f"{file.name}:1: code that cannot be read"
        return
    for node in ast.walk(tree):
        name = _name_evaluator(node)
        if name:
            yield f"{file.name}:{getattr(node, 'lineno', 1)}: {name}"


def _name_evaluator(node: ast.AST) -> str:
    """The evaluator that a piece of code mentions, calls or imports; empty = none."""
    if isinstance(node, ast.Name):
        return node.id if node.id in EVALUATORS else ""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in PROGRAM_STARTERS:
        return node.value.id
    if isinstance(node, ast.Call):
        return _name_called(node.func)
    if isinstance(node, ast.ImportFrom):
        is_starter = (node.module or "").partition(".")[0] in PROGRAM_STARTERS
        return str(node.module) if is_starter else next((n.name for n in node.names if n.name in CALLED_EVALUATORS), "")
    if isinstance(node, ast.Import):
        return next((n.name for n in node.names if n.asname and n.name.partition(".")[0] in PROGRAM_STARTERS), "")
    return ""


def _name_called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        of_pattern = isinstance(function.value, ast.Name) and function.value.id in PATTERN_MODULES
        return "" if of_pattern or function.attr not in CALLED_EVALUATORS else function.attr
    return function.id if isinstance(function, ast.Name) and function.id in CALLED_EVALUATORS else ""
