"""Admission: which attempts of each group the algorithm's admissions let in, and who was set aside by whom."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import Part, kind_of
from groupwise.core.parts.slots import Admission, Draw
from groupwise.core.records import SetAside, Trajectory


def admit_attempts(
    groups: Sequence[Sequence[Trajectory]], admissions: Sequence[Admission], *, draw: Draw
) -> tuple[list[Sequence[Trajectory]], list[SetAside]]:
    """The groups that are compared, without those of which nobody is left, and the attempts that are not admitted."""
    remaining, set_aside = list(groups), list[SetAside]()
    for admission in admissions:
        assert isinstance(admission, Part), "a slot is filled by parts"
        name, before = kind_of(type(admission)), remaining
        remaining = [admission(group, draw=draw) for group in before]
        for group, admitted in zip(before, remaining, strict=True):
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
        remaining = [group for group in remaining if group]
    return remaining, set_aside
