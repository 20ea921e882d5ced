"""The audit of sessions: numbers of a small recording by hand, and random recordings against a slow loop."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from groupwise.agents.recorded_sessions import RecordedCall
from groupwise.methods import build
from groupwise.report.audit_sessions import BANDS, SessionAudit, audit_sessions
from groupwise.system.errors import RecordError
from tests.unit.agents.chats import calls, result, user

Walk = list[tuple[str, str]]
"""The keys of one rollout's steps, each with the true state."""


def audit(walks: dict[str, list[Walk]], rewards: dict[str, list[float]] | None = None, **methods: Any) -> SessionAudit:
    """Audit rollouts whose keys and true states are given; the writes are the true states."""
    recorded = [
        RecordedCall(
            task=task,
            rollout=rollout,
            messages=[user(key), user(truth)],
            reward=rewards[task][rollout] if rewards else None,
            state=truth,
        )
        for task, rollouts in walks.items()
        for rollout, walk in enumerate(rollouts)
        for key, truth in walk
    ]
    rules = {"mine": lambda messages: messages[0]["content"] or None}
    return audit_sessions(recorded, rules, methods, writes=lambda messages: messages[1]["content"])


def walk(*keys: str) -> Walk:
    return [(key, key) for key in keys]


def test_a_recording_by_hand() -> None:
    found = audit(
        {
            "t": [[("s", "0"), ("a", "1"), ("b", "2")], [("s", "0"), ("a", "1"), ("a", "9")], [("s", "0"), ("c", "3")]],
            "u": [[("s", "0"), ("a", "1")], [("s", "0"), ("d", "4")]],
        },
        {"t": [1.0, 0.0, 0.0], "u": [1.0, 1.0]},
    )
    (rule,) = found.rules
    assert (found.tasks, found.rollouts, found.steps, found.later_steps, found.mixed_tasks) == (2, 5, 12, 7, 1)
    assert rule.keys == 5
    # In t, `a` is at step 1 of rollout 0, and at steps 1 and 2 of rollout 1. The other task's `a` does not count.
    assert rule.peers == pytest.approx(3 / 7)
    assert rule.peers_by_step == [pytest.approx(2 / 5), pytest.approx(1 / 2), None, None, None, None]
    assert rule.comparisons == pytest.approx((2 + 1 + 1) / 3)
    assert rule.differing == pytest.approx(3 / 7)
    assert rule.false_by_writes == rule.false_by_state == pytest.approx(1 / 2)
    assert rule.largest_key == pytest.approx(4 / 7)
    # Only task t has three rollouts. One other rollout lacks the key of a step there with the probability
    # (3 x 0.5 + 2 x 1) / 5 = 0.7, and both others lack it with 2 / 5 = 0.4. So a second one helps 3 of 7 steps that
    # the first one did not, more than the first one helped. The line would fall, so the other five help as many.
    assert rule.fitted == pytest.approx(1 - 0.4 * (4 / 7) ** 5)


@pytest.mark.parametrize("seed", range(20))
def test_random_recordings_agree_with_a_slow_loop(seed: int) -> None:
    rng = random.Random(seed)
    walks = {
        task: [
            [(rng.choice(["", "a", "b", "c"]), rng.choice("01")) for _ in range(rng.randint(1, 6))]
            for _ in range(rng.randint(1, 5))
        ]
        for task in ("t", "u", "v")
    }
    rewards = {task: [float(rng.randint(0, 1)) for _ in rollouts] for task, rollouts in walks.items()}
    (rule,) = audit(walks, rewards).rules
    peers, differing, comparisons, right, wrong = [], [], [], 0, 0
    for task, rollouts in walks.items():
        steps = [(rollout, step, *entry) for rollout, keys in enumerate(rollouts) for step, entry in enumerate(keys)]
        for rollout, step, key, _ in steps:
            if step == 0:
                continue
            others = [other for other in steps if other[0] != rollout and other[2] == key != ""]
            peers.append(bool(others))
            differing.append(len({rewards[task][other[0]] for other in others} | {rewards[task][rollout]}) > 1)
            comparisons += [len(others)] if others else []
        for first, second in itertools.combinations(steps, 2):
            if first[0] != second[0] and first[2] == second[2] != "" and first[1] and second[1]:
                right, wrong = right + (first[3] == second[3]), wrong + (first[3] != second[3])
    assert rule.peers == pytest.approx(sum(peers) / max(len(peers), 1))
    assert rule.differing == (pytest.approx(sum(differing) / len(differing)) if differing else None)
    assert rule.comparisons == pytest.approx(sum(comparisons) / max(len(comparisons), 1))
    expected = wrong / (right + wrong) if right + wrong else None
    assert rule.false_by_writes == rule.false_by_state == (expected if expected is None else pytest.approx(expected))


def test_the_fitted_fraction_is_that_of_larger_groups() -> None:
    """Keys of every frequency: four rollouts predict the fraction of eight."""
    rng = random.Random(0)
    sampled = {str(task): [walk("s", str(int(rng.paretovariate(0.4)) % 1000)) for _ in range(8)] for task in range(400)}
    (few,) = audit({task: rollouts[:4] for task, rollouts in sampled.items()}).rules
    (eight,) = audit(sampled).rules
    assert few.peers < eight.peers - 0.1
    assert few.fitted == pytest.approx(eight.peers, abs=0.03)


def test_two_rollouts_per_task_cannot_be_fitted() -> None:
    (rule,) = audit({"t": [walk("s", "a"), walk("s", "a")]}).rules
    assert rule.peers == 1.0
    assert rule.fitted is None


def test_without_scores_nothing_is_said_about_them() -> None:
    found = audit({"t": [walk("s", "a"), walk("s", "b")]}, hgpo=build("hgpo"))
    assert (found.mixed_tasks, found.rules[0].differing, found.methods) == (None, None, [])


def test_advantages_on_unmixed_tasks() -> None:
    """Under the published HGPO, an earlier success is worth more; with gamma=1, tasks without a difference give 0."""
    walks = {"t": [walk("s", "a"), walk("s", "b", "a")], "u": [walk("s", "a"), walk("s", "a")]}
    rewards = {"t": [1.0, 1.0], "u": [1.0, 0.0]}
    found = audit(walks, rewards, hgpo=build("hgpo", depth=0), even=build("hgpo", depth=0, gamma=1))
    hgpo, even = found.methods
    # t: the returns at `s` are 0.95 and 0.9025, at `a` 1 and 1; u: 0.95 and 0 at `s`, 1 and 0 at `a`.
    assert hgpo.unmixed == pytest.approx(2 / 6, rel=1e-3)
    assert even.unmixed == 0.0
    assert hgpo.compared == pytest.approx(8 / 9)
    assert [(finding.level, finding.rule) for finding in found.findings if "hgpo" in finding.text] == [
        ("amber", "mine")
    ]


@pytest.mark.parametrize(
    ("with_peers", "levels"), [(0, ["red"]), (2, ["red"]), (3, ["amber"]), (4, ["amber"]), (6, []), (10, [])]
)
def test_few_peers_are_an_alarm(with_peers: int, levels: list[str]) -> None:
    """2 of 10 later steps are red, 3 and 4 are amber, half and more are none."""
    rollouts = [[("s", "0")], [("s", "0")]]
    for number in range(10):
        rollouts[number % 2].append(2 * (f"k{number // 2}" if number < with_peers else f"own{number}",))  # type: ignore[arg-type]
    if with_peers == 3:  # two steps of one rollout with the key of one step of the other
        rollouts = [walk("s", "k", "o1", "o2", "o3", "o4"), walk("s", "k", "k", "o5", "o6", "o7")]
    found = audit({"t": rollouts})
    assert found.rules[0].peers == pytest.approx(with_peers / 10)
    assert [finding.level for finding in found.findings if "have peers" in finding.text] == levels


@pytest.mark.parametrize(("visits", "texts"), [(1, []), (2, ["One key has 16.7 % of later steps."])])
def test_a_key_of_too_many_steps_is_an_alarm(visits: int, texts: list[str]) -> None:
    """Ten keys with 10 % each; then one of them again in both rollouts."""
    rollouts = [walk("s", *(f"k{number}" for number in range(10)), *["k0"] * (visits - 1)) for _ in range(2)]
    rollouts = [[*keys, ("k9", "k9")] if visits > 1 else keys for keys in rollouts]
    found = audit({"t": rollouts})
    assert [finding.text[:34] for finding in found.findings] == [text for text in texts for _ in range(1)]


def test_one_result_after_many_calls_is_an_alarm() -> None:
    def calls_with(num: int) -> list[RecordedCall]:
        return [
            RecordedCall(
                task="t",
                rollout=rollout,
                messages=[user("hi"), calls(("run", f'{{"n": {number}}}')), result("")] if number else [user("hi")],
            )
            for rollout in range(2)
            for number in range(num + 1)
        ]

    def texts(num: int) -> list[str]:
        found = audit_sessions(calls_with(num), {"empty": lambda messages: "empty"}, {})
        assert found.rules[0].calls_of_key == num
        return [finding.text for finding in found.findings if "different calls" in finding.text]

    assert texts(20) == []
    assert len(texts(21)) == 1


def test_false_pairs_are_an_alarm() -> None:
    found = audit({"t": [[("s", "0"), ("a", "1")], [("s", "0"), ("a", "2")]]})
    assert "100.0 % of the compared pairs are in different states of the environment. Use exchange with writes." in {
        finding.text for finding in found.findings
    }


def test_a_file_without_calls_is_an_error() -> None:
    with pytest.raises(RecordError, match="the file has no model call"):
        audit_sessions([], {"none": lambda messages: None}, {})


def test_the_bands_cover_every_later_step() -> None:
    assert BANDS[0][0] == 1
    assert BANDS[-1][1] is None
    assert all(last is not None and following == last + 1 for (_, last), (following, _) in itertools.pairwise(BANDS))
