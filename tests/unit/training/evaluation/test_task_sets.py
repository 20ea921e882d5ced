"""Several task sets in one evaluation: settings, limits, scores, the journal, and what reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import pytest

pytest.importorskip("torch")

from groupwise import ConfigError, Task, Trajectory
from groupwise.envs import Identity
from groupwise.envs.mixture import Mixture
from groupwise.learner.protocol import hash_weights
from groupwise.parts.slots import CAPABILITIES, REFUSED_SAMPLING
from groupwise.store.journal import Journal
from groupwise.store.run_folder import RunPaths
from groupwise.training import LocalEngine
from groupwise.training.alarms import find_best_number, is_finished, is_out_of_patience
from groupwise.training.config.run_config import EvaluatedTaskSet, EvaluationConfig, RolloutConfig
from groupwise.training.evaluation.evaluate import evaluate_run
from groupwise.training.evaluation.summary import Evaluation, group_rows, make_verdict
from groupwise.training.loop import train
from groupwise.training.observer import RunObserver
from groupwise.training.open_run import open_run
from groupwise.training.trackers import Trackers
from tests.end_to_end import runs
from tests.unit.evaluations import make_evaluated
from tests.unit.training.evaluation.shelves import Shelves, evaluated


def test_a_task_set_takes_what_it_leaves_out_from_the_section() -> None:
    task_sets = (EvaluatedTaskSet(name="a"), EvaluatedTaskSet(name="b", split="validation", temperature=0, top_p=0.9))
    section = EvaluationConfig(tasks=7, rollouts=16, temperature=0.6, score="grade", task_sets=task_sets)
    first, second = section.by_name().values()
    assert list(section.by_name()) == ["a", "b"]
    assert section.main == "a"
    assert first == section.model_copy(update={"task_sets": ()})
    assert (second.split, second.tasks, second.rollouts, second.temperature) == ("validation", 7, 16, 0.0)
    assert (second.top_p, second.top_k, second.score, second.max_tokens) == (0.9, 0, "grade", None)


def test_without_task_sets_the_section_is_one() -> None:
    section = EvaluationConfig(split="validation")
    assert section.by_name() == {"validation": section}
    assert section.main == "validation"
    assert EvaluationConfig(tasks=0).by_name() == {}
    assert EvaluationConfig(tasks=0, task_sets=(EvaluatedTaskSet(name="a", tasks=3),)).by_name() == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task_sets": [{"name": "a"}, {"name": "a"}]}, "two task sets share a name (a, a); give each its own name"),
        ({"task_sets": [{"name": "a b"}]}, "evaluation.task_sets.0.name: "),
        ({"task_sets": [{"split": "test"}]}, "evaluation.task_sets.0.name: "),
        ({"task_sets": [{"name": "a", "top_p": 0}]}, "evaluation.task_sets.0.top_p: "),
        ({"top_k": -1}, "evaluation.top_k: "),
        ({"min_p": 0.1}, f"evaluation.min_p: {REFUSED_SAMPLING['min_p']}"),
        ({"task_sets": [{"name": "a", "min_p": 0.1}]}, REFUSED_SAMPLING["min_p"]),
    ],
)
def test_what_no_task_set_can_be_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    content = evaluated(task_sets=None).config()
    content["evaluation"] |= changes
    with pytest.raises(ConfigError) as caught:
        type(evaluated())(**content)
    assert said in str(caught.value)


def test_training_still_samples_from_the_whole_distribution() -> None:
    with pytest.raises(ConfigError, match=r"top_p: training samples from the whole distribution.*\[evaluation\]"):
        RolloutConfig(top_p=0.9)  # type: ignore[call-arg]


def score_by_hand(trajectories: Sequence[Trajectory]) -> float:
    by_task: dict[str, list[float]] = {}
    for trajectory in trajectories:
        by_task.setdefault(trajectory.task.id, []).append(float(trajectory.steps[-1].info.get("grade", 0.0)))
    return fmean(map(fmean, by_task.values()))


def test_the_score_is_the_mean_of_the_info_of_the_last_step_and_0_without(tmp_path: Path) -> None:
    run = open_run(evaluated(), tmp_path)
    evaluation = evaluate_run(run, seeds=(0, 1, 2), write=False)
    trajectories = evaluation.trajectories
    without = [trajectory for trajectory in trajectories if "grade" not in trajectory.steps[-1].info]
    assert 0 < len(without) < len(trajectories), "some end without a colour"
    assert evaluation.score == pytest.approx(score_by_hand(trajectories))
    assert 0 < evaluation.score < 1
    assert evaluation.score_interval is not None
    assert evaluation.score_interval[0] < evaluation.score < evaluation.score_interval[1]
    assert evaluation.outcome == pytest.approx(10 * evaluation.success), "the reward is something else"
    for category in evaluation.by_tag():
        own = [trajectory for trajectory in trajectories if category.name in trajectory.task.tags]
        assert category.score == pytest.approx(score_by_hand(own))
        assert category.tokens == fmean(sum(len(step.response_ids) for step in each.steps) for each in own)
        assert [line.k for line in category.pass_at] == [1, 2, 3, 4, 8, 9]
    assert [category.name for category in evaluation.by_tag()] == ["high", "low"]
    assert (evaluation.shown_k, evaluation.rollouts_per_task) == (3, 9)


def test_without_a_score_there_is_none_and_rollouts_with_an_error_have_none(tmp_path: Path) -> None:
    run = open_run(evaluated(task_sets=None, score=""), tmp_path)
    evaluation = evaluate_run(run, write=False)
    assert (evaluation.name, evaluation.score, evaluation.score_interval) == ("test", None, None)
    fault = make_evaluated(success=None, stop="error", task="b")
    summary = Evaluation.from_rows([make_evaluated(score=0.5), fault])
    assert (summary.score, summary.faults) == (0.5, 1)


def test_each_task_set_is_sampled_within_its_own_limits(tmp_path: Path) -> None:
    run = open_run(evaluated(), tmp_path)
    task_sets = run.config.evaluation.by_name()
    results = {
        name: evaluate_run(run, seeds=(0, 1), settings=settings, name=name, write=False)
        for name, settings in task_sets.items()
    }
    main, long, sure = results.values()
    assert [(each.name, each.split, each.tasks, each.rollouts) for each in results.values()] == [
        ("main", "test", 4, 24),
        ("long", "test", 6, 12),
        ("sure", "validation", 2, 8),
    ]
    assert max(row.steps for row in main.rows) == 2
    assert 2 < max(row.steps for row in long.rows) <= 5
    assert {len(step.response_ids) for each in main.trajectories for step in each.steps} == {1}
    assert max(len(step.response_ids) for each in long.trajectories for step in each.steps) == 3
    said = {each.task.id: set[tuple[Any, ...]]() for each in sure.trajectories}
    for each in sure.trajectories:
        said[each.task.id].add(tuple(step.response_ids for step in each.steps))
    assert {len(responses) for responses in said.values()} == {1}, "the most likely token, whatever the seed"
    assert len({each.steps[0].response_ids for each in main.trajectories}) > 1


def test_members_of_a_mixture_get_the_step_limit_too(tmp_path: Path) -> None:
    members = [{"name": "a", "env": Shelves()}, {"name": "b", "env": Identity(num_words=4, length=2)}]
    mixed = Mixture(members=members)  # type: ignore[arg-type]
    run = open_run(evaluated(task_sets=None, env=mixed, steps=6, max_tokens=2), tmp_path)
    evaluation = evaluate_run(run, seeds=range(4), write=False)
    assert 2 < max(row.steps for row in evaluation.rows if row.tags.startswith("a")) <= 6
    assert run.config.env == mixed


class Unable(LocalEngine):
    """The engine of this process, if it could not truncate."""

    gives: ClassVar[frozenset[str]] = frozenset(CAPABILITIES) - {"truncation"}


def rows_of(folder: Path) -> list[Any]:
    with Journal(RunPaths(folder).journal, read_only=True) as journal:
        return journal.evaluations()


def test_a_run_evaluates_all_of_them_and_its_journal_keeps_them_apart(tmp_path: Path) -> None:
    runs.run_to_end(tmp_path, evaluated(2))
    rows = rows_of(tmp_path)
    assert {(row.number, row.name, row.split) for row in rows} == {
        (number, name, split)
        for number in (0, 1, 2)
        for name, split in (("main", "test"), ("long", "test"), ("sure", "validation"))
    }
    assert all(row.score is not None for row in rows)
    verdict = make_verdict(rows, "long")
    assert (verdict.name, verdict.split, len(verdict.scores)) == ("long", "test", 3)
    assert is_finished(tmp_path, evaluated(2))
    with Journal(RunPaths(tmp_path).journal) as journal:
        journal.write_evaluation([replace(row, success=0.0) for row in rows if (row.number, row.name) == (2, "sure")])
        assert [row for row in journal.evaluations() if row.name != "sure"] == [r for r in rows if r.name != "sure"]


class StopsAfter(RunObserver):
    """Ends the run after so many evaluations, as a kill would."""

    def __init__(self, num: int) -> None:
        self.left = num

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.parametrize("num", [1, 2, 4, 6])
def test_a_run_that_is_stopped_between_task_sets_resumes_to_the_bit(tmp_path: Path, num: int) -> None:
    whole = runs.run_to_end(tmp_path / "whole", evaluated(2))
    with open_run(evaluated(2), tmp_path / "parted") as run, pytest.raises(KeyboardInterrupt):
        train(run, observers=[StopsAfter(num)])
    assert len({(row.number, row.name) for row in rows_of(tmp_path / "parted")}) == num
    assert not is_finished(tmp_path / "parted", evaluated(2))
    parted = runs.run_to_end(tmp_path / "parted", evaluated(2), resume=True)
    assert rows_of(tmp_path / "parted") == rows_of(tmp_path / "whole")
    assert hash_weights(parted.learner.weights()) == hash_weights(whole.learner.weights())


def test_the_first_decides_which_checkpoint_is_the_best_and_when_patience_ends() -> None:
    settings = EvaluationConfig(
        patience=2, every=1, task_sets=(EvaluatedTaskSet(name="main"), EvaluatedTaskSet(name="other"))
    )
    wins = {"main": [0.0, 1.0, 0.0, 0.0], "other": [0.0, 0.0, 1.0, 1.0]}
    rows = [
        make_evaluated(number=number, name=name, success=success)
        for name, successes in wins.items()
        for number, success in enumerate(successes)
    ]
    assert find_best_number(rows, settings) == 1
    assert is_out_of_patience(rows, settings)
    swapped = settings.model_copy(update={"task_sets": settings.task_sets[::-1]})
    assert find_best_number(rows, swapped) == 2
    assert not is_out_of_patience(rows, swapped)


class Recorder:
    """A tracker that keeps what it gets."""

    run_id = "one"

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, float]]] = []

    def log(self, number: int, metrics: Any) -> None:
        self.logged.append((number, dict(metrics)))

    def finish(self) -> None: ...


def log_evaluations(config: Any, folder: Path, rows: Sequence[Any]) -> Recorder:
    recorder = Recorder()
    trackers = Trackers([], config.config(), folder)
    trackers._live, trackers._marks = {"it": recorder}, {"it": {}}  # type: ignore[dict-item]
    for _, of_one in group_rows(rows, lambda row: [(row.number, row.name)]):
        for _ in range(2):  # the second time it was sent already
            trackers.on_evaluation(Evaluation.from_rows(of_one))
    return recorder


def test_trackers_get_every_task_set_once_and_by_category(tmp_path: Path) -> None:
    rows = [
        make_evaluated(number=0, name=name, tags="low", tokens=4, score=0.5, rollout=rollout, success=float(rollout))
        for name in ("main", "long")
        for rollout in (0, 1)
    ]
    (_, long), (_, main) = log_evaluations(evaluated(), tmp_path, rows).logged
    assert main["evaluation/main/success"] == 0.5
    assert main["evaluation/main/pass_at_2"] == 1.0
    assert main["evaluation/main/score"] == main["evaluation/main/low/score"] == 0.5
    assert long["evaluation/long/tokens"] == long["evaluation/long/low/tokens"] == 4
    plain = log_evaluations(evaluated(task_sets=None), tmp_path, rows[:2]).logged
    assert [sorted(metrics) for _, metrics in plain] == [
        [
            *("evaluation/pass_at_2", "evaluation/score", "evaluation/steps", "evaluation/success"),
            *("evaluation/success_high", "evaluation/success_low", "evaluation/tokens"),
        ]
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"score": "grad"},
            "evaluation: score = 'grad' is no step info of the environment; did you mean 'grade'? Valid: grade, note",
        ),
        (
            {"task_sets": [{"name": "a", "steps": 9}]},
            "evaluation.task_sets (a): steps = 9, but Shelves: max_steps: expected a number less than or equal to 6",
        ),
        (
            {"top_p": 0.9},
            "evaluation: top_p and top_k ask for samples of the most likely tokens only (top_p, top_k), which the "
            "engine Unable does not give; leave them out, or use an engine that does",
        ),
        (
            {"task_sets": [{"name": "a", "top_k": 3}]},
            "evaluation.task_sets (a): top_p and top_k ask for samples of the most likely tokens only",
        ),
    ],
)
def test_what_environment_or_engine_cannot_do_is_refused_before_a_model_loads(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    config = evaluated(**{"task_sets": None, **changes})

    with pytest.raises(ConfigError) as caught:
        open_run(config.model_copy(update={"engine": Unable()}), tmp_path)
    assert said in str(caught.value)


def test_a_split_without_tasks_is_told_with_the_name_of_the_task_set(tmp_path: Path) -> None:
    class Untested(Shelves):
        def task_set(self, split: str) -> tuple[Task, ...]:
            return () if split == "validation" else super().task_set(split)

    with pytest.raises(ConfigError) as caught:
        open_run(evaluated().model_copy(update={"env": Untested()}), tmp_path)
    assert str(caught.value).startswith("evaluation.task_sets (sure).split: Untested")


def test_an_environment_without_the_setting_has_no_other_step_limit(tmp_path: Path) -> None:
    class Fixed(Shelves):
        max_steps: Any = property(lambda self: 2)  # type: ignore[assignment]

    del Fixed.model_fields["max_steps"]
    config = evaluated(task_sets=None, steps=4).model_copy(update={"env": Fixed()})
    with pytest.raises(ConfigError, match=r"^evaluation: steps = 4, but Fixed.* has no setting max_steps$"):
        open_run(config, tmp_path)


def test_a_score_that_is_no_number_is_told_with_the_rollout(tmp_path: Path) -> None:
    run = open_run(evaluated(task_sets=None, score="note"), tmp_path)
    with pytest.raises(ConfigError, match=r"^evaluation\.score: the step info 'note' of .* is 'a word'; name one that"):
        evaluate_run(run, write=False)


def test_limits_that_leave_no_room_for_a_prompt_are_refused(tmp_path: Path) -> None:
    config = evaluated(task_sets=[{"name": "a", "max_tokens": 10**6}])
    with pytest.raises(ConfigError) as caught:
        open_run(config, tmp_path)
    assert str(caught.value).startswith(
        "evaluation.task_sets (a).max_tokens: 1000000 response tokens leave no room for a prompt in the engine's "
    )


def test_only_some_tasks_can_be_evaluated(tmp_path: Path) -> None:
    run = open_run(evaluated(), tmp_path)
    ids = [task.id for task in run.config.env.task_set("test")][4:]
    evaluation = evaluate_run(run, only=ids, write=False)
    assert {row.task for row in evaluation.rows} == set(ids), "also beyond the first `tasks`"
    with pytest.raises(ConfigError, match="an evaluation needs tasks and seeds"):
        evaluate_run(run, only=["nowhere"], write=False)
