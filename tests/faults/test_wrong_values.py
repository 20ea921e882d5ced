"""Wrong types are faults of the environment that hands them over, with the field's name; the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from groupwise import StopReason, Task
from groupwise.data.step_table import StepTable
from groupwise.envs import Observation, Outcome
from groupwise.rollout.environment_runner import Fault, Host, InProcess, NoExpert
from groupwise.rollout.worker_pool import Workers
from groupwise.store.journal_file import pack_blob, unpack_blob
from tests.faults.wrong_values import MENDED, SEEN, WRONG, WrongValues
from tests.unit.rollout.troublesome import Troublesome
from tests.unit.rollout.troublesome import task as walk


@pytest.fixture(scope="module", params=["in process", "in a worker"])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    with (
        InProcess(WrongValues())
        if request.param == "in process"
        else Workers(WrongValues(), num=1, timeout=20.0) as opened
    ):
        yield opened


def task(**payload: Any) -> Task:
    return Task.create(env="wrong", split="train", payload=payload)


@pytest.mark.parametrize("action", WRONG)
def test_a_wrong_value_ends_its_own_rollout(host: Host, action: str) -> None:
    host.open({0: task(), 1: task()})
    fault = host.act({0: action, 1: "fine"})[0]
    assert isinstance(fault, Fault)
    assert fault.reason is StopReason.ERROR
    field, _ = WRONG[action]
    record = "Observation" if field in SEEN else "Outcome"
    assert fault.message.startswith(f"EnvironmentFault: {record}.{field} ")
    assert len(fault.message) <= 500
    fault.message.encode()
    assert isinstance(host.act({1: "fine"})[1], Outcome)


@pytest.mark.parametrize("action", [name for name, (field, _) in WRONG.items() if field in SEEN])
def test_the_first_observation_is_checked_as_the_others_are(host: Host, action: str) -> None:
    fault = host.open({0: task(first=action)})[0]
    assert isinstance(fault, Fault)
    assert fault.message.startswith(f"EnvironmentFault: Observation.{WRONG[action][0]} ")


@pytest.mark.parametrize("action", MENDED)
def test_what_can_be_made_plain_is(host: Host, action: str) -> None:
    host.open({0: task()})
    outcome = host.act({0: action})[0]
    assert isinstance(outcome, Outcome), outcome
    field, _, wanted = MENDED[action]
    value = getattr(outcome.observation if field in SEEN else outcome, field)
    assert repr(value) == repr(wanted), "of the very same types"


def test_messages_say_what_came_and_what_is_needed(host: Host) -> None:
    def message_of(action: str) -> str:
        host.open({0: task()})
        fault = host.act({0: action})[0]
        assert isinstance(fault, Fault)
        return fault.message

    assert message_of("reward, text") == (
        "EnvironmentFault: Outcome.reward is '1.0' (str); give a finite number of at most 1e+100"
    )
    assert message_of("terminated, text") == "EnvironmentFault: Outcome.terminated is 'False' (str); give True or False"
    assert message_of("success, NaN") == "EnvironmentFault: Outcome.success is nan (float); give True, False or None"
    assert message_of("key, touchy inside") == (
        "EnvironmentFault: Observation.state_key is a Touchy; give text, a finite number, True, False, None, or a "
        "tuple of these"
    )
    assert (
        message_of("key, long")
        == "EnvironmentFault: Observation.state_key has more than 262,144 characters; shorten it"
    )
    assert message_of("text, half") == (
        r"EnvironmentFault: Observation.text is 'half \ud83d' (str); give text without halves of characters (lone "
        "surrogates)"
    )
    assert message_of("raise half") == r"RuntimeError: half \ud83d"
    assert message_of("raise colour") == r"RuntimeError: \x1b[31mred\x1b[0m"
    assert message_of("raise much") == f"RuntimeError: {'x' * 485}…"


@pytest.mark.parametrize(
    ("advice", "expected"),
    [
        ("fine", "fine"),
        ("nothing", None),
        ("number", "expert() is 5 (int); give text or None"),
        ("bytes", "expert() is b'go' (bytes); give text or None"),
        ("half", r"expert() is 'half \ud83d' (str); give text without halves of characters (lone surrogates)"),
    ],
)
def test_an_expert_advises_in_text(host: Host, advice: str, expected: str | None) -> None:
    host.open({0: task(advice=advice)})
    said = host.ask_experts([0])[0]
    assert (said.message if isinstance(said, Fault) else said) == (
        expected if advice in ("fine", "nothing") else f"EnvironmentFault: {expected}"
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_without_an_expert_says_so(workers: int) -> None:
    with Workers(Troublesome(), num=1, timeout=20.0) if workers else InProcess(Troublesome()) as host:
        host.open({0: walk()})
        assert host.ask_experts([0]) == {0: NoExpert()}
        assert isinstance(host.act({0: "walk"})[0], Outcome), "and goes on"


def test_a_task_that_cannot_be_sent_is_a_fault_of_its_own(host: Host) -> None:
    strange = Task(id="strange", payload={"set": {1, 2}})
    answers = host.open({0: strange, 1: task()})
    assert isinstance(answers[1], Observation)
    if isinstance(host, Workers):
        assert answers[0] == Fault(
            reason=StopReason.ERROR,
            message="EnvironmentFault: the task's payload holds a builtins.set; give JSON values alone",
        )


def test_keys_are_the_same_in_process_and_in_workers_and_group_the_same() -> None:
    """What is compared, coded and written does not depend on where an environment ran."""
    actions = [name for name, (field, _, _) in MENDED.items() if field == "state_key"]

    def keys(host: Host) -> list[Any]:
        host.open(dict.fromkeys(range(len(actions)), task()))
        outcomes = host.act(dict(enumerate(actions)))
        return [outcomes[number].observation.state_key for number in outcomes]  # type: ignore[union-attr]

    here = keys(InProcess(WrongValues()))
    with Workers(WrongValues(), num=1, timeout=20.0) as workers:
        there = keys(workers)
    assert list(map(repr, here)) == list(map(repr, there))
    assert pack_blob(here) == pack_blob(there)
    assert repr(unpack_blob(pack_blob(here))) == repr(unpack_blob(pack_blob(there)))
    count = len(here)
    tables = [
        StepTable.from_columns(
            task=["t"] * 2 * count,
            rollout=[0] * 2 * count,
            step=range(2 * count),
            reward=[0.0] * 2 * count,
            state=[*one, *other],
        )
        for one, other in ((here, here), (here, there))
    ]
    assert tables[0].state.tolist() == tables[1].state.tolist()
