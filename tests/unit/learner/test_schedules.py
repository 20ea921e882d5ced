"""Schedules: worked values, what transformers computes, and laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import ConfigError
from groupwise.learner.config import Constant, Cosine, LearnerConfig, Linear
from groupwise.parts.part import Part, Slot, load_catalogue


def shares(schedule: Constant | Linear | Cosine, num: int) -> list[float]:
    return [schedule(step) for step in range(num)]


def test_a_constant_rate_is_constant() -> None:
    assert shares(Constant(), 3) == [1, 1, 1]


def test_a_warm_up_begins_with_its_first_share_and_not_with_nothing() -> None:
    assert shares(Constant(warmup_steps=4), 6) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_a_line_falls_from_the_end_of_the_warm_up_to_the_floor() -> None:
    shares_of_steps = shares(Linear(steps=6, warmup_steps=2, floor=0.2), 8)
    assert shares_of_steps == pytest.approx([0.5, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2])


def test_half_a_cosine_is_halfway_down_in_the_middle() -> None:
    shares_of_steps = shares(Cosine(steps=4, floor=0.1), 6)
    root = math.sqrt(0.5)
    expected = [1.0, 0.1 + 0.45 * (1 + root), 0.55, 0.1 + 0.45 * (1 - root), 0.1, 0.1]
    assert shares_of_steps == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_after_the_warm_up_it_is_what_transformers_computes(kind: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    make = getattr(transformers, f"get_{kind}_schedule_with_warmup")
    scheduler = make(optimizer, num_warmup_steps=5, num_training_steps=40)
    theirs = []
    for _ in range(45):
        theirs.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    ours = load_catalogue("schedule")[kind](steps=40, warmup_steps=5)
    assert [ours(step) for step in range(5, 41)] == pytest.approx(theirs[5:41], abs=1e-12)  # type: ignore[operator]


schedules = st.builds(
    lambda kind, warmup, rest, floor: load_catalogue("schedule")[kind](
        steps=warmup + rest, warmup_steps=warmup, floor=floor
    ),
    st.sampled_from(("linear", "cosine")),
    st.integers(0, 50),
    st.integers(1, 500),
    st.floats(0, 1),
)


@given(schedules)
def test_it_rises_to_one_then_falls_to_the_floor_and_stays(schedule: Linear | Cosine) -> None:
    warmup, steps = schedule.warmup_steps, schedule.steps
    shares_of_steps = shares(schedule, steps + 3)
    assert all(0 < share <= 1 for share in shares_of_steps[:warmup])
    assert shares_of_steps[:warmup] == sorted(shares_of_steps[:warmup])
    assert shares_of_steps[warmup] == pytest.approx(1.0)
    assert all(
        later <= sooner + 1e-12
        for sooner, later in zip(shares_of_steps[warmup:], shares_of_steps[warmup + 1 :], strict=False)
    )
    assert shares_of_steps[steps:] == pytest.approx([schedule.floor] * 3)


@given(schedules)
def test_it_comes_back_from_its_configuration(schedule: Part) -> None:
    assert Slot("schedule").fill(schedule.config()) == schedule


def test_a_warm_up_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        Cosine(steps=5, warmup_steps=5)
    assert str(caught.value) == (
        "Cosine: warmup_steps is 5, but the schedule has only 5 steps; give fewer warmup_steps"
    )


def test_a_run_file_names_a_schedule_by_its_kind() -> None:
    config = LearnerConfig(schedule={"kind": "cosine", "steps": 7})
    assert config.schedule == Cosine(steps=7)
    assert LearnerConfig().schedule == Constant()
    assert load_catalogue("schedule") == load_catalogue("schedule")
