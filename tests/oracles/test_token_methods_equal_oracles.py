"""Each method that gives tokens credit equals its oracle on random groups of answers, and derives its own numbers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from groupwise import StepTable, recipes
from groupwise.advantages import ConflictTokens, DualDownSampling
from groupwise.advantages.dual_down_sampling import COLUMN, choose_most_varied
from groupwise.core.algorithm import Algorithm
from groupwise.core.token_table import TokenTable
from groupwise.reports.explain.token import explain_token
from tests.oracles import token_methods as oracle
from tests.oracles.random_answers import by_answer, random_answers, tables_of, trained_of

NUM_TABLES = 150


def check_derivations(algorithm: Algorithm, table: StepTable, tokens: TokenTable) -> None:
    """Every number that trains is derived again, by hand, to the same."""
    credit = algorithm.credit(table)
    for token in range(len(tokens)):
        step, position = int(tokens.step[token]), int(tokens.position[token])
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
    algorithm = recipes.gtpo().model_copy(update={"token_credit": ConflictTokens(**options)})
    for number in range(NUM_TABLES):
        answers = random_answers(rng)
        initial = rng.choice([None, 0.1, 0.6, 2.0])
        for answer in answers:
            answer.facts = {} if initial is None else {"initial_entropy": initial}
        table, tokens = tables_of(answers)
        assert algorithm.token_credit is not None
        credit = algorithm.token_credit(table, algorithm.credit(table).by_step(), tokens)
        expected = oracle.gtpo(answers, initial=initial, **own)
        for got, wanted in zip(by_answer(credit, tokens, answers), expected, strict=True):
            assert got == pytest.approx(wanted, abs=1e-12)
        assert credit.trains.all()
        if number < 8:
            check_derivations(algorithm, table, tokens)


@pytest.mark.parametrize("size", range(1, 13))
def test_the_most_varied_choice_is_that_of_trying_all(size: int) -> None:
    rng = random.Random(f"d3s {size}")
    for _ in range(4 if size > 9 else 12):
        values = [rng.choice([-1.0, 0.0, 0.5, 2.6458, rng.gauss(0, 1)]) for _ in range(size)]
        for num in range(1, size + 1):
            chosen = choose_most_varied(np.array(values), num).tolist()
            assert len(set(chosen)) == num
            assert np.var([values[place] for place in chosen]) == pytest.approx(
                oracle.largest_variance(values, num), abs=1e-12
            )


@pytest.mark.parametrize("progress", [None, 0.0, 0.5, 1.0])
def test_d3s(progress: float | None) -> None:
    rng = random.Random(f"d3s {progress}")
    algorithm, at = recipes.d3s(first_tokens=1.0), progress or 0.0
    for number in range(NUM_TABLES // 2):
        answers = random_answers(rng, groups=2)
        for answer in answers:
            answer.facts = {} if progress is None else {COLUMN: progress}
        table, tokens = tables_of(answers)
        steps = algorithm.credit(table)
        assert algorithm.token_credit is not None
        credit = algorithm.token_credit(table, steps.by_step(), tokens)
        own = steps.values.tolist()
        assert by_answer(credit, tokens, answers) == [[own[i]] * len(a.ids) for i, a in enumerate(answers)]
        trained = trained_of(credit, tokens, answers)
        assert all(all(flags) or not any(flags) for flags in trained)
        chosen = [own[i] for i, flags in enumerate(trained) if all(flags)]
        assert len(chosen) == int(np.ceil(((1 - at) * 0.25 + at) * len(answers) - 1e-9))
        assert np.var(chosen) == pytest.approx(oracle.largest_variance(own, len(chosen)), abs=1e-12)
        if number < 8:
            check_derivations(algorithm, table, tokens)


def test_d3s_keeps_the_tokens_with_most_credit_times_entropy() -> None:
    rng = random.Random("tokens")
    part = DualDownSampling(first_samples=1.0, first_tokens=0.4)
    estimator = recipes.grpo().advantage
    for _ in range(NUM_TABLES):
        answers = random_answers(rng)
        table, tokens = tables_of(answers)
        steps = estimator(table)
        trained = trained_of(part(table, steps.by_step(), tokens), tokens, answers)
        total = sum(len(answer.ids) for answer in answers)
        kept = oracle.top_tokens(steps.values.tolist(), [a.entropy for a in answers], int(np.ceil(0.4 * total - 1e-9)))
        assert {(i, k) for i, flags in enumerate(trained) for k, flag in enumerate(flags) if flag} == kept
