"""ALFWorld over seeds: what is pooled and what refused, numbers by hand, and the committed result made anew."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.alfworld.evaluating import at_temperature, summarise_rows
from benchmarks.alfworld.plot import COLOURS, SPOKEN
from benchmarks.alfworld.pooled import SEEDS, main, pool, report
from benchmarks.alfworld.pooled_plot import draw_seeds
from benchmarks.alfworld.seed_records import read_seed_records
from benchmarks.alfworld.settings import (
    CREDIT,
    METHODS,
    TEMPERATURES,
    TWO_CORES,
    VARIANTS,
    Measurement,
    Sizes,
    choose_key,
    list_own_parts,
    settings_hash,
)
from benchmarks.alfworld.start import SCRATCH_START, digest_start
from groupwise.system.errors import ConfigError

ROOT = Path(__file__).parents[2]
SCRATCH_SEEDS = SEEDS.with_name("alfworld_scratch_seeds")
"""Records of the model made from scratch."""
SHARED = {
    **dict.fromkeys(("model", "key", "rollout", "training", "loss"), "the same"),
    **dict.fromkeys(("device", "python", "torch", "transformers"), "the same"),
    "sizes": {"mark": 100, "compare_at": 200},
    "engine": {"memory": 0.1},
    "temperature": 0.4,
}
GRPO, GIGPO = (0.1, 0.2, 0.3, 0.4, 0.9), (0.3, 0.3, 0.3, 0.3, 0.3)
"""Success of the two methods at the last mark, by seed."""


def _task_sets(seen: float, unseen: float | None = None) -> dict[str, Any]:
    """140 games of valid_seen and 60 of valid_unseen, which are equally hard unless said otherwise."""
    unseen = seen if unseen is None else unseen
    return {"valid_seen": {"success": seen, "tasks": 140}, "valid_unseen": {"success": unseen, "tasks": 60}}


def _mark(mark: int, total_steps: int, success: Mapping[str, Any]) -> dict[str, Any]:
    return {"mark": mark, "update": total_steps // 10, "total_steps": total_steps, "success": success}


def _record(seed: int, at_end: Mapping[str, float], *, settings: str = "aa", **changes: Any) -> dict[str, Any]:
    """A record whose methods were evaluated once past the last mark."""
    methods = {
        method: {"seconds": {"train": 1800.0, "evaluate": 1800.0}, "by_mark": [_mark(2, 210, _task_sets(success))]}
        for method, success in at_end.items()
    }
    start = {"imitated": {"losses": [0.5 + seed]}, "seconds": {"imitate": 360.0}}
    info = {"seed": seed, "commit": f"c{seed}", "command": f"run {seed}", "hours": 1.1}
    info["settings"] = dict.fromkeys(at_end, settings)
    return {**SHARED, **info, "start": start, "success": {"warm_start": _task_sets(0.1)}, "methods": methods, **changes}


def _five() -> dict[str, dict[str, Any]]:
    pairs = enumerate(zip(GRPO, GIGPO, strict=True))
    return {f"seeds/{seed}.json": _record(seed, {"grpo": grpo, "gigpo": gigpo}) for seed, (grpo, gigpo) in pairs}


def _refusal(records: Sequence[Mapping[str, Any]]) -> str:
    with pytest.raises(ConfigError) as raised:
        pool({f"seeds/{number}.json": record for number, record in enumerate(records)}, command="")
    return str(raised.value)


def test_five_seeds_give_the_numbers_that_one_finds_by_hand() -> None:
    pooled = pool(_five(), command="pool")
    (mark,) = pooled["marks"]
    assert mark["steps"] == 200
    grpo = mark["methods"]["grpo"]
    assert (grpo["seeds"], grpo["total_steps"]) == ([0, 1, 2, 3, 4], [210] * 5)
    seen = grpo["valid_seen"]
    assert (seen["value"], seen["by_seed"]) == (0.3, list(GRPO))  # 0.1 and 0.9 are left out
    assert seen["interval"][0] == pytest.approx(0.13, abs=0.04)
    assert seen["interval"][1] == pytest.approx(0.73, abs=0.1)
    (pair,) = mark["comparisons"]
    assert (pair["first"], pair["second"], pair["seeds"]) == ("gigpo", "grpo", [0, 1, 2, 3, 4])
    # 0.3 is above two of GRPO's five, level with one, below two.
    assert pair["valid_seen"]["improvement"]["value"] == 0.5
    difference = pair["valid_seen"]["difference"]
    assert difference["by_seed"] == [0.2, 0.1, 0.0, -0.1, -0.6]
    assert difference["value"] == -0.08
    # Squares about the mean add up to 0.388; Student's quantile with four degrees of freedom is 2.776.
    half = 2.776 * (0.388 / 4) ** 0.5 / 5**0.5
    assert difference["interval"] == pytest.approx([-0.08 - half, -0.08 + half], rel=0.01)


def test_both_task_sets_count_by_their_games() -> None:
    record = _record(0, {"grpo": 0.0})
    record["methods"]["grpo"]["by_mark"] = [_mark(2, 210, _task_sets(0.5, 1.0))]
    assert pool({"a": record}, command="")["marks"][0]["methods"]["grpo"]["both"]["value"] == 0.65  # 70 + 60 of 200


def test_success_after_imitation_and_where_everything_comes_from_stand_beside() -> None:
    pooled = pool(_five(), command="pool")
    assert pooled["after_imitation"]["both"]["by_seed"] == [0.1] * 5
    assert pooled["seeds"] == [0, 1, 2, 3, 4]
    assert pooled["engine"] == {"memory": 0.1}
    assert [(made["commit"], made["command"]) for made in pooled["records"]] == [
        (f"c{n}", f"run {n}") for n in range(5)
    ]
    assert pooled["curves"]["grpo"]["4"] == [
        {"total_steps": 0, "valid_seen": 0.1, "valid_unseen": 0.1, "both": 0.1},
        {"total_steps": 210, "valid_seen": 0.9, "valid_unseen": 0.9, "both": 0.9},
    ]
    assert pooled["hours"] == 5.5  # methods beside each other: the longest of each seed, and its start


def test_temperature_1_is_pooled_where_all_methods_of_a_seed_came_to_the_last_mark() -> None:
    records = _five()
    for seed, record in enumerate(records.values()):
        record["success_at_1"] = {"grpo": _task_sets(0.1 * seed), "gigpo": _task_sets(0.5)}
        for method in record["methods"].values():
            method["total_steps"] = 210
    sampled = pool(records, command="")["sampled"]
    assert sampled["temperature"] == 1.0
    assert sampled["methods"]["grpo"]["both"]["by_seed"] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert sampled["comparisons"][0]["both"]["difference"]["value"] == pytest.approx(0.3)
    records["seeds/1.json"]["methods"]["gigpo"]["total_steps"] = 199
    del records["seeds/2.json"]["success_at_1"]["grpo"]
    assert pool(records, command="")["sampled"]["methods"]["gigpo"]["seeds"] == [0, 3, 4]
    assert pool(_five(), command="")["sampled"] == {"temperature": 1.0, "methods": {}, "comparisons": []}


def test_a_start_that_all_seeds_go_on_from_counts_once() -> None:
    records = _five()
    for record in records.values():
        record["start"]["seed"] = 0
    assert pool(records, command="")["hours"] == 5.1  # five times an hour of methods, and a tenth for the start


def test_with_three_seeds_there_are_means_and_no_intervals() -> None:
    records = dict(list(_five().items())[:3])
    (mark,) = pool(records, command="")["marks"]
    assert mark["methods"]["grpo"]["both"] == {"value": 0.2, "interval": None, "by_seed": [0.1, 0.2, 0.3]}
    task_set = mark["comparisons"][0]["both"]
    assert (task_set["difference"]["interval"], task_set["improvement"]["interval"]) == (None, None)


def test_a_seed_counts_at_a_mark_where_all_its_methods_were_evaluated() -> None:
    records = _five()
    for seed, record in enumerate(records.values()):
        for method in ("grpo", "gigpo"):
            if (seed, method) != (1, "gigpo"):
                record["methods"][method]["by_mark"].insert(0, _mark(1, 120, _task_sets(0.15)))
    first, last = pool(records, command="")["marks"]
    assert [(mark["steps"], mark["methods"]["grpo"]["seeds"]) for mark in (first, last)] == [
        (100, [0, 2, 3, 4]),
        (200, [0, 1, 2, 3, 4]),
    ]
    assert first["methods"]["gigpo"]["seeds"] == [0, 2, 3, 4]


def test_the_first_update_past_a_mark_counts() -> None:
    record = _record(0, {"grpo": 0.0})
    record["methods"]["grpo"]["by_mark"] = [_mark(1, 110, _task_sets(0.2)), _mark(1, 190, _task_sets(0.6))]
    (mark,) = pool({"a": record}, command="")["marks"]
    assert mark["methods"]["grpo"]["valid_seen"]["value"] == 0.2


def test_methods_of_their_own_settings_are_compared_over_common_seeds() -> None:
    records = _five()
    for seed in (3, 4):
        records[f"seeds/more_{seed}.json"] = _record(seed, {"hgae": 0.5}, settings="bb")
    pooled = pool(records, command="")
    (mark,) = pooled["marks"]
    assert mark["methods"]["hgae"]["seeds"] == [3, 4]
    pairs = {(pair["first"], pair["second"]): pair for pair in mark["comparisons"]}
    assert pairs["hgae", "grpo"]["seeds"] == [3, 4]
    assert pairs["hgae", "grpo"]["both"]["difference"]["by_seed"] == [0.1, -0.4]
    assert pairs["gigpo", "grpo"]["seeds"] == [0, 1, 2, 3, 4]
    assert pooled["hours"] == 7.5  # the starts of seeds 3 and 4 count once


def test_a_method_is_pooled_with_itself_whichever_others_its_records_hold() -> None:
    records = {"a": _record(0, {"grpo": 0.5, "hgpo": 0.5}), "b": _record(1, {"grpo": 0.5, "gigpo": 0.5})}
    (mark,) = pool(records, command="")["marks"]
    assert mark["methods"]["grpo"]["seeds"] == [0, 1]


@pytest.mark.parametrize(
    ("seed", "changes", "sentence"),
    [
        (1, {"settings": "bb"}, "grpo has other settings there (bb) than in seeds/0.json (aa); pool it by itself"),
        (1, {"model": "x"}, "its 'model' differs from that of seeds/0.json; pool it by itself"),
        (1, {"sizes": {}}, "its 'sizes' differs from that of seeds/0.json; pool it by itself"),
        (0, {}, "seed 0 of grpo is in seeds/0.json too; a seed counts once, leave one out"),
    ],
)
def test_what_does_not_fit_is_refused_and_named(seed: int, changes: Mapping[str, Any], sentence: str) -> None:
    other = _record(seed, {"grpo": 0.5}, **changes)
    assert _refusal([_record(0, {"grpo": 0.5}), other]) == f"seeds/1.json: {sentence}"


def test_methods_of_a_seed_go_on_from_one_start() -> None:
    other = _record(0, {"hgae": 0.5}, settings="bb", success={"warm_start": _task_sets(0.2)})
    assert _refusal([_record(0, {"grpo": 0.5}), other]) == (
        "seeds/1.json: seed 0 has another start there than in seeds/0.json; "
        "methods are compared from one start, pool it by itself"
    )


def test_records_that_are_not_there_or_not_told_apart_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such record"):
        read_seed_records([tmp_path / "none.json"])
    with pytest.raises(ConfigError, match="no record lies there"):
        read_seed_records([tmp_path])
    folders = [tmp_path / name / "out" for name in ("a", "b")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "alfworld.json").write_text(json.dumps(_record(0, {"grpo": 0.5})))
    with pytest.raises(ConfigError, match="two records have this name"):
        read_seed_records(folders)


def test_an_early_record_that_does_not_say_its_settings_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="it has no 'settings', and what it was made with must be known; leave it out"
    ):
        read_seed_records([ROOT / "benchmarks" / "results" / "alfworld.json"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"seed": ', "it is not JSON (Expecting value: line 1 column 10 (char 9)); leave it out, or make it anew"),
        ("[]", "found list, and a record is an object; leave it out"),
        (
            json.dumps(_record(0, {"grpo": 0.5}, success={"grpo": _task_sets(0.5)})),
            "it has no 'success.warm_start', and methods are compared from one start; leave it out",
        ),
        (
            json.dumps(_record(0, {"grpo": 0.5}, start={})),
            "it has no 'start.imitated', and methods are compared from one start; leave it out",
        ),
    ],
)
def test_a_record_that_is_not_whole_is_refused_and_named(content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "seed.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        read_seed_records([file])
    assert str(raised.value) == f"{file}: {said}"


def test_every_method_that_has_settings_has_a_name_and_a_colour() -> None:
    tables = importlib.import_module("alfworld_tables")
    methods = {*METHODS, *CREDIT, *VARIANTS}
    assert methods >= {"grpo", "gigpo", "hgpo", "gagpo", "hgae", "shrunk_hgae"}
    assert methods <= tables.NAMES.keys() <= SPOKEN.keys() & COLOURS.keys()
    records = {f"{number}.json": _record(0, {method: 0.5}) for number, method in enumerate(sorted(methods))}
    assert "shrunk HGAE (1 seeds)" in draw_seeds(pool(records, command=""))


def test_a_method_without_a_name_of_its_own_is_drawn_too() -> None:
    assert "salt (1 seeds)" in draw_seeds(pool({"0.json": _record(0, {"salt": 0.5})}, command=""))


def test_success_while_training_is_that_of_the_second_half_beside_grpo_at_the_same_seed() -> None:
    curve = [{"total_steps": steps, "success": success} for steps, success in ((90, 0.9), (110, 0.2), (190, 0.4))]
    records = {f"{seed}.json": _record(seed, {"grpo": 0.5, "hgpo": 0.5}) for seed in range(4)}
    for record in records.values():
        record["methods"]["grpo"]["curve"] = [*curve, {"total_steps": 210, "success": 0.9}]
        record["methods"]["hgpo"]["curve"] = curve[:2]
    training = pool(records, command="")["training"]
    assert training["grpo"]["by_seed"] == [0.3] * 4
    assert training["hgpo"]["over_grpo"]["difference"] == {
        "value": -0.1,
        "interval": [-0.1, -0.1],
        "by_seed": [-0.1] * 4,
    }


def test_variants_come_last_and_have_a_table_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = importlib.import_module("alfworld_tables")
    shares = {"hgpo_depth_1": 0.6, "salt": 0.1, "hgpo": 0.5, "grpo": 0.3}
    records = {f"{seed}.json": _record(seed, shares) for seed in range(4)}
    for record in records.values():
        record["success_at_1"] = {
            method: _task_sets(share / 2) for method, share in {**shares, "warm_start": 0.1}.items()
        }
        for method in record["methods"].values():
            method["total_steps"] = 210
    pooled = pool(records, command="")
    assert list(pooled["curves"]) == ["grpo", "hgpo", "salt", "hgpo_depth_1"]
    assert pooled["variants"] == {"hgpo_depth_1": "hgpo"}
    assert "depth 1" not in draw_seeds(pooled)
    monkeypatch.setattr(tables, "result", lambda name: pooled)
    monkeypatch.setitem(tables.NAMES, "salt", "SALT")
    assert "depth 1" not in tables.scratch_over_seeds() + tables.scratch_comparisons()
    first, second = tables.scratch_variants().splitlines()[2:]
    assert first == (
        "| HGPO, depth 1 | 0.4 | 60.0 % (60.0 to 60.0) | HGPO | +10.0 (+10.0 to +10.0) | +10.0, +10.0, +10.0, +10.0 "
        "| +30.0 (+30.0 to +30.0) |"
    )
    assert second.startswith("| HGPO, depth 1 | 1.0 | 30.0 % (30.0 to 30.0) | HGPO | +5.0 (+5.0 to +5.0) |")


def test_the_tables_of_three_methods_leave_out_records_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = importlib.import_module("alfworld_tables")
    expected = tables.alfworld_seeds(), tables.alfworld_types()
    folder = tmp_path / "alfworld_seeds"
    shutil.copytree(SEEDS, folder)
    (folder / "observation_seed_9.json").write_text(json.dumps(_record(9, {"shrunk_hgae": 0.5})), encoding="utf-8")
    originals = tables.RESULTS
    monkeypatch.setattr(tables, "RESULTS", tmp_path)

    def read(name: str) -> Any:
        place = tmp_path if name.startswith("alfworld_seeds/") else originals
        return json.loads((place / f"{name}.json").read_text(encoding="utf-8"))

    monkeypatch.setattr(tables, "result", read)
    assert (tables.alfworld_seeds(), tables.alfworld_types()) == expected


def test_the_shares_of_levels_are_means_over_seeds() -> None:
    records = _five()
    assert "levels" not in pool(records, command="")
    for seed, record in enumerate(records.values()):
        record["methods"]["gigpo"]["levels"] = [{"depth": 0, "compared": 0.1 * seed, "unequal": 0.05 * seed}]
    pooled = pool(records, command="")
    assert pooled["levels"] == {"gigpo": [{"depth": 0, "compared": 0.2, "unequal": 0.1}]}
    assert "gigpo: % of steps compared (with unequal returns) at depth 0: 20.0 (10.0)" in report(pooled)


def test_the_order_of_the_files_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / f"{seed}.json" for seed in range(5)]
    for file, record in zip(files, _five().values(), strict=True):
        file.write_text(json.dumps(record))
    for name, order in (("forth", files), ("back", files[::-1])):
        main([*map(str, order), "--write", str(tmp_path / "out" / name)])
    forth, back = (json.loads((tmp_path / "out" / name).read_text()) for name in ("forth", "back"))
    assert forth | {"command": ""} == back | {"command": ""}
    assert "gigpo over grpo: -8.0 %" in capsys.readouterr().out


def test_the_picture_has_a_thin_line_a_seed_and_a_bar_an_interval() -> None:
    pooled = pool(_five(), command="")
    drawn = ElementTree.fromstring(draw_seeds(pooled))
    lines = [element.attrib for element in drawn.iter() if element.tag.endswith("polyline")]
    assert [line["stroke-width"] for line in lines].count("0.8") == 2 * 2 * 5  # task sets, methods, seeds
    assert [line["stroke-width"] for line in lines].count("2.2") == 2 * 2
    assert sum(element.tag.endswith("circle") for element in drawn.iter()) == 2 * 2
    few = dict(list(_five().items())[:2])
    alone = draw_seeds(pool(few, command=""))
    assert "circle" not in alone
    assert "environment steps; a line a seed<" in alone


def test_intervals_over_few_runs_hold_the_truth_less_often_than_they_say() -> None:
    """The words of benchmarks/pages/results.md rest on it."""
    three, five, ten = pool(_five(), command="")["coverage"].values()
    assert 0.7 < three < 0.8 < five < 0.92 < ten < 0.96


def test_a_report_names_seeds_and_intervals() -> None:
    lines = report(pool(_five(), command="")).splitlines()
    assert lines[0] == "all games of both task sets, 5 seeds, 5.50 hours of one device"
    assert " ".join(lines[1].split()) == "after imitation 10.0 % (10.0 to 10.0) seeds [0, 1, 2, 3, 4]"


def test_the_tables_of_the_page_give_intervals_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = importlib.import_module("alfworld_tables")
    records = {**_five(), "seeds/more.json": _record(4, {"shrunk_hgae": 0.5}, settings="bb")}
    monkeypatch.setattr(tables, "result", lambda name: pool(records, command=""))
    over_seeds, comparisons = tables.alfworld_over_seeds(), tables.alfworld_comparisons()
    assert "| 0 | after imitation | 10.0 % (10.0 to 10.0) | 10.0 % (10.0 to 10.0) | 10.0 %" in over_seeds
    assert "| 200 | shrunk HGAE | 50.0 % | 50.0 % | 50.0 % | 4 |" in over_seeds
    # By hand -46.7 to +30.7; our quantile of Student's distribution is right to 1 %.
    assert "| GiGPO over GRPO | both | -8.0 (-46.6 to +30.6) | +20.0, +10.0, +0.0, -10.0, -60.0 | 0.50 (" in comparisons
    assert "| shrunk HGAE over GRPO | both | -40.0 | -40.0 |  |" in comparisons
    assert [comparisons.count(f"| GiGPO over GRPO | {task_set} |") for task_set in ("valid_seen", "both")] == [1, 1]
    assert "| shrunk HGAE over GRPO | valid_seen |" not in comparisons


def test_the_tables_of_one_start_name_it_once_and_hold_both_temperatures(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = importlib.import_module("alfworld_tables")
    records = _five()
    for record in records.values():
        record["success_at_1"] = {"warm_start": _task_sets(0.15), "grpo": _task_sets(0.2), "gigpo": _task_sets(0.6)}
        for method in record["methods"].values():
            method["total_steps"] = 210
    monkeypatch.setattr(tables, "result", lambda name: pool(records, command=""))
    over_seeds, comparisons = tables.scratch_over_seeds(), tables.scratch_comparisons()
    assert "| 0 | after imitation, one start for all | 10.0 % | 10.0 % | 10.0 % |  |" in over_seeds
    assert "| 0, temperature 1 | after imitation, one start for all | 15.0 % | 15.0 % | 15.0 % |  |" in over_seeds
    assert "| 200, temperature 1 | GiGPO | 60.0 % (60.0 to 60.0) |" in over_seeds
    assert "| 0.4 | GiGPO over GRPO | valid_unseen | -8.0 (-46.6 to +30.6) |" in comparisons
    assert "| 1.0 | GiGPO over GRPO | both | +40.0 (+40.0 to +40.0) |" in comparisons
    assert comparisons.count("| 1.0 |") == 1


@pytest.mark.parametrize("file", sorted(SEEDS.glob("*.json")), ids=lambda file: file.stem)
def test_the_hash_of_a_committed_seed_is_that_of_its_settings(file: Path) -> None:
    record = json.loads(file.read_text())
    measurement = Measurement(Sizes(**record["sizes"]), seed=record["seed"], key=record["key"])
    assert {method: settings_hash(measurement, method=method, on_gpu=True) for method in record["methods"]} == record[
        "settings"
    ]


@pytest.mark.parametrize("file", sorted(SCRATCH_SEEDS.glob("*.json")), ids=lambda file: file.stem)
def test_the_hash_of_a_seed_from_scratch_holds_the_committed_start(file: Path) -> None:
    record, start = json.loads(file.read_text()), json.loads((SCRATCH_START / "start.json").read_text())
    sizes = Sizes(**record["sizes"])
    assert sizes == TWO_CORES
    measurement = Measurement(sizes, seed=record["seed"], is_from_scratch=True, start=digest_start(SCRATCH_START))
    for method, described in record["methods"].items():
        assert settings_hash(measurement, method=method, on_gpu=False) == record["settings"][method]
        assert (described["key"], described["own_parts"]) == (
            choose_key(measurement, method=method),
            list_own_parts(measurement, method=method),
        )
    assert record["start"]["imitated"] == start["imitated"]
    usual, sampled = (summarise_rows(at_temperature(start["warm_start"], temperature)) for temperature in TEMPERATURES)
    assert (record["success"]["warm_start"], record["success_at_1"]["warm_start"]) == (usual, sampled)


def test_five_seeds_from_scratch_have_all_three_methods() -> None:
    records = [json.loads(file.read_text()) for file in SCRATCH_SEEDS.glob("observation_seed_*.json")]
    assert len({record["seed"] for record in records}) == len(records) >= 5
    assert all(list(record["methods"]) == list(METHODS) for record in records)


@pytest.mark.parametrize(("name", "records"), [("alfworld_pooled", []), ("alfworld_scratch_pooled", [SCRATCH_SEEDS])])
def test_the_committed_result_is_what_the_command_makes(
    name: str, records: Sequence[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    main([*(str(path.relative_to(ROOT)) for path in records), "--write", str(tmp_path / "pooled.json")])
    written = ROOT / "benchmarks" / "results" / f"{name}.json"
    assert (tmp_path / "pooled.json").read_bytes() == written.read_bytes()
