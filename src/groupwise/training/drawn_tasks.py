"""The tasks that a curriculum gave for updates that are still to be made.

Where attempts play while a checkpoint is written, the curriculum has already gone on past their tasks. A run that is
resumed there plays these attempts again, at the same tasks: what was asked for is trained, whatever stopped the run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from groupwise.core.parts.attempt_results import check_drawn_tasks
from groupwise.core.records import Task
from groupwise.tasks.curriculum import LiveCurriculum
from groupwise.training.exact_values import read_fields, write_fields


class DrawnTasks:
    """Tasks by the update that they were drawn for, in their order."""

    def __init__(self) -> None:
        self._drawn: dict[int, list[Task]] = {}
        self._draw_again: dict[int, list[Task]] = {}

    def draw(self, number: int, num: int, curriculum: LiveCurriculum) -> list[Task]:
        """Draw tasks for an update: those that it had before the run stopped, then the curriculum's next."""
        again = self._draw_again.get(number, [])[:num]
        self._draw_again[number] = self._draw_again.get(number, [])[num:]
        tasks = curriculum.next(num - len(again)) if num > len(again) else []
        check_drawn_tasks(curriculum, tasks, num - len(again))
        self._drawn.setdefault(number, []).extend([*again, *tasks])
        return [*again, *tasks]

    def forget_until(self, number: int) -> None:
        """Forget the tasks of an update that is made, and of those before it."""
        for drawn in (self._drawn, self._draw_again):
            for made in [update for update in drawn if update <= number]:
                del drawn[made]

    def state_dict(self, *, without: Collection[int]) -> dict[str, Any]:
        """The tasks of all updates that are still to be made, but for those whose attempts are kept."""
        numbers = sorted({*self._drawn, *(number for number, tasks in self._draw_again.items() if tasks)} - {*without})
        return {
            str(number): [
                write_fields(task) for task in (*self._drawn.get(number, ()), *self._draw_again.get(number, ()))
            ]
            for number in numbers
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Draw these tasks again."""
        self._drawn.clear()
        self._draw_again = {
            int(number): [Task(**read_fields(task)) for task in tasks] for number, tasks in state.items()
        }
