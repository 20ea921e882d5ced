"""A loss with a first pass: when it is asked, of what, and what becomes of its answers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch")

from groupwise import ConfigError, Part, RecordError
from groupwise.data.samples import Pair, Sample, count_totals
from groupwise.learner.local import merge_summaries
from groupwise.losses import LossResult, PolicyLoss
from groupwise.methods.simpo import Simpo
from groupwise.system.errors import TrainingError
from tests.unit.learner.learners import gradient, learner, logps, rollouts, totals

SEEN: list[Any] = []
"""What the losses below were asked, in order."""


class Centred(Part, slot="loss"):
    """Squared distance of every token's log-prob from the mean over the whole optimizer step."""

    needs: ClassVar[frozenset[str]] = frozenset()
    unit: ClassVar[str] = "sample"

    def first_pass(self, columns: Any, totals: Any) -> Any:
        SEEN.append(("first", sorted(set(columns.trajectory.tolist())), columns.logp.requires_grad))
        return columns.logp.sum()

    def __call__(self, columns: Any, totals: Any, summary: Any) -> LossResult:
        SEEN.append(("then", sorted(set(columns.trajectory.tolist())), float(summary)))
        loss = (columns.logp - summary / totals.tokens).square().sum() / totals.tokens
        return LossResult(loss=loss, metrics={})


class Growing(Centred):
    """Its summary depends on what is in the micro-batch, so that two of them do not fit."""

    def first_pass(self, columns: Any, totals: Any) -> Any:
        return columns.logp


class Counting(Part, slot="loss"):
    """Reads a column and a channel, and gives their sum over the tokens."""

    needs: ClassVar[frozenset[str]] = frozenset()
    unit: ClassVar[str] = "sample"
    columns: ClassVar[frozenset[str]] = frozenset({"pass_rate"})
    channels: ClassVar[frozenset[str]] = frozenset({"tempo"})

    def __call__(self, columns: Any, totals: Any) -> LossResult:
        weight_T = columns.column("pass_rate") + 100 * columns.channel("tempo")
        return LossResult(loss=(weight_T * columns.logp.exp() / columns.logp.detach().exp()).sum(), metrics={})


def samples_in_groups(num_groups: int) -> list[Sample]:
    return [dataclasses.replace(sample, group=sample.trajectory % num_groups) for sample in rollouts(num=6)]


@pytest.fixture(autouse=True)
def _seen_nothing() -> None:
    SEEN.clear()


def test_the_whole_step_is_summarised_without_gradient_before_anything_is_learnt() -> None:
    samples, made = rollouts(), learner(loss=Centred(), token_budget=15)
    mean = float(logps(made.model, samples).sum())
    made.learn(samples, totals(samples))
    kinds = [kind for kind, _, _ in SEEN]
    num = kinds.count("first")
    assert num > 2
    assert kinds == ["first"] * num + ["then"] * num
    assert not any(asked for kind, _, asked in SEEN if kind == "first")
    assert [summary for kind, _, summary in SEEN if kind == "then"] == pytest.approx([mean] * num, rel=1e-5)


def test_every_optimizer_step_has_a_first_pass_of_its_own() -> None:
    samples = samples_in_groups(2)
    learner(loss=Centred(), passes=2, minibatches=2, learning_rate=0.05).learn(samples, totals(samples))
    assert [kind for kind, _, _ in SEEN] == ["first", "then"] * 4
    first, second, third, fourth = (summary for kind, _, summary in SEEN if kind == "then")
    assert first != third  # the same samples under weights that have moved
    assert second != fourth
    assert [who for _, who, _ in SEEN[:4:2]] == [[0, 2, 4], [1, 3, 5]]


def test_groups_stay_whole_even_if_that_makes_fewer_mini_batches() -> None:
    samples = samples_in_groups(2)
    made = learner(loss=Centred(), minibatches=3)
    made.learn(samples, totals(samples))
    assert made.steps == 2
    assert [who for _, who, _ in SEEN[::2]] == [[0, 2, 4], [1, 3, 5]]
    plain = learner(loss=PolicyLoss(), minibatches=3)
    plain.learn(samples, totals(samples))
    assert plain.steps == 3


def test_the_gradient_does_not_depend_on_the_split() -> None:
    samples = rollouts()
    whole, expected = gradient(learner(loss=Centred(), max_grad_norm=math.inf), samples)
    for budget in (1, 15, 30):
        value, slope = gradient(learner(loss=Centred(), max_grad_norm=math.inf, token_budget=budget), samples)
        assert value == pytest.approx(whole, rel=1e-5)
        assert float((slope - expected).norm() / expected.norm()) < 1e-5


def test_pairs_are_counted_again_for_each_mini_batch() -> None:
    """Two groups, two mini-batches: each holds the pair of its own group, and both losses are those of one pair."""
    samples = samples_in_groups(2)
    whole = count_totals(samples, max_tokens=4, pairs=[Pair(0, 2), Pair(1, 5)])
    metrics = learner(loss=Simpo(), minibatches=2, learning_rate=1e-9).learn(samples, whole).metrics
    model = learner().model
    mean = {n: float(logps(model, [s for s in samples if s.trajectory == n]).mean()) for n in (0, 2, 1, 5)}
    terms = [math.log1p(math.exp(2.5 * (0.55 - mean[a] + mean[b]))) for a, b in ((0, 2), (1, 5))]
    assert metrics["loss/total"] == pytest.approx(sum(terms) / 2, rel=1e-4)


def test_a_pair_loss_learns_to_prefer_the_winner() -> None:
    samples = rollouts()
    made, whole = learner(loss=Simpo(), learning_rate=0.01), count_totals(samples, max_tokens=4, pairs=[Pair(2, 1)])
    gaps = [made.learn(samples, whole).metrics["loss/pair_gap"] for _ in range(5)]
    assert gaps == sorted(gaps)
    assert gaps[-1] > gaps[0] + 0.5


def test_summaries_that_do_not_fit_are_refused_with_the_loss_by_name() -> None:
    samples = rollouts()
    with pytest.raises(ConfigError) as raised:
        learner(loss=Growing(), token_budget=15).learn(samples, totals(samples))
    said = str(raised.value)
    assert said.startswith("algorithm.loss: Growing: the summaries of two micro-batches, a Tensor")
    assert "cannot be merged (The size of tensor" in said
    assert said.endswith("whose method `merge` returns an object of their class")


class Merging:
    """Merges by a method; `+` would be wrong."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = numbers

    def merge(self, other: Merging) -> Merging:
        return Merging(*self.numbers, *other.numbers)

    def __add__(self, other: object) -> Merging:
        raise AssertionError("there is a method of its own")


class Turning:
    """A sum of another kind."""

    def __add__(self, other: object) -> float:
        return 0.5


def test_a_method_merge_comes_before_plus_and_keeps_the_order() -> None:
    assert merge_summaries(Simpo(), [Merging(1.0), Merging(2.0), Merging(3.0)]).numbers == (1.0, 2.0, 3.0)
    assert merge_summaries(Simpo(), [2, 3]) == 5
    assert merge_summaries(Simpo(), [2]) == 2


def test_a_sum_of_another_kind_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"a Turning and a Turning, merge into the float 0\.5; `first_pass` must return"
    ):
        merge_summaries(Simpo(), [Turning(), Turning()])


def test_only_losses_that_have_a_first_pass_have_one() -> None:
    assert hasattr(Simpo(), "first_pass")
    assert not hasattr(PolicyLoss(), "first_pass")


def with_context(samples: list[Sample]) -> list[Sample]:
    """A pass rate a sample, and a tempo a sample or a token."""
    return [
        dataclasses.replace(
            sample,
            columns={"pass_rate": float(i)},
            channels={"tempo": tuple(float(k) for k in range(len(sample.response_ids))) if i % 2 else 1.0},
        )
        for i, sample in enumerate(samples)
    ]


def test_named_columns_and_channels_reach_the_loss_in_every_layout() -> None:
    samples = with_context(rollouts())
    expected = sum(
        len(s.response_ids) * s.columns["pass_rate"]
        + 100 * (sum(t) if isinstance(t := s.channels["tempo"], tuple) else t * len(s.response_ids))
        for s in samples
    )
    for settings in ({}, {"token_budget": 15}, {"share_prefixes": False, "token_budget": 20}):
        metrics = learner(loss=Counting(), **settings).learn(samples, totals(samples)).metrics
        assert metrics["loss/total"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("field", "what"), [("columns", "column 'pass_rate'"), ("channels", "channel 'tempo'")])
def test_a_name_that_only_some_samples_have_is_refused(field: str, what: str) -> None:
    samples = with_context(rollouts())
    samples[2] = dataclasses.replace(samples[2], **{field: {}})
    with pytest.raises(RecordError, match=f"sample 2: only some samples have the {what}; give it to all"):
        learner(loss=Counting()).learn(samples, totals(samples))


def test_a_sample_with_credit_in_a_channel_alone_is_heard() -> None:
    class Deaf(Counting):
        ignores_zero_credit: ClassVar[bool] = True

    silent = [dataclasses.replace(sample, advantage=0.0) for sample in with_context(rollouts())]
    silent[0] = dataclasses.replace(silent[0], channels={"tempo": 0.0})
    metrics = learner(loss=Deaf()).learn(silent, totals(silent)).metrics
    alone = sum(all(t == 0 for t in s.channels["tempo"]) for s in silent if isinstance(s.channels["tempo"], tuple))
    assert metrics["learner/computed"] == pytest.approx(1 - (1 + alone) / len(silent))


def test_a_loss_that_is_not_finite_names_the_column() -> None:
    samples = with_context(rollouts())
    samples[3] = dataclasses.replace(samples[3], columns={"pass_rate": math.nan})
    with pytest.raises(TrainingError, match=r"trajectory 1, step 0 has pass_rate nan"):
        learner(loss=Counting()).learn(samples, totals(samples))
