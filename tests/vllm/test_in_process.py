"""VLLM in the trainer's own process, asked where it is installed."""

from __future__ import annotations

from pathlib import Path

from tests.measured_numbers import Numbers
from tests.vllm.environment import MAX_GAP, run_with_vllm


def test_vllm_in_one_process_is_an_engine(numbers: Numbers) -> None:
    answer = run_with_vllm(Path(__file__).with_name("ask_in_process.py"))
    assert {rule: result for rule, result in answer["rules"].items() if result.startswith("broken")} == {}
    assert sum(result.startswith("kept") for result in answer["rules"].values()) == 16
    for temperature, gaps in answer["gaps"].items():
        numbers.measured[f"in process: gap to transformers at temperature {temperature}, sampled and scored"] = gaps
        assert max(gaps) <= MAX_GAP
    numbers.measured["in process: nats off without the cache reset"] = round(answer["stale"], 3)
    numbers.measured["in process: gap to merged adapters, sampled and scored"] = answer["adapters"]
    numbers.measured["in process: gap after a weight sync of tied weights, sampled and scored"] = answer["tied"]
    assert max(answer["tied"]) <= MAX_GAP
    assert answer["stale"] > 0.1
    assert answer["fresh"] <= MAX_GAP
    assert max(map(max, answer["adapters"])) <= MAX_GAP
    assert answer["refusal"].startswith(
        "vLLM did not load the weights (There is no module or parameter named 'of' in LlamaForCausalLM."
    )
    assert answer["refusal"].endswith("; see its output above")
