"""What a method cannot work with is refused with a reason, or said in one sentence where it may still change.

Tasks that every rollout solved are left out beside a method that learns from them: test_solved_groups.py.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise import Algorithm, ConfigError, Part, Trajectory, methods
from groupwise.credit import AtMost, EnvironmentReward
from groupwise.losses import EntropyBonus, Plain, PolicyLoss
from groupwise.methods.r2vpo import RatioVariance
from groupwise.parts.part import load_catalogue, name_of
from groupwise.rollout.scorers import check_scorers
from groupwise.training.config.checks import check_algorithm
from groupwise.training.loop import make_update
from groupwise.training.loss_context import NUM_PAIRS
from groupwise.training.observer import ObserverList
from groupwise.training.open_run import open_run
from tests.unit.training.runs import small_config

SURROGATES: list[Any] = [part() for part in load_catalogue("surrogate").values()]
PENALTIES: list[Any] = [part() for part in load_catalogue("penalty").values()]
BOUNDING = [part for part in SURROGATES if getattr(part, "is_trust_region", False)]
HOLDING = [part for part in PENALTIES if getattr(part, "is_trust_region", False)]
PAIRED = [name for name in methods.names() if methods.build(name).pairing is not None]


@pytest.mark.parametrize("surrogate", BOUNDING, ids=lambda part: type(part).__name__)
@pytest.mark.parametrize("penalty", HOLDING, ids=lambda part: type(part).__name__)
def test_two_trust_regions_are_refused(surrogate: Part, penalty: Part) -> None:
    with pytest.raises(ConfigError) as caught:
        PolicyLoss(surrogate=surrogate, penalties=(EntropyBonus(), penalty))
    assert str(caught.value) == (
        f"PolicyLoss: {type(penalty).__name__} replaces a clip, but {type(surrogate).__name__} clips "
        "too: two trust regions; use the surrogate 'plain' and one such penalty, or leave the penalty out"
    )


def test_two_penalties_that_hold_ratios_are_two_trust_regions_too() -> None:
    held = RatioVariance()
    with pytest.raises(ConfigError, match="two trust regions"):
        PolicyLoss(surrogate=Plain(), penalties=(held, held.model_copy(update={"column": "other"})))


def test_one_trust_region_is_not_refused_nor_a_penalty_that_weighs_nothing() -> None:
    assert len(BOUNDING) >= 4
    PolicyLoss(surrogate=Plain(), penalties=(RatioVariance(), EntropyBonus()))
    PolicyLoss(penalties=(RatioVariance(weight=0.0), EntropyBonus()))


READING = [
    name
    for name in methods.names()
    if methods.build(name).scorers
    and any(part.slot == "token_credit" and hasattr(part, "reads") for part in methods.build(name).parts())
]


@pytest.mark.parametrize("name", READING)
def test_a_token_method_without_the_columns_it_reads_is_refused_before_a_model_loads(name: str) -> None:
    whole = methods.build(name)
    if not any("judge" in part.needs for part in whole.scorers or ()):
        check_scorers(whole)
    with pytest.raises(ConfigError) as caught:
        check_scorers(whole.model_copy(update={"scorers": None}))
    text = str(caught.value)
    assert text.startswith("algorithm.token_credit: ")
    assert "which nothing here writes; add the scorer " in text


def test_most_token_methods_read_what_a_measure_writes() -> None:
    assert {"spo_chain", "spae", "after_vsrm", "dcpo"} <= set(READING)


@pytest.mark.parametrize("name", PAIRED)
def test_pairs_of_lone_rollouts_are_refused_before_a_model_loads(name: str) -> None:
    config = small_config(method=name)
    check_algorithm(config)
    admitting = config.algorithm.model_copy(update={"rollout_filters": (AtMost(rollouts=1),)})
    with pytest.raises(ConfigError) as caught:
        check_algorithm(config.model_copy(update={"algorithm": admitting}))
    assert str(caught.value) == (
        f"algorithm.pairing: {name_of(config.algorithm.pairing)} compares rollouts of one task, but the rollout filter "
        "at_most keeps 1 per task; set its rollouts to at least 2"
    )


class Nothing(Part, slot="reward"):
    """Every rollout earns the same."""

    def __call__(self, trajectory: Trajectory) -> list[float]:
        return [0.0] * len(trajectory.steps)


def make_updates(folder: Path, algorithm: Algorithm, *rewards: Part) -> list[dict[str, float]]:
    """Metrics of one update for each of the rewards."""
    metrics = []
    with open_run(small_config(updates=9).model_copy(update={"algorithm": algorithm}), folder) as run:
        for number, reward in enumerate(rewards, 1):
            run.config = run.config.model_copy(update={"rewards": (reward,)})
            metrics.append(make_update(run, number, ObserverList([])).metrics)
    return metrics


def test_updates_without_a_pair_say_so_once_in_a_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    paid, unpaid = EnvironmentReward(), Nothing()
    with caplog.at_level(logging.WARNING, logger="groupwise.training"):
        metrics = make_updates(tmp_path, methods.simpo(), unpaid, unpaid, paid, unpaid)
    assert [update[NUM_PAIRS] > 0 for update in metrics] == [False, False, True, False]
    assert [update["loss/total"] for update in metrics[:2]] == [0.0, 0.0]
    assert [record.getMessage() for record in caplog.records] == [
        f"update {number}: no task has two rollouts that train and have different scores, so the loss has no pair to "
        "learn from. Nothing is learned while learner/pairs is 0. Give tasks that only some rollouts solve, a graded "
        "reward, or more rollouts per task (rollout.group_size)"
        for number in (1, 4)
    ]


def test_a_method_without_pairs_says_nothing_of_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="groupwise.training"):
        (update,) = make_updates(tmp_path, methods.dr_grpo(), Nothing())
    assert NUM_PAIRS not in update
    assert caplog.records == []
