"""Laws of the methods that give tokens credit: order of rows, tasks apart, what may be missing."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from groupwise import Credit, Part, RecordError, StepTable, methods
from groupwise.credit import (
    ByTask,
    EpisodeReturn,
    Mean,
    NoBaseline,
    NoScale,
    Relative,
    Sum,
    Term,
    TokenGae,
    TokenReturn,
    Whitened,
    WhitenedTokens,
)
from groupwise.data.credit import TokenCredit
from groupwise.data.token_table import TokenTable
from groupwise.methods.after_vsrm import LineGains
from groupwise.methods.bcpg_nsa import SparedSegments
from groupwise.methods.d3s import DualDownSampling
from groupwise.methods.dcpo import TemperedCredit
from groupwise.methods.gtpo import ConflictTokens
from groupwise.methods.prorag import JudgedCredit
from groupwise.methods.rank_grpo import RankCredit
from groupwise.methods.spae import PotentialCredit
from groupwise.methods.spo_chain import SegmentCredit
from groupwise.methods.verl import LEVELS, UNKNOWN, RankBonus
from groupwise.parts.slots import TokenCreditPart
from tests.oracles.random_answers import add_segments, by_answer, masks_by_answer, random_answers, tables_of
from tests.oracles.token_methods import Answer

DR_GRPO, RLOO = methods.dr_grpo().advantage, methods.rloo().advantage
SEEDS = st.integers(0, 10_000)
PARTS: dict[str, Any] = {
    "conflict_tokens": ConflictTokens(),
    "dual_down_sampling": DualDownSampling(first_samples=0.6, first_tokens=0.5),
    "token_return": TokenReturn(gamma=0.9),
    "token_gae": TokenGae(gamma=0.9, lam=0.8),
    "whitened_tokens": WhitenedTokens(of=SegmentCredit()),
    "segment_credit": SegmentCredit(),
    "line_gains": LineGains(),
    "potential_credit": PotentialCredit(),
    "tempered_credit": TemperedCredit(),
    "rank_bonus": RankBonus(),
    "judged_credit": JudgedCredit(),
    "spared_segments": SparedSegments(),
    "rank_credit": RankCredit(),
    "rank_credit, log_decay": RankCredit(reward="log_decay"),
}
ACROSS_TASKS = {name for name, part in PARTS.items() if part.mixes_tasks}


def draw_answers(rng: random.Random) -> list[Answer]:
    answers = random_answers(rng)
    add_segments(rng, answers)
    return answers


def give_levels(rng: random.Random, answers: Sequence[Answer]) -> None:
    """Moving averages of ranks, as a run remembers them."""
    levels = [rng.uniform(0, 5), rng.choice([0.0, rng.gauss(0, 1)]), rng.choice([0.0, rng.gauss(0, 0.1)])]
    for answer in answers:
        answer.info |= dict(zip(LEVELS, levels, strict=True))


def credit(part: TokenCreditPart, answers: Sequence[Answer]) -> tuple[list[list[float]], list[list[bool]]]:
    table, tokens = tables_of(answers)
    made = part(table, DR_GRPO(table).by_step(), tokens)
    return by_answer(made, tokens, answers), masks_by_answer(made, tokens, answers)


@pytest.mark.parametrize("name", PARTS)
@given(seed=SEEDS)
def test_the_order_of_rows_changes_nothing(name: str, seed: int) -> None:
    rng = random.Random(seed)
    answers = draw_answers(rng)
    give_levels(rng, answers)
    table, tokens = tables_of(answers)
    expected = PARTS[name](table, DR_GRPO(table).by_step(), tokens)
    order = rng.sample(range(len(answers)), len(answers))
    rows = [
        {"response_ids": answers[n].ids, "logp_behaviour": answers[n].logp, "entropy": answers[n].entropy}
        for n in order
    ]
    shuffled = type(table).from_columns(
        task=[answers[n].group for n in order],
        rollout=order,
        step=[0] * len(order),
        reward=[answers[n].reward for n in order],
        **{info_key: [answers[n].info[info_key] for n in order] for info_key in answers[0].info},
    )
    made = PARTS[name](shuffled, DR_GRPO(shuffled).by_step(), type(tokens).from_rows(shuffled, rows))
    assert np.array_equal(made.values, expected.values)
    assert np.array_equal(made.trains, expected.trains)


@pytest.mark.parametrize("name", sorted(set(PARTS) - ACROSS_TASKS))
@given(seed=SEEDS)
def test_other_tasks_change_nothing(name: str, seed: int) -> None:
    """GTPO's initial entropy is remembered; without a memory it is that of the whole table."""
    answers = draw_answers(random.Random(seed))
    for answer in answers:
        answer.info["initial_entropy"] = 0.3
    give_levels(random.Random(seed), answers)
    values, _ = credit(PARTS[name], answers)
    alone, _ = credit(PARTS[name], [answer for answer in answers if answer.group == 0])
    assert alone == values[: len(alone)]


@given(seed=SEEDS)
def test_gtpo_leaves_even_groups_their_entropy_alone(seed: int) -> None:
    """All equal: no conflict tokens, and A = 0 leaves -gamma H, which the method's filter drops."""
    answers = draw_answers(random.Random(seed))
    for answer in answers:
        answer.reward, answer.info["initial_entropy"] = 1.0, 9.0
    values, _ = credit(ConflictTokens(), answers)
    for answer, row in zip(answers, values, strict=True):
        assert row == pytest.approx([-0.1 * np.mean(answer.entropy)] * len(answer.ids), abs=1e-12)
    table, _ = tables_of(answers)
    assert not methods.gtpo().keep(table).any()


@pytest.mark.parametrize("name", ["conflict_tokens", "dual_down_sampling"])
def test_what_was_not_recorded_is_asked_for(name: str) -> None:
    table, tokens = tables_of(draw_answers(random.Random(0)))
    unknown = replace(tokens, entropy=np.full(len(tokens), np.nan))
    with pytest.raises(
        RecordError, match=r"the entropies of sampled tokens \(entropy\), but they were not recorded; use"
    ):
        PARTS[name](table, DR_GRPO(table).by_step(), unknown)


@given(seed=SEEDS)
def test_d3s_takes_no_sample_that_a_filter_drops(seed: int) -> None:
    answers = draw_answers(random.Random(seed))
    table, tokens = tables_of(answers)
    filtered = table.with_filters((lambda seen: seen.task != 0,))
    made = PARTS["dual_down_sampling"](filtered, DR_GRPO(table).by_step(), tokens)
    assert not made.trains[table.task[tokens.row] == 0].any()


@given(seed=SEEDS)
def test_what_segments_changed_adds_up_to_the_credit_of_the_step(seed: int) -> None:
    answers = draw_answers(random.Random(seed))
    values, _ = credit(SegmentCredit(max_probability=None), answers)
    table, _ = tables_of(answers)
    for answer, row, own in zip(answers, values, DR_GRPO(table).values.tolist(), strict=True):
        firsts = [0, *answer.info["segment_ends"][:-1]]
        assert sum(row[place] for place in firsts) == pytest.approx(own, abs=1e-12)


@given(
    seed=SEEDS,
    weight=st.floats(0, 50),
    gain=st.floats(-1e6, 1e6),
    kappa=st.floats(1, 50),
    placement=st.sampled_from(["all", "last"]),
)
def test_a_rank_bonus_only_adds_and_never_turns_credit_around(
    seed: int, weight: float, gain: float, kappa: float, placement: Any
) -> None:
    answers = draw_answers(random.Random(seed))
    give_levels(random.Random(seed), answers)
    part = RankBonus(weight=weight, gain=gain, kappa=kappa, placement=placement)
    values, _ = credit(part, answers)
    table, _ = tables_of(answers)
    for row, own in zip(values, DR_GRPO(table).values.tolist(), strict=True):
        for place, value in enumerate(row):
            assert own <= value <= own + abs(own) / kappa + 1e-12
            assert value * own >= 0
            assert value == own or placement == "all" or place == len(row) - 1
        assert own != 0 or row == [0.0] * len(row)


@pytest.mark.parametrize("level", [None, UNKNOWN])
@given(seed=SEEDS)
def test_before_there_is_a_moving_average_there_is_no_bonus(level: float | None, seed: int) -> None:
    answers = draw_answers(random.Random(seed))
    for answer in answers if level is not None else ():
        answer.info |= dict.fromkeys(LEVELS, level)
    table, tokens = tables_of(answers)
    steps = DR_GRPO(table).by_step()
    assert np.array_equal(RankBonus()(table, steps, tokens).values, steps.values[tokens.row])


@given(seed=SEEDS)
def test_gae_of_1_is_what_is_still_earned_less_the_value(seed: int) -> None:
    answers = draw_answers(random.Random(seed))
    values, _ = credit(TokenGae(gamma=1.0, lam=1.0), answers)
    table, _ = tables_of(answers)
    for answer, row, own in zip(answers, values, DR_GRPO(table).values.tolist(), strict=True):
        starts, ends = [answer.reward - own, *answer.info["segment_values"]], answer.info["segment_ends"]
        expected = [answer.reward - starts[sum(place >= end for end in ends)] for place in range(len(row))]
        assert row == pytest.approx(expected, abs=1e-12)


@given(seed=SEEDS)
def test_gae_without_values_is_the_return(seed: int) -> None:
    answers = draw_answers(random.Random(seed))
    for answer in answers:
        answer.info = {}
    table, tokens = tables_of(answers)
    raw = Relative(by=ByTask(), of=EpisodeReturn(), baseline=NoBaseline(), scale=NoScale(), alone="raw")
    steps = raw(table).by_step()
    made = TokenGae(gamma=0.9, lam=1.0)(table, steps, tokens).values
    assert made.tolist() == pytest.approx(TokenReturn(gamma=0.9)(table, steps, tokens).values.tolist(), abs=1e-12)


@given(seed=SEEDS)
def test_whitened_returns_without_a_discount_are_reinforce_pp(seed: int) -> None:
    answers = draw_answers(random.Random(seed))
    table, tokens = tables_of(answers)
    steps = methods.reinforce_pp().advantage(table).by_step()
    made = WhitenedTokens(of=TokenReturn())(table, steps, tokens).values
    np.testing.assert_allclose(made, steps.values[tokens.row], rtol=1e-9, atol=1e-9)


@given(seed=SEEDS)
def test_a_masked_token_may_hold_anything(seed: int) -> None:
    """Whitening reads only what trains: the values of sure tokens change nothing."""

    class Rubbish(Part, slot="token_credit"):
        def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
            bare = SegmentCredit()(table, credit, tokens)
            return replace(bare, values=np.where(bare.trains, bare.values, np.nan))

    answers = draw_answers(random.Random(seed))
    table, tokens = tables_of(answers)
    steps = DR_GRPO(table).by_step()
    plain = WhitenedTokens(of=SegmentCredit())(table, steps, tokens)
    spoilt = WhitenedTokens(of=Rubbish())(table, steps, tokens)
    assert np.array_equal(plain.values[plain.trains], spoilt.values[spoilt.trains])


@pytest.mark.parametrize("part", [SegmentCredit(), TokenGae()])
def test_credit_that_was_divided_is_refused(part: Any) -> None:
    answers = draw_answers(random.Random(1))
    table, tokens = tables_of(answers)
    with pytest.raises(RecordError, match="needs advantages in units of the reward; set the estimator"):
        part(table, methods.grpo().advantage(table).by_step(), tokens)


@pytest.mark.parametrize("value", [None, "high", math.nan])
def test_a_rank_that_is_no_number_names_its_row(value: Any) -> None:
    answers = draw_answers(random.Random(5))
    answers[1].info["rank_velocity"] = value
    with pytest.raises(RecordError, match="column 'rank_velocity', row 1: "):
        credit(RankBonus(), answers)
    del answers[0].info["effective_rank"], answers[1].info["effective_rank"]
    with pytest.raises(RecordError, match=r"'effective_rank', "):
        credit(RankBonus(), [answers[0]])


@given(seed=SEEDS, shift=st.floats(-5, 5), per=st.sampled_from(["token", "segment"]))
def test_a_constant_on_all_scores_changes_nothing(seed: int, shift: float, per: Any) -> None:
    answers, part = draw_answers(random.Random(seed)), JudgedCredit(squashes=False, per=per, eps=0.0)
    values, _ = credit(part, answers)
    for answer in answers:
        answer.info["judged_scores"] = [score + shift for score in answer.info["judged_scores"]]
    for row, moved in zip(values, credit(part, answers)[0], strict=True):
        assert moved == pytest.approx(row, abs=1e-6)


@given(seed=SEEDS, score=st.floats(-1e300, 1e300))
def test_equal_scores_add_exactly_nothing(seed: int, score: float) -> None:
    answers = draw_answers(random.Random(seed))
    for answer in answers:
        answer.info["judged_scores"] = [score for _ in answer.info["judged_scores"]]
    table, tokens = tables_of(answers)
    steps = DR_GRPO(table).by_step()
    for part in (JudgedCredit(), JudgedCredit(per="segment", squashes=False)):
        assert np.array_equal(part(table, steps, tokens).values, steps.values[tokens.row])


@given(seed=SEEDS)
def test_what_is_judged_adds_up_to_nothing_over_the_tokens_of_a_task(seed: int) -> None:
    answers = draw_answers(random.Random(seed))
    values, _ = credit(JudgedCredit(weight=1.0), answers)
    table, _ = tables_of(answers)
    own = DR_GRPO(table).values.tolist()
    for group in {answer.group for answer in answers}:
        added = [v - own[n] for n, row in enumerate(values) if answers[n].group == group for v in row]
        assert sum(added) == pytest.approx(0.0, abs=1e-9)


@given(seed=SEEDS)
def test_scores_of_steps_that_a_filter_drops_count_for_nobody(seed: int) -> None:
    answers = draw_answers(random.Random(seed))
    table, tokens = tables_of(answers)
    steps = DR_GRPO(table).by_step()
    dropped = int(np.random.default_rng(seed).integers(len(answers)))
    filtered = table.with_filters((lambda seen: np.arange(len(seen)) != dropped,))
    others = [n for n in range(len(answers)) if n != dropped]
    before = by_answer(JudgedCredit()(filtered, steps, tokens), tokens, answers)
    answers[dropped].info["judged_scores"] = [99.0 for _ in answers[dropped].info["judged_scores"]]
    changed, _ = tables_of(answers)
    changed = changed.with_filters((lambda seen: np.arange(len(seen)) != dropped,))
    after = by_answer(JudgedCredit()(changed, steps, tokens), tokens, answers)
    assert [after[n] for n in others] == [before[n] for n in others]


@given(seed=SEEDS, beta=st.floats(-1, 1), right_above=st.floats(-3, 3))
def test_only_blame_is_weighed_and_some_of_it_stays(seed: int, beta: float, right_above: float) -> None:
    answers = draw_answers(random.Random(seed))
    values, trains = credit(SparedSegments(beta=beta, right_above=right_above), answers)
    table, _ = tables_of(answers)
    for row, own in zip(values, DR_GRPO(table).values.tolist(), strict=True):
        assert own in row if own < 0 else row == [own] * len(row), "the last right one keeps its blame"
        assert set(row) <= {own, beta * own}
    assert all(map(all, trains)), "a weight is no mask"


def test_an_rollout_of_right_steps_keeps_the_blame_on_its_last() -> None:
    """Two rollouts of two steps, one segment each: all of the first were judged right, one of the second."""
    scores = [[1.0], [1.0], [1.0], [0.0], [1.0]]
    table = StepTable.from_columns(
        task=["t"] * 5,
        rollout=[0, 0, 1, 1, 2],
        step=[0, 1, 0, 1, 0],
        reward=[0.0, 0.0, 0.0, 0.0, 3.0],
        tokens=[1] * 5,
        judged_ends=[[1]] * 5,
        judged_scores=scores,
    )
    tokens = TokenTable.from_rows(table, [{"response_ids": [7]}] * 5)
    made = SparedSegments()(table, DR_GRPO(table).by_step(), tokens)
    assert made.values.tolist() == [-0.5, -1.0, -0.5, -1.0, 2.0]


READS = {
    "spared_segments": ("judged_ends", "judged_scores"),
    "judged_credit": ("judged_ends", "judged_scores"),
    "segment_credit": ("segment_ends", "segment_values"),
    "line_gains": ("line_token_ends", "line_accuracy"),
    "potential_credit": ("potential_ends", "potentials"),
}


@pytest.mark.parametrize("name", READS)
def test_a_method_without_the_columns_it_reads_is_refused_by_name(name: str) -> None:
    ends, numbers = READS[name]
    answers = draw_answers(random.Random(2))
    for answer in answers:
        del answer.info[ends]
    with pytest.raises(RecordError, match=f"the table has no column '{ends}', which this method reads"):
        credit(PARTS[name], answers)
    answers = draw_answers(random.Random(2))
    answers[0].info[ends] = [0, 99]
    with pytest.raises(RecordError, match=rf"{ends} is \[0, 99\], but segment ends must rise to the"):
        credit(PARTS[name], answers)
    answers = draw_answers(random.Random(2))
    answers[0].info[numbers] = [math.nan] * 99
    with pytest.raises(RecordError, match=r"its segments need \d+ finite numbers; add the scorer that writes it"):
        credit(PARTS[name], answers)


def test_tempered_credit_asks_for_a_number_a_token() -> None:
    answers = draw_answers(random.Random(3))
    answers[0].info["logp_hot"] = [-0.5] * 99
    with pytest.raises(RecordError, match="logp_hot does not have one number for each of its"):
        credit(TemperedCredit(), answers)


@pytest.mark.parametrize("part", [SegmentCredit(), TokenGae()])
@pytest.mark.parametrize("advantage", [Sum(terms=(Term(weight=1.0, of=DR_GRPO),)), Whitened(of=DR_GRPO)])
def test_values_need_a_comparison_in_groups(part: Any, advantage: Any) -> None:
    table, tokens = tables_of(draw_answers(random.Random(4)))
    with pytest.raises(RecordError, match="reads the baseline of a comparison in groups; use the estimator relative"):
        part(table, advantage(table).by_step(), tokens)


class HalfReturn(Part, slot="signal"):
    """A signal that is not the return."""

    def __call__(self, table: StepTable) -> Any:
        return table.episode_return / 2


@given(seed=SEEDS)
def test_segments_are_held_against_what_was_compared(seed: int) -> None:
    """The first segment has its value less the baseline of the comparison, whatever that compares."""
    answers = draw_answers(random.Random(seed))
    table, tokens = tables_of(answers)
    steps = Relative(by=ByTask(), of=HalfReturn(), baseline=Mean(), scale=NoScale())(table).by_step()
    made = SegmentCredit(max_probability=None)(table, steps, tokens)
    for number, (answer, row) in enumerate(zip(answers, by_answer(made, tokens, answers), strict=True)):
        if answer.info["segment_values"]:
            baseline = answer.reward / 2 - steps.values[number]
            assert row[0] == pytest.approx(answer.info["segment_values"][0] - baseline, abs=1e-12)
            assert row[-1] == pytest.approx(answer.reward / 2 - answer.info["segment_values"][-1], abs=1e-12)
