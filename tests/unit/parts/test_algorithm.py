"""An algorithm: an estimator and the filters that say what may train."""

from __future__ import annotations

import pytest

from groupwise import Algorithm, ConfigError
from groupwise.credit import ByTask, DropSolved, EpisodeReturn, Relative, StepRewardSignal, Whitened
from groupwise.methods.mc_grpo import DropPivot
from tests.unit.tables import single_steps, table

GRPO = Relative(by=ByTask(), of=EpisodeReturn())
WHITE = Whitened(of=GRPO)


def test_an_algorithm_without_filters_keeps_every_row() -> None:
    assert Algorithm(advantage=GRPO).keep(single_steps([1, 0])).tolist() == [True, True]


def test_a_row_is_kept_only_if_every_filter_keeps_its_step() -> None:
    algorithm = Algorithm(advantage=GRPO, filters=(DropSolved(), DropPivot()))
    # t0 is solved. In t1 the lower median of 0, 1, 2 is 1, so the middle rollout is the pivot.
    assert algorithm.keep(single_steps([1, 1, 1], [0, 1, 2])).tolist() == [False] * 3 + [True, False, True]


def test_what_is_kept_comes_back_in_the_order_of_the_rows() -> None:
    rows = table("task rollout step reward", ("q", 1, 0, 1.0), ("q", 2, 0, 2.0), ("q", 0, 1, 0.0), ("q", 0, 0, 0.0))
    # Returns 0, 1, 2: rollout 1 is the pivot and stands in the first row.
    assert Algorithm(advantage=GRPO, filters=("drop_pivot",)).keep(rows).tolist() == [False, True, True, True]


def test_a_channel_is_credit_of_its_own_and_knows_the_filters() -> None:
    """Whitening counts what trains: the solved task is dropped, so that its steps are not counted."""
    algorithm = Algorithm(advantage=GRPO, filters=(DropSolved(),), channels={"plain": GRPO, "white": WHITE})
    rows = single_steps([1, 1], [0, 1])
    by_channel = algorithm.channel_credit(rows)
    assert list(by_channel) == ["plain", "white"]
    assert by_channel["plain"].values.tolist() == GRPO(rows).values.tolist()
    assert by_channel["white"].values[2:].tolist() == pytest.approx(WHITE(single_steps([0, 1])).values.tolist())
    assert WHITE(rows).values[2:].tolist() != by_channel["white"].values[2:].tolist()
    assert Algorithm(advantage=GRPO).channel_credit(rows) == {}


def test_channels_are_among_the_parts_and_in_the_configuration() -> None:
    tempo = {"kind": "relative", "by": "by_task", "of": "step_reward"}
    algorithm = Algorithm(advantage=GRPO, channels={"tempo": tempo})
    assert StepRewardSignal() in list(algorithm.parts())
    assert algorithm.config()["channels"]["tempo"]["of"] == {"kind": "step_reward"}
    assert Algorithm(**algorithm.config()) == algorithm
    assert {"channels", "pairing"} & Algorithm(advantage=GRPO).config().keys() == set()


def test_filters_must_be_filters() -> None:
    with pytest.raises(ConfigError) as caught:
        Algorithm(advantage=GRPO, filters=(ByTask(),))
    assert str(caught.value) == "Algorithm: filters.0: ByTask is a grouper, but a filter is needed here"
