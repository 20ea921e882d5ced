"""Credit of sampled groups, held against the truth: bias, variance and direction.

Axes: S steps of all groups of a world.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.aliased.dial import GAMMA, Setting, draw_worlds
from benchmarks.aliased.theory import foresee_level
from groupwise import StepTable
from groupwise.credit import Blend, ByHistory, ByTask, Deviation, EpisodeReturn, NoScale, Relative, ReturnToGo
from groupwise.data.credit import Credit
from groupwise.data.seeds import seed_of
from groupwise.data.segments import BoolArray, FloatArray, IntArray, Segments, pair_labels
from groupwise.lab import SampledRollouts, remember, sample_rollouts, solve_exactly
from groupwise.methods.terms import make_history_terms
from groupwise.parts.slots import EstimatorPart, ScalePart

DEPTHS = (0, 1, 2, 4)
ALPHAS = (0.0, 1.0, 4.0)
RETURNS = ReturnToGo(gamma=GAMMA)
NONE, POPULATION, SAMPLE = NoScale(), Deviation(ddof=0), Deviation(ddof=1)
BY_STATE = "level 0, by the whole state"
SUMS = ("error", "bias", "met", "square", "truth", "product", "same_sign", "signed", "steps", "compared")
"""What is added up over the steps of a world."""


def compare_at(depth: int) -> Relative:
    """Credit of one level alone, not scaled."""
    return Relative(by=ByHistory(depth=depth), of=RETURNS, scale=NONE, average="step")


def blend_levels(depth: int, alpha: float, scale: ScalePart) -> Blend:
    """HGPO's blend of the levels 0 to `depth`."""
    weights = [float(1 + k) ** alpha for k in range(depth + 1)]
    return Blend(terms=make_history_terms(weights, RETURNS, scale))


def list_estimators() -> dict[str, EstimatorPart]:
    """The estimators by name: whole rollouts, single levels, and HGPO's blends."""
    estimators: dict[str, EstimatorPart] = {
        "grpo": Relative(by=ByTask(), of=EpisodeReturn(), scale=NONE),
        **{f"level {depth}": compare_at(depth) for depth in DEPTHS},
    }
    scales = (("none", NONE, ALPHAS), ("population", POPULATION, ALPHAS), ("sample", SAMPLE, (1.0,)))
    for depth in DEPTHS:
        for name, scale, alphas in scales:
            for alpha in alphas if depth else (1.0,):
                estimators[name_blend(depth, alpha, name)] = blend_levels(depth, alpha, scale)
    return estimators


def name_blend(depth: int, alpha: float = 1.0, scale: str = "none") -> str:
    """What a result calls a blend."""
    return f"depth {depth}, alpha {alpha:g}, scale {scale}"


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Many groups of rollouts at one world, their truth, and what tells a step's kind."""

    texts: StepTable
    """Steps by what is seen, a group a task."""
    states: StepTable
    """The same by the whole state."""
    truth: FloatArray
    """True advantage of each step (S)."""
    kind: IntArray
    """Time, state and action of each step as one number (S)."""
    group: IntArray
    """The group of each step (S)."""

    def add_up(self, credit: Credit, where: BoolArray | None = None) -> list[float]:
        """The sums of `SUMS` for credit, over all steps or some of them."""
        is_here = np.ones(len(self.truth), dtype=np.bool_) if where is None else where
        given, truth = credit.values[is_here], self.truth[is_here]
        bias, met = sum_squared_bias(given - truth, self.kind[is_here], self.group[is_here])
        is_signed = (given != 0) & (truth != 0)
        sums = (
            ((given - truth) ** 2).sum(),
            bias,
            met,
            (given**2).sum(),
            (truth**2).sum(),
            (given * truth).sum(),
            (np.sign(given) == np.sign(truth))[is_signed].sum(),
            is_signed.sum(),
            len(truth),
            credit.compared[is_here].sum(),
        )
        return [float(number) for number in sums]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured at a setting; arrays have a row a world and the columns of `SUMS`."""

    setting: Setting
    success: list[float]
    """Share of rollouts that got out, for each world."""
    credit: dict[str, FloatArray]
    """Sums over all steps, by estimator."""
    nested: dict[str, FloatArray]
    """Sums over the steps that level K compares, by "K level 0", "K level K" and "K blend"."""
    foreseen: dict[str, list[dict[str, float]]]
    """What theory foresees of single levels, for each world."""


def measure_setting(setting: Setting, *, tasks: int, rollouts: int, seed: int) -> Measured:
    """Play the worlds of a setting and add up what the credit of each estimator is like.

    Args:
        setting: of the dial.
        tasks: worlds, each with a policy of its own.
        rollouts: rollouts at each world, in groups as large as the setting says.
        seed: of policies and rollouts.
    """
    credit: dict[str, list[list[float]]] = {}
    nested: dict[str, list[list[float]]] = {}
    foreseen: dict[str, list[dict[str, float]]] = {}
    success = []
    for number, (world, policy) in enumerate(draw_worlds(setting, tasks=tasks, seed=seed)):
        seen = remember(world, setting.window)
        values = solve_exactly(seen, policy, gamma=GAMMA)
        generator = np.random.default_rng(seed_of(seed, "rollouts", number))
        played = sample_rollouts(seen, policy, rollouts=rollouts, generator=generator)
        success.append(float((played.reward.sum(axis=1) > 0).mean()))
        groups = lay_out_groups(played, values.advantages_of(played), setting.rollouts)
        given = {name: estimator(groups.texts) for name, estimator in list_estimators().items()}
        given[BY_STATE] = compare_at(0)(groups.states)
        for name, part in given.items():
            credit.setdefault(name, []).append(groups.add_up(part))
        for depth in DEPTHS[1:]:
            is_compared = given[f"level {depth}"].compared
            for name in ("level 0", f"level {depth}", name_blend(depth)):
                key = f"{depth} blend" if name.startswith("depth") else f"{depth} {name}"
                nested.setdefault(key, []).append(groups.add_up(given[name], is_compared))
        for depth in (None, *(depth for depth in DEPTHS if setting.window == 0 or depth <= setting.window)):
            level = foresee_level(world, policy, depth=depth, rollouts=setting.rollouts, gamma=GAMMA)
            foreseen.setdefault(BY_STATE if depth is None else f"level {depth}", []).append(vars(level))
    return Measured(
        setting=setting,
        success=success,
        credit={name: np.array(rows) for name, rows in credit.items()},
        nested={name: np.array(rows) for name, rows in nested.items()},
        foreseen=foreseen,
    )


def lay_out_groups(played: SampledRollouts, truth: FloatArray, rollouts: int) -> Groups:
    """Rollouts at one world, cut into groups of so many."""
    columns: dict[str, Any] = played.to_columns(task="", key="observation")
    group = np.asarray(columns["rollout"]) // rollouts
    columns["task"] = group
    index, state = np.asarray(columns["step"]), played.state[played.is_step]
    kind = (index * len(played.world.states) + state) * len(played.world.actions) + played.action[played.is_step]
    names = [getattr(name, "state", name) for name in played.world.states]
    return Groups(
        texts=StepTable.from_columns(**columns),
        states=StepTable.from_columns(**{**columns, "state": [names[code] for code in state]}),
        truth=truth,
        kind=kind,
        group=group,
    )


def sum_squared_bias(error: FloatArray, kind: IntArray, group: IntArray) -> tuple[float, float]:
    """Sum over steps of the squared mean error of their kind, and the number of steps for which it can be told.

    The product of two errors of one kind has the squared mean as its expectation where they come from different
    groups, which are independent: so it is averaged over all such pairs, and the error that means of samples have is
    not counted as bias. A kind that one group alone met tells nothing.
    """
    kinds, cells = Segments.of(kind), Segments.of(pair_labels(kind, group))
    kind_of_cell = kinds.label[cells.first]
    size, size_of_cell = kinds.size.astype(np.float64), cells.size.astype(np.float64)
    within = np.bincount(kind_of_cell, weights=cells.sum(error) ** 2, minlength=len(kinds))
    pairs = size**2 - np.bincount(kind_of_cell, weights=size_of_cell**2, minlength=len(kinds))
    is_met = pairs > 0
    products = (kinds.sum(error) ** 2 - within)[is_met]
    return float((products / pairs[is_met] * size[is_met]).sum()), float(size[is_met].sum())
