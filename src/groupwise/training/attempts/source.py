"""Where an update's attempts come from: played when they are needed, or ahead, while the update before is learnt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol, Self

from groupwise.training.attempts.collect import UpdateAttempts
from groupwise.training.attempts.free import PlayedFreely
from groupwise.training.attempts.ready import read_ready
from groupwise.training.attempts.stepped import PlayedNow, PlayedOneAhead
from groupwise.training.metrics.speed import Stopwatch
from groupwise.training.run import Run


class AttemptSource(Protocol):
    """Gives the loop the attempts of one update after the other.

    Sources differ in when attempts are played and by which version of the weights, not in what is asked for: every
    attempt that was asked for an update is handed out with that update.
    """

    def take(self, number: int, clock: Stopwatch) -> UpdateAttempts:
        """The attempts of an update, once they are there; attempts of later ones may begin to play."""

    def finish_ahead(self, number: int, clock: Stopwatch) -> Mapping[int, UpdateAttempts]:
        """What was played ahead, by update, once update `number` is learnt and before its weights are handed over.

        It is written down with that update, so that a run that is resumed after it need not play it again.
        """

    def close(self) -> None:
        """End whatever still plays."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_source(run: Run, done: int) -> AttemptSource:
    """Open the source of a run's attempts, for the updates after those that are done."""
    kinds: dict[int | str, Callable[[Run, Mapping[int, UpdateAttempts]], AttemptSource]]
    kinds = {0: PlayedNow, 1: PlayedOneAhead, "free": PlayedFreely}
    return kinds[run.config.rollout.lag](run, read_ready(run, done))
