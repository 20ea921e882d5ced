"""Countdown: the reader against exact arithmetic, the verifier, the solver."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import ConfigError, Task
from groupwise.envs import Countdown
from groupwise.envs.countdown import check_expression, evaluate, find_expression

Tree = int | tuple[str, "Tree", "Tree"]
trees: st.SearchStrategy[Tree] = st.recursive(
    st.integers(0, 50), lambda inner: st.tuples(st.sampled_from("+-*/"), inner, inner), max_leaves=8
)


def judge(answer: str, *, numbers: list[int], target: int) -> bool | None:
    """Whether an answer is right; None where it is refused."""
    checked = check_expression(answer, numbers=numbers, target=target)
    return checked.is_right if checked is not None and checked.fits else None


def value_of(tree: Tree) -> Fraction:
    if isinstance(tree, int):
        return Fraction(tree)
    operation, left, right = tree
    a, b = value_of(left), value_of(right)
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}[operation]()


def leaves(tree: Tree) -> list[int]:
    return [tree] if isinstance(tree, int) else leaves(tree[1]) + leaves(tree[2])


def write_tree(tree: Tree, above: int = 0, on_right: bool = False) -> str:
    """The tree with no more parentheses than it needs, so that precedence and order are read too."""
    if isinstance(tree, int):
        return str(tree)
    operation, left, right = tree
    rank = 1 if operation in "+-" else 2
    text = f"{write_tree(left, rank)} {operation} {write_tree(right, rank, True)}"
    return f"({text})" if rank < above or (rank == above and on_right) else text


@given(tree=trees)
def test_reading_what_was_written_gives_its_value(tree: Tree) -> None:
    try:
        expected = value_of(tree)
    except ZeroDivisionError:
        assert evaluate(write_tree(tree)) is None
        return
    assert evaluate(write_tree(tree)) == (expected, leaves(tree))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        "1 2",
        "(1 + 2",
        "1 ** 2",
        "__import__('os')",
        "2 ^ 3",
        "-1",
        "٣ + 1",
        "1 / (2 - 2)",
        "9" * 201,
        "()",
        "8 (2)",
        "(" * 51 + "1" + ")" * 51,
    ],
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    assert evaluate(text) is None


@given(text=st.text(max_size=60) | st.text(alphabet="0123456789+-*/() ", max_size=199))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert judge(text, numbers=[1, 2], target=3) in (True, False, None)


def test_an_answer_uses_each_number_once() -> None:
    assert judge("(8 - 2) * 4", numbers=[2, 4, 8], target=24) is True
    assert judge("8 * 4 - 2", numbers=[2, 4, 8], target=24) is False
    assert judge("8 * 3", numbers=[2, 4, 8], target=24) is None, "other numbers"
    assert judge("8 * 4 - 8", numbers=[2, 4, 8], target=24) is None, "one twice, one not at all"
    assert judge("8 + 8", numbers=[8, 2], target=16) is None
    assert judge("2 * 8 * 8 / 8", numbers=[2, 8], target=16) is None, "each is there, but more than once"
    assert judge("8 + 8", numbers=[8, 8], target=16) is True


def test_one_answer_ends_the_rollout() -> None:
    part = Countdown()
    task = part.task_set("train")[0]
    environment = part.open(task)
    shown = ", ".join(map(str, task.payload["numbers"]))
    assert environment.observe().text == f"Make {task.payload['target']} from {shown}."
    right = environment.act(environment.expert() or "")
    assert (right.terminated, right.success, right.reward, right.observation.text) == (True, True, 1.0, "Right.")
    nonsense = part.open(task).act("I think it is 7")
    assert (nonsense.terminated, nonsense.success, nonsense.reward, nonsense.accepted) == (True, False, 0.0, False)


def test_the_solver_finds_a_solution_wherever_there_is_one() -> None:
    assert find_expression([1, 1], 5) is None
    for numbers, target in (([3, 3, 8, 8], 24), ([2, 7], 14), ([1, 5, 6, 7], 21)):
        assert judge(find_expression(numbers, target) or "", numbers=numbers, target=target)


def test_too_few_tasks_are_refused() -> None:
    with pytest.raises(ConfigError, match="raise largest_number or num_numbers"):
        Countdown(num_numbers=2, largest_number=5)


def test_the_info_of_an_answer_by_hand() -> None:
    task = Task.create(env="countdown", payload={"numbers": [2, 4, 8], "target": 24})

    def info_of(answer: str) -> Mapping[str, Any]:
        return Countdown().open(task).act(answer).info

    checks = {"read": True, "fits": True, "right": True}
    right = {"answer": "24", "gold_answer": "24", "exact": True, "expression": "(8 - 2) * 4", "checks": checks}
    assert info_of("(8-2)  *4") == right
    assert info_of("4 * (8 - 2)") == right | {"expression": "4 * (8 - 2)"}, "another way to one answer"
    wrong = info_of("8 / (2 + 4)")
    assert (wrong["answer"], wrong["exact"], wrong["checks"]["right"]) == ("4/3", False, False)
    assert info_of("8 * 3") == {
        "gold_answer": "24",
        "expression": "8 * 3",
        "checks": {"read": True, "fits": False},
    }, "it comes to the target, but is no answer"
    assert info_of("the answer") == {"gold_answer": "24", "checks": {"read": False}}
