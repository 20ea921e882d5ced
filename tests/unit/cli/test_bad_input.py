"""Bad input: one line that names the place and says what to do, status 2, no traceback, nothing written."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise import methods
from tests.unit.cli.conftest import Run
from tests.unit.cli.files import HEADER, ROWS, write

METHODS = "`groupwise methods` lists them all"
KEYS = "docs/reference/rollouts.md lists them all"
OPTIONS = "`groupwise methods --show hgpo` lists them all"


def change_row(position: int, **change: Any) -> list[dict[str, Any]]:
    """The rows, one of them with other entries; None takes an entry out."""
    rows = [dict(row) for row in ROWS]
    rows[position] |= change
    rows[position] = {name: value for name, value in rows[position].items() if value is not None}
    return rows


def rows(*content: dict[str, Any]) -> Callable[[Path], Path]:
    return lambda folder: write(folder / "rollouts.jsonl", content)


def raw(name: str, content: bytes) -> Callable[[Path], Path]:
    def write_bytes(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content)
        return path

    return write_bytes


GOOD = "".join(json.dumps(line) + "\n" for line in (HEADER, *ROWS)).encode()

BAD_FILES: list[tuple[str, Callable[[Path], Path], str]] = [
    (
        "a missing column",
        rows(*change_row(2, reward=None)),
        "rollouts.jsonl, line 4: no key 'reward'; every row needs task, rollout, step and reward",
    ),
    (
        "ragged columns",
        rows(*change_row(3, outcome=1.0)),
        "rollouts.jsonl, line 5: has 'outcome', but line 2 has none; give it to every row or to none",
    ),
    (
        "a NaN reward",
        rows(*change_row(1, reward=float("nan"))),
        "rollouts.jsonl, line 3: key 'reward' is NaN; it takes a finite number "
        "(a missing score is not a zero: score the rollout or leave it out)",
    ),
    (
        "a reward beyond any reward",
        rows(*change_row(1, reward=-1e300)),
        "rollouts.jsonl: column 'reward', line 3: found -1e+300, beyond 1e+100; this looks like a placeholder, not a "
        "reward: replace or rescale it",
    ),
    (
        "a negative step",
        rows(*change_row(1, step=-1)),
        "rollouts.jsonl, line 3: key 'step' is -1; it takes an integer from 0 upwards",
    ),
    (
        "two rows with one identity",
        rows(*ROWS, ROWS[1]),
        "rollouts.jsonl: lines 3 and 8 have the same identity (task 't', rollout 'a', step 1); remove the copy, "
        "or number the parts of a step with `segment`",
    ),
    (
        "an unknown key",
        rows(*change_row(0, rewrd=1.0)),
        f"rollouts.jsonl, line 2: unknown key 'rewrd'; did you mean 'reward'? {KEYS} (further columns go into 'extra')",
    ),
    (
        "a key of earlier versions",
        rows(*change_row(0, index=0, step=None)),
        "rollouts.jsonl, line 2: unknown key 'index'; here: step",
    ),
    (
        "a truncated file",
        raw("rollouts.jsonl", GOOD[:-20]),
        "rollouts.jsonl, line 7: the file ends in the middle of this line; the writer was cut off: "
        "drop the last line, or write the file again",
    ),
    (
        "a truncated gzip file",
        raw("rollouts.jsonl.gz", gzip.compress(GOOD, mtime=0)[:-8]),
        "rollouts.jsonl.gz, after line 7: the gzip stream is cut off or corrupt (Compressed file ended before the "
        "end-of-stream marker was reached); copy the file again, or recover its beginning with `gzip -dc`",
    ),
    (
        "a corrupt line",
        raw("rollouts.jsonl", GOOD.replace(b'"take"', b'"ta"ke"')),
        "rollouts.jsonl, line 3: not valid JSON at column 85 (Expecting ',' delimiter); repair or drop the line",
    ),
    (
        "bytes that are no text",
        raw("rollouts.jsonl", b"\xe7\x00\x01\n"),
        "rollouts.jsonl, line 1: byte 1 of the line is not UTF-8 (231); the file must be UTF-8 text: "
        "convert it, for instance with `iconv -t utf-8`",
    ),
    (
        "an empty file",
        raw("rollouts.jsonl", b""),
        "rollouts.jsonl: the file is empty; check that the run that wrote it finished its first step",
    ),
    (
        "a file of no known format",
        raw("rollouts.jsonl", b'{"prompt": "hi"}\n'),
        "rollouts.jsonl, line 1: found an object with prompt, which is of no format that groupwise recognises; name "
        "the format (groupwise, verl_agent, verifiers), map its columns (`--map task=prompt_id,reward=score`), or "
        "write the file with groupwise.store.write_rollouts",
    ),
    (
        "a later version",
        raw("rollouts.jsonl", b'{"format": "groupwise.rollouts", "version": 3, "meta": {}}\n'),
        "rollouts.jsonl, line 1: the file is of version 3 of the format, and this groupwise reads 2; "
        "update groupwise, or write the file again",
    ),
]


@pytest.mark.parametrize("command", [("audit",), ("explain", "--rollout", "a", "--task", "t", "--step", "0")])
@pytest.mark.parametrize(("what", "make", "message"), BAD_FILES, ids=[what for what, _, _ in BAD_FILES])
def test_a_bad_file_gives_one_line_and_status_2_and_writes_nothing(
    what: str,
    make: Callable[[Path], Path],
    message: str,
    command: tuple[str, ...],
    groupwise: Run,
    tmp_path: Path,
) -> None:
    path = make(tmp_path)
    content = path.read_bytes()
    ran = groupwise(command[0], path.name, *command[1:])
    assert ran.err == f"error: {message}\n"
    assert (ran.status, ran.out) == (2, "")
    assert [file.name for file in tmp_path.rglob("*")] == [path.name]
    assert path.read_bytes() == content


BAD_OPTIONS: list[tuple[tuple[str, ...], str]] = [
    (("audit", "FILE", "--method", "hgop"), f"there is no method 'hgop'; did you mean 'hgpo'? {METHODS}"),
    (
        ("explain", "FILE", "--rollout", "c", "--step", "0", "--method", "zzz"),
        "there is no method 'zzz'; Valid: a_grae, "
        "after_concise_r, after_dsdr, after_etr, after_polychromic, ... "
        f"({len(methods.names())} in all; `groupwise methods` lists them)",
    ),
    (("methods", "--show", "hgop"), f"there is no method 'hgop'; did you mean 'hgpo'? {METHODS}"),
    (
        ("audit", "FILE", "--method", "hgpo:dpth=1"),
        f"hgpo: dpth: unknown setting; did you mean 'depth'? {OPTIONS}",
    ),
    (("audit", "FILE", "--method", "hgpo:depth"), "hgpo: option 'depth' has no value; write depth=VALUE"),
    (
        ("audit", "FILE", "--method", "hgpo:depth=-1"),
        "hgpo: depth: expected a number greater than or equal to 0, found -1",
    ),
    (
        ("audit", "FILE", "--method", "hgpo:scale=max"),
        "hgpo: scale: expected 'std' or 'none', found 'max'",
    ),
    (
        ("audit", "FILE", "--method", "none.toml"),
        "none.toml: there is no such file; give a method's name or a TOML file",
    ),
    (("audit", "none.jsonl"), "none.jsonl: there is no such file; check the path"),
    (("audit", "."), ".: this is a folder; give one rollouts file, or the folder of a run"),
    (("check", "rollouts", "none.jsonl"), "none.jsonl: there is no such file; check the path"),
    (
        ("audit", "FILE", "--format", "veriffiers"),
        "unknown rollouts format 'veriffiers'; did you mean 'verifiers'? Valid: auto, groupwise, verifiers, verl_agent",
    ),
    (("audit", "FILE", "--method", "hgpo:gamma=2"), "hgpo: gamma: expected a number less than or equal to 1, found 2"),
    (
        ("audit", "FILE", "--method", "hgpo:alpha=1000"),
        "hgpo: alpha: expected a number less than or equal to 64, found 1000",
    ),
    (("audit", "FILE", "--method", "ngrpo:best=inf"), "ngrpo: best: expected a finite number, found inf"),
    (
        ("explain", "FILE", "--rollout", "c", "--step", "0", "--task", "uu"),
        "there is no task 'uu'; did you mean 'u'? Valid: t, u",
    ),
    (
        ("explain", "FILE", "--rollout", "c", "--step", "3"),
        "task 'u', rollout 'c' has no step 3; its steps are 0 to 0",
    ),
    (("explain", "FILE", "--rollout", "zz", "--step", "0"), "there is no rollout 'zz'; Valid: a, b, c"),
    (
        ("explain", "FILE", "--rollout", "zz", "--step", "0", "--task", "t"),
        "there is no rollout 'zz' at task 't'; Valid: a, b",
    ),
    (
        ("explain", "FILE", "--rollout", "a", "--step", "0"),
        "rollout 'a' exists in 2 tasks; add --task, one of: t, u",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_OPTIONS)
def test_a_bad_option_gives_one_line_and_status_2_and_writes_nothing(
    arguments: tuple[str, ...], message: str, groupwise: Run, rollouts: str, tmp_path: Path
) -> None:
    ran = groupwise(*(rollouts if argument == "FILE" else argument for argument in arguments))
    assert ran.err == f"error: {message}\n"
    assert (ran.status, ran.out) == (2, "")
    assert [file.name for file in tmp_path.rglob("*")] == [rollouts]


def test_brackets_in_a_message_are_printed_as_they_are(groupwise: Run, rollouts: str) -> None:
    ran = groupwise("explain", rollouts, "--rollout", "[red]x[/]", "--step", "0")
    assert ran.err == "error: there is no rollout '[red]x[/]'; Valid: a, b, c\n"


def test_a_long_message_stays_on_one_line(groupwise: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "rollouts.jsonl", change_row(0, rewrd=1.0))
    err = groupwise("audit", path.name).err
    assert len(err) > 140
    assert err.count("\n") == 1


def test_a_wrong_run_file_names_the_file_and_the_key(groupwise: Run, rollouts: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[algorithm]\nmethod = "hgpo"\ndpth = 2\n')
    ran = groupwise("audit", rollouts, "--method", "run.toml")
    assert ran.err == (
        "error: run.toml: algorithm.dpth: not an option of the method 'hgpo', and not a part of an algorithm; did you "
        f"mean 'depth'? {OPTIONS}\n"
    )
    assert ran.status == 2


@pytest.mark.parametrize("arguments", [("bogus",), ("audit",), ("audit", "FILE", "--nope"), ("explain", "FILE")])
def test_a_wrong_call_shows_the_usage_and_status_2(arguments: tuple[str, ...], groupwise: Run) -> None:
    ran = groupwise(*arguments)
    assert ran.status == 2
    assert ran.err.startswith("Usage: ")
    assert "\nerror: " in ran.err
    assert "Traceback" not in ran.err
