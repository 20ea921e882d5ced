"""The parts of the ALFWorld measurement: a teacher that searches, comparison at equal steps, paired differences."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.alfworld.__main__ import main
from benchmarks.alfworld.evaluating import at_temperature, compare_pairs, describe_briefly, summarise_rows
from benchmarks.alfworld.games import pack_games, unpack_games
from benchmarks.alfworld.methods import common_updates, run_methods
from benchmarks.alfworld.plot import picture
from benchmarks.alfworld.records import method_record, read_record, write_record
from benchmarks.alfworld.recurrence import share_of_levels, table
from benchmarks.alfworld.settings import (
    CREDIT,
    FULL,
    METHODS,
    TWO_CORES,
    VARIANTS,
    Measurement,
    change_sizes,
    choose_key,
    list_own_parts,
    run_settings,
    settings_hash,
)
from benchmarks.alfworld.start import SCRATCH_START, adopt_start, check_start, digest_start, has_gpu, start_checkpoint
from benchmarks.alfworld.summary import count_hours, sentences, summarise
from benchmarks.alfworld.teacher import habits_of, search, teach, weigh_observations
from benchmarks.alfworld.unnumbered import Unnumbered, remove_numbers
from groupwise import methods
from groupwise.data.samples import Sample
from groupwise.envs import SPLITS, Alfworld
from groupwise.envs.alfworld.environment import find_games_folder, open_game
from groupwise.envs.alfworld.game import Game
from groupwise.system.errors import ConfigError
from groupwise.training.config.run_file import decode_run
from groupwise.training.open_run import open_run
from tests.unit.envs.alfworld_data import games

NUM_GAMES = 48
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Alfworld:
    return Alfworld(path=str(games(tmp_path_factory.mktemp("alfworld"))))


def _games(part: Alfworld) -> list[Game]:
    folder = find_games_folder(part.path)
    tasks = part.task_set("train")[:NUM_GAMES]
    return [open_game(folder, str(task.payload["game"]), str(task.payload["sha256"])) for task in tasks]


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_the_teacher_wins_every_game_though_it_searches_and_strays(part: Alfworld, noise: float) -> None:
    all_games = _games(part)
    habits, walked, longer = habits_of(all_games), 0, 0
    for task, game in zip(part.task_set("train"), all_games, strict=False):
        said = search(game, habits, Random(task.id), noise=noise, max_steps=50)
        environment = part.open(task)
        outcomes = [environment.act(one.command) for one in said]
        assert outcomes[-1].success, task.payload["game"]
        assert all(outcome.accepted for one, outcome in zip(said, outcomes, strict=True) if one.is_learnt)
        assert noise or all(one.is_learnt for one in said)
        walked += len(game.walkthrough)
        longer += len(said)
    assert longer > 1.1 * walked  # a walkthrough knows where to go


def test_a_teacher_that_has_no_step_left_stops_there(part: Alfworld) -> None:
    game = _games(part)[0]
    assert len(search(game, {}, Random(0), noise=0.0, max_steps=2)) == 2


def test_a_noisy_teacher_does_what_is_possible_and_is_imitated_in_it(part: Alfworld) -> None:
    all_games = _games(part)
    habits, lengths = habits_of(all_games), dict[float, int]()
    for expert_noise in (0.0, 0.4):
        lengths[expert_noise] = 0
        for task, game in zip(part.task_set("train"), all_games, strict=False):
            said = search(game, habits, Random(task.id), noise=0.0, max_steps=50, expert_noise=expert_noise)
            environment = part.open(task)
            assert all(step.is_learnt and environment.act(step.command).accepted for step in said)
            lengths[expert_noise] += len(said)
    assert lengths[0.4] > 1.2 * lengths[0.0]  # it loses its way, not its goal


def test_a_game_that_is_searched_again_is_searched_otherwise(part: Alfworld, tmp_path: Path) -> None:
    content = run_settings("tiny", part.path, Measurement(TWO_CORES), method="grpo", on_gpu=False)
    with open_run(decode_run(content), tmp_path / "run") as run:
        once, thrice = (teach(run, run.tasks[:6], noise=0.0, searches=searches) for searches in (1, 3))
    assert thrice[: len(once)] == once
    assert {sample.trajectory for sample in thrice} == set(range(18))
    assert [sample.response_ids for sample in thrice[len(once) :]] != 2 * [sample.response_ids for sample in once]


def test_in_the_published_frame_the_teacher_chooses_between_tags_from_a_list_after_two_steps(
    part: Alfworld, tmp_path: Path
) -> None:
    content = run_settings("tiny", part.path, Measurement(TWO_CORES, frame="published"), method="grpo", on_gpu=False)
    with open_run(decode_run(content), tmp_path / "run") as run:
        samples = teach(run, run.tasks[:1], noise=0.0)
        prompts, responses = (
            [run.prompter.text(ids) for ids in column]
            for column in zip(*((sample.prompt_ids, sample.response_ids) for sample in samples), strict=True)
        )
        rule = run.config.rollout.action_parser
    for prompt, response in zip(prompts, responses, strict=True):
        action = rule.read(response, stopped=True)
        listed = prompt.partition("possible actions :")[2].partition("think first")[0]
        assert action.well_formed
        assert action.text in listed
    assert prompts[0].count("seen :") == 0
    assert {prompt.count("seen :") for prompt in prompts[2:]} == {2}


def test_the_small_model_is_not_put_into_the_published_frame(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--model", "scratch", "--frame", "published"])
    assert capsys.readouterr().err.endswith(
        "error: --frame: `scratch` learns from whole dialogues; give a pretrained model, or leave --frame out\n"
    )


def test_the_teacher_opens_what_it_looks_into_and_leaves_when_it_has_seen_the_thing(part: Alfworld) -> None:
    task = next(task for task in part.task_set("train") if task.tags == ("pick_and_place_simple",))
    game = open_game(find_games_folder(part.path), str(task.payload["game"]), str(task.payload["sha256"]))
    for seed in range(20):
        environment = part.open(task)
        texts = [
            environment.act(one.command).observation.text
            for one in search(game, {}, Random(seed), noise=0.0, max_steps=50)
        ]
        closed = [number for number, text in enumerate(texts) if text.endswith("is closed.")]
        assert all(texts[number + 1].startswith("You open the") for number in closed)


def test_habits_are_shares_of_the_walkthroughs(part: Alfworld) -> None:
    habits = habits_of(_games(part))
    assert all(sum(shares.values()) == pytest.approx(1.0) for shares in habits.values())
    assert not any(character.isdigit() for kind in habits for character in kind)


def test_packed_games_are_the_same_tasks_where_they_are_unpacked(
    part: Alfworld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder = tmp_path / "some", find_games_folder(part.path)
    for split in SPLITS:
        game = Path(str(part.task_set(split)[0].payload["game"]))
        shutil.copytree(folder / game, source / game)
    (source / game / "traj_data.json").write_text("{}")
    assert pack_games(source, tmp_path / "games.tar.xz") == 3
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    unpacked = unpack_games(tmp_path / "games.tar.xz")
    assert [Alfworld(path=str(unpacked)).task_set(split)[0].id for split in SPLITS] == [
        part.task_set(split)[0].id for split in SPLITS
    ]
    assert not list(unpacked.rglob("traj_data.json"))
    assert unpack_games(tmp_path / "games.tar.xz") == unpacked
    assert unpack_games(unpacked) == unpacked


def test_games_that_are_not_there_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        unpack_games(tmp_path / "none")
    assert str(raised.value) == (
        f"--games: there is no {str(tmp_path / 'none')!r}; give the folder that `alfworld-download` filled"
    )


def test_sizes_are_changed_by_name() -> None:
    sizes = change_sizes(FULL, ["learning_rate=1e-5", "warm_games=300"])
    assert (sizes.learning_rate, sizes.warm_games, sizes.tasks) == (1e-5, 300, FULL.tasks)
    with pytest.raises(ConfigError, match="there is no size 'warm_game'"):
        change_sizes(FULL, ["warm_game=1"])


def _marks(*pairs: tuple[int, int]) -> dict[str, Any]:
    return {"marks": [{"mark": mark, "update": update} for mark, update in pairs]}


def test_methods_are_compared_at_the_last_mark_that_all_have_reached() -> None:
    records = {"grpo": _marks((1, 4), (2, 8), (2, 11)), "hgpo": _marks((1, 5), (3, 9), (4, 12), (4, 13))}
    assert common_updates(records) == {"grpo": 8, "hgpo": 9}


def test_without_a_common_mark_each_method_stands_at_its_end() -> None:
    assert common_updates({"grpo": _marks((0, 2)), "hgpo": _marks((1, 5), (1, 7))}) == {"grpo": 2, "hgpo": 7}
    assert common_updates({"grpo": {}, "hgpo": {}}) == {"grpo": 0, "hgpo": 0}


class _Kills:
    """Ends the process in which it arrives."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (9,)


def test_a_method_whose_process_is_killed_keeps_nobody_waiting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_methods([{"method": "grpo", "folder": str(tmp_path), "measurement": _Kills()}])
    assert read_record(method_record(tmp_path, "grpo"))["is_trained"] is True
    assert capsys.readouterr().err == "grpo: ended with exit code 9; its record ends there\n"


def test_the_settings_are_those_of_the_results_that_more_seeds_are_pooled_with() -> None:
    written = json.loads((ROOT / "benchmarks" / "results" / "alfworld_seeds" / "observation_seed_0.json").read_text())
    measurement = Measurement(FULL, key="observation")
    assert {method: settings_hash(measurement, method=method, on_gpu=True) for method in METHODS} == written["settings"]


@pytest.mark.parametrize("method", [*METHODS, "shrunk_hgae", *VARIANTS])
def test_every_method_is_a_run_of_its_own(method: str, part: Alfworld) -> None:
    contents = {
        name: run_settings("tiny", part.path, Measurement(TWO_CORES), method=name, on_gpu=False)
        for name in (*METHODS, "shrunk_hgae", *VARIANTS)
    }
    run = decode_run(contents[method])
    assert list(contents.values()).count(contents[method]) == 1
    assert isinstance(run.env, Unnumbered) == ("_unnumbered" in method)
    if not isinstance(run.env, Unnumbered):
        assert run.env.key == ("situation" if method.endswith("_situation") else "observation")


def test_methods_differ_in_their_credit_alone_and_what_else_differs_is_named() -> None:
    measurement = Measurement(TWO_CORES)
    for method in {*METHODS, *CREDIT, *VARIANTS} - {"shrunk_hgae_step_ratio"}:
        assert list_own_parts(measurement, method=method) == [], method
    assert list_own_parts(measurement, method="shrunk_hgae_step_ratio") == ["algorithm.loss.ratio"]
    assert list_own_parts(measurement, method="dapo") == ["algorithm.filters", "algorithm.loss.surrogate.high"]
    assert [choose_key(measurement, method=method) for method in ("hgpo", "hgpo_situation")] == [
        "observation",
        "situation",
    ]


def test_a_variant_has_its_method_with_its_own_settings() -> None:
    deep = run_settings("", "", Measurement(TWO_CORES), method="hgpo_depth_4", on_gpu=False)["algorithm"]
    assert (deep["method"], deep["depth"], deep["invalid_penalty"]) == ("hgpo", 4, 0.0)
    released = run_settings("", "", Measurement(TWO_CORES), method="gigpo_released", on_gpu=False)["algorithm"]
    assert (released["method"], released["reference"], released["invalid_penalty"]) == ("gigpo", True, 0.1)


def test_the_released_conventions_without_penalty_differ_in_the_state_terms_alone() -> None:
    content = run_settings("tiny", "", Measurement(TWO_CORES), method="grpo_reference", on_gpu=False)
    episode = methods.gigpo(step_weight=0.0, reference=True, invalid_penalty=0.0).advantage.terms[0].of
    grpo = decode_run(content).algorithm.advantage
    assert (grpo.average, grpo.alone, grpo.scale) == (episode.average, episode.alone, episode.scale)
    for method in ("gigpo_reference", "hgpo_reference", "hgpo_reference_depth_4"):
        here = run_settings("", "", Measurement(TWO_CORES), method=method, on_gpu=False)["algorithm"]
        there = run_settings(
            "", "", Measurement(TWO_CORES), method=method.replace("reference", "unnumbered"), on_gpu=False
        )
        assert here == there["algorithm"]
        assert (here["reference"], here["invalid_penalty"], here.get("depth", 2)) == (
            True,
            0.0,
            4 if method.endswith("_4") else 2,
        )


def test_an_unnumbered_key_hides_which_thing_it_was_and_nothing_else_changes(part: Alfworld) -> None:
    task = part.task_set("train")[0]
    usual, hidden = part.model_copy(update={"key": "observation"}).open(task), Unnumbered(path=part.path).open(task)
    while command := usual.expert():
        seen, other = usual.observe(), hidden.observe()
        assert (seen.text, seen.admissible, seen.goal) == (other.text, other.admissible, other.goal)
        assert seen.state_key == seen.text
        assert other.state_key == remove_numbers(seen.text) != seen.text
        assert not any(character.isdigit() for character in str(other.state_key))
        assert usual.act(command).success == hidden.act(command).success
    first, second = ("On the shelf 1, you see a mug 2.", "On the shelf 2, you see a mug 1.")
    assert remove_numbers(first) == remove_numbers(second)


def test_the_shares_of_levels_are_of_all_steps() -> None:
    audit = {"census": {"steps": 200}, "levels": [{"depth": 0, "compared_steps": 150, "equal_steps": 50}]}
    assert share_of_levels(audit) == [{"depth": 0, "compared": 0.75, "unequal": 0.5}]


def test_where_seeds_begin_is_in_their_hash() -> None:
    measurements = [
        Measurement(TWO_CORES),
        Measurement(TWO_CORES, is_from_scratch=True),
        Measurement(TWO_CORES, is_from_scratch=True, start="ab"),
    ]
    measurements += [Measurement(TWO_CORES, is_from_scratch=True, start="cd")]
    assert len({settings_hash(measurement, method="hgpo", on_gpu=False) for measurement in measurements}) == 4


def test_what_is_shown_is_said_too_but_counts_less() -> None:
    def step(prompt: tuple[int, ...], response: tuple[int, ...], trajectory: int, *, trains: bool = True) -> Sample:
        return Sample(
            prompt_ids=prompt,
            response_ids=response,
            advantage=float(trains),
            trajectory=trajectory,
            step=0,
            group=0,
            trains=trains,
        )

    steps = [step((1, 5, 6), (7, 2), 0), step((1, 5, 6, 7, 2, 8), (9, 2), 0, trains=False), step((1, 4), (3, 2), 1)]
    weighed = weigh_observations(steps, 0.3)
    assert [(sample.prompt_ids, sample.response_ids, sample.advantage) for sample in weighed] == [
        ((1,), (5, 6, 7, 2), (0.3, 0.3, 1.0, 1.0)),
        ((1, 5, 6, 7, 2), (8, 9, 2), (0.3, 0.0, 0.0)),  # a stray is not to be said, what it was shown is
        ((1,), (4, 3, 2), (0.3, 1.0, 1.0)),
    ]
    assert all(sample.trains for sample in weighed)
    with pytest.raises(ConfigError, match="step 0 of rollout 0: its prompt does not continue the one before"):
        weigh_observations([steps[0], step((1, 5, 9), (7, 2), 0)], 0.3)


def test_a_start_is_taken_over_whole_and_no_other_after_it(tmp_path: Path) -> None:
    for _ in range(2):
        adopt_start(SCRATCH_START, tmp_path)
        assert digest_start(tmp_path) == digest_start(SCRATCH_START)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["start", "start.json"]
    measurement = Measurement(TWO_CORES, is_from_scratch=True)
    check_start(SCRATCH_START, tmp_path, measurement)
    with pytest.raises(ConfigError, match=r"goes on from a given start; give it again as --start"):
        check_start(None, tmp_path, measurement)
    with pytest.raises(ConfigError, match=r"is a start of `scratch`; give --model scratch$"):
        check_start(SCRATCH_START, tmp_path, Measurement(FULL))
    (start_checkpoint(tmp_path) / "model.safetensors").write_bytes(b"changed")
    with pytest.raises(ConfigError) as raised:
        adopt_start(SCRATCH_START, tmp_path)
    assert str(raised.value) == (f"--start: {tmp_path} has another start than {SCRATCH_START}; give another --out")


def test_a_folder_without_a_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        digest_start(tmp_path)
    assert str(raised.value) == f"--start: {tmp_path} holds no start; `--stage start --out {tmp_path}` makes one"


def test_a_record_holds_the_methods_that_were_asked_for_under_their_own_hash(tmp_path: Path) -> None:
    curve = [{"total_steps": 200, "success": 0.5}]
    for method in ("grpo", "shrunk_hgae"):
        mark = {"mark": 1, "update": 1, "total_steps": 200}
        record = {"seconds": {}, "curve": curve, "marks": [mark], "evaluations": {"1": _rows({"a": [1], "b": [0]})}}
        write_record(method_record(tmp_path, method), record)
    measurement, named = Measurement(FULL), {"name": "small", "command": "", "commit": ""}
    alone, all_three = (
        summarise(tmp_path, measurement, methods=asked, **named) for asked in (["shrunk_hgae"], METHODS)
    )
    assert (list(alone["methods"]), list(all_three["methods"])) == (["shrunk_hgae"], ["grpo"])
    for record in (alone, all_three):
        (method,) = record["methods"]
        assert record["settings"] == {method: settings_hash(measurement, method=method, on_gpu=has_gpu())}
    assert alone["methods"]["shrunk_hgae"]["by_mark"][0]["success"]["valid_seen"]["success"] == 0.5
    assert ElementTree.fromstring(picture(alone)) is not None


def _rows(successes: Mapping[str, list[int]], split: str = "valid_seen") -> list[dict[str, Any]]:
    return [
        {
            "split": split,
            "task": task,
            "type": "look",
            "seed": seed,
            "success": float(won),
            "steps": 10,
            "temperature": 0.4,
        }
        for task, each in successes.items()
        for seed, won in enumerate(each)
    ]


def test_differences_are_taken_task_by_task() -> None:
    first = _rows({"a": [0, 0], "b": [1, 1], "c": [0, 1], "d": [0]})
    second = _rows({"a": [1, 1], "b": [1, 1], "c": [1, 1], "only here": [0]})
    comparison = compare_pairs(first, second)["valid_seen"]
    # 1, 0 and 0.5: deviation 0.5 over three tasks, Student's quantile with two degrees of freedom as groupwise has it.
    assert comparison["difference"] == 0.5
    low, high = comparison["interval"]
    assert low + high == pytest.approx(1.0)
    assert high - low == pytest.approx(2 * 4.0 * 0.5 / 3**0.5, rel=0.1)


def test_success_counts_every_task_the_same_however_often_it_was_played() -> None:
    summary = summarise_rows(_rows({"a": [1, 1, 1], "b": [0]}))["valid_seen"]
    assert (summary["success"], summary["tasks"], summary["seeds"], summary["steps"]) == (0.5, 2, 3, 10.0)
    assert summary["by_type"]["look"]["success"] == 0.5


def test_a_temperature_is_summed_up_by_itself() -> None:
    warm = [{**row, "temperature": 1.0} for row in _rows({"a": [1], "b": [1]})]
    rows = [*_rows({"a": [0], "b": [1]}), *warm]
    assert summarise_rows(at_temperature(rows, 0.4))["valid_seen"]["success"] == 0.5
    assert summarise_rows(at_temperature(rows, 1.0))["valid_seen"]["success"] == 1.0
    assert describe_briefly(rows) == "temperature 0.4: valid_seen 50.0 %; temperature 1.0: valid_seen 100.0 %"


def _make_result() -> dict[str, Any]:
    success = {
        name: summarise_rows(_rows({"a": [won], "b": [0]}) + _rows({"c": [won]}, "valid_unseen"))
        for name, won in (("base", 0), ("warm_start", 0), ("hgpo", 1))
    }
    curve = [{"total_steps": 100 * n, "success": n / 10} for n in range(1, 8)]
    made = {"updates": 7, "total_steps": 700}
    hgpo = {"update": 6, "total_steps": 600, "made": made, "seconds": {"train": 90.0}, "curve": curve}
    start = {"seconds": {"imitate": 270.0}}
    whole = {"methods": {"hgpo": hgpo}, "differences": [], "start": start, "hours": 0.1, "engine": {"memory": 0.1}}
    return {"success": success, "success_at_1": success, **whole}


def test_the_sentences_say_how_far_the_papers_are() -> None:
    lines = sentences(_make_result()).splitlines()
    assert lines[-1] == (
        "hgpo against the paper's Qwen2.5-1.5B (160 updates, other prompts, no imitation): "
        "valid_seen 50.0 % against 92.8 %, 42.8 points below; valid_unseen 100.0 % against 90.2 %, 9.8 points above"
    )
    assert lines[-2] == "all stages together: 0.10 hours of one device, the methods beside each other"
    assert lines[-3] == (
        "hgpo: measured after update 6, 600 environment steps; it made 7 updates, 700 steps, in 1.5 minutes"
    )


def test_the_picture_shows_a_curve_a_method_and_a_dot_a_measurement() -> None:
    drawn = ElementTree.fromstring(picture(_make_result()))
    tags = [element.tag.rpartition("}")[2] for element in drawn.iter()]
    assert tags.count("polyline") == 1
    assert tags.count("circle") == 6
    line = next(element for element in drawn.iter() if element.tag.endswith("polyline"))
    # The last point is the mean of the last five updates, 0.5, at the right end.
    assert line.attrib["points"].split()[-1] == "500.0,188.0"


def test_the_table_of_an_audit_says_who_is_alone_at_each_depth() -> None:
    level = {"compared_steps": 60, "alone_steps": 30, "too_early_steps": 10, "mean_size": 3.0, "baseline_shift": 0.5}
    more = {"relative_shift": 0.25, "sign_flips": 6, "compared_at_both": 60}
    audit = {
        "census": {"tasks": 2, "rollouts": 16, "steps": 100},
        "levels": [{"depth": depth, **level, **more} for depth in range(3)],
    }
    lines = table(audit, "some rollouts").splitlines()
    assert lines[0].startswith(
        "Measured on some rollouts: 2 tasks, 16 rollouts, 100 steps (`groupwise audit`). At depth 2,"
    )
    assert lines[-1] == "| 2 | 60.0 % | 30.0 % | 10.0 % | 3.0 | 0.50 (0.25 deviations) | 10.0 % |"


def test_methods_beside_each_other_take_as_long_as_the_longest() -> None:
    records = {"grpo": {"seconds": {"train": 60.0, "wait": 12.0}}, "hgpo": {"seconds": {"train": 180.0}}}
    assert count_hours({"seconds": {"teacher": 180.0}}, records) == pytest.approx(0.1)
    assert count_hours({}, {}) == 0
    assert count_hours({}, records, side_by_side=False) == pytest.approx(0.07)
    again = {"grpo": {"seconds": {"evaluate": 360.0, "task_sets": 90.0}}}  # the task sets are part of evaluating
    assert count_hours({}, again) == pytest.approx(0.1)
