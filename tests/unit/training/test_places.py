"""How many runs train beside each other."""

from __future__ import annotations

import dataclasses

import pytest

from groupwise.training.sweep import Machine, Places, RunNeeds, find_places

SMALL = RunNeeds(threads=1, memory=0.2e9)
CPU = Machine(cores=8, memory=64e9, gpus=())


def test_cores_are_shared_out_by_threads() -> None:
    places = find_places(20, dataclasses.replace(SMALL, threads=3), CPU)
    assert places == Places(gpus=(None, None), reason="8 free cores for 3 threads each")


def test_there_are_no_more_places_than_runs() -> None:
    assert find_places(3, SMALL, CPU) == Places(gpus=(None,) * 3, reason="no more runs")


def test_memory_is_shared_out_with_what_a_process_itself_takes() -> None:
    # 0.9 x 5 GB for runs of 0.2 GB and processes of 0.8 GB
    places = find_places(20, SMALL, dataclasses.replace(CPU, memory=5e9))
    assert places == Places(gpus=(None,) * 4, reason="5.0 GB of free memory")


@pytest.mark.parametrize("machine", [Machine(cores=1, memory=0.1e9, gpus=()), Machine(cores=0, memory=None, gpus=())])
def test_one_run_is_always_tried(machine: Machine) -> None:
    assert find_places(5, dataclasses.replace(SMALL, threads=4), machine).gpus == (None,)


def test_gpus_take_turns_as_far_as_their_memory_goes() -> None:
    machine = Machine(cores=16, memory=200e9, gpus=(80e9, 40e9))
    places = find_places(20, dataclasses.replace(SMALL, threads=8, memory=30e9), machine)
    assert places == Places(gpus=(0, 1, 0), reason="room on 2 GPUs")


def test_an_engine_that_takes_a_gpu_for_itself_is_alone_on_it() -> None:
    machine = Machine(cores=16, memory=200e9, gpus=(80e9, 80e9))
    assert find_places(20, dataclasses.replace(SMALL, fills_gpu=True), machine).gpus == (0, 1)


def test_runs_that_share_something_come_one_after_the_other() -> None:
    places = find_places(20, dataclasses.replace(SMALL, alone_because="they share a server"), CPU)
    assert places == Places(gpus=(None,), reason="they share a server")
