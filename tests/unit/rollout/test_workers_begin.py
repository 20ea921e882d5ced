"""Actions that are begun and finish one by one: a slow, hanging or dying environment holds up its own rollout only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from socket import socket, socketpair
from typing import Any

import pytest

from groupwise import StopReason
from groupwise.rollout.environment_runner import ConcurrentHost, Fault, InProcess
from groupwise.rollout.worker_pool import Workers
from tests.unit.rollout.troublesome import Troublesome, task
from tests.unit.rollout.worker_processes import kill

TIMEOUT = 1.0


@pytest.fixture(scope="module")
def host() -> Iterator[Workers]:
    with Workers(Troublesome(), num=2, timeout=TIMEOUT) as workers:
        yield workers


@pytest.fixture
def ear() -> Iterator[socket]:
    """Hears nothing."""
    ours, theirs = socketpair()
    with ours, theirs:
        yield ours


def open_four(host: Workers) -> None:
    """Environments 0 and 2 in one worker, 1 and 3 in the other."""
    host.close(range(12))
    host.open({number: task(f"{number}") for number in range(4)})


def finish_all(host: Workers, ear: socket, num: int) -> list[tuple[int, Any]]:
    """What came of so many actions, in the order in which they were done."""
    outcomes: list[tuple[int, Any]] = []
    while len(outcomes) < num:
        outcomes += host.finish(ear).items()
    return outcomes


def test_only_workers_let_actions_begin() -> None:
    assert not isinstance(InProcess(Troublesome()), ConcurrentHost)


def test_one_goes_on_while_another_takes_its_time(host: Workers, ear: socket) -> None:
    open_four(host)
    host.begin({0: "nap 0.6", 1: "walk"})
    assert list(host.finish(ear)) == [1]
    host.begin({1: "walk", 3: "walk"})
    outcomes = finish_all(host, ear, 3)
    assert [number for number, _ in outcomes][-1] == 0
    shown = {number: outcome.observation.text for number, outcome in outcomes}
    assert (shown[1], shown[3]) == ("walked 2", "walked 1")
    assert host.act({0: "walk", 2: "walk"})[0].observation.text == "walked 2"


def test_waiting_ends_when_the_bell_rings(host: Workers) -> None:
    open_four(host)
    ours, theirs = socketpair()
    with ours, theirs:
        host.begin({0: "nap 0.4"})
        theirs.send(b".")
        assert host.finish(ours) == {}
        ours.recv(1)
        assert list(host.finish(ours)) == [0]
        assert host.finish(ours) == {}, "nothing is under way"


def test_what_hangs_is_lost_and_what_shares_its_worker_comes_back(host: Workers, ear: socket) -> None:
    open_four(host)
    host.act({2: "walk"})
    host.begin({0: "hang", 1: "walk"})
    host.begin({2: "walk"})
    (first, _), *others = finish_all(host, ear, 3)
    assert first == 1
    outcomes: dict[int, Any] = dict(others)
    assert isinstance(outcomes[0], Fault)
    assert outcomes[0].reason is StopReason.TIMEOUT
    assert "step 0: no answer within 1 seconds" in outcomes[0].message
    assert outcomes[2].observation.text == "walked 2"
    assert host.act({2: "walk"})[2].observation.text == "walked 3"


def test_further_actions_give_a_hanging_one_no_more_time(host: Workers, ear: socket) -> None:
    open_four(host)
    host.begin({0: "hang"})
    worker = host._workers[host._seats[0].place]
    left = worker.seconds_left
    time.sleep(0.2)
    host.begin({2: "walk"})
    assert worker.seconds_left <= left - 0.2
    assert {number for number, _ in finish_all(host, ear, 2)} == {0, 2}


@pytest.mark.parametrize("dies", ["by itself", "before it is asked"])
def test_a_worker_that_dies_costs_the_action_it_was_at(host: Workers, ear: socket, dies: str) -> None:
    open_four(host)
    host.act({0: "walk", 2: "walk"})
    if dies == "by itself":
        host.begin({0: "die 3", 2: "walk"})
    else:
        kill(host.pids[host._seats[0].place])
        host.begin({0: "walk", 2: "walk"})
    outcomes = dict(finish_all(host, ear, 2))
    assert outcomes[2].observation.text == "walked 2"
    assert isinstance(outcomes[0], Fault) == (dies == "by itself")


def test_an_environment_that_is_closed_while_it_acts_is_forgotten(host: Workers, ear: socket) -> None:
    open_four(host)
    host.begin({0: "nap 0.2", 2: "walk"})
    host.close([0])
    assert [number for number, _ in finish_all(host, ear, 1)] == [2]
    open_four(host)
    assert host.act({0: "walk"})[0].observation.text == "walked 1"
