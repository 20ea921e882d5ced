"""`groupwise report` and `groupwise inspect`, as a user runs them on a run's folder."""

from __future__ import annotations

import html
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from groupwise import methods
from groupwise.envs import task_set_hash
from groupwise.report.groups import PlayedGroup, read_groups
from groupwise.store.journal import Journal, Update
from groupwise.training.run_reader import RunFolder
from tests.fresh_interpreter import HELP, fresh, without
from tests.unit.cli.calls import invoke, show_json, words
from tests.unit.cli.conftest import Run
from tests.unit.report.run_folders import ENV, credit_of, play_update, settings, write_run


@pytest.fixture(scope="module")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "home"
    return write_run(folder, updates=3, evaluations=(0, 3), evaluation_tasks=20)


@pytest.fixture(scope="module")
def groups(run_path: Path) -> list[PlayedGroup]:
    with RunFolder(run_path) as run:
        return read_groups(run, 3)


# report


def test_report_writes_the_page_into_the_folder(tmp_path: Path, run_path: Path) -> None:
    folder = Path(shutil.copytree(run_path, tmp_path / "copy"))
    printed = " ".join(invoke("report", folder).split())
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "<h1><span>hgpo</span> on household</h1>" in page
    assert printed == f"wrote {folder / 'report.html'} ({len(page.encode()) / 1000:,.0f} kB)"


def test_report_writes_where_it_is_told_and_nowhere_else(tmp_path: Path, run_path: Path) -> None:
    before = {path.name: path.stat().st_size for path in run_path.iterdir() if not path.name.endswith(("-wal", "-shm"))}
    out = tmp_path / "page.html"
    invoke("report", run_path, "--out", out)
    assert out.stat().st_size > 50_000
    assert before.keys() == {"config.toml", "journal.sqlite"}
    assert all((run_path / name).stat().st_size == size for name, size in before.items())


def test_report_on_what_is_no_run_is_one_line_and_status_2(groupwise: Run, tmp_path: Path) -> None:
    ran = groupwise("report", "nothing")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == (
        "error: nothing: there is no such folder; give the folder that `groupwise train --out FOLDER` wrote\n"
    )
    write_run(tmp_path / "run", updates=0)
    ran = groupwise("report", "run", "--out", "no/page.html")
    assert ran.err == (
        "error: no/page.html: cannot be written (No such file or directory); choose another file with --out\n"
    )


# inspect: updates and groups


def test_inspect_lists_the_updates_and_the_evaluations(run_path: Path) -> None:
    lines = words(invoke("inspect", run_path))
    assert lines[0] == "home: hgpo on household"
    assert lines[1] == "update success return steps compared loss time"
    assert [line.split()[0] for line in lines[2:5]] == ["1", "2", "3"]
    assert lines[5].startswith("test, before training: success ")
    assert lines[6].startswith("test, after update 3: success ")
    digest = task_set_hash(ENV.task_set("test")[:20])
    assert lines[6].endswith(f" over 20 tasks (task set {digest[:12]})")
    data = show_json("inspect", run_path)
    assert [update["number"] for update in data["updates"]] == [1, 2, 3]
    assert [score["number"] for score in data["evaluations"][0]["scores"]] == [0, 3]
    assert {score["task_set"] for score in data["evaluations"][0]["scores"]} == {digest}
    assert data["task_sets"] == {}
    with RunFolder(run_path) as run:
        assert data["updates"][1]["loss"] == run.metrics["loss/total"][2]


def test_inspect_names_the_task_sets_that_the_run_began_with(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=1)
    with Journal(folder / "journal.sqlite") as journal:
        journal.name_task_sets({"train": "a" * 64, "test": "b" * 64})
    lines = words(invoke("inspect", folder))
    assert lines[1] == "task sets: test bbbbbbbbbbbb, train aaaaaaaaaaaa"
    assert show_json("inspect", folder)["task_sets"] == {"train": "a" * 64, "test": "b" * 64}
    invoke("report", folder)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<dt>task sets</dt><dd>test\N{NO-BREAK SPACE}bbbbbbbbbbbb, train\N{NO-BREAK SPACE}aaaaaaaaaaaa</dd>" in page


@pytest.mark.parametrize(
    ("rollout", "said"),
    [
        (
            {"lag": 1, "max_staleness": 1},
            "one update ahead (one-step off-policy)",
        ),
        (
            {"lag": "free", "max_staleness": 2},
            "fully asynchronously, at most 2 versions behind: rollouts continue during weight syncs, so a repeated or "
            "resumed run has other numbers",
        ),
        ({"lag": 0, "max_staleness": 1}, ""),
    ],
)
def test_report_and_inspect_say_how_far_ahead_rollouts_were_played(
    tmp_path: Path, rollout: dict[str, object], said: str
) -> None:
    rest = settings(methods.hgpo())["rollout"]
    folder = write_run(tmp_path / "run", updates=1, rollout=rest | rollout)
    lines = [line for line in words(invoke("inspect", folder)) if line.startswith("rollouts sampled")]
    assert lines == ([f"rollouts sampled {said}"] if said else [])
    invoke("report", folder)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert (f"<dt>rollouts sampled</dt><dd>{html.escape(said)}</dd>" in page) == bool(said)


def test_inspect_has_a_column_for_rescued_groups_where_there_are_any(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=0)
    with Journal(folder / "journal.sqlite") as journal:
        for number, share in ((1, 0.0), (2, 0.25)):
            journal.write(Update(number=number, version=number, metrics={"advantage/groups_rescued": share}))
    lines = words(invoke("inspect", folder))
    assert lines[1] == "update success return steps compared rescued loss time"
    assert [line.split()[5:7] for line in lines[2:4]] == [["0.0", "%"], ["25.0", "%"]]


def test_inspect_of_a_run_without_updates(tmp_path: Path) -> None:
    assert words(invoke("inspect", write_run(tmp_path / "run", updates=0))) == [
        "run: hgpo on household",
        "no update yet",
    ]


def test_inspect_lists_the_groups_of_an_update(run_path: Path, groups: list[PlayedGroup]) -> None:
    lines = words(invoke("inspect", run_path, "--update", 3))
    silent = sum(not group.teaches for group in groups)
    assert lines[0] == f"home, update 3: 4 groups, {silent} without a learning signal"
    assert lines[1] == "task rollouts solved outcomes spread steps compared mean |advantage|"
    for line, group in zip(lines[2:], groups, strict=True):
        solved = sum(bool(rollout.success) for rollout in group.rollouts)
        outcomes = " ".join(f"{outcome:g}" for outcome in group.outcomes)
        size = sum(abs(step.credit) for step in group.steps) / len(group.steps)
        start = (
            f"{group.task} 4 {solved} {outcomes} {group.spread:.3f} {len(group.steps)} {group.num_compared} {size:.3f}"
        )
        assert line.startswith(start)
    data = show_json("inspect", run_path, "--update", 3)["groups"]
    assert [group["outcomes"] for group in data] == [group.outcomes for group in groups]
    assert [group["compared"] for group in data] == [group.num_compared for group in groups]


def test_inspect_says_which_groups_teach_nothing(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=1, tasks=2, rollouts=1, algorithm=methods.grpo())
    lines = words(invoke("inspect", folder, "--update", 1))
    assert lines[0] == "run, update 1: 2 groups, 2 without a learning signal"
    assert all(line.endswith("0.000 no learning signal") for line in lines[2:])


# inspect: a rollout, and why


def test_inspect_shows_an_rollout_as_a_dialogue(run_path: Path, groups: list[PlayedGroup]) -> None:
    group = groups[0]
    best = group.best()
    lines = words(invoke("inspect", run_path, "--update", 3, "--task", group.task.rpartition("-")[2][:6]))
    assert lines[0].startswith(f"{group.task} (")
    assert lines[1].startswith("goal: ")
    assert lines[2] == "rollout outcome ended steps advantage, step by step"
    actions = [line.removeprefix("> ").removesuffix(" reward 1") for line in lines if line.startswith("> ")]
    assert actions == [step.action + (f" {step.flaw}" if step.flaw else "") for step in best.steps]
    credit = [line.split()[1] for line in lines if line.startswith("advantage ")]
    assert credit == [
        f"{step.credit:+.3f}".replace("-", "\N{MINUS SIGN}").replace("+0.000", "0.000") for step in best.steps
    ]
    assert lines[-1] == f"{best.stop}; outcome {best.outcome:g}"
    assert "compared with" in " ".join(lines)
    for line, each in zip(lines[3:7], group.rollouts, strict=True):
        marks = line.split()[4]
        signs = ["·" if mark == "·" else "-" if mark in "▔▀" else "+" for mark in marks]
        assert signs == ["·" if not step.credit else "-" if step.credit < 0 else "+" for step in each.steps]


def test_inspect_shows_the_rollout_that_is_asked_for(run_path: Path, groups: list[PlayedGroup]) -> None:
    group = groups[1]
    data = show_json("inspect", run_path, "--update", 3, "--task", group.task, "--rollout", 2)
    assert data["goal"]
    assert data["rollout"]["rollout"] == 2
    steps = group.rollouts[2].steps
    assert [step["credit"] for step in data["rollout"]["steps"]] == [step.credit for step in steps]
    assert [step["company"] for step in data["rollout"]["steps"]] == [
        [asdict(level) for level in step.company] for step in steps
    ]


def test_why_gives_the_journals_number_to_the_bit(run_path: Path, groups: list[PlayedGroup]) -> None:
    group = groups[2]
    rollout = group.rollouts[1]
    arguments = ("inspect", run_path, "--update", 3, "--task", group.task, "--rollout", 1)
    for step in rollout.steps:
        data = show_json(*arguments, "--step", step.step)
        assert data["value"] == data["recorded"] == step.credit
        assert data["largest_gap"] <= 1e-9
    printed = invoke(*arguments, "--step", 0)
    assert f"task '{group.task}', rollout 1, step 0 under hgpo" in printed
    assert "(this step)" in printed
    assert words(printed)[-1] == f"the journal has {rollout.steps[0].credit:+.9f}: the same number"


def test_why_says_when_the_journal_holds_another_number(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=0)
    trajectories = play_update(1, tasks=1, rollouts=4, skill=0.4)
    other = [[value + 0.5 for value in values] for values in credit_of(methods.hgpo(), trajectories)]
    with Journal(folder / "journal.sqlite") as journal:
        journal.write(Update(number=1, version=1, metrics={}, trajectories=trajectories, credit=other))
    task = trajectories[0].task.id
    printed = invoke("inspect", folder, "--update", 1, "--task", task, "--rollout", 0, "--step", 0, status=1)
    assert words(printed)[-1] == (
        f"the journal has {other[0][0]:+.9f}: another number; it was computed from more than these rows"
    )


# inspect: two runs


def test_diff_shows_settings_metrics_and_success_side_by_side(tmp_path: Path, run_path: Path) -> None:
    other = write_run(
        tmp_path / "other", updates=2, evaluations=(2,), evaluation_tasks=20, algorithm=methods.hgpo(gamma=0.9), seed=4
    )
    lines = words(invoke("inspect", "--diff", run_path, other))
    assert lines[:2] == [f"A {run_path}", f"B {other}"]
    assert "setting A B" in lines
    assert "seed 0 4" in lines
    assert "algorithm.advantage.terms[0].of.of.of.gamma 0.95 0.9" in lines
    assert "metric at update 2 A B B - A" in lines
    assert "seconds/advantages 0.02 0.02 0" in lines
    assert "last evaluation A B B - A" in lines
    assert lines[-1].startswith("test ")
    assert lines[-1].endswith("points")
    data = show_json("inspect", "--diff", run_path, other)
    assert {"path": "seed", "first": 0, "second": 4} in data["settings"]
    assert data["number"] == 2
    assert data["scores"][0]["is_one_task_set"] is True


def test_diff_of_a_run_with_itself_finds_no_setting(run_path: Path, tmp_path: Path) -> None:
    empty = write_run(tmp_path / "run", updates=0)
    assert "no setting differs" in words(invoke("inspect", "--diff", run_path, run_path))
    lines = words(invoke("inspect", "--diff", empty, empty))
    assert lines[-2:] == ["the runs have no update in common", "no task set was evaluated in both"]


# inspect: what cannot be meant


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no run given; use `groupwise inspect RUN`, or `groupwise inspect --diff A B`"),
        (("run", "--task", "t"), "--task needs an update; add --update N (`groupwise inspect RUN` lists them)"),
        (
            ("run", "--update", "1", "--rollout", "0"),
            "--rollout needs a task; add --task ID (`groupwise inspect RUN --update N` lists them)",
        ),
        (
            ("run", "--update", "1", "--task", "t", "--step", "0"),
            "--step needs a rollout; add --rollout N (`--update N --task ID` lists them)",
        ),
        (
            ("run", "--diff", "run", "run"),
            "--diff cannot be combined; use `groupwise inspect --diff A B`",
        ),
        (("run", "--update", "7"), "run: there is no update 7; its updates are 1 to 1"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_status_2(
    groupwise: Run, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    write_run(tmp_path / "run", updates=1, tasks=1, rollouts=2)
    ran = groupwise("inspect", *arguments)
    assert (ran.status, ran.out, ran.err) == (2, "", f"error: {message}\n")


def test_a_step_that_is_not_there_is_named(groupwise: Run, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=1, tasks=1, rollouts=2)
    with RunFolder(folder) as run:
        (group,) = read_groups(run, 1)
    ran = groupwise("inspect", "run", "--update", "1", "--task", group.task, "--rollout", "1", "--step", "99")
    last = len(group.rollouts[1].steps) - 1
    assert ran.err == (f"error: task '{group.task}', rollout 1 has no step 99; its steps are 0 to {last}\n")


# what they load


def test_neither_command_needs_torch_or_the_trainers_packages(tmp_path: Path, run_path: Path) -> None:
    blocked = without("torch", "transformers", "tokenizers", "safetensors", "peft", "pyarrow")
    out = tmp_path / "page.html"
    assert "wrote" in fresh(blocked + HELP.format(arguments=["report", str(run_path), "--out", str(out)]))
    assert out.stat().st_size > 50_000
    assert "hgpo on household" in fresh(blocked + HELP.format(arguments=["inspect", str(run_path)]))


def test_the_settings_of_the_synthetic_runs_decode() -> None:
    from groupwise.training.config.run_file import decode_algorithm

    assert decode_algorithm(settings(methods.hgpo())) == methods.hgpo()
