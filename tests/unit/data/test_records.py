"""Records: tasks named by their content, steps that refuse nonsense, trajectories laid out as columns."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from groupwise import Origin, RecordError, Step, StepTable, StopReason, Task, Trajectory, methods
from groupwise.data.records import check_steps

TASK = Task(id="t")


def rollout(number: int, *steps: Step, outcome: float | None = None, name: str = "") -> Trajectory:
    return Trajectory(id=name or f"r{number}", task=TASK, rollout=number, steps=steps, outcome=outcome)


def test_a_task_id_is_a_digest_of_its_content() -> None:
    # sha256 of {"env": "lookup", "payload": {"question": "2+2"}, "seed": 7, "split": "train"}, first 16 digits.
    task = Task.create(env="lookup", split="train", seed=7, payload={"question": "2+2"})
    assert task.id == "lookup-train-2bd06af8f1635a8c"


def test_the_order_of_the_payload_and_the_tags_do_not_change_a_task_id() -> None:
    first = Task.create(env="e", payload={"a": 1, "b": 2}, tags=["easy"])
    second = Task.create(env="e", payload={"b": 2, "a": 1})
    assert first.id == second.id
    assert first.tags == ("easy",)


@pytest.mark.parametrize("change", [{"env": "f"}, {"split": "test"}, {"seed": 1}, {"payload": {"a": 2}}])
def test_every_other_field_changes_a_task_id(change: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"env": "e", "split": "train", "seed": 0, "payload": {"a": 1}}
    assert Task.create(**(fields | change)).id != Task.create(**fields).id


def test_a_task_without_a_split_leaves_it_out_of_its_name() -> None:
    task = Task.create(env="e")
    assert task.id.startswith("e-")
    assert task.id.count("-") == 1
    assert task.payload == {}


def test_a_negative_step_index_is_refused() -> None:
    with pytest.raises(RecordError) as caught:
        check_steps([Step(index=-1)])
    assert str(caught.value) == "the step number is -1; count steps from 0"


@pytest.mark.parametrize("name", ["logp_behaviour", "entropy"])
def test_numbers_per_token_must_match_the_sampled_tokens(name: str) -> None:
    with pytest.raises(RecordError) as caught:
        check_steps([Step(index=3, response_ids=(5, 9), **{name: (-0.1,)})])
    assert str(caught.value) == (f"step 3: {name} has 1 entries for 2 sampled tokens; record one per token, or none")


def test_numbers_per_token_may_be_left_out() -> None:
    step = Step(index=0, response_ids=(5, 9), logp_behaviour=(-0.1, -2.3))
    assert step.entropy == ()


def test_records_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        TASK.id = "u"  # type: ignore[misc]


def test_reasons_and_origins_are_plain_words() -> None:
    assert [reason.value for reason in StopReason] == ["terminated", "truncated", "invalid", "error", "timeout"]
    assert [origin.value for origin in Origin] == ["fresh", "replayed", "reflected", "hinted", "branched"]


def test_trajectories_become_one_row_a_step() -> None:
    first = rollout(
        1, Step(index=0, state_key="s", action="go"), Step(index=1, reward=2.0, state_key="e", accepted=False)
    )
    table = StepTable.from_trajectories([first, rollout(0, Step(index=0, state_key="s", reward=1.0, branch="b"))])
    assert table.task_ids == ["t"]
    assert table.rollout_ids == [0, 1]
    assert table.reward.tolist() == [1, 0, 2]
    assert table.state_keys == ["s", "e"]
    assert table.step_of_row.tolist() == [1, 2, 0]
    assert table.extra["action"].tolist() == [None, "go", None]
    assert table.extra["well_formed"].tolist() == [True, True, True]
    assert table.extra["accepted"].tolist() == [True, True, False]
    assert table.extra["valid"].tolist() == [True, True, False]
    assert table.extra["branch"].tolist() == ["b", None, None]
    assert table.extra["stop"].tolist() == ["terminated", None, "terminated"]
    assert table.extra["cut"].tolist() == [False] * 3
    assert set(table.extra) == {"action", "well_formed", "accepted", "valid", "branch", "cut", "stop"}


def test_a_role_on_any_step_makes_the_column() -> None:
    table = StepTable.from_trajectories([rollout(0, Step(index=0, role="solver"), Step(index=1))])
    assert table.extra["role"].tolist() == ["solver", None]


def test_sampled_tokens_are_counted_where_any_were_recorded() -> None:
    steps = (Step(index=0, response_ids=(1, 2, 3)), Step(index=1))
    assert StepTable.from_trajectories([rollout(0, *steps)]).tokens.tolist() == [3, 0]


def test_an_rollout_cut_into_two_trajectories_is_one_rollout() -> None:
    head = rollout(0, Step(index=0, reward=1.0), Step(index=1), name="head")
    tail = rollout(0, Step(index=2, reward=3.0), name="tail")
    other = rollout(1, Step(index=0), name="other")
    table = StepTable.from_trajectories([tail, other, head])
    assert table.episode_return.tolist() == [4, 4, 4, 0]
    # The return 4 against 0, mean 2, on all three steps.
    assert methods.dr_grpo().advantage(table).values.tolist() == [2, -2, 2, 2]


def test_outcomes_are_the_column_of_that_name() -> None:
    table = StepTable.from_trajectories([rollout(0, Step(index=0, reward=9.0), outcome=0.5)])
    assert table.episode_return.tolist() == [0.5]


def test_outcomes_on_some_trajectories_only_are_refused() -> None:
    with pytest.raises(RecordError) as caught:
        StepTable.from_trajectories(
            [rollout(0, Step(index=0), outcome=1.0), rollout(1, Step(index=0), name="unscored")]
        )
    assert str(caught.value) == ("trajectory 'unscored' has no outcome while others have one; set it on all or on none")


def test_an_rollout_cut_in_two_with_two_outcomes_is_refused() -> None:
    cut = [rollout(0, Step(index=i), outcome=float(i), name=f"part{i}") for i in range(2)]
    with pytest.raises(RecordError) as caught:
        StepTable.from_trajectories(cut)
    assert str(caught.value) == (
        "task 't', rollout 0, step 0: the rows of this rollout have different outcomes; give them all the same "
        "outcome, and put rewards of single steps into `reward`"
    )


def test_what_was_cut_off_and_why_rollouts_ended_are_columns() -> None:
    steps = (Step(index=0, cut=True), Step(index=1))
    limited = Trajectory(id="r", task=TASK, rollout=0, steps=steps, stop=StopReason.TRUNCATED)
    table = StepTable.from_trajectories([limited, rollout(1, Step(index=0))])
    assert table.column("cut").tolist() == [True, False, False]
    assert table.column("stop").tolist() == [None, "truncated", "terminated"]


def trajectory_by(number: int, *versions: int) -> Trajectory:
    return Trajectory(id=f"r{number}", task=TASK, rollout=number, steps=(Step(index=0),), versions=versions)


def test_the_age_of_an_rollout_counts_from_the_oldest_weights_that_sampled_it() -> None:
    table = StepTable.from_trajectories(
        [trajectory_by(0, 7), trajectory_by(1, 5, 6), trajectory_by(2, 4, 7)], version=7
    )
    assert table.column("age").tolist() == [0, 2, 3]


def test_without_a_version_there_is_no_age_and_the_error_says_how_to_get_one() -> None:
    table = StepTable.from_trajectories([trajectory_by(0, 7)])
    with pytest.raises(RecordError) as caught:
        table.column("age")
    assert str(caught.value) == (
        "the table has no column 'age', which this method reads; from_trajectories(..., version=...) makes it of "
        "`Trajectory.versions`, or pass it to from_columns(age=...). Valid: accepted, action, branch, cut, stop, ... "
        "(7 in all)"
    )


def test_where_some_rollout_has_no_versions_there_is_no_age() -> None:
    table = StepTable.from_trajectories([trajectory_by(0, 7), trajectory_by(1)], version=7)
    with pytest.raises(RecordError, match=r"makes it of `Trajectory\.versions`"):
        table.column("age")


def test_weights_that_are_newer_than_the_learner_are_refused() -> None:
    with pytest.raises(RecordError) as caught:
        StepTable.from_trajectories([trajectory_by(0, 9)], version=7)
    assert str(caught.value) == (
        "trajectory 'r0' was sampled by version 9, but `version` is 7, which is older; pass the version of the learner"
    )


def test_accuracy_is_the_score_of_that_name_where_all_rollouts_have_it() -> None:
    scored = [
        Trajectory(id=f"r{i}", task=TASK, rollout=i, steps=(Step(index=0, reward=0.5),), scores={"accuracy": float(i)})
        for i in range(2)
    ]
    assert StepTable.from_trajectories(scored).column("accuracy").tolist() == [0, 1]
    assert "accuracy" not in StepTable.from_trajectories([*scored, rollout(2, Step(index=0))]).extra


@pytest.mark.parametrize("name", ["reward", "trains", "off_policy", "age", "version", "episode_return"])
def test_info_with_names_that_are_taken_are_refused(name: str) -> None:
    steps = (Step(index=0), Step(index=1, info={name: 1}))
    with pytest.raises(RecordError) as caught:
        StepTable.from_trajectories([Trajectory(id="r0", task=TASK, rollout=0, steps=steps)])
    assert str(caught.value) == (
        f"task {TASK.id!r}, rollout 0, step 1: the info key {name!r} is the name of a column; rename it"
    )
