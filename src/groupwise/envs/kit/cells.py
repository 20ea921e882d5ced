"""Cells of a grid of rows and columns: the four moves between them, and their words."""

from __future__ import annotations

from collections.abc import Iterable

Cell = tuple[int, int]
"""Row and column, from 0 at the top left."""

MOVES: dict[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
"""The four moves by name, as changes of row and column."""


def shift(cell: Cell, move: str) -> Cell:
    rows, columns = MOVES[move]
    return cell[0] + rows, cell[1] + columns


def is_inside(cell: Cell, size: int) -> bool:
    return 0 <= cell[0] < size and 0 <= cell[1] < size


def list_cells(size: int) -> list[Cell]:
    return [(row, column) for row in range(size) for column in range(size)]


def describe_cell(cell: Cell) -> str:
    """A cell in words.

    >>> describe_cell((0, 2))
    'row 0 column 2'
    """
    return f"row {cell[0]} column {cell[1]}"


def describe_cells(cells: Iterable[Cell]) -> str:
    return ", ".join(describe_cell(cell) for cell in sorted(cells))
