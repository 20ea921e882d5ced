"""The measurement on ALFWorld's real games, with a model that learns nothing: every stage, cut off and gone on with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.alfworld.__main__ import main
from groupwise.store.formats import open_rollouts
from tests.unit.envs.alfworld_data import games


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_all_stages_leave_what_they_found_and_go_on_from_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    arguments = ["--model", "tiny", "--small", "--games", str(games(tmp_path / "games")), "--out", str(out)]
    main([*arguments, "--stage", "start"])
    start = json.loads((out / "start.json").read_text())
    assert [len(start[name]) for name in ("base", "warm_start")] == [
        4,
        8,
    ]  # 2 games of 2 task sets, after imitation at two temperatures
    checkpoint = out / "start" / "checkpoints" / "0000" / "model.safetensors"
    written = checkpoint.stat().st_mtime_ns
    main([*arguments, "--stage", "all", "--methods", "grpo,hgpo", "--updates", "1"])
    assert checkpoint.stat().st_mtime_ns == written  # the start is not made twice
    main([*arguments, "--stage", "methods", "--methods", "grpo,hgpo", "--updates", "2"])
    record = json.loads((out / "alfworld.json").read_text())
    for method in ("grpo", "hgpo"):
        one = record["methods"][method]
        assert [point["total_steps"] for point in one["curve"]] == [16, 32]  # nothing solved: 2 x 2 rollouts of 4 steps
        assert (one["update"], one["total_steps"]) == (2, 32)
        assert record["success"][method]["valid_seen"]["tasks"] == 2
        assert sum(len(chunk.table()) for chunk in open_rollouts(out / f"rollouts_{method}.jsonl.gz").chunks()) == 32
        assert "| 0 | " in (out / f"audit_{method}.md").read_text()
    assert "hgpo against the paper's Qwen2.5-1.5B" in capsys.readouterr().out
