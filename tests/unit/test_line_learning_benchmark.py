"""The benchmark of learning with credit inside answers: equal tokens, chosen rates, and runs that go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks.line_learning import __main__ as script
from benchmarks.line_learning.runs import RUN_FILE, go_on, make_start, read_record
from benchmarks.line_learning.slipping_teacher import TEACHER, SlippingSums
from benchmarks.line_learning.summary import choose_rate, compare_variants, report, share_above, summarise
from benchmarks.line_learning.variants import LOSS, VARIANTS
from groupwise.envs.small.worked_sums import check_answer
from groupwise.training.config.run_file import decode_run, load_run

SMALL = [
    "model.hidden=16",
    "model.layers=1",
    "warm_start.tasks=20",
    "warm_start.epochs=1",
    "rollout.group_size=2",
    "training.tasks=2",
    "evaluation.tasks=2",
]


def make_record(variant: str, seed: int, curve: dict[int, float], *, tokens_an_episode: int = 10) -> dict[str, Any]:
    rows = [
        {"update": n, "episodes": tokens // tokens_an_episode, "tokens": tokens, "probe_tokens": 0, "success": success}
        for n, (tokens, success) in enumerate(curve.items())
    ]
    return {
        "variant": variant,
        "seed": seed,
        "learning_rate": 1e-3,
        "core_seconds": 1.0,
        **rows[-1],
        "evaluations": rows,
    }


def test_variants_are_compared_where_all_have_sampled_the_same() -> None:
    records = [
        make_record("grpo", 0, {0: 0.0, 100: 0.5, 200: 1.0}),
        make_record("other", 0, {0: 0.0, 100: 0.8}, tokens_an_episode=50),
    ]
    by_tokens = compare_variants(records, ["grpo", "other"], "tokens")
    assert by_tokens["common"] == 100
    assert [by_tokens["variants"][variant]["at_end"]["iqm"] for variant in ("grpo", "other")] == [0.5, 0.8]
    assert [by_tokens["variants"][variant]["over_curve"]["iqm"] for variant in ("grpo", "other")] == [0.25, 0.4]
    assert by_tokens["variants"]["other"]["at_end"]["more_than_baseline"]["iqm"] == pytest.approx(0.3)
    by_episodes = compare_variants(records, ["grpo", "other"], "episodes")
    assert by_episodes["common"] == 2
    assert [by_episodes["variants"][variant]["at_end"]["iqm"] for variant in ("grpo", "other")] == [0.1, 0.8]


def test_only_seeds_that_every_variant_has_are_summed_up() -> None:
    whole = [make_record(variant, 0, {0: 0.1, 100: 0.5}) for variant in ("grpo", "other")]
    summary = summarise([*whole, make_record("grpo", 1, {0: 0.9, 10: 0.9})], ["grpo", "other"])
    assert summary["seeds"] == [0]
    assert summary["by_tokens"]["common"] == 100
    assert "2 seeds" not in report(summary)
    assert summarise([whole[0]], ["grpo", "other"]) == {"seeds": []}


def test_the_probability_of_improvement_counts_pairs() -> None:
    assert share_above([1.0, 2.0], [0.0, 1.5]) == 0.75
    assert share_above([1.0], [1.0]) == 0.5


def test_the_rate_that_did_best_on_the_way_is_chosen_and_not_the_one_that_went_furthest() -> None:
    slow = make_record("grpo", 100, {0: 0.0, 100: 0.4, 200: 1.0}) | {"learning_rate": 1e-4}
    fast = make_record("grpo", 100, {0: 0.0, 100: 0.6})
    assert choose_rate([slow, fast]) == {
        "chosen": 1e-3,
        "tokens": 100,
        "success_over_curve": {"0.0001": 0.2, "0.001": 0.3},
    }


def test_every_variant_is_the_method_with_one_loss() -> None:
    for settings in VARIANTS.values():
        content = load_run(RUN_FILE).config()
        algorithm = decode_run({**content, "algorithm": {**settings, "loss": dict(LOSS)}}).algorithm
        assert type(algorithm.loss).__name__ == "PolicyLoss"
        assert algorithm.loss.config()["aggregate"]["kind"] == "token_mean"
        assert algorithm.loss.config()["ratio"]["kind"] == "token_ratio"


def test_the_teacher_slips_as_often_as_its_policy_and_elsewhere_with_another_seed() -> None:
    part = SlippingSums(num_terms=5, largest_term=5)
    tasks = part.task_set("train")[:400]
    answers = [part.open(task).expert() or "" for task in tasks]
    checked = [check_answer(said, task.payload["terms"]) for said, task in zip(answers, tasks, strict=True)]
    share = sum(said.total == sum(task.payload["terms"]) for said, task in zip(checked, tasks, strict=True)) / len(
        tasks
    )
    expected = sum(TEACHER.chance_of_right(task.payload["terms"], ()) for task in tasks) / len(tasks)
    assert share == pytest.approx(expected, abs=0.1)
    assert answers == [part.open(task).expert() for task in tasks]
    elsewhere = SlippingSums(num_terms=5, largest_term=5, teacher_seed=1)
    assert answers != [elsewhere.open(task).expert() for task in tasks]


def make_job(folder: Path, variant: str, **changes: Any) -> dict[str, Any]:
    job = {
        "variant": variant,
        "seed": 0,
        "name": f"{variant}-0",
        "learning_rate": 1e-3,
        "folder": str(folder),
        "changes": SMALL,
    }
    limits = {"tokens": 400, "tokens_between": 100, "episodes_between": 4, "episodes_watched": 8}
    return {**job, **limits, "ends_at": 1e12, "waves_left": 1, **changes}


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    records = []
    for folder, stops in ((tmp_path / "whole", [400]), (tmp_path / "cut", [150, 400])):
        make_start(make_job(folder, "grpo"))
        for tokens in stops:
            go_on(make_job(folder, "grpo", tokens=tokens))
        records.append(read_record(make_job(folder, "grpo")))
    whole, cut = ([_without_seconds(row) for row in (record or {})["evaluations"]] for record in records)
    assert whole == cut
    assert whole[-1]["tokens"] >= 400
    assert whole[-1]["probe_tokens"] == 0
    go_on(make_job(tmp_path / "cut", "grpo", ends_at=0.0, tokens=10**9))  # no time: nothing is added
    assert read_record(make_job(tmp_path / "cut", "grpo")) == records[1]
    make_start(make_job(tmp_path / "cut", "spo_chain"))  # the start stays
    go_on(make_job(tmp_path / "cut", "spo_chain", tokens=200))
    probed = read_record(make_job(tmp_path / "cut", "spo_chain"))
    assert probed is not None
    assert probed["evaluations"][0]["success"] == whole[0]["success"]
    assert 0 < probed["probe_tokens"] < probed["tokens"]


def _without_seconds(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "core_seconds"}


def test_what_is_there_is_summed_up_and_other_settings_are_refused(tmp_path: Path) -> None:
    folder, result = tmp_path / "runs", tmp_path / "result.json"
    given = ["--folder", str(folder), "--minutes", "0", "--seeds", "1", "--write", str(result), "--commit", "c0ffee"]
    (folder / "records").mkdir(parents=True)
    for variant in VARIANTS:
        record = make_record(variant, 0, {0: 0.2, 100: 0.4})
        (folder / "records" / f"{variant}-0.json").write_text(json.dumps(record))
    script.main(given)
    written = json.loads(result.read_text())
    assert (written["commit"], written["seeds"], len(written["runs"])) == ("c0ffee", [0], len(VARIANTS))
    with pytest.raises(SystemExit, match="has other settings than these runs would have"):
        script.main([*given, "--tokens", "5"])
