"""Random rollouts whose steps say everything that the table of step fields lets them say, or leave any of it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any

import hypothesis.strategies as st

from groupwise import Step, StopReason, Task, Trajectory
from groupwise.data import field_kinds as kinds
from groupwise.data.field_kinds import Kind, StepField
from groupwise.data.records import SAMPLED_ELSEWHERE, Origin
from groupwise.data.step_fields import STEP_FIELDS

_TEXT = st.text(max_size=5)
_NUMBER = st.floats(-1e6, 1e6)
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-99, 99), _NUMBER, _TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(_TEXT, inner, max_size=2)),
    max_leaves=3,
)
_IDS = st.lists(st.integers(0, 999), max_size=4).map(tuple)
VALUES: Mapping[Kind, st.SearchStrategy[Any]] = {
    kinds.TEXT: _TEXT,
    kinds.TEXT_OR_NULL: _TEXT,
    kinds.ID: _TEXT,
    kinds.ID_OR_NULL: st.one_of(_TEXT, st.integers(0, 99)),
    kinds.COUNT: st.integers(0, 99),
    kinds.INTEGER: st.integers(-99, 99),
    kinds.NUMBER: _NUMBER,
    kinds.FLAG: st.booleans(),
    # Few, so that states recur; a number that equals a truth value would be one key here and two in JSON.
    kinds.STATE: st.sampled_from(("hall", "cellar", 7, ("hall", 2), ("hall", ("a", 3)))),
    kinds.INTEGERS: _IDS,
    kinds.NUMBERS: st.lists(_NUMBER, max_size=4).map(tuple),
    kinds.OBJECT: st.dictionaries(st.sampled_from(("info_key", "clue", "far off")), _JSON, max_size=2),
}
"""Values of each kind, as a step holds them."""
HELD = {field.step: field for field in STEP_FIELDS if field.step and field.name != "reward_alone"}
"""The fields that a step holds, by its own name for them."""
_ENTRIES = {field.name: field for field in fields(Step)}


def silent(field: StepField) -> Any:
    """What a step holds that does not say this."""
    entry = _ENTRIES[field.step]
    if field.kind is kinds.FLAG and field.uniform:
        return False if field.name == "cut" else None
    return entry.default_factory() if entry.default_factory is not MISSING else entry.default


@st.composite
def _step(draw: st.DrawFn, index: int, left_out: frozenset[str]) -> Step:
    """A step that may say anything but what is left out; what a whole file must say alike is said, or left out."""
    said: dict[str, Any] = {"index": index, "response_ids": draw(_IDS), "shaped": draw(st.sampled_from((0.0, 0.25)))}
    sampled = len(said["response_ids"])
    for name, field in HELD.items():
        if name in said:
            continue
        speaks = name not in left_out and (field.uniform or field.required or draw(st.booleans()))
        if not speaks:
            said[name] = silent(field)
        elif field.one_per_token:
            said[name] = tuple(draw(st.lists(_NUMBER, min_size=sampled, max_size=sampled)))
        else:
            # A response with nothing sampled is none: a file of such responses alone has no count of tokens.
            forced = st.integers(0, max(sampled - 1, 0))
            said[name] = draw(forced if name == "forced" else VALUES[field.kind])
    if said["well_formed"] is not None and said["accepted"] is not None:
        said["recorded_valid"] = None  # it follows from the two, and is not written
    return Step(**said)


@st.composite
def rollouts(draw: st.DrawFn) -> list[Trajectory]:
    """A few rollouts at a few tasks, all of which one file can hold."""
    left_out = frozenset(draw(st.sets(st.sampled_from([name for name in HELD if not HELD[name].required]))))
    has_outcome, has_accuracy = draw(st.booleans()), draw(st.booleans())
    trajectories = []
    for rollout in range(draw(st.integers(1, 4))):
        origin = draw(st.sampled_from(Origin))
        steps = [draw(_step(index, left_out - {"response_ids"})) for index in range(draw(st.integers(1, 3)))]
        trajectories.append(
            _of_versions(
                draw,
                steps,
                id=f"t/{rollout}",
                task=Task(id=draw(st.sampled_from(("t", "u")))),
                rollout=rollout,
                scores={"accuracy": draw(_NUMBER)} if has_accuracy else {},
                outcome=draw(_NUMBER) if has_outcome else None,
                stop=draw(st.sampled_from(StopReason)),
                origin=origin,
                off_policy=origin.value in SAMPLED_ELSEWHERE,
            )
        )
    return trajectories


def _of_versions(draw: st.DrawFn, steps: Sequence[Step], **said: Any) -> Trajectory:
    """A rollout that one version of the weights sampled, or where two did, which tokens each of them sampled."""
    cut = draw(st.integers(0, sum(len(step.response_ids) for step in steps)))
    spans = []
    for step in steps:
        old = min(cut, len(step.response_ids))
        cut -= old
        new = len(step.response_ids) - old
        spans.append(tuple(span for span in ((3, old), (4, new)) if span[1]) or ((3, 0),))
    versions = sorted({version for each in spans for version, _ in each})
    if len(versions) > 1:
        steps = [replace(step, versions=each) for step, each in zip(steps, spans, strict=True)]
    return Trajectory(steps=tuple(steps), versions=tuple(versions), **said)
