"""EPO's entropy bonus: the specification's numbers, what is remembered, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from groupwise import ConfigError, methods
from groupwise.data.records import Task
from groupwise.losses import EntropyBonus, PolicyLoss, TokenColumns
from groupwise.methods.epo import EntropyCorridor, weigh_phase
from groupwise.training.config.run_config import RunConfig
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.oracles.losses import Token
from tests.oracles.token_batches import columns_of
from tests.unit.losses.entropies import make_update
from tests.unit.training.runs import small_config

TASKS = [Task(id="t")]
PATH = "algorithm.loss.penalties.1"


def columns(entropies: list[float], usual: float, phase: float = 1.0) -> TokenColumns:
    tokens = [Token(-1.0, -1.0, -1.0, -1.0, entropy, 0.0, True, 0, 0, 0) for entropy in entropies]
    named = {"usual_entropy": usual, "usual_entropy_phase": phase}
    return dataclasses.replace(
        columns_of(tokens),
        named={name: torch.full((len(tokens),), value, dtype=torch.float64) for name, value in named.items()},
    )


def penalties(part: EntropyCorridor, entropies: list[float], usual: float = 1.0) -> list[float]:
    """P of each token: what is added to an entropy bonus."""
    handed = columns(entropies, usual)
    return ((part(handed) + handed.entropy) / part.smoothing).tolist()


@pytest.mark.parametrize(
    ("bounds", "expected"), [((0.8, 1.2), [0.1, 0.1, 0.0, 0.1]), ((0.0, 2.0), [0.0, 0.0, 0.0, 0.1])]
)
def test_the_constant_penalty_has_the_numbers_of_the_specification(
    bounds: tuple[float, float], expected: list[float]
) -> None:
    part = EntropyCorridor(low=bounds[0], high=bounds[1], form="constant")
    assert penalties(part, [0.1, 0.4, 0.9, 2.3]) == pytest.approx(expected, abs=1e-12)
    assert penalties(part, [0.1, 0.4, 0.9, 2.3], usual=0.0) == [0.0] * 4


@pytest.mark.parametrize("form", ["constant", "hinge"])
def test_each_token_is_held_to_what_was_usual_at_its_own_step(form: str) -> None:
    """Usual are 1 and 0.1: an entropy of 1 is inside the first alone, one of 0.1 inside the second alone."""
    part = EntropyCorridor(low=0.8, high=1.2, form=form)
    handed = columns([1.0, 0.1, 0.1, 1.0], usual=1.0)
    usual = torch.tensor([1.0, 0.1, 1.0, 0.1], dtype=torch.float64)
    handed = dataclasses.replace(handed, named={**handed.named, "usual_entropy": usual})
    assert part.measure(handed)["entropy_outside"].tolist() == [False, False, True, True]
    assert ((part(handed) + handed.entropy) > 0).tolist() == [False, False, True, True]


def test_the_hinge_grows_with_the_distance_in_units_of_what_was_usual() -> None:
    part = EntropyCorridor(low=0.8, high=1.2)
    assert penalties(part, [0.1, 0.4, 0.9, 2.3]) == pytest.approx([0.07, 0.04, 0.0, 0.11], abs=1e-12)
    assert penalties(part, [0.2, 4.6], usual=2.0) == pytest.approx([0.07, 0.11], abs=1e-12)
    assert penalties(part, [0.5], usual=0.001) == pytest.approx([0.1 * (0.5 - 0.0012) / 0.01], abs=1e-12)
    assert penalties(part, [0.5], usual=0.0) == [0.0]


@pytest.mark.parametrize("low", [0.0, 0.5])
def test_on_the_bounds_of_the_corridor_nothing_is_added_to_the_slope_of_the_bonus(low: float) -> None:
    """A token that is certain has entropy 0, which is the lower bound of the default."""
    handed = columns([low, 1.5], usual=1.0)
    (slopes,) = torch.autograd.grad(EntropyCorridor(low=low, high=1.5)(handed).sum(), handed.entropy)
    assert slopes.tolist() == [-1.0, -1.0]


def test_a_step_is_held_by_its_mean() -> None:
    part = EntropyCorridor(low=0.8, high=1.2, over="step")
    assert penalties(part, [0.1, 1.9]) == pytest.approx([0.0, 0.0], abs=1e-12)
    assert penalties(part, [1.0, 1.8]) == pytest.approx([0.02, 0.02], abs=1e-12)
    assert (part.unit, EntropyCorridor().unit) == ("step", "token")


def test_smoothing_fades_as_the_specification_says() -> None:
    weights = [weigh_phase(done, 150) for done in (0, 74, 75, 100, 125, 150)]
    assert weights == pytest.approx([1.0, 0.8278, 0.8, 0.2943, 0.1083, 0.0398], abs=5e-5)
    assert weigh_phase(1, 4) == pytest.approx(0.8736, abs=5e-5)  # a quarter of the run, as 37.5 of 150


def test_how_much_it_counts_is_a_product() -> None:
    part = EntropyCorridor(low=0.8, high=1.2, smoothing=2.0)
    assert part(columns([2.3], 1.0, phase=0.5)).tolist() == pytest.approx([-2.3 + 2.0 * 0.5 * 0.11], abs=1e-12)


def test_only_updates_that_reached_a_step_say_what_is_usual_there() -> None:
    state = EntropyCorridor(updates=4).start(seed=0)
    assert state.columns(TASKS)["usual_entropy"].tolist() == [[0.0]]
    assert state.columns(TASKS)["usual_entropy_phase"].tolist() == [1.0]
    state.observe(make_update(1, [[(0, [1.0, 1.0]), (1, [0.5])], [(0, [1.0])]]))
    state.observe(make_update(2, [[(0, [2.0]), (1, [0.6, 0.8]), (2, [0.9])]]))
    assert state.columns(TASKS * 2)["usual_entropy"].tolist() == [pytest.approx([1.5, 0.6, 0.9, 0.0])] * 2
    assert state.state_dict() == {"done": 2, "sums": [3.0, pytest.approx(1.2), 0.9], "counts": [2, 2, 1]}


def test_an_index_that_nobody_reached_has_nothing_usual() -> None:
    state = EntropyCorridor().start(seed=0)
    state.observe(make_update(1, [[(2, [0.7])]]))
    assert state.columns(TASKS)["usual_entropy"].tolist() == [[0.0, 0.0, 0.7, 0.0]]


def test_a_corridor_without_room_is_refused() -> None:
    with pytest.raises(ConfigError) as error:
        EntropyCorridor(low=1.2, high=1.2)
    assert str(error.value) == "EntropyCorridor: low (1.2) is not below high (1.2): no entropy is inside"


def test_without_smoothing_nothing_is_read_but_entropy() -> None:
    part = EntropyCorridor(smoothing=0.0, over="step")
    assert (part.columns, part.needs_entropy, part.unit) == (frozenset(), False, "token")
    assert part.measure(columns([1.0], 1.0)) == {}
    assert PolicyLoss(penalties=(EntropyCorridor(weight=0.0),)).columns == frozenset()
    assert EntropyCorridor(weight=0.0).needs_entropy is False


def test_the_share_outside_is_reported() -> None:
    handed = columns([0.1, 0.4, 0.9, 2.3], 1.0)
    assert EntropyCorridor(low=0.8, high=1.2).measure(handed)["entropy_outside"].tolist() == [True, True, False, True]


def config(updates: int) -> RunConfig:
    small = small_config(updates=updates)
    return small.model_copy(update={"algorithm": methods.epo(updates=4, low=0.9, high=1.1)})


def test_a_resumed_run_goes_on_to_the_bit(tmp_path: Path) -> None:
    folders = [tmp_path / "whole", tmp_path / "cut"]
    with open_run(config(4), folders[0]) as whole:
        train(whole)
    with open_run(config(2), folders[1]) as first:
        train(first)
    with open_run(config(4), folders[1]) as rest:
        train(rest, resume=True)
        again = [rest.journal.states_before(number) for number in range(1, 5)]
    with open_run(config(4), folders[0]) as whole:
        assert [whole.journal.states_before(number) for number in range(1, 5)] == again
    states = [json.loads((folder / "checkpoints/0004/state.json").read_text())["parts"] for folder in folders]
    assert states[0] == states[1]
    assert states[0][PATH]["kind"] == "entropy_corridor"
    assert states[0][PATH]["state"]["done"] == 4
    assert states[0][PATH]["state"]["counts"][0] == 4
    usual = [before.columns["usual_entropy"] for [before] in again]
    assert {str(row) for row in usual[0].values()} == {"[0.0]"}
    assert all(row[0] > 0 for row in usual[1].values() if isinstance(row, list))
    weights = [(folder / "checkpoints/0004/model.safetensors").read_bytes() for folder in folders]
    assert weights[0] == weights[1]


def test_without_smoothing_it_is_the_entropy_bonus() -> None:
    handed = columns([0.3, 1.4], 1.0)
    assert torch.equal(EntropyCorridor(smoothing=0.0)(handed), EntropyBonus()(handed))
