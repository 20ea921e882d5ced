"""An environment that copies its worker, or speaks out of turn, answers for nobody but itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from groupwise.rollout.environment_runner import Fault
from groupwise.rollout.worker import MAX_ANSWER_BYTES, read_answer
from groupwise.rollout.worker_pool import Workers
from tests.faults.bad_teachers import Forking

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


@pytest.fixture(scope="module")
def host() -> Iterator[Workers]:
    with Workers(Forking(), num=1, timeout=5.0) as workers:
        yield workers


def texts(answers: dict[int, Any]) -> dict[int, str]:
    return {number: answer.observation.text for number, answer in answers.items()}


@pytest.mark.parametrize("action", ["fork", "linger"])
def test_a_copy_of_the_worker_says_nothing(host: Workers, action: str) -> None:
    host.open(dict(enumerate(Forking().task_set("train"))))
    before = host.pids
    for step in range(1, 6):
        answers = host.act({0: action, 1: "go", 2: "go"})
        assert texts(answers) == dict.fromkeys(range(3), f"original {step}")
    time.sleep(0.4 if action == "linger" else 0.0)
    assert texts(host.act({0: "go", 1: "go"})) == {0: "original 6", 1: "original 6"}
    assert host.pids == before, "nothing had to be brought back"


@pytest.mark.parametrize(
    "said",
    [
        '[0,"outcome",["forged",null,null,""],1.0,[true,false,true,true],""]',
        '[1,"advice","forged"]',
        "[]",
        "null",
        "{}",
        "no JSON at all",
        '[true,"outcome"]',
        "[" * 5000,
        '"' + "x" * 70_000 + '"',
    ],
)
def test_what_is_no_answer_to_the_call_is_not_heard(host: Workers, said: str) -> None:
    host.open(dict(enumerate(Forking().task_set("train"))))
    before = host.pids
    assert texts(host.act({0: f"say {said}", 1: "go"})) == {0: "original 1", 1: "original 1"}
    assert host.pids == before


def test_closing_what_leads_to_the_run_costs_its_own_rollout_and_no_traceback(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with Workers(Forking(), num=1, timeout=5.0) as host:
        host.open(dict(enumerate(Forking().task_set("train"))))
        answers = host.act({0: "close", 1: "go"})
        assert isinstance(answers[0], Fault)
        assert texts({1: answers[1]}) == {1: "original 1"}
    assert "Traceback" not in capfd.readouterr().err


def test_an_answer_without_end_costs_its_own_environment(host: Workers) -> None:
    host.open(dict(enumerate(Forking().task_set("train"))))
    answers: dict[int, Any] = dict(host.act({0: f"shout {2 * MAX_ANSWER_BYTES}", 1: "go"}))
    assert isinstance(answers[0], Fault)
    assert answers[0].message.endswith("step 0: the worker closed its connection, or sent an invalid answer")
    assert texts({1: answers[1]}) == {1: "original 1"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'[5,"outcome",["a",null,null,""],"much",[false,false,true,null],"",{}]', "Outcome.reward is 'much' (str)"),
        (
            b'[5,"outcome",["a",null,null,""],0.0,[false,false,true,null],"",{"age":1}]',
            "Outcome.info['age'] has a reserved name",
        ),
        (b'[5,"observation",7,null,null,""]', "Observation.text is 7 (int)"),
        (b'[5,"observation","a",{"b":1},null,""]', "Observation.state_key is {'b': 1} (dict)"),
        (b'[5,"advice",{}]', "expert() is {} (dict)"),
        (b'[5,"observation"]', "missing 4 required positional arguments"),
        (b'[5,"fault","no such reason","x"]', "'no such reason' is not a valid StopReason"),
        (b'[5,"ready","me"]', "invalid literal for int()"),
    ],
)
def test_a_forged_answer_of_wrong_types_is_a_fault(line: bytes, message: str) -> None:
    number, answer = read_answer(line)
    assert number == 5
    assert isinstance(answer, Fault)
    assert message in answer.message
