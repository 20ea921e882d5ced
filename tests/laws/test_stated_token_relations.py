"""The relations of methods inside an answer that their pages state, one test each; see test_stated_relations.py."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise import methods
from groupwise.credit import DiscountedTokens, FirstTokens
from groupwise.losses import (
    PolicyLoss,
    SequenceRatio,
)
from groupwise.methods.after_vsrm import LineGains
from groupwise.methods.bcpg_nsa import SparedSegments
from groupwise.methods.d3s import DualDownSampling, choose_max_variance
from groupwise.methods.dcpo import TemperedCredit
from groupwise.methods.prorag import JudgedCredit
from groupwise.methods.rank_grpo import RankCredit
from groupwise.methods.spae import PotentialCredit
from groupwise.methods.verl import LEVELS, RankBonus
from groupwise.models.pack import pad_rows
from tests.equivalence.method_losses import update
from tests.equivalence.models import build
from tests.equivalence.rollouts import make_tangled_samples
from tests.laws.stated import Statements, check_page, make_states, name_statements
from tests.oracles import token_methods as oracle
from tests.oracles.losses import Token
from tests.oracles.random_answers import add_segments, random_answers, tables_of
from tests.oracles.token_batches import columns_of, random_update, run, totals_of

STATED: Statements = []
states = make_states(STATED)
SEEDS = st.integers(0, 10**9)
drawn_updates = SEEDS.map(lambda seed: random_update(random.Random(seed)))

WEIGHTS_OF_ONE: dict[str, Any] = {
    "no discount": DiscountedTokens(gamma=1.0),
    "all tokens are first": FirstTokens(count=100),
    "everything is sampled": DualDownSampling(first_samples=1.0, first_tokens=1.0),
    "lines are paid nothing": LineGains(weight=0.0),
    "potentials count for nothing": PotentialCredit(alpha=0.0, xi=0.0),
    "the entropy is on target": TemperedCredit(target=0.0),
    "a judge of no weight": JudgedCredit(weight=0.0),
    "blame is whole": SparedSegments(beta=1.0),
    "no segment is right": SparedSegments(right_above=1e9),
    "a bonus of no weight": RankBonus(weight=0.0),
}
"""Parts that leave each token the credit of its step."""


def draw_answers(seed: int) -> list[oracle.Answer]:
    rng = random.Random(seed)
    answers = random_answers(rng)
    add_segments(rng, answers)
    for answer in answers:
        answer.info |= dict.fromkeys(LEVELS, 2.0)
    return answers


@states("d3s", "`d3s(first_samples=1, first_tokens=1)` = `grpo` without its KL and with the mean over tokens")
@states("spae", "`spae(alpha=0, xi=0)` = `dr_grpo`'s advantage")
@states("after_vsrm", "`after_vsrm(weight=0)` = `dr_grpo`'s advantage")
@states("bcpg_nsa", "`bcpg_nsa(beta=1)`, or a judge that calls no step right: the advantages of `dr_grpo`, bit-exact")
@states("verl", "`verl(weight=0)` has `grpo`'s advantage, bit-exact; so has the first update under any weight")
@states("prorag", "`prorag(weight=0)`, or a judge that scores all steps alike: the advantages of `grpo(eps=1e-4)`")
@states("dcpo", "If no answer is right, or the entropy is on target, `dcpo` has `grpo`'s advantage")
@pytest.mark.parametrize("name", WEIGHTS_OF_ONE)
@given(seed=SEEDS)
def test_token_weights_of_one_give_each_token_the_credit_of_its_step_to_the_bit(name: str, seed: int) -> None:
    table, tokens = tables_of(draw_answers(seed))
    steps = methods.dr_grpo().advantage(table).by_step()
    made = WEIGHTS_OF_ONE[name](table, steps, tokens)
    assert np.array_equal(made.values, steps.values[tokens.row])
    assert made.trains.all()


@states("bcpg_nsa", "`bcpg_nsa(beta=1, tau=0)` has the loss of `asymre(shift=0)`, REINFORCE, but each answer")
@given(tokens=drawn_updates)
def test_bcpg_without_its_weight_and_square_is_reinforce(tokens: list[Token]) -> None:
    part, plain = methods.bcpg_nsa(beta=1.0, tau=0.0).loss, methods.asymre(shift=0.0).loss
    assert isinstance(part, PolicyLoss)
    assert isinstance(plain, PolicyLoss)
    alike = plain.model_copy(update={"aggregate": part.aggregate})
    columns, totals = columns_of(tokens), totals_of(tokens)
    assert run(part, columns, totals) == run(alike, columns, totals)


BY_TOKEN = [name for name in methods.names() if methods.build(name).token_credit is not None]


@pytest.mark.parametrize("name", ["grpo", *BY_TOKEN])
def test_token_credit_of_the_step_is_none_to_the_bit_in_loss_and_gradient(name: str) -> None:
    loss: Any = methods.build(name).loss
    samples = [dataclasses.replace(sample, advantage=0.3 * n - 1.0) for n, sample in enumerate(make_tangled_samples())]
    by_token = [
        dataclasses.replace(sample, advantage=(0.3 * n - 1.0,) * len(sample.response_ids))
        for n, sample in enumerate(samples)
    ]
    plain = update(build("llama"), loss, samples, pad_rows(samples))
    spread = update(build("llama"), loss, by_token, pad_rows(by_token))
    assert plain[0] == spread[0]
    assert torch.equal(plain[1], spread[1])


@states(
    "gtpo", "`gtpo(boost=1, entropy_weight=0)` = `dr_grpo`'s advantage if no bad answer begins or ends as a good one"
)
@given(seed=SEEDS)
def test_gtpo_without_conflicts_and_entropy_has_the_credit_of_dr_grpo(seed: int) -> None:
    answers = draw_answers(seed)
    for number, answer in enumerate(answers):  # no token stands in two answers
        answer.ids = [1000 * number + place for place in range(len(answer.ids))]
        answer.info["initial_entropy"] = 99.0  # the run began unsure: none is left out for being so
    table, tokens = tables_of(answers)
    method = methods.gtpo(boost=1.0, entropy_weight=0.0)
    steps = methods.dr_grpo().advantage(table).by_step()
    assert method.advantage == methods.dr_grpo().advantage
    assert method.token_credit is not None
    assert np.array_equal(method.token_credit(table, steps, tokens).values, steps.values[tokens.row])


@states("spo_chain", "`spo_chain(whiten=False)` with one segment per answer has `rloo`'s advantage, bit-exact")
@given(seed=SEEDS)
def test_spo_with_one_segment_is_its_group_baseline_to_the_bit(seed: int) -> None:
    answers = draw_answers(seed)
    for answer in answers:
        answer.info |= {"segment_ends": [len(answer.ids)], "segment_values": []}
    table, tokens = tables_of(answers)
    algorithm = methods.spo_chain(whiten=False)
    assert algorithm.advantage == methods.rloo().advantage
    assert algorithm.token_credit is not None
    steps = algorithm.advantage(table).by_step()
    made = algorithm.token_credit(table, steps, tokens)
    assert np.array_equal(made.values, steps.values[tokens.row])
    assert np.array_equal(made.trains, np.exp(tokens.logp) < 0.9)


@states("rank_grpo", "With lists of one rank, the advantage of an item is that of `grpo(eps=1e-4)` on its relevance")
@pytest.mark.parametrize("reward", ["exp_inf", "log_decay"])
@given(seed=SEEDS)
def test_rank_grpo_on_lists_of_one_item_is_grpo_to_the_bit(reward: Any, seed: int) -> None:
    rng, answers = random.Random(seed), draw_answers(seed)
    for answer in answers:
        places = {"item_tokens": [[0, len(answer.ids)]], "end_token": None, "list_length": 1}
        answer.reward = rng.choice([0.0, 1.0, 2.5, 0.1])
        answer.info = {**places, "item_relevance": [answer.reward]}
    table, tokens = tables_of(answers)
    steps = methods.grpo(eps=1e-4).advantage(table).by_step()
    made = RankCredit(reward=reward)(table, methods.rank_grpo().advantage(table).by_step(), tokens)
    assert np.array_equal(made.values, steps.values[tokens.row])


@states("rank_grpo", "If each item is one token, its ratio is that of a token; if an answer is one span, GSPO's")
@given(tokens=drawn_updates)
def test_spans_of_one_token_and_one_span_an_answer_have_the_other_ratios_to_the_bit(tokens: list[Token]) -> None:
    kept = [token for token in tokens if token.trains]
    near = [dataclasses.replace(t, old=t.logp) if abs(t.logp - t.old) > 10 else t for t in kept]
    loss: Any = methods.rank_grpo().loss
    by_token = loss.model_copy(update={"ratio": PolicyLoss().ratio})
    by_answer = loss.model_copy(update={"ratio": SequenceRatio(unit="step")})
    totals = totals_of(near)
    alone = columns_of([dataclasses.replace(token, span=number) for number, token in enumerate(near)])
    assert run(loss, alone, totals) == run(by_token, alone, totals)
    whole = columns_of(
        [dataclasses.replace(token, span=3, sample=10 * token.trajectory + token.step) for token in near]
    )
    assert run(loss, whole, totals) == run(by_answer, whole, totals)


@states("d3s", "The answers that `d3s` chooses are those of the largest variance among all choices of as many")
@pytest.mark.parametrize("size", range(1, 13))
def test_the_choice_of_d3s_is_that_of_trying_all(size: int) -> None:
    rng = random.Random(f"d3s {size}")
    for _ in range(4 if size > 9 else 12):
        credit = [rng.choice([-1.0, 0.0, 0.5, 2.6458, rng.gauss(0, 1)]) for _ in range(size)]
        for num in range(1, size + 1):
            chosen = choose_max_variance(np.array(credit), num).tolist()
            assert len(set(chosen)) == num
            of_chosen = np.var([credit[place] for place in chosen])
            assert of_chosen == pytest.approx(oracle.largest_variance(credit, num), abs=1e-12)


@states("verl", "`verl(weight=0)` has `grpo`'s advantage, bit-exact; so has the first update under any weight")
@pytest.mark.parametrize("level", [None, -1.0, 2.0])
@given(seed=SEEDS)
def test_verl_without_weight_or_before_its_averages_is_grpo_to_the_bit(level: float | None, seed: int) -> None:
    answers = draw_answers(seed)
    for answer in answers:
        known = {name: info_key for name, info_key in answer.info.items() if name not in LEVELS}
        answer.info = known if level is None else known | dict.fromkeys(LEVELS, level)
    table, tokens = tables_of(answers)
    algorithm = methods.verl(weight=0.0 if level == 2.0 else 1.0)
    assert algorithm.advantage == methods.grpo().advantage
    assert isinstance(algorithm.token_credit, RankBonus)
    steps = algorithm.advantage(table).by_step()
    assert np.array_equal(algorithm.token_credit(table, steps, tokens).values, steps.values[tokens.row])


@pytest.mark.parametrize(("method", "words"), STATED, ids=name_statements(STATED))
def test_the_page_states_what_is_tested(method: str, words: str) -> None:
    check_page(method, words)
