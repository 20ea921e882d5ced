"""Measuring before credit: info go onto steps and into the table, tools ask engine and learner, costs are counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from groupwise import ConfigError, Part, RecordError, Step, StepTable, Task, Trajectory, methods
from groupwise.credit import ByTask, ColumnSignal, ReferenceKl, Relative
from groupwise.data.step_columns import make_rows
from groupwise.parts.algorithm import Algorithm
from groupwise.report.derived_credit import make_step_table
from groupwise.rollout.judges import PhraseJudge
from groupwise.rollout.scorers import JudgeScore, ReferenceScore
from groupwise.training.collect.collect import collect_update
from groupwise.training.collect.measuring import RunTools, add_info
from groupwise.training.config.run_config import EvaluationConfig, RolloutConfig, RunConfig
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from tests.end_to_end import runs
from tests.end_to_end.runs import run_to_end


def config(updates: int, algorithm: Algorithm, *, checkpoint_every: int = 2) -> RunConfig:
    """Eight rollouts at each of two tasks, and no evaluation."""
    few = RolloutConfig(max_tokens=1, group_size=8)
    base = runs.config(updates, checkpoint_every=checkpoint_every, rollout=few, evaluation=EvaluationConfig(tasks=0))
    return base.model_copy(update={"algorithm": algorithm})


STEPS = (Step(index=0, info={"old": 1}), Step(index=1))
GROUPS = [[Trajectory(id="0", task=Task(id="q"), rollout=0, steps=STEPS)]]
PART = ReferenceScore()


def test_info_are_added_to_those_that_a_step_has() -> None:
    ((measured,),) = add_info(PART, GROUPS, [[[{"probe": 0.5}, {}]]])
    assert [step.info for step in measured.steps] == [{"old": 1, "probe": 0.5}, {}]
    assert measured.steps[1] is STEPS[1]


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ([], "the scorer ReferenceScore returned info for 0 of 1 groups; return a list of groups of rollouts of steps"),
        ([[]], "the scorer ReferenceScore returned info for 0 of 1 rollouts of a group; return"),
        ([[[{}]]], "the scorer ReferenceScore returned info for 1 of 2 steps of a rollout; return"),
        ([{"probe": 1}], "the scorer ReferenceScore returned info for dict of 1 rollouts of a group; return"),
        (
            [[[{"probe": float("nan")}, {}]]],
            "task 'q', rollout 0, step 0: the scorer ReferenceScore returned {'probe': nan}; step info holds finite",
        ),
        (
            [[[{"probe": np.float32(0.5)}, {}]]],
            "task 'q', rollout 0, step 0: the scorer ReferenceScore returned {'probe': np.float32(0.5)}; step info "
            "holds finite Python numbers (float(value) of NumPy's)",
        ),
        ([[[0.5, {}]]], "task 'q', rollout 0, step 0: the scorer ReferenceScore returned 0.5; step info holds"),
        (
            [[[{"old": 2}, {}]]],
            "task 'q', rollout 0, step 0: the scorer ReferenceScore returned 'old', a name that",
        ),
        ([[[{}, {"reward": 2}]]], "task 'q', rollout 0, step 1: the scorer ReferenceScore returned 'reward', a "),
        ([[[{}, {"trains": 2}]]], "task 'q', rollout 0, step 1: the scorer ReferenceScore returned 'trains', a "),
    ],
)
def test_info_that_do_not_fit_name_the_measure_and_the_place(info: Any, said: str) -> None:
    with pytest.raises(RecordError) as raised:
        add_info(PART, GROUPS, info)
    assert str(raised.value).startswith(said)


def test_info_are_columns_of_the_table_and_come_back_from_rows() -> None:
    steps = (Step(index=0, info={"probe": 0.5}), Step(index=1, info={"word": "door"}))
    trajectories = [Trajectory(id="0", task=Task(id="q"), rollout=0, steps=steps)]
    made = StepTable.from_trajectories(trajectories)
    assert made.column("probe").tolist() == [0.5, None]
    again = make_step_table([row for trajectory in trajectories for row in make_rows(trajectory)])
    assert again.column("probe").tolist() == [0.5, None]
    assert again.column("word").tolist() == [None, "door"]
    assert "probe" not in StepTable.from_trajectories(GROUPS[0]).extra


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return open_run(config(1, methods.dr_grpo()), tmp_path)


def test_tools_ask_the_runs_engine_and_count_what_they_ask(run: Run) -> None:
    tools = RunTools(run, 1)
    pairs = [((2, 4), (5, 6)), ((2,), (5,))]
    (first, second) = tools.score(pairs)
    assert [len(first), len(second)] == [2, 1]
    assert (first, second) == tuple(run.engine.score(pairs, temperature=1.0))
    assert tools.score(pairs, temperature=2.0)[0] == run.engine.score(pairs, temperature=2.0)[0]
    assert [states.shape for states in tools.hidden(pairs)] == [(2, 32), (1, 32)]
    assert tools.cost() == {
        "scorers/read_tokens": 18.0,
        "scorers/sampled_tokens": 0.0,
        "scorers/questions": 0.0,
    }


class Reads(Part, slot="scorer"):
    """Writes the log-prob of each response down, by the policy that sampled it."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"score"})

    def __call__(self, groups: Any, tools: Any, *, draw: Any) -> list[Any]:
        return [
            [[{"scored": sum(tools.score([(s.prompt_ids, s.response_ids)])[0])} for s in t.steps] for t in group]
            for group in groups
        ]


class Undeclared(Reads):
    """Asks for what it does not say that it needs."""

    ask: str

    def __call__(self, groups: Any, tools: Any, *, draw: Any) -> list[Any]:
        pairs = [((2, 4), (5,))]
        if self.ask == "reference":
            return [tools.score(pairs, weights="reference")]
        return [getattr(tools, self.ask)([])]


@pytest.mark.parametrize("need", ["generate", "reference", "hidden", "judge"])
def test_a_tool_that_a_measure_does_not_declare_is_refused(tmp_path: Path, need: str) -> None:
    algorithm = Algorithm(**methods.dr_grpo().config() | {"scorers": (Undeclared(ask=need),)})
    with pytest.raises(ConfigError) as raised:
        collect_update(open_run(config(1, algorithm), tmp_path), 1)
    assert str(raised.value) == (
        f"algorithm.scorers: Undeclared(ask='{need}') used '{need}' without declaring it; add '{need}' to its `needs`"
    )


def test_the_policy_that_is_scored_is_the_one_that_sampled(tmp_path: Path) -> None:
    algorithm = Algorithm(**methods.dr_grpo().config() | {"scorers": (Reads(),)})
    run = open_run(config(1, algorithm), tmp_path)
    rollouts = collect_update(run, 1)
    for trajectory in rollouts.chosen:
        for step in trajectory.steps:
            assert step.info["scored"] == pytest.approx(sum(step.logp_behaviour), abs=1e-4)
    assert rollouts.scorer_costs["scorers/read_tokens"] > 0


def test_a_kl_in_the_reward_is_0_at_the_start_and_grows_with_the_policy(tmp_path: Path) -> None:
    base = methods.dr_grpo().config()
    algorithm = Algorithm(**base | {"scorers": (ReferenceScore(),), "shapers": (ReferenceKl(weight=0.5),)})
    run = run_to_end(tmp_path, config(3, algorithm))
    shaped = []
    for number in (1, 2, 3):
        rows = [row for trajectory in run.journal.trajectories(number) for row in trajectory["steps"]]
        for row in rows:
            taken = -0.5 * (sum(row["logp_behaviour"]) - row["extra"]["reference_logp"])
            assert row["reward"] == pytest.approx(row.get("reward_alone", row["reward"] - taken) + taken, abs=1e-9)
        shaped.append(np.mean([abs(sum(row["logp_behaviour"]) - row["extra"]["reference_logp"]) for row in rows]))
    assert shaped[0] < 1e-5
    assert shaped[2] > shaped[1] > 1e-3


def test_a_resumed_run_measures_against_the_same_reference(tmp_path: Path) -> None:
    base = methods.dr_grpo().config()
    algorithm = Algorithm(**base | {"scorers": (ReferenceScore(),), "shapers": (ReferenceKl(weight=0.5),)})
    whole = run_to_end(tmp_path / "whole", config(2, algorithm, checkpoint_every=1))
    run_to_end(tmp_path / "parted", config(1, algorithm, checkpoint_every=1))
    parted = run_to_end(tmp_path / "parted", config(2, algorithm, checkpoint_every=1), resume=True)
    first, second = (
        [(trajectory["steps"], trajectory["credit"]) for trajectory in run.journal.trajectories(2)]
        for run in (whole, parted)
    )
    assert first == second


def test_a_judge_gives_credit(tmp_path: Path) -> None:
    estimator = Relative(by=ByTask(), of=ColumnSignal(name="judge_score"))
    algorithm = Algorithm(
        advantage=estimator,
        loss=methods.dr_grpo().loss,
        scorers=(JudgeScore(),),
        judge=PhraseJudge(phrases=(("a", 1.0),)),
    )
    run = run_to_end(tmp_path, config(1, algorithm))
    (asked,) = (value for _, value in run.journal.curve("scorers/questions"))
    rows = [row for trajectory in run.journal.trajectories(1) for row in trajectory["steps"]]
    assert asked == len(rows)
    assert {row["extra"]["judge_score"] for row in rows} <= {0.0, 1.0}
