"""Environments in this process: every fault is a value."""

from __future__ import annotations

import pytest

from groupwise import StopReason
from groupwise.envs import Identity, Observation
from groupwise.rollout.environment_runner import Fault, InProcess, call_guarded, open_host
from groupwise.rollout.worker_pool import Workers
from tests.unit.rollout.troublesome import Troublesome, task


def error(message: str) -> Fault:
    return Fault(reason=StopReason.ERROR, message=message)


def test_environments_are_opened_and_acted_in_by_number() -> None:
    host = InProcess(Troublesome())
    shown = host.open({3: task("a"), 5: task("b")})
    assert shown == {number: Observation(text="walked 0", state_key=0) for number in (3, 5)}
    assert {number: outcome.observation.text for number, outcome in host.act({5: "walk"}).items()} == {5: "walked 1"}  # type: ignore[union-attr]
    assert [host.act({number: "walk"})[number].observation.text for number in (5, 3)] == ["walked 2", "walked 1"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("raise", "RuntimeError: the roof fell in"),
        ("exit", "SystemExit: the roof fell in"),
        ("mumble", "Unspeakable: its message cannot be shown"),
        ("return a dict", "EnvironmentFault: act gave dict; return an Outcome"),
    ],
)
def test_whatever_an_environment_raises_is_its_fault_and_ends_it(action: str, message: str) -> None:
    host = InProcess(Troublesome())
    host.open({0: task(), 1: task()})
    assert host.act({0: action}) == {0: error(message)}
    with pytest.raises(KeyError):
        host.act({0: "walk"})
    assert host.act({1: "walk"})[1].reward == 1.0  # type: ignore[union-attr]


def test_an_environment_that_cannot_be_opened_is_a_fault() -> None:
    assert InProcess(Troublesome()).open({0: task(now="raise")}) == {0: error("RuntimeError: the roof fell in")}


def test_an_environment_that_shows_something_else_is_a_fault() -> None:
    class Bare:
        def open(self, task: object) -> Bare:
            return self

        def observe(self) -> str:
            return "a room"

    host = InProcess(Bare())  # type: ignore[arg-type]
    assert host.open({0: task()}) == {0: error("EnvironmentFault: observe gave str; return an Observation")}


def test_an_environment_that_waited_in_vain_timed_out() -> None:
    def wait() -> None:
        raise TimeoutError("no answer")

    assert call_guarded(wait) == Fault(reason=StopReason.TIMEOUT, message="TimeoutError: no answer")


def test_the_interrupt_of_a_user_is_nobodys_fault() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_guarded(interrupt)


def test_closed_environments_are_gone_and_closing_them_again_does_nothing() -> None:
    host = InProcess(Troublesome())
    host.open({0: task(), 1: task()})
    host.close([0])
    host.close([0, 7])
    with pytest.raises(KeyError):
        host.act({0: "walk"})
    with host:
        assert host.act({1: "walk"})[1].reward == 1.0  # type: ignore[union-attr]
    with pytest.raises(KeyError):
        host.act({1: "walk"})


def test_the_number_of_workers_chooses_the_host() -> None:
    assert isinstance(open_host(Identity(), workers=0, timeout=1.0), InProcess)
    with open_host(Identity(), workers=1, timeout=1.0) as host:
        assert isinstance(host, Workers)
        assert len(host.pids) == 1
