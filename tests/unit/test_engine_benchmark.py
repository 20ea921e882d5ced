"""The benchmark of the engine: the load of agents goes on where it left off, and a profile adds up."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import pairwise

import pytest

pytest.importorskip("torch")

from benchmarks.engine import against_vllm, loads
from benchmarks.engine.__main__ import read_arguments
from benchmarks.engine.profiling import Kernel, choose_group, describe_kernels
from groupwise.engines.engine import Generation, Request


def answer(requests: Sequence[Request]) -> list[Generation]:
    zeros = (0.0,) * loads.SAMPLED
    return [
        Generation(
            response_ids=(request.seed % 90 + 3,) * loads.SAMPLED, logp=zeros, entropy=zeros, stopped=False, versions=()
        )
        for request in requests
    ]


def test_rollouts_share_an_opening_and_go_on_with_what_was_sampled() -> None:
    turns: list[Sequence[Request]] = []

    def record(requests: Sequence[Request]) -> list[Generation]:
        turns.append(requests)
        return answer(requests)

    loads.time_agents(record, 100, number=3, rollouts=16)
    assert [len(turn) for turn in turns] == [16] * loads.TURNS
    assert len({request.prompt_ids for request in turns[0]}) == 2
    assert len({request.seed for turn in turns for request in turn}) == 16 * loads.TURNS
    for turn, following in pairwise(turns):
        for before, after, said in zip(turn, following, answer(turn), strict=True):
            known = (*before.prompt_ids, *said.response_ids)
            assert after.prompt_ids[: len(known)] == known
            assert len(after.prompt_ids) == len(known) + loads.NEW
            assert after.session == before.session


def test_sides_take_turns_and_are_compared_with_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def choose(name: str, engine: float) -> loads.Generate:
        def generate(requests: Sequence[Request]) -> list[Generation]:
            order.append(name)
            return []

        return generate

    monkeypatch.setattr(against_vllm.sides, "choose_generate", choose)

    def time_load(generate: loads.Generate, number: int) -> float:
        generate([])
        return {"ours": 1.0, "vLLM, no seeds": 1.5}[order[-1]] * (1 + number % 2)

    case = against_vllm.measure_case("batch", time_load, {"ours": 0.0, "vLLM, no seeds": 0.0}, 3)
    assert order == ["ours", "vLLM, no seeds"] * 4
    assert case["vLLM, no seeds"]["median_seconds"] == 3.0
    assert case["vLLM, no seeds"]["ours_is_faster"] == {"ours": 1.5}


def test_a_record_names_a_command_that_measures_the_same() -> None:
    words = ["vllm", "--shapes", "7B", "--batches", "0", "--sides", "ours", "vLLM, no seeds", "--repeats", "2"]
    chosen = read_arguments([*words, "--write", "result.json"])
    command = shlex.split(against_vllm.describe_conditions(chosen)["command"])
    assert command[:3] == ["python", "-m", "benchmarks.engine"]
    assert read_arguments([*command[3:], "--write", "result.json"]) == chosen
    assert "result.json" not in command


def test_a_profile_knows_when_nothing_ran() -> None:
    kernels = [Kernel("nvjet_a", 0.0, 1.0), Kernel("_attend_rows", 0.5, 1.5), Kernel("_attend_part", 1.50002, 2.0)]
    kernels += [Kernel("something new", 2.5, 3.0)]
    profile = describe_kernels(kernels)
    assert profile["busy_seconds"] == pytest.approx(2.49998)
    assert profile["idle_seconds"] == pytest.approx(
        {"below 10 us": 0, "10 to 100 us": 2e-5, "100 us to 1 ms": 0, "above 1 ms": 0.5}
    )
    assert profile["seconds_by_group"]["prefill attention"] == pytest.approx(1.0)
    assert [choose_group(kernel.name) for kernel in kernels] == [
        "matrix products",
        "prefill attention",
        "decode attention",
        "other",
    ]
