"""Ranks on the nodes of a cluster: what each is told, who is watched, and when a run is started again."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise.engines.ray_cluster import LostError, Node
from groupwise.system.errors import ConfigError
from groupwise.system.processes import read_started_rank
from groupwise.training import launch as ranks
from groupwise.training.launch import GONE, HostedRank, RankStatuses, list_rank_variables, run_ranks, run_until_it_ends

A, B = Node("a", "10.0.0.1"), Node("b", "10.0.0.2")
SCRIPT = """
import os, signal, sys, time
rank = os.environ["RANK"]
print(f"rank {rank} of {os.environ['WORLD_SIZE']} in {os.getcwd()}, {os.environ['COLOUR']}", flush=True)
how = sys.argv[1:][int(rank)]
if how == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if how == "killed with its group":
    os.killpg(0, signal.SIGKILL)
if how == "stays":
    time.sleep(600)
sys.exit(int(how))
"""


class Place:
    """A rank's place in this very process."""

    def __init__(self, node: Node = A) -> None:
        self.rank, self.is_lost = HostedRank(node, True), False

    def ask(self, method: str, *arguments: Any, timeout: float) -> Any:
        if self.is_lost:
            raise LostError("the process of rank 1 is gone")
        return getattr(self.rank, method)(*arguments)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Place]]:
    monkeypatch.setattr(ranks, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(ranks, "LEAVE_SECONDS", 0.2)
    monkeypatch.chdir(tmp_path)
    places = [Place(), Place()]
    yield places
    for place in places:
        place.rank.stop()


def run(places: list[Place], *how: str) -> tuple[RankStatuses, dict[int, str]]:
    texts: dict[int, str] = {}

    def show(rank: int, text: str) -> None:
        texts[rank] = texts.get(rank, "") + text

    command = [sys.executable, "-c", SCRIPT, *how]
    return run_ranks(places, command, {"COLOUR": "blue"}, with_gpus=False, show=show), texts


def test_each_rank_is_told_what_torchrun_would_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    by_rank = list_rank_variables([A, B, B], port=29500, with_gpus=False)
    assert [own["LOCAL_RANK"] for own in by_rank] == ["0", "0", "1"]
    assert [own["LOCAL_WORLD_SIZE"] for own in by_rank] == ["1", "2", "2"]
    assert {(own["MASTER_ADDR"], own["MASTER_PORT"], own["WORLD_SIZE"]) for own in by_rank} == {
        ("10.0.0.1", "29500", "3")
    }
    for name, value in by_rank[2].items():
        monkeypatch.setenv(name, value)
    started = read_started_rank()
    assert (started.rank, started.world, started.local_rank) == (2, 3, 1)


def test_ranks_with_a_gpu_of_their_own_take_the_first_that_they_see() -> None:
    assert [own["LOCAL_RANK"] for own in list_rank_variables([A, A], port=1, with_gpus=True)] == ["0", "0"]


def test_ranks_of_one_node_meet_where_no_other_machine_reaches() -> None:
    assert {own["MASTER_ADDR"] for own in list_rank_variables([B, B], port=1, with_gpus=False)} == {"127.0.0.1"}


def test_what_ranks_write_is_shown_and_they_end_together(places: list[Place], tmp_path: Path) -> None:
    outcome, texts = run(places, "0", "0")
    assert outcome == RankStatuses((0, 0), ())
    assert texts == {rank: f"rank {rank} of 2 in {tmp_path}, blue\n" for rank in (0, 1)}


def test_a_rank_that_fails_ends_the_others_and_has_not_died(places: list[Place]) -> None:
    began = time.monotonic()
    outcome, _ = run(places, "stays", "2")
    assert (outcome.statuses[1], outcome.died) == (2, ())
    assert outcome.statuses[0] > 128  # ended by us
    assert time.monotonic() - began < 60


def test_a_rank_that_a_signal_ended_has_died(places: list[Place]) -> None:
    outcome, _ = run(places, "stays", "killed")
    assert outcome.died == (1,)
    assert outcome.statuses[1] == 128 + signal.SIGKILL


def test_a_rank_whose_whole_group_a_signal_ended_has_died(places: list[Place]) -> None:
    outcome, _ = run(places, "stays", "killed with its group")
    assert outcome == RankStatuses((128 + signal.SIGTERM, 128 + signal.SIGKILL), (1,))


@pytest.mark.parametrize("when", ["describe", "start"])
def test_a_node_that_is_gone_before_its_rank_has_started_counts_as_dead(
    places: list[Place], monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    ask = Place.ask

    def lose(self: Place, method: str, *arguments: Any, timeout: float) -> Any:
        self.is_lost |= method == when and self is places[1]
        return ask(self, method, *arguments, timeout=timeout)

    monkeypatch.setattr(Place, "ask", lose)
    outcome, texts = run(places, "stays", "stays")
    assert outcome == RankStatuses((0, GONE), (1,))
    assert texts == {1: "the process of rank 1 is gone\n"}
    assert not places[0].rank._process.is_alive(), "a rank is left alone"


def test_a_rank_whose_node_is_gone_has_died(places: list[Place], monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Place.ask

    def lose(self: Place, method: str, *arguments: Any, timeout: float) -> Any:
        self.is_lost |= method == "read" and self is places[1]
        return ask(self, method, *arguments, timeout=timeout)

    monkeypatch.setattr(Place, "ask", lose)
    outcome, texts = run(places, "stays", "stays")
    assert outcome == RankStatuses((128 + signal.SIGTERM, GONE), (1,))
    assert texts[1] == "the process of rank 1 is gone\n"
    assert RankStatuses((0, GONE), (1,)).status == 1


def test_a_node_that_is_found_to_be_gone_after_the_others_were_ended_has_died(
    places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Place.ask

    def lose_late(self: Place, method: str, *arguments: Any, timeout: float) -> Any:
        self.is_lost |= method == "stop"
        return ask(self, method, *arguments, timeout=timeout)

    monkeypatch.setattr(Place, "ask", lose_late)
    outcome, _ = run(places, "2", "stays")
    assert outcome == RankStatuses((2, GONE), (1,))


def test_a_folder_that_a_node_does_not_see_is_one_sentence(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(ConfigError) as caught:
        Place(B).rank.start([sys.executable], {}, str(missing))
    assert str(caught.value) == (
        f"the node 10.0.0.2 cannot open {missing} (No such file or directory); launch from a folder that all nodes "
        "can see"
    )


def test_long_lines_come_whole(tmp_path: Path) -> None:
    place = HostedRank(A, True)
    program = f"import sys, time; sys.stdout.write('x' * {2**20 + 7}); sys.stdout.flush(); time.sleep(0.2); print()"
    place.start([sys.executable, "-c", program], dict(os.environ), str(tmp_path))
    texts, status = list[str](), None
    while status is None:
        text, status = place.read()
        texts.append(text)
    assert "".join(texts) == "x" * (2**20 + 7) + "\n"
    assert status == 0


def repeat(outcomes: list[RankStatuses], *, restarts: int, begun: bool = True) -> tuple[int, list[bool], list[str]]:
    resumed, said, left = list[bool](), list[str](), list(outcomes)

    def start(resume: bool) -> RankStatuses:
        resumed.append(resume)
        return left.pop(0)

    status = run_until_it_ends(start, has_begun=lambda: begun, resume=False, restarts=restarts, say=said.append)
    return status, resumed, said


DIED, ENDED, FAILED = RankStatuses((2, 137), (1,)), RankStatuses((0, 0), ()), RankStatuses((2, 2), ())


def test_a_run_whose_rank_died_goes_on_with_what_its_folder_holds() -> None:
    assert repeat([DIED, ENDED], restarts=3) == (
        0,
        [False, True],
        ["rank 1 has died; the run resumes from its folder (restart 1 of 3)"],
    )


def test_a_run_that_died_before_it_wrote_anything_begins_again() -> None:
    status, resumed, said = repeat([RankStatuses((GONE, GONE), (0, 1)), ENDED], restarts=3, begun=False)
    assert (status, resumed) == (0, [False, False])
    assert said == ["ranks 0, 1 have died; the run begins again (restart 1 of 3)"]


def test_an_error_of_the_run_is_not_repeated() -> None:
    assert repeat([FAILED], restarts=3) == (2, [False], [])


def test_a_run_that_dies_again_and_again_is_given_up() -> None:
    status, resumed, said = repeat([DIED, DIED], restarts=1)
    assert (status, resumed) == (2, [False, True])
    assert said[-1] == "rank 1 has died, and 1 restarts were allowed; continue with --resume"
