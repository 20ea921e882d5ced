"""What torchrun says is taken whole or not at all."""

from __future__ import annotations

import pytest

from groupwise.system.errors import ConfigError
from groupwise.system.processes import StartedRank, check_started_rank, read_started_rank

WHOLE = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
WAYS = "start the run with torchrun, which sets all of them, or unset them for a run in one process"


def say(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name in (*WHOLE, "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_a_process_that_nobody_numbered_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, {"MASTER_ADDR": "somewhere"})
    assert read_started_rank() == StartedRank(rank=0, world=1, local_rank=0, local_world=1)
    check_started_rank()


def test_a_rank_of_the_second_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, WHOLE)
    assert read_started_rank() == StartedRank(rank=3, world=4, local_rank=1, local_world=2)


@pytest.mark.parametrize("missing", ["RANK", "WORLD_SIZE", "LOCAL_RANK"])
def test_a_rank_without_one_of_its_variables(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    say(monkeypatch, {name: value for name, value in WHOLE.items() if name != missing})
    with pytest.raises(ConfigError) as caught:
        read_started_rank()
    others = " and ".join(name for name in WHOLE if name != missing)
    assert str(caught.value) == f"{others} are set, but {missing} is not; {WAYS}"


@pytest.mark.parametrize(
    "wrong",
    [{"RANK": "4"}, {"RANK": "-1"}, {"LOCAL_RANK": "2"}, {"LOCAL_WORLD_SIZE": "5"}, {"WORLD_SIZE": "0"}, {"RANK": "0"}],
)
def test_numbers_that_do_not_go_together(monkeypatch: pytest.MonkeyPatch, wrong: dict[str, str]) -> None:
    numbers = WHOLE | wrong
    say(monkeypatch, numbers)
    with pytest.raises(ConfigError) as caught:
        read_started_rank()
    shown = ", ".join(f"{name}={value}" for name, value in numbers.items())
    assert str(caught.value) == (
        f"{shown} contradict each other: RANK must be below WORLD_SIZE, and LOCAL_RANK below LOCAL_WORLD_SIZE; {WAYS}"
    )


def test_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, WHOLE | {"RANK": "first"})
    with pytest.raises(
        ConfigError, match=r"are not integers \(invalid literal for int\(\) with base 10: 'first'\); start the run with"
    ):
        read_started_rank()


@pytest.mark.parametrize("missing", ["MASTER_ADDR", "MASTER_PORT"])
def test_ranks_that_are_not_told_where_to_meet(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    places = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    say(monkeypatch, WHOLE | places | {missing: ""})
    with pytest.raises(ConfigError) as caught:
        check_started_rank()
    assert str(caught.value) == f"4 processes were started, but {missing} is not set, so they cannot connect; {WAYS}"
    say(monkeypatch, WHOLE | places)
    check_started_rank()
