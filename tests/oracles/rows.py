"""The few nouns every oracle needs: a step read from rows, its rollout's returns, means and deviations.

Nothing here comes from the library. Sums go through `math.fsum`, so a mean is the correctly rounded one and a
deviation from it is exact to the last bit or two of itself, also where the values share a large offset.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Row = dict[str, object]
Result = tuple[list[float], list[bool]]
Who = tuple[object, object]

ONE_PLAYER = "the only player"
"""Role of every step in a table that has no role column."""


@dataclass(frozen=True, eq=False)
class Step:
    """One exchange with the environment; several rows when its record is cut into segments."""

    task: object
    rollout: object
    index: int
    state: object
    reward: float
    tokens: int
    row: Row
    positions: list[int] = field(default_factory=list)

    @property
    def who(self) -> Who:
        """The rollout the step belongs to; a rollout's id means nothing outside its task."""
        return (self.task, self.rollout)

    @property
    def is_malformed(self) -> bool:
        """Whether the response did not parse; false where the table does not say."""
        return not self.row.get("well_formed", True)

    @property
    def is_refused(self) -> bool:
        """Whether the response parsed and the environment would not have its action."""
        return not self.is_malformed and not self.row["accepted"]

    @property
    def trained_tokens(self) -> int:
        """The tokens that train; none where the table says that the step does not."""
        return self.tokens if self.row.get("trains", True) else 0

    @property
    def role(self) -> object:
        """The player; None where the table has roles and this step has none."""
        return self.row.get("role", ONE_PLAYER)


def steps_of(rows: Sequence[Row]) -> list[Step]:
    """The steps in order of first appearance; rows that differ by segment are one step, rewards and tokens summed.

    Example: rows (t, a, 0, segment 0, reward 1) and (t, a, 0, segment 1, reward 2) are one step of reward 3.
    """
    parts: dict[tuple[object, object, object], list[int]] = {}
    for position, row in enumerate(rows):
        parts.setdefault((row["task"], row["rollout"], row["step"]), []).append(position)
    steps = []
    for (task, rollout, _), positions in parts.items():
        first = rows[positions[0]]
        steps.append(
            Step(
                task=task,
                rollout=rollout,
                index=int(str(first["step"])),
                state=first.get("state"),
                reward=math.fsum(number(rows[p]["reward"]) for p in positions),
                tokens=sum(int(number(rows[p]["tokens"])) for p in positions) if "tokens" in first else 1,
                row=first,
                positions=positions,
            )
        )
    return steps


def number(value: object) -> float:
    """The float a row's field holds."""
    assert isinstance(value, int | float), f"not a number: {value!r}"
    return float(value)


def spread(rows: Sequence[Row], steps: Sequence[Step], credit: Callable[[Step], tuple[float, bool]]) -> Result:
    """Give every row the credit of its step, in row order."""
    values, compared = [0.0] * len(rows), [False] * len(rows)
    for step in steps:
        value, is_compared = credit(step)
        for position in step.positions:
            values[position], compared[position] = value, is_compared
    return values, compared


def by_task(steps: Iterable[Step]) -> dict[object, list[Step]]:
    """The steps of each task."""
    tasks: dict[object, list[Step]] = {}
    for step in steps:
        tasks.setdefault(step.task, []).append(step)
    return tasks


def by_rollout(steps: Iterable[Step]) -> dict[Who, list[Step]]:
    """The steps of each rollout, by ascending index."""
    rollouts: dict[Who, list[Step]] = {}
    for step in steps:
        rollouts.setdefault(step.who, []).append(step)
    return {who: sorted(path, key=lambda step: step.index) for who, path in rollouts.items()}


def episode_returns(steps: Sequence[Step]) -> dict[Who, float]:
    """R(tau) of each rollout: its outcome where the table has one, else the sum of its rewards."""
    returns = {}
    for who, path in by_rollout(steps).items():
        outcome = path[0].row.get("outcome")
        returns[who] = math.fsum(step.reward for step in path) if outcome is None else number(outcome)
    return returns


def returns_to_go(steps: Sequence[Step], gamma: float) -> dict[Step, float]:
    """R_t = r_t + gamma R_{t+1} along each rollout, by ascending index (numbers, Notation).

    Example: rewards 0, 0, 10 and gamma 0.9 give 8.1, 9, 10.
    """
    ahead: dict[Step, float] = {}
    for path in by_rollout(steps).values():
        later = 0.0
        for step in reversed(path):
            later = step.reward + gamma * later
            ahead[step] = later
    return ahead


def mean(values: Sequence[float]) -> float:
    """The correctly rounded mean; of equal values, that value itself."""
    return values[0] if all_equal(values) else math.fsum(values) / len(values)


def deviation(value: float, values: Sequence[float]) -> float:
    """value - mean(values), as (n value - sum of values) / n, so that no digit is lost to a common offset.

    Example: 1e9 + 1 among 1e9 + 1 and 1e9 gives (2e9 + 2 - 2e9 - 1) / 2 = 0.5.
    """
    if all_equal([value, *values]):
        return 0.0
    return math.fsum([value] * len(values) + [-other for other in values]) / len(values)


def std(values: Sequence[float], ddof: int) -> float:
    """sqrt(sum (x - mean)^2 / (n - ddof)); example: 1, 0, 0, 1 with ddof 1 gives sqrt(1/3) = 0.5774."""
    return _std(tuple(values), ddof)


@functools.lru_cache(maxsize=4096)
def _std(values: tuple[float, ...], ddof: int) -> float:
    """Remembered, since a loop asks for the std of a group once for each of its members."""
    squares = [deviation(value, values) ** 2 for value in values]
    return math.sqrt(math.fsum(squares) / (len(values) - ddof))


def zscore(value: float, values: Sequence[float], *, ddof: int, eps: float) -> float:
    """(value - mean) / (std + eps); example: 1 among 1, 0, 0, 1 gives 0.5 / 0.577351 = 0.8660."""
    above = deviation(value, values)
    return above / (std(values, ddof) + eps) if above else 0.0


def all_equal(values: Sequence[float]) -> bool:
    """Whether the values are one number, decided by equality and never by a computed deviation."""
    return all(value == values[0] for value in values)


def rollout_means(path: Sequence[Step], numbers: Mapping[Step, float]) -> list[float]:
    """One number for each rollout among the steps: the mean of its steps' numbers."""
    return [mean([numbers[step] for step in own]) for own in by_rollout(path).values()]
