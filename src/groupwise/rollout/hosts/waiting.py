"""How long the episode loop waits for environments, and for how many steps of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter


@dataclass
class Waiting:
    """Steps of environments, and the seconds in which the loop waited for them to open and to act.

    With workers these are seconds of the loop, not of the environments: all workers act at the same time. Where
    attempts do not go in step, they are those in which the loop waited while some environment acted.

    Worked example: two environments were opened in 0.5 seconds and took 6 steps in 1.0: steps 6, seconds 1.5.
    """

    steps: int = 0
    """Actions that were carried out, those that ended in a fault included."""
    seconds: float = 0.0
    """From asking to the last answer, summed over all calls."""

    @contextmanager
    def during(self, steps: int = 0) -> Iterator[None]:
        """Count what happens inside, so many steps; also where it raises."""
        begin = perf_counter()
        try:
            yield
        finally:
            self.seconds += perf_counter() - begin
            self.steps += steps
