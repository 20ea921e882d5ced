"""The study: methods by name against the truth; theory that must come out, a planted bias that must be found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from groupwise import methods
from groupwise.credit import ByState, NoScale, Relative, ReturnToGo
from groupwise.data.credit import Comparison, Credit
from groupwise.data.step_table import StepTable
from groupwise.lab.recording import ListedTools, record_listed
from groupwise.lab.study import (
    ListedCondition,
    credit_recording,
    credit_update,
    list_algorithms,
    record_condition,
    study_recording,
)
from groupwise.lab.tabular import solve_exactly
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import Part
from groupwise.rollout.forks import Fork
from groupwise.system.errors import ConfigError
from groupwise.training.samples import credit_batch
from tests.unit.lab.listed_tasks import LAKE, list_tasks
from tests.unit.lab.traced import trace_rollout

CONDITION = ListedCondition(env=LAKE, tasks=3, updates=40, skill=1.5)


class TurnedAround(Part, slot="estimator"):
    """Dr. GRPO's credit with the sign turned around at even steps: the planted bias."""

    def __call__(self, table: StepTable) -> Credit:
        honest = methods.dr_grpo().advantage(table).by_step()
        turned = np.where(table.step % 2 == 0, -honest.values, honest.values)
        nothing = np.full(len(table), np.nan)
        trace = Comparison(
            values=turned,
            compared=np.ones(len(table), dtype=np.bool_),
            signal=table.episode_return,
            label=table.task,
            baseline=nothing,
            scale=nothing,
            part="turned around",
        )
        return Credit.of(table, trace)


@pytest.fixture(scope="module")
def recorded() -> Any:
    return record_condition(CONDITION)


def study(recorded: Any, algorithms: dict[str, Algorithm]) -> dict[str, Any]:
    recording, tools = recorded
    return study_recording(recording, algorithms, tools=tools)["methods"]


def test_a_planted_biased_estimator_is_found(recorded: Any) -> None:
    lines = study(recorded, {"honest": methods.dr_grpo(), "planted": Algorithm(advantage=TurnedAround())})
    assert lines["honest"]["misdirection"]["low"] < 0.05
    assert lines["planted"]["misdirection"]["low"] > 0.5
    assert lines["planted"]["error"]["low"] > lines["honest"]["error"]["high"]


def test_theory_comes_out(recorded: Any) -> None:
    """RLOO is right but for a baseline; returns-to-go compared state by state without a scale lose the baseline too."""
    # Compared at equal state, whatever the step: nearly, for the steps that are left differ.
    by_state = Algorithm(advantage=Relative(by=ByState(), of=ReturnToGo(gamma=1.0), scale=NoScale(), average="step"))
    lines = study(recorded, {"rloo": methods.rloo(), "by_state": by_state, "myopic": methods.step_grpo()})
    assert lines["rloo"]["misdirection"]["low"] <= 0 <= lines["rloo"]["misdirection"]["high"]
    assert lines["rloo"]["bias"]["low"] > 0.2
    assert lines["by_state"]["bias"]["high"] < lines["rloo"]["bias"]["low"]
    assert lines["myopic"]["misdirection"]["low"] > 0.3
    assert lines["myopic"]["noise"]["value"] < lines["rloo"]["noise"]["value"]


def test_credit_is_that_of_training(recorded: Any) -> None:
    recording, tools = recorded
    for name in ("gigpo", "hgpo", "salt", "reinforce_pp"):
        groups = recording.updates[0]
        trajectories = [rollout for group in groups for rollout in group]
        batch = credit_batch(methods.build(name), trajectories, version=0)
        assert credit_update(methods.build(name), groups, tools=tools, seed=0).tolist() == batch.values.tolist()


def test_what_does_not_train_has_no_credit(recorded: Any) -> None:
    recording, tools = recorded
    groups = recording.updates[0]
    values = credit_update(methods.mc_grpo(), groups, tools=tools, seed=0)
    rollouts = [rollout for group in groups for rollout in group]
    batch = credit_batch(methods.mc_grpo(), rollouts, version=0)
    assert (values[~batch.keep] == 0).all()
    assert (~batch.keep).any()


def test_token_credit_counts_where_there_was_a_choice(recorded: Any) -> None:
    recording, tools = recorded
    credit = credit_recording(methods.d3s(), recording, tools=tools)
    assert credit.level == "token"
    rollouts = [rollout for group in recording.updates[0] for rollout in group]
    batch = credit_batch(methods.d3s(), rollouts, version=0)
    assert batch.tokens is not None
    expected = [own.values[0] if own.trains[0] else 0.0 for own in batch.tokens]
    assert credit.values[: len(expected)].tolist() == expected


def test_levels_are_found(recorded: Any) -> None:
    lines = study(recorded, list_algorithms(["grpo", "gigpo", "dcpo", "dapo"]))
    assert [lines[name]["level"] for name in ("grpo", "gigpo", "dcpo")] == ["rollout", "step", "token"]
    assert lines["dapo"] == {"level": "rollout", "same_as": "grpo"}


def test_every_method_of_the_catalogue_has_a_line() -> None:
    recorded = record_condition(ListedCondition(env=LAKE, tasks=2, updates=4, rollouts=4))
    lines = study(recorded, list_algorithms())
    assert list(lines) == methods.names()
    unmeasured = {name: line["not_measured"] for name, line in lines.items() if "not_measured" in line}
    assert unmeasured["gardo"] == "ResponseEmbedding needs 'hidden', which the lab's policy does not have"
    assert not {"gigpo", "hgpo", "salt", "step_grpo", "mars", "dcpo", "after_webstar"} & set(unmeasured)


def test_running_it_twice_gives_the_same_numbers() -> None:
    condition = ListedCondition(env=LAKE, tasks=2, updates=6)

    def run(names: Sequence[str]) -> str:
        recording, tools = record_condition(condition)
        return json.dumps(study_recording(recording, list_algorithms(names), tools=tools))

    assert run(["grpo", "hgpo", "d3s"]) == run(["grpo", "hgpo", "d3s"])


def test_where_nothing_can_be_measured_the_study_says_so(recorded: Any) -> None:
    with pytest.raises(ConfigError, match="none of the chosen methods can be measured here"):
        study(recorded, list_algorithms(["prorag"]))


def test_continuations_of_a_table_are_worth_what_enumeration_says() -> None:
    tasks = list_tasks()
    recording, tools = record_listed(tasks, updates=1, rollouts=4, key="situation"), ListedTools(LAKE, tasks)
    by_task = {listed.task.id: listed for listed in tasks}
    for rollout in list(recording.rollouts)[:4]:
        listed = by_task[rollout.task.id]
        values = solve_exactly(listed.world, listed.policy).value
        keys = [step.state_key for step in rollout.steps]
        texts, actions = ([str(getattr(step, what)) for step in rollout.steps] for what in ("observation", "action"))
        states = trace_rollout(listed.world, keys=keys, texts=texts, actions=actions)
        for kept, state in enumerate(states):
            forks = [Fork(trunk=rollout, kept=kept, number=number, seed=number) for number in range(600)]
            played = tools.play_forks(forks)
            assert played[0].steps == rollout.steps[:kept]
            assert np.mean([rollout.scores["success"] for rollout in played]) == pytest.approx(
                values[kept, state], abs=0.08
            )


def test_a_prover_has_a_line_too(recorded: Any) -> None:
    lines = study(recorded, {"rloo": methods.rloo(), "pav": methods.pav()})
    assert lines["pav"]["level"] == "step"
    assert lines["pav"]["error"]["high"] < lines["rloo"]["error"]["low"]
