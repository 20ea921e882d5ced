"""The shuffled curriculum: every task once a round, the same in every run, taken up where it was left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from groupwise import Task
from groupwise.rollout.tasks import Shuffled

TASK_SET = tuple(Task.create(env="identity", seed=seed) for seed in range(7))


def ids(tasks: list[Task]) -> list[str]:
    return [task.id for task in tasks]


def test_each_round_has_every_task_once_and_rounds_differ() -> None:
    handed_out = Shuffled().start(TASK_SET, seed=3).next(21)
    rounds = [ids(handed_out[start : start + 7]) for start in (0, 7, 14)]
    assert all(sorted(names) == sorted(task.id for task in TASK_SET) for names in rounds)
    assert len({tuple(names) for names in rounds}) == 3


def test_the_seed_decides_the_order() -> None:
    first, again, other = (ids(Shuffled().start(TASK_SET, seed=seed).next(7)) for seed in (3, 3, 4))
    assert first == again
    assert first != other


@given(st.lists(st.integers(0, 9), max_size=6), st.integers(0, 6))
def test_any_way_of_asking_gives_one_sequence_and_a_resumed_one_goes_on(asked: list[int], cut: int) -> None:
    whole = ids(Shuffled().start(TASK_SET, seed=1).next(sum(asked)))
    live = Shuffled().start(TASK_SET, seed=1)
    in_pieces: list[str] = []
    for turn, num in enumerate(asked):
        if turn == cut:
            resumed = Shuffled().start(TASK_SET, seed=1)
            resumed.load_state_dict(live.state_dict())
            live = resumed
        in_pieces += ids(live.next(num))
    assert in_pieces == whole
