"""Every loss that the catalogues can make: those of all methods, every part of a loss, every choice a part offers.

What is added to a catalogue is here by itself, so that no law has to be told of a new method.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, cast, get_args, get_origin

from pydantic import ValidationError

from groupwise.losses import Plain, PolicyLoss
from groupwise.methods import METHODS
from groupwise.parts.part import Part, load_catalogue
from groupwise.parts.slots import Loss
from groupwise.system.errors import ConfigError

PIECES = ("ratio", "surrogate", "aggregate", "correction", "penalty")
"""Slots of a policy loss."""


def list_losses() -> dict[str, Loss]:
    """Each distinct loss by a name: the method's, else the part's, with what was chosen."""
    losses: dict[str, Any] = {}
    for name, loss in _list_all():
        if not any(loss == known for known in losses.values()):
            losses[name] = loss
    return losses


def list_losses_at_zero() -> dict[str, Loss]:
    """Each part of a loss, once for each of its numbers that may be 0: a bound of 0 lies where training starts."""
    losses: dict[str, Any] = {}
    for slot in ("loss", *PIECES):
        for name, kind in load_catalogue(slot).items():
            for field, info in kind.model_fields.items():
                if type(info.default) in (int, float) and info.default:
                    for choice, part in _make(f"{name} {field}=0", kind, **{field: 0}):
                        losses[choice] = part if slot == "loss" else _put_into_loss(slot, part)
    return losses


def _list_all() -> Iterator[tuple[str, Any]]:
    for name, method in METHODS.items():
        yield name, method().loss
    for name, kind in load_catalogue("loss").items():
        yield from _list_choices(name, kind)
    for slot in PIECES:
        for name, kind in load_catalogue(slot).items():
            for choice, part in _list_choices(name, kind):
                yield choice, _put_into_loss(slot, part)


def _list_choices(name: str, kind: type[Part]) -> Iterator[tuple[str, Part]]:
    """A part as it comes, and once for each other choice that one of its fields offers."""
    yield from _make(name, kind)
    for field, info in kind.model_fields.items():
        options = (True, False) if info.annotation is bool else get_args(info.annotation)
        if info.annotation is not bool and get_origin(info.annotation) is not Literal:
            continue
        for option in options:
            if option != info.default:
                yield from _make(f"{name} {field}={option}", kind, **{field: option})


def _make(name: str, kind: type[Part], **fields: object) -> Iterator[tuple[str, Part]]:
    """The part, unless it asks for more than that: then it is to be found in a method."""
    try:
        yield name, kind(**fields)
    except (ConfigError, ValidationError):
        return


def _put_into_loss(slot: str, part: Part) -> PolicyLoss:
    fields: dict[str, object] = {slot: part}
    if slot in ("correction", "penalty"):
        fields = {"corrections" if slot == "correction" else "penalties": (part,), "surrogate": Plain()}
    return PolicyLoss(**cast(dict[str, Any], fields))
