"""What a loss is handed beside credit, and what is refused before a model loads."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch")

from groupwise import Algorithm, ConfigError, Credit, Part, RecordError, Step, StepTable, StopReason, Task, Trajectory
from groupwise.credit import ByTask, EpisodeReturn, Relative, StepRewardSignal
from groupwise.data.samples import Pair
from groupwise.losses import PolicyLoss
from groupwise.losses.token_columns import TokenColumns
from groupwise.methods.mc_grpo import DropPivot
from groupwise.methods.selective_buffer import SelectiveBuffer
from groupwise.methods.simpo import Simpo
from groupwise.training.loop import make_update
from groupwise.training.loss_context import check_loss_context
from groupwise.training.observer import ObserverList
from groupwise.training.open_run import open_run
from groupwise.training.samples import credit_batch, make_samples
from tests.unit.losses.token_rows import columns, number, totals
from tests.unit.training.runs import small_config

GRPO = Relative(by=ByTask(), of=EpisodeReturn())


class Reading(PolicyLoss):
    """A loss that reads what its fields name."""

    reads: tuple[str, ...] = ()
    hears: tuple[str, ...] = ()

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(self.reads)

    @property
    def channels(self) -> frozenset[str]:
        return frozenset(self.hears)


class Gated(Part, slot="penalty"):
    """A penalty that reads a column."""

    weight: float = 1.0
    columns: ClassVar[frozenset[str]] = frozenset({"pass_rate"})
    channels: ClassVar[frozenset[str]] = frozenset({"tempo"})

    def __call__(self, columns: TokenColumns) -> Any:
        return columns.logp * columns.column("pass_rate")


class NotTheBest(Part, slot="filter"):
    """Drops the step of highest credit."""

    reads_credit: ClassVar[bool] = True

    def __call__(self, table: StepTable, credit: Credit) -> Any:
        return credit.values < credit.values.max()


def trajectories_of(*rewards: tuple[float, ...], task: str = "t") -> list[Trajectory]:
    """A rollout for each tuple, a step for each reward; a step's response is as long as its index plus one."""
    return [
        Trajectory(
            id=f"{task}/{number}",
            task=Task(id=task),
            rollout=number,
            steps=tuple(
                Step(
                    index=index,
                    reward=reward,
                    prompt_ids=(1,),
                    response_ids=(2,) * (index + 1),
                    logp_behaviour=(-1.0,) * (index + 1),
                    accepted=index == 0,
                )
                for index, reward in enumerate(own)
            ),
            stop=StopReason.TERMINATED,
            versions=(0,),
        )
        for number, own in enumerate(rewards)
    ]


def test_declared_columns_are_those_of_the_table_in_the_order_of_the_steps() -> None:
    loss = Reading(reads=("tokens", "valid", "episode_return", "reward", "step"))
    backwards = trajectories_of((0.0, 1.0), (3.0,))[::-1]  # the table has an order of its own
    samples = make_samples(credit_batch(Algorithm(advantage=GRPO, loss=loss), backwards, version=0))
    assert [sample.columns for sample in samples] == [
        {"episode_return": 3.0, "step": 0.0, "reward": 3.0, "tokens": 1.0, "valid": 1.0},
        {"episode_return": 1.0, "step": 0.0, "reward": 0.0, "tokens": 1.0, "valid": 1.0},
        {"episode_return": 1.0, "step": 1.0, "reward": 1.0, "tokens": 2.0, "valid": 0.0},
    ]


def test_a_loss_that_declares_nothing_is_handed_nothing() -> None:
    samples = make_samples(
        credit_batch(Algorithm(advantage=GRPO, loss=PolicyLoss()), trajectories_of((0.0,), (3.0,)), version=0)
    )
    assert [(sample.columns, sample.channels) for sample in samples] == [({}, {})] * 2


def test_a_declared_column_that_nothing_provides_is_refused_by_name() -> None:
    algorithm = Algorithm(advantage=GRPO, loss=Reading(reads=("pass_rate",)))
    with pytest.raises(RecordError) as raised:
        credit_batch(algorithm, trajectories_of((0.0,), (1.0,)), version=0)
    assert str(raised.value).startswith(
        "algorithm.loss: Reading(reads=('pass_rate',)) declares the column 'pass_rate': the table has no column "
        "'pass_rate', which this method reads; "
    )


def test_a_declared_column_of_text_is_refused_by_name() -> None:
    algorithm = Algorithm(advantage=GRPO, loss=Reading(reads=("action",)))
    with pytest.raises(RecordError, match=r"declares the column 'action': column 'action', row 0: .* is not a number"):
        credit_batch(algorithm, trajectories_of((0.0,), (1.0,)), version=0)


def test_a_channel_is_handed_over_by_name_beside_the_credit() -> None:
    tempo = Relative(by=ByTask(), of=StepRewardSignal(), scale={"kind": "no_scale"})
    algorithm = Algorithm(advantage=GRPO, channels={"tempo": tempo}, loss=Reading(hears=("tempo",)))
    batch = credit_batch(algorithm, trajectories_of((0.0, 1.0), (3.0,)), version=0)
    values = [sample.channels["tempo"] for sample in make_samples(batch)]
    table = StepTable.from_trajectories(trajectories_of((0.0, 1.0), (3.0,)), version=0)
    assert values == pytest.approx(tempo(table).values.tolist())
    assert [sample.advantage for sample in make_samples(batch)] != values


class Against(Part, slot="pairing"):
    """The second step of rollout 0 against the first of rollout 1."""

    def __call__(self, table: StepTable) -> list[Pair]:
        return [Pair(0, 1, 1.0, 4.0, 1, 0)]


def test_pairs_are_numbered_by_trajectory_whatever_order_they_came_in() -> None:
    """Rollouts of task a come last but are first in the table."""
    algorithm = Algorithm(advantage=GRPO, pairing="best_against_worst", loss=Simpo())
    trajectories = [*trajectories_of((0.0,), (0.0, 1.0), task="b"), *trajectories_of((2.0,), (1.0,), (0.0,), task="a")]
    batch = credit_batch(algorithm, trajectories[::-1], version=0)
    assert set(batch.context.pairs) == {Pair(2, 0, gap=2.0), Pair(3, 4, gap=1.0)}


def test_pairs_know_the_filters() -> None:
    """The pivot of returns 2, 1, 0 does not train, so that one pair is left, and counts for the whole task."""
    algorithm = Algorithm(advantage=GRPO, filters=(DropPivot(),), pairing="all_pairs", loss=Simpo())
    assert credit_batch(algorithm, trajectories_of((2.0,), (1.0,), (0.0,)), version=0).context.pairs == (
        Pair(0, 2, 1.0, 2.0),
    )


def test_pairs_are_chosen_among_what_filters_that_read_credit_leave() -> None:
    """Returns 4, 3, 0, 1: the mean is 2, and the filter drops the best, so that the second best is paired."""
    algorithm = Algorithm(advantage=GRPO, filters=(NotTheBest(),), pairing="best_against_worst", loss=Simpo())
    trajectories = trajectories_of((4.0,), (3.0,), (0.0,), (1.0,))[::-1]
    assert credit_batch(algorithm, trajectories, version=0).context.pairs == (Pair(2, 1, gap=3.0),)


def test_pairs_of_steps_keep_their_steps() -> None:
    """Rollout 0 is the last trajectory here; its steps are worth 1 and 4, those of rollout 1 nothing."""
    algorithm = Algorithm(advantage=GRPO, pairing=Against(), loss=Simpo())
    trajectories = trajectories_of((-3.0, 4.0), (0.0, 0.0))
    assert credit_batch(algorithm, trajectories[::-1], version=0).context.pairs == (Pair(1, 0, 1.0, 4.0, 1, 0),)


def test_an_rollout_in_two_trajectories_is_in_no_pair() -> None:
    first, second = trajectories_of((1.0, 0.0), (0.0,))
    begin = dataclasses.replace(first, steps=first.steps[:1])
    rest = dataclasses.replace(first, id="t/0b", steps=first.steps[1:])
    algorithm = Algorithm(advantage=GRPO, pairing="all_pairs", loss=Simpo())
    with pytest.raises(RecordError, match="trajectory 't/0b' continues a rollout that began in another one"):
        credit_batch(algorithm, [begin, second, rest], version=0)


REFUSED = [
    (
        {"loss": Reading(reads=("tokens", "reward")), "replay": SelectiveBuffer()},
        "algorithm.replay: replayed rollouts keep their stored advantages, but 'reward' is not stored; leave out the "
        "replay, or what the loss reads beside advantages",
    ),
    (
        {"loss": Reading(hears=("tempo",)), "channels": {"tempo": GRPO}, "replay": SelectiveBuffer()},
        "algorithm.replay: replayed rollouts keep their stored advantages, but 'tempo' is not stored; leave out",
    ),
    (
        {"loss": Simpo()},
        "algorithm.loss: Simpo compares pairs of rollouts, but no part chooses them; add algorithm.pairing, such as "
        '"best_against_worst"',
    ),
    (
        {"loss": PolicyLoss(), "pairing": "all_pairs"},
        "algorithm.pairing: PolicyLoss reads no pairs; leave the pairing out, or choose a loss that needs 'pairs'",
    ),
    (
        {"loss": Reading(hears=("tempo",)), "channels": {"temp": GRPO}},
        "algorithm.loss: Reading(hears=('tempo',)) reads the channel 'tempo', which no estimator gives; add "
        "algorithm.channels.tempo. did you mean 'temp'? Valid: temp",
    ),
    (
        {"loss": PolicyLoss(), "channels": {"tempo": GRPO}},
        "algorithm.channels.tempo: PolicyLoss does not read it; leave the channel out, or declare it in `channels` of "
        "the loss. Valid: ",
    ),
]


@pytest.mark.parametrize(("parts", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_nothing_gives_or_nobody_reads_is_refused(parts: dict[str, Any], message: str) -> None:
    algorithm = Algorithm(advantage=GRPO, **parts)
    assert algorithm.loss is not None
    with pytest.raises(ConfigError) as raised:
        check_loss_context(algorithm, algorithm.loss)
    assert str(raised.value).startswith(message)


def test_the_pieces_of_a_policy_loss_declare_for_it() -> None:
    assert PolicyLoss(penalties=(Gated(),)).columns == {"pass_rate"}
    assert PolicyLoss(penalties=(Gated(),)).channels == {"tempo"}
    assert PolicyLoss(penalties=(Gated(weight=0.0),)).columns == frozenset()


def test_the_pieces_of_a_policy_loss_read_what_they_declared() -> None:
    """Credit 0, so that the loss is the penalty alone: the mean of -1 x 0.5 and -2 x 0.25, masked tokens left out."""
    tokens = columns([-1.0, -2.0, -9.0], advantage=0.0, mask=[True, True, False], named={"pass_rate": [0.5, 0.25, 9.0]})
    assert number(PolicyLoss(penalties=(Gated(),))(tokens, totals(2)).loss) == -0.5


def test_a_run_with_pairs_says_how_many(tmp_path: Path) -> None:
    config = small_config()
    parts = {"advantage": GRPO, "pairing": "all_pairs", "loss": Simpo()}
    run = open_run(config.model_copy(update={"algorithm": Algorithm(**parts)}), tmp_path)
    metrics = make_update(run, 1, ObserverList([])).metrics
    assert metrics["learner/pairs"] >= 0
    assert ("loss/pair_gap" in metrics) == (metrics["learner/pairs"] > 0)
