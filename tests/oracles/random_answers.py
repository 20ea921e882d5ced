"""Random groups of answers for the methods that give tokens credit, and the same as the tables they read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from groupwise import StepTable
from groupwise.data.credit import TokenCredit
from groupwise.data.token_table import TokenTable
from tests.oracles.token_methods import Answer


def random_answers(rng: random.Random, *, groups: int = 3) -> list[Answer]:
    """A few answers a group, of few ids, so that they share beginnings and ends; some groups are all alike."""
    answers = []
    for group in range(groups):
        is_even = rng.random() < 0.2
        for _ in range(rng.randint(1, 5)):
            size = rng.randint(1, 7)
            answers.append(
                Answer(
                    group=group,
                    reward=1.0 if is_even else rng.choice([0.0, 0.0, 1.0, 0.5]),
                    ids=[rng.choice([5, 5, 7, 9]) for _ in range(size)],
                    entropy=[rng.choice([0.0, 0.3, 1.5]) * rng.random() for _ in range(size)],
                    logp=[-rng.choice([0.01, 0.5, 3.0]) * rng.random() for _ in range(size)],
                )
            )
    return answers


def tables_of(answers: Sequence[Answer]) -> tuple[StepTable, TokenTable]:
    """The step table and the token table of answers, one step each; rows lie as the answers do."""
    names = dict.fromkeys(name for answer in answers for name in answer.info)
    columns = {name: [answer.info.get(name) for answer in answers] for name in names}
    table = StepTable.from_columns(
        task=[answer.group for answer in answers],
        rollout=list(range(len(answers))),
        step=[0] * len(answers),
        reward=[answer.reward for answer in answers],
        tokens=[len(answer.ids) for answer in answers],
        **columns,
    )
    rows = [
        {"response_ids": answer.ids, "logp_behaviour": answer.logp, "entropy": answer.entropy} for answer in answers
    ]
    return table, TokenTable.from_rows(table, rows)


def by_answer(credit: TokenCredit, tokens: TokenTable, answers: Sequence[Answer]) -> list[list[float]]:
    """The credit of each answer's tokens."""
    return [credit.values[tokens.find_tokens(number)].tolist() for number in range(len(answers))]


def masks_by_answer(credit: TokenCredit, tokens: TokenTable, answers: Sequence[Answer]) -> list[list[bool]]:
    """Which of each answer's tokens train."""
    return [credit.trains[tokens.find_tokens(number)].tolist() for number in range(len(answers))]


def cut(rng: random.Random, size: int) -> list[int]:
    """Random ends of segments of an answer."""
    return [*sorted(rng.sample(range(1, size), rng.randint(0, size - 1))), size]


def add_segments(rng: random.Random, answers: Sequence[Answer]) -> None:
    """Give answers segments with values, lines with accuracies and potentials, and log-probs at other temperatures."""
    for answer in answers:
        ends, levels = cut(rng, len(answer.ids)), [0.0, 0.25, 0.5, 0.92, 1.0, rng.random()]
        answer.info = {
            "segment_ends": ends,
            "segment_values": [rng.choice(levels) for _ in ends[1:]],
            "line_token_ends": ends,
            "line_accuracy": [rng.choice(levels) for _ in (0, *ends)],
            "potential_ends": ends,
            "potentials": [rng.choice([-1.0, *levels]) for _ in ends],
            "logp_hot": [logp * rng.uniform(0.7, 1.2) for logp in answer.logp],
            "logp_cold": [logp * rng.uniform(0.9, 1.5) for logp in answer.logp],
            "judged_ends": ends,
            "judged_scores": [rng.choice([2.0, -1.0, 0.0, rng.gauss(0, 2)]) for _ in ends],
            "effective_rank": rng.choice([0.0, 1.0, rng.uniform(1.0, 6.0)]),
            "rank_velocity": rng.choice([0.0, rng.gauss(0, 1)]),
            "rank_acceleration": rng.choice([0.0, rng.gauss(0, 0.2)]),
            **make_list(rng, len(answer.ids)),
        }


def make_list(rng: random.Random, size: int, *, asked: int = 3) -> dict[str, Any]:
    """A list that is said in so many tokens: some before it, items of a few tokens or none, an end or a cut."""
    bounds = sorted(rng.randint(0, size) for _ in range(2 * rng.randint(0, 5)))
    places = [bounds[place : place + 2] for place in range(0, len(bounds), 2)]
    has_end = size > 0 and rng.random() < 0.7 and (not places or places[-1][1] < size)
    return {
        "list_length": asked,
        "item_relevance": [rng.choice([0, 0, 1, 2.5]) for _ in places],
        "item_tokens": places,
        "end_token": size - 1 if has_end else None,
    }
