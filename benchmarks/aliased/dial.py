"""The settings of the dial at which credit is studied, and the worlds and policies of a setting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from groupwise.data.seeds import seed_of
from groupwise.envs import Aliased
from groupwise.lab import EnumeratedWorld, TabularPolicy, enumerate_task, remember
from groupwise.lab.study import make_skilled_policy

GAMMA = 0.95
"""The discount of HGPO, and of the truth that it is held against."""
SKILL, ROUGHNESS = 2.0, 1.5
"""How much likelier than by chance the policies do what is best, and how different their habits are."""
SPARE_STEPS = 2
"""Steps beside those that a way without mistakes takes."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting of the dial."""

    hidden_bits: int
    passages: int = 1
    one_reply: bool = False
    rollouts: int = 8
    """Rollouts of a group."""
    window: int = 0
    """Past steps that the policy sees."""

    def make_part(self) -> Aliased:
        """The environment of this setting."""
        rooms = self.hidden_bits + self.passages + 3
        return Aliased(
            hidden_bits=self.hidden_bits,
            passages=self.passages,
            num_doors=3,
            num_colours=3,
            one_reply=self.one_reply,
            max_steps=rooms + SPARE_STEPS,
        )

    def to_json(self) -> dict[str, Any]:
        """The setting as a result names it."""
        return asdict(self)


def list_settings() -> list[Setting]:
    """Every setting: what is hidden x how long ago x what mistakes hide x what the policy sees, then group sizes."""
    crossed = [
        Setting(hidden_bits=bits, passages=passages, one_reply=one_reply, window=window)
        for window in (0, 2)
        for one_reply in (False, True)
        for passages in (0, 1, 3)
        for bits in (0, 1, 2, 3)
    ]
    sizes = [
        Setting(hidden_bits=bits, rollouts=rollouts, window=window)
        for window in (0, 2)
        for rollouts in (4, 16, 64)
        for bits in (0, 1, 2, 3)
    ]
    return [*crossed, *sizes]


def draw_worlds(setting: Setting, *, tasks: int, seed: int) -> Iterator[tuple[EnumeratedWorld, TabularPolicy]]:
    """Worlds of a setting, listed without any past, each with a policy of its own.

    They are the first training tasks; where there are fewer than asked for (of the worlds that hide nothing there are
    16), tasks come again, with other policies.
    """
    part = setting.make_part()
    task_set = part.task_set("train")
    for number in range(tasks):
        world = enumerate_task(part, task_set[number % len(task_set)])
        seen = remember(world, setting.window)
        own = seed_of(seed, "policy", number)
        yield world, make_skilled_policy(seen, skill=SKILL, roughness=ROUGHNESS, seed=own)
