"""Studies of many circumstances, side by side in processes of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from typing import Any

from benchmarks.lab.circumstances import COMPARED, Circumstance
from groupwise.lab.study import list_algorithms, record_condition, study_recording


def study_circumstance(circumstance: Circumstance, names: Sequence[str] | None) -> dict[str, Any]:
    """What comes of a circumstance, with what it is."""
    condition = circumstance.condition
    recording, tools = record_condition(condition)
    algorithms = {**list_algorithms(names), **circumstance.variants}
    return {
        "dial": circumstance.dial,
        "world": circumstance.world,
        "setting": circumstance.setting,
        "env": condition.env.config(),  # type: ignore[attr-defined]
        "condition": {
            name: getattr(condition, name)
            for name in ("tasks", "rollouts", "updates", "skill", "roughness", "sees", "key", "gamma", "seed")
        },
        **study_recording(recording, algorithms, tools=tools, seed=condition.seed),
    }


def find_finer(tables: Sequence[dict[str, Any]]) -> list[str]:
    """The methods whose credit differs between steps or tokens in any of the tables and is not another's, by name."""
    finer = [
        name
        for table in tables
        for name, line in table["methods"].items()
        if line.get("level") in ("step", "token") and "error" in line
    ]
    return list(dict.fromkeys([*COMPARED, *finer]))


def add_study(studies: list[dict[str, Any]], study: dict[str, Any]) -> None:
    """Add a study to others; one of the same circumstance and methods is replaced where it stands."""
    for number, other in enumerate(studies):
        if _name_study(other) == _name_study(study):
            studies[number] = study
            return
    studies.append(study)


def _name_study(study: dict[str, Any]) -> tuple[str, str, str, frozenset[str]]:
    return study["dial"], study["world"], study["setting"], frozenset(study["methods"])


def study_all(
    circumstances: Sequence[Circumstance], names: Sequence[str] | None, *, processes: int
) -> Iterator[dict[str, Any]]:
    """Study circumstances side by side, and give each when it is done, in their order."""
    began = time.monotonic()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) if processes > 1 else nullcontext() as pool:
        study = partial(study_circumstance, names=names)
        studied = map(study, circumstances) if pool is None else pool.map(study, circumstances)
        for circumstance, result in zip(circumstances, studied, strict=True):
            words = f"{circumstance.dial}, {circumstance.world}, {circumstance.setting}"
            print(f"{time.monotonic() - began:6.0f} s  {words}", flush=True)
            yield result
