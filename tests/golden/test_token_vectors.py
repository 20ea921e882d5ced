"""The numbers of the methods that give tokens credit that conformance/numbers.md works out, through their parts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from groupwise import methods
from groupwise.data.credit import TokenCredit
from groupwise.losses import PolicyLoss
from groupwise.methods.after_vsrm import LineGains
from groupwise.methods.bcpg_nsa import SparedSegments
from groupwise.methods.d3s import DualDownSampling, choose_max_variance
from groupwise.methods.dcpo import TemperedCredit
from groupwise.methods.gtpo import ConflictTokens
from groupwise.methods.prorag import JudgedCredit
from groupwise.methods.rank_grpo import RankCredit
from groupwise.methods.spae import PotentialCredit, compute_potential
from groupwise.methods.spo_chain import SegmentCredit
from groupwise.methods.verl import LEVELS, RANKS, RankBonus, compute_effective_rank, measure_growth
from tests.oracles.losses import Token
from tests.oracles.random_answers import by_answer, masks_by_answer, tables_of
from tests.oracles.token_batches import columns_of, run, totals_of
from tests.oracles.token_methods import Answer

DR_GRPO = methods.dr_grpo().advantage


def answer(reward: float, ids: list[int], *, entropy: float = 0.0, group: int = 0) -> Answer:
    return Answer(group=group, reward=reward, ids=ids, entropy=[entropy] * len(ids), logp=[-0.5] * len(ids))


def credit_of(part: ConflictTokens, answers: list[Answer]) -> list[list[float]]:
    table, tokens = tables_of(answers)
    credit: TokenCredit = part(table, DR_GRPO(table).by_step(), tokens)
    return by_answer(credit, tokens, answers)


def test_gtpo_weighs_conflict_tokens() -> None:
    """numbers, GTPO: positive [5,7,9,2], negative [5,7,8,4,2] have lambda [2,2,1,2] and [0,0,1,1,0]."""
    answers = [answer(1.0, [5, 7, 9, 2]), answer(0.0, [5, 7, 8, 4, 2])]
    good, bad = credit_of(ConflictTokens(entropy_weight=0.0), answers)
    assert good == [2 * 0.5, 2 * 0.5, 0.5, 2 * 0.5]
    assert bad == [0.0, 0.0, -0.5, -0.5, 0.0]


def test_gtpo_gives_a_token_in_both_runs_both_factors() -> None:
    """numbers, GTPO: a token in both runs of a positive response gets 4; here answers of one token."""
    good, bad = credit_of(ConflictTokens(entropy_weight=0.0), [answer(1.0, [5]), answer(0.0, [5])])
    assert (good, bad) == ([4 * 0.5], [0.0])


def test_gtpo_takes_the_entropy_off() -> None:
    """numbers, GTPO: A .5, Hbar .4: .46; A -.5, Hbar .3: -.53."""
    good, bad = credit_of(ConflictTokens(), [answer(1.0, [5], entropy=0.4), answer(0.0, [6], entropy=0.3)])
    assert (good, bad) == (pytest.approx([0.46]), pytest.approx([-0.53]))


def test_gtpo_drops_unsure_answers_of_a_policy_that_was_sure() -> None:
    """numbers, GTPO: delta = 0 iff the initial policy's mean entropy < ln 2 and Hbar > ln 2."""
    answers = [answer(1.0, [5], entropy=0.8), answer(0.0, [6], entropy=0.5)]
    good, bad = credit_of(ConflictTokens(), answers)
    assert good == [0.0], "the answers' own mean entropy, .65, is below ln 2"
    assert bad == pytest.approx([-0.55])
    for row in answers:
        row.info = {"initial_entropy": math.log(2)}
    assert credit_of(ConflictTokens(), answers)[0] == pytest.approx([0.42])


def z_scores(right: int, of: int) -> list[float]:
    """GRPO's credit with ddof 0 and without an epsilon."""
    p = right / of
    spread = math.sqrt(p * (1 - p)) or 1.0
    return [(1 - p) / spread] * right + [-p / spread] * (of - right)


def test_d3s_picks_the_most_varied_samples() -> None:
    """numbers, D3S: 1/8, 4/8, 8/8, 0/8 correct: Var .5; N = 8 gives 1.707680 with k = 4."""
    values = np.array([value for right in (1, 4, 8, 0) for value in z_scores(right, 8)])
    assert np.var(values) == pytest.approx(0.5)
    chosen = sorted(values[choose_max_variance(values, 8)], reverse=True)
    assert chosen == pytest.approx([math.sqrt(7), 1, 1, 1, -1, -1, -1, -1])
    assert np.var(chosen) == pytest.approx(1.707680, abs=1e-6)


def test_d3s_picks_tokens_by_credit_times_entropy() -> None:
    """numbers, D3S: |A| (2.6458, 2.6458, .378, 1), H (.1, 1.2, 2, .9): the top 2 are tokens 1 and 3."""
    answers = [
        Answer(group=0, reward=2.6458, ids=[1, 2], entropy=[0.1, 1.2], logp=[-0.1, -0.1]),
        Answer(group=0, reward=0.378, ids=[3], entropy=[2.0], logp=[-0.1]),
        Answer(group=0, reward=1.0, ids=[4], entropy=[0.9], logp=[-0.1]),
    ]
    table, tokens = tables_of(answers)
    alone = methods.reinforce_pp().advantage.of(table)  # type: ignore[attr-defined]  # the returns themselves
    part = DualDownSampling(first_samples=1.0, first_tokens=0.5)
    assert masks_by_answer(part(table, alone.by_step(), tokens), tokens, answers) == [[False, True], [False], [True]]


def test_d3s_relaxes_by_the_schedule() -> None:
    """numbers, D3S: (64 to 256, 20 to 100 %) at p = .5: 160 samples, 60 % of their tokens."""
    part = DualDownSampling(first_samples=0.25, first_tokens=0.2)
    answers = [answer(float(n % 2), [5] * 5, entropy=0.5, group=n // 8) for n in range(256)]
    for row in answers:
        row.info = {"down_sampling_progress": 0.5}
    table, tokens = tables_of(answers)
    trains = part(table, DR_GRPO(table).by_step(), tokens).trains
    assert trains.sum() == 160 * 5 * 0.6


def test_line_gains_of_a_changing_accuracy() -> None:
    """numbers, After VSRM: accuracies .25, .25, .25, .75, .75, .5."""
    accuracy = [0.25, 0.25, 0.25, 0.75, 0.75, 0.5]
    made = answer(1.0, [1, 2, 3, 4, 5])
    made.info = {"line_token_ends": [1, 2, 3, 4, 5], "line_accuracy": accuracy}
    table, tokens = tables_of([made])
    credit = LineGains()(table, DR_GRPO(table).by_step(), tokens)
    assert credit.values.tolist() == pytest.approx([0.245, 0.35, 0.5, -0.175, -0.25])


@pytest.mark.parametrize(
    ("accuracy", "confidence", "potential"),
    [(0, 1, -1), (1, 1, 1), (1, 0, 0.5), (0, 0, 0), (0.5, 0.5, 0.125), (0.9, 0.8, 0.73)],
)
def test_the_potential(accuracy: float, confidence: float, potential: float) -> None:
    """numbers, SPAE: Phi of accuracy and confidence."""
    assert compute_potential(accuracy, confidence) == pytest.approx(potential)


def test_spae_damps_and_adds() -> None:
    """numbers, SPAE: Phi -.4, .1, .92, .95, .97 and A = .5."""
    good = answer(1.0, [1, 2, 3, 4, 5])
    good.info = {"potential_ends": [1, 2, 3, 4, 5], "potentials": [-0.4, 0.1, 0.92, 0.95, 0.97]}
    bad = answer(0.0, [])
    table, tokens = tables_of([good, bad])
    credit = PotentialCredit()(table, DR_GRPO(table).by_step(), tokens)
    assert credit.values.tolist() == pytest.approx([0.1357, 0.6813, 0.9948, 0.1890, 0.1250], abs=5.1e-5)


def test_dcpo_mixes_a_second_ratio_in() -> None:
    """numbers, DCPO: target .5, H .42, a quarter right: w = .242424; T1's right 1.446765, wrong -.409137."""
    answers = [answer(reward, [5]) for reward in (1, 0, 0, 1, 0, 0, 0, 0)]
    for row in answers:
        row.info = {"logp_hot": [-0.6], "logp_cold": [-9.0], "last_entropy": 0.42}
    table, tokens = tables_of(answers)
    part = TemperedCredit()
    assert part.find_weight(0.42, 0.25) == pytest.approx(0.242424, abs=1e-6)
    values = part(table, methods.grpo(eps=0.0).advantage(table).by_step(), tokens).values
    assert values[[0, 1]].tolist() == pytest.approx([1.446765, -0.409137], abs=1e-5)


@pytest.mark.parametrize(
    ("temperature", "ratios"), [(1.2, [0.925925, 1.093851, 1.292232]), (0.8, [1.098368, 0.855410, 0.666194])]
)
def test_dcpo_ratios_of_three_logits(temperature: float, ratios: list[float]) -> None:
    """numbers, DCPO: logits 2, 1, 0 at two temperatures."""

    def log_softmax(logits: list[float]) -> list[float]:
        total = math.log(sum(math.exp(logit) for logit in logits))
        return [logit - total for logit in logits]

    answers = [answer(1.0, [5]) for _ in range(3)]
    plain, tempered = log_softmax([2.0, 1.0, 0.0]), log_softmax([logit / temperature for logit in (2.0, 1.0, 0.0)])
    for row, logp, other in zip(answers, plain, tempered, strict=True):
        row.logp, row.info = [logp], {"logp_hot": [other], "logp_cold": [other]}
    table, tokens = tables_of(answers)
    values = TemperedCredit(target=1.0, max_gap=1e9)(table, DR_GRPO(table).by_step(), tokens).values
    assert (2 * values).tolist() == pytest.approx(ratios, abs=1e-6), "a weight of a half, and no other credit"


def test_spo_gives_a_segment_what_it_changed() -> None:
    """numbers, SPO: values .5 before, .75 and .25 half-way, a right answer: +.25, -.5, +.75."""
    good, bad = answer(1.0, [1, 2, 3, 4]), answer(0.0, [1])
    good.info = {"segment_ends": [1, 3, 4], "segment_values": [0.75, 0.25]}
    bad.info = {"segment_ends": [1], "segment_values": []}
    table, tokens = tables_of([good, bad])
    credit = SegmentCredit(max_probability=None)(table, DR_GRPO(table).by_step(), tokens)
    assert credit.values.tolist() == [0.25, -0.5, -0.5, 0.75, -0.5]


@pytest.mark.parametrize(("num", "rank"), [(4, 2.0), (3, 1.928623), (2, 1.0), (1, 0.0)])
def test_effective_ranks_of_a_cross(num: int, rank: float) -> None:
    """numbers, VERL: rows (1,0), (0,1), (-1,0), (0,-1) have rank 2; three of them 1.928623, two 1."""
    cross = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    assert compute_effective_rank(cross[:num]) == pytest.approx(rank, abs=1e-6)


def test_a_rank_that_grows_ever_slower() -> None:
    """numbers, VERL: m = 1.2, 1.6, 1.9, 2: velocity .444444, acceleration .016667."""
    assert measure_growth([1.2, 1.6, 1.9, 2.0]) == pytest.approx((0.444444, 0.016667), abs=1e-6)


@pytest.mark.parametrize(
    ("acceleration", "own", "shaped"),
    [(1.0, 1.620182, 1.780820), (1.0, -0.540061, -0.379423), (-1.0, 1.620182, 1.620182), (1.0, 0.2, 0.3)],
)
def test_a_rank_bonus(acceleration: float, own: float, shaped: float) -> None:
    """numbers, VERL: u of rank .25 and velocity -.5 with acceleration 1 give Phi .160638, with -1 none."""
    made = answer(own, [1, 2])
    deviations = dict(zip(RANKS, (0.25, -0.5, acceleration), strict=True))
    made.info = {name: 2.0 * (1 + deviation) for name, deviation in deviations.items()} | dict.fromkeys(LEVELS, 2.0)
    table, tokens = tables_of([made])
    credit = methods.reinforce_pp().advantage.of(table)  # type: ignore[attr-defined]  # the returns themselves
    values = RankBonus()(table, credit.by_step(), tokens).values
    assert values.tolist() == pytest.approx([shaped] * 2, abs=1e-6)
    last = RankBonus(placement="last")(table, credit.by_step(), tokens).values
    assert last.tolist() == pytest.approx([own, shaped], abs=1e-6)


def prorag_answers() -> list[Answer]:
    """Four answers that earned 2.8, 1, 1 and -1; the first and the last were judged, the others have no token."""
    answers = [answer(reward, [1] * size) for reward, size in ((2.8, 5), (1.0, 0), (1.0, 0), (-1.0, 4))]
    for made, ends, scores in zip(answers, ([3, 5], [], [], [4]), ([2.0, -1.0], [], [], [0.0]), strict=True):
        made.info = {"judged_ends": ends, "judged_scores": scores, "well_formed": made.reward > 0}
    return answers


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({}, (1.583877, 0.797507), -1.353169),
        ({"per": "segment"}, (1.191613 + 0.3 * 1.311627, 1.191613 - 0.3 * 1.113772), -1.256025 - 0.3 * 0.197855),
        ({"step_format": "intended"}, (1.503865, 1.387266), -1.588040),
    ],
)
def test_prorag_adds_how_steps_were_judged(options: dict[str, str], first: tuple[float, float], last: float) -> None:
    """numbers, ProRAG: 3 tokens with logit 2, 2 with -1, and 4 with 0 in another answer."""
    algorithm, answers = methods.prorag(**options), prorag_answers()
    table, tokens = tables_of(answers)
    steps = algorithm.advantage(table)
    assert steps.values.tolist() == pytest.approx([1.191613, 0.032206, 0.032206, -1.256025], abs=1e-6)
    assert isinstance(algorithm.token_credit, JudgedCredit)
    rows = by_answer(algorithm.token_credit(table, steps.by_step(), tokens), tokens, answers)
    assert rows[0] == pytest.approx([first[0]] * 3 + [first[1]] * 2, abs=2e-6)
    assert rows[3] == pytest.approx([last] * 4, abs=2e-6)


def test_prorag_compares_what_answers_earned() -> None:
    """numbers, ProRAG: F1 of 1, .5, .1, 0 with a malformed last one earn 3, 2, 1, -1."""
    table, _ = tables_of([answer(reward, [1]) for reward in (3.0, 2.0, 1.0, -1.0)])
    values = methods.prorag().advantage(table).values.tolist()
    assert values == pytest.approx([1.0246, 0.4391, -0.1464, -1.3174], abs=1e-4)


def test_rank_grpo_compares_rank_by_rank() -> None:
    """numbers, Rank-GRPO: lists [1,0,1], [0,0,1], [0,0,0], [0,1,0]: the first has 1.499700, -0.499900, 0.865875."""
    listed = [[1, 0, 1], [0, 0, 1], [0, 0, 0], [0, 1, 0]]
    answers = [answer(0.0, [4, 5, 6, 0]) for _ in listed]
    for said, relevance in zip(answers, listed, strict=True):
        places = [[0, 1], [1, 2], [2, 3]]
        said.info = {"list_length": 3, "item_relevance": relevance, "item_tokens": places, "end_token": 3}
    table, tokens = tables_of(answers)
    credit = RankCredit()(table, DR_GRPO(table).by_step(), tokens)
    assert by_answer(credit, tokens, answers)[0] == pytest.approx([1.499700, -0.499900, 0.865875, 0.1], abs=1e-6)
    assert credit.span is not None
    assert credit.span[:4].tolist() == [0, 1, 2, 4]


def test_rank_grpo_pays_what_follows_a_rank() -> None:
    """numbers, Rank-GRPO: discounts [1, 0.630930, 0.5]; hits [1,0,1] pay [1.5, 0.5, 0.5], [1,1,1] 2.130930 at first."""
    part = RankCredit(reward="log_decay")
    assert part.pay_ranks([1, 0, 1], 3) == pytest.approx([1.5, 0.5, 0.5])
    assert part.pay_ranks([1, 1, 1], 3) == pytest.approx([2.130930, 1.130930, 0.5], abs=1e-6)
    assert RankCredit().pay_ranks([1, 0, 1, 1], 3) == [1, 0, 1]
    assert RankCredit().pay_ranks([1], 3) == [1, 0, 0]


LOGPS = ([-0.2, -0.1, -0.3], [-0.5, -0.4, -0.6, -0.5], [-1.0, -0.8], [-0.3, -0.3])
REFERENCES = ([-0.3, -0.1, -0.4], [-0.4, -0.4, -0.5, -0.5], [-0.9, -0.9], [-0.3, -0.5])


def bcpg_answers() -> list[Answer]:
    """Right, wrong, wrong, right; the first two tokens of the second answer are a right step."""
    answers = [answer(reward, [1] * len(logps)) for reward, logps in zip((1.0, 0.0, 0.0, 1.0), LOGPS, strict=True)]
    for made, ends, scores in zip(answers, ([3], [2, 4], [2], [2]), ([0.0], [1.0, 0.0], [0.0], [1.0]), strict=True):
        made.info = {"judged_ends": ends, "judged_scores": scores}
    return answers


@pytest.mark.parametrize(
    ("beta", "tau", "objective", "second", "others"),
    [
        (1.0, 1e-3, 0.112495, [-0.031238] * 4, (0.041650, -0.0625, 0.062475)),
        (0.5, 1e-3, 0.098432, [-0.015612, -0.015612, -0.031238, -0.031238], (0.041650, -0.0625, 0.062475)),
        (0.0, 1e-3, 0.084370, [0.0000125, 0.0000125, -0.031238, -0.031238], (0.041650, -0.0625, 0.062475)),
        (-0.5, 1e-3, 0.070307, [0.015637, 0.015637, -0.031238, -0.031238], (0.041650, -0.0625, 0.062475)),
        (0.5, 0.5, 0.095729, [-0.009375, -0.009375, -0.025, -0.025], (0.033333, -0.0625, 0.05)),
    ],
)
def test_bcpg_nsa_blames_right_steps_of_wrong_answers_less(
    beta: float, tau: float, objective: float, second: list[float], others: tuple[float, float, float]
) -> None:
    """numbers, BCPG-NSA: the objective that is maximised, and its slope by each log-prob."""
    algorithm, answers = methods.bcpg_nsa(beta=beta, tau=tau), bcpg_answers()
    table, tokens = tables_of(answers)
    assert algorithm.token_credit is not None
    credit = algorithm.token_credit(table, algorithm.advantage(table).by_step(), tokens)
    rows = [
        Token(logp, 0.0, ref, 0.0, 0.0, value, trains=True, sample=number, step=0, trajectory=number)
        for number, values in enumerate(by_answer(credit, tokens, answers))
        for logp, ref, value in zip(LOGPS[number], REFERENCES[number], values, strict=True)
    ]
    assert isinstance(algorithm.loss, PolicyLoss)
    outcome = run(algorithm.loss, columns_of(rows), totals_of(rows))
    assert outcome.loss == pytest.approx(-objective, abs=1e-6)
    first, third, fourth = others
    expected = [first] * 3 + second + [third] * 2 + [fourth] * 2
    assert [-slope for slope in outcome.by_logp] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("beta", "spared"), [(0.5, -0.433013), (-0.5, 0.433013)])
def test_the_step_weight_composes_with_grpo(beta: float, spared: float) -> None:
    """numbers, BCPG-NSA: z-scores of the same rewards are +-0.866025."""
    answers = bcpg_answers()
    table, tokens = tables_of(answers)
    credit = SparedSegments(beta=beta)(table, methods.grpo().advantage(table).by_step(), tokens)
    assert by_answer(credit, tokens, answers)[1] == pytest.approx([spared] * 2 + [-0.866025] * 2, abs=2e-6)
