"""Whether two folders hold the same run to the bit: weights, updates, rollouts, credit, evaluations; not the clock."""

from __future__ import annotations

import hashlib
from pathlib import Path

from groupwise.store.journal import Journal
from groupwise.store.run_folder import LATEST, RunPaths

CLOCKS = ("seconds/", "speed/")
"""Names of metrics that tell the time."""


def find_lost_updates(whole: Path, other: Path, *, since: int = 0) -> list[str]:
    """What a run has not, or has otherwise, that the whole one has: a line for each update, evaluation and weight.

    Every update must be there, and the last weights the same; what is recorded of updates and evaluations is compared
    from the one after `since` on, where what was recorded before was damaged on purpose.
    """
    lost = [f"weights: {difference}" for difference in different_weights(whole, other)]
    with _journal(whole) as sound, _journal(other) as present:
        if present.update_numbers() != sound.update_numbers():
            lost.append(f"updates: {present.update_numbers()} instead of {sound.update_numbers()}")
        later = [number for number in sound.update_numbers() if number > since]
        lost += [f"update {n}: other metrics" for n in later if _metrics(present, n) != _metrics(sound, n)]
        for number in later:
            if list(present.trajectories(number)) != list(sound.trajectories(number)):
                lost.append(f"update {number}: other rollouts or credit")
            if present.past_rollouts.list_replayed(number) != sound.past_rollouts.list_replayed(number):
                lost.append(f"update {number}: other rollouts replayed")
        if _evaluations(present, since) != _evaluations(sound, since):
            lost.append("evaluations: not the same")
    return lost


def different_weights(whole: Path, other: Path) -> list[str]:
    """How the last checkpoints of two runs differ in weights or optimizer."""
    one, two = (_last_checkpoint(RunPaths(folder).checkpoints) for folder in (whole, other))
    if one.name != two.name:
        return [f"checkpoint {two.name} instead of {one.name}"]
    names = ("model.safetensors", "optimizer.safetensors")
    return [name for name in names if _digest(one / name) != _digest(two / name)]


def _last_checkpoint(folder: Path) -> Path:
    """The checkpoint that `latest` names, read without the product's help: it is the one on trial."""
    return folder / (folder / LATEST).read_text(encoding="utf-8").strip()


def _metrics(journal: Journal, number: int) -> dict[str, float]:
    names = [name for name in journal.metric_names() if not name.startswith(CLOCKS)]
    curves = {name: dict(journal.curve(name)) for name in names}
    return {name: curve[number] for name, curve in curves.items() if number in curve}


def _evaluations(journal: Journal, since: int) -> list[object]:
    return [each for each in journal.evaluations() if each.number >= since]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _journal(folder: Path) -> Journal:
    return Journal(RunPaths(folder).journal, read_only=True)
