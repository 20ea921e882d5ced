"""Each method that gives tokens credit equals its oracle on random groups of answers, and derives its own numbers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from groupwise import StepTable, methods
from groupwise.credit import DiscountedTokens, FirstTokens, TokenGae, TokenReturn, WhitenedTokens
from groupwise.data.token_table import TokenTable
from groupwise.methods.after_vsrm import LineGains
from groupwise.methods.bcpg_nsa import SparedSegments
from groupwise.methods.d3s import PROGRESS, DualDownSampling
from groupwise.methods.dcpo import TemperedCredit
from groupwise.methods.gtpo import ConflictTokens
from groupwise.methods.prorag import JudgedCredit
from groupwise.methods.rank_grpo import RankCredit
from groupwise.methods.spae import PotentialCredit
from groupwise.methods.spo_chain import SegmentCredit
from groupwise.methods.verl import LEVELS, RankBonus
from groupwise.parts.algorithm import Algorithm
from groupwise.report.explained_step import explain_token
from tests.oracles import token_methods as oracle
from tests.oracles.random_answers import add_segments, by_answer, masks_by_answer, random_answers, tables_of
from tests.oracles.token_methods import Answer

NUM_TABLES = 150


def check_derivations(algorithm: Algorithm, table: StepTable, tokens: TokenTable) -> None:
    """Every number that trains is derived again, by hand, to the same."""
    credit = algorithm.credit(table)
    for token in range(len(tokens)):
        step, position = int(tokens.row[token]), int(tokens.position[token])
        explained = explain_token(algorithm, table, credit, tokens, step=step, position=position)
        assert explained.gap < 1e-9, explained
        assert not explained.not_derived


@pytest.mark.parametrize(
    ("options", "own"),
    [
        ({}, {}),
        ({"boost": 3.0, "entropy_weight": 0.0}, {"boost": 3.0, "gamma": 0.0}),
        ({"max_entropy": 0.25}, {"limit": 0.25}),
        ({"divides_by_conflicts": True}, {"divides": True}),
    ],
)
def test_gtpo(options: dict[str, Any], own: dict[str, Any]) -> None:
    rng = random.Random(f"gtpo {options}")
    algorithm = methods.gtpo().model_copy(update={"token_credit": ConflictTokens(**options)})
    for number in range(NUM_TABLES):
        answers = random_answers(rng)
        initial = rng.choice([None, 0.1, 0.6, 2.0])
        for answer in answers:
            answer.info = {} if initial is None else {"initial_entropy": initial}
        table, tokens = tables_of(answers)
        assert algorithm.token_credit is not None
        credit = algorithm.token_credit(table, algorithm.credit(table).by_step(), tokens)
        expected = oracle.gtpo(answers, initial=initial, **own)
        for got, wanted in zip(by_answer(credit, tokens, answers), expected, strict=True):
            assert got == pytest.approx(wanted, abs=1e-12)
        assert credit.trains.all()
        if number < 8:
            check_derivations(algorithm, table, tokens)


@pytest.mark.parametrize("progress", [None, 0.0, 0.5, 1.0])
def test_d3s(progress: float | None) -> None:
    rng = random.Random(f"d3s {progress}")
    algorithm, at = methods.d3s(first_tokens=1.0), progress or 0.0
    for number in range(NUM_TABLES // 2):
        answers = random_answers(rng, groups=2)
        for answer in answers:
            answer.info = {} if progress is None else {PROGRESS: progress}
        table, tokens = tables_of(answers)
        steps = algorithm.credit(table)
        assert algorithm.token_credit is not None
        credit = algorithm.token_credit(table, steps.by_step(), tokens)
        own = steps.values.tolist()
        assert by_answer(credit, tokens, answers) == [[own[i]] * len(a.ids) for i, a in enumerate(answers)]
        trained = masks_by_answer(credit, tokens, answers)
        assert all(all(flags) or not any(flags) for flags in trained)
        chosen = [own[i] for i, flags in enumerate(trained) if all(flags)]
        assert len(chosen) == int(np.ceil(((1 - at) * 0.25 + at) * len(answers) - 1e-9))
        assert np.var(chosen) == pytest.approx(oracle.largest_variance(own, len(chosen)), abs=1e-12)
        if number < 8:
            check_derivations(algorithm, table, tokens)


def test_d3s_keeps_the_tokens_with_most_credit_times_entropy() -> None:
    rng = random.Random("tokens")
    part = DualDownSampling(first_samples=1.0, first_tokens=0.4)
    estimator = methods.grpo().advantage
    for _ in range(NUM_TABLES):
        answers = random_answers(rng)
        table, tokens = tables_of(answers)
        steps = estimator(table)
        trained = masks_by_answer(part(table, steps.by_step(), tokens), tokens, answers)
        total = sum(len(answer.ids) for answer in answers)
        kept = oracle.top_tokens(steps.values.tolist(), [a.entropy for a in answers], int(np.ceil(0.4 * total - 1e-9)))
        assert {(i, k) for i, flags in enumerate(trained) for k, flag in enumerate(flags) if flag} == kept


Wanted = list[list[float]]
RLOO, DR_GRPO, GRPO = (methods.build(name).advantage for name in ("rloo", "dr_grpo", "grpo"))
OTHERS: dict[str, tuple[Any, Any, Callable[[list[Answer], list[float]], Wanted]]] = {
    "spo_chain": (RLOO, SegmentCredit(max_probability=None), oracle.spo_chain),
    "gae": (DR_GRPO, TokenGae(gamma=0.9, lam=0.8), lambda a, c: oracle.token_gae(a, c, gamma=0.9, lam=0.8)),
    "gae of 1": (DR_GRPO, TokenGae(gamma=1.0, lam=1.0), lambda a, c: oracle.token_gae(a, c, gamma=1.0, lam=1.0)),
    "vsrm": (DR_GRPO, LineGains(), oracle.vsrm),
    "vsrm, other settings": (
        DR_GRPO,
        LineGains(weight=0.5, min_change=0.3, gamma=0.9, window=1, idle_cost=0.02),
        lambda a, c: oracle.vsrm(a, c, weight=0.5, eps=0.3, gamma=0.9, window=1, kappa=0.02),
    ),
    "spae": (DR_GRPO, PotentialCredit(), oracle.spae),
    "spae, praise only": (
        DR_GRPO,
        PotentialCredit(alpha=0.9, xi=0.2, saturated_above=0.4, damps_praise_only=True),
        lambda a, c: oracle.spae(a, c, alpha=0.9, xi=0.2, known=0.4, praise_only=True),
    ),
    "bcpg_nsa": (DR_GRPO, SparedSegments(), oracle.bcpg_nsa),
    "bcpg_nsa, other settings": (
        GRPO,
        SparedSegments(beta=-0.5, right_above=-1.0),
        lambda a, c: oracle.bcpg_nsa(a, c, beta=-0.5, above=-1.0),
    ),
    "prorag": (GRPO, JudgedCredit(), oracle.prorag),
    "prorag, other settings": (
        GRPO,
        JudgedCredit(weight=2.0, per="segment", squashes=False),
        lambda a, c: oracle.prorag(a, c, weight=2.0, per="segment", squashes=False),
    ),
    "rank_grpo": (GRPO, RankCredit(), oracle.rank_grpo),
    "rank_grpo, what follows counts": (
        GRPO,
        RankCredit(reward="log_decay", eps=0.5, overflow=-0.3, exact_end=0.2, early_end=-0.7),
        lambda a, c: oracle.rank_grpo(a, c, decay=True, eps=0.5, overflow=-0.3, exact=0.2, early=-0.7),
    ),
    "dcpo": (GRPO, TemperedCredit(), lambda a, c: oracle.dcpo(a, c, target=0.5, last=0.0)),
}
"""Estimator, part and oracle; the oracle is handed the credit of the steps, which has an oracle of its own."""


@pytest.mark.parametrize("name", OTHERS)
def test_the_others(name: str) -> None:
    rng = random.Random(name)
    estimator, part, expected = OTHERS[name]
    for number in range(NUM_TABLES):
        answers = random_answers(rng)
        add_segments(rng, answers)
        table, tokens = tables_of(answers)
        steps = estimator(table)
        credit = part(table, steps.by_step(), tokens)
        wanted = expected(answers, steps.values.tolist())
        for got, row in zip(by_answer(credit, tokens, answers), wanted, strict=True):
            assert got == pytest.approx(row, abs=1e-12)
        assert credit.trains.all()
        if number < 5:
            check_derivations(Algorithm(advantage=estimator, token_credit=part), table, tokens)


@pytest.mark.parametrize(("target", "last"), [(0.5, 0.42), (0.25, 0.3), (0.5, 3.0)])
def test_dcpo_follows_the_entropy_of_the_update_before(target: float, last: float) -> None:
    rng, part = random.Random(f"dcpo {target}"), TemperedCredit(target=target)
    for _ in range(NUM_TABLES // 3):
        answers = random_answers(rng)
        add_segments(rng, answers)
        for answer in answers:
            answer.info["last_entropy"] = last
        table, tokens = tables_of(answers)
        steps = GRPO(table)
        wanted = oracle.dcpo(answers, steps.values.tolist(), target=target, last=last)
        for got, row in zip(by_answer(part(table, steps.by_step(), tokens), tokens, answers), wanted, strict=True):
            assert got == pytest.approx(row, abs=1e-12)


def test_bcpg_nsa_spares_nothing_where_a_response_was_cut_off() -> None:
    rng, part = random.Random("cut"), SparedSegments(beta=0.0)
    for _ in range(NUM_TABLES // 3):
        answers = random_answers(rng)
        add_segments(rng, answers)
        for answer in answers:
            answer.info["cut"] = rng.random() < 0.5
        table, tokens = tables_of(answers)
        steps = DR_GRPO(table)
        wanted = oracle.bcpg_nsa(answers, steps.values.tolist(), beta=0.0)
        assert by_answer(part(table, steps.by_step(), tokens), tokens, answers) == wanted


@pytest.mark.parametrize("per", ["token", "segment"])
def test_prorag_with_the_form_as_it_was_meant(per: Any) -> None:
    rng, part = random.Random(f"form {per}"), JudgedCredit(per=per, step_format="intended")
    for number in range(NUM_TABLES // 3):
        answers = random_answers(rng)
        add_segments(rng, answers)
        for answer in answers:
            answer.info["well_formed"] = rng.random() < 0.8
        table, tokens = tables_of(answers)
        steps = GRPO(table)
        wanted = oracle.prorag(answers, steps.values.tolist(), per=per, intended=True)
        for got, row in zip(by_answer(part(table, steps.by_step(), tokens), tokens, answers), wanted, strict=True):
            assert got == pytest.approx(row, abs=1e-12)
        if number < 3:
            check_derivations(Algorithm(advantage=GRPO, token_credit=part), table, tokens)


@pytest.mark.parametrize("levels", [None, (2.0, 0.3, -0.1), (3.0, 0.0, 0.0), (0.0, -0.5, 1e-9)])
@pytest.mark.parametrize("options", [{}, {"weight": 0.2, "gain": -7.0, "kappa": 1.0}, {"placement": "last"}])
def test_verl(levels: tuple[float, ...] | None, options: dict[str, Any]) -> None:
    rng, part = random.Random(f"verl {levels} {options}"), RankBonus(**options)
    own = {name: value for name, value in options.items() if name != "placement"} | {"last": "placement" in options}
    for number in range(NUM_TABLES // 3):
        answers = random_answers(rng)
        add_segments(rng, answers)
        for answer in answers if levels else ():
            answer.info |= dict(zip(LEVELS, levels or (), strict=True))
        table, tokens = tables_of(answers)
        steps = GRPO(table)
        wanted = oracle.verl(answers, steps.values.tolist(), levels=levels, **own)
        for got, row in zip(by_answer(part(table, steps.by_step(), tokens), tokens, answers), wanted, strict=True):
            assert got == pytest.approx(row, abs=1e-12)
        if number < 3:
            check_derivations(Algorithm(advantage=GRPO, token_credit=part), table, tokens)


@pytest.mark.parametrize("inner", [SegmentCredit(), FirstTokens(count=2), DiscountedTokens(gamma=0.5)])
def test_whitened_tokens(inner: Any) -> None:
    rng, part = random.Random("whitened"), WhitenedTokens(of=inner, eps=1e-4)
    for number in range(NUM_TABLES):
        answers = random_answers(rng)
        add_segments(rng, answers)
        table, tokens = tables_of(answers)
        steps = RLOO(table).by_step()
        bare, credit = inner(table, steps, tokens), part(table, steps, tokens)
        flags = masks_by_answer(bare, tokens, answers)
        wanted = oracle.whiten(by_answer(bare, tokens, answers), flags, 1e-4)
        for got, row, mask in zip(by_answer(credit, tokens, answers), wanted, flags, strict=True):
            trained = [(g, w) for g, w, is_trained in zip(got, row, mask, strict=True) if is_trained]
            assert [g for g, _ in trained] == pytest.approx([w for _, w in trained], abs=1e-9)
        if number < 5:
            check_derivations(Algorithm(advantage=RLOO, token_credit=part), table, tokens)


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_the_return_of_a_token_over_several_steps(gamma: float) -> None:
    """Two rollouts of two and of one step; rewards stand on the last token of their step."""
    table = StepTable.from_columns(
        task=["t"] * 3, rollout=[0, 0, 1], step=[0, 1, 0], reward=[0.5, 2.0, -1.0], tokens=[2, 3, 1]
    )
    tokens = TokenTable.from_rows(table, [{"response_ids": [1, 2]}, {"response_ids": [3, 4, 5]}, {"response_ids": [6]}])
    credit = TokenReturn(gamma=gamma)(table, DR_GRPO(table).by_step(), tokens)
    rewards = [0.0, 0.5, 0.0, 0.0, 2.0]
    expected = [sum(gamma ** (j - k) * rewards[j] for j in range(k, 5)) for k in range(5)]
    assert credit.values.tolist() == pytest.approx([*expected, -1.0])
    check_derivations(Algorithm(advantage=DR_GRPO, token_credit=TokenReturn(gamma=gamma)), table, tokens)
