"""Random step tables for every test: a seeded generator for the oracles, Hypothesis strategies for the laws."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import hypothesis.strategies as st

Row = dict[str, object]

MODERATE = ("terminal", "integers", "constant", "gaussian")
"""Regimes whose rewards are of the order of one."""

EXTREME = ("huge", "tiny", "offset", "mixed", "frozen")
"""Regimes at the edges of float64: about 1e12, about 1e-12, 1e9 plus noise, magnitudes mixed in one rollout, and one
extreme outcome for every rollout of the task."""

UNIT = ("unit",)
"""Terminal rewards in [0, 1], for methods that read a return as a success rate."""

CONSTANTS = (0.0, 1.0, 0.1, -1 / 3, 123.456)
FROZEN = (1e12, 1e-12, -1e100)

_ONE_REWARD: dict[str, Callable[[random.Random], float]] = {
    # Multiples of a power of two throughout, so that sums are exact and a tie of two returns is a tie in any
    # order of summation: what is tested is the arithmetic of groups, not the luck of a last bit.
    "integers": lambda rng: float(rng.randint(-3, 3)),
    "gaussian": lambda rng: round(rng.gauss(0.0, 1.0) * 1024) / 1024,
    "huge": lambda rng: rng.randint(-3, 3) * 1e12,
    "tiny": lambda rng: rng.randint(-3, 3) * 2.0**-40,
    "offset": lambda rng: 1e9 + rng.randint(-8, 8) / 8,
    "mixed": lambda rng: rng.randint(-3, 3) * 2.0 ** rng.choice((-10, 0, 20)),
}


def random_rows(
    rng: random.Random,
    *,
    regimes: Sequence[str] = MODERATE + EXTREME,
    states: str = "short",
    max_rows: int = 60,
) -> list[Row]:
    """A table of one to four tasks: ragged rollouts, repeated, lone and missing states, gaps, optional columns.

    Each task draws its rewards from one regime. Steps of a task that the extremes govern are all well formed and
    accepted: 0.1 taken from 1e12 is lost in rounding, which would test the input and not the arithmetic.
    """
    columns = _optional_columns(rng)
    as_text = rng.random() < 0.5
    make_state = _STATES[states](rng)
    rows: list[Row] = []
    for task in range(rng.randint(1, 4)):
        regime = rng.choice(regimes)
        rollouts = _rollouts(rng, regime)
        if len(rows) + sum(len(path) for path, _ in rollouts) > max_rows:
            break
        for rollout, (path, outcome) in enumerate(rollouts):
            indices = _indices(rng, len(path))
            of_rollout = _rollout_columns(rng, columns, outcome)
            for index, reward in zip(indices, path, strict=True):
                row: Row = {
                    "task": f"task {task}" if as_text else task,
                    "rollout": f"rollout {rollout}" if as_text else rollout,
                    "step": index,
                    "state": make_state(rng),
                    "reward": reward,
                }
                rows.append(row | of_rollout | _step_columns(rng, columns, regime))
    rng.shuffle(rows)
    return rows or random_rows(rng, regimes=regimes, states=states, max_rows=max_rows)


def _optional_columns(rng: random.Random) -> set[str]:
    chances = {"well_formed": 0.5, "role": 0.5, "tokens": 0.6, "accuracy": 0.5, "outcome": 0.25, "next_state": 0.2}
    chances["trains"] = 0.3
    return {"action", "accepted"} | {name for name, chance in chances.items() if rng.random() < chance}


def _rollouts(rng: random.Random, regime: str) -> list[tuple[list[float], float]]:
    """Rewards of each rollout and its outcome, should the table have that column."""
    one_length = rng.choice((None, rng.randint(1, 6)))
    constant = rng.choice(FROZEN if regime == "frozen" else CONSTANTS)
    rollouts = []
    for _ in range(rng.choice((1, 2, 2, 3, 4, 5, 7, 12))):
        length = one_length or rng.randint(1, 6)
        if regime in _ONE_REWARD:
            rewards = [_ONE_REWARD[regime](rng) for _ in range(length)]
            outcome = _ONE_REWARD[regime](rng)
        else:
            last = {"terminal": rng.choice((0.0, 1.0, 10.0)), "unit": rng.randint(0, 4) / 4}
            outcome = last.get(regime, constant)
            rewards = [0.0] * (length - 1) + [outcome]
        rollouts.append((rewards, outcome))
    return rollouts


def _indices(rng: random.Random, length: int) -> list[int]:
    """Consecutive indices from 0; now and then one is missing from the middle, or the first ones are."""
    if rng.random() < 0.05:
        return list(range(2, 2 + length))
    if length > 1 and rng.random() < 0.15:
        gap = rng.randint(1, length - 1)
        return [index + (index >= gap) for index in range(length)]
    return list(range(length))


def _rollout_columns(rng: random.Random, columns: set[str], outcome: float) -> Row:
    of_rollout: Row = {}
    if "outcome" in columns:
        of_rollout["outcome"] = outcome
    if "accuracy" in columns:
        of_rollout["accuracy"] = rng.randint(0, 4) / 4
    return of_rollout


def _step_columns(rng: random.Random, columns: set[str], regime: str) -> Row:
    values: Row = {"action": rng.choice(("look", "Look ", "go  left", "go left", None))}
    values["accepted"] = regime in EXTREME or values["action"] != "Look "
    if "well_formed" in columns:
        values["well_formed"] = regime in EXTREME or rng.random() > 0.2
    if "role" in columns:
        values["role"] = rng.choice(("planner", "planner", "solver", None))
    if "tokens" in columns:
        values["tokens"] = rng.randint(1, 9)
    if "trains" in columns:
        values["trains"] = rng.random() > 0.3
    if "next_state" in columns:
        values["next_state"] = rng.choice(("s0", "s1", None))
    return values


def _short_states(rng: random.Random) -> Callable[[random.Random], object]:
    """Few names, so that states and pieces of history repeat; some lone, some missing; texts or tuples."""
    number = rng.choice((1, 2, 3, 5))
    as_tuple = rng.random() < 0.1

    def draw(rng: random.Random) -> object:
        chance = rng.random()
        if chance < 0.1:
            return None
        name = f"lone {rng.getrandbits(40)}" if chance < 0.15 else f"s{rng.randrange(number)}"
        if as_tuple:
            return (name, 0)
        return name.upper() if rng.random() < 0.1 else name

    return draw


def _sentence_states(rng: random.Random) -> Callable[[random.Random], object]:
    """Long sentences that differ by a word or by a digit: food for grouping by similarity."""
    rooms, things = ("kitchen", "kitchens", "cellar"), ("mug", "mugs", "plate")

    def draw(rng: random.Random) -> object:
        if rng.random() < 0.1:
            return None
        return f"You are in the {rng.choice(rooms)}. You see a {rng.choice(things)} {rng.randint(1, 2)}."

    return draw


_STATES = {"short": _short_states, "sentence": _sentence_states}


def columns_of(rows: Sequence[Row]) -> dict[str, list[object]]:
    """The rows as the columns that `StepTable.from_columns` takes."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def with_values(rows: Sequence[Row], rng: random.Random | None = None) -> list[Row]:
    """The rows with what a critic said of each step: by its index alone, or at random."""
    return [
        row
        | {
            "critic_value": int(str(row["step"])) * 3 % 7 / 8 - 0.25
            if rng is None
            else rng.choice([0.0, rng.gauss(0, 1)])
        }
        for row in rows
    ]


DYADIC = st.integers(-32, 32).map(lambda number: number / 8)
"""Rewards whose sums and halves are exact."""

WILD = st.one_of(
    DYADIC,
    st.floats(-1e12, 1e12, allow_nan=False, allow_infinity=False),
    st.floats(-1e-12, 1e-12, allow_nan=False, allow_infinity=False, allow_subnormal=False),
)
"""Any finite reward, huge and tiny ones included."""


@st.composite
def step_rows(
    draw: st.DrawFn,
    *,
    rewards: st.SearchStrategy[float] = DYADIC,
    terminal: bool = False,
    max_tasks: int = 3,
    min_rollouts: int = 1,
    max_rollouts: int = 4,
    max_steps: int = 4,
    optional: bool = True,
) -> list[Row]:
    """Rows in any order. `terminal` puts the only reward on the last step; `optional` adds the optional columns."""
    rows: list[Row] = []
    names = st.sampled_from(("s0", "s1", "s2", None))
    actions = st.sampled_from(("look", "go left", "Go  left", None))
    extra = (
        draw(st.sets(st.sampled_from(("well_formed", "accepted", "role", "tokens", "trains")))) if optional else set()
    )
    for task in range(draw(st.integers(1, max_tasks))):
        for rollout in range(draw(st.integers(min_rollouts, max_rollouts))):
            length = draw(st.integers(1, max_steps))
            gap = draw(st.sampled_from((length, length, 1))) if optional else length
            for step in range(length):
                earns = not terminal or step == length - 1
                row: Row = {
                    "task": f"task {task}",
                    "rollout": f"rollout {rollout}",
                    "step": step + (step >= gap),
                    "state": draw(names),
                    "reward": draw(rewards) if earns else 0.0,
                    "action": draw(actions),
                }
                for name in sorted(extra & {"well_formed", "accepted"}):
                    row[name] = draw(st.booleans())
                if "role" in extra:
                    row["role"] = draw(st.sampled_from(("planner", "solver", None)))
                if "tokens" in extra:
                    row["tokens"] = draw(st.integers(1, 9))
                if "trains" in extra:
                    row["trains"] = draw(st.booleans())
                rows.append(row)
    return draw(st.permutations(rows))


_TRUTHS = st.sampled_from((True, False, None))
CONDUCT = st.fixed_dictionaries({"well_formed": _TRUTHS, "accepted": _TRUTHS, "recorded_valid": _TRUTHS}).map(
    lambda said: said | ({} if None in (said["well_formed"], said["accepted"]) else {"recorded_valid": None})
)
"""What a step's record may say of its form and its action: both, one of them, or only what they come to."""

UNIT_REWARDS = st.integers(0, 4).map(lambda number: number / 4)
"""Returns a method may read as success rates."""
