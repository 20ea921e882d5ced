"""The page of a run: what it says, that it holds for any run, and that nothing recorded can break out of it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import FileError, Trajectory, methods
from groupwise.report.derived_credit import ComparisonGroup
from groupwise.report.groups import PlayedGroup, PlayedRollout, PlayedStep, read_groups
from groupwise.report.number_format import format_percent, format_signed
from groupwise.report.page import (
    Scales,
    choose_instructive,
    describe_part,
    find_usual_reach,
    render_page,
    write_group,
    write_page,
)
from groupwise.report.prompts import TaskGoal
from groupwise.store.journal import Journal, Update
from groupwise.training.run_reader import RunFolder
from tests.unit.report.outline import Outline
from tests.unit.report.run_folders import credit_of, metrics_of, play_task_set, play_update, write_run

SECTIONS = ["result", "categories", "learning", "groups", "rollouts", "time", "settings"]


def page_of(folder: Path, **more: str) -> str:
    with RunFolder(folder) as run:
        return render_page(run, method="hgpo", **more)


def write(folder: Path, number: int, trajectories: Sequence[Trajectory], metrics: dict[str, float]) -> None:
    with Journal(folder / "journal.sqlite") as journal:
        credit = credit_of(methods.hgpo(), trajectories)
        journal.write(Update(number=number, version=number, metrics=metrics, trajectories=trajectories, credit=credit))


@pytest.fixture(scope="module")
def page(run_path: Path) -> str:
    return page_of(run_path)


def test_the_sections_stand_in_order(page: str) -> None:
    outline = Outline(page)
    assert outline.sections == SECTIONS
    assert re.findall(r'<a href="#(\w+)">', page) == SECTIONS[1:]


def test_the_headline_says_what_was_trained(run_path: Path) -> None:
    shown = page_of(run_path, note="gamma 0.9")
    assert "<h1><span>hgpo</span> on household</h1>" in shown
    info = dict(re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", shown))
    assert info["method"] == "hgpo"  # its settings are listed with their defaults
    assert info["model"] == "tiny (hidden\xa0128, layers\xa03, heads\xa04)"
    assert info["updates"] == "6, each of 4 tasks \xd7 4 rollouts"
    assert info["seed"] == "0"
    assert "<title>hgpo on household: home</title>" in shown


def test_the_verdict_stands_in_big_numbers_with_intervals(page: str, run: RunFolder) -> None:
    rows = [row for row in run.journal.evaluations() if row.number in (0, 6)]
    share = [sum(row.success or 0.0 for row in rows if row.number == number) / 40 for number in (0, 6)]
    assert re.findall(r'<span class="big">([^<]+)</span>', page) == [f"{100 * value:.1f}\u202f%" for value in share]
    assert "before training" in page
    assert "after update 6" in page


def test_every_family_has_a_line(page: str) -> None:
    table = page.partition('class="categories"')[2].partition("</table>")[0]
    assert re.findall(r'<th scope="row">(\w+)</th>', table) == ["clean", "cool", "examine", "heat", "pick", "two"]
    assert table.count('<span class="before"') == table.count('<span class="after"') == 6


def test_the_curves_are_those_of_the_run(page: str) -> None:
    learning = page.partition('id="learning"')[2].partition("</section>")[0]
    titles = re.findall(r"<h3>([^<]+)</h3>", learning)
    assert titles == [
        "Success",
        "Steps",
        "Valid actions",
        "Entropy",
        "Loss",
        "Gradient norm",
        "KL to the reference",
    ]
    assert learning.count('class="score"') == 3
    assert "<code>seconds/learn</code>" in learning


def test_rollouts_of_the_first_and_the_last_update_are_shown_with_their_credit(page: str, run: RunFolder) -> None:
    rollouts = page.partition('id="rollouts"')[2].partition("</section>")[0]
    assert re.findall(r"<h3>(Update \d)</h3>", rollouts) == ["Update 1", "Update 6"]
    assert rollouts.count('<article class="group">') == 6
    best = choose_instructive(read_groups(run, 6))[0].best()
    shown = rollouts.partition("<h3>Update 6</h3>")[2].partition("</details>")[0]
    credit = re.findall(r'class="(?:number \w+|alone)"[^>]*>([^<]+)<', shown)
    assert credit == ["not compared" if step.compared is False else format_signed(step.credit) for step in best.steps]
    assert len(set(credit)) > 3


def test_steps_that_are_compared_with_their_own_rollout_only_are_counted(tmp_path: Path) -> None:
    """Two rollouts per task, in an environment where a rollout often comes back to where it was."""
    folder, trajectories = write_run(tmp_path / "run", updates=0), play_update(1, tasks=4, rollouts=2, skill=0.3)
    metrics = metrics_of(trajectories, 1, 1)
    write(folder, 1, trajectories, metrics)
    assert "Compared with their own rollout only" not in page_of(folder)
    with RunFolder(folder) as run:
        steps = [step for group in read_groups(run, 1) for step in group.steps if step.compared]
    own = sum(step.own_rollout_only is True for step in steps)
    assert 0 < own < len(steps)
    write(folder, 2, trajectories, metrics | {"advantage/own_rollout_only": own / len(steps)})
    shown = page_of(folder)
    assert "Compared with their own rollout only" in shown
    assert f"; {format_percent(own / len(steps))} of the others only with their own rollout" in shown


def test_the_page_needs_nothing_from_anywhere_and_runs_nothing(page: str) -> None:
    assert "default-src &#x27;none&#x27;" in page
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(Outline(page).tags)
    assert not re.search(r"https?:|url\(|@import|\bsrc=|\bon\w+=", page)


def test_the_same_folder_gives_the_same_bytes(page: str, run_path: Path) -> None:
    assert page == page_of(run_path)
    assert len(page.encode()) < 300_000


def test_a_run_without_updates_says_so(tmp_path: Path) -> None:
    shown = page_of(write_run(tmp_path / "run", updates=0))
    assert Outline(shown).sections == ["result", "settings"]
    assert "The run has no update yet" in shown
    assert "<dd>0 of 6, each of 4 tasks \xd7 4 rollouts</dd>" in shown


def test_a_run_of_one_update_without_evaluation_gives_no_verdict(tmp_path: Path) -> None:
    shown = page_of(write_run(tmp_path / "run", updates=1, tasks=2, rollouts=2))
    assert Outline(shown).sections == ["result", "learning", "groups", "rollouts", "time", "settings"]
    assert 'class="big"' not in shown
    assert "so this is no result" in shown
    assert re.findall(r"<h3>(Update \d)</h3>", shown) == ["Update 1"]


def test_a_run_with_one_evaluation_has_nothing_to_compare_it_with(tmp_path: Path) -> None:
    shown = page_of(write_run(tmp_path / "run", updates=1, tasks=1, rollouts=2, evaluations=(1,), evaluation_tasks=8))
    assert shown.count('class="big"') == 1
    assert "There is no second evaluation to compare with." in shown


def test_metrics_that_are_no_numbers_leave_gaps(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=0)
    for number, loss in enumerate((0.5, math.nan, 0.25, math.inf, 0.125), start=1):
        metrics = {"loss/total": loss, "learner/grad_norm": math.nan}
        write(folder, number, play_update(number, tasks=1, rollouts=2, skill=0.4), metrics)
    shown = page_of(folder)
    Outline(shown)
    learning = shown.partition('id="learning"')[2].partition("</section>")[0]
    assert re.findall(r"<h3>([^<]+)</h3>", learning) == ["Loss"]
    assert re.findall(r"<title>([^<]+)</title>", learning) == ["update 1: 0.5", "update 3: 0.25", "update 5: 0.125"]
    assert not re.search(r"\bnan\b|\binf\b", shown.partition("<main>")[2])


def test_a_run_of_500_updates_stays_readable_and_small(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=0)
    trajectories = play_update(1, tasks=1, rollouts=2, skill=0.4)
    credit = credit_of(methods.hgpo(), trajectories)
    with Journal(folder / "journal.sqlite") as journal:
        for number in range(1, 501):
            metrics = metrics_of(trajectories, number, 500)
            update = Update(number=number, version=number, metrics=metrics, trajectories=trajectories, credit=credit)
            journal.write(update)
    shown = page_of(folder)
    Outline(shown)
    assert len(shown.encode()) < 400_000
    assert "Dark line: mean of 21 updates." in shown


def test_an_environment_without_success_is_judged_by_its_outcomes(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=0, env={"kind": "not_there.worlds:World"})
    for number in (1, 2):
        trajectories = [
            replace(trajectory, scores={}) for trajectory in play_update(number, tasks=2, rollouts=3, skill=0.4)
        ]
        write(folder, number, trajectories, {"rollout/success": 0.0, "rollout/return": 0.5})
    assert "its environment does not define success" in page_of(folder)
    with Journal(folder / "journal.sqlite") as journal:
        for number in (0, 2):
            rows = play_task_set(number, tasks=12, skill=0.4)
            journal.write_evaluation([replace(row, success=None, outcome=row.outcome + number) for row in rows])
    shown = page_of(folder)
    Outline(shown)
    assert "The mean final score on 12 held-out tasks rose from " in shown
    assert "<h3>Success</h3>" not in shown
    assert "hgpo</span> on World</h1>" in shown
    assert "solved" not in shown.partition('id="rollouts"')[2]


def test_long_rollouts_and_long_texts_are_cut(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=0)
    longer = []
    for trajectory in play_update(1, tasks=1, rollouts=2, skill=0.1):
        steps = [replace(step, observation="word " * 1000) for step in trajectory.steps * 10]
        longer.append(replace(trajectory, steps=tuple(replace(step, index=i) for i, step in enumerate(steps))))
    write(folder, 1, longer, {})
    shown = page_of(folder)
    Outline(shown)
    assert f"… {len(longer[0].steps) - 60} steps left out …" in shown
    assert "… 4,400 more characters" in shown
    assert len(shown.encode()) < 250_000


TEXT = st.text(max_size=40) | st.sampled_from(["</p><script>alert(1)</script>", "<!--", "]]>", "&lt;", "\0", "'\""])


@given(st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1, max_size=3), TEXT, TEXT, TEXT)
def test_nothing_recorded_becomes_markup(texts: list[tuple[str, str, str]], task: str, goal: str, error: str) -> None:
    plain = make_group([("seen", "done", "said")] * len(texts), "t", "e")
    recorded = make_group(texts, task, error or "e")
    tags = [
        Outline(write_group(group, TaskGoal(text=words, tags=(words,)), scales=Scales(reach=1.0))).tags
        for group, words in ((plain, "goal"), (recorded, goal or "goal"))
    ]
    # An empty text has no paragraph of its own; nothing else may change.
    empty = sum((not seen) + (said.lower() in ("", done.lower())) for seen, done, said in texts)
    assert len(tags[1]) == len(tags[0]) - empty
    assert set(tags[1]) <= set(tags[0])


def make_group(texts: Sequence[tuple[str, str, str]], task: str, error: str) -> PlayedGroup:
    steps = tuple(
        PlayedStep(
            step=index,
            observation=seen,
            action=done,
            response=said,
            flaw="refused",
            cut=True,
            reward=1.0,
            credit=0.5,
            compared=True,
            company=(ComparisonGroup(by="state", members=3),),
        )
        for index, (seen, done, said) in enumerate(texts)
    )
    rollout = PlayedRollout(
        task=task, rollout=0, stop="error", outcome=1.0, success=1.0, origin="hinted", error=error, steps=steps
    )
    return PlayedGroup(task=task, rollouts=(rollout,))


def test_a_step_says_what_was_wrong_with_it_and_whom_it_was_compared_with() -> None:
    block = write_group(
        make_group([("a room", "go", "I go.")], "t", "it broke"), TaskGoal(text="", tags=()), scales=Scales(reach=1.0)
    )
    shown = "|".join(Outline(block).texts)
    assert "a room|I go.|go|invalid action|cut off|reward 1|+0.500" in shown
    assert "it broke" in shown
    assert "hinted error" in shown
    assert 'title="compared with 2 others by state"' in block


def test_the_groups_that_differ_most_are_shown_first() -> None:
    def group(task: str, *outcomes: float) -> PlayedGroup:
        played_group = make_group([("", "", "")], task, "")
        return PlayedGroup(
            task=task,
            rollouts=tuple(
                replace(played_group.rollouts[0], rollout=i, outcome=each) for i, each in enumerate(outcomes)
            ),
        )

    groups = [group("equal", 1.0, 1.0), group("near", 0.5, 1.0), group("far", 0.0, 1.0), group("same", 0.0, 0.0)]
    assert [chosen.task for chosen in choose_instructive(groups)] == ["far", "near", "equal"]


def test_a_full_bar_stands_for_what_credit_usually_reaches() -> None:
    assert find_usual_reach([0.1] * 95 + [-1.0] * 4 + [50.0]) == 0.1
    assert find_usual_reach([0.0] * 99 + [2.0]) == 2.0
    assert find_usual_reach([math.nan]) == 0.0


def test_a_part_is_named_by_its_kind_and_its_first_fields() -> None:
    part = {"kind": "pkg.mod:Lake", "is_slippery": True, "size": 4, "map": "a b", "seed": 1, "left_out": 2}
    assert describe_part(part) == "Lake (size\xa04, map\xa0a\xa0b, seed\xa01)"
    assert describe_part({"kind": "tiny"}) == "tiny"
    assert describe_part(None) == "\u2013"


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert write_page(path, "half a pair: \ud800, é") == len("half a pair: ?, é".encode())
    assert path.read_text(encoding="utf-8") == "half a pair: ?, é"
    with pytest.raises(FileError) as caught:
        write_page(tmp_path / "no" / "report.html", "x")
    assert str(caught.value) == (
        f"{tmp_path / 'no' / 'report.html'}: cannot be written (No such file or directory); "
        "choose another file with --out"
    )
    with pytest.raises(FileError, match=r"cannot be written \(Not a directory\)"):
        write_page(path / "report.html", "x")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
