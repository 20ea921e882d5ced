"""What each step changed in a prover's chance, with continuations by rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from groupwise import ConfigError, RecordError, Step, Task, Trajectory
from groupwise.data.records import StopReason
from groupwise.methods.pav import ProverValues
from groupwise.rollout.forks import Fork

TASK = Task(id="q")


def rollout(number: int, *said: int, success: float | None = 0.0, **fields: Any) -> Trajectory:
    steps = tuple(Step(index=i, response_ids=(token,), **fields) for i, token in enumerate(said))
    scores = {} if success is None else {"success": success}
    return Trajectory(id=str(number), task=TASK, rollout=number, steps=steps, scores=scores)


class Continued:
    """Tools whose continuations succeed by their number: the first `wins` of a situation, by what was said so far."""

    def __init__(self, wins: dict[tuple[int, ...], int], faults: int = 0) -> None:
        self.wins, self.faults, self.asked = wins, faults, list[Fork]()

    def play_forks(self, forks: Sequence[Fork]) -> list[Trajectory]:
        self.asked += forks
        return [self._play(fork) for fork in forks]

    def _play(self, fork: Fork) -> Trajectory:
        said = tuple(token for step in fork.trunk.steps[: fork.kept] for token in step.response_ids)
        won = float(fork.number < self.wins[said])
        stop = StopReason.ERROR if said and fork.number < self.faults else StopReason.TERMINATED
        return Trajectory(id="", task=TASK, rollout=fork.number, steps=(), scores={"success": won}, stop=stop)


def draw(*path: Any) -> np.random.Generator:
    return np.random.default_rng(abs(hash(path)))


GROUP = [rollout(0, 7, 8, success=1.0), rollout(1, 7, 9), rollout(2, 6)]
WINS = {(): 1, (7,): 2}
PART = ProverValues(best_of=2, continuations=4)


def test_a_step_has_what_it_changed_in_the_best_of_two() -> None:
    # 1 of 4: 1 - C(3, 2) / 6 = 1/2; 2 of 4: 1 - 1/6 = 5/6; at the end the rollout's own success.
    (group,) = PART([GROUP], Continued(WINS), draw=draw)  # type: ignore[arg-type]
    progress = [[info["prover_progress"] for info in steps] for steps in group]
    assert progress == [pytest.approx([1 / 3, 1 / 6]), pytest.approx([1 / 3, -5 / 6]), [-0.5]]
    assert [info["prover_value"] for info in group[0]] == pytest.approx([0.5, 5 / 6])


def test_a_situation_that_several_rollouts_were_in_is_continued_once() -> None:
    tools = Continued(WINS)
    PART([GROUP], tools, draw=draw)  # type: ignore[arg-type]
    assert [(fork.trunk.id, fork.kept, fork.number) for fork in tools.asked] == [
        ("0", kept, number) for kept in (0, 1) for number in range(4)
    ]
    assert len({fork.seed for fork in tools.asked}) == 8


def test_the_policy_itself_may_be_the_prover() -> None:
    part = ProverValues(best_of=1, continuations=4)
    ((first, _, last),) = part([GROUP], Continued(WINS), draw=draw)  # type: ignore[arg-type]
    assert [info["prover_progress"] for info in (*first, *last)] == [0.25, 0.5, -0.25]


def test_where_faults_leave_too_few_nothing_is_said() -> None:
    (group,) = PART([GROUP], Continued(WINS, faults=3), draw=draw)  # type: ignore[arg-type]
    assert group[0] == [{"prover_progress": 0.0, "prover_value": 0.5}, {"prover_progress": 0.0}]
    (enough,) = PART([GROUP], Continued(WINS, faults=2), draw=draw)  # type: ignore[arg-type]
    assert enough[0][1] == {"prover_progress": 1.0, "prover_value": 0.0}


def test_nothing_is_played_where_there_is_no_step() -> None:
    assert PART([[rollout(0)]], Continued({}), draw=draw) == [[[]]]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hinted", "words"),
    [
        (rollout(3, 5, forced=1), "it was hinted, and a continuation would not be;"),
        (rollout(3, 5, unhinted_prompt_ids=(1,)), "it was hinted, and a continuation would not be;"),
        (rollout(3, 5, success=None), "its environment does not say whether it succeeded, which prover_values reads;"),
    ],
)
def test_what_cannot_be_continued_or_judged_is_refused(hinted: Trajectory, words: str) -> None:
    with pytest.raises(RecordError) as caught:
        PART([[hinted]], Continued(WINS), draw=draw)  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"task 'q', rollout 3: {words}")


def test_there_must_be_enough_to_choose_from() -> None:
    with pytest.raises(ConfigError, match=r"3 continuations cannot tell the best of 4; raise continuations"):
        ProverValues(best_of=4, continuations=3)
