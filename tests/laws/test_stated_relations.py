"""The relations between methods that their pages state, one test each: read the decorators as the list.

Each names the recipe on whose page it stands (`docs/methods/NAME.md`) and words of it that must be found there. Those
of credit by step are in test_relations.py.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise import recipes
from groupwise.advantages.token_credit import (
    DiscountedTokens,
    DualDownSampling,
    FirstTokens,
    LineGains,
    PotentialCredit,
    RankBonus,
    RankCredit,
    TemperedCredit,
)
from groupwise.advantages.token_credit.dual_down_sampling import choose_max_variance
from groupwise.advantages.token_credit.rank_memory import LEVELS
from groupwise.batching import pad_rows
from groupwise.losses import (
    Clip,
    Disco,
    Dpo,
    ElasticClip,
    EntropyBonus,
    Plain,
    PolicyLoss,
    Rec,
    Regression,
    SequenceMean,
    SequenceRatio,
    Simpo,
)
from tests.equivalence.models import build
from tests.equivalence.recipe_losses import update
from tests.equivalence.rollouts import make_tangled_samples
from tests.laws.attempts_as_tokens import Attempts, draw_attempts, learn_whole
from tests.laws.calls import table_of, values
from tests.oracles import token_methods as oracle
from tests.oracles.losses import Token
from tests.oracles.random_answers import add_segments, random_answers, tables_of
from tests.oracles.token_batches import columns_of, random_update, run, totals_of
from tests.strategies import Row, step_rows

METHODS = Path(__file__).parents[2] / "docs" / "methods"
STATED: list[tuple[str, str]] = []
Law = TypeVar("Law", bound=Callable[..., None])

SEEDS = st.integers(0, 10**9)
WIDTHS = st.floats(0, 1.5)
drawn_updates = SEEDS.map(lambda seed: random_update(random.Random(seed)))
drawn_attempts = SEEDS.map(draw_attempts)


def states(recipe: str, words: str) -> Callable[[Law], Law]:
    """The page of this recipe states the relation that is tested, in these words."""
    STATED.append((recipe, words))
    return lambda law: law


# Pairs and groups


@states("p3o", "`p3o(clip='none')`, on-policy, has the gradient of `rloo` on whole attempts, times (n - 1) / 2")
@given(attempts=drawn_attempts)
def test_p3o_over_all_pairs_without_a_clip_is_proportional_to_rloo(attempts: Attempts) -> None:
    """Sum over pairs of (R_i - R_j) / 2 (g_i - g_j) = (n - 1) / 2 x sum over attempts of A_i g_i."""
    paired = recipes.p3o(clip="none")
    assert paired.pairing is not None
    pairs = paired.pairing(attempts.table)
    assert paired.advantage == recipes.rloo().advantage
    credit = paired.advantage(attempts.table).values
    _, slopes = learn_whole(paired.loss, attempts.with_pairs(pairs))
    factor = -(attempts.size - 1) / 2 / max(len(pairs), 1)
    assert slopes == pytest.approx([factor * credit[token.trajectory] for token in attempts.tokens], abs=1e-12)


@states("simpo", "Attempts of L tokens each: `simpo(margin=0, beta=b)` = the loss of `dpo(beta=b / L)` without")
@given(attempts=drawn_attempts, beta=st.floats(0.1, 10))
def test_simpo_without_a_margin_is_dpo_without_a_reference_where_all_are_equally_long(
    attempts: Attempts, beta: float
) -> None:
    paired = attempts.with_pairs(recipes.simpo(pairs="all").pairing(attempts.table))  # type: ignore[misc]
    length = len(attempts.tokens) / attempts.num
    value, slopes = learn_whole(Simpo(beta=beta, margin=0.0), paired)
    total, others = learn_whole(Dpo(beta=beta / length, reference=False), paired)
    assert value == pytest.approx(total, rel=1e-12)
    assert slopes == pytest.approx(others, rel=1e-9, abs=1e-12)


@states("rpo", "`rpo(eta=0, beta=b)` = `dpo(beta=b)`")
@states("step_apo", "`step_apo(alpha=0, beta=b)` = the loss of `dpo(beta=b)`")
@given(attempts=drawn_attempts, beta=st.floats(0.1, 10))
def test_preferences_without_their_addition_are_dpo_to_the_bit(attempts: Attempts, beta: float) -> None:
    paired = attempts.with_pairs(recipes.dpo().pairing(attempts.table))  # type: ignore[misc]
    plain = learn_whole(recipes.dpo(beta=beta).loss, paired)
    assert learn_whole(recipes.rpo(beta=beta, eta=0.0).loss, paired) == plain
    assert learn_whole(recipes.step_apo(beta=beta, alpha=0.0).loss, paired) == plain


@states("disco", "For large tau, `disco` = `disco(negatives='mean')`")
@given(attempts=drawn_attempts)
def test_disco_for_large_tau_counts_all_failures_the_same(attempts: Attempts) -> None:
    value, slopes = learn_whole(Disco(tau=1e7), attempts)
    total, others = learn_whole(Disco(negatives="mean"), attempts)
    assert value == pytest.approx(total, abs=1e-6)
    assert slopes == pytest.approx(others, abs=1e-6)


@states("disco", "has the gradient of `dr_grpo`'s credit over p (1 - p), the mean over attempts, then tokens")
@given(attempts=drawn_attempts)
def test_disco_on_policy_is_dr_grpo_without_its_lean_to_middling_tasks(attempts: Attempts) -> None:
    """0/1 rewards: 1 / (n p) = (1 - p) / (n p (1 - p)) for a solved attempt, -1 / (n (1 - p)) for a failed one."""
    binary = attempts.with_binary_rewards()
    credit = recipes.dr_grpo().advantage(binary.table).values
    share = binary.table.tasks.mean(binary.table.episode_return)[binary.table.task]
    spread = np.where(share * (1 - share) > 0, share * (1 - share), 1.0)
    length = len(binary.tokens) / binary.num
    _, slopes = learn_whole(recipes.disco(negatives="mean").loss, binary)
    expected = -(credit / spread) / (binary.num * length)
    assert slopes == pytest.approx([expected[token.trajectory] for token in binary.tokens], abs=1e-12)


@states("reg_grpo", "At the first optimiser step of an update, `reg_grpo(kl=0)` has 2 / floor times the gradient of")
@given(attempts=drawn_attempts, floor=st.floats(0.1, 2))
def test_reg_grpo_begins_as_reinforce_on_the_credit_of_grpo(attempts: Attempts, floor: float) -> None:
    method = recipes.reg_grpo(floor=floor, kl=0.0)
    credit = recipes.grpo().advantage(attempts.table).values
    _, slopes = learn_whole(method.loss, attempts.with_credit(credit))
    expected = -2 / floor * credit / attempts.num
    assert slopes == pytest.approx([expected[token.trajectory] for token in attempts.tokens], abs=1e-9)
    assert isinstance(method.loss, Regression)


@states("llds", "`llds(weight=0)` = `grpo`; so is the first optimiser step of an update under any weight")
@given(attempts=drawn_attempts, weight=st.floats(0, 10))
def test_llds_on_policy_is_grpo_to_the_bit(attempts: Attempts, weight: float) -> None:
    fresh = attempts.with_credit(recipes.grpo().advantage(attempts.table).values)
    assert learn_whole(recipes.llds(weight=weight).loss, fresh) == learn_whole(recipes.grpo().loss, fresh)


# Policy losses


@states("opmd", "`opmd(tau=0)` = REINFORCE on the credit of `dr_grpo` = `asymre(shift=0)`")
@given(tokens=drawn_updates)
def test_opmd_without_tau_is_reinforce_to_the_bit(tokens: list[Token]) -> None:
    columns, totals = columns_of(tokens), totals_of(tokens)
    held: Any = recipes.opmd(tau=0.0).loss
    assert run(held, columns, totals) == run(recipes.asymre(shift=0.0).loss, columns, totals)  # type: ignore[arg-type]
    by_hand = [-token.advantage / max(totals.tokens, 1) if token.trains else 0.0 for token in tokens]
    assert run(held, columns, totals).by_logp == pytest.approx(by_hand, abs=1e-12)


@states("rec", "`rec(weighted=True)` has the gradient of the clipped loss on the credit of `dr_grpo`, token by token")
@given(tokens=drawn_updates, low=WIDTHS, high=WIDTHS)
def test_rec_on_one_side_has_the_gradient_of_clip_on_the_credit_of_dr_grpo(
    tokens: list[Token], low: float, high: float
) -> None:
    """A ratio beyond e^20 is out: there the clamped ratio of `Clip` has no gradient at all."""
    method = recipes.rec(weighted=True, low=low, high=high)
    assert method.advantage == recipes.dr_grpo().advantage
    near = [dataclasses.replace(t, behaviour=t.logp) if abs(t.logp - t.behaviour) > 19 else t for t in tokens]
    columns, totals = columns_of(near), totals_of(near)
    clip = run(PolicyLoss(surrogate=Clip(low=low, high=high), old="engine"), columns, totals)
    one_side = run(method.loss, columns, totals)  # type: ignore[arg-type]
    assert one_side.by_logp == pytest.approx(clip.by_logp, rel=1e-12, abs=1e-12)


@states("r2vpo", "`r2vpo(first=0)` = GRPO's credit with importance weights and no trust region (`plain`)")
@given(tokens=drawn_updates)
def test_r2vpo_without_a_multiplier_is_the_plain_surrogate(tokens: list[Token]) -> None:
    columns, totals = columns_of(tokens), totals_of(tokens)
    nothing = dataclasses.replace(columns, named={"ratio_multiplier": torch.zeros(len(tokens), dtype=torch.float64)})
    method = recipes.r2vpo(first=0.0)
    assert method.advantage == recipes.grpo().advantage
    plain = run(PolicyLoss(surrogate=Plain()), columns, totals)
    assert run(method.loss, nothing, totals) == plain  # type: ignore[arg-type]


@states("epo", "`epo(smoothing=0)` = `grpo` with an entropy bonus of the same weight, to the bit")
@given(tokens=drawn_updates, weight=st.floats(1e-4, 1))
def test_epo_without_smoothing_is_an_entropy_bonus_to_the_bit(tokens: list[Token], weight: float) -> None:
    columns, totals, base = columns_of(tokens), totals_of(tokens), recipes.grpo()
    method, plain = recipes.epo(smoothing=0.0, weight=weight), base.loss
    assert method.advantage == base.advantage
    assert isinstance(plain, PolicyLoss)
    bonus = plain.model_copy(update={"penalties": (*plain.penalties, EntropyBonus(weight=weight))})
    assert run(method.loss, columns, totals) == run(bonus, columns, totals)  # type: ignore[arg-type]


@states("after_etr", "`after_etr(by_credit=0, by_spread=0)` = GRPO's credit with the clip 0.2 and no KL")
@given(tokens=drawn_updates, spread=st.floats(0, 1))
def test_an_elastic_clip_that_is_stiff_is_the_clip_to_the_bit(tokens: list[Token], spread: float) -> None:
    columns, totals = columns_of(tokens), totals_of(tokens)
    mixed = torch.full((len(tokens),), spread, dtype=torch.float64)
    stiff = PolicyLoss(surrogate=ElasticClip(by_credit=0.0, by_spread=0.0))
    with_channel = dataclasses.replace(columns, channels={"spread": mixed})
    assert run(stiff, with_channel, totals) == run(PolicyLoss(), columns, totals)


@states("gspo", "Where every answer is one token, `gspo` has the loss of `grpo` without its KL")
@given(tokens=drawn_updates)
def test_gspo_on_answers_of_one_token_is_the_clipped_loss(tokens: list[Token]) -> None:
    single = [dataclasses.replace(token, sample=number, step=number) for number, token in enumerate(tokens)]
    near = [dataclasses.replace(t, old=t.logp) if abs(t.logp - t.old) > 10 else t for t in single]
    columns, totals = columns_of(near), totals_of(near)
    gspo: Any = recipes.gspo().loss
    by_token = gspo.model_copy(update={"ratio": PolicyLoss().ratio})
    assert run(gspo, columns, totals) == run(by_token, columns, totals)


@states("cispo", "On-policy, `cispo` has the policy gradient, as every surrogate here has")
@states("sapo", "On-policy, `sapo` has the policy gradient, as every surrogate here has")
@given(tokens=drawn_updates)
def test_on_policy_the_gates_are_the_policy_gradient(tokens: list[Token]) -> None:
    still = [dataclasses.replace(token, old=token.logp) for token in tokens]
    columns, totals = columns_of(still), totals_of(still)
    for name in ("cispo", "sapo"):
        loss: Any = recipes.build(name).loss
        plain = loss.model_copy(update={"surrogate": Plain()})
        assert run(loss, columns, totals).by_logp == pytest.approx(run(plain, columns, totals).by_logp, abs=1e-12)


@states("rec", "the credit of `dr_grpo`")
@states("asymre", "`asymre(shift=c)` = `dr_grpo` + c")
@states("red_weight", "For large temperatures, `red_weight` = `dr_grpo`")
@given(rows=step_rows(), shift=st.floats(-2, 2))
def test_without_their_constants_the_credits_are_that_of_dr_grpo(rows: list[Row], shift: float) -> None:
    plain = values(rows, "dr_grpo")
    assert np.array_equal(values(rows, "rec"), plain)
    assert np.array_equal(values(rows, "opmd"), plain)
    assert np.array_equal(values(rows, "asymre", shift=0.0), plain)
    np.testing.assert_allclose(values(rows, "red_weight", temperature=1e12), plain, rtol=1e-9, atol=0)
    soft = values(rows, "opmd", baseline="log_mean_exp", temperature=1e9)
    np.testing.assert_allclose(soft, plain, atol=1e-5)
    compared = np.asarray(recipes.asymre(shift=shift).advantage(table_of(rows)).compared)
    np.testing.assert_allclose(values(rows, "asymre", shift=shift), plain + shift * compared, rtol=1e-12, atol=1e-12)


@given(tokens=drawn_updates, low=WIDTHS, high=WIDTHS, by_answer=st.booleans())
def test_regions_of_rec_become_one_another_at_their_bounds(
    tokens: list[Token], low: float, high: float, by_answer: bool
) -> None:
    columns, totals = columns_of(tokens), totals_of(tokens)

    def of(**settings: Any) -> object:
        base: Any = recipes.rec(by_answer=by_answer).loss
        return run(base.model_copy(update={"surrogate": Rec(**settings, weighted=False)}), columns, totals)

    base: Any = recipes.rec(by_answer=by_answer).loss
    reinforce: Any = recipes.asymre().loss
    plain = base.model_copy(update={"surrogate": reinforce.surrogate})
    assert of(region="two_side", low=1.0, high=1e300) == run(plain, columns, totals)
    without_far = of(region="ring", low=low, high=high, far_low=1e9, far_high=1e300)
    assert without_far == of(region="two_side", low=low, high=high)


# Tokens


WEIGHTS_OF_ONE: dict[str, Any] = {
    "no discount": DiscountedTokens(gamma=1.0),
    "all tokens are first": FirstTokens(count=100),
    "everything is sampled": DualDownSampling(first_samples=1.0, first_tokens=1.0),
    "lines are paid nothing": LineGains(weight=0.0),
    "potentials count for nothing": PotentialCredit(alpha=0.0, xi=0.0),
    "the entropy is on target": TemperedCredit(target=0.0),
}
"""Parts that leave each token the credit of its step."""


def draw_answers(seed: int) -> list[oracle.Answer]:
    rng = random.Random(seed)
    answers = random_answers(rng)
    add_segments(rng, answers)
    return answers


@states("d3s", "`d3s(first_samples=1, first_tokens=1)` = `grpo` without its KL and with the mean over tokens")
@states("spae", "`spae(alpha=0, xi=0)` = `dr_grpo`'s credit")
@states("after_vsrm", "`after_vsrm(weight=0)` = `dr_grpo`'s credit")
@states("dcpo", "Where no answer is right, or the entropy is on target, `dcpo` has `grpo`'s credit")
@pytest.mark.parametrize("name", WEIGHTS_OF_ONE)
@given(seed=SEEDS)
def test_token_weights_of_one_give_each_token_the_credit_of_its_step_to_the_bit(name: str, seed: int) -> None:
    table, tokens = tables_of(draw_answers(seed))
    steps = recipes.dr_grpo().advantage(table).by_step()
    made = WEIGHTS_OF_ONE[name](table, steps, tokens)
    assert np.array_equal(made.values, steps.values[tokens.step])
    assert made.trains.all()


@states("verl", "`verl(weight=0)` has `grpo`'s credit, to the bit; so has the first update under any weight")
@pytest.mark.parametrize("level", [None, -1.0, 2.0])
@given(seed=SEEDS)
def test_verl_without_weight_or_before_its_averages_is_grpo_to_the_bit(level: float | None, seed: int) -> None:
    answers = draw_answers(seed)
    for answer in answers if level is not None else ():
        answer.facts |= dict.fromkeys(LEVELS, level)
    table, tokens = tables_of(answers)
    algorithm = recipes.verl(weight=0.0 if level == 2.0 else 1.0)
    assert algorithm.advantage == recipes.grpo().advantage
    assert isinstance(algorithm.token_credit, RankBonus)
    steps = algorithm.advantage(table).by_step()
    assert np.array_equal(algorithm.token_credit(table, steps, tokens).values, steps.values[tokens.step])


@states("hdpo", "`hdpo(tool_weight=0)` = `grpo` without its KL; so is any weight where at most one attempt is right")
@given(tokens=drawn_updates, rows=step_rows())
def test_hdpo_without_weight_or_without_two_right_attempts_is_grpo_on_accuracy(
    tokens: list[Token], rows: list[Row]
) -> None:
    columns, totals = columns_of(tokens), totals_of(tokens)
    plain, base = PolicyLoss(surrogate=Clip(), aggregate=SequenceMean()), recipes.grpo()
    held, whole = recipes.hdpo(tool_weight=0.0), recipes.hdpo(calls=None, solved_above=1e300)
    assert (held.loss, held.channels, held.advantage, whole.advantage) == (plain, None, base.advantage, base.advantage)
    silent = whole.channel_credit(table_of(rows))["economy"]
    assert not silent.values.any()
    assert not silent.compared.any()
    nothing = dataclasses.replace(columns, channels={"economy": torch.zeros(len(tokens), dtype=torch.float64)})
    assert run(whole.loss, nothing, totals) == run(plain, columns, totals)  # type: ignore[arg-type]


BY_TOKEN = [name for name in recipes.names() if recipes.build(name).token_credit is not None]


@pytest.mark.parametrize("name", ["grpo", *BY_TOKEN])
def test_token_credit_of_the_step_is_none_to_the_bit_in_loss_and_gradient(name: str) -> None:
    loss: Any = recipes.build(name).loss
    samples = [dataclasses.replace(sample, advantage=0.3 * n - 1.0) for n, sample in enumerate(make_tangled_samples())]
    by_token = [
        dataclasses.replace(sample, advantage=(0.3 * n - 1.0,) * len(sample.response_ids))
        for n, sample in enumerate(samples)
    ]
    plain = update(build("llama"), loss, samples, pad_rows(samples))
    spread = update(build("llama"), loss, by_token, pad_rows(by_token))
    assert plain[0] == spread[0]
    assert torch.equal(plain[1], spread[1])


@states("spo_chain", "`spo_chain(whiten=False)` with one segment an answer has `rloo`'s credit, to the bit")
@given(seed=SEEDS)
def test_spo_with_one_segment_is_its_group_baseline_to_the_bit(seed: int) -> None:
    answers = draw_answers(seed)
    for answer in answers:
        answer.facts |= {"segment_ends": [len(answer.ids)], "segment_values": []}
    table, tokens = tables_of(answers)
    algorithm = recipes.spo_chain(whiten=False)
    assert algorithm.advantage == recipes.rloo().advantage
    assert algorithm.token_credit is not None
    steps = algorithm.advantage(table).by_step()
    made = algorithm.token_credit(table, steps, tokens)
    assert np.array_equal(made.values, steps.values[tokens.step])
    assert np.array_equal(made.trains, np.exp(tokens.logp) < 0.9)


@states("rank_grpo", "With lists of one rank, the credit of an item is that of `grpo(eps=1e-4)` on its relevance")
@pytest.mark.parametrize("reward", ["exp_inf", "log_decay"])
@given(seed=SEEDS)
def test_rank_grpo_on_lists_of_one_item_is_grpo_to_the_bit(reward: Any, seed: int) -> None:
    rng, answers = random.Random(seed), draw_answers(seed)
    for answer in answers:
        places = {"item_tokens": [[0, len(answer.ids)]], "end_token": None, "list_length": 1}
        answer.reward = rng.choice([0.0, 1.0, 2.5, 0.1])
        answer.facts = {**places, "item_relevance": [answer.reward]}
    table, tokens = tables_of(answers)
    steps = recipes.grpo(eps=1e-4).advantage(table).by_step()
    made = RankCredit(reward=reward)(table, recipes.rank_grpo().advantage(table).by_step(), tokens)
    assert np.array_equal(made.values, steps.values[tokens.step])


@states("rank_grpo", "Where each item is one token, its ratio is that of a token; where an answer is one span, GSPO's")
@given(tokens=drawn_updates)
def test_spans_of_one_token_and_one_span_an_answer_have_the_other_ratios_to_the_bit(tokens: list[Token]) -> None:
    kept = [token for token in tokens if token.trains]
    near = [dataclasses.replace(t, old=t.logp) if abs(t.logp - t.old) > 10 else t for t in kept]
    loss: Any = recipes.rank_grpo().loss
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


@pytest.mark.parametrize(
    ("recipe", "words"), STATED, ids=[f"{recipe} {number}" for number, (recipe, _) in enumerate(STATED)]
)
def test_the_page_states_what_is_tested(recipe: str, words: str) -> None:
    _, heading, relations = (METHODS / f"{recipe}.md").read_text(encoding="utf-8").partition("## Relations")
    assert heading, "docs/build_methods.py writes what stands in its RELATIONS"
    assert words in relations.partition("\n## ")[0]
