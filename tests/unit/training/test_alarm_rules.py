"""The rules of alarms, worked by hand: what each says at which numbers, and where it is silent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from groupwise.store.journal import SettingChange
from groupwise.system.errors import ConfigError
from groupwise.training.alarms import (
    AlarmRule,
    AlarmsConfig,
    CutOff,
    EntropyCollapse,
    EntropyExplosion,
    FarFromReference,
    LengthCollapse,
    LengthGrowth,
    NoSignal,
    RewardHacking,
    RunHistory,
    SamplerGap,
    Truncated,
    list_raised,
)
from groupwise.training.evaluation.summary import RunVerdict, make_verdict
from tests.unit.evaluations import make_evaluated

ENTROPY, SUCCESS, RETURN = "rollout/entropy", "rollout/success", "rollout/return"
LENGTH, CUT, KL, GAP = "rollout/response_tokens", "rollout/cut_off", "loss/kl_to_reference", "loss/mismatch_size"
SIGNAL = "advantage/groups_with_signal"


def remember(window: int = 2, verdict: RunVerdict | None = None, **curves: Sequence[float | None]) -> RunHistory:
    """A history from the curves of metrics, from update 1 on; None = the update has no such metric."""

    def read(number: int) -> dict[str, float]:
        values = {name: curve[number - 1] for name, curve in curves.items() if number <= len(curve)}
        return {name: value for name, value in values.items() if value is not None}

    return RunHistory(read, window, verdict)


def list_loud(rule: AlarmRule, history: RunHistory, updates: int) -> list[int]:
    """After which updates a rule has something to say."""
    return [number for number in range(1, updates + 1) if rule.describe(history, number)]


FALLING = [1.0, 1.0, 0.5, 0.01, 0.01, 0.01]
RISING = [1.0, 1.0, 2.0, 4.0, 4.0, 4.0]


@pytest.mark.parametrize(
    ("rule", "curves", "loud"),
    [
        (EntropyCollapse(), {ENTROPY: FALLING, SUCCESS: [0.1] * 6}, [5, 6]),
        (EntropyCollapse(), {ENTROPY: FALLING}, [5, 6]),
        (EntropyCollapse(), {ENTROPY: FALLING, SUCCESS: [0.1] * 3 + [0.9] * 3}, []),
        (EntropyCollapse(), {ENTROPY: [0.01] * 6}, []),
        (EntropyCollapse(below=0.3), {ENTROPY: FALLING}, [5, 6]),
        (EntropyCollapse(below=0.3, share=1.0), {ENTROPY: FALLING}, [4, 5, 6]),
        (EntropyExplosion(), {ENTROPY: RISING}, [4, 5, 6]),
        (EntropyExplosion(), {ENTROPY: RISING, SUCCESS: [0.1, 0.1, 0.1, 0.1, 0.3, 0.3]}, [4]),
        (EntropyExplosion(rise=5.0), {ENTROPY: RISING}, []),
        (FarFromReference(), {KL: [0.1, 0.1, 3.0, 3.0, 1.0]}, [4]),
        (FarFromReference(above=1.0), {KL: [3.0, 3.0, None, None, None]}, [2, 3]),
        (SamplerGap(), {GAP: [0.1, 0.4, 0.1, 0.1]}, [2, 3]),
        (LengthGrowth(), {LENGTH: [10, 10, 10, 60, 60]}, [4, 5]),
        (LengthGrowth(), {LENGTH: [1, 1, 10, 10, 10]}, []),
        (LengthGrowth(tokens=0), {LENGTH: [1, 1, 10, 10, 10]}, [4, 5]),
        (LengthGrowth(), {LENGTH: [10, 10, 10, 60, 60], SUCCESS: [0.0, 0.0, 0.5, 0.5, 0.5]}, []),
        (LengthCollapse(), {LENGTH: [100, 100, 100, 2, 2]}, [5]),
        (LengthCollapse(), {LENGTH: [10, 10, 1, 1, 1]}, []),
        (LengthCollapse(tokens=0), {LENGTH: [10, 10, 1, 1, 1]}, [4, 5]),
        (CutOff(), {CUT: [0.0, 0.2, 0.6, 0.6, 0.6]}, [4, 5]),
        (CutOff(), {CUT: [0.9] * 6}, []),
        (Truncated(above=0.1, rise=0.1), {"rollout/truncated": [0.0, 0.0, 0.2, 0.2, 0.2]}, [4, 5]),
        (NoSignal(updates=3), {SIGNAL: [0.0, 0.0, 0.0, 0.5, 0.0]}, [3]),
        (NoSignal(updates=3), {SIGNAL: [0.0] * 4, SUCCESS: [1.0] * 4}, []),
    ],
)
def test_a_rule_speaks_where_both_limits_are_passed(
    rule: AlarmRule, curves: dict[str, Sequence[float | None]], loud: list[int]
) -> None:
    updates = max(map(len, curves.values()))
    assert list_loud(rule, remember(**curves), updates) == loud


def judge(*shares: tuple[int, int], tasks: int = 10, success: bool = True) -> RunVerdict:
    """Evaluations: after which update, and how many of ten tasks were solved."""
    rows = [
        make_evaluated(
            number=number,
            task=f"t{task}",
            success=float(task < solved) if success else None,
            outcome=float(task < solved),
        )
        for number, solved in shares
        for task in range(tasks)
    ]
    return make_verdict(rows, "test")


@pytest.mark.parametrize(
    ("returns", "evaluations", "loud"),
    [
        ([1.0, 1.0, 2.0, 3.0], [(0, 10), (4, 2)], [4]),
        ([1.0, 1.0, 1.0, 1.0], [(0, 10), (4, 2)], []),  # the return did not rise
        ([3.0, 3.0, 2.0, 1.0], [(0, 10), (4, 2)], []),  # it fell too
        ([1.0, 3.0, 1.0, 3.5], [(0, 10), (4, 2)], []),  # it rose by less than it goes up and down
        ([1.0, 1.0, 2.0, 3.0], [(0, 10), (4, 8)], []),  # the intervals overlap
        ([1.0, 1.0, 2.0, 3.0], [(0, 1), (4, 10)], []),
        ([1.0, 1.0, 2.0, 3.0], [(4, 1)], []),
        ([1.0, 1.0, 3.0, 3.0, 4.0], [(0, 1), (2, 10), (4, 2), (5, 1)], [4, 5]),  # against the best, not the first
    ],
)
def test_a_reward_is_hacked_where_it_rises_and_held_out_success_clearly_falls(
    returns: list[float], evaluations: list[tuple[int, int]], loud: list[int]
) -> None:
    history = remember(verdict=judge(*evaluations), **{RETURN: returns})
    assert list_loud(RewardHacking(), history, len(returns)) == loud


def test_it_is_told_once_for_two_evaluations_in_a_row() -> None:
    history = remember(verdict=judge((0, 1), (2, 10), (4, 2), (6, 1)), **{RETURN: [1.0, 1.0, 2.0, 2.0, 5.0, 5.0]})
    raised = [number for number in range(7) if list_raised(AlarmsConfig(), history, number)]
    assert raised == [4]


def test_what_hovers_at_its_limit_is_told_once_and_again_only_after_a_whole_window_of_silence() -> None:
    hovering = [3.0, 3.0, 0.0, 0.0] * 10  # means of two: 3, 1.5, 0, 1.5
    history = remember(**{KL: [*hovering, 0.0, 0.0, 3.0, 3.0, 3.0]})
    settings = AlarmsConfig(window=2, reference_kl=FarFromReference(above=1.0))
    loud = list_loud(settings.reference_kl, history, 45)
    assert loud == [number for number in range(2, 40) if number % 4] + [43, 44, 45]
    assert [number for number in range(46) if list_raised(settings, history, number)] == [2, 43]


def test_falls_that_come_and_go_from_evaluation_to_evaluation_are_told_once() -> None:
    verdict = judge((0, 10), (2, 2), (4, 9), (6, 2), (8, 9), (10, 2))
    history = remember(verdict=verdict, **{RETURN: [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0, 5.0]})
    assert list_loud(RewardHacking(), history, 10) == [6, 10]
    assert [number for number in range(11) if list_raised(AlarmsConfig(), history, number)] == [6]


def test_success_on_other_tasks_is_no_fall() -> None:
    rows = [
        make_evaluated(number=number, task=f"t{task}", success=float(task < solved), task_set=task_set)
        for number, solved, task_set in [(0, 10, "easy"), (2, 2, "hard"), (4, 2, "hard"), (6, 1, "easy")]
        for task in range(10)
    ]
    history = remember(verdict=make_verdict(rows, "test"), **{RETURN: [1.0, 1.0, 2.0, 3.0, 4.0, 5.0]})
    assert list_loud(RewardHacking(), history, 6) == [6]


def alter(path: str, before: Any, after: Any, number: int = 5) -> list[SettingChange]:
    return [SettingChange(number=number, path=f"alarms.{path}", before=before, after=after)]


@pytest.mark.parametrize(
    ("changes", "raised"),
    [
        ([], [2]),
        (alter("reference_kl.action", "warn", "stop"), [2, 6]),
        (alter("reference_kl.action", "off", "warn"), [2, 6]),
        (alter("reference_kl.above", 9.0, 2.0), [2, 6]),
        (alter("window", 5, 2), [2, 6]),
        (alter("reference_kl.action", "stop", "warn"), [2]),  # it was told when it stopped the run
        (alter("sampler_gap.action", "warn", "stop"), [2]),
        (alter("reference_kl.action", "warn", "stop", number=2), [2]),  # told right before
    ],
)
def test_a_rule_that_was_changed_is_raised_by_what_holds_already(
    changes: list[SettingChange], raised: list[int]
) -> None:
    history = remember(**{KL: [3.0] * 9})
    assert [number for number in range(10) if list_raised(AlarmsConfig(window=2), history, number, changes)] == raised


def test_a_changed_rule_on_evaluations_is_raised_at_the_next_of_them() -> None:
    history = remember(
        verdict=judge((0, 10), (4, 2), (6, 2), (8, 2), (10, 2)), **{RETURN: [float(n) for n in range(1, 11)]}
    )
    changes = alter("reward_hacking.action", "warn", "stop", number=7)
    assert [number for number in range(11) if list_raised(AlarmsConfig(), history, number, changes)] == [4, 8]


def test_a_sentence_has_the_numbers_the_updates_and_what_to_do() -> None:
    history = remember(**{ENTROPY: FALLING, SUCCESS: [0.125] * 6})
    assert EntropyCollapse().describe(history, 5) == (
        "entropy fell from 1 nats (updates 1 to 2) to 0.01 (updates 4 to 5) while 12.5 % of the rollouts succeed: "
        "the rollouts of a task become equal, and there is nothing to compare. Lower training.learner.learning_rate, "
        "or begin a run with an entropy bonus, a KL penalty or a higher rollout.temperature"
    )
    hacked = remember(window=1, verdict=judge((0, 10), (2, 1), success=False), **{RETURN: [1.0, 2.0]})
    said = RewardHacking().describe(hacked, 2)
    assert said is not None
    assert said.startswith(
        "the mean final score on the test tasks fell from 1 (after update 0) to 0.1 (after update 2) while the "
        "training return rose from 1 (update 1) to 2 (update 2): the policy exploits the rewards. "
    )
    assert "take the checkpoint of update 0" in said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"window": 0}, "window: expected a number greater than or equal to 1, found 0"),
        ({"entropy_colapse": {}}, "entropy_colapse: unknown setting; did you mean 'entropy_collapse'?"),
        (
            {"cut_off": {"action": "beep"}},
            "cut_off.action: expected 'off', 'warn' or 'stop', found 'beep'",
        ),
        ({"cut_off": {"above": 2}}, "cut_off.above: expected a number less than or equal to 1, found 2"),
    ],
)
def test_wrong_settings_are_a_sentence(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AlarmsConfig(**settings)
    assert said in str(caught.value)
