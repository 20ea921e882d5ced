"""Stateful parts: which they are, what they may remember, and how others read it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from groupwise import Algorithm, ConfigError, Part, RecordError, StepTable, Task
from groupwise.credit import AbovePrior, ByTask, Relative, Sum, Term
from groupwise.parts.stateful import (
    StateBefore,
    check_journaled,
    check_names,
    find_stateful,
    is_stateful,
    join_columns,
    read_columns,
    read_part_state,
)
from groupwise.rollout.tasks import Shuffled
from tests.unit.parts.remembering import Count, CountState

TASKS = [Task(id="t1"), Task(id="t2")]
TABLE = StepTable.from_columns(
    task=["t2", "t1", "t1"], rollout=[0, 0, 1], step=[0, 0, 0], reward=[0.0, 1.0, 0.0], action=["a", "b", "c"]
)


def relative(of: Any) -> Relative:
    return Relative(by=ByTask(), of=of)


def before(path: str, **columns: dict[str, Any]) -> StateBefore:
    return StateBefore(path=path, kind="count", state={}, columns=columns)


def test_parts_with_memory_are_found_by_their_path() -> None:
    algorithm = Algorithm(
        advantage=Sum(
            terms=(
                Term(of=relative(Count()), weight=1.0),
                Term(of=relative(AbovePrior(of=Count(column="inner"))), weight=1.0),
            )
        ),
    )
    parts = find_stateful(algorithm, "algorithm")
    assert {path: type(part).__name__ for path, part in parts.items()} == {
        "algorithm.advantage.terms.0.of.of": "Count",
        "algorithm.advantage.terms.1.of.of": "AbovePrior",
        "algorithm.advantage.terms.1.of.of.of": "Count",
    }
    assert list(find_stateful(relative(Count()))) == ["of"]


def test_parts_that_compare_equal_share_one_memory() -> None:
    algorithm = Algorithm(
        advantage=Sum(terms=(Term(of=relative(Count()), weight=1.0), Term(of=relative(Count()), weight=2.0)))
    )
    assert list(find_stateful(algorithm)) == ["advantage.terms.0.of.of"]


def test_parts_by_name_are_found_too() -> None:
    class Named(Part):
        channels: dict[str, Any]

    assert list(find_stateful(Named(channels={"plain": relative(Count()), "text": 3}))) == ["channels.plain.of"]


def test_a_curriculum_or_a_tracker_starts_something_else() -> None:
    class Logged(Part, slot="tracker"):
        def start(self, seed: int = 0) -> None: ...

    for part in (Shuffled(), Logged()):
        assert not is_stateful(part)
        assert find_stateful(part) == {}


def test_a_start_that_needs_more_than_a_seed_is_refused() -> None:
    class Eager(Part, slot="signal"):
        def __call__(self, table: object) -> None: ...

        def start(self, tasks: object, seed: int) -> None: ...

    with pytest.raises(ConfigError) as error:
        find_stateful(relative(Eager()), "algorithm.advantage")
    assert str(error.value) == (
        f"algorithm.advantage.of: {__name__}:{Eager.__qualname__} has a method `start` that cannot be called as "
        "start(seed=...); write `def start(self, *, seed: int)` for a stateful part, or give the method another name"
    )


def test_what_lives_may_start_in_a_way_of_its_own() -> None:
    class Served(Part, slot="model"):
        def start(self, port: int) -> None: ...

    assert find_stateful(Served()) == {}


class Remembers(CountState):
    """Remembers what a test says."""

    def __init__(self, state: Any = None, columns: Any = None) -> None:
        super().__init__("count", 0)
        self.state, self.given = state, columns

    def state_dict(self) -> Any:
        return self.state

    def columns(self, tasks: object) -> Any:
        return self.given


def test_a_state_is_read_as_json_that_shares_nothing_and_keeps_its_order() -> None:
    inner = [1, 2.5, None]
    state = read_part_state("here", Remembers({"b": inner, "a": {"x": "é", "yes": True}}))
    inner.append(4)
    assert state == {"b": [1, 2.5, None], "a": {"x": "é", "yes": True}}
    assert list(state) == ["b", "a"]


ADVICE = "; return numbers, text, booleans, None, lists, and dicts with text for keys (an array as array.tolist())"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"a": np.zeros(2)}, "the result of state_dict holds a ndarray" + ADVICE),
        ({"a": {1, 2}}, "the result of state_dict holds a set" + ADVICE),
        ({"a": float("nan")}, "the result of state_dict holds NaN" + ADVICE),
        ({"a": [float("inf")]}, "the result of state_dict holds an infinity" + ADVICE),
        ({"a": (1, 2)}, "the result of state_dict holds a tuple" + ADVICE),
        ({1: "a"}, "the result of state_dict would change when it is written to JSON and read again" + ADVICE),
        ({(1, 2): "a"}, "the result of state_dict has a key that is not text" + ADVICE),
        ([1], "state_dict returned a list of 1; expected a dict of JSON values"),
        (None, "state_dict returned nothing; expected a dict of JSON values"),
    ],
    ids=["array", "set", "nan", "infinity", "tuple", "number as key", "tuple as key", "list", "none"],
)
def test_a_state_that_is_no_json_is_refused_by_the_name_of_the_part(state: Any, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_part_state("algorithm.filters.0 (mine)", Remembers(state))
    assert str(error.value) == f"algorithm.filters.0 (mine): {words}"


def test_columns_are_read_by_name_and_task() -> None:
    given = {"prior": np.array([0.25, 0.5]), "weight": np.array([1.0, 2.0], dtype=np.float32)}
    assert read_columns("here", Remembers(columns=given), TASKS) == {
        "prior": {"t1": 0.25, "t2": 0.5},
        "weight": {"t1": 1.0, "t2": 2.0},
    }
    assert read_columns("here", Remembers(columns={}), TASKS) == {}


NEEDED = (
    "expected a NumPy array of one finite float for each of the 2 tasks, or of one row of floats, one per step number"
)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (None, "columns returned nothing; expected a dict of arrays by column name"),
        ({"": np.zeros(2)}, "columns returned a dict of 1; expected a dict of arrays by column name"),
        ({"p": [0.5, 0.5]}, f"columns returned a list of 2 for 'p'; {NEEDED}"),
        ({"p": np.zeros(3)}, f"columns returned an array of 3 float64 for 'p'; {NEEDED}"),
        ({"p": np.zeros(2, dtype=np.int64)}, f"columns returned an array of 2 int64 for 'p'; {NEEDED}"),
        ({"p": np.array([0.0, np.nan])}, f"columns returned an array of 2 float64 with nan in it for 'p'; {NEEDED}"),
        ({"p": np.zeros((2, 0))}, f"columns returned an array of 2 x 0 float64 for 'p'; {NEEDED}"),
        ({"p": np.zeros((2, 1, 1))}, f"columns returned an array of 2 x 1 x 1 float64 for 'p'; {NEEDED}"),
    ],
    ids=["none", "no name", "list", "another length", "integers", "nan", "empty rows", "cube"],
)
def test_other_columns_are_refused_by_the_name_of_the_part(columns: Any, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_columns("here", Remembers(columns=columns), TASKS)
    assert str(error.value) == f"here: {words}"


def test_what_was_remembered_becomes_columns_of_the_table() -> None:
    table = join_columns(TABLE, [before("a", prior={"t1": 0.25, "t2": 0.5}), before("b", other={"t1": 1.0, "t2": 2.0})])
    assert table.column("prior").tolist() == [0.25, 0.25, 0.5]
    assert table.column("other")[table.step_of_row].tolist() == [2.0, 1.0, 1.0]
    assert "prior" not in TABLE.extra
    assert join_columns(TABLE, []) is TABLE


def test_a_row_has_a_number_for_each_index_and_its_last_for_all_later_steps() -> None:
    given = {"usual": np.array([[0.5, 0.25], [2.0, 3.0]])}
    assert read_columns("here", Remembers(columns=given), TASKS) == {"usual": {"t1": [0.5, 0.25], "t2": [2.0, 3.0]}}
    long = StepTable.from_columns(
        task=["t2", "t1", "t1", "t1", "t2"], rollout=[0, 0, 0, 0, 0], step=[0, 2, 1, 0, 1], reward=[0.0] * 5
    )
    table = join_columns(long, [before("a", usual={"t1": [0.5, 0.25], "t2": 7.0})])
    assert table.column("usual")[table.step_of_row].tolist() == [7.0, 0.25, 0.25, 0.5, 7.0]


def test_a_table_forgets_what_it_was_asked_before_it_had_the_columns() -> None:
    counted = Count(column="prior")
    first = join_columns(TABLE, [before("a", prior={"t1": 1.0, "t2": 1.0})])
    assert first.ask_once(counted).tolist() == [1.0, 1.0, 1.0]
    assert first.with_task_columns({"prior": {"t1": 2.0, "t2": 3.0}}).ask_once(counted).tolist() == [2.0, 2.0, 3.0]


def test_a_name_that_is_taken_is_refused_by_both_names() -> None:
    both = [before("algorithm.advantage.of", prior={}), before("algorithm.filters.0", prior={})]
    with pytest.raises(ConfigError) as error:
        join_columns(TABLE, both)
    assert str(error.value) == (
        "algorithm.filters.0 (count) and algorithm.advantage.of (count) both return the column 'prior'; rename one of "
        "them"
    )
    for name in ("action", "reward"):
        with pytest.raises(ConfigError) as error:
            join_columns(TABLE, [before("algorithm.filters.0", **{name: {}})])
        assert str(error.value) == (
            f"algorithm.filters.0 (count) returns the column {name!r}, which the table already has; rename it"
        )
    check_names([("a", ["x"]), ("b", ["y"])], taken=["z"])


def test_a_task_without_a_number_is_refused() -> None:
    with pytest.raises(RecordError, match="task 't2' has no number in the column 'prior'; give it one"):
        join_columns(TABLE, [before("a", prior={"t1": 0.25})])


def test_credit_is_not_derived_again_without_the_memory_it_came_from() -> None:
    algorithm = Algorithm(advantage=relative(Count()))
    check_journaled(algorithm, [before("algorithm.advantage.of")], where="run: update 3", path="algorithm")
    with pytest.raises(RecordError) as error:
        check_journaled(algorithm, [], where="run: update 3", path="algorithm")
    assert str(error.value) == (
        "run: update 3 has no saved state of algorithm.advantage.of, so its advantages cannot be computed again; "
        "`groupwise inspect` shows the recorded ones"
    )
