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
    ("memory", "first_shown"): (3,),
}
"""What a method is called with, where the check looks at it."""
COLUMNS = SimpleNamespace(logp=np.zeros(3))
WRONG: list[tuple[str, str, Any, str]] = [
    ("grouper", "__call__", [0, 0, 1, 1], "gave a list of 4, but a NumPy array of one whole number for each step"),
    ("grouper", "__call__", np.zeros(4), "gave an array of 4 float64, but a NumPy array of one whole number"),
    ("grouper", "__call__", np.zeros(3, dtype=np.int64), "gave an array of 3 int64, but"),
    ("grouper", "__call__", np.full(4, -2), "gave an array of 4 int64, but"),
    ("grouper", "__call__", None, "gave nothing, but"),
    ("signal", "__call__", 0.5, "gave the float 0.5, but a NumPy array of one finite float for each step is needed"),
    ("signal", "__call__", np.array([1.0, np.nan, 0.0, 0.0]), "gave an array of 4 float64 with nan in it, but"),
    ("signal", "__call__", np.zeros((4, 1)), "gave an array of 4 x 1 float64, but"),
    ("baseline", "__call__", np.zeros(3), "gave an array of 3 float64, but"),
    ("scale", "__call__", np.zeros(2), "gave an array of 2 float64, but a NumPy array of one finite float for each gr"),
    ("scale", "__call__", np.array([np.inf]), "gave an array of 1 float64 with inf in it, but"),
    ("estimator", "__call__", np.zeros(4), "gave an array of 4 float64, but a Credit"),
    ("token_credit", "__call__", np.zeros(4), "gave an array of 4 float64, but a TokenCredit with one float, finite"),
    ("filter", "__call__", np.ones(4), "gave an array of 4 float64, but a NumPy array of one boolean"),
    ("filter", "__call__", [True] * 4, "gave a list of 4, but"),
    ("scorer", "__call__", {"probe": 1.0}, "gave a dict of 1, but a list of one list of rollouts for each group"),
    ("scorer", "needs", {"score"}, "needs gave a set, but a frozenset of names is needed"),
    ("judge", "__call__", [float("nan")], "gave a list of 1, but a list of one finite number for each question"),
    ("judge", "__call__", [0.5, 0.5], "gave a list of 2, but"),
    ("reward", "__call__", 1.0, "gave the float 1.0, but a tuple of one number for each step"),
    ("reward", "__call__", ("1",), "gave a tuple of 1, but"),
    ("shaper", "__call__", [0.5], "gave a list of 1, but a list of one tuple of numbers"),
    ("shaper", "__call__", [(0.5,), (0.5,)], "gave a list of 2, but"),
    ("replay", "__call__", [TRAJECTORY], "gave a list of 1, but a list of ReplayedRollout is needed"),
    ("hint", "choose", "t", "choose gave a str, but a list of PastRollout is needed"),
    ("hint", "text", None, "text gave nothing, but text is needed"),
    ("hint", "words", "hello", "words gave a str, but a tuple of words is needed"),
    ("hint", "joins_unhinted_group", 1, "joins_unhinted_group gave the int 1, but True or False is needed"),
    ("loss", "__call__", 0.5, "gave the float 0.5, but a LossResult"),
    ("loss", "needs", ["logp_ref"], "needs gave a list of 1, but a frozenset of names is needed"),
    ("loss", "columns", {"pass_rate"}, "columns gave a set, but a frozenset of names is needed"),
    ("loss", "channels", "tempo", "channels gave a str, but a frozenset of names is needed"),
    ("loss", "first_pass", None, "first_pass gave nothing, but a summary whose parts add up, by `+` or by a method"),
    ("loss", "first_pass", [0.5], "first_pass gave a list of 1, but a summary"),
    ("loss", "first_pass", {"mean": 0.5}, "first_pass gave a dict of 1, but a summary"),
    ("pairing", "__call__", [(0, 1)], "gave a list of 1, but a list of Pair, each of two rollouts at one task"),
    ("pairing", "__call__", Pair(0, 1), "gave a Pair of 6, but a list of Pair"),
    ("pairing", "__call__", [Pair(0, 2)], "gave a list of 1, but"),
    ("pairing", "__call__", [Pair(0, 0)], "gave a list of 1, but"),
    ("pairing", "__call__", [Pair(-1, 0)], "gave a list of 1, but"),
    ("pairing", "__call__", [Pair(0, 1, 0.0)], "gave a list of 1, but"),
    ("pairing", "__call__", [Pair(0, 0, 1.0, 0.0, 1, 1)], "gave a list of 1, but"),
    ("pairing", "__call__", [Pair(0, 0, 1.0, 0.0, 1, None)], "gave a list of 1, but"),
    ("pairing", "__call__", [Pair(0, 1, 1.0, 0.0, -1, 0)], "gave a list of 1, but"),
    ("pairing", "__call__", [Pair(0, 1, gap=float("inf"))], "gave a list of 1, but"),
    ("pairing", "__call__", [Pair(0, 1, float("nan"))], "gave a list of 1, but"),
    ("ratio", "__call__", 1.0, "gave the float 1.0, but a tensor of one floating-point number for each token"),
    ("surrogate", "__call__", np.zeros(3), "gave an array of 3 float64, but a TokenLoss"),
    ("correction", "__call__", [1.0], "gave a list of 1, but a tensor"),
    ("penalty", "__call__", None, "gave nothing, but a tensor"),
    ("aggregate", "__call__", 0.0, "gave the float 0.0, but a tensor of one number is needed"),
    ("memory", "first_shown", -1, "first_shown gave the int -1, but a whole number between 0 and"),
    ("memory", "first_shown", 4, "first_shown gave the int 4, but"),
    ("memory", "first_shown", 1.0, "first_shown gave the float 1.0, but"),
    ("action_parser", "read", "go", "read gave a str, but an Action with a text and a boolean is needed"),
    ("action_parser", "say", ("go", True), "say gave a tuple of 2, but text is needed"),
    ("template", "write_opening", None, "write_opening gave nothing, but text is needed"),
    ("template", "write_observation", 3, "write_observation gave the int 3, but text"),
    ("template", "write_step", [], "write_step gave a list of 0, but text"),
    ("template", "words", {"a": 1}, "words gave a dict of 1, but a tuple of words"),
    ("plan", "next", None, "next gave nothing, but a list of RolloutRequest is needed"),
    ("plan", "next", [TRAJECTORY], "next gave a list of 1, but a list of RolloutRequest is needed"),
    ("plan", "choose", [TRAJECTORY], "choose gave a list of 1, but a list of groups"),
    ("plan", "words", "hello", "words gave a str, but a tuple of words is needed"),
    (
        "rollout_filter",
        "__call__",
        None,
        "gave nothing, but a list of the trajectories of the group to keep",
    ),
    ("curriculum", "start", [], "start gave a list of 0, but something with next, observe"),
    ("schedule", "__call__", 1.5, "gave the float 1.5, but a number from 0 to 1 is needed"),
    ("schedule", "__call__", float("nan"), "gave the float nan, but"),
    ("schedule", "__call__", "1", "gave a str, but"),
    ("tracker", "start", None, "start gave nothing, but an object with run_id, log and finish"),
    ("tracker", "package", None, "package gave nothing, but text is needed"),
    ("learner", "open", {}, "open gave a dict of 0, but something with steps, vocabulary_size, learn,"),
    ("weight_sync", "open", 3, "open gave the int 3, but an object with sync is needed"),
    (
        "engine",
        "open",
        None,
        "open gave nothing, but an engine, with gives, version, context, generate, score and load",
    ),
    ("model", "open", "model", "open gave a str, but a pair of a model and a tokenizer is needed"),
]


@pytest.mark.parametrize(("slot", "method", "result", "said"), WRONG, ids=lambda value: str(value)[:24])
def test_a_wrong_result_names_the_part_what_came_and_what_is_needed(
    slot: str, method: str, result: Any, said: str
) -> None:
    part = own(slot, method, result)
    with pytest.raises(ConfigError) as raised:
        getattr(part, method)(*GIVEN.get((slot, method), (COLUMNS,)))
    where = "" if method == "__call__" else ":"
    assert str(raised.value).startswith(f"the {slot} {__name__}:Mine{where} {said}")


def test_every_slot_but_the_environment_is_checked() -> None:
    assert set(REQUIRED) == set(CATALOGUES) - {"env"}
    assert {(slot, method) for slot, method, _, _ in WRONG} == {
        (slot, name) for slot, members in REQUIRED.items() for name, required in members.items() if required.fits
    }


def test_a_property_is_checked_as_a_method_is() -> None:
    class Mine(Part, slot="loss"):
        @property
        def needs(self) -> Any:
            return ["logp_ref"]

    with pytest.raises(ConfigError, match="needs gave a list of 1, but a frozenset of names is needed"):
        _ = Mine().needs


def test_a_part_deep_within_an_algorithm_is_named() -> None:
    algorithm = Algorithm(advantage=Relative(by=own("grouper", "__call__", [0] * 4), of=EpisodeReturn()))
    with pytest.raises(ConfigError, match=r"^the grouper .*:Mine gave a list of 4, but "):
        algorithm.advantage(TABLE)
    algorithm = Algorithm(advantage=Relative(by=ByTask(), of=EpisodeReturn()), filters=(own("filter", "__call__", 1),))
    with pytest.raises(ConfigError, match=r"^the filter .*:Mine gave the int 1, but "):
        algorithm.keep(TABLE)


def test_right_results_pass_as_they_are() -> None:
    labels = np.array([0, 0, -1, 0])
    assert own("grouper", "__call__", labels)(TABLE) is labels
    assert own("memory", "first_shown", 3).first_shown(3) == 3
    assert own("schedule", "__call__", 1).__call__(0) == 1
    assert own("loss", "first_pass", 0.5).first_pass(COLUMNS) == 0.5
    assert own("pairing", "__call__", [Pair(1, 0, 0.5)])(TABLE) == [(1, 0, 0.5, 0.0, None, None)]


def test_a_pair_of_rollouts_at_two_tasks_is_refused() -> None:
    table = StepTable.from_columns(task=["a", "b"], rollout=[0, 0], step=[0, 0], reward=[0.0, 1.0])
    with pytest.raises(ConfigError, match="but a list of Pair, each of two rollouts at one task"):
        own("pairing", "__call__", [Pair(1, 0)])(table)
    right = Relative(by=ByTask(), of=EpisodeReturn())(TABLE)
    assert own("estimator", "__call__", right)(TABLE) is right
    torch = pytest.importorskip("torch")
    columns = SimpleNamespace(logp=torch.zeros(3))
    assert own("ratio", "__call__", torch.ones(3))(columns).tolist() == [1, 1, 1]
    with pytest.raises(ConfigError, match=r"gave a Tensor of shape \(2,\), but"):
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
        assert str(raised.value) == f"the curriculum object: next gave {said}, but a list of 2 tasks is needed"


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
        f"Mine: the field 'field' holds {said}, which a run file cannot hold; use text, numbers, booleans, other "
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
    with pytest.raises(ConfigError, match=r"by the rows of that table \(`Credit\.of\(table, trace\)`\), is needed"):
        own("estimator", "__call__", permuted)(shuffled)
    right = Credit.of(shuffled, trace)
    assert own("estimator", "__call__", right)(shuffled) is right
    assert right.values.tolist() == Relative(by=ByTask(), of=EpisodeReturn())(shuffled).values.tolist()
