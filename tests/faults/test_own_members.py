"""Parts of a user's own that lack a member, take other arguments, or raise: one sentence that says what to write."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from groupwise import ConfigError, Part, StepTable
from groupwise.data.credit import TokenCredit
from groupwise.data.token_table import TokenTable
from groupwise.parts.part import Slot, load_catalogue
from groupwise.parts.requirements import OPENED, REQUIRED, check_methods
from groupwise.system.errors import TrainingError

TABLE = StepTable.from_columns(task=["t"] * 2, rollout=[0, 1], step=[0, 0], reward=[0.0, 1.0])
TOKENS = TokenTable.from_rows(TABLE, [{"response_ids": [5]}] * 2)


def own(slot: str, **members: Any) -> Any:
    """A part of one's own with these members alone."""
    body = {**members, "__module__": __name__, "__qualname__": "Mine"}
    made: Any = type(Part)("Mine", (Part,), body, slot=slot)
    return made()


def anything(self: Any, *given: Any, **named: Any) -> Any:
    """Takes whatever comes."""


def nothing(self: Any) -> Any:
    """Takes nothing."""


PLAN = {"next": anything, "choose": anything}
NEEDS = {"needs": frozenset(), "__annotations__": {"needs": ClassVar[frozenset[str]]}}
LOSS = {"needs": frozenset(), "unit": "sample", "__annotations__": {"needs": ClassVar[Any], "unit": ClassVar[str]}}
CREDIT_FILTER = {"reads_credit": True, "__annotations__": {"reads_credit": ClassVar[bool]}}
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("token_credit", {}, " has no '__call__'; write `def __call__(self, table, credit, tokens)`"),
    (
        "token_credit",
        {"__call__": lambda self, table, credit: None},
        ": '__call__' cannot be called with (table, credit, tokens); write `def __call__(self, table, credit, tokens)`",
    ),
    ("plan", {**PLAN, "choose": nothing}, ": 'choose' cannot be called with (played, wanted); write"),
    ("plan", {key: PLAN[key] for key in PLAN if key != "next"}, " has no 'next'; write `def next(self, played, wanted"),
    ("plan", {key: PLAN[key] for key in PLAN if key != "choose"}, " has no 'choose'; write `def choose(self, played"),
    (
        "plan",
        {**PLAN, "next": lambda self, played, wanted, *, past_rollouts, draw: []},
        ": 'next' cannot be called with (played, wanted, *, group_size, tools, past_rollouts, draw); write `def next(",
    ),
    (
        "scorer",
        {"__call__": anything},
        " has no 'needs'; write `needs: ClassVar[frozenset[str]] = frozenset()`",
    ),
    (
        "scorer",
        {"__call__": anything, "needs": frozenset(), "__annotations__": {"needs": frozenset[str]}},
        " has 'needs' as a field; write `needs: ClassVar[frozenset[str]] = ...`",
    ),
    (
        "scorer",
        {**NEEDS, "__call__": lambda self, groups, tools: []},
        ": '__call__' cannot be called with (groups, tools, *, draw); write",
    ),
    ("loss", {"__call__": anything}, " has no 'needs'; write `needs: ClassVar[frozenset[str]] = frozenset()`"),
    ("loss", {**NEEDS, "__call__": anything}, " has no 'unit'; write `unit: ClassVar[str] = \"sample\"`"),
    (
        "loss",
        {**LOSS, "first_pass": anything, "__call__": lambda self, columns, totals: None},
        ": '__call__' cannot be called with (columns, totals, summary); write `def __call__(self, columns, ",
    ),
    (
        "learner",
        {"open": lambda self, model, loss: None},
        ": 'open' cannot be called with (model, loss, *, temperature)",
    ),
    ("weight_sync", {}, " has no 'open'; write `def open(self, folder)`"),
    ("weight_sync", {"open": nothing}, ": 'open' cannot be called with (folder); write `def open(self, folder)`"),
    (
        "filter",
        {**CREDIT_FILTER, "__call__": lambda self, table: None},
        ": '__call__' cannot be called with (table, credit); write `def __call__(self, table, credit)`",
    ),
    ("shaper", {"__call__": anything}, " has no 'needs_entropy'; write `needs_entropy: ClassVar[bool] = False`"),
]


@pytest.mark.parametrize(
    ("slot", "members", "said"), WRONG, ids=[f"{number}, {slot}" for number, (slot, _, _) in enumerate(WRONG)]
)
def test_a_part_that_lacks_a_member_is_refused_where_it_fills_its_slot(
    slot: str, members: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        Slot(slot).fill(own(slot, **members))
    assert str(raised.value).startswith(f"the {slot} {__name__}:Mine{said}")


@pytest.mark.parametrize("slot", [slot for slot in REQUIRED if slot != "model"])
def test_the_parts_that_come_with_groupwise_have_what_a_part_from_elsewhere_must_have(slot: str) -> None:
    """As classes of one's own: the tables are no stricter than what the loop calls."""
    if slot in ("engine", "learner", "weight_sync", "tracker"):
        pytest.importorskip("torch")
    for kind, known in load_catalogue(slot).items():
        mine = type(known)("Mine", (known,), {"__module__": "mine"})
        required = {name for name, field in known.model_fields.items() if field.is_required()}
        part = mine.model_construct(**dict.fromkeys(required))
        assert Slot(slot).fill(part) is part, kind


def test_what_is_opened_is_looked_at_too() -> None:
    with pytest.raises(ConfigError) as raised:
        check_methods(SimpleNamespace(sync=lambda weights, engine: None), "weight_sync", "training.x (Mine)")
    assert str(raised.value) == (
        "training.x (Mine): SimpleNamespace: 'sync' cannot be called with (weights, engine, *, version); write "
        "`def sync(self, weights, engine, *, version)`"
    )
    state = SimpleNamespace(
        **dict.fromkeys(OPENED["state"], lambda *given: None),
    )
    check_methods(state, "state", "here")
    state.columns = lambda: None
    with pytest.raises(
        ConfigError, match=r"'columns' cannot be called with \(tasks\); write `def columns\(self, tasks\)`"
    ):
        check_methods(state, "state", "here")


def test_what_a_part_raises_is_one_line_that_names_it_and_its_line_and_keeps_the_cause() -> None:
    def fail(self: Any, table: Any) -> Any:
        raise KeyError("oops")

    def refuse(self: Any, table: Any) -> Any:
        raise ConfigError("the field is wrong; mend it")

    with pytest.raises(TrainingError) as raised:
        own("signal", __call__=fail)(TABLE)
    line = fail.__code__.co_firstlineno + 1
    assert str(raised.value) == f"the signal {__name__}:Mine raised KeyError: 'oops' ({__file__}:{line}); fix it"
    assert isinstance(raised.value.__cause__, KeyError)
    with pytest.raises(ConfigError, match="the field is wrong; mend it"):
        own("signal", __call__=refuse)(TABLE)


@pytest.mark.parametrize(
    ("values", "trains", "said"),
    [
        (np.zeros(2, dtype=int), np.ones(2, dtype=bool), "whose 'values' is an array of 2 int64 for 2 tokens"),
        (np.zeros(2), np.ones(3, dtype=bool), "whose 'trains' is an array of 3 bool for 2 tokens"),
        (np.zeros(2), [True, True], "whose 'trains' is a list of 2 for 2 tokens"),
        (np.array([0.0, np.nan]), np.ones(2, dtype=bool), "whose 'values' is nan at token 1, which trains"),
    ],
)
def test_the_field_of_token_credit_that_is_wrong_is_named(values: Any, trains: Any, said: str) -> None:
    part = own("token_credit", __call__=lambda self, table, credit, tokens: wrong)
    wrong = TokenCredit(values=values, trains=trains, trace=None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as raised:
        part(TABLE, None, TOKENS)
    assert f"Mine returned a TokenCredit {said}; expected a TokenCredit with one float" in str(raised.value)


def test_the_field_of_a_loss_that_is_wrong_is_named() -> None:
    torch = pytest.importorskip("torch")
    for wrong, said in (
        (SimpleNamespace(loss=torch.zeros(2), metrics={}), "whose 'loss' is a Tensor of shape (2,) of torch.float32"),
        (SimpleNamespace(loss=torch.tensor(0.0), metrics=None), "whose 'metrics' is nothing"),
    ):
        part = own("loss", __call__=lambda self, columns, totals, wrong=wrong: wrong)
        with pytest.raises(ConfigError) as raised:
            part(None, None)
        assert f"Mine returned a SimpleNamespace {said}; expected a LossResult" in str(raised.value)
