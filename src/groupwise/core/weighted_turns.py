"""Turns by weight: who is next, so that everybody's share of the turns is as near to their weight as it can be."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def choose_next(weights: Mapping[str, float], taken: Mapping[str, int], *, among: Collection[str] | None = None) -> str:
    """Whose turn it is: the one whose turns lie furthest behind their share; of equals the first.

    Nobody is ever more than one turn ahead of their share. Between two, nobody is more than one turn behind either.

    >>> taken = {"a": 0, "b": 0}
    >>> for _ in range(8):
    ...     name = choose_next({"a": 3, "b": 1}, taken)
    ...     taken[name] += 1
    >>> taken
    {'a': 6, 'b': 2}

    Args:
        weights: what each counts, by name; above 0.
        taken: turns that each has had.
        among: who can take a turn; None = all.
    """
    names = [name for name in weights if among is None or name in among]
    total = sum(weights[name] for name in names)
    turns = sum(taken[name] for name in names) + 1
    return max(names, key=lambda name: weights[name] / total * turns - taken[name])
