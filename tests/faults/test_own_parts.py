"""Parts of a user's own that return something else than their slot needs: one sentence that says what came."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from groupwise import Algorithm, ConfigError, Credit, Part, Step, StepTable, StopReason, Task, Trajectory
from groupwise.credit import ByTask, EpisodeReturn, Relative
from groupwise.data.samples import Pair
from groupwise.data.segments import Segments
from groupwise.data.token_table import TokenTable
from groupwise.parts.part import CATALOGUES, Slot
from groupwise.parts.requirements import REQUIRED, check_drawn_tasks
from groupwise.system.text import describe_value

TABLE = StepTable.from_columns(task=["t"] * 4, rollout=[0, 0, 1, 1], step=[0, 1, 0, 1], reward=[0.0, 1.0, 0.0, 0.0])
VALUES, GROUPS = np.array([1.0, 0.0]), Segments.of(np.array([0, 0]))
TRAJECTORY = Trajectory(id="t/0", task=Task(id="t"), rollout=0, steps=(Step(index=0),), stop=StopReason.TERMINATED)

Made = Callable[[Any], Any]


def own(slot: str, method: str, result: Any) -> Any:
    """A part of one's own, whose method gives this result."""
    body = {method: lambda self, *given, **named: result}
    made: Any = type(Part)("Mine", (Part,), body | {"__module__": __name__, "__qualname__": "Mine"}, slot=slot)
    return made()


GIVEN: dict[tuple[str, str], tuple[Any, ...]] = {
    ("grouper", "__call__"): (TABLE,),
    ("signal", "__call__"): (TABLE,),
    ("estimator", "__call__"): (TABLE,),
    ("token_credit", "__call__"): (TABLE, None, TokenTable.from_rows(TABLE, [{"response_ids": [5]}] * 4)),
    ("filter", "__call__"): (TABLE,),
    ("pairing", "__call__"): (TABLE,),
    ("baseline", "__call__"): (VALUES, GROUPS),
    ("scale", "__call__"): (VALUES, GROUPS),
    ("scorer", "__call__"): ([[TRAJECTORY]], None),
    ("judge", "__call__"): (["is it?"],),
    ("reward", "__call__"): (TRAJECTORY,),
    ("shaper", "__call__"): ([TRAJECTORY],),
    ("history", "first_shown"): (3,),
}
"""What a method is called with, where the check looks at it."""
COLUMNS = SimpleNamespace(logp=np.zeros(3))
WRONG: list[tuple[str, str, Any, str]] = [
    ("grouper", "__call__", [0, 0, 1, 1], "a list of 4"),
    ("grouper", "__call__", np.zeros(4), "an array of 4 float64"),
    ("grouper", "__call__", np.zeros(3, dtype=np.int64), "an array of 3 int64"),
    ("grouper", "__call__", np.full(4, -2), "an array of 4 int64"),
    ("grouper", "__call__", None, "nothing"),
    ("signal", "__call__", 0.5, "the float 0.5"),
    ("signal", "__call__", np.array([1.0, np.nan, 0.0, 0.0]), "an array of 4 float64 with nan in it"),
    ("signal", "__call__", np.zeros((4, 1)), "an array of 4 x 1 float64"),
    ("baseline", "__call__", np.zeros(3), "an array of 3 float64"),
    ("scale", "__call__", np.zeros(2), "an array of 2 float64"),
    ("scale", "__call__", np.array([np.inf]), "an array of 1 float64 with inf in it"),
    ("estimator", "__call__", np.zeros(4), "an array of 4 float64"),
    ("token_credit", "__call__", np.zeros(4), "an array of 4 float64"),
    ("filter", "__call__", np.ones(4), "an array of 4 float64"),
    ("filter", "__call__", [True] * 4, "a list of 4"),
    ("scorer", "__call__", {"probe": 1.0}, "a dict of 1"),
    ("scorer", "needs", {"score"}, "a set"),
    ("judge", "__call__", [float("nan")], "a list of 1"),
    ("judge", "__call__", [0.5, 0.5], "a list of 2"),
    ("reward", "__call__", 1.0, "the float 1.0"),
    ("reward", "__call__", ("1",), "a tuple of 1"),
    ("shaper", "__call__", [0.5], "a list of 1"),
    ("shaper", "__call__", [(0.5,), (0.5,)], "a list of 2"),
    ("replay", "__call__", [TRAJECTORY], "a list of 1"),
    ("hint", "choose", "t", "a str"),
    ("hint", "text", None, "nothing"),
    ("hint", "words", "hello", "a str"),
    ("hint", "joins_unhinted_group", 1, "the int 1"),
    ("loss", "__call__", 0.5, "the float 0.5"),
    ("loss", "needs", ["logp_ref"], "a list of 1"),
    ("loss", "columns", {"pass_rate"}, "a set"),
    ("loss", "channels", "tempo", "a str"),
    ("loss", "first_pass", None, "nothing"),
    ("loss", "first_pass", [0.5], "a list of 1"),
    ("loss", "first_pass", {"mean": 0.5}, "a dict of 1"),
    ("critic", "__call__", 0.5, "the float 0.5"),
    ("pairing", "__call__", [(0, 1)], "a list of 1"),
    ("pairing", "__call__", Pair(0, 1), "a Pair of 6"),
    ("pairing", "__call__", [Pair(0, 2)], "a list of 1"),
    ("pairing", "__call__", [Pair(0, 0)], "a list of 1"),
    ("pairing", "__call__", [Pair(-1, 0)], "a list of 1"),
    ("pairing", "__call__", [Pair(0, 1, 0.0)], "a list of 1"),
    ("pairing", "__call__", [Pair(0, 0, 1.0, 0.0, 1, 1)], "a list of 1"),
    ("pairing", "__call__", [Pair(0, 0, 1.0, 0.0, 1, None)], "a list of 1"),
    ("pairing", "__call__", [Pair(0, 1, 1.0, 0.0, -1, 0)], "a list of 1"),
    ("pairing", "__call__", [Pair(0, 1, gap=float("inf"))], "a list of 1"),
    ("pairing", "__call__", [Pair(0, 1, float("nan"))], "a list of 1"),
    ("ratio", "__call__", 1.0, "the float 1.0"),
    ("surrogate", "__call__", np.zeros(3), "an array of 3 float64"),
    ("correction", "__call__", [1.0], "a list of 1"),
    ("penalty", "__call__", None, "nothing"),
    ("aggregate", "__call__", 0.0, "the float 0.0"),
    ("history", "first_shown", -1, "the int -1"),
    ("history", "first_shown", 4, "the int 4"),
    ("history", "first_shown", 1.0, "the float 1.0"),
    ("action_parser", "read", "go", "a str"),
    ("action_parser", "say", ("go", True), "a tuple of 2"),
    ("template", "write_opening", None, "nothing"),
    ("template", "write_observation", 3, "the int 3"),
    ("template", "write_step", [], "a list of 0"),
    ("template", "words", {"a": 1}, "a dict of 1"),
    ("plan", "next", None, "nothing"),
    ("plan", "next", [TRAJECTORY], "a list of 1"),
    ("plan", "choose", [TRAJECTORY], "a list of 1"),
    ("plan", "words", "hello", "a str"),
    (
        "rollout_filter",
        "__call__",
        None,
        "nothing",
    ),
    ("curriculum", "start", [], "a list of 0"),
    ("schedule", "__call__", 1.5, "the float 1.5"),
    ("schedule", "__call__", float("nan"), "the float nan"),
    ("schedule", "__call__", "1", "a str"),
    ("tracker", "start", None, "nothing"),
    ("tracker", "package", None, "nothing"),
    ("learner", "open", {}, "a dict of 0"),
    ("weight_sync", "open", 3, "the int 3"),
    (
        "engine",
        "open",
        None,
        "nothing",
    ),
    ("state_rule", "__call__", 3, "the int 3"),
    ("model", "open", "model", "a str"),
]


@pytest.mark.parametrize(("slot", "method", "result", "found"), WRONG, ids=lambda value: str(value)[:24])
def test_an_error_names_the_part_the_method_what_it_returned_and_what_is_expected(
    slot: str, method: str, result: Any, found: str
) -> None:
    part = own(slot, method, result)
    with pytest.raises(ConfigError) as raised:
        getattr(part, method)(*GIVEN.get((slot, method), (COLUMNS,)))
    where = "" if method == "__call__" else f": {method}"
    expected = REQUIRED[slot][method].result
    assert str(raised.value) == f"the {slot} {__name__}:Mine{where} returned {found}; expected {expected}"


def test_every_slot_but_environments_and_agents_is_checked() -> None:
    """What environments and agents return is checked where they are played."""
    assert set(REQUIRED) == set(CATALOGUES) - {"env", "agent"}
    assert {(slot, method) for slot, method, _, _ in WRONG} == {
        (slot, name) for slot, members in REQUIRED.items() for name, required in members.items() if required.fits
    }


def test_a_property_is_checked_as_a_method_is() -> None:
    class Mine(Part, slot="loss"):
        @property
        def needs(self) -> Any:
            return ["logp_ref"]

    with pytest.raises(ConfigError, match="needs returned a list of 1; expected a frozenset of names"):
        _ = Mine().needs


def test_a_part_deep_within_an_algorithm_is_named() -> None:
    algorithm = Algorithm(advantage=Relative(by=own("grouper", "__call__", [0] * 4), of=EpisodeReturn()))
    with pytest.raises(ConfigError, match=r"^the grouper .*:Mine returned a list of 4; expected "):
        algorithm.advantage(TABLE)
    algorithm = Algorithm(advantage=Relative(by=ByTask(), of=EpisodeReturn()), filters=(own("filter", "__call__", 1),))
    with pytest.raises(ConfigError, match=r"^the filter .*:Mine returned the int 1; expected "):
        algorithm.keep(TABLE)


def test_right_results_pass_as_they_are() -> None:
    labels = np.array([0, 0, -1, 0])
    assert own("grouper", "__call__", labels)(TABLE) is labels
    assert own("history", "first_shown", 3).first_shown(3) == 3
    assert own("schedule", "__call__", 1).__call__(0) == 1
    assert own("loss", "first_pass", 0.5).first_pass(COLUMNS) == 0.5
    assert own("pairing", "__call__", [Pair(1, 0, 0.5)])(TABLE) == [(1, 0, 0.5, 0.0, None, None)]


def test_a_pair_of_rollouts_at_two_tasks_is_refused() -> None:
    table = StepTable.from_columns(task=["a", "b"], rollout=[0, 0], step=[0, 0], reward=[0.0, 1.0])
    with pytest.raises(ConfigError, match="; expected a list of Pair, each of two rollouts of one task"):
        own("pairing", "__call__", [Pair(1, 0)])(table)
    right = Relative(by=ByTask(), of=EpisodeReturn())(TABLE)
    assert own("estimator", "__call__", right)(TABLE) is right
    torch = pytest.importorskip("torch")
    columns = SimpleNamespace(logp=torch.zeros(3))
    assert own("ratio", "__call__", torch.ones(3))(columns).tolist() == [1, 1, 1]
    with pytest.raises(ConfigError, match=r"returned a Tensor of shape \(2,\); expected"):
        own("ratio", "__call__", torch.ones(2))(columns)


def test_parts_of_groupwise_are_not_slowed_down() -> None:
    assert not hasattr(ByTask.__call__, "__wrapped__")
    assert hasattr(type(own("grouper", "__call__", 0)).__call__, "__wrapped__")


def test_what_a_curriculum_hands_out_is_checked() -> None:
    check_drawn_tasks(object(), [Task(id="a"), Task(id="b")], 2)
    for tasks, said in (
        ("ab", "a str"),
        ([Task(id="a")], "a list of 1"),
        (None, "nothing"),
        (["a", "b"], "a list of 2"),
    ):
        with pytest.raises(ConfigError) as raised:
            check_drawn_tasks(object(), tasks, 2)
        assert str(raised.value) == f"the curriculum object: next returned {said}; expected a list of 2 tasks"


@pytest.mark.parametrize(
    ("value", "said"),
    [(np.zeros(2), "a ndarray"), ({1}, "a set"), (b"x", "a bytes"), ([None], "nothing"), (lambda: 0, "a function")],
    ids=lambda value: str(type(value)),
)
def test_a_field_that_no_run_file_can_hold_is_named(value: Any, said: str) -> None:
    class Mine(Part, slot="grouper"):
        model_config = Part.model_config | {"arbitrary_types_allowed": True}
        field: Any = None

    with pytest.raises(ConfigError) as raised:
        Mine(field=value).config()
    assert str(raised.value) == (
        f"Mine: the field 'field' holds {said}, which a run file cannot store; use text, numbers, booleans, other "
        "parts, and lists and tables of these"
    )


def test_numpy_numbers_in_fields_become_plain() -> None:
    class Mine(Part, slot="grouper"):
        field: Any = None

    assert Mine(field={"a": (np.float64(0.5), np.int64(2), np.bool_(True))}).config()["field"] == {"a": [0.5, 2, True]}


def test_what_came_is_said_in_few_words() -> None:
    assert describe_value("x" * 10**6) == "a str"
    assert describe_value(np.float64(1.0)) == "the float64 1.0"


def test_a_part_of_another_slot_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="Mine is a signal, but a grouper is needed here"):
        Slot("grouper").fill(own("signal", "__call__", 0))


def test_credit_by_the_rows_of_another_order_is_refused() -> None:
    """As many rows in another order would hand each rollout somebody else's credit."""
    shuffled = StepTable.from_columns(task=["t"] * 3, rollout=[2, 0, 1], step=[0, 0, 0], reward=[1.0, 0.0, 0.5])
    trace = Relative(by=ByTask(), of=EpisodeReturn())(shuffled).trace
    permuted = Credit(trace=trace, step_of_row=np.arange(3))
    with pytest.raises(ConfigError, match=r"expected .* by the rows of that table \(`Credit\.of\(table, trace\)`\)$"):
        own("estimator", "__call__", permuted)(shuffled)
    right = Credit.of(shuffled, trace)
    assert own("estimator", "__call__", right)(shuffled) is right
    assert right.values.tolist() == Relative(by=ByTask(), of=EpisodeReturn())(shuffled).values.tolist()
