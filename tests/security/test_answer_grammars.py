"""Answers that packages would evaluate are read by grammars: what is in them keeps its value, nothing else is read."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from groupwise.data.records import Task
from groupwise.envs import Math
from groupwise.envs.kit.answers import say_answer
from groupwise.envs.verifier.answer_grammars import MAX_PARSED_CHARACTERS, GrammarError, read_literal, read_tree
from groupwise.envs.verifier.verifier import Verifier

sympy: Any = pytest.importorskip("sympy", reason="the extras `math` and `reasoning` are not installed")
from sympy.parsing import sympy_parser

NAMES: dict[str, Any] = {}
exec("from sympy import *", NAMES)


def read(text: str, **given: Any) -> Any:
    code = sympy_parser.stringify_expr(text, dict(given), NAMES, sympy_parser.standard_transformations)
    return read_tree(code, NAMES, given)


class TestLiterals:
    @pytest.mark.parametrize(
        "text", ["[1, 2]", "[[0, 1], [1, 0]]", "('a', 'b')", "{1, 2}", "{'a': None}", " [1]", "-1.5"]
    )
    def test_a_literal_has_the_value_that_python_gives_it(self, text: str) -> None:
        assert read_literal(text) == eval(text)

    @pytest.mark.parametrize(
        "text",
        [
            *("[__import__('os')]", "x", "[1].append(2)", "[0] * 3", "f'{1}'", "(lambda: 1)()", "[x for x in ()]"),
            *("1 if 1 else 2", "[" * 300 + "]" * 300, "-" * 5000 + "1", "[1\0]", "\ud800", "9" * 5000, ""),
            " " * (MAX_PARSED_CHARACTERS + 1),
        ],
    )
    def test_nothing_else_is_read(self, text: str) -> None:
        with pytest.raises(GrammarError):
            read_literal(text)


class TestExpressions:
    @pytest.mark.parametrize(
        "text",
        [
            *(
                "3*(4 + 5)/2",
                "2**10",
                "x**2/2 + C",
                "-x + 3*y**2 - 7",
                "sin(x)*exp(-x)/2",
                "log(x) + ln(2*x)",
                "sqrt(16)",
            ),
            *("4!", "0.25*x", "1e3", "2^3", "7 % 4", "7//2", "Abs(x)", "pi*E", "I*x", "atan(x/3)", "x == 3", "x < 3"),
            *(
                "Rational(1, 3)",
                "root(x, 3)",
                "erf(x)",
                "-(-3)",
                "+3",
                "True",
                "1/3 + 0.1[6]",
                "asinh(x)",
                "binomial(5, 2)",
            ),
            " + ".join(f"{power}*x**{power}" for power in range(400)),
        ],
    )
    def test_an_expression_is_the_one_that_sympy_makes(self, text: str) -> None:
        given = {"x": sympy.Symbol("x"), "C": sympy.Symbol("C")}
        expected = sympy.parse_expr(text, local_dict=dict(given))
        assert read(text, **given) == expected
        assert sympy.srepr(read(text, **given)) == sympy.srepr(expected)

    @pytest.mark.parametrize(
        "text",
        [
            *(
                "__import__('os')",
                "().__class__",
                "x.is_zero",
                "print(1)",
                "open('x')",
                "eval('1')",
                "exec('1')",
                "S('1')",
            ),
            *(
                "sympify('1')",
                "Symbol('a b')",
                "Symbol('a.b')",
                "Symbol('__x__')",
                "Symbol(1)",
                "Function('f')(x)",
                "f(x)",
            ),
            *(
                "lambda x: x",
                "[1, 2]",
                "(1, 2)",
                "{1: 2}",
                "x[0]",
                "'text'",
                "x if x else 1",
                "(x := 3)",
                "*x",
                "f'{x}'",
            ),
            *(
                "integrate(x, x)",
                "Integral(x, x)",
                "diff(x, x)",
                "solve(x)",
                "lambdify(x, x)",
                "N(x)",
                "Q.even",
                "plot(x)",
            ),
            *(
                "Symbol('x', real=True)",
                "sin(x, evaluate=x)",
                "Float('1' * 9)",
                "preview(x)",
                "parse_expr('1')",
                "srepr(x)",
            ),
        ],
    )
    def test_nothing_else_is_read(self, text: str) -> None:
        with pytest.raises((GrammarError, SyntaxError, sympy_parser.TokenError)):
            read(text)

    @pytest.mark.parametrize(
        "text",
        [
            *("9**9**9**9", "2**100000", "(1/3)**100000", "x**1001", "(x + 1)**(10**9)", "factorial(10**6)"),
            *(
                "gamma(10**8)",
                "binomial(10**9, 10**8)",
                "1 << 10**10",
                "sin(" * 120 + "1" + ")" * 120,
            ),
            *("-" * 3000 + "1", "9" * 5000, "+".join("1" * 30_000)),
        ],
    )
    def test_what_would_grow_without_bounds_is_refused_at_once(self, text: str) -> None:
        with pytest.raises((GrammarError, SyntaxError, ValueError)):
            read(text)

    def test_a_tree_that_is_not_to_be_computed_is_walked_too(self) -> None:
        text = "2*3 + x/4 - sqrt(9)"
        code = sympy_parser.stringify_expr(text, {}, NAMES, sympy_parser.standard_transformations)
        tree = sympy_parser.evaluateFalse(code)
        assert isinstance(tree, ast.Expression)
        assert sympy.srepr(read_tree(tree, NAMES, {})) == sympy.srepr(sympy.parse_expr(text, evaluate=False))


def test_a_symbol_with_code_for_a_name_is_not_compiled(tmp_path: Path) -> None:
    judged = Verifier("tests.security.hostile_judges:sum_answer")
    for code in (f"open('{tmp_path / 'X'}', 'w')", f"__import__('os').system('touch {tmp_path / 'X'}')", "a.b", "a[b]"):
        verdict = judged.judge({"answer": code}, seconds=10.0)
        assert verdict.reason.startswith("the verifier raised GrammarError: "), verdict
    assert list(tmp_path.iterdir()) == []
    plain = judged.judge({"answer": "c"}, seconds=10.0)
    assert plain.reason == "the verifier raised TypeError: Cannot convert symbols to int", "sympy's own, as before"
    judged.close()


HOSTILE_LATEX = [
    r"__import__('os').system('touch {there}')",
    r"\text{{__import__('os').system('touch {there}')}}",
    r"\sum_{{n=0}}^{{\infty}} \frac{{\text{{open('{there}','w')}}^n}}{{n!}}",
    r"\operatorname{{eval}}(\text{{open('{there}','w')}})",
    r"\sum_{{n=0}}^{{\infty}} \frac{{\text{{a.b[0]}}^n}}{{n!}}",
    r"\frac{{{deep}",
    "\ud800",
    "\0",
    "({deep}",
]


@pytest.mark.parametrize("form", ["boxed", "tags"])
def test_mathematical_answers_do_not_run(form: Any, tmp_path: Path) -> None:
    pytest.importorskip("math_verify", reason="the extra `math` is not installed")
    part = Math(path="unread", form=form, verifier_seconds=5.0)
    task = Task.create(env="math", payload={"problem": "?", "answer": "42"})
    for hostile in HOSTILE_LATEX:
        said = hostile.format(there=tmp_path / "X", deep="(" * 500)
        outcome = part.open(task).act(say_answer(said, form))
        assert (outcome.reward, outcome.success) == (0.0, False)
        assert len(outcome.note) <= 500
    assert list(tmp_path.iterdir()) == []
    assert part.open(task).act(say_answer("42", form)).success
    assert not part.open(task).act(say_answer("9" * 10_000_000, form)).accepted
