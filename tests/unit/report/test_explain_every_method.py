"""Every method, every step of random tables: the number is derived again, and the members are the group.

The groups are found here by plain loops over the rows.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator
from typing import Any

import pytest

from groupwise import Part, StepTable, methods
from groupwise.credit import Blend, ByHistory, ByState, ByTask, Relative, Scaled, Sum, Whitened
from groupwise.methods.after_polychromic import SetShared
from groupwise.methods.after_vgpo import Anchored
from groupwise.methods.hgae import Shrunk
from groupwise.methods.mars import ByPlayer, ByRole
from groupwise.methods.ppo import CriticGae
from groupwise.methods.salt import ByEdge, Merged
from groupwise.methods.srpo import PassAtBonus
from groupwise.report.explain import Explanation, explain_step
from tests.oracles.variants import WITHOUT_INFO
from tests.strategies import UNIT, Row, columns_of, random_rows, with_values

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, WITHOUT_INFO.get(name, {})) for name in methods.names()),
    ("after_vgpo", {"k": 0.3}),
    *((name, {"reference": True}) for name in ("gigpo", "hgpo", "mc_grpo", "ngrpo", "dgpo", "a_grae", "flow_grpo")),
    ("grpo", {"average": "step", "alone": "raw", "ddof": 0}),
    ("rloo", {"average": "step"}),
    ("gigpo", {"scale": "none"}),
    ("hgpo", {"scale": "none", "depth": 4}),
    ("hgpo", {"episode": True, "alpha": 0.5}),
    ("hgpo", {"episode": True, "reference": True}),
    ("hgpo", {"refused_penalty": 0.25}),
    ("hgpo", {"peers": "other_rollouts"}),
    ("gigpo", {"peers": "other_rollouts"}),
    ("gigpo", {"refused_penalty": 0.25, "reference": True}),
    ("salt", {"count": "step", "history": 0, "next_state": False, "base": "rloo"}),
    ("gagpo", {"lam": 0.0, "scale_by": "state"}),
    ("gagpo", {"scale_by": "none"}),
    ("hgae", {"lam": 0.5, "scale_by": "none", "leave_out": True, "depth": 4}),
    ("shrunk_hgae", {"strength": 0.5, "scale_by": "none", "lam": 0.5}),
    ("ngrpo", {"virtual": 3, "best": 2.0}),
    ("mars", {"whiten": True}),
]
NUM_TABLES = 6
DYADIC = ("terminal", "integers", "gaussian")
"""Regimes whose sums are exact, so that a tie is a tie in any order of summation."""

Id = tuple[Any, Any, int]


def identity(row: Row) -> Id:
    return row["task"], row["rollout"], int(str(row["step"]))


def normal(value: object) -> object:
    return " ".join(value.lower().split()) if isinstance(value, str) else value


class Groups:
    """Who is grouped with whom, found row by row."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = sorted(rows, key=identity)
        self.at = {identity(row): row for row in rows}

    def members(self, grouper: Part, row: Row) -> list[Row]:
        key = self._key(grouper, row)
        return [] if key is None else [other for other in self.rows if self._key(grouper, other) == key]

    def _key(self, grouper: Part, row: Row) -> Hashable | None:
        if isinstance(grouper, ByTask):
            return row["task"]
        if isinstance(grouper, ByRole):
            role = row.get("role", "everybody")
            return None if role is None else (row["task"], role)
        if isinstance(grouper, ByPlayer):
            return row.get("role", "everybody")
        if isinstance(grouper, ByState | ByHistory):
            depth = grouper.depth if isinstance(grouper, ByHistory) else 0
            key = self._window(row, depth)
            if grouper.peers == "other_rollouts":
                rollouts = {other["rollout"] for other in self.rows if self._window(other, depth) == key}
                return key if len(rollouts) > 1 else None
            return key
        assert isinstance(grouper, ByEdge)
        return self._edge(grouper, row)

    def _window(self, row: Row, depth: int) -> Hashable | None:
        task, rollout, index = identity(row)
        window = [self.at.get((task, rollout, index - k)) for k in range(depth + 1)]
        states = [None if step is None else step["state"] for step in window]
        return None if any(state is None for state in states) else (task, *states)

    def _edge(self, grouper: ByEdge, row: Row) -> Hashable | None:
        task, rollout, index = identity(row)
        path = [other for other in self.rows if identity(other)[:2] == (task, rollout)]
        position = path.index(row)
        parts: list[object] = [normal(row["state"]), normal(row["action"])]
        for k in range(1, grouper.history + 1):
            before = self.at.get((task, rollout, index - k))
            parts.append("START OF THE ROLLOUT" if position < k else before and normal(before["state"]))
        if grouper.next_state:
            after = self.at.get((task, rollout, index + 1))
            last = position == len(path) - 1
            following = "END OF THE ROLLOUT" if last else after and normal(after["state"])
            recorded = row.get("next_state")
            parts.append(following if recorded is None else normal(recorded))
        return None if any(part is None for part in parts) else (task, *parts)


def describe_member(steps: list[Row]) -> tuple[object, object, int | None, int]:
    """How a member is told: a step by its number, several of a rollout by their number."""
    task, rollout, index = identity(steps[0])
    return task, rollout, index if len(steps) == 1 else None, len(steps)


def list_members(groups: Groups, part: Part, row: Row) -> list[list[Row]]:
    """The members of a comparison, each as its steps: one, or all of a rollout where rollouts count once."""
    if isinstance(part, Whitened):
        trained = [int(str(other.get("tokens", 1))) for other in groups.rows if other.get("trains", True)]
        return [[other] for other in groups.rows] if sum(trained) >= 2 else []
    assert isinstance(part, Relative | Merged | Scaled)
    members = groups.members(part.by, row)
    if isinstance(part, Scaled):
        return [[row] for row in members] if len(members) > 1 else []
    rollouts = [
        [row for row in members if identity(row)[:2] == of] for of in sorted({identity(row)[:2] for row in members})
    ]
    needed = rollouts if isinstance(part, Merged) or part.average == "rollout" else [[row] for row in members]
    once = part.count == "rollout" if isinstance(part, Merged) else part.average == "rollout"
    company = len(part.virtual) if isinstance(part, Relative) and part.virtual_is_company and members else 0
    return (rollouts if once else [[row] for row in members]) if len(needed) + company > 1 else []


def comparisons(part: Part, explanation: Explanation) -> Iterator[tuple[Part, Explanation]]:
    """The parts that compare or share, each with its explanation."""
    if isinstance(part, Relative):
        yield part, explanation
        return
    if isinstance(part, Whitened | Merged | Scaled):
        yield part, explanation
    if isinstance(part, PassAtBonus | SetShared | Shrunk | CriticGae):  # it derives its own number
        return
    if isinstance(part, Anchored):  # its second term is the return as it is
        yield from comparisons(part.of, explanation.inner[0][1])  # type: ignore[arg-type]
        return
    inner = [term.of for term in part.terms] if isinstance(part, Sum | Blend) else [part.of]
    for below, (_, below_explanation) in zip(inner, explanation.inner, strict=True):
        yield from comparisons(below, below_explanation)


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_every_number_is_derived_again_from_exactly_its_group(name: str, options: dict[str, Any]) -> None:
    algorithm = methods.build(name, **options)
    rng = random.Random(f"explain {name} {sorted(options)}")
    for _ in range(NUM_TABLES):
        rows = random_rows(
            rng, regimes=UNIT if name in ("a_grae", "ngrpo", "after_polychromic", "after_vgpo") else DYADIC, max_rows=30
        )
        rows = with_values(rows, rng)
        table = StepTable.from_columns(**columns_of(rows))
        credit, groups = algorithm.advantage(table), Groups(rows)
        for position, row in enumerate(rows):
            task, rollout, index = identity(row)
            whole = explain_step(table, credit, task=task, rollout=rollout, step=index)
            assert whole.value == credit.values[position]
            assert whole.compared == credit.compared[position]
            assert whole.largest_gap() <= 1e-9, whole
            assert whole.own_rollout_only is not None, "every trace of ours says whom a step is compared with"
            for part, explanation in comparisons(algorithm.advantage, whole):  # type: ignore[arg-type]
                members = [member for member in explanation.members if member.rollout is not None]
                described = [(member.task, member.rollout, member.step, member.num_steps) for member in members]
                divides_nothing = isinstance(part, Scaled) and not explanation.compared
                expected = [] if divides_nothing else list_members(groups, part, row)
                assert described == [describe_member(steps) for steps in expected]
                assert [member.is_self for member in members] == [row in steps for steps in expected]
                if isinstance(part, Relative | Whitened):
                    others = {(member.task, member.rollout) for member in members} - {(task, rollout)}
                    assert explanation.own_rollout_only == (explanation.compared and not others)
