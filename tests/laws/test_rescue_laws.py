"""Laws of R^3: nothing to replay changes no bit, ranking sees orders alone, what is remembered is what was sampled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import Step, StepTable, StopReason, Task, Trajectory, methods
from groupwise.credit import Deviation, FixedUnlessSolved, Relative
from groupwise.methods.r3 import EntropyRanking, compute_ranking_rewards
from groupwise.parts.slots import ScalePart
from groupwise.store.journal import Journal, Update
from tests.laws.calls import credit
from tests.strategies import CONDUCT, WILD, Row, step_rows

BASES: list[tuple[str, dict[str, object], str, dict[str, object]]] = [
    ("r3", {}, "r3_grpo_ablation", {}),
    ("r3", {"alpha": 7.0}, "grpo", {"ddof": 0}),
    ("r3_hgpo", {}, "hgpo", {"invalid_penalty": 0.0}),
    ("r3_hgpo", {"depth": 1, "alpha": 7.0}, "hgpo", {"depth": 1, "invalid_penalty": 0.0}),
]


@pytest.mark.parametrize(("method", "hyper", "base", "settings_of_base"), BASES)
@given(rows=step_rows(rewards=WILD))
def test_with_nothing_replayed_it_is_its_base_bit_for_bit(
    method: str, hyper: dict[str, object], base: str, settings_of_base: dict[str, object], rows: list[Row]
) -> None:
    result, expected = credit(rows, method, **hyper), credit(rows, base, **settings_of_base)
    assert np.asarray(result.values).tobytes() == np.asarray(expected.values).tobytes()
    assert np.array_equal(result.compared, expected.compared)
    own = [row | {"off_policy": False} for row in rows]
    assert np.asarray(credit(own, method, **hyper).values).tobytes() == np.asarray(expected.values).tobytes()


PATTERNS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=9)
RISING = st.lists(st.floats(1e-3, 10), min_size=13, max_size=13).map(lambda steps: np.cumsum(steps))
"""A strictly rising function of 0..12, as its values."""


@given(patterns=PATTERNS, of_peak=RISING, of_overall=RISING, drawn=st.data())
def test_ranking_sees_the_order_of_both_entropies_and_not_that_of_the_members(
    patterns: list[tuple[int, int]], of_peak: np.ndarray, of_overall: np.ndarray, drawn: st.DataObject
) -> None:
    peak, overall = np.array(patterns).T
    before = compute_ranking_rewards(peak.astype(float), overall.astype(float), best=0.5)
    assert compute_ranking_rewards(of_peak[peak], of_overall[overall], best=0.5).tobytes() == before.tobytes()
    order = drawn.draw(st.permutations(range(len(patterns))))
    after = compute_ranking_rewards(peak[order].astype(float), overall[order].astype(float), best=0.5)
    assert after.tobytes() == before[order].tobytes()
    assert before.min() >= 0
    assert before.max() <= 0.5


ENTROPIES = st.lists(st.integers(0, 40).map(lambda number: number / 8), min_size=2, max_size=8)
FAILED = st.lists(st.tuples(ENTROPIES, st.booleans()), min_size=2, max_size=8)
"""Failed answers: their entropies, and whether they were cut off."""


def credit_ranked(failed: list[tuple[list[float], bool]], ranking: EntropyRanking, scale: ScalePart) -> np.ndarray:
    """The credit of a group without success that is ranked, divided by a scale."""
    group = []
    for number, (entropies, is_cut) in enumerate(failed):
        ids = (7,) * len(entropies)
        step = Step(index=0, reward=0.0, prompt_ids=(1,), response_ids=ids, logp_behaviour=(-1.0,) * len(ids))
        own = (replace(step, entropy=tuple(entropies), cut=is_cut),)
        ended = StopReason.TERMINATED
        group.append(Trajectory(id=f"t/{number}", task=Task(id="t"), rollout=number, steps=own, scores={}, stop=ended))
    paid = [amount for (amount,) in ranking(group)]
    table = StepTable.from_columns(
        task=["t"] * len(paid), rollout=list(range(len(paid))), step=[0] * len(paid), reward=paid
    )
    estimator = methods.r3().advantage
    assert isinstance(estimator, Relative)
    return np.asarray(estimator.model_copy(update={"scale": scale})(table).values)


@given(failed=FAILED, factor=st.floats(0.01, 2.0), finished=st.sampled_from(["mean", "zero"]))
def test_the_size_of_ranked_rewards_counts_under_a_fixed_scale_alone(
    failed: list[tuple[list[float], bool]], factor: float, finished: Literal["mean", "zero"]
) -> None:
    small, large = (EntropyRanking(best=best, finished=finished) for best in (0.5 * factor, 0.5))
    # eps is what is left of the size: without it nothing is.
    by_deviation = [credit_ranked(failed, ranking, Deviation(ddof=0, eps=0.0)) for ranking in (small, large)]
    assert by_deviation[0] == pytest.approx(by_deviation[1], rel=1e-9, abs=1e-9)
    fixed = [credit_ranked(failed, ranking, FixedUnlessSolved(ddof=0, above=2.0)) for ranking in (small, large)]
    assert fixed[0] == pytest.approx(factor * fixed[1], rel=1e-9, abs=1e-9)


@given(failed=FAILED, scale=st.sampled_from([Deviation(ddof=0), FixedUnlessSolved(ddof=0)]))
def test_being_cut_off_is_worth_nothing_by_itself_where_the_finished_earn_the_mean(
    failed: list[tuple[list[float], bool]], scale: ScalePart
) -> None:
    values = credit_ranked(failed, EntropyRanking(finished="mean"), scale)
    for is_cut in (True, False):
        of_kind = [value for value, (_, cut) in zip(values.tolist(), failed, strict=True) if cut is is_cut]
        assert sum(of_kind) == pytest.approx(0, abs=1e-9)


NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=64)
LOGPS = st.floats(-50, 0)
STATES = st.recursive(
    st.one_of(st.none(), st.text(max_size=5), st.integers(-9, 9), st.booleans()),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)


@st.composite
def steps(draw: st.DrawFn, index: int) -> Step:
    """Any step that an engine and an environment may give."""
    ids = tuple(draw(st.lists(st.integers(0, 9), max_size=4)))
    return Step(
        index=index,
        reward=draw(st.floats(-1e6, 1e6)),
        shaped=draw(st.sampled_from([0.0, 0.5, -0.125])),
        state_key=draw(STATES),
        observation=draw(st.text(max_size=8)),
        action=draw(st.one_of(st.none(), st.text(max_size=4))),
        **draw(CONDUCT),
        cut=draw(st.booleans()),
        prompt_ids=tuple(draw(st.lists(st.integers(0, 9), max_size=4))),
        response_ids=ids,
        logp_behaviour=tuple(draw(LOGPS) for _ in ids),
        entropy=tuple(draw(LOGPS) for _ in ids),
    )


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    made: dict[str, Any] = {"success": float(draw(st.booleans()))} if draw(st.booleans()) else {}
    made |= {"accuracy": draw(st.floats(0, 1))} if draw(st.booleans()) else {}
    own = tuple(draw(steps(index)) for index in range(draw(st.integers(1, 3))))
    return Trajectory(
        id="t/2",
        task=Task(id="t"),
        rollout=2,
        steps=own,
        scores=made | {"return": sum(step.reward for step in own)},
        stop=draw(st.sampled_from([StopReason.TERMINATED, StopReason.TRUNCATED, StopReason.INVALID])),
        versions=(4, 5),
    )


@given(one=trajectories())
def test_what_is_read_back_is_what_was_sampled_without_what_its_group_added(one: Trajectory) -> None:
    with TemporaryDirectory() as folder, Journal(Path(folder) / "journal.sqlite") as journal:
        credit_of = [[0.0] * len(one.steps)]
        journal.write(Update(number=6, version=6, metrics={}, trajectories=[one], credit=credit_of))
        (past,) = journal.past_rollouts.recent("t", max_rollouts=1)
        read_back = journal.past_rollouts.read(past)
    assert read_back.steps == tuple(replace(step, shaped=0.0) for step in one.steps)
    assert (read_back.scores, read_back.stop, read_back.origin, read_back.rollout) == (
        one.scores,
        one.stop,
        one.origin,
        2,
    )
    assert read_back.versions == (4,), "the oldest weights that sampled it"
