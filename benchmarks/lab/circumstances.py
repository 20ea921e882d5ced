"""The circumstances in which credit is studied: two categories of small worlds, and one dial turned at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from groupwise import methods
from groupwise.envs import Aliased, Gridworld
from groupwise.lab.study import ListedCondition
from groupwise.parts.algorithm import Algorithm

LAKE = ListedCondition(env=Gridworld(size=4, num_holes=3, max_steps=12), skill=1.5)
"""Everything is seen: the text is the state."""
CORRIDOR = ListedCondition(
    env=Aliased(hidden_bits=2, passages=1, num_doors=4, num_colours=4, max_steps=10, one_reply=True),
    skill=1.5,
    roughness=1.0,
    sees="situation",
    key="observation",
)
"""The text at a door hides two lamps, and after a mistake the room too, which the policy all remembers; steps are
compared by the text, as the papers do."""
WORLDS = {"lake": LAKE, "corridor": CORRIDOR}

COMPARED = ("grpo", "rloo")
"""Methods with one number a rollout that stand beside those with one a step."""


@dataclass(frozen=True, kw_only=True)
class Circumstance:
    """One point of a sweep: a world with one dial turned."""

    dial: str
    """What is turned; "none" = the world as it is, with every method of the catalogue."""
    world: str
    setting: str
    """Where the dial stands."""
    condition: ListedCondition
    variants: Mapping[str, Algorithm] = field(default_factory=dict)
    """Algorithms beside the methods, by what tables call them."""


def list_tables() -> list[Circumstance]:
    """The circumstances in which every method of the catalogue is measured."""
    by_situation = replace(CORRIDOR, key="situation")
    return [
        Circumstance(dial="none", world="lake", setting="as it is", condition=LAKE),
        Circumstance(dial="none", world="corridor", setting="by text", condition=CORRIDOR),
        Circumstance(dial="none", world="corridor", setting="by situation", condition=by_situation),
    ]


def list_sweeps() -> list[Circumstance]:
    """One dial after the other, in both worlds where they have it."""
    return [*_turn_common_dials(), *_turn_lake(), *_turn_corridor()]


def _turn_common_dials() -> Iterator[Circumstance]:
    for world, condition in WORLDS.items():
        for rollouts in (2, 4, 8, 16, 32):
            yield _turn("group size", world, str(rollouts), replace(condition, rollouts=rollouts))
        for skill in (0.0, 1.0, 2.0, 3.0, 5.0):
            yield _turn("skill", world, f"{skill:g}", replace(condition, skill=skill))
        yield _turn("discount of the truth", world, "0.95", replace(condition, gamma=0.95))


def _turn_lake() -> Iterator[Circumstance]:
    for size, steps in ((3, 8), (4, 12), (5, 16), (6, 24), (8, 40)):
        env = Gridworld(size=size, num_holes=size - 1, max_steps=steps)
        yield _turn("horizon", "lake", f"{steps}", replace(LAKE, env=env, skill=2.0))


def _turn_corridor() -> Iterator[Circumstance]:
    for doors in (3, 4, 5, 6, 8):
        env = _change(CORRIDOR, num_doors=doors, max_steps=2 + 2 * doors)
        yield _turn("horizon", "corridor", f"{2 + 2 * doors}", replace(CORRIDOR, env=env))
    for one_reply in (False, True):
        dial = "hidden bits, and the room after a mistake" if one_reply else "hidden bits"
        for bits in range(4):
            for key, name in (("observation", "text"), ("situation", "situation")):
                env = _change(CORRIDOR, hidden_bits=bits, max_steps=8 + bits, one_reply=one_reply)
                condition = replace(CORRIDOR, env=env, key=key)
                yield _turn(dial, "corridor", f"{bits}, by {name}", condition, depths=True)
    for sees in (0, 1, 2, 3):
        yield _turn("memory of the policy", "corridor", f"{sees}", replace(CORRIDOR, sees=sees))
    yield _turn("parts", "corridor", "by text", CORRIDOR, parts=True)
    yield _turn("parts", "lake", "as it is", LAKE, parts=True)


def _turn(
    dial: str, world: str, setting: str, condition: ListedCondition, *, depths: bool = False, parts: bool = False
) -> Circumstance:
    variants: dict[str, Algorithm] = {}
    if depths:
        variants = {f"hgpo, depth {depth}": methods.hgpo(depth=depth) for depth in (0, 1, 3, 4, 6)}
    if parts:
        variants = list_parts()
    return Circumstance(dial=dial, world=world, setting=setting, condition=condition, variants=variants)


def list_parts() -> dict[str, Algorithm]:
    """What single settings of GiGPO and HGPO do: the discount, the division by a deviation, alpha, the episode term."""
    return {
        "gigpo, no deviation": methods.gigpo(scale="none"),
        "gigpo, no discount": methods.gigpo(gamma=1.0),
        "gigpo, no deviation, no discount": methods.gigpo(scale="none", gamma=1.0),
        "hgpo, no deviation": methods.hgpo(scale="none"),
        "hgpo, no discount": methods.hgpo(gamma=1.0),
        "hgpo, no deviation, no discount": methods.hgpo(scale="none", gamma=1.0),
        "hgpo, alpha 0": methods.hgpo(alpha=0.0),
        "hgpo, alpha 2": methods.hgpo(alpha=2.0),
        "hgpo, with the episode's": methods.hgpo(episode=True),
        "hgpo, as released": methods.hgpo(reference=True),
        **{f"hgpo, depth {depth}": methods.hgpo(depth=depth) for depth in (0, 1, 3, 4, 6)},
    }


def _change(condition: ListedCondition, **fields: Any) -> Aliased:
    env = condition.env
    assert isinstance(env, Aliased)
    return Aliased(**{**env.model_dump(), **fields})
