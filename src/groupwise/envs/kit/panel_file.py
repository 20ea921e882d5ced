"""Panel files: the tasks that results were measured on, written down, so that a change of them is noticed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from groupwise.core.errors import FileError, RecordError
from groupwise.core.parts.part import Part, Slot
from groupwise.core.records import Task
from groupwise.core.text.files import read_text_file
from groupwise.core.text.json_text import parse_json
from groupwise.core.text.safe_text import quote_line
from groupwise.envs.environment import EnvironmentPart
from groupwise.envs.kit.panel import SPLITS, check_disjoint, panel_hash
from groupwise.envs.part_queries import ask_panel

SCHEMA = 1
MAX_BYTES = 64 << 20
"""Of a panel file: half a million tasks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PanelFile:
    """The panels of an environment: which tasks, by split, and their fingerprints.

    Worked example: env {"kind": "identity", "length": 2, ...}, tasks {"train": ("identity-train-0c1f...", ...), ...},
    hashes {"train": "5b1d...", ...}.
    """

    env: Mapping[str, Any]
    """The environment as a run file says it, complete."""
    tasks: Mapping[str, tuple[str, ...]]
    """Ids of the tasks of each split, in the panel's order."""
    hashes: Mapping[str, str]
    """Fingerprint of each split's tasks, as `panel_hash` makes it and evaluations name it."""

    @classmethod
    def of(cls, part: Part) -> PanelFile:
        """The panels of an environment; raise if two of them share a task."""
        panels = panels_of(part)
        return cls(
            env=part.config(),
            tasks={split: tuple(task.id for task in tasks) for split, tasks in panels.items()},
            hashes={split: panel_hash(tasks) for split, tasks in panels.items()},
        )

    @classmethod
    def read(cls, path: Path) -> PanelFile:
        """Read a panel file; raise if it is none, or was changed by hand."""
        try:
            content = parse_json(read_text_file(path, max_bytes=MAX_BYTES))
            file = cls(
                env=dict(content["env"]),
                tasks={split: _read_ids(content["panels"][split]["tasks"]) for split in SPLITS},
                hashes={split: str(content["panels"][split]["hash"]) for split in SPLITS},
            )
            schema, seal, expected = content["schema"], content["seal"], file._make_seal()
        except FileNotFoundError:
            raise FileError(f"{path}: there is no such file; make it with `groupwise panel ENV --out {path}`") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FileError(
                f"{path}: this is not a panel file ({type(error).__name__}: {quote_line(str(error))}); "
                "make one with `groupwise panel ENV --out FILE`"
            ) from None
        if schema != SCHEMA:
            raise FileError(
                f"{path}: it has schema {quote_line(repr(schema), limit=60)}, and {SCHEMA} is what this version reads; "
                "make it again"
            )
        if seal != expected:
            raise FileError(f"{path}: its content is not what its seal says, so it was changed; make it again")
        return file

    def write(self, path: Path) -> None:
        """Write the panels; raise if a file is there that says something else."""
        if path.exists() and PanelFile.read(path) != self:
            raise FileError(f"{path}: there is another panel file already; choose another name, or remove it first")
        draft = path.with_name(f".{path.name}.tmp")  # moved into place whole
        draft.write_text(json.dumps(self._to_json() | {"seal": self._make_seal()}, indent=1) + "\n", encoding="utf-8")
        draft.replace(path)

    def part(self) -> Part:
        """The environment that the file speaks of."""
        return Slot("env").fill(self.env)

    def check(self, part: Part, *, name: str) -> None:
        """Raise if an environment's panels are not those of the file, which goes by `name`."""
        kind, kind_here = self.env.get("kind"), part.config().get("kind")
        if kind != kind_here:
            raise RecordError(
                f"{name}: it holds the panels of the environment {kind!r}, and this is {kind_here!r}; give the panel "
                "file of this environment, or make one with `groupwise panel ENV --out FILE`"
            )
        now = PanelFile.of(part)
        for split in SPLITS:
            if now.hashes[split] != self.hashes[split]:
                before, after = set(self.tasks[split]), set(now.tasks[split])
                raise RecordError(
                    f"{name}: the {split} panel changed: {len(before - after)} of its {len(before)} tasks are gone and "
                    f"{len(after - before)} are new ({self.hashes[split][:12]} is now {now.hashes[split][:12]}); "
                    "results on the two cannot be compared: go back to the fields and data it was made with, or make "
                    "the file again"
                )

    def _to_json(self) -> dict[str, Any]:
        panels = {split: {"hash": self.hashes[split], "tasks": list(self.tasks[split])} for split in SPLITS}
        return {"schema": SCHEMA, "env": dict(self.env), "panels": panels}

    def _make_seal(self) -> str:
        return sha256(json.dumps(self._to_json(), sort_keys=True).encode()).hexdigest()


def _read_ids(tasks: Any) -> tuple[str, ...]:
    if not isinstance(tasks, list) or not all(isinstance(task, str) for task in tasks):
        raise TypeError("the tasks of a panel are a list of texts")
    return tuple(tasks)


def panels_of(part: Part) -> dict[str, tuple[Task, ...]]:
    """The panels of an environment; raise if two of them share a task."""
    env: EnvironmentPart = part  # type: ignore[assignment]
    panels = {split: ask_panel(env, split) for split in SPLITS}
    check_disjoint(panels)
    return panels


def check_evaluated(part: Part, *, split: str, tasks: set[str], digest: str) -> None:
    """Raise if tasks that were evaluated, under a fingerprint, are not in the panel of their split."""
    panels = {name: {task.id for task in panel} for name, panel in panels_of(part).items()}
    strange = tasks - panels.get(split, set())
    if strange:
        raise RecordError(
            f"an evaluation on split {split!r} (panel {digest[:12]}) played {len(strange)} tasks that this panel does "
            f"not hold, such as {min(strange)}; the environment or its data changed since: evaluate again"
        )
