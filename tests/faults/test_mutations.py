"""The ways to spoil a file: repeatable, and of every kind that the campaign relies on."""

from __future__ import annotations

import json
import tomllib
from random import Random

import pytest

from tests.faults.mutations import mutate_bytes, mutate_json_lines, mutate_toml

LINES = '{"task": "t", "step": 0, "reward": 0.5, "state": ["a", 1]}\n{"task": "t", "step": 1, "reward": 1.0}\n'
TOML = '[env]\nkind = "identity"\nlength = 2\n\n[algorithm]\nmethod = "grpo"\n'


def is_json(text: str) -> bool:
    try:
        for line in text.splitlines():
            json.loads(line or "0")
    except (ValueError, RecursionError):
        return False
    return True


def is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def test_the_same_source_of_randomness_gives_the_same_file() -> None:
    for seed in range(200):
        assert mutate_bytes(LINES.encode(), Random(seed)) == mutate_bytes(LINES.encode(), Random(seed))
        assert mutate_json_lines(LINES, Random(seed)) == mutate_json_lines(LINES, Random(seed))
        assert mutate_toml(TOML, Random(seed)) == mutate_toml(TOML, Random(seed))


def test_most_files_are_changed_and_some_can_still_be_parsed() -> None:
    json_lines = [mutate_json_lines(LINES, Random(seed)) for seed in range(300)]
    assert sum(text != LINES for text in json_lines) > 240
    assert 60 < sum(map(is_json, json_lines)) < 280
    run_files = [mutate_toml(TOML, Random(seed)) for seed in range(300)]
    assert sum(text != TOML for text in run_files) > 240
    assert 30 < sum(map(is_toml, run_files)) < 280


@pytest.mark.parametrize("data", [b"", b"\n", b"{"])
def test_files_with_nothing_in_them_can_be_spoilt_too(data: bytes) -> None:
    spoilt = [mutate_bytes(data, Random(seed)) for seed in range(100)]
    json_lines = [mutate_json_lines(data.decode(), Random(seed)) for seed in range(100)]
    run_files = [mutate_toml(data.decode(), Random(seed)) for seed in range(100)]
    assert len(set(spoilt)) > 20
    assert len(set(json_lines)) > 20
    assert len(set(run_files)) > 15
