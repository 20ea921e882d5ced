"""Decoding on a GPU: the static-cache engine against `generate` of transformers, with its dynamic and its static cache.

SmolLM2-135M in bfloat16, or random weights of its shape; prompts of ragged length, all different, 64 new tokens a row,
none of which ends a response, temperature 1 over the whole vocabulary. Each side answers the same batch; sides take
turns, medians are reported. *Decoding* is what 64 new tokens take beyond a single one; *all* includes reading the
prompts. On a GPU the static-cache engine's step is also taken apart: a replay of its graph, with every row as long as
it gets, and of it what attention and sampling take when captured by themselves. The log-probs that the engine reports
are compared with a second look by its own `score`.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.engine.shapes import SMOLLM2
from benchmarks.result_file import write_result
from groupwise.engines.engine import Request
from groupwise.engines.open_engine import cast_weights, compile_small_parts
from groupwise.engines.sampling import draw_tokens
from groupwise.engines.static_cache.attention import attend_in_lanes, has_kernel, switch_attention
from groupwise.engines.static_cache.cache import make_additive_mask
from groupwise.engines.static_cache.engine import LOOK_EVERY, StaticCacheEngine
from groupwise.engines.transformers_engine import TransformersEngine

NEW_TOKENS = 64
CASES = ((256, 200), (256, 400), (64, 200), (64, 400))
"""Rows, and tokens of a prompt on average."""
Answer = Callable[[list[tuple[int, ...]], int], None]
"""Answers prompts with some tokens each."""


def open_model(folder: str | None, device: str) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    if folder:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMOLLM2, max_position_embeddings=8192))
    cast_weights(model, torch.bfloat16)
    model.generation_config = transformers.GenerationConfig(pad_token_id=0, eos_token_id=None, bos_token_id=1)
    return model.to(device).eval()


def prompts(rows: int, mean: int, vocabulary: int) -> list[tuple[int, ...]]:
    """Prompts between half and one and a half of the mean length."""
    draw = np.random.default_rng(rows + mean)
    lengths = draw.integers(mean // 2, mean * 3 // 2 + 1, size=rows)
    return [tuple(draw.integers(3, vocabulary, size=length).tolist()) for length in lengths]


def requests(asked: list[tuple[int, ...]], tokens: int) -> list[Request]:
    return [Request(prompt_ids=prompt, seed=number, max_tokens=tokens) for number, prompt in enumerate(asked)]


def by_generate(model: transformers.PreTrainedModel, cache: str) -> Answer:
    """`generate` with left-padded prompts, sampling from the whole distribution."""

    def answer(asked: list[tuple[int, ...]], tokens: int) -> None:
        width = max(len(prompt) for prompt in asked)
        ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in asked], device=model.device)
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in asked], device=model.device)
        responses = model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=True,
            top_k=0,
            max_new_tokens=tokens,
            cache_implementation=cache,
        )
        assert responses.shape[1] == width + tokens

    return answer


def by_engine(engine: StaticCacheEngine | TransformersEngine) -> Answer:
    def answer(asked: list[tuple[int, ...]], tokens: int) -> None:
        answers = engine.generate(requests(asked, tokens))
        assert {len(one.response_ids) for one in answers} == {tokens}

    return answer


def seconds(answer: Answer, asked: list[tuple[int, ...]], tokens: int) -> float:
    synchronise()
    start = time.perf_counter()
    answer(asked, tokens)
    synchronise()
    return time.perf_counter() - start


def synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(sides: dict[str, Answer], asked: list[tuple[int, ...]], repeats: int) -> dict[str, Any]:
    """Medians of every side, which take turns; the first call of each is reported by itself."""
    first = {name: seconds(answer, asked, NEW_TOKENS) for name, answer in sides.items()}
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for answer in sides.values():
        seconds(answer, asked, 1)
    for _ in range(repeats):
        for name, answer in sides.items():
            took[name].append((seconds(answer, asked, 1), seconds(answer, asked, NEW_TOKENS)))
    results: dict[str, Any] = {}
    for name, pairs in took.items():
        one, whole = (statistics.median(column) for column in zip(*pairs, strict=True))
        results[name] = {
            "first_call_seconds": first[name],
            "seconds_one_token": one,
            "seconds_all_tokens": whole,
            "milliseconds_a_step": 1000 * (whole - one) / (NEW_TOKENS - 1),
            "tokens_per_second_decoding": len(asked) * (NEW_TOKENS - 1) / (whole - one),
            "tokens_per_second_all": len(asked) * NEW_TOKENS / whole,
        }
    ours = results["static_cache_engine"]
    for name in [name for name in results if name != "static_cache_engine"]:
        results[name]["static_cache_engine_faster_decoding"] = (
            ours["tokens_per_second_decoding"] / results[name]["tokens_per_second_decoding"]
        )
        results[name]["static_cache_engine_faster_all"] = (
            ours["tokens_per_second_all"] / results[name]["tokens_per_second_all"]
        )
    return results


def device_milliseconds(run: Callable[[], Any], *, times: int = 10) -> float:
    """Median time of something on the device, as it sees it itself."""
    took = []
    for _ in range(times):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        took.append(start.elapsed_time(end))
    return statistics.median(took)


def capture_graph(run: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


@torch.no_grad()
def step_apart(
    engine: StaticCacheEngine, model: transformers.PreTrainedModel, num: int, longest: int
) -> dict[str, float]:
    """Milliseconds of the step that came last, and of its parts."""
    step = engine._step
    assert step is not None
    width = min(width for rows, width in step._graphs if rows == num and width >= longest + NEW_TOKENS - 1)
    cache, state, config = step.cache, step.state, model.config
    last = state.length[:num]
    query = torch.randn(num, config.num_attention_heads, 1, cache.storage[0].keys.shape[3], device=model.device)
    query = query.to(cache.dtype)
    mask = make_additive_mask(torch.arange(width, device=model.device) <= last[:, None], cache.dtype)[:, None, None]
    logits = torch.randn(num, config.vocab_size, device=model.device).to(cache.dtype)

    def attend_all() -> None:
        with switch_attention(model, last if step.use_kernel else None):
            for layer in cache.storage:
                attend_in_lanes(model, query, layer.keys[:num, :, :width], layer.values[:num, :, :width], mask)

    def sample_all() -> None:
        draw_tokens(logits, state.temperature[:num], state.is_greedy[:num], state.draws[0, :num])

    def steps() -> None:
        state.next_draw.zero_()
        step.run(num, width, steps=LOOK_EVERY)

    replay = device_milliseconds(steps) / LOOK_EVERY
    alone = {"attention": attend_all, "sampling": sample_all}
    parts = {name: device_milliseconds(capture_graph(part).replay) for name, part in alone.items()}
    return {"replay": replay, **parts, "rest": replay - sum(parts.values())}


def agreement(engine: StaticCacheEngine, asked: list[tuple[int, ...]]) -> dict[str, float]:
    """How far the log-probs reported while decoding lie from those of a second look, in nats."""
    said = engine.generate(requests(asked, NEW_TOKENS))
    scored = engine.score([(prompt, one.response_ids) for prompt, one in zip(asked, said, strict=True)])
    gaps = np.concatenate([np.subtract(one.logp, other) for one, other in zip(said, scored, strict=True)])
    return {"mean": float(np.abs(gaps).mean()), "largest": float(np.abs(gaps).max())}


def measure_cases(chosen: argparse.Namespace) -> None:
    """Measure every case and write the result."""
    if torch.device(chosen.device).type != "cuda":
        print("no CUDA device: lanes decode without graphs, which compares nothing", file=sys.stderr)
    model = open_model(chosen.model, chosen.device)
    on_gpu = torch.device(chosen.device).type == "cuda"
    memory = 0.3 * torch.cuda.get_device_properties(0).total_memory if on_gpu else 2**33
    own = copy.deepcopy(model)
    if chosen.compile:
        compile_small_parts(own)
    use_kernel = has_kernel(torch.device(chosen.device)) and not chosen.no_kernel
    lanes = StaticCacheEngine(own, use_graphs=on_gpu, use_kernel=use_kernel, rows=256, memory=memory)
    sides = {"static_cache_engine": by_engine(lanes), "generate_dynamic": by_generate(model, "dynamic")}
    plain = by_engine(TransformersEngine(copy.deepcopy(model), batch_tokens=2**20))
    cases: dict[str, Any] = {}
    for number, (rows, mean) in enumerate(CASES[: chosen.cases]):
        asked = prompts(rows, mean, model.config.vocab_size)
        chosen_sides = dict(sides)
        if number == 0:  # once is enough
            chosen_sides["transformers_engine"] = plain
        if chosen.static and number == 0:  # it compiles anew for each shape
            chosen_sides["generate_static"] = by_generate(model, "static")
        results = measure(chosen_sides, asked, chosen.repeats)
        if on_gpu:
            results["static_cache_engine"]["milliseconds_apart"] = step_apart(
                lanes, own, rows, max(len(one) for one in asked)
            )
        cases[f"{rows} rows, prompts of {mean}"] = results
        print(json.dumps(list(cases.items())[-1], indent=1), flush=True)
    result = {
        "command": f"python -m benchmarks.engine --cases {chosen.cases} --repeats {chosen.repeats}",
        "model": (chosen.model and Path(chosen.model).name) or "random weights of SmolLM2-135M's shape",
        "precision": "bfloat16",
        "compiled": chosen.compile,
        "kernel": use_kernel,
        "new_tokens": NEW_TOKENS,
        "cases": cases,
        "captures": lanes.num_captures,
        "logp_gap": agreement(lanes, prompts(*CASES[0], model.config.vocab_size)[:64]),
        "device": torch.cuda.get_device_name(0) if on_gpu else "cpu",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    print(json.dumps({name: value for name, value in result.items() if name != "cases"}, indent=1))
    write_result(result, chosen.write)
