"""Optional packages of environments: their version, the error that says what to install, and a search for `eval`."""

from __future__ import annotations

import ast
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from groupwise.system.errors import ConfigError


def report_missing_package(env: str, *, extra: str = "", then: str = "") -> ConfigError:
    """The error for an environment whose package is not installed.

    `extra` installs it (empty = the environment's name); `then` is a second command, if the extra is not enough.

    >>> print(report_missing_package("sokoban"))
    the environment 'sokoban' needs a package that is not installed; pip install 'groupwise[sokoban]'
    """
    command = f"pip install 'groupwise[{extra or env}]'"
    return ConfigError(
        f"the environment {env!r} needs a package that is not installed; {command}{f', then {then}' if then else ''}"
    )


def import_package(env: str, module: str, *, extra: str = "", then: str = "") -> Any:
    """A module of an environment's package, or the error that says how to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise report_missing_package(env, extra=extra, then=then) from None


def package_version(env: str, distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        raise report_missing_package(env) from None


# `eval` and similar calls in other packages are found before use, because they could run text from a model.
#
# Such packages run in the environment's own process. If one evaluates text or starts programs, it is rejected.

EVALUATORS = frozenset(("eval", "exec", "compile", "__import__"))
"""Built-in functions that run text: any mention of their names is rejected, also without a call."""
CALLED_EVALUATORS = EVALUATORS | frozenset(
    (
        *("parse_expr", "sympify", "lambdify", "system", "popen", "Popen", "check_output", "check_call", "execv"),
        *("execve", "posix_spawn", "create_subprocess_exec"),
    )
)
"""Functions of any module that run text or programs when they are called."""
PROGRAM_STARTERS = frozenset(("subprocess", "pty", "multiprocessing"))
"""Modules that start programs; an import without use, as in BFCL, is harmless."""
PATTERN_MODULES = ("re", "regex")
"""Modules whose `compile` makes a pattern."""


def refuse_eval(env: str, name: str, place: Path) -> None:
    """Raise if a file, or a file of a folder, mentions an evaluator."""
    mentions = find_eval_calls(place)
    if mentions:
        raise ConfigError(
            f"{env} {name!r}: its code may run text from the model ({mentions[0]}); choose another one, or "
            "report it to the package"
        )


@cache
def find_eval_calls(place: Path) -> tuple[str, ...]:
    """Evaluators in a Python file, or in all files of a folder, as "file:line: name"."""
    mentions = []
    for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
        try:
            nodes = list(ast.walk(ast.parse(file.read_bytes())))
        except (SyntaxError, ValueError, RecursionError):
            mentions.append(f"{file.name}:1: code that cannot be read")
            continue
        named = ((getattr(node, "lineno", 1), _name_evaluator(node)) for node in nodes)
        mentions += [f"{file.name}:{line}: {name}" for line, name in named if name]
    return tuple(mentions)


def _name_evaluator(node: ast.AST) -> str:
    """The evaluator that a piece of code mentions, calls or imports; empty = none."""
    match node:
        case ast.Name(id=name) if name in EVALUATORS:
            return name
        case ast.Attribute(value=ast.Name(id=module)) if module in PROGRAM_STARTERS:
            return module
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module))) if module in PATTERN_MODULES:
            return ""
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in CALLED_EVALUATORS:
            return name
        case ast.ImportFrom(module=module, names=names):
            is_starter = (module or "").partition(".")[0] in PROGRAM_STARTERS
            return str(module) if is_starter else next((n.name for n in names if n.name in CALLED_EVALUATORS), "")
        case ast.Import(names=names):
            return next((n.name for n in names if n.asname and n.name.partition(".")[0] in PROGRAM_STARTERS), "")
    return ""
