"""Credit inside an answer, written from the formulas with lists and loops; shares no code with the package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any


@dataclass
class Answer:
    """A rollout of one step: its group, what it earned, its tokens, and what was measured of it."""

    group: int
    reward: float
    ids: list[int]
    entropy: list[float]
    logp: list[float]
    info: dict[str, Any] = field(default_factory=dict)


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def centre_rewards(answers: Sequence[Answer]) -> list[float]:
    """Reward less the group's mean; exactly 0 where all of a group are equal."""
    credit = []
    for answer in answers:
        rewards = [other.reward for other in answers if other.group == answer.group]
        credit.append(0.0 if len(set(rewards)) == 1 else answer.reward - mean(rewards))
    return credit


def gtpo(
    answers: Sequence[Answer],
    *,
    boost: float = 2.0,
    gamma: float = 0.1,
    limit: float = math.log(2),
    initial: float | None = None,
    divides: bool = False,
) -> list[list[float]]:
    """GTPO's weighted credit, token by token."""
    credit = centre_rewards(answers)
    levels = [mean(answer.entropy) for answer in answers]
    start = mean(levels) if initial is None else initial
    result = []
    for answer, own, level in zip(answers, credit, levels, strict=True):
        good = [a.ids for a, c in zip(answers, credit, strict=True) if a.group == answer.group and c > 0]
        bad = [a.ids for a, c in zip(answers, credit, strict=True) if a.group == answer.group and c < 0]
        forward = conflict_run(answer.ids, good, bad) if own else 0
        backward = conflict_run(answer.ids[::-1], [g[::-1] for g in good], [b[::-1] for b in bad]) if own else 0
        size = len(answer.ids)
        in_conflict = [place < forward or size - 1 - place < backward for place in range(size)]
        values = []
        for place in range(size):
            weight = 1.0
            if place < forward:
                weight *= boost if own > 0 else 0.0
            if size - 1 - place < backward:
                weight *= boost if own > 0 else 0.0
            if divides and sum(in_conflict):
                weight /= sum(in_conflict)
            value = 0.0 if level > limit and start < limit else own - gamma * level
            values.append(weight * value)
        result.append(values)
    return result


def conflict_run(ids: Sequence[int], good: Sequence[Sequence[int]], bad: Sequence[Sequence[int]]) -> int:
    for place, token in enumerate(ids):
        in_good = any(place < len(other) and other[place] == token for other in good)
        in_bad = any(place < len(other) and other[place] == token for other in bad)
        if not (in_good and in_bad):
            return place
    return len(ids)


def largest_variance(values: Sequence[float], num: int) -> float:
    """The largest variance of any choice of `num` values, by trying every one."""
    best = -1.0
    for chosen in combinations(values, num):
        middle = mean(chosen)
        best = max(best, mean([(value - middle) ** 2 for value in chosen]))
    return best


def top_tokens(credit: Sequence[float], entropies: Sequence[Sequence[float]], num: int) -> set[tuple[int, int]]:
    """The tokens with the largest |A| H, as (answer, place); those that come first where keys are equal."""
    keys = [
        (-abs(own) * entropy, answer, place)
        for answer, (own, entropies_of) in enumerate(zip(credit, entropies, strict=True))
        for place, entropy in enumerate(entropies_of)
    ]
    return {(answer, place) for _, answer, place in sorted(keys)[:num]}


def leave_one_out(answers: Sequence[Answer]) -> list[float]:
    """Reward less the mean of the others of the group; 0 where there are none, or all are equal."""
    credit = []
    for number, answer in enumerate(answers):
        others = [a.reward for n, a in enumerate(answers) if a.group == answer.group and n != number]
        is_even = not others or set(others) == {answer.reward}
        credit.append(0.0 if is_even else answer.reward - mean(others))
    return credit


def spo_chain(answers: Sequence[Answer], credit: Sequence[float]) -> list[list[float]]:
    """What each segment changed, token by token; the value of nothing is the reward less the credit."""
    result = []
    for answer, own in zip(answers, credit, strict=True):
        ends, inner = answer.info["segment_ends"], answer.info["segment_values"]
        levels = [answer.reward - own, *inner, answer.reward]
        values = []
        for place in range(len(answer.ids)):
            segment = min(number for number, end in enumerate(ends) if place < end)
            values.append(own if len(ends) == 1 else levels[segment + 1] - levels[segment])
        result.append(values)
    return result


def token_gae(answers: Sequence[Answer], credit: Sequence[float], *, gamma: float, lam: float) -> list[list[float]]:
    """GAE from its definition: a double sum over later tokens, no recursion."""
    result = []
    for answer, own in zip(answers, credit, strict=True):
        ends = answer.info.get("segment_ends", [len(answer.ids)])
        starts = [answer.reward - own, *answer.info.get("segment_values", [])]
        level = [starts[min(n for n, end in enumerate(ends) if place < end)] for place in range(len(answer.ids))]
        last = len(answer.ids) - 1
        surprise = [
            (answer.reward if place == last else gamma * level[place + 1]) - level[place] for place in range(last + 1)
        ]
        result.append(
            [
                math.fsum((gamma * lam) ** (later - place) * surprise[later] for later in range(place, last + 1))
                for place in range(last + 1)
            ]
        )
    return result


def whiten(values: Sequence[Sequence[float]], trains: Sequence[Sequence[bool]], eps: float) -> list[list[float]]:
    """Whitened over all tokens that train, wherever they are; 0 where they are all equal or fewer than two."""
    counted = [v for row, flags in zip(values, trains, strict=True) for v, flag in zip(row, flags, strict=True) if flag]
    if len(counted) < 2 or len(set(counted)) == 1:
        return [[0.0] * len(row) for row in values]
    middle = mean(counted)
    spread = math.sqrt(math.fsum((v - middle) ** 2 for v in counted) / (len(counted) - 1) + eps)
    return [[(v - middle) / spread for v in row] for row in values]


def vsrm(
    answers: Sequence[Answer],
    credit: Sequence[float],
    *,
    weight: float = 1.0,
    eps: float = 0.05,
    gamma: float = 0.7,
    window: int = 3,
    kappa: float = 0.0,
) -> list[list[float]]:
    """The reconstruction of VSRM's payment, line by line, added to the answer's credit."""
    result = []
    for answer, own in zip(answers, credit, strict=True):
        accuracy, ends = answer.info["line_accuracy"], answer.info["line_token_ends"]
        paid = []
        for line in range(len(ends)):
            amount = -kappa
            for distance in range(window, -1, -1):  # the nearest change is looked at last, and stays
                if line + distance < len(ends):
                    change = accuracy[line + distance + 1] - accuracy[line + distance]
                    if abs(change) > eps:
                        amount = gamma**distance * change
            paid.append(amount)
        lines = [sum(place >= end for end in ends) for place in range(len(answer.ids))]
        result.append([own + weight * paid[line] for line in lines])
    return result


def spae(
    answers: Sequence[Answer],
    credit: Sequence[float],
    *,
    alpha: float = 0.5,
    xi: float = 0.5,
    known: float = 0.9,
    praise_only: bool = False,
) -> list[list[float]]:
    """SPAE's credit before its z-score, token by token."""
    all_changes = [change for answer in answers for change in changes_of(answer.info["potentials"])]
    low, high = min(all_changes), max(all_changes)
    result = []
    for answer, own in zip(answers, credit, strict=True):
        potentials, ends = answer.info["potentials"], answer.info["potential_ends"]
        lines = []
        for line, change in enumerate(changes_of(potentials)):
            since = sum(1 for earlier in potentials[:line] if earlier > known)
            damping = 1 - alpha * (1 - math.exp(-since))
            if praise_only and own <= 0:
                damping = 1.0
            gain = 0.0
            if low != high:
                gain = math.exp((change - low) / (high - low))
                gain -= mean([math.exp((other - low) / (high - low)) for other in all_changes])
            lines.append(own * damping + xi * gain)
        result.append([lines[sum(place >= end for end in ends)] for place in range(len(answer.ids))])
    return result


def changes_of(levels: Sequence[float]) -> list[float]:
    return [level - (levels[number - 1] if number else 0.0) for number, level in enumerate(levels)]


def dcpo(answers: Sequence[Answer], credit: Sequence[float], *, target: float, last: float) -> list[list[float]]:
    """DCPO's mixed credit, token by token."""
    right = [answer.reward > 0.05 for answer in answers]
    share = sum(right) / len(right)
    pull = min(abs(target - last), 0.1) / share if share else 0.0
    alpha = pull / (1 + pull)
    name = "logp_hot" if last <= target else "logp_cold"
    return [
        [
            (1 - alpha) * own + alpha * float(is_right) * math.exp(tempered - plain)
            for tempered, plain in zip(answer.info[name], answer.logp, strict=True)
        ]
        for answer, own, is_right in zip(answers, credit, right, strict=True)
    ]


def prorag(
    answers: Sequence[Answer],
    credit: Sequence[float],
    *,
    weight: float = 0.3,
    per: str = "token",
    squashes: bool = True,
    intended: bool = False,
) -> list[list[float]]:
    """ProRAG's credit: scores z-scored over the tokens, or the segments, of all answers of the group."""

    def score_of(answer: Answer, number: float) -> float:
        value = 1 / (1 + math.exp(-number)) if squashes else number
        return value + (0.0 if not intended else 1.0 if answer.info["well_formed"] else -2.0)

    by_token = []
    for answer in answers:
        ends, values = answer.info["judged_ends"], []
        for place in range(len(answer.ids)):
            number = min(n for n, end in enumerate(ends) if place < end)
            values.append(score_of(answer, answer.info["judged_scores"][number]))
        by_token.append(values)
    result = []
    for answer, own, values in zip(answers, credit, by_token, strict=True):
        if per == "token":
            members = [v for a, vs in zip(answers, by_token, strict=True) if a.group == answer.group for v in vs]
        else:
            members = [score_of(a, n) for a in answers if a.group == answer.group for n in a.info["judged_scores"]]
        middle = mean(members)
        spread = math.sqrt(mean([(v - middle) ** 2 for v in members]) + 1e-8) if len(members) > 1 else 1.0
        even = len(set(members)) == 1
        result.append([own + (0.0 if even else weight * (v - middle) / spread) for v in values])
    return result


def bcpg_nsa(
    answers: Sequence[Answer], credit: Sequence[float], *, beta: float = 0.5, above: float = 0.5
) -> list[list[float]]:
    """BCPG-NSA's step weight: beta on right steps of answers with negative credit; an answer is one step here."""
    result = []
    for answer, own in zip(answers, credit, strict=True):
        labels = [score > above for score in answer.info["judged_scores"]]
        if answer.info.get("cut"):
            labels[-1] = False
        if False not in labels:
            labels[-1] = False
        values = []
        for place in range(len(answer.ids)):
            number = min(n for n, end in enumerate(answer.info["judged_ends"]) if place < end)
            values.append(beta * own if own < 0 and labels[number] else own)
        result.append(values)
    return result


def verl(
    answers: Sequence[Answer],
    credit: Sequence[float],
    *,
    levels: Sequence[float] | None,
    weight: float = 1.0,
    gain: float = 2.0,
    kappa: float = 2.0,
    last: bool = False,
) -> list[list[float]]:
    """VERL's credit: rank, velocity and acceleration against their moving averages; no averages, no bonus."""
    result = []
    for answer, own in zip(answers, credit, strict=True):
        bonus = 0.0
        if levels is not None:
            names = ("effective_rank", "rank_velocity", "rank_acceleration")
            apart = [(answer.info[name] - m) / (abs(m) + 1e-8) for name, m in zip(names, levels, strict=True)]
            rank, velocity, acceleration = (max(-5.0, min(5.0, u)) for u in apart)
            beta = 1 / (1 + math.exp(-gain * acceleration))
            phi = weight * (beta * math.tanh(rank) + (1 - beta) * math.tanh(velocity))
            bonus = min(max(0.0, phi), abs(own) / kappa)
        final = len(answer.ids) - 1
        result.append([own + (bonus if not last or place == final else 0.0) for place in range(final + 1)])
    return result


def rank_grpo(
    answers: Sequence[Answer],
    credit: Sequence[float],
    *,
    decay: bool = False,
    eps: float = 1e-4,
    overflow: float = -0.1,
    exact: float = 0.1,
    early: float = -0.1,
) -> list[list[float]]:
    """Rank-GRPO's credit, token by token: rank by rank over the group; the end and what is too much are paid flatly."""

    def pay(answer: Answer, rank: int) -> float:
        degrees, asked = answer.info["item_relevance"], answer.info["list_length"]
        if not decay:
            return degrees[rank] if rank < len(degrees) else 0.0
        total = 0.0
        for later in range(rank, min(asked, len(degrees))):
            total += degrees[later] / math.log(later + 2, 2)
        return total

    result = []
    for answer, own in zip(answers, credit, strict=True):
        asked, given = answer.info["list_length"], len(answer.info["item_relevance"])
        values = [own] * len(answer.ids)
        for rank, (begin, end) in enumerate(answer.info["item_tokens"]):
            paid = [pay(other, rank) for other in answers if other.group == answer.group]
            compared = overflow
            if rank < asked:
                spread = math.sqrt(sum((x - mean(paid)) ** 2 for x in paid) / (len(paid) - 1)) if len(paid) > 1 else 0.0
                compared = 0.0 if len(set(paid)) == 1 else (pay(answer, rank) - mean(paid)) / (spread + eps)
            for place in range(begin, end):
                values[place] = compared
        if answer.info["end_token"] is not None:
            values[answer.info["end_token"]] = exact if given == asked else early if given < asked else overflow
        result.append(values)
    return result
