"""Reading prompts into lanes by layers of our own: rows of any length side by side, each distinct prompt once.

Of a prompt all tokens but the last are read here, as in `prefill`; what a lane holds already is not read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from groupwise.engines.static_cache.cache import LaneCache
from groupwise.engines.static_cache.lanes import Row
from groupwise.engines.static_cache.own_layers import OwnLayers
from groupwise.engines.static_cache.token_batch import UnreadRow


class FlatPrefill:
    """Reads prompts without padding."""

    def __init__(self, layers: OwnLayers, cache: LaneCache, *, batch_tokens: int) -> None:
        """Batches of at most `batch_tokens`, but for a prompt that is longer by itself."""
        self._layers, self._cache, self._batch_tokens = layers, cache, batch_tokens

    def read(self, rows: Sequence[Row]) -> None:
        """Read the prompts of rows into their lanes."""
        for batch in self._cut_batches(list_unread(rows)):
            self._layers.read_rows(batch, self._cache)

    def _cut_batches(self, unread: Sequence[UnreadRow]) -> Iterator[list[UnreadRow]]:
        batch: list[UnreadRow] = []
        num = 0
        for row in unread:
            if batch and num + len(row.ids) > self._batch_tokens:
                yield batch
                batch, num = [], 0
            batch.append(row)
            num += len(row.ids)
        if batch:
            yield batch


def list_unread(rows: Sequence[Row]) -> list[UnreadRow]:
    """What must be read for rows: a whole prompt once for all lanes that want it, else what its lane does not hold."""
    whole: dict[tuple[int, ...], list[int]] = {}
    unread = []
    for row in rows:
        ids = row.request.prompt_ids[row.num_known : -1]
        if not row.num_known:
            whole.setdefault(ids, []).append(row.lane)
        elif ids:
            unread.append(UnreadRow(ids, row.num_known, (row.lane,)))
    whole.pop((), None)
    return [*(UnreadRow(ids, 0, tuple(lanes)) for ids, lanes in whole.items()), *unread]
