"""The relations between methods that their pages state, one test each: read the decorators as the list.

Each names the method on whose page it stands (`docs/methods/NAME.md`) and words of it that must be found there. Those
of credit inside an answer are in test_stated_token_relations.py, those of credit by step in test_relations.py.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise import StepTable, methods
from groupwise.losses import AllPairs, Clip, EntropyBonus, Kl, Plain, PolicyLoss, SequenceMean
from groupwise.methods.after_etr import ElasticClip
from groupwise.methods.disco import Disco
from groupwise.methods.dpo import Dpo
from groupwise.methods.rec import Rec
from groupwise.methods.reg_grpo import Regression
from groupwise.methods.seeupo import LastTurnFirst
from groupwise.methods.simpo import Simpo
from tests.laws.calls import table_of, values
from tests.laws.rollouts_as_tokens import Rollouts, draw_rollouts, learn_whole
from tests.laws.stated import Statements, check_page, make_states, name_statements
from tests.oracles.losses import Token
from tests.oracles.token_batches import columns_of, random_update, run, totals_of
from tests.strategies import Row, step_rows

STATED: Statements = []
states = make_states(STATED)
SEEDS = st.integers(0, 10**9)
WIDTHS = st.floats(0, 1.5)
drawn_updates = SEEDS.map(lambda seed: random_update(random.Random(seed)))
drawn_rollouts = SEEDS.map(draw_rollouts)


# Pairs and groups


@states("p3o", "`p3o(clip='none')`, on-policy, has the gradient of `rloo` on whole rollouts, times (n - 1) / 2")
@given(rollouts=drawn_rollouts)
def test_p3o_over_all_pairs_without_a_clip_is_proportional_to_rloo(rollouts: Rollouts) -> None:
    """Sum over pairs of (R_i - R_j) / 2 (g_i - g_j) = (n - 1) / 2 x sum over rollouts of A_i g_i."""
    paired = methods.p3o(clip="none")
    assert paired.pairing is not None
    pairs = paired.pairing(rollouts.table)
    assert paired.advantage == methods.rloo().advantage
    credit = paired.advantage(rollouts.table).values
    _, slopes = learn_whole(paired.loss, rollouts.with_pairs(pairs))
    factor = -(rollouts.size - 1) / 2 / max(len(pairs), 1)
    assert slopes == pytest.approx([factor * credit[token.trajectory] for token in rollouts.tokens], abs=1e-12)


@states("simpo", "Rollouts of L tokens each: `simpo(margin=0, beta=b)` = the loss of `dpo(beta=b / L)` without")
@given(rollouts=drawn_rollouts, beta=st.floats(0.1, 10))
def test_simpo_without_a_margin_is_dpo_without_a_reference_where_all_are_equally_long(
    rollouts: Rollouts, beta: float
) -> None:
    paired = rollouts.with_pairs(methods.simpo(pairs="all").pairing(rollouts.table))  # type: ignore[misc]
    length = len(rollouts.tokens) / rollouts.num
    value, slopes = learn_whole(Simpo(beta=beta, margin=0.0), paired)
    total, others = learn_whole(Dpo(beta=beta / length, reference=False), paired)
    assert value == pytest.approx(total, rel=1e-12)
    assert slopes == pytest.approx(others, rel=1e-9, abs=1e-12)


@states("rpo", "`rpo(eta=0, beta=b)` = `dpo(beta=b)`")
@states("step_apo", "`step_apo(alpha=0, beta=b)` = the loss of `dpo(beta=b)`")
@given(rollouts=drawn_rollouts, beta=st.floats(0.1, 10))
def test_preferences_without_their_addition_are_dpo_to_the_bit(rollouts: Rollouts, beta: float) -> None:
    paired = rollouts.with_pairs(methods.dpo().pairing(rollouts.table))  # type: ignore[misc]
    plain = learn_whole(methods.dpo(beta=beta).loss, paired)
    assert learn_whole(methods.rpo(beta=beta, eta=0.0).loss, paired) == plain
    assert learn_whole(methods.step_apo(beta=beta, alpha=0.0).loss, paired) == plain


@states("w_dpo", "If every two rollouts have different scores, `w_dpo` = `dpo` over all pairs, each counting the same")
@given(rollouts=drawn_rollouts, seed=SEEDS)
def test_w_dpo_over_distinct_outcomes_is_dpo_over_all_pairs_to_the_bit(rollouts: Rollouts, seed: int) -> None:
    rng = random.Random(seed)
    distinct = dataclasses.replace(rollouts, rewards=rng.sample(range(rollouts.num), rollouts.num))
    method = methods.w_dpo()
    table = distinct.table_with(accepted=[rng.choice([0.0, 1.0]) for _ in range(rollouts.num)])
    assert method.pairing is not None
    judged = learn_whole(method.loss, distinct.with_pairs(method.pairing(table)))
    plain = learn_whole(methods.dpo().loss, distinct.with_pairs(AllPairs(counts="pair")(table)))
    assert judged == plain


@states("disco", "For large tau, `disco` = `disco(negatives='mean')`")
@given(rollouts=drawn_rollouts)
def test_disco_for_large_tau_counts_all_failures_the_same(rollouts: Rollouts) -> None:
    value, slopes = learn_whole(Disco(tau=1e7), rollouts)
    total, others = learn_whole(Disco(negatives="mean"), rollouts)
    assert value == pytest.approx(total, abs=1e-6)
    assert slopes == pytest.approx(others, abs=1e-6)


@states("disco", "has the gradient of `dr_grpo`'s advantage over p (1 - p), the mean over rollouts, then tokens")
@given(rollouts=drawn_rollouts)
def test_disco_on_policy_is_dr_grpo_without_its_lean_to_middling_tasks(rollouts: Rollouts) -> None:
    """0/1 rewards: 1 / (n p) = (1 - p) / (n p (1 - p)) for a solved rollout, -1 / (n (1 - p)) for a failed one."""
    binary = rollouts.with_binary_rewards()
    credit = methods.dr_grpo().advantage(binary.table).values
    share = binary.table.tasks.mean(binary.table.episode_return)[binary.table.task]
    spread = np.where(share * (1 - share) > 0, share * (1 - share), 1.0)
    length = len(binary.tokens) / binary.num
    _, slopes = learn_whole(methods.disco(negatives="mean").loss, binary)
    expected = -(credit / spread) / (binary.num * length)
    assert slopes == pytest.approx([expected[token.trajectory] for token in binary.tokens], abs=1e-12)


@states("reg_grpo", "At the first optimizer step of an update, `reg_grpo(kl=0)` has 2 / floor times the gradient of")
@given(rollouts=drawn_rollouts, floor=st.floats(0.1, 2))
def test_reg_grpo_begins_as_reinforce_on_the_credit_of_grpo(rollouts: Rollouts, floor: float) -> None:
    method = methods.reg_grpo(floor=floor, kl=0.0)
    credit = methods.grpo().advantage(rollouts.table).values
    _, slopes = learn_whole(method.loss, rollouts.with_credit(credit))
    expected = -2 / floor * credit / rollouts.num
    assert slopes == pytest.approx([expected[token.trajectory] for token in rollouts.tokens], abs=1e-9)
    assert isinstance(method.loss, Regression)


@states("llds", "`llds(weight=0)` = `grpo`; so is the first optimizer step of an update under any weight")
@given(rollouts=drawn_rollouts, weight=st.floats(0, 10))
def test_llds_on_policy_is_grpo_to_the_bit(rollouts: Rollouts, weight: float) -> None:
    fresh = rollouts.with_credit(methods.grpo().advantage(rollouts.table).values)
    assert learn_whole(methods.llds(weight=weight).loss, fresh) == learn_whole(methods.grpo().loss, fresh)


# Policy losses


@states("opmd", "`opmd(tau=0)` = REINFORCE on the advantages of `dr_grpo` = `asymre(shift=0)`")
@given(tokens=drawn_updates)
def test_opmd_without_tau_is_reinforce_to_the_bit(tokens: list[Token]) -> None:
    columns, totals = columns_of(tokens), totals_of(tokens)
    held: Any = methods.opmd(tau=0.0).loss
    assert run(held, columns, totals) == run(methods.asymre(shift=0.0).loss, columns, totals)  # type: ignore[arg-type]
    by_hand = [-token.advantage / max(totals.tokens, 1) if token.trains else 0.0 for token in tokens]
    assert run(held, columns, totals).by_logp == pytest.approx(by_hand, abs=1e-12)


@states(
    "rec", "`rec(weighted=True)` has the gradient of the clipped loss on the advantages of `dr_grpo`, token by token"
)
@given(tokens=drawn_updates, low=WIDTHS, high=WIDTHS)
def test_rec_on_one_side_has_the_gradient_of_clip_on_the_credit_of_dr_grpo(
    tokens: list[Token], low: float, high: float
) -> None:
    """A ratio beyond e^20 is out: there the clamped ratio of `Clip` has no gradient at all."""
    method = methods.rec(weighted=True, low=low, high=high)
    assert method.advantage == methods.dr_grpo().advantage
    near = [dataclasses.replace(t, behaviour=t.logp) if abs(t.logp - t.behaviour) > 19 else t for t in tokens]
    columns, totals = columns_of(near), totals_of(near)
    clip = run(PolicyLoss(surrogate=Clip(low=low, high=high), old="engine"), columns, totals)
    one_side = run(method.loss, columns, totals)  # type: ignore[arg-type]
    assert one_side.by_logp == pytest.approx(clip.by_logp, rel=1e-12, abs=1e-12)


@states("r2vpo", "`r2vpo(first=0)` = GRPO's advantage with importance weights and no trust region (`plain`)")
@given(tokens=drawn_updates)
def test_r2vpo_without_a_multiplier_is_the_plain_surrogate(tokens: list[Token]) -> None:
    columns, totals = columns_of(tokens), totals_of(tokens)
    nothing = dataclasses.replace(columns, named={"ratio_multiplier": torch.zeros(len(tokens), dtype=torch.float64)})
    method = methods.r2vpo(first=0.0)
    assert method.advantage == methods.grpo().advantage
    plain = run(PolicyLoss(surrogate=Plain()), columns, totals)
    assert run(method.loss, nothing, totals) == plain  # type: ignore[arg-type]


@states("epo", "`epo(smoothing=0)` = `grpo` with an entropy bonus of the same weight, bit-exact")
@given(tokens=drawn_updates, weight=st.floats(1e-4, 1))
def test_epo_without_smoothing_is_an_entropy_bonus_to_the_bit(tokens: list[Token], weight: float) -> None:
    columns, totals, base = columns_of(tokens), totals_of(tokens), methods.grpo()
    method, plain = methods.epo(smoothing=0.0, weight=weight), base.loss
    assert method.advantage == base.advantage
    assert isinstance(plain, PolicyLoss)
    bonus = plain.model_copy(update={"penalties": (*plain.penalties, EntropyBonus(weight=weight))})
    assert run(method.loss, columns, totals) == run(bonus, columns, totals)  # type: ignore[arg-type]


@states(
    "gardo", "`gardo(diversity=False, every=None, max_kl=inf)` without `auxiliary` = the advantages of `dr_grpo` with"
)
@given(tokens=drawn_updates, weight=st.floats(1e-4, 1))
def test_gardo_without_a_gate_is_a_kl_to_the_bit(tokens: list[Token], weight: float) -> None:
    method = methods.gardo(weight=weight, diversity=False, every=None, max_kl=np.inf)
    assert method.advantage == methods.dr_grpo().advantage
    assert method.channels is not None
    table = StepTable.from_columns(task=[0, 0, 1], rollout=[0, 1, 0], step=[0, 0, 0], reward=[1.0, 0.0, 3.0])
    assert method.channels["kl_gate"](table).values.tolist() == [1.0, 1.0, 1.0]
    columns, totals = columns_of(tokens), totals_of(tokens)
    gated = dataclasses.replace(columns, channels={"kl_gate": torch.ones(len(tokens), dtype=torch.float64)})
    plain = PolicyLoss(surrogate=Clip(), aggregate=SequenceMean(), penalties=(Kl(weight=weight),))
    assert run(method.loss, gated, totals) == run(plain, columns, totals)  # type: ignore[arg-type]


@states("after_vgpo", "`after_vgpo(k=0)` = the advantages of `grpo`, bit-exact")
@states("after_vgpo", "If all rollouts of a task get the same R, `after_vgpo` gives exactly k * R")
@given(rows=step_rows(), k=st.floats(0, 2), level=st.floats(0, 100))
def test_vgpo_adds_a_share_of_the_return(rows: list[Row], k: float, level: float) -> None:
    assert np.array_equal(values(rows, "after_vgpo", k=0.0), values(rows, "grpo"))
    same = [row | {"outcome": level} for row in rows]
    assert np.array_equal(values(same, "after_vgpo", k=k), np.full(len(rows), k * level))


@states("copo", "`copo(mode='off')` = `grpo`'s advantage, bit-exact")
@given(rows=step_rows())
def test_copo_that_is_off_is_grpo_to_the_bit(rows: list[Row]) -> None:
    method = methods.copo(mode="off")
    assert np.array_equal(values(rows, "copo", mode="off"), values(rows, "grpo"))
    assert method.channels is None
    assert method.loss == PolicyLoss(surrogate=Clip(dual=3.0), aggregate=SequenceMean())


@states(
    "copo", "The loss of `copo` = w * the clipped loss of `grpo`'s advantage + (1 - w) * that of the tasks' advantage"
)
@given(tokens=drawn_updates, between=st.floats(-2, 2), weight=st.floats(0, 1))
def test_a_weight_in_the_credit_is_a_weight_on_the_loss(tokens: list[Token], between: float, weight: float) -> None:
    columns, totals = columns_of(tokens), totals_of(tokens)
    method: Any = methods.copo().loss
    plain = PolicyLoss(surrogate=Clip(dual=3.0), aggregate=SequenceMean())
    of_tasks = torch.full((len(tokens),), between, dtype=torch.float64)
    weighed = dataclasses.replace(
        columns, advantage=weight * columns.advantage, channels={"global": (1 - weight) * of_tasks}
    )
    blended = run(method, weighed, totals)
    local = run(plain, columns, totals)
    against = run(plain, dataclasses.replace(columns, advantage=of_tasks), totals)
    assert blended.loss == pytest.approx(weight * local.loss + (1 - weight) * against.loss, rel=1e-9, abs=1e-9)
    expected = [weight * a + (1 - weight) * b for a, b in zip(local.by_logp, against.by_logp, strict=True)]
    assert blended.by_logp == pytest.approx(expected, rel=1e-9, abs=1e-9)


@states("after_etr", "`after_etr(by_credit=0, by_spread=0)` = GRPO's advantage with the clip 0.2 and no KL")
@given(tokens=drawn_updates, spread=st.floats(0, 1))
def test_an_elastic_clip_that_is_stiff_is_the_clip_to_the_bit(tokens: list[Token], spread: float) -> None:
    columns, totals = columns_of(tokens), totals_of(tokens)
    mixed = torch.full((len(tokens),), spread, dtype=torch.float64)
    stiff = PolicyLoss(surrogate=ElasticClip(by_credit=0.0, by_spread=0.0))
    with_channel = dataclasses.replace(columns, channels={"spread": mixed})
    assert run(stiff, with_channel, totals) == run(PolicyLoss(), columns, totals)


@states("gspo", "If every answer is one token, `gspo` has the loss of `grpo` without its KL")
@given(tokens=drawn_updates)
def test_gspo_on_answers_of_one_token_is_the_clipped_loss(tokens: list[Token]) -> None:
    single = [dataclasses.replace(token, sample=number, step=number) for number, token in enumerate(tokens)]
    near = [dataclasses.replace(t, old=t.logp) if abs(t.logp - t.old) > 10 else t for t in single]
    columns, totals = columns_of(near), totals_of(near)
    gspo: Any = methods.gspo().loss
    by_token = gspo.model_copy(update={"ratio": PolicyLoss().ratio})
    assert run(gspo, columns, totals) == run(by_token, columns, totals)


@states("cispo", "On-policy, `cispo` has the policy gradient, as every surrogate here has")
@states("sapo", "On-policy, `sapo` has the policy gradient, as every surrogate here has")
@given(tokens=drawn_updates)
def test_on_policy_the_gates_are_the_policy_gradient(tokens: list[Token]) -> None:
    still = [dataclasses.replace(token, old=token.logp) for token in tokens]
    columns, totals = columns_of(still), totals_of(still)
    for name in ("cispo", "sapo"):
        loss: Any = methods.build(name).loss
        plain = loss.model_copy(update={"surrogate": Plain()})
        assert run(loss, columns, totals).by_logp == pytest.approx(run(plain, columns, totals).by_logp, abs=1e-12)


@states("srpo", "If no rollout is exact, or fewer than k are not, `srpo` = the advantages of `grpo`")
@given(rows=step_rows(rewards=st.sampled_from([0.0, 0.125, 0.25]), max_steps=2))
def test_srpo_without_an_exact_rollout_has_the_credit_of_grpo(rows: list[Row]) -> None:
    assert np.array_equal(values(rows, "srpo"), values(rows, "grpo"))


@states("rec", "the advantages of `dr_grpo`")
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
    compared = np.asarray(methods.asymre(shift=shift).advantage(table_of(rows)).compared)
    np.testing.assert_allclose(values(rows, "asymre", shift=shift), plain + shift * compared, rtol=1e-12, atol=1e-12)


@given(tokens=drawn_updates, low=WIDTHS, high=WIDTHS, by_answer=st.booleans())
def test_regions_of_rec_become_one_another_at_their_bounds(
    tokens: list[Token], low: float, high: float, by_answer: bool
) -> None:
    columns, totals = columns_of(tokens), totals_of(tokens)

    def of(**settings: Any) -> object:
        base: Any = methods.rec(by_answer=by_answer).loss
        return run(base.model_copy(update={"surrogate": Rec(**settings, weighted=False)}), columns, totals)

    base: Any = methods.rec(by_answer=by_answer).loss
    reinforce: Any = methods.asymre().loss
    plain = base.model_copy(update={"surrogate": reinforce.surrogate})
    assert of(region="two_side", low=1.0, high=1e300) == run(plain, columns, totals)
    without_far = of(region="ring", low=low, high=high, far_low=1e9, far_high=1e300)
    assert without_far == of(region="two_side", low=low, high=high)


@states("hdpo", "`hdpo(tool_weight=0)` = `grpo` without its KL; so is any weight if at most one rollout is right")
@given(tokens=drawn_updates, rows=step_rows())
def test_hdpo_without_weight_or_without_two_right_rollouts_is_grpo_on_accuracy(
    tokens: list[Token], rows: list[Row]
) -> None:
    columns, totals = columns_of(tokens), totals_of(tokens)
    plain, base = PolicyLoss(surrogate=Clip(), aggregate=SequenceMean()), methods.grpo()
    held, whole = methods.hdpo(tool_weight=0.0), methods.hdpo(calls=None, solved_above=1e300)
    assert (held.loss, held.channels, held.advantage, whole.advantage) == (plain, None, base.advantage, base.advantage)
    silent = whole.channel_credit(table_of(rows))["economy"]
    assert not silent.values.any()
    assert not silent.compared.any()
    nothing = dataclasses.replace(columns, channels={"economy": torch.zeros(len(tokens), dtype=torch.float64)})
    assert run(whole.loss, nothing, totals) == run(plain, columns, totals)  # type: ignore[arg-type]


@states(
    "seeupo", "On rollouts of one turn, `seeupo` = the loss of `gspo(low=0.2, high=0.2)` on the advantages of `dr_grpo`"
)
@given(tokens=drawn_updates)
def test_turns_in_reverse_are_the_ratio_of_a_sequence_where_there_is_one_turn(tokens: list[Token]) -> None:
    """How the learner goes on from turn to turn is in tests/unit/learner/test_stages.py."""
    held, plain = methods.seeupo(), methods.gspo(low=0.2, high=0.2)
    assert held.advantage == methods.dr_grpo().advantage
    assert isinstance(held.loss, LastTurnFirst)
    assert held.loss.order_turns(1) == [range(1)]
    columns, totals = columns_of(tokens), totals_of(tokens)
    assert run(held.loss, columns, totals) == run(plain.loss, columns, totals)  # type: ignore[arg-type]


@states("after_dsdr", "`after_dsdr(bonus=0, entropy=0)` = `grpo` without its KL, if returns are 0 and 1")
@given(returns=st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=64))
def test_dsdr_without_bonus_and_entropy_is_grpo_to_the_bit(returns: list[float]) -> None:
    rows = [{"task": "q", "rollout": n, "step": 0, "state": "s", "reward": reward} for n, reward in enumerate(returns)]
    plain = methods.after_dsdr(bonus=0.0, entropy=0.0)
    assert np.array_equal(values(rows, "after_dsdr"), values(rows, "grpo"))
    assert plain.loss == PolicyLoss(surrogate=Clip(), aggregate=SequenceMean())
    assert [part.weight for part in plain.shapers] == [0.0]  # type: ignore[attr-defined]


@states("after_polychromic", "If each of N rollouts is of another kind, `after_polychromic(size=n)` = (N - n) / (n")
@given(
    returns=st.lists(st.integers(0, 4).map(lambda share: share / 4), min_size=2, max_size=14), size=st.integers(2, 5)
)
def test_sets_whose_rollouts_all_differ_share_the_credit_of_dr_grpo(returns: list[float], size: int) -> None:
    rows = [
        {"task": "q", "rollout": number, "step": 0, "state": "s", "action": f"way {number}", "reward": reward}
        for number, reward in enumerate(returns)
    ]
    num = len(returns)
    factor = max(num - size, 0) / (size * (num - 1))
    for variety in ("beyond_first", "share"):
        shared = values(rows, "after_polychromic", size=size, variety=variety)
        np.testing.assert_allclose(shared, factor * values(rows, "dr_grpo"), rtol=0, atol=1e-12)


@states(
    "after_webstar", "Scores from 0 to 10: `after_webstar(above=-1)` = `grpo` on the steps without a negative advantage"
)
@given(rows=step_rows(), seed=SEEDS)
def test_a_judge_who_calls_all_steps_good_or_bad_leaves_what_is_praised_or_blamed(rows: list[Row], seed: int) -> None:
    rng = random.Random(seed)
    table = table_of([{**row, "step_score": rng.uniform(0, 10)} for row in rows])
    for above, sign in ((-1.0, 1), (10.0, -1)):
        method = methods.after_webstar(above=above)
        credit = method.credit(table)
        assert np.array_equal(credit.values, methods.grpo().credit(table).values)
        assert np.array_equal(method.keep(table, credit), (sign * credit.values >= 0) & methods.grpo().keep(table))


@pytest.mark.parametrize(("method", "words"), STATED, ids=name_statements(STATED))
def test_the_page_states_what_is_tested(method: str, words: str) -> None:
    check_page(method, words)
