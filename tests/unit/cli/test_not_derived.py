"""What `explain` and `inspect --step` say of a number that nothing can derive a second time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from groupwise import Algorithm, Credit, Part, StepTable
from groupwise.data.credit import TokenCredit
from groupwise.data.segments import BoolArray, FloatArray
from groupwise.data.token_table import TokenTable
from tests.unit.cli.conftest import Run
from tests.unit.cli.files import row, write
from tests.unit.report.run_folders import write_run

AT_STEP = ("--rollout", "a", "--step", "0", "--method", "method.toml", "--trust")
REASON = "the advantage of Halved, whose trace BareTrace has no derive"
TOKEN_REASON = "the advantage of Doubled, whose trace str has no derive"
TAKEN = "not derived again, taken as computed: "


@dataclass(frozen=True, eq=False, kw_only=True)
class BareTrace:
    """A trace that cannot say how its numbers came about."""

    values: FloatArray
    compared: BoolArray
    part: object


class Halved(Part, slot="estimator"):
    """An estimator from elsewhere: half the reward."""

    def __call__(self, table: StepTable) -> Credit:
        compared = np.ones(len(table), dtype=np.bool_)
        return Credit.of(table, BareTrace(values=table.reward / 2, compared=compared, part=self))  # type: ignore[arg-type]


class Doubled(Part, slot="token_credit"):
    """Token credit from elsewhere: each token has twice its place."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        trains = np.ones(len(tokens), dtype=np.bool_)
        return TokenCredit(values=2.0 * tokens.position, trains=trains, trace="nothing")  # type: ignore[arg-type]


@pytest.fixture
def file(tmp_path: Path) -> str:
    rows = [row("t", "a", 0, "s", 1.0, response_ids=[5, 6, 7]), row("t", "b", 0, "s", 0.0, response_ids=[8])]
    return write(tmp_path / "rollouts.jsonl", rows).name


def write_method(folder: Path, advantage: str, token_credit: str = "") -> None:
    tokens = f"token_credit = {token_credit}\n" if token_credit else ""
    (folder / "method.toml").write_text(
        f'[algorithm]\nmethod = "dr_grpo"\nadvantage = {advantage}\n{tokens}', encoding="utf-8"
    )


def kind(part: type[Part]) -> str:
    return f'{{ kind = "{part.__module__}:{part.__qualname__}" }}'


def test_credit_without_a_derivation_is_not_said_to_agree(groupwise: Run, file: str, tmp_path: Path) -> None:
    write_method(tmp_path, kind(Halved))
    ran = groupwise("explain", file, *AT_STEP)
    assert ran.status == 0
    assert ran.out.splitlines()[-3:] == [
        "Halved: 0.5",
        "advantage +0.500000000; not derived again by hand",
        f"{TAKEN}{REASON}",
    ]


def test_the_same_as_json(groupwise: Run, file: str, tmp_path: Path) -> None:
    write_method(tmp_path, kind(Halved))
    data = json.loads(groupwise("explain", file, *AT_STEP, "--json").out)
    assert {name: data[name] for name in ("value", "by_hand", "largest_gap", "not_derived")} == {
        "value": 0.5,
        "by_hand": None,
        "largest_gap": None,
        "not_derived": REASON,
    }


def test_what_was_derived_in_part_is_said_to_be(groupwise: Run, file: str, tmp_path: Path) -> None:
    """A sum of two terms: half the reward, 0.5, which is taken as it is, and 1 - 0.5 by dr_grpo, which is derived."""
    relative = '{ kind = "relative", by = "by_task", of = "episode_return", scale = "no_scale" }'
    terms = f"{{ weight = 1.0, of = {kind(Halved)} }}, {{ weight = 2.0, of = {relative} }}"
    write_method(tmp_path, f'{{ kind = "sum", terms = [{terms}] }}')
    lines = groupwise("explain", file, *AT_STEP).out.splitlines()
    assert lines[-2:] == [
        "advantage +1.500000000; derived again by hand in part, it agrees (gap 0.0e+00)",
        f"{TAKEN}{REASON}",
    ]
    data = json.loads(groupwise("explain", file, *AT_STEP, "--json").out)
    assert [inner["by_hand"] for _, inner in data["inner"]] == [None, 0.5]
    assert (data["by_hand"], data["largest_gap"]) == (1.5, 0.0)


def test_a_channel_without_a_derivation_says_so(groupwise: Run, file: str, tmp_path: Path) -> None:
    (tmp_path / "method.toml").write_text(
        f'[algorithm]\nmethod = "dr_grpo"\n[algorithm.channels]\ntempo = {kind(Halved)}\n', encoding="utf-8"
    )
    lines = groupwise("explain", file, *AT_STEP).out.splitlines()
    assert lines[-4:] == [
        "advantage +0.500000000; derived again by hand from the members, it agrees (gap 0.0e+00)",
        "channel tempo: advantage +0.500000000",
        "Halved: 0.5",
        f"{TAKEN}{REASON}",
    ]


def test_a_token_without_a_derivation_says_so(groupwise: Run, file: str, tmp_path: Path) -> None:
    write_method(tmp_path, kind(Halved), kind(Doubled))
    lines = groupwise("explain", file, *AT_STEP, "--token", "1").out.splitlines()
    assert lines[-2:] == ["2; advantage of the token +2.000000000, not derived again by hand", f"{TAKEN}{TOKEN_REASON}"]
    token = json.loads(groupwise("explain", file, *AT_STEP, "--token", "1", "--json").out)["token"]
    assert (token["value"], token["by_hand"], token["not_derived"]) == (2.0, None, TOKEN_REASON)


def test_a_token_that_only_has_the_credit_of_its_step_is_not_derived_apart(
    groupwise: Run, file: str, tmp_path: Path
) -> None:
    write_method(tmp_path, kind(Halved))
    out = groupwise("explain", file, *AT_STEP, "--token", "1").out
    assert out.splitlines()[-1] == "0.5; advantage of the token +0.500000000, that of its step"


def test_whitened_token_credit_says_what_within_it_was_not_derived(groupwise: Run, file: str, tmp_path: Path) -> None:
    """Values 0, 2, 4 and 0: mean 1.5, sum of squares 11, deviation sqrt(11 / 3)."""
    write_method(tmp_path, kind(Halved), f'{{ kind = "whitened_tokens", of = {kind(Doubled)} }}')
    lines = groupwise("explain", file, *AT_STEP, "--token", "2").out.splitlines()
    assert lines[-2].startswith("(4 - 1.5) / 1.91485 = 1.30558; advantage of the token +1.305")
    assert lines[-1] == f"{TAKEN}{TOKEN_REASON}"


def test_a_step_of_a_run_says_so_beside_the_number_of_its_journal(groupwise: Run, tmp_path: Path) -> None:
    algorithm = Algorithm(advantage=Halved())  # type: ignore[arg-type]
    write_run(tmp_path / "run", updates=1, tasks=1, rollouts=2, algorithm=algorithm)
    lines = groupwise("explain", "run", "--rollout", "1", "--step", "0", "--trust").out.splitlines()
    assert lines[-3:-1] == ["advantage +0.000000000; not derived again by hand", f"{TAKEN}{REASON}"]
    assert lines[-1] == "the journal has +0.000000000: the same number"
    at_step = ("--update", "1", "--task", "household", "--rollout", "1", "--step", "0", "--trust")
    assert groupwise("inspect", "run", *at_step).out.splitlines()[-3:] == lines[-3:]
    data = json.loads(groupwise("inspect", "run", *at_step, "--json").out)
    assert (data["by_hand"], data["not_derived"], data["largest_gap"]) == (None, REASON, 0.0)
