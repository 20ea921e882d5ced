"""What a replayed token is measured against: the log-prob it was stored with, or the one it has now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from groupwise import methods
from groupwise.data.past_rollouts import MeasuredAgainst
from groupwise.methods.r3 import CrossContextReplay
from groupwise.parts.algorithm import Algorithm
from groupwise.training.collect.collect import collect_update
from groupwise.training.samples import credit_batch, make_samples
from tests.unit.learner.learners import gradient, learner, logps, single_steps, tiny
from tests.unit.training.rescued_runs import train_small_run


def make_replay(ratio: MeasuredAgainst) -> Algorithm:
    replay = CrossContextReplay(ratio=ratio, max_log_ratio=None)
    return methods.r3(with_reflection=False, with_ranking=False).model_copy(update={"replay": replay})


@pytest.mark.parametrize("ratio", ["stored", "recomputed"])
def test_a_replayed_token_is_measured_against_what_was_asked_for(tmp_path: Path, ratio: MeasuredAgainst) -> None:
    """The record stays what it was: credit and journal see the log-probs that were sampled with."""
    run = train_small_run(tmp_path, make_replay(ratio), updates=7, rate=1e-2)
    rollouts = next(collected for number in range(8, 30) if (collected := collect_update(run, number)).replayed)
    batch = credit_batch(run.config.algorithm, rollouts.chosen, rollouts.replayed, version=7)
    samples = [sample for sample in make_samples(batch) if sample.off_policy]
    assert len(samples) == len(rollouts.replayed)
    pairs = [(sample.prompt_ids, sample.response_ids) for sample in samples]
    now = run.engine.score(pairs, temperature=run.config.rollout.temperature)
    for sample, member, logps_now in zip(samples, rollouts.replayed, now, strict=True):
        assert member.trajectory is not None
        (step,) = member.trajectory.steps
        (row,) = [
            row
            for row in run.journal.trajectories(member.past.number)
            if (row["task"], row["rollout"]) == (member.task, member.past.rollout)
        ]
        assert list(step.logp_behaviour) == row["steps"][0]["logp_behaviour"]
        expected = step.logp_behaviour if ratio == "stored" else logps_now
        assert list(sample.logp_behaviour) == pytest.approx(list(expected), abs=1e-9)
    assert any(abs(member.log_ratio or 0.0) > 1e-4 for member in rollouts.replayed), "the policy has moved"


def test_recomputed_ratios_begin_at_one(tmp_path: Path) -> None:
    recomputed, stored = (
        [
            value
            for _, value in train_small_run(tmp_path / ratio, make_replay(ratio), updates=8, rate=1e-2).journal.curve(
                "loss/off_policy_ratio"
            )
        ]
        for ratio in ("recomputed", "stored")
    )
    assert recomputed == pytest.approx([1.0] * len(recomputed), abs=1e-4)
    assert max(abs(value - 1) for value in stored) > 1e-3


@pytest.mark.parametrize(
    ("ratio", "credit", "factor"),
    [
        (0.05, 2.8284, 0.1414),
        (0.3, 2.8284, 0.8485),
        (1.0, 2.8284, 2.8284),
        (0.79, -2.8284, 0.0),
        (1.0, -2.8284, -2.8284),
    ],
)
def test_the_stored_ratio_weighs_what_is_replayed(ratio: float, credit: float, factor: float) -> None:
    """Eight failures and a success that has become 20 times as rare: it counts a twentieth, at ratio 1 in full; a
    failure that is below the clip teaches nothing."""
    model = tiny()[0]
    sample = replace(single_steps(1.0)[0], off_policy=True)
    now = [float(value) for value in logps(model, [sample])]
    shift = float(torch.log(torch.tensor(ratio, dtype=torch.float64)))
    replayed = replace(sample, advantage=credit, logp_behaviour=tuple(value - shift for value in now))
    plain = replace(sample, advantage=1.0, logp_behaviour=tuple(now))
    loss = methods.dapo(low=0.2, high=0.2).loss
    (_, grad), (_, unit) = (gradient(learner(tiny()[0], loss, max_grad_norm=1e9), [own]) for own in (replayed, plain))
    assert grad.tolist() == pytest.approx((factor * unit).tolist(), abs=2e-4)
