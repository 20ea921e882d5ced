"""Random rollouts of several steps with what a critic said of them, and the same as the tables that methods read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from groupwise import StepTable
from groupwise.data.token_table import TokenTable


@dataclass
class Turns:
    """A rollout: what each of its steps earned, and what the critic said of the state before each token."""

    task: int
    rewards: list[float]
    values: list[list[float]]
    """One list for each step; empty = the step sampled no token."""
    of_step: list[float] = field(default_factory=list)
    """What it said of the state in which each step begins."""


def draw_turns(rng: random.Random, *, tokens: tuple[int, int] = (0, 4)) -> list[Turns]:
    drawn = []
    for task in range(rng.randint(1, 3)):
        for _ in range(rng.randint(1, 4)):
            size = rng.randint(1, 4)
            values = [[rng.choice([0.0, rng.gauss(0, 1)]) for _ in range(rng.randint(*tokens))] for _ in range(size)]
            drawn.append(
                Turns(
                    task=task,
                    rewards=[rng.choice([0.0, 1.0, -0.25]) for _ in range(size)],
                    values=values,
                    of_step=[of_step[0] if of_step else rng.gauss(0, 1) for of_step in values],
                )
            )
    return drawn


def tables_of_turns(drawn: Sequence[Turns], *, order: Sequence[int] | None = None) -> tuple[StepTable, TokenTable]:
    """The step table and the token table, one row a step; `order` = of the rollouts."""
    rows = [
        {
            "task": drawn[number].task,
            "rollout": number,
            "step": index,
            "reward": drawn[number].rewards[index],
            "tokens": len(drawn[number].values[index]),
            "critic_value": drawn[number].of_step[index],
            "critic_values": drawn[number].values[index],
        }
        for number in (range(len(drawn)) if order is None else order)
        for index in range(len(drawn[number].rewards))
    ]
    table = StepTable.from_columns(**{name: [row[name] for row in rows] for name in rows[0]})
    return table, TokenTable.from_rows(table, [{"response_ids": [5] * int(str(row["tokens"]))} for row in rows])
