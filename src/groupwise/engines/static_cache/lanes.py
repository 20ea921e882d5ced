"""Who is in which slot: what the host knows of the slots. No tensor is touched here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from groupwise.engines.engine import Request

WORTHWHILE = 0.5
"""Share of a prompt that its session's slot must hold for the rest to be computed by itself: it costs a copy of the
slot and a slower attention."""


@dataclass(eq=False)
class Row:
    """One response in the making."""

    number: int
    """Place of the request among those asked for."""
    request: Request
    """What was asked for."""
    slot: int = -1
    """Where it is; -1 = nowhere yet."""
    known: int = 0
    """Tokens of its prompt that the slot held already."""
    sampled: int = 0
    """Tokens sampled."""

    @property
    def left(self) -> int:
        """Tokens that it may still sample."""
        return self.request.max_tokens - self.sampled

    def reach(self, steps: int) -> int:
        """Columns that it fills after some more steps."""
        return len(self.request.prompt_ids) - 1 + self.sampled + min(steps, self.left)


@dataclass(eq=False)
class SlotTable:
    """Which rows run in which slots, and which sessions wait in the others."""

    num: int
    """Slots that there are."""
    running: dict[int, Row] = field(default_factory=dict)
    """Rows by slot."""
    _held: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    _slot_of: dict[str, int] = field(default_factory=dict)

    def keep_only(self, requests: Iterable[Request]) -> None:
        """Forget the sessions that no request goes on with."""
        going_on = {request.session for request in requests}
        for slot in [slot for slot, (session, _) in self._held.items() if session not in going_on]:
            self._forget(slot)

    def known(self, request: Request) -> tuple[int, int]:
        """The slot that holds the beginning of a prompt, and how much of it; (-1, 0) where too little is held.

        The last token of a prompt is always read anew, to predict the next.
        """
        slot = self._slot_of.get(request.session or "", -1)
        if slot < 0:
            return -1, 0
        ids = self._held[slot][1]
        most = min(len(ids), len(request.prompt_ids) - 1)
        length = next((i for i in range(most) if ids[i] != request.prompt_ids[i]), most)
        return (slot, length) if length >= max(1, WORTHWHILE * len(request.prompt_ids)) else (-1, 0)

    def free(self) -> list[int]:
        """Slots in which nothing runs, those first in which no session waits."""
        return sorted(
            (slot for slot in range(self.num) if slot not in self.running), key=lambda s: (s in self._held, s)
        )

    def seat(self, row: Row, slot: int) -> None:
        """Let a row run in a slot; what waited there is forgotten."""
        self._forget(slot)
        row.slot = slot
        self.running[slot] = row

    def leave(self, slot: int, held: tuple[int, ...]) -> Row:
        """Take out a row that has finished; its session waits there, with the ids that the slot holds."""
        row = self.running.pop(slot)
        if row.request.session is not None:
            self._forget(self._slot_of.get(row.request.session, -1))
            self._held[slot], self._slot_of[row.request.session] = (row.request.session, held), slot
        return row

    def closed_up(self, num: int) -> list[int]:
        """Move all that runs into the first `num` slots; what each slot's content comes from, in their order.

        Slots exchange what they hold, so that no session is lost.
        """
        high = [slot for slot in self.running if slot >= num]
        low = [slot for slot in range(num) if slot not in self.running][: len(high)]
        order = list(range(self.num))
        for a, b in zip(high, low, strict=True):
            order[a], order[b] = b, a
            row = self.running[b] = self.running.pop(a)
            row.slot = b
            if b in self._held:
                self._held[a] = self._held.pop(b)
                self._slot_of[self._held[a][0]] = a
        return order

    def shrink(self, num: int) -> None:
        """Change the number of slots; sessions that waited in slots which are gone are forgotten."""
        assert not self.running, "storage changes between requests only"
        for slot in [slot for slot in self._held if slot >= num]:
            self._forget(slot)
        self.num = num

    def clear(self) -> None:
        """Forget everything."""
        self.running.clear()
        self._held.clear()
        self._slot_of.clear()

    def _forget(self, slot: int) -> None:
        session, _ = self._held.pop(slot, ("", ()))
        self._slot_of.pop(session, None)
