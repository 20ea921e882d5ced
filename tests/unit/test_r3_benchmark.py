"""The benchmark of R^3 in its own regime: the search that is written out, what a limit cuts, and equal tokens."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.r3 import __main__ as script
from benchmarks.r3.measures import measure_answers
from benchmarks.r3.runs import RUN_FILE
from benchmarks.r3.summary import report, summarise
from benchmarks.r3.variants import BASELINE, LOSS, VARIANTS
from benchmarks.r3.written_search import WrittenSearch, read_last_line, write_search
from groupwise.envs.kit.words import split_words
from groupwise.training.config.run_file import decode_run, load_run


@given(numbers=st.lists(st.integers(1, 6), min_size=3, max_size=5), seed=st.integers(0, 99), pick=st.integers(0, 99))
def test_the_teacher_ends_at_its_first_right_line(numbers: list[int], seed: int, pick: int) -> None:
    targets = [
        numbers[0] + sum(sign * number for sign, number in zip(signs, numbers[1:], strict=True))
        for signs in product((1, -1), repeat=len(numbers) - 1)
        if all(numbers[0] + sum(s * n for s, n in zip(signs[:k], numbers[1:], strict=False)) >= 0 for k in range(9))
    ]
    target = targets[pick % len(targets)]
    text = write_search(numbers, target, insight=0.3, random=np.random.default_rng(seed))
    *lines, last = text.split(" ; ")
    assert last == "found"
    assert [line.split(" off ")[1] == "0" for line in lines] == [False] * (len(lines) - 1) + [True]
    assert all(len(split_words(f"{line} ;")) == 4 * len(numbers) for line in lines)
    signs = read_last_line(text, numbers)
    assert signs is not None
    assert numbers[0] + sum(sign * number for sign, number in zip(signs, numbers[1:], strict=True)) == target


@pytest.mark.parametrize(
    ("answer", "signs"),
    [
        ("4 + 7 = 11 - 2 = 9 off 0 ; found", (1, -1)),
        ("4 + 7 = 99 - 2 = 9 off 5 ; found", (1, -1)),
        ("4 + 7 = 11 - 2 = 9 off 0 ;", None),
        ("4 + 7 = 11 off 2 ; found", None),
        ("7 + 4 = 11 - 2 = 9 off 0 ; found", None),
        ("found", None),
        ("4 + 7 = 11 - 2 = 9 off 0 found", None),
    ],
)
def test_only_the_signs_of_the_last_line_count(answer: str, signs: tuple[int, ...] | None) -> None:
    assert read_last_line(answer, (4, 7, 2)) == signs


def test_the_questions_are_easy_and_hard_by_thirds() -> None:
    search = WrittenSearch()
    sizes = [len(task.payload["numbers"]) for task in search.task_set("train")[:512]]
    assert all(0.25 < sizes.count(size) / 512 < 0.42 for size in (3, 4, 5))
    task = search.task_set("test")[0]
    assert search.open(task).act(search.open(task).expert() or "").success


def answer(task: str, tokens: int, *, right: bool, cut: bool = False) -> Any:
    step = SimpleNamespace(response_ids=(1,) * tokens, cut=cut, entropy=(0.5,) * tokens)
    return SimpleNamespace(task=SimpleNamespace(id=task), steps=(step,), scores={"success": float(right)})


def test_a_limit_cuts_what_is_longer_and_that_counts_as_wrong() -> None:
    answers = [
        *(answer("a", tokens, right=True) for tokens in (10, 20, 21)),
        *(answer("b", tokens, right=False) for tokens in (30, 5)),
        *(answer("c", 20, right=False, cut=True) for _ in range(3)),
        *(answer("d", 4, right=True) for _ in range(2)),
    ]
    measured = measure_answers(answers, limit=20)
    assert measured["success"] == 0.4
    assert measured["cut_off"] == 0.5
    assert measured["cut_of_right"] == 0.2
    assert measured["cut_of_wrong"] == 0.8
    assert measured["cut_where_none"] == 0.8
    assert (measured["solve_none"], measured["solve_all"]) == (0.5, 0.25)
    assert measured["tokens_of_answer"] == pytest.approx(14.3)
    assert measure_answers(answers[-2:], limit=20)["cut_of_wrong"] is None


def make_record(variant: str, seed: int, curve: dict[int, float]) -> dict[str, Any]:
    rest = {"cut_off": 0.1, "solve_none": 0.2, "solve_all": 0.3, "tokens_of_answer": 9.0, "entropy": 0.4}
    rows = [
        {"tokens": tokens, "updates": tokens / 10, "seconds": 1.0, "success": success, **rest}
        | {"training": {"success": success / 2, **rest}}
        for tokens, success in curve.items()
    ]
    return {"variant": variant, "seed": seed, "rows": rows}


def test_variants_are_compared_at_equal_tokens_over_the_seeds_that_all_have() -> None:
    records = [
        make_record(BASELINE, 0, {0: 0.0, 100: 0.5, 200: 1.0}),
        make_record("replay", 0, {0: 0.0, 160: 0.8}),
        make_record(BASELINE, 1, {0: 0.0, 200: 1.0}),
        make_record("replay", 1, {0: 0.0, 100: 1.0}),
    ]
    summary = summarise(records, list(VARIANTS), 200)
    assert (summary["seeds"], summary["tokens"]) == ([0], 160)
    assert [summary["variants"][variant]["held_out"]["success"]["value"] for variant in (BASELINE, "replay")] == [
        0.8,
        0.8,
    ]
    assert summary["variants"]["replay"]["training"]["success"]["value"] == 0.4
    assert summary["variants"]["replay"]["held_out_against_grpo"]["improvement"]["value"] == 0.5
    assert "seeds: 1" in report(summary)
    assert report(summarise([], list(VARIANTS), 200)) == "no seed has been finished by every variant yet"


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_a_run_that_can_be_decoded(variant: str) -> None:
    content = load_run(RUN_FILE).config()
    content["algorithm"] = {**VARIANTS[variant]["algorithm"], "loss": dict(LOSS)}
    content["rollout"]["plan"] |= VARIANTS[variant].get("plan", {})
    algorithm = decode_run(content).algorithm
    assert (algorithm.replay is not None) == (variant.startswith("replay") or variant == "all three")
    assert bool(algorithm.shapers) == (variant.startswith("rank") or variant == "all three")
    assert (algorithm.hint is not None) == (variant in {"reflect", "all three"})


def test_whole_runs_of_an_earlier_result_count_and_other_settings_are_refused(tmp_path: Path) -> None:
    earlier, tokens = tmp_path / "earlier.json", ["--minutes", "0", "--tokens", "200", "--seeds", "2"]
    script.main([*tokens, "--folder", str(tmp_path / "first"), "--write", str(earlier)])
    content = json.loads(earlier.read_text())
    runs = [make_record(variant, 0, {0: 0.0, 200: 1.0}) for variant in VARIANTS] + [
        make_record(BASELINE, 1, {0: 0.0, 100: 1.0})
    ]
    earlier.write_text(json.dumps(content | {"runs": runs}))
    result = tmp_path / "result.json"
    script.main([*tokens, "--folder", str(tmp_path / "second"), "--add", str(earlier), "--write", str(result)])
    added = json.loads(result.read_text())
    assert (added["seeds"], list(added["variants"]), len(added["runs"])) == ([0], list(VARIANTS), len(VARIANTS))
    with pytest.raises(SystemExit, match="has other settings than these runs would have"):
        script.main([*tokens, "--set", "seed=1", "--folder", str(tmp_path / "third"), "--add", str(earlier)])


def test_the_start_has_the_words_of_the_task_and_of_the_hint() -> None:
    made_by = load_run(RUN_FILE.with_name("start.toml")).config()
    words = set(json.loads((RUN_FILE.with_name("start") / "tokenizer.json").read_text())["model"]["vocab"])
    assert set(WrittenSearch().vocabulary()) | set(decode_run(made_by).algorithm.hint.words()) <= words
