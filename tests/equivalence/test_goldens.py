"""Every example comes to what it came to when its golden was made: journal, weights, optimizer, to the bit.

An example is run small (`example_runs`), taken to digests part by part (`run_digests`) and held against its golden
(`golden_files`). goldens/README.md says how goldens are made and when they may be made anew.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.equivalence.example_runs import EXAMPLES, FILES, UPDATES, content_of, find_obstacle, name_of, play_example
from tests.equivalence.golden_files import (
    COMMAND,
    FOLDER,
    WITHOUT_GOLDEN,
    count_equally_sampled,
    describe_machine,
    describe_world,
    find_differences,
    find_far_norms,
    read_golden,
)
from tests.equivalence.run_digests import digest_run

PLAY = "import sys, pathlib, tests.equivalence.example_runs as r; r.play_example(*map(pathlib.Path, sys.argv[1:]))"
ROOT = EXAMPLES.parent
GRPO = EXAMPLES / "methods" / "grpo.toml"


QUICK = {
    *("household", "frozen_lake", "r3_household", "r3_countdown", "mixture", "webshop"),
    *("methods/grpo", "methods/gigpo", "methods/hgpo", "methods/hgae", "methods/r3", "methods/r3_hgpo", "methods/spae"),
    *("methods/dapo", "methods/dpo", "methods/disco", "methods/seeupo", "methods/gtpo", "methods/copo", "methods/d3s"),
}
"""Examples that `make test` holds against their goldens; `make test-more` does the others."""


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if name_of(path) in QUICK else pytest.mark.more, id=name_of(path)) for path in FILES],
)
def test_an_example_comes_to_its_golden(path: Path, tmp_path: Path) -> None:
    obstacle = find_obstacle(path)
    if obstacle:
        pytest.skip(obstacle)
    if name_of(path) in WITHOUT_GOLDEN:
        assert come_apart(path, tmp_path), (
            f"it has no golden ({WITHOUT_GOLDEN[name_of(path)]}), yet it repeats: make one"
        )
        return
    golden = read_golden(path)
    if describe_world(path) != golden["made"]["world"]:
        pytest.skip(f"its tasks are those of {golden['made']['world']}, here are {describe_world(path)}")
    play_example(path, tmp_path)
    now = digest_run(tmp_path)
    assert now["journal"]["versions"].keys() == {str(number + 1) for number in range(UPDATES)}
    assert not (far := find_far_norms(golden, now)), "\n".join(far)
    if describe_machine(path) != golden["made"]["machine"]:
        num = count_equally_sampled(golden, now)
        pytest.skip(f"norms agree up to update {num}; bits are not compared: made on {golden['made']['machine']}")
    assert not (differences := find_differences(golden, now)), "\n".join(differences)


def come_apart(path: Path, folder: Path) -> bool:
    """Whether two runs of an example, in processes of their own, end with other weights."""
    ends = []
    for number in ("1", "2"):
        subprocess.run([sys.executable, "-c", PLAY, str(path), str(folder / number)], cwd=ROOT, check=True)
        ends.append(digest_run(folder / number)["weights"])
    return ends[0] != ends[1]


def test_every_example_has_a_golden_or_a_reason_why_not() -> None:
    goldens = {path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.json")}
    assert not goldens & WITHOUT_GOLDEN.keys()
    assert goldens | WITHOUT_GOLDEN.keys() == {name_of(path) for path in FILES}, f"make goldens with {COMMAND}"


@pytest.mark.parametrize("path", [path for path in FILES if name_of(path) not in WITHOUT_GOLDEN], ids=name_of)
def test_a_golden_would_show_other_credit_or_other_learning(path: Path) -> None:
    """A run in which all rollouts do equally well has credit 0 under any method, and would show nothing."""
    golden = read_golden(path)
    sizes = golden["journal"]["metrics"]["advantage/size"]
    weights = [digests for name, digests in golden["weights"]["digests"].items() if "optimizer" not in name]
    assert any(size > 0 for size in sizes.values())
    assert any(len(set(digests.values())) == 1 + UPDATES for digests in weights)
    assert ("warm_start" in content_of(path)) <= any("warm_start" in each for each in golden["made"]["overrides"])


def spoil(golden: dict[str, Any], *path: str, value: object) -> dict[str, Any]:
    """A run that came to what a golden says, but for one entry."""
    run = copy.deepcopy(golden)
    below = run
    for name in path[:-1]:
        below = below[name]
    below[path[-1]] = value
    return run


def test_a_difference_is_told_with_its_place() -> None:
    golden = read_golden(GRPO)
    assert find_differences(golden, golden) == []
    column, tensor = golden["journal"]["steps"]["reward"]["2"], "model: model.norm.weight"
    assert find_differences(golden, spoil(golden, "journal", "steps", "reward", "2", value="0ther")) == [
        f"{golden['example']}: update 2, journal / steps / reward is '0ther', not {column!r}"
    ]
    assert find_differences(golden, spoil(golden, "journal", "steps", "reward", value=None)) == [
        f"{golden['example']}: update {number}, journal / steps / reward is None, not {wanted!r}"
        for number, wanted in golden["journal"]["steps"]["reward"].items()
    ]
    (difference,) = find_differences(golden, spoil(golden, "weights", "digests", tensor, "0001", value="0ther"))
    assert difference.startswith(f"{golden['example']}: checkpoint 1, weights / digests / {tensor} is '0ther'")
    (difference,) = find_differences(golden, spoil(golden, "journal", "faults", "rows", "1", value=1))
    assert difference == f"{golden['example']}: update 1, journal / faults / rows is 1, not 0"


def test_what_was_added_since_is_no_difference() -> None:
    golden = read_golden(GRPO)
    assert find_differences(golden, spoil(golden, "journal", "steps", "added_since", value={"1": "new"})) == []
    assert find_differences(golden, spoil(golden, "journal", "metrics", "credit/new", value={"1": 0.5})) == []


def test_norms_hold_on_every_machine() -> None:
    golden = read_golden(GRPO)
    place = ("weights", "norms", "model: model.norm.weight", "0002")
    norm = golden["weights"]["norms"]["model: model.norm.weight"]["0002"]
    assert find_far_norms(golden, spoil(golden, *place, value=norm * (1 + 1e-4))) == []
    (difference,) = find_far_norms(golden, spoil(golden, *place, value=norm * 2))
    assert difference.startswith(f"{golden['example']}: checkpoint 2, weights / norms / model: model.norm.weight is ")


def test_norms_are_compared_as_far_as_the_same_was_sampled() -> None:
    golden = read_golden(GRPO)
    assert count_equally_sampled(golden, golden) == UPDATES
    other = spoil(golden, "journal", "steps", "response_ids", "2", value="0ther")
    assert count_equally_sampled(golden, other) == 1
    norms = ("weights", "norms", "model: model.norm.weight")
    assert find_far_norms(golden, spoil(other, *norms, "0002", value=9.0)) == []
    assert len(find_far_norms(golden, spoil(other, *norms, "0001", value=9.0))) == 1
    assert len(find_far_norms(golden, spoil(other, *norms, "0000", value=9.0))) == 1


def test_goldens_say_how_they_were_made() -> None:
    for path in FOLDER.rglob("*.json"):
        made = json.loads(path.read_text(encoding="utf-8"))["made"]
        example = EXAMPLES / path.relative_to(FOLDER).with_suffix(".toml")
        assert made["command"].startswith(COMMAND)
        assert made["machine"].keys() == describe_machine(example).keys()
        assert "training.updates=2" in made["overrides"]
