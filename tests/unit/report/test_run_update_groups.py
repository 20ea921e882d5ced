"""An update's groups and rollouts: as they were played, with the journal's credit."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from groupwise import RecordError, methods
from groupwise.report.derived_credit import explain_run_step
from groupwise.report.groups import PlayedGroup, PlayedRollout, PlayedStep, find_rollout, read_groups
from groupwise.report.overview import GroupCounts, count_groups, read_update_lines, sum_stage_seconds
from groupwise.report.prompts import GoalLookup, TaskGoal, make_response_decoder
from groupwise.store.journal import Journal, Update
from groupwise.training.run_reader import RunFolder
from tests.unit.report.run_folders import ENV, credit_of, play_update, skill_at, write_run


def rollout(number: int, outcome: float, num_steps: int = 0) -> PlayedRollout:
    step = idle_step()
    return PlayedRollout(
        task="t",
        rollout=number,
        stop="terminated",
        outcome=outcome,
        success=None,
        origin="fresh",
        error=None,
        steps=(step,) * num_steps,
    )


def idle_step() -> PlayedStep:
    return PlayedStep(
        step=0,
        observation="",
        action="go",
        response="",
        flaw="",
        cut=False,
        reward=0.0,
        credit=0.0,
        compared=True,
        company=(),
    )


def group(*outcomes: float) -> PlayedGroup:
    return PlayedGroup(task="t", rollouts=tuple(rollout(i, outcome) for i, outcome in enumerate(outcomes)))


def test_groups_hold_what_was_played(run: RunFolder) -> None:
    trajectories = play_update(2, tasks=4, rollouts=4, skill=skill_at(2 / 6))
    credit = credit_of(methods.hgpo(), trajectories)
    groups = read_groups(run, 2)
    shown = {(group.task, rollout.rollout): rollout for group in groups for rollout in group.rollouts}
    assert len(shown) == 16
    for trajectory, values in zip(trajectories, credit, strict=True):
        rollout = shown[trajectory.task.id, trajectory.rollout]
        assert rollout.stop == trajectory.stop.value
        assert rollout.success == trajectory.scores["success"]
        assert [step.credit for step in rollout.steps] == values
        assert [step.action for step in rollout.steps] == [step.action for step in trajectory.steps]
        assert [step.observation for step in rollout.steps] == [step.observation for step in trajectory.steps]
        assert [step.flaw for step in rollout.steps] == ["" if step.valid else "refused" for step in trajectory.steps]


def test_the_first_steps_of_a_group_were_compared_with_one_another(run: RunFolder) -> None:
    for group in read_groups(run, 1):
        for rollout in group.rollouts:
            assert rollout.steps[0].compared is True
            assert rollout.steps[0].company[0].by == "state"
            assert rollout.steps[0].company[0].members >= 4
        alone = [step for step in group.steps if step.compared is False]
        assert all(level.members <= 1 for step in alone for level in step.company)
        assert group.num_compared == len(group.steps) - len(alone)


def test_without_its_algorithm_nobody_knows_who_was_compared(tmp_path: Path, run_path: Path) -> None:
    folder = Path(shutil.copytree(run_path, tmp_path / "copy"))
    (folder / "config.toml").unlink()
    with RunFolder(folder) as run:
        played_group = read_groups(run, 1)[0]
    assert played_group.num_compared is None
    assert {step.compared for step in played_group.steps} == {None}
    assert played_group.teaches


def test_an_update_that_is_not_there_is_an_error(run: RunFolder, run_path: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordError) as caught:
        read_groups(run, 9)
    assert str(caught.value) == f"{run_path}: there is no update 9; its updates are 1 to 6"
    empty = write_run(tmp_path / "run", updates=0)
    with RunFolder(empty) as run, pytest.raises(RecordError) as caught:
        read_groups(run, 1)
    assert str(caught.value) == f"{empty}: there is no update 1; it has none yet"


def test_spread_is_the_deviation_and_exactly_nothing_among_equals() -> None:
    assert group(0.1, 0.1, 0.1).spread == 0.0
    assert group(1.0, 0.0).spread == 0.5
    assert group(1.0, 2.0, 3.0).spread == pytest.approx(math.sqrt(2 / 3), abs=1e-15)


def test_best_is_high_and_short_worst_is_low_and_long() -> None:
    rollouts = (rollout(0, 0.0, 3), rollout(1, 1.0, 9), rollout(2, 1.0, 4), rollout(3, 0.0, 8), rollout(4, 1.0, 4))
    played_group = PlayedGroup(task="t", rollouts=rollouts)
    assert played_group.best().rollout == 2
    assert played_group.worst().rollout == 3
    equal = group(1.0, 1.0, 1.0)
    assert (equal.best().rollout, equal.worst().rollout) == (0, 2)
    assert not equal.teaches


def test_an_rollout_is_found_by_its_number() -> None:
    played_group = group(0.0, 1.0)
    assert find_rollout(played_group, 1, where="x").outcome == 1.0
    with pytest.raises(RecordError) as caught:
        find_rollout(played_group, 2, where="runs/a, update 3")
    assert str(caught.value) == "runs/a, update 3, task 't': there is no rollout 2; there are 0, 1"


def test_a_steps_credit_is_explained_to_the_bit(run: RunFolder) -> None:
    for group in read_groups(run, 6)[:2]:
        for rollout in group.rollouts:
            for step in rollout.steps:
                explanation = explain_run_step(run, number=6, task=group.task, rollout=rollout.rollout, step=step.step)
                assert explanation.recorded == step.credit
                assert explanation.explanation.value == step.credit
                assert explanation.agrees


def test_credit_from_elsewhere_is_explained_and_does_not_agree(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=0)
    trajectories = play_update(1, tasks=1, rollouts=4, skill=0.4)
    shaped = [[value + 0.25 for value in values] for values in credit_of(methods.hgpo(), trajectories)]
    with Journal(folder / "journal.sqlite") as journal:
        journal.write(Update(number=1, version=1, metrics={}, trajectories=trajectories, credit=shaped))
    with RunFolder(folder) as run:
        explanation = explain_run_step(run, number=1, task=trajectories[0].task.id, rollout=0, step=0)
    assert not explanation.agrees
    assert explanation.recorded - explanation.explanation.value == pytest.approx(0.25, abs=1e-12)
    assert explanation.gap == pytest.approx(0.25 / max(1.0, abs(explanation.explanation.value)), abs=1e-12)


def test_goals_come_from_the_environment() -> None:
    task = ENV.task_set("test")[0]
    goal = GoalLookup(ENV).find(task.id)
    assert goal == TaskGoal(text=ENV.open(task).observe().goal, tags=task.tags, instruction=ENV.instruction())
    assert goal.text
    nothing = TaskGoal(text="", tags=())
    assert GoalLookup(ENV).find("no-such-task") == nothing
    assert GoalLookup(None).find(task.id) == nothing


def test_an_environment_that_fails_knows_no_goals() -> None:
    class Broken:
        def task_set(self, split: str) -> object:
            raise OSError("the data set is not there")

    assert GoalLookup(Broken()).find("t") == TaskGoal(text="", tags=())  # type: ignore[arg-type]


def test_update_lines_say_what_the_metrics_say(run: RunFolder) -> None:
    lines = read_update_lines(run)
    assert [line.number for line in lines] == [1, 2, 3, 4, 5, 6]
    for line in lines:
        assert line.success == run.metrics["rollout/success"][line.number]
        assert line.loss == run.metrics["loss/total"][line.number]
        stages = [curve[line.number] for name, curve in run.metrics.items() if name.startswith("seconds/")]
        assert line.seconds == pytest.approx(sum(stages))
    whole = sum_stage_seconds(run)
    assert list(whole) == sorted(whole, key=lambda name: -whole[name])
    assert whole["advantages"] == pytest.approx(0.12)


def test_success_is_unknown_where_the_environment_does_not_say(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=0)
    trajectories = [replace(trajectory, scores={}) for trajectory in play_update(1, tasks=1, rollouts=2, skill=0.4)]
    with Journal(folder / "journal.sqlite") as journal:
        metrics = {"rollout/success": 0.0, "rollout/return": 1.0}
        credit = credit_of(methods.hgpo(), trajectories)
        journal.write(Update(number=1, version=1, metrics=metrics, trajectories=trajectories, credit=credit))
    with RunFolder(folder) as run:
        (line,) = read_update_lines(run)
    assert (line.success, line.returned, line.loss, line.seconds) == (None, 1.0, None, None)


def test_groups_are_counted_update_by_update(run: RunFolder) -> None:
    counts = count_groups(run)
    assert [count.number for count in counts] == [1, 2, 3, 4, 5, 6]
    for count in counts:
        equal = sum(group.spread == 0.0 for group in read_groups(run, count.number))
        assert count == GroupCounts(number=count.number, groups=4, equal=equal, rollouts=16)
        assert (count.equal_share, count.mean_size) == (equal / 4, 4.0)


def test_responses_are_decoded_with_the_runs_own_tokenizer(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    assert make_response_decoder(tmp_path) is None
    words = {"[UNK]": 0, "<think>": 1, "go": 2, "north": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    (tmp_path / "checkpoints" / "0003").mkdir(parents=True)
    (tmp_path / "checkpoints" / "latest").write_text("0003\n")
    assert make_response_decoder(tmp_path) is None
    tokenizer.save(str(tmp_path / "checkpoints" / "0003" / "tokenizer.json"))
    decode = make_response_decoder(tmp_path)
    assert decode is not None
    assert decode([1, 2, 3]) == "<think> go north"
