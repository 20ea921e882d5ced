"""Random rows of a rollouts file, and small files for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st

from groupwise.data.records import Origin, Step, StopReason, Task, Trajectory
from groupwise.store import FORMAT, KEYS, VERSION

HEADER = {"format": FORMAT, "version": VERSION, "meta": {}}
ROW = {"task": "t", "rollout": 0, "step": 0, "state": "kitchen", "reward": 1.0}

_TEXT = st.text(max_size=8)
_COUNT = st.integers(0, 2**53)
_NUMBER = st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False))
_LOGP = st.floats(-50.0, 0.0)
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), _TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_TEXT, inner, max_size=3)),
    max_leaves=5,
)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_ID_OR_NULL = st.one_of(st.none(), _TEXT, _INT64)
_EXTRA = st.dictionaries(_TEXT.map(lambda name: f"x{name}"), _JSON, max_size=2)

_FREE: Mapping[str, st.SearchStrategy[Any]] = {
    "segment": _COUNT,
    "state": _JSON,
    "observation": _TEXT,
    "action": st.one_of(st.none(), _TEXT),
    "stop": st.sampled_from([stop.value for stop in StopReason]),
    "role": _ID_OR_NULL,
    "branch": _ID_OR_NULL,
    "next_state": _JSON,
    "version": st.integers(-(2**53), 2**53),
    "origin": st.sampled_from([origin.value for origin in Origin]),
    "extra": _EXTRA,
}
_FOR_ALL: Mapping[str, st.SearchStrategy[Any]] = {
    "well_formed": st.booleans(),
    "accepted": st.booleans(),
    "valid": st.booleans(),
    "cut": st.booleans(),
    "outcome": _NUMBER,
    "accuracy": _NUMBER,
}


@st.composite
def file_rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows that one file can hold; identities may repeat, which is the table's business and not the file's."""
    task_id = draw(st.sampled_from((_TEXT, _INT64)))
    rollout_id = draw(st.sampled_from((_TEXT, _INT64)))
    for_all = draw(st.sets(st.sampled_from(sorted(_FOR_ALL))))
    has_group = draw(st.booleans())
    tokens = draw(st.sampled_from(("none", "count", "ids")))
    return draw(st.lists(_row(task_id, rollout_id, for_all, has_group, tokens), min_size=1, max_size=6))


@st.composite
def _row(
    draw: st.DrawFn,
    task_id: st.SearchStrategy[Any],
    rollout_id: st.SearchStrategy[Any],
    for_all: set[str],
    has_group: bool,
    tokens: str,
) -> dict[str, Any]:
    row = {"task": draw(task_id), "rollout": draw(rollout_id), "step": draw(_COUNT), "reward": draw(_NUMBER)}
    if has_group:
        row["group"] = draw(task_id)
    row |= {name: draw(_FOR_ALL[name]) for name in sorted(for_all)}
    row |= {name: draw(_FREE[name]) for name in sorted(draw(st.sets(st.sampled_from(sorted(_FREE)))))}
    if tokens == "count":
        row["tokens"] = draw(_COUNT)
    if tokens == "ids":
        ids = draw(st.lists(st.integers(0, 200_000), max_size=4))
        row["response_ids"] = ids
        for name in draw(st.sets(st.sampled_from(("logp_behaviour", "entropy")))):
            row[name] = draw(st.lists(_LOGP, min_size=len(ids), max_size=len(ids)))
    return row


def without_nulls(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows less the keys whose value is null: to Parquet, a null and an absent key are the same."""
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def in_order(row: Mapping[str, Any]) -> list[str]:
    """The keys of a row in the order of the format."""
    return [name for name in KEYS if name in row]


def write_lines(path: Path, values: Sequence[Any]) -> Path:
    """A JSON Lines file of any values, proper or not."""
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


STATES = st.one_of(st.none(), st.sampled_from(("kitchen", "hall", "cellar", ("hall", 2), ("hall", 3))))


@st.composite
def trajectories(draw: st.DrawFn) -> list[Trajectory]:
    """Trajectories of a few rollouts at a few tasks; outcomes on all or on none."""
    has_outcome, has_accuracy = draw(st.booleans()), draw(st.booleans())
    drawn = []
    for task in range(draw(st.integers(1, 3))):
        for rollout in range(draw(st.integers(1, 3))):
            drawn.append(
                Trajectory(
                    id=f"{task}-{rollout}",
                    task=Task(id=f"task {task}"),
                    rollout=rollout,
                    steps=tuple(draw(_step(index)) for index in range(draw(st.integers(1, 4)))),
                    scores={"accuracy": draw(st.floats(-10, 10))} if has_accuracy else {},
                    outcome=draw(st.floats(-10, 10)) if has_outcome else None,
                    stop=draw(st.sampled_from(StopReason)),
                    versions=draw(st.sampled_from(((), (3,), (3, 4)))),
                    origin=draw(st.sampled_from(Origin)),
                )
            )
    return drawn


CONDUCT = st.fixed_dictionaries({"well_formed": st.booleans(), "accepted": st.booleans()})


@st.composite
def _step(draw: st.DrawFn, index: int) -> Step:
    ids = tuple(draw(st.lists(st.integers(0, 99), max_size=3)))
    return Step(
        index=index,
        reward=draw(st.floats(-10, 10)),
        state_key=draw(STATES),
        observation=draw(st.one_of(st.none(), _TEXT)),
        action=draw(st.one_of(st.none(), _TEXT)),
        **draw(CONDUCT),
        cut=draw(st.booleans()),
        role=draw(st.one_of(st.none(), st.sampled_from(("planner", "solver")))),
        branch=draw(st.one_of(st.none(), st.sampled_from(("trunk", 3)))),
        prompt_ids=tuple(draw(st.lists(st.integers(0, 99), max_size=3))),
        response_ids=ids,
        logp_behaviour=draw(st.sampled_from(((), tuple(-0.5 for _ in ids)))),
        entropy=draw(st.sampled_from(((), tuple(0.25 for _ in ids)))),
    )
