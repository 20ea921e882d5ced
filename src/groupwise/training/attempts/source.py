"""Where an update's attempts come from: played when they are needed, or ahead, while the update before is learnt."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from groupwise.training.attempts.collect import UpdateAttempts, collect_update
from groupwise.training.metrics.speed import Stopwatch
from groupwise.training.run import Run


class AttemptSource(Protocol):
    """Gives the loop the attempts of one update after the other.

    Sources differ in when attempts are played and by which version of the weights, not in what is asked for: every
    attempt that was asked for an update is handed out with that update.
    """

    def take(self, number: int) -> UpdateAttempts:
        """The attempts of an update; attempts of later ones may begin to play."""

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


class PlayedNow:
    """Plays the attempts of an update when they are asked for, with the weights of the update before (lag 0).

    What was played ahead before the run stopped, with another lag, is handed out first.
    """

    def __init__(self, run: Run, ready: Mapping[int, UpdateAttempts] | None = None) -> None:
        self._run = run
        self._ready = dict(ready or {})

    def take(self, number: int) -> UpdateAttempts:
        """Play them, unless they are there."""
        return self._ready.pop(number) if number in self._ready else collect_update(self._run, number)

    def finish_ahead(self, number: int, clock: Stopwatch) -> Mapping[int, UpdateAttempts]:
        """Nothing is played ahead; what another lag left is kept until its turn."""
        return dict(self._ready)

    def close(self) -> None:
        """Nothing plays."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
