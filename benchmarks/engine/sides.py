"""The engines that are compared: ours, as it opens and over the model's own code, compiled and not, and vLLM's.

vLLM answers with a seed a request, which is what ours always has, and without seeds.

All of them hold the same weights and stay open together; each has room for the keys and values of all that is asked.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers

from benchmarks.engine.loads import Generate
from benchmarks.engine.shapes import CONTEXT
from groupwise.engines.engine import Generation, Request
from groupwise.engines.open_engine import CompileParts, open_engine
from groupwise.engines.static_cache.engine import StaticCacheEngine
from groupwise.engines.vllm.in_process import VllmEngine
from groupwise.system.errors import EngineFault

OURS, COMPILED, PLAIN = "ours", "ours, compile_parts", "ours, model's code"
SEEDED, UNSEEDED = "vLLM, a seed a request", "vLLM, no seeds"
NAMES = (OURS, COMPILED, PLAIN, SEEDED, UNSEEDED)
"""Sides by name."""
COMPARED = (OURS, COMPILED, SEEDED, UNSEEDED)
"""Those that are compared unless others are named."""
MAX_ROWS = 256
"""Responses that decode at a time."""
OUR_SHARE, VLLM_SHARE = 0.14, 0.3
"""Shares of the GPU's memory: of ours for keys and values, of vLLM's for everything as it starts."""
VLLM_CACHE = 16 << 30
"""Bytes that vLLM has for keys and values."""
GRAPH_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
"""Batches for which vLLM captures graphs: those that decode here, and all powers of two below them."""


def open_side(name: str, model: transformers.PreTrainedModel) -> Any:
    """The engine of a side, over weights of its own."""
    if name in (SEEDED, UNSEEDED):
        return open_vllm(model)
    own = copy.deepcopy(model)
    if name == PLAIN:
        share = OUR_SHARE * torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else 2**30
        on_gpu = own.device.type == "cuda"
        return StaticCacheEngine(own, use_graphs=on_gpu, use_kernel=on_gpu, rows=MAX_ROWS, memory=share)
    is_compiled: CompileParts = True if name == COMPILED else "auto"
    return open_engine(own, precision="bfloat16", rows=MAX_ROWS, memory=OUR_SHARE, compile_parts=is_compiled)


def choose_generate(name: str, engine: Any) -> Generate:
    """How a side answers requests."""
    if name != UNSEEDED:
        generate: Generate = engine.generate
        return generate

    def generate_unseeded(requests: Sequence[Request]) -> list[Generation]:
        return _generate_unseeded(engine, requests)

    return generate_unseeded


def has_vllm() -> bool:
    """Whether vLLM can be imported."""
    return find_spec("vllm") is not None


def open_vllm(model: transformers.PreTrainedModel) -> VllmEngine:
    """vLLM in this process, with its defaults for throughput; its weights are handed over, since a file takes long."""
    on_gpu = model.device.type == "cuda"
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    for variable, value in (("VLLM_NO_USAGE_STATS", "1"), ("VLLM_LOGGING_LEVEL", "ERROR"), ("HF_HUB_OFFLINE", "1")):
        os.environ.setdefault(variable, value)
    from vllm import LLM
    from vllm.config import WeightTransferConfig

    from groupwise.engines.vllm.command import BACKEND
    from groupwise.engines.vllm.plugin import groupwise_vllm

    groupwise_vllm.register()
    with TemporaryDirectory() as place:
        model.config.save_pretrained(place)
        settings = json.loads((Path(place) / "config.json").read_text())
        (Path(place) / "config.json").write_text(json.dumps({**settings, "architectures": [type(model).__name__]}))
        llm = LLM(
            model=place,
            load_format="dummy",
            dtype="bfloat16",
            max_model_len=CONTEXT,
            max_num_seqs=MAX_ROWS,
            skip_tokenizer_init=True,
            enable_prefix_caching=True,
            logprobs_mode="processed_logprobs",
            generation_config="vllm",
            weight_transfer_config=WeightTransferConfig(backend=BACKEND),
            **(_list_gpu_settings() if on_gpu else {"enforce_eager": True, "enable_chunked_prefill": False}),
        )
        engine = VllmEngine(llm, context=CONTEXT)
        try:
            engine.load(dict(model.named_parameters()), version=1)
        except EngineFault as error:  # random weights of its own take as long
            print(f"vLLM keeps random weights of its own: {error}", flush=True)
    return engine


def _list_gpu_settings() -> dict[str, Any]:
    return {
        "attention_backend": "FLASH_ATTN",
        "gpu_memory_utilization": VLLM_SHARE,
        "kv_cache_memory_bytes": VLLM_CACHE,
        "compilation_config": {"cudagraph_capture_sizes": GRAPH_SIZES},
    }


def _generate_unseeded(engine: VllmEngine, requests: Sequence[Request]) -> list[Generation]:
    """As the engine asks, but for the seeds: a batch then draws from one generator."""
    from vllm import SamplingParams

    questions = [
        (
            request.prompt_ids,
            SamplingParams(
                temperature=request.temperature,
                max_tokens=request.max_tokens,
                ignore_eos=True,
                logprobs=0,
                detokenize=False,
                skip_reading_prefix_cache=request.session is None,
            ),
        )
        for request in requests
    ]
    return [engine._read(output.outputs[0]) for output in engine._ask(questions)]
