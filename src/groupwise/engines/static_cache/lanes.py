"""Which response decodes in which lane of the cache, as the host keeps track of it. No tensor is touched here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from groupwise.engines.engine import Request

WORTHWHILE = 0.5
"""Share of a prompt that its session's lane must hold for the rest to be computed by itself: it costs a copy of the
lane and a slower attention."""


@dataclass(eq=False)
class Row:
    """One response in the making."""

    number: int
    """Place of the request among those of the call."""
    request: Request
    """What the response answers."""
    lane: int = -1
    """Where it is; -1 = nowhere yet."""
    num_known: int = 0
    """Tokens of its prompt that the lane held already."""
    num_sampled: int = 0
    """Tokens sampled so far."""

    @property
    def tokens_left(self) -> int:
        """Tokens that it may still sample."""
        return self.request.max_tokens - self.num_sampled

    def columns_after(self, steps: int) -> int:
        """Columns that it fills after some more steps."""
        return len(self.request.prompt_ids) - 1 + self.num_sampled + min(steps, self.tokens_left)


@dataclass(eq=False)
class LaneTable:
    """Which rows run in which lanes, and which sessions wait in the others."""

    num_lanes: int
    """How many lanes there are."""
    running: dict[int, Row] = field(default_factory=dict)
    """Rows by lane."""
    _held: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    _lane_of: dict[str, int] = field(default_factory=dict)

    def keep_only(self, requests: Iterable[Request]) -> None:
        """Forget the sessions that no request goes on with."""
        going_on = {request.session for request in requests}
        for lane in [lane for lane, (session, _) in self._held.items() if session not in going_on]:
            self._forget(lane)

    def find_known(self, request: Request) -> tuple[int, int]:
        """The lane that holds the beginning of a prompt, and how much of it; (-1, 0) where too little is held.

        The last token of a prompt is always read anew, to predict the next.
        """
        lane = self._lane_of.get(request.session or "", -1)
        if lane < 0:
            return -1, 0
        ids = self._held[lane][1]
        comparable = min(len(ids), len(request.prompt_ids) - 1)
        length = comparable
        if ids[:comparable] != request.prompt_ids[:comparable]:
            length = next(i for i in range(comparable) if ids[i] != request.prompt_ids[i])
        return (lane, length) if length >= max(1, WORTHWHILE * len(request.prompt_ids)) else (-1, 0)

    def list_free(self) -> list[int]:
        """Lanes in which nothing runs, those first in which no session waits."""
        return sorted(
            (lane for lane in range(self.num_lanes) if lane not in self.running),
            key=lambda lane: (lane in self._held, lane),
        )

    def seat(self, row: Row, lane: int) -> None:
        """Let a row run in a lane; what waited there is forgotten."""
        self._forget(lane)
        row.lane = lane
        self.running[lane] = row

    def release(self, lane: int, held: tuple[int, ...]) -> Row:
        """Take out a row that has finished; its session waits there, with the ids that the lane holds."""
        row = self.running.pop(lane)
        if row.request.session is not None:
            self._forget(self._lane_of.get(row.request.session, -1))
            self._held[lane], self._lane_of[row.request.session] = (row.request.session, held), lane
        return row

    def close_up(self, num: int) -> list[int]:
        """Move all that runs into the first `num` lanes; what each lane's content comes from, in their order.

        Lanes exchange what they hold, so that no session is lost.
        """
        high = [lane for lane in self.running if lane >= num]
        low = [lane for lane in range(num) if lane not in self.running][: len(high)]
        order = list(range(self.num_lanes))
        for a, b in zip(high, low, strict=True):
            order[a], order[b] = b, a
            row = self.running[b] = self.running.pop(a)
            row.lane = b
            if b in self._held:
                self._held[a] = self._held.pop(b)
                self._lane_of[self._held[a][0]] = a
        return order

    def resize(self, num: int) -> None:
        """Change the number of lanes; sessions that waited in lanes which are gone are forgotten."""
        assert not self.running, "storage changes between requests only"
        for lane in [lane for lane in self._held if lane >= num]:
            self._forget(lane)
        self.num_lanes = num

    def clear(self) -> None:
        """Forget everything."""
        self.running.clear()
        self._held.clear()
        self._lane_of.clear()

    def _forget(self, lane: int) -> None:
        session, _ = self._held.pop(lane, ("", ()))
        self._lane_of.pop(session, None)
