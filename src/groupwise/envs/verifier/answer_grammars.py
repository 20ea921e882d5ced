"""Grammars for answers that a package would evaluate as Python: literals and expressions.

Text from a model never reaches `eval`. `ast.literal_eval` reads a literal. An expression is parsed, and `read_tree`
walks its tree: numbers, symbols, arithmetic, and calls of listed mathematical functions. Everything else (attributes,
subscripts, texts, other names and calls), and anything that grows without limit, raises `GrammarError`. Scorers treat
that as an unreadable answer.
"""

from __future__ import annotations

import ast
import builtins
import operator
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from groupwise.system.errors import ConfigError

MAX_PARSED_CHARACTERS = 20_000
"""A longer text is not read."""
MAX_DEPTH = 100
"""Levels that parentheses and calls may nest; a long sum is no deeper than a short one."""
MAX_EXPONENT = 1000
"""Largest exponent, and largest argument of a function such as the factorial."""
MAX_BITS = 2**15
"""Largest result of a power of numbers."""

SYMBOL = re.compile(r"(?!.*__)[^\W\d]\w{0,49}")
NUMBER = re.compile(r"[0-9]{0,999}\.?[0-9]{0,999}(?:e[-+]?[0-9]{1,4})?", re.IGNORECASE)
MAKERS = frozenset(("Symbol", "Integer", "Float", "Rational"))
"""Functions that sympy's transformations write around names and numbers."""
CONSTANTS = frozenset(("pi", "E", "I", "oo", "zoo", "nan", "EulerGamma", "GoldenRatio", "Catalan", "true", "false"))
GROWING = frozenset(
    ("factorial", "factorial2", "subfactorial", "binomial", "gamma", "loggamma", "beta", "rf", "ff", "fibonacci")
)
"""Functions whose value at an integer has very many digits."""
FUNCTIONS = GROWING | frozenset(
    (
        *("Add", "Mul", "Pow", "Mod", "Abs", "Max", "Min", "sign", "floor", "ceiling", "frac", "re", "im", "arg"),
        *("conjugate", "sqrt", "cbrt", "root", "exp", "log", "ln", "sin", "cos", "tan", "cot", "sec", "csc", "sinc"),
        *("asin", "acos", "atan", "atan2", "acot", "asec", "acsc", "sinh", "cosh", "tanh", "coth", "sech", "csch"),
        *("asinh", "acosh", "atanh", "acoth", "asech", "acsch", "erf", "erfc", "erfi", "Ei", "li", "Li", "Si", "Ci"),
        *("Shi", "Chi", "fresnels", "fresnelc", "uppergamma", "lowergamma", "expint", "zeta", "polylog", "LambertW"),
        *("Heaviside", "DiracDelta", "hyper", "digamma", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not"),
    )
)
BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitXor: operator.xor,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
}
COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class GrammarError(ValueError):
    """An answer is outside the grammar."""


def read_literal(text: str, *_: object) -> Any:
    """The value of a literal: numbers, texts, and lists, tuples, sets and tables of them; in place of `eval`.

    >>> read_literal("[[0, 1], [1, 0]]")
    [[0, 1], [1, 0]]
    """
    if not isinstance(text, str) or len(text) > MAX_PARSED_CHARACTERS:
        raise GrammarError(f"not a text of at most {MAX_PARSED_CHARACTERS} characters")
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise GrammarError(f"not a literal ({type(error).__name__})") from None


def read_tree(code: str | ast.Expression, names: Mapping[str, Any], symbols: Mapping[str, Any]) -> Any:
    """The value of an expression; its tree is walked and never evaluated.

    `names` are functions and constants of the package; the lists above say which are allowed. `symbols` are names with
    a meaning in this question, and take precedence.
    """
    if isinstance(code, str):
        code = _parse(code)
    return _TreeWalk(names, symbols).compute(code.body, MAX_DEPTH)


class _TreeWalk:
    def __init__(self, names: Mapping[str, Any], symbols: Mapping[str, Any]) -> None:
        self._names, self._symbols = names, symbols

    def compute(self, node: ast.AST, depth: int) -> Any:
        if depth == 0:
            raise GrammarError(f"nested more than {MAX_DEPTH} levels deep")
        if isinstance(node, ast.BinOp):
            return self._compute_binary(node, depth)
        if isinstance(node, ast.UnaryOp) and type(node.op) in UNARY:
            return UNARY[type(node.op)](self.compute(node.operand, depth - 1))
        if isinstance(node, ast.Constant) and type(node.value) in (int, bool):
            return node.value
        if isinstance(node, ast.Name):
            if node.id in self._symbols:
                return self._symbols[node.id]
            if node.id in CONSTANTS:
                return self._names[node.id]
            raise GrammarError(f"the name {node.id[:50]!r} is not part of an expression")
        if isinstance(node, ast.Call):
            return self._compute_call(node, depth)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
            compare = COMPARISONS[type(node.ops[0])]
            return compare(self.compute(node.left, depth - 1), self.compute(node.comparators[0], depth - 1))
        raise GrammarError(f"{type(node).__name__} is not part of an expression")

    def _compute_binary(self, node: ast.BinOp, depth: int) -> Any:
        # A long sum is nested on the left: its terms are handled in a loop, not by recursion.
        rest = [node]
        while isinstance(rest[-1].left, ast.BinOp):
            rest.append(rest[-1].left)
        value = self.compute(rest[-1].left, depth - 1)
        for operation in reversed(rest):
            if type(operation.op) not in BINARY:
                raise GrammarError(f"{type(operation.op).__name__} is not arithmetic")
            right = self.compute(operation.right, depth - 1)
            if isinstance(operation.op, ast.Pow):
                _check_power(value, right)
            value = BINARY[type(operation.op)](value, right)
        return value

    def _compute_call(self, node: ast.Call, depth: int) -> Any:
        if not isinstance(node.func, ast.Name) or node.func.id in self._symbols:
            raise GrammarError("a call of something other than a function by name")
        name, options = node.func.id, dict[str, bool]()
        for keyword in node.keywords:
            constant = keyword.value
            if keyword.arg != "evaluate" or not isinstance(constant, ast.Constant) or type(constant.value) is not bool:
                raise GrammarError("an argument by name")
            options[keyword.arg] = constant.value
        if name in MAKERS:
            return self._names[name](*[self._read_argument(name, argument, depth) for argument in node.args], **options)
        if name not in FUNCTIONS:
            raise GrammarError(f"the function {name[:50]!r} is not part of an expression")
        arguments = [self.compute(argument, depth - 1) for argument in node.args]
        if name == "Pow" and len(arguments) == 2:
            _check_power(*arguments)
        if name in GROWING and any(_size(argument) > MAX_EXPONENT for argument in arguments):
            raise GrammarError(f"{name} of a number above {MAX_EXPONENT}")
        return self._names[name](*arguments, **options)

    def _read_argument(self, maker: str, node: ast.expr, depth: int) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            form = SYMBOL if maker == "Symbol" else NUMBER
            if not form.fullmatch(node.value):
                raise GrammarError(f"{node.value[:50]!r} is neither a name nor a number")
            return node.value
        if maker == "Symbol":
            raise GrammarError("a symbol without a name")
        return self.compute(node, depth - 1)


def _parse(code: str) -> ast.Expression:
    if len(code) > 10 * MAX_PARSED_CHARACTERS:  # sympy makes the text longer
        raise GrammarError(f"longer than {MAX_PARSED_CHARACTERS} characters")
    try:
        return ast.parse(code.strip(), mode="eval")
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise GrammarError(f"not an expression ({type(error).__name__})") from None


def _check_power(base: Any, exponent: Any) -> None:
    times, bits = _size(exponent), _bits(base)
    if times > MAX_EXPONENT and bits is None and _is_number(exponent):
        raise GrammarError(f"an exponent above {MAX_EXPONENT}")
    if bits is not None and times * bits > MAX_BITS:
        raise GrammarError(f"a power with more than {MAX_BITS} binary digits")


def _is_number(value: Any) -> bool:
    return isinstance(value, int) or bool(getattr(value, "is_Rational", False))


def _size(value: Any) -> float:
    """The size of a number; 0 for other values, infinity beyond the largest float."""
    if not (_is_number(value) or getattr(value, "is_Float", False)):
        return 0.0
    try:
        return abs(float(value))
    except (OverflowError, ValueError):
        return float("inf")


def _bits(value: Any) -> int | None:
    """Binary digits of an integer or fraction other than 0 and 1; None for anything else."""
    if not _is_number(value):
        return None
    numerator, denominator = (value, 1) if isinstance(value, int) else (int(value.p), int(value.q))
    if abs(numerator) <= 1 and denominator == 1:
        return 0
    return max(abs(numerator).bit_length(), denominator.bit_length())


# sympy without evaluation. Inside a verifier's process its evaluators are replaced.
#
# `parse_expr` (and `sympify` and `Number("...")`, which call it) evaluates the output of its transformations:
# `read_tree` walks it instead. With `evaluate=False` it compiles a tree first: the tree is kept and walked. `lambdify`
# compiles text with names of symbols, which a model can choose in LaTeX: this text must be arithmetic.

PARSER, LAMBDIFY = "sympy.parsing.sympy_parser", "sympy.utilities.lambdify"
IMPORT = "from sympy import *"
"""`parse_expr` runs this to get its names; here the names are put in directly."""
_HARMLESS = frozenset(("abs", "min", "max", "sum", "pow", "round", "int", "float", "complex", "bool", "range", "len"))
_DANGEROUS = frozenset(dir(builtins)) - _HARMLESS
_PARTS_OF_A_FUNCTION = (
    *(ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.Name, ast.Load, ast.Store),
    *(ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.keyword, ast.Tuple),
    *(ast.List, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context),
)
_WEIGHT_CHECKS = (
    "().__class__",
    "print(1)",
    "x.is_zero",
    "[1][0]",
    "Symbol('a b')",
    "sympify('1')",
    "lambda: 1",
    "S('1')",
)
"""Harmless texts that evaluation accepts and the grammar rejects."""


def guard_sympy() -> None:
    """Replace sympy's evaluation in this process, and check it; an unknown sympy is rejected."""
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

    def read(code: str | ast.Expression, symbols: dict[str, Any], names: dict[str, Any]) -> Any:
        return read_tree(code, names, {name: value for name, value in symbols.items() if value is not None and name})

    parser.__dict__.update(
        stringify_expr=stringify_bounded, eval_expr=read, compile=lambda tree, *_: tree, exec=lend_names
    )
    lambdify.__dict__["compile"] = _compile_arithmetic
    for text in _WEIGHT_CHECKS:
        for evaluate in (True, False):
            _expect_refusal(parser, text, evaluate=evaluate)
    try:
        lambdify.lambdify((), sympy.Symbol("print('x')"))
    except GrammarError:
        return
    raise _refuse_sympy("lambdify")


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
    except Exception:  # its transformations reject some of them with other errors
        return
    raise _refuse_sympy("parse_expr")


def _refuse_sympy(place: str) -> ConfigError:
    version = getattr(import_module("sympy"), "__version__", "?")
    return ConfigError(f"sympy {version} evaluates text in an unknown way ({place}); pip install sympy==1.14")
