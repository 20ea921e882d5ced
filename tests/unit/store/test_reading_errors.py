"""Every way in which a file cannot be read, with the whole sentence that the user meets."""

from __future__ import annotations

import builtins
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from groupwise.store import RolloutsFile, write_rollouts
from groupwise.system.errors import FileError
from tests.unit.store.rows import HEADER, ROW, write_lines

NOT_OURS = (
    "if another program wrote it, name its format (`--format verl_agent` or `--format verifiers`, "
    'open_rollouts(path, format="...")) or its columns (`--map task=prompt_id,reward=score`), else put the header '
    '{"format": "groupwise.rollouts", "version": 2, "meta": {}} first'
)
SCORE = " (a missing score is not a zero: score the rollout or leave it out)"


def message(path: Path) -> str:
    """What reading the whole file says."""
    with pytest.raises(FileError) as caught:
        [chunk.table() for chunk in RolloutsFile.open(path).chunks()]
    return str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    path = tmp_path / "none.jsonl"
    assert message(path) == f"{path}: there is no such file; check the path"


def test_a_folder(tmp_path: Path) -> None:
    assert message(tmp_path) == f"{tmp_path}: this is a folder; give one rollouts file, or the folder of a run"


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.touch()
    assert message(path) == (f"{path}: the file is empty; check that the run that wrote it finished its first step")


def test_blank_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "blank.jsonl"
    path.write_text("\n\n")
    assert message(path) == f"{path}: the file holds only blank lines; check the run that wrote it"


@pytest.mark.parametrize("first", [ROW, [1], "text"])
def test_no_header(tmp_path: Path, first: Any) -> None:
    path = write_lines(tmp_path / "rollouts.jsonl", [first])
    assert message(path) == f"{path}, line 1: this is not the header of a groupwise rollouts file; {NOT_OURS}"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"version": 3},
            "the file is of version 3 of the format, and this groupwise reads 2; "
            "update groupwise, or write the file again",
        ),
        (
            {"version": 1},
            "the file is of version 1 of the format, and this groupwise reads 2; rename its keys 'attempt' to "
            "'rollout', 'index' to 'step', 'unguided_prompt_ids' to 'unhinted_prompt_ids', and set version 2",
        ),
        (
            {"version": "one"},
            'the file is of version "one" of the format, and this groupwise reads 2; write the file again',
        ),
        (
            {"mata": {}},
            "unknown key 'mata' in the header; did you mean 'meta'? Valid: format, json, meta, version "
            "(notes of your own go into 'meta')",
        ),
        ({"meta": 3}, "'meta' in the header is 3; it takes an object of notes"),
    ],
)
def test_a_bad_header(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    path = write_lines(tmp_path / "rollouts.jsonl", [HEADER | change, ROW])
    assert message(path) == f"{path}, line 1: {expected}"


def test_no_rows(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rollouts.jsonl", [HEADER])
    assert message(path) == f"{path}: the file holds no rows; record at least one step"


def test_a_last_line_that_is_cut_off(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rollouts.jsonl", [HEADER, ROW, ROW | {"step": 1}])
    path.write_bytes(path.read_bytes()[:-10])
    assert message(path) == (
        f"{path}, line 3: the file ends in the middle of this line; the writer was cut off: "
        "drop the last line, or write the file again"
    )


def test_corrupt_json_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_text(json.dumps(HEADER) + '\n{"task": "t", "rollout" 0}\n' + json.dumps(ROW) + "\n")
    assert message(path) == (
        f"{path}, line 2: not valid JSON at column 25 (Expecting ':' delimiter); repair or drop the line"
    )


def test_another_kind_of_file(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("# A page\n\nof words\n")
    assert message(path) == (
        f"{path}, line 1: not valid JSON at column 1 (Expecting value); a rollouts file has one JSON object per "
        "line (docs/reference/rollouts.md)"
    )


def test_an_integer_of_too_many_digits(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_text(json.dumps(HEADER) + '\n{"task": ' + "9" * 5000 + "}\n")
    assert message(path) == (f"{path}, line 2: a number in it has thousands of digits; repair or drop the line")


def test_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(json.dumps(HEADER).encode() + b'\n{"task": "caf\xe9"}\n')
    assert message(path) == (
        f"{path}, line 2: byte 14 of the line is not UTF-8 (233); "
        "the file must be UTF-8 text: convert it, for instance with `iconv -t utf-8`"
    )


def test_gzip_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(HEADER).encode() + b"\n")[:-12])
    assert message(path) == (
        f"{path}, after line 0: the gzip stream is cut off or corrupt (Compressed file ended before the end-of-stream "
        "marker was reached); copy the file again, or recover its beginning with `gzip -dc`"
    )


ROW_FAULTS: list[tuple[Any, str]] = [
    ([1, 2], "found [1, 2], but a row is a JSON object with task, rollout, step and reward"),
    (
        {"task": "t", "rollout": 0, "step": 0},
        "no key 'reward'; every row needs task, rollout, step and reward",
    ),
    (
        ROW | {"rewrd": 1},
        "unknown key 'rewrd'; did you mean 'reward'? docs/reference/rollouts.md lists them all "
        "(further columns go into 'extra')",
    ),
    (ROW | {"task": 1.5}, "key 'task' is 1.5; it takes text or an integer"),
    (ROW | {"task": True}, "key 'task' is true; it takes text or an integer"),
    (ROW | {"rollout": None}, "key 'rollout' is null; it takes text or an integer"),
    (ROW | {"group": []}, "key 'group' is []; it takes text or an integer"),
    (ROW | {"step": -1}, "key 'step' is -1; it takes an integer from 0 upwards"),
    (ROW | {"step": "3"}, "key 'step' is \"3\"; it takes an integer from 0 upwards"),
    (ROW | {"segment": 0.5}, "key 'segment' is 0.5; it takes an integer from 0 upwards"),
    (ROW | {"reward": "high"}, f"key 'reward' is \"high\"; it takes a finite number{SCORE}"),
    (ROW | {"reward": None}, f"key 'reward' is null; it takes a finite number{SCORE}"),
    (ROW | {"reward": float("nan")}, f"key 'reward' is NaN; it takes a finite number{SCORE}"),
    (ROW | {"reward": float("inf")}, f"key 'reward' is Infinity; it takes a finite number{SCORE}"),
    (ROW | {"reward": True}, f"key 'reward' is true; it takes a finite number{SCORE}"),
    (ROW | {"outcome": float("-inf")}, f"key 'outcome' is -Infinity; it takes a finite number{SCORE}"),
    (ROW | {"accuracy": "1"}, "key 'accuracy' is \"1\"; it takes a finite number"),
    (
        ROW | {"state": float("nan")},
        "key 'state' is NaN; it takes text, a finite number, true or false, a list, an object, "
        "or null for 'not comparable'",
    ),
    (ROW | {"action": 3}, "key 'action' is 3; it takes text or null"),
    (ROW | {"observation": None}, "key 'observation' is null; it takes text"),
    (ROW | {"valid": 1}, "key 'valid' is 1; it takes true or false"),
    (
        ROW | {"stop": "done"},
        "key 'stop' is \"done\"; it takes one of terminated, truncated, invalid, error, timeout",
    ),
    (
        ROW | {"origin": "old"},
        "key 'origin' is \"old\"; it takes one of fresh, replayed, reflected, hinted, branched",
    ),
    (ROW | {"role": 1.0}, "key 'role' is 1.0; it takes text or an integer or null"),
    (ROW | {"tokens": -3}, "key 'tokens' is -3; it takes an integer from 0 upwards"),
    (ROW | {"prompt_ids": [1, "2"]}, "key 'prompt_ids' is [1, \"2\"]; it takes a list of integers"),
    (ROW | {"response_ids": 7}, "key 'response_ids' is 7; it takes a list of integers"),
    (
        ROW | {"response_ids": [1], "entropy": [float("nan")]},
        "key 'entropy' is [NaN]; it takes a list of finite numbers",
    ),
    (
        ROW | {"response_ids": [1, 2], "logp_behaviour": [-0.5]},
        "'logp_behaviour' has 1 entries for 2 response_ids; store one per token, or none",
    ),
    (
        ROW | {"logp_behaviour": [-0.5]},
        "'logp_behaviour' without 'response_ids'; store the ids of the sampled tokens too, or leave it out",
    ),
    (
        ROW | {"response_ids": [1, 2], "tokens": 3},
        "'tokens' is 3, but there are 2 response_ids; leave 'tokens' out",
    ),
    (ROW | {"version": "3"}, "key 'version' is \"3\"; it takes an integer"),
    (ROW | {"extra": [1]}, "key 'extra' is [1]; it takes an object of further columns"),
    (
        ROW | {"extra": {"reward": 1}},
        "'extra' holds 'reward', a name that is taken; move it out of 'extra', or rename it",
    ),
    (
        ROW | {"extra": {"trains": False}},
        "'extra' holds 'trains', a name that is taken; move it out of 'extra', or rename it",
    ),
    (
        ROW | {"action": ["long"] * 30},
        'key \'action\' is ["long", "long", "long", "long", "long", "long", "long", "l…; it takes text or null',
    ),
]


@pytest.mark.parametrize(("row", "expected"), ROW_FAULTS)
def test_a_bad_row(tmp_path: Path, row: Any, expected: str) -> None:
    path = write_lines(tmp_path / "rollouts.jsonl", [HEADER, ROW, row])
    assert message(path) == f"{path}, line 3: {expected}"


UNLIKE_THE_FIRST: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"outcome": 1.0}, "has 'outcome', but line 2 has none; give it to every row or to none"),
    ({"outcome": 1.0}, {}, "no 'outcome', but line 2 has one; give it to every row or to none"),
    ({"group": "g"}, {}, "no 'group', but line 2 has one; give it to every row or to none"),
    ({"valid": True}, {}, "no 'valid', but line 2 has one; give it to every row or to none"),
    ({"tokens": 4}, {}, "no 'tokens' or 'response_ids', but line 2 has one; give it to every row or to none"),
    (
        {},
        {"task": 3},
        "key 'task' is 3, but line 2 has text; use text or integers throughout (1 and '1' would be two ids)",
    ),
    (
        {},
        {"rollout": "0"},
        "key 'rollout' is \"0\", but line 2 has an integer; use text or integers throughout "
        "(1 and '1' would be two ids)",
    ),
]


@pytest.mark.parametrize(("first", "second", "expected"), UNLIKE_THE_FIRST)
def test_rows_that_do_not_fit_together(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], expected: str
) -> None:
    path = write_lines(tmp_path / "rollouts.jsonl", [HEADER, ROW | first, ROW | {"step": 1} | second])
    assert message(path) == f"{path}, line 3: {expected}"


def test_what_the_table_finds_is_told_by_line(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rollouts.jsonl", [HEADER, ROW, "", ROW | {"step": 1}, ROW])
    path.write_text(path.read_text().replace('""\n', "\n"))
    assert message(path) == (
        f"{path}: lines 2 and 5 have the same identity (task 't', rollout 0, step 0); remove the copy, "
        "or number the parts of a step with `segment`"
    )


def test_a_sentinel_is_told_by_line(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rollouts.jsonl", [HEADER, ROW, ROW | {"step": 1, "reward": -1e300}])
    assert message(path) == (
        f"{path}: column 'reward', line 3: found -1e+300, beyond 1e+100; this looks like a placeholder, not a reward: "
        "replace or rescale it"
    )


def test_two_outcomes_of_one_rollout(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rollouts.jsonl", [HEADER, ROW | {"outcome": 1}, ROW | {"step": 1, "outcome": 0}])
    assert message(path) == (
        f"{path}: task 't', rollout 0, step 0: the rows of this rollout have different outcomes; give them all the "
        "same outcome, and put rewards of single steps into `reward`"
    )


def parquet(path: Path, columns: dict[str, Any], metadata: dict[str, str] | None) -> Path:
    table = pytest.importorskip("pyarrow").table(columns).replace_schema_metadata(metadata)
    pytest.importorskip("pyarrow.parquet").write_table(table, path)
    return path


COLUMNS = {"task": ["t"], "rollout": [0], "step": [0], "reward": [1.0]}


def test_ids_that_are_no_ids_are_named_by_their_row(tmp_path: Path) -> None:
    columns = COLUMNS | {"task": [float("nan")]}
    path = parquet(tmp_path / "rollouts.parquet", columns, {"groupwise.rollouts": json.dumps(HEADER)})
    with pytest.raises(FileError) as raised:
        RolloutsFile.open(path).places()
    assert str(raised.value) == f"{path}, row 1: key 'task' is NaN; it takes text or an integer"


def test_parquet_without_a_header(tmp_path: Path) -> None:
    path = parquet(tmp_path / "rollouts.parquet", COLUMNS, None)
    assert message(path) == (
        f"{path}: the file's metadata has no header under the key 'groupwise.rollouts'; {NOT_OURS}"
    )


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            "{",
            ": the header in the file's metadata is not JSON "
            "(Expecting property name enclosed in double quotes: line 1 column 2 (char 1)); write the file again",
        ),
        (
            json.dumps(HEADER | {"version": 7}),
            ", header: the file is of version 7 of the format, and this groupwise reads 2; "
            "update groupwise, or write the file again",
        ),
    ],
)
def test_parquet_with_a_bad_header(tmp_path: Path, header: str, expected: str) -> None:
    path = parquet(tmp_path / "rollouts.parquet", COLUMNS, {"groupwise.rollouts": header})
    assert message(path) == f"{path}{expected}"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"reward": [None]}, "no key 'reward'; every row needs task, rollout, step and reward"),
        ({"reward": [float("nan")]}, f"key 'reward' is NaN; it takes a finite number{SCORE}"),
        (
            {"rewards": [1]},
            "unknown key 'rewards'; did you mean 'reward'? docs/reference/rollouts.md lists them all "
            "(further columns go into 'extra')",
        ),
        ({"step": ["0"]}, "key 'step' is \"0\"; it takes an integer from 0 upwards"),
    ],
)
def test_a_bad_row_in_parquet(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    path = parquet(tmp_path / "rollouts.parquet", COLUMNS | change, {"groupwise.rollouts": json.dumps(HEADER)})
    assert message(path) == f"{path}, row 1: {expected}"


def test_parquet_text_that_should_be_json(tmp_path: Path) -> None:
    header = json.dumps(HEADER | {"json": ["state"]})
    path = parquet(tmp_path / "rollouts.parquet", COLUMNS | {"state": ["[1"]}, {"groupwise.rollouts": header})
    assert message(path) == (
        f"{path}, row 1: column 'state' is declared as JSON text in the header, but is not "
        "(Expecting ',' delimiter: line 1 column 3 (char 2)); write the file again"
    )


def test_parquet_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.parquet"
    write_rollouts(path, [ROW])
    path.write_bytes(path.read_bytes()[:-20])
    text = message(path)
    assert text.startswith(f"{path}: the Parquet file is cut off or corrupt (")
    assert text.endswith("); copy it again, or write it again")
    assert "\n" not in text


def test_parquet_with_corrupt_pages(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.parquet"
    write_rollouts(path, [ROW | {"step": i, "action": f"action {i}"} for i in range(2000)])
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)
    path.write_bytes(content)
    text = message(path)
    assert text.startswith(f"{path}: the Parquet file is cut off or corrupt (")
    assert text.endswith("); copy it again, or write it again")


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rollouts.parquet"
    write_rollouts(path, [ROW])
    real = builtins.__import__

    def without_pyarrow(name: str, *rest: Any, **options: Any) -> Any:
        if name.split(".")[0] == "pyarrow":
            raise ImportError(name)
        return real(name, *rest, **options)

    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    expected = "Parquet files need pyarrow; install it with `pip install 'groupwise[parquet]'`"
    assert message(path) == expected
    before = sorted(tmp_path.iterdir())
    with pytest.raises(FileError) as caught:
        write_rollouts(tmp_path / "other.parquet", [ROW])
    assert str(caught.value) == expected
    assert sorted(tmp_path.iterdir()) == before
