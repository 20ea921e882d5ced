"""Judges that do what an answer says, as a scorer that evaluates would: the worst case for the process around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def execute_answer() -> Callable[[Mapping[str, Any]], Any]:
    """Run the answer as Python; its score is what it calls `score`, and what it leaves in `shared` stays."""
    shared: dict[str, Any] = {}

    def score(request: Mapping[str, Any]) -> Any:
        names: dict[str, Any] = {"shared": shared, "request": request}
        exec(request["answer"], names)
        return names.get("score", 0.0)

    return score


def sum_answer() -> Callable[[Mapping[str, Any]], Any]:
    """sympy's numerical sum over a symbol that has the answer for its name: sympy compiles a function with it."""
    from groupwise.envs.verifier.answer_grammars import guard_sympy

    guard_sympy()
    import sympy

    def score(request: Mapping[str, Any]) -> float:
        index = sympy.Symbol("n", integer=True)
        chosen = sympy.Symbol(request["answer"])
        total = sympy.Sum(chosen**index / sympy.factorial(index), (index, 0, sympy.oo)).evalf()
        return float(total.has(sympy.Sum))

    return score
