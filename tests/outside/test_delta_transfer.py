"""A weight transfer from outside: only what changed is sent, and the run is the same to the bit as in memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from groupwise import load_run, open_run, train
from groupwise.store.journal import Journal
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import TrainingError
from groupwise.training.checkpoints import open_run_at
from tests.outside.running import SMALL_RUN, groupwise

ALGORITHM = '\n[algorithm]\nmethod = "dr_grpo"\n'
REPEATING = ("env={kind='identity', num_words=4, length=1}", "rollout.max_tokens=1", "rollout.group_size=16")
"""A task at which some rollouts succeed from the start, so that the weights move."""
DELTAS = '\n[training.weight_sync]\nkind = "delta_transfer:DeltaTransfer"\n'


def train_run(folder: Path, transfer: str, *, updates: int) -> RunPaths:
    file = folder.with_suffix(".toml")
    file.write_text(SMALL_RUN + ALGORITHM + transfer, encoding="utf-8")
    with open_run(load_run(file, overrides=[*REPEATING, f"training.updates={updates}"]), folder) as run:
        train(run)
    return RunPaths(folder)


def chain_of(paths: RunPaths) -> str:
    """The digest of all rollouts, credit and metrics but the clock's."""
    with Journal(paths.journal, read_only=True) as journal:
        return journal.digest()


def read_sent(paths: RunPaths) -> list[dict[str, int]]:
    return [json.loads(line) for line in (paths.weights / "sent.jsonl").read_text().splitlines()]


def test_the_run_is_that_of_a_transfer_in_memory_also_after_a_resume(tmp_path: Path) -> None:
    plain = train_run(tmp_path / "plain", "", updates=3)
    cut = train_run(tmp_path / "cut", DELTAS, updates=2)
    first = read_sent(cut)
    assert [line["version"] for line in first] == [1, 2]
    assert first[1]["bytes"] < first[1]["of"], "what changed is less than all"
    groupwise("train", "--resume", "cut", "--set", "training.updates=3", "--plain", cwd=tmp_path)
    assert [line["version"] for line in read_sent(cut)] == [1, 2, 2, 3]
    assert chain_of(cut) == chain_of(plain)
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (cut.checkpoint(3) / name).read_bytes() == (plain.checkpoint(3) / name).read_bytes()
    before = sorted(cut.folder.rglob("*"))
    open_run_at(load_run(cut.folder), cut.folder, 1, read_only=True).close()
    assert len(read_sent(cut)) == 4, "a run that is only read leaves nothing behind"
    assert [path for path in sorted(cut.folder.rglob("*")) if path not in before] == []


def test_a_file_that_was_spoilt_on_the_way_is_refused(tmp_path: Path) -> None:
    from delta_transfer import receive, send

    table = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3)}
    path = tmp_path / "delta"
    send(path, table, {}, level=6)
    assert receive(path, {})["weight"].tolist() == table["weight"].tolist()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(TrainingError, match="did not arrive as they were sent"):
        receive(path, {})
