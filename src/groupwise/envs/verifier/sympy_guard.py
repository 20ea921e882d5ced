"""sympy without evaluation: where it would run text as Python, the text is read by a grammar.

Inside a verifier's process these places are replaced. `parse_expr` (and `sympify`, and `Number("...")`, which call it)
evaluates what its transformations wrote: that is walked by `answer_grammars.read_tree`. With `evaluate=False` it
compiles a tree first: the tree itself is kept, and walked. `lambdify` compiles a function whose text has the names of
symbols in it, which LaTeX lets a model choose: its text must be arithmetic.
"""

from __future__ import annotations

import ast
import builtins
from importlib import import_module
from typing import Any

from groupwise.core.errors import ConfigError
from groupwise.envs.verifier.answer_grammars import MAX_PARSED_CHARACTERS, GrammarError, read_tree

PARSER, LAMBDIFY = "sympy.parsing.sympy_parser", "sympy.utilities.lambdify"
IMPORT = "from sympy import *"
"""What `parse_expr` runs for the names that it knows; here they are lent to it."""
_HARMLESS = frozenset(("abs", "min", "max", "sum", "pow", "round", "int", "float", "complex", "bool", "range", "len"))
_DANGEROUS = frozenset(dir(builtins)) - _HARMLESS
_PARTS_OF_A_FUNCTION = (
    *(ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.Name, ast.Load, ast.Store),
    *(ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.keyword, ast.Tuple),
    *(ast.List, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context),
)
_CANARIES = ("().__class__", "print(1)", "x.is_zero", "[1][0]", "Symbol('a b')", "sympify('1')", "lambda: 1", "S('1')")
"""Harmless texts that evaluation would take, and the grammar does not."""


def guard_sympy() -> None:
    """Replace sympy's evaluation in this process, and see that it is gone; an unknown sympy is refused."""
    sympy, parser, lambdify = (import_module(name) for name in ("sympy", PARSER, LAMBDIFY))
    names, stringify = {name: getattr(sympy, name) for name in sympy.__all__}, parser.stringify_expr

    def stringify_bounded(text: str, *rest: Any) -> str:
        if len(text) > MAX_PARSED_CHARACTERS:
            raise GrammarError(f"longer than {MAX_PARSED_CHARACTERS} characters")
        return str(stringify(text, *rest))

    def lend_names(statement: str, place: dict[str, Any]) -> None:
        if statement != IMPORT:
            raise GrammarError("a statement")
        place.update(names)

    parser.__dict__.update(stringify_expr=stringify_bounded, eval_expr=_read, compile=_keep_tree, exec=lend_names)
    lambdify.__dict__["compile"] = _compile_arithmetic
    for text in _CANARIES:
        for evaluate in (True, False):
            _expect_refusal(parser, text, evaluate=evaluate)
    hostile = sympy.Symbol("print('x')")
    try:
        lambdify.lambdify((), hostile)
    except GrammarError:
        return
    raise _refuse_sympy("lambdify")


def _read(code: str | ast.Expression, symbols: dict[str, Any], names: dict[str, Any]) -> Any:
    return read_tree(code, names, {name: value for name, value in symbols.items() if value is not None and name})


def _keep_tree(tree: ast.Expression, *_: object) -> ast.Expression:
    return tree


def _compile_arithmetic(text: str, filename: str, mode: str) -> Any:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if not isinstance(node, _PARTS_OF_A_FUNCTION):
            raise GrammarError(f"{type(node).__name__} is not part of a function of numbers")
        if isinstance(node, ast.Constant) and not isinstance(node.value, int | float | complex | None):
            raise GrammarError("a text in a function of numbers")
        if isinstance(node, ast.Name) and ("__" in node.id or node.id in _DANGEROUS):
            raise GrammarError(f"the name {node.id[:50]!r} is not part of a function of numbers")
    return compile(tree, filename, mode)


def _expect_refusal(parser: Any, text: str, *, evaluate: bool) -> None:
    try:
        parser.parse_expr(text, evaluate=evaluate)
    except Exception:  # its transformations refuse some of them in their own way
        return
    raise _refuse_sympy("parse_expr")


def _refuse_sympy(place: str) -> ConfigError:
    version = getattr(import_module("sympy"), "__version__", "?")
    return ConfigError(f"sympy {version} evaluates text in a way that is not known ({place}); pip install sympy==1.14")
