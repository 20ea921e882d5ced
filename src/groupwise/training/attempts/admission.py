"""Admitting attempts: what the algorithm's admissions leave of each group, and who was set aside by whom."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import Part, kind_of
from groupwise.core.parts.slots import Admission, Draw
from groupwise.core.records import SetAside, Trajectory


def admit(
    groups: Sequence[Sequence[Trajectory]], admissions: Sequence[Admission], *, draw: Draw
) -> tuple[list[Sequence[Trajectory]], list[SetAside]]:
    """The groups that are compared, without those of which nobody is left, and the attempts that are not admitted."""
    left, set_aside = list(groups), list[SetAside]()
    for admission in admissions:
        assert isinstance(admission, Part), "a slot is filled by parts"
        name, before = kind_of(type(admission)), left
        left = [admission(group, draw=draw) for group in before]
        for group, admitted in zip(before, left, strict=True):
            ids = {id(member) for member in group}
            admitted_ids = {id(member) for member in admitted}
            if not admitted_ids <= ids or len(admitted_ids) != len(admitted):
                raise ConfigError(
                    f"the admission {name}: of the {len(group)} attempts at {group[0].task.id!r} it gave "
                    f"{len(admitted)} back, not all of them members of the group, or one twice; give back some of the "
                    "attempts that came, as they are"
                )
            set_aside += [
                SetAside(trajectory=member, by=f"the admission {name}")
                for member in group
                if id(member) not in admitted_ids
            ]
        left = [group for group in left if group]
    return left, set_aside
