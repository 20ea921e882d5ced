"""The specification's numbers for the methods that give tokens credit, through their parts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from groupwise import recipes
from groupwise.advantages import ConflictTokens, DualDownSampling
from groupwise.advantages.dual_down_sampling import choose_most_varied
from groupwise.core.token_credit import TokenCredit
from tests.oracles.random_answers import by_answer, tables_of, trained_of
from tests.oracles.token_methods import Answer

DR_GRPO = recipes.dr_grpo().advantage


def answer(reward: float, ids: list[int], *, entropy: float = 0.0, group: int = 0) -> Answer:
    return Answer(group=group, reward=reward, ids=ids, entropy=[entropy] * len(ids), logp=[-0.5] * len(ids))


def credit_of(part: ConflictTokens, answers: list[Answer]) -> list[list[float]]:
    table, tokens = tables_of(answers)
    credit: TokenCredit = part(table, DR_GRPO(table).by_step(), tokens)
    return by_answer(credit, tokens, answers)


def test_gtpo_weighs_conflict_tokens() -> None:
    """objectives 6.1: positive [5,7,9,2], negative [5,7,8,4,2] have lambda [2,2,1,2] and [0,0,1,1,0]."""
    answers = [answer(1.0, [5, 7, 9, 2]), answer(0.0, [5, 7, 8, 4, 2])]
    good, bad = credit_of(ConflictTokens(entropy_weight=0.0), answers)
    assert good == [2 * 0.5, 2 * 0.5, 0.5, 2 * 0.5]
    assert bad == [0.0, 0.0, -0.5, -0.5, 0.0]


def test_gtpo_gives_a_token_in_both_runs_both_factors() -> None:
    """objectives 6.1: a token in both runs of a positive response gets 4; here answers of one token."""
    good, bad = credit_of(ConflictTokens(entropy_weight=0.0), [answer(1.0, [5]), answer(0.0, [5])])
    assert (good, bad) == ([4 * 0.5], [0.0])


def test_gtpo_takes_the_entropy_off() -> None:
    """objectives 6.1: A .5, Hbar .4: .46; A -.5, Hbar .3: -.53."""
    good, bad = credit_of(ConflictTokens(), [answer(1.0, [5], entropy=0.4), answer(0.0, [6], entropy=0.3)])
    assert (good, bad) == (pytest.approx([0.46]), pytest.approx([-0.53]))


def test_gtpo_drops_unsure_answers_of_a_policy_that_was_sure() -> None:
    """objectives 6.1: delta = 0 iff the initial policy's mean entropy < ln 2 and Hbar > ln 2."""
    answers = [answer(1.0, [5], entropy=0.8), answer(0.0, [6], entropy=0.5)]
    good, bad = credit_of(ConflictTokens(), answers)
    assert good == [0.0], "the answers' own mean entropy, .65, is below ln 2"
    assert bad == pytest.approx([-0.55])
    for row in answers:
        row.facts = {"initial_entropy": math.log(2)}
    assert credit_of(ConflictTokens(), answers)[0] == pytest.approx([0.42])


def z_scores(right: int, of: int) -> list[float]:
    """GRPO's credit with ddof 0 and without an epsilon."""
    p = right / of
    spread = math.sqrt(p * (1 - p)) or 1.0
    return [(1 - p) / spread] * right + [-p / spread] * (of - right)


def test_d3s_picks_the_most_varied_samples() -> None:
    """sampling 2.9: 1/8, 4/8, 8/8, 0/8 correct: Var .5; N = 8 gives 1.707680 with k = 4."""
    values = np.array([value for right in (1, 4, 8, 0) for value in z_scores(right, 8)])
    assert np.var(values) == pytest.approx(0.5)
    chosen = sorted(values[choose_most_varied(values, 8)], reverse=True)
    assert chosen == pytest.approx([math.sqrt(7), 1, 1, 1, -1, -1, -1, -1])
    assert np.var(chosen) == pytest.approx(1.707680, abs=1e-6)


def test_d3s_picks_tokens_by_credit_times_entropy() -> None:
    """sampling 2.9: |A| (2.6458, 2.6458, .378, 1), H (.1, 1.2, 2, .9): the top 2 are tokens 1 and 3."""
    answers = [
        Answer(group=0, reward=2.6458, ids=[1, 2], entropy=[0.1, 1.2], logp=[-0.1, -0.1]),
        Answer(group=0, reward=0.378, ids=[3], entropy=[2.0], logp=[-0.1]),
        Answer(group=0, reward=1.0, ids=[4], entropy=[0.9], logp=[-0.1]),
    ]
    table, tokens = tables_of(answers)
    alone = recipes.reinforce_pp().advantage.of(table)  # type: ignore[attr-defined]  # the returns themselves
    part = DualDownSampling(first_samples=1.0, first_tokens=0.5)
    assert trained_of(part(table, alone.by_step(), tokens), tokens, answers) == [[False, True], [False], [True]]


def test_d3s_relaxes_by_the_schedule() -> None:
    """sampling 2.9: (64 to 256, 20 to 100 %) at p = .5: 160 samples, 60 % of their tokens."""
    part = DualDownSampling(first_samples=0.25, first_tokens=0.2)
    answers = [answer(float(n % 2), [5] * 5, entropy=0.5, group=n // 8) for n in range(256)]
    for row in answers:
        row.facts = {"down_sampling_progress": 0.5}
    table, tokens = tables_of(answers)
    trains = part(table, DR_GRPO(table).by_step(), tokens).trains
    assert trains.sum() == 160 * 5 * 0.6
