"""Credit computed again from a journal's rows: the same number to the bit, and who was compared with whom."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from groupwise import Algorithm, Step, StepTable, Task, Trajectory, methods
from groupwise.data.step_columns import make_rows
from groupwise.report.derived_credit import (
    ComparisonGroup,
    DerivedCredit,
    UnderivableCredit,
    derive_credit,
    describe_company,
    make_step_table,
)
from groupwise.report.explain import explain_step
from groupwise.training.samples import credit_batch
from tests.oracles.variants import WITHOUT_INFO
from tests.unit.report.run_folders import credit_of, play_update

HOUSEHOLD = play_update(1, tasks=3, rollouts=4, skill=0.4)


def make_records(trajectories: Sequence[Trajectory], credit: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Trajectories as `Journal.trajectories` gives them: through JSON, where tuples become lists."""
    return [
        {"steps": json.loads(json.dumps(list(make_rows(trajectory)))), "credit": list(values)}
        for trajectory, values in zip(trajectories, credit, strict=True)
    ]


def why_not(derived: DerivedCredit | UnderivableCredit) -> str:
    """Why credit does not derive again."""
    assert isinstance(derived, UnderivableCredit)
    return derived.reason


def walk(rollout: int, *states: Any, reward: float = 0.0) -> Trajectory:
    steps = tuple(
        Step(index=i, state_key=state, reward=reward if i == len(states) - 1 else 0.0, role="cook" if i % 2 else "maid")
        for i, state in enumerate(states)
    )
    return Trajectory(id=f"t/{rollout}", task=Task(id="t"), rollout=rollout, steps=steps)


@pytest.mark.parametrize("name", [name for name in methods.names() if name != "mars"])
def test_every_method_gives_the_rows_the_credit_of_their_trajectories(name: str) -> None:
    algorithm = methods.build(name, **WITHOUT_INFO.get(name, {}))
    trajectories = [
        replace(one, steps=tuple(replace(step, info={"critic_value": step.index / 8}) for step in one.steps))
        for one in HOUSEHOLD
    ]
    again = DerivedCredit.compute(make_records(trajectories, credit_of(algorithm, trajectories)), algorithm)
    assert again.credit.values.tolist() == again.recorded
    assert again.agrees
    expected = algorithm.advantage(StepTable.from_trajectories(trajectories))
    assert again.credit.compared.tolist() == expected.compared.tolist()


def test_roles_and_states_that_are_tuples_come_back() -> None:
    trajectories = [walk(0, ("a", 1), ("b", 2), reward=1.0), walk(1, ("a", 1), ("c", 3)), walk(2, ("a", 1), ("b", 2))]
    for algorithm in (methods.mars(), methods.gigpo()):
        again = DerivedCredit.compute(make_records(trajectories, credit_of(algorithm, trajectories)), algorithm)
        assert again.credit.values.tolist() == again.recorded
    table = make_step_table([row for record in make_records(trajectories, [[]] * 3) for row in record["steps"]])
    assert table.state_keys[table.state[0]] == '["a",1]'
    assert table.extra["role"].tolist() == ["maid", "cook"] * 3


def cut_off(rollout: int, reward: float, tokens: int, *, cut: bool = False, version: int = 4) -> Trajectory:
    step = Step(index=0, reward=reward, response_ids=(3,) * tokens, cut=cut)
    return Trajectory(id=f"t/{rollout}", task=Task(id="t"), rollout=rollout, steps=(step,), versions=(version,))


@pytest.mark.parametrize("filters", [("overlong_mask",), ({"kind": "staleness", "max_staleness": 0},)])
def test_what_the_filters_drop_counts_no_more_than_it_did_in_training(filters: tuple[Any, ...]) -> None:
    """Right, right, wrong on a token each, and a wrong one of 100 tokens, old and cut off, that does not train.

    Mean 2/3, variance 1/3, so 1/3 and -2/3 over sqrt(1/3): 0.57735 and -1.1547.
    """
    trajectories = [
        cut_off(0, 1.0, 1),
        cut_off(1, 1.0, 1),
        cut_off(2, 0.0, 1),
        cut_off(3, 0.0, 100, cut=True, version=3),
    ]
    algorithm = Algorithm(advantage=methods.reinforce_pp().advantage, filters=filters)
    trained = credit_batch(algorithm, trajectories, version=4)
    assert trained.values.tolist() == pytest.approx([0.57735, 0.57735, -1.1547, -1.1547], abs=1e-4)
    assert trained.keep.tolist() == [True, True, True, False]
    records = [
        record | {"number": 5} for record in make_records(trajectories, [[value] for value in trained.values.tolist()])
    ]
    again = derive_credit(records, algorithm)
    assert isinstance(again, DerivedCredit)
    assert again.credit.values.tolist() == trained.values.tolist()
    explained = [explain_step(again.table, again.credit, task="t", rollout=rollout, step=0) for rollout in range(4)]
    assert max(explanation.largest_gap() for explanation in explained) <= 1e-12


def test_company_counts_the_members_of_every_group() -> None:
    # State s begins all three rollouts; m follows it in two, n in one; then m again, with other histories.
    trajectories = [walk(0, "s", "m"), walk(1, "s", "m", reward=1.0), walk(2, "s", "n", "m")]
    algorithm = methods.hgpo(depth=1)
    again = DerivedCredit.compute(make_records(trajectories, credit_of(algorithm, trajectories)), algorithm)
    state, history = ("state", "state and 1 before")
    first = (ComparisonGroup(by=state, members=3), ComparisonGroup(by=history, members=0))
    second = (ComparisonGroup(by=state, members=3), ComparisonGroup(by=history, members=2))
    alone = (ComparisonGroup(by=state, members=1), ComparisonGroup(by=history, members=1))
    last = (ComparisonGroup(by=state, members=3), ComparisonGroup(by=history, members=1))
    assert again.find_peers() == [first, second, first, second, first, alone, last]


def test_company_of_ones_own_rollout_is_told_from_that_of_others() -> None:
    """State b is met twice, by one rollout alone; both rollouts begin in a."""
    trajectories = [walk(0, "a", "b", "b", reward=1.0), walk(1, "a", "c", "d")]
    algorithm = methods.hgpo(depth=0)
    again = DerivedCredit.compute(make_records(trajectories, credit_of(algorithm, trajectories)), algorithm)
    words = [
        "1 other by state",
        *["1 other by state (its own rollout only)"] * 2,
        "1 other by state",
        *["no other step"] * 2,
    ]
    assert [describe_company(company) for company in again.find_peers()] == words
    assert again.find_own_rollout_only() == [False, True, True, False, False, False]


def test_company_in_words() -> None:
    company = [
        ComparisonGroup(by="task", members=1),
        ComparisonGroup(by="state", members=2),
        ComparisonGroup(by="ByRole", members=5),
    ]
    assert describe_company(company) == "1 other by state, 4 others by ByRole"
    assert describe_company(company[:1]) == "no other step"


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [(methods.grpo(), "task"), (methods.step_grpo(), "state"), (methods.mars(), "ByPlayer")],
)
def test_what_a_group_shares_is_said_in_words(algorithm: Algorithm, words: str) -> None:
    trajectories = [walk(0, "s", "m", reward=1.0), walk(1, "s", "m")]
    again = DerivedCredit.compute(make_records(trajectories, credit_of(algorithm, trajectories)), algorithm)
    assert words in {level.by for company in again.find_peers() for level in company}


def test_credit_that_is_not_the_journals_is_not_taken_for_it() -> None:
    algorithm = methods.grpo()
    right = credit_of(algorithm, HOUSEHOLD)
    wrong = [[value + 1e-6 for value in values] for values in right]
    assert isinstance(derive_credit(make_records(HOUSEHOLD, right), algorithm), DerivedCredit)
    assert why_not(derive_credit(make_records(HOUSEHOLD, wrong), algorithm)) == (
        "computed again, the numbers differ by up to 1e-06"
    )
    assert why_not(derive_credit(make_records(HOUSEHOLD, right), None)) == "the run's algorithm cannot be read here"
    assert why_not(derive_credit([], algorithm)) == "it has no steps"


def test_rows_that_make_no_table_have_no_credit() -> None:
    records = make_records(HOUSEHOLD, credit_of(methods.grpo(), HOUSEHOLD))
    records[0]["steps"][0]["reward"] = float("nan")
    assert why_not(derive_credit(records, methods.grpo())).startswith(
        "column 'reward', row 0: found nan; drop the rollout"
    )
