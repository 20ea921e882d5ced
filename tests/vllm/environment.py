"""Where vLLM is, and the small models that it serves."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers

from groupwise.engines.client import ServerEngine, open_server_engine
from groupwise.engines.model_source import ModelSource
from groupwise.engines.server_launch import start_vllm_servers
from groupwise.engines.server_processes import ServerProcess
from groupwise.engines.vllm.command import find_vllm
from groupwise.system.errors import ConfigError

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("GROUPWISE_VLLM_PYTHON") or str(ROOT / ".vllm" / "bin" / "python")
"""The interpreter of an environment with vLLM, as `make test-vllm` builds it."""
VOCABULARY = 256
CONTEXT = 512
MAX_GAP = 1e-5
"""How far vLLM and transformers may differ in a log-prob, in nats."""
SECONDS = 300.0
"""What servers may take to start, or to answer."""


def find_reason_to_skip() -> str | None:
    """Why nothing of this can run here; None where it can."""
    try:
        find_vllm(PYTHON)
    except ConfigError as error:
        return f"needs an environment with vLLM, which `make test-vllm` builds: {error}"
    return None


def make_model(seed: int = 0, *, heads: int = 2, is_tied: bool = False) -> transformers.PreTrainedModel:
    """A model with grouped attention, whose distributions are far from even."""
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=CONTEXT,
        initializer_range=0.1,
        tie_word_embeddings=is_tied,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return transformers.LlamaForCausalLM(config).float().eval()


def list_weights(model: Any) -> dict[str, torch.Tensor]:
    """What a learner would hand over."""
    return {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}


def make_prompts(lengths: Sequence[int] = (5, 17, 40, 64, 100, 33, 7, 80)) -> list[tuple[int, ...]]:
    """Prompts of several lengths, some of them longer than a block of vLLM's cache."""
    draw = torch.Generator().manual_seed(3)
    return [tuple(torch.randint(3, VOCABULARY, (length,), generator=draw).tolist()) for length in lengths]


@torch.no_grad()
def score_with_transformers(
    model: Any, prompt: Sequence[int], response: Sequence[int], *, temperature: float = 1.0
) -> tuple[float, ...]:
    """Log-probs of a response, by the plain forward pass of transformers."""
    ids = torch.tensor([[*prompt, *response]])
    logps = (model(input_ids=ids).logits[0, len(prompt) - 1 : -1] / temperature).log_softmax(-1)
    return tuple(logps.gather(1, ids[0, len(prompt) :, None])[:, 0].tolist())


def find_gap(some: Sequence[float], others: Sequence[float]) -> float:
    """The largest distance of two rows of log-probs."""
    return max(abs(a - b) for a, b in zip(some, others, strict=True))


def save_model(model: Any, folder: Path) -> ModelSource:
    """A model in a folder, as a run would know it."""
    model.save_pretrained(folder)
    return ModelSource(model=model, tokenizer=None, path=str(folder), folder=folder.parent / f"{folder.name}-servers")


def start(
    source: ModelSource, *, replicas: int = 1, context: int | None = CONTEXT, extra: Sequence[str] = ()
) -> list[ServerProcess]:
    """Start servers and wait until they are healthy."""
    return start_vllm_servers(
        source,
        replicas=replicas,
        gpus=(),
        start_timeout=SECONDS,
        precision="float32",
        max_model_len=context,
        python=PYTHON,
        gpu_memory=None,
        extra=extra,
    )


def open_engine(
    urls: Sequence[str], source: ModelSource, *, processes: Sequence[ServerProcess] = (), **changes: Any
) -> ServerEngine:
    """An engine over servers."""
    settings = {"precision": "float32", "request_timeout": SECONDS, "sync_timeout": SECONDS, "max_in_flight": 64}
    return open_server_engine(urls, source=source, processes=processes, **{**settings, **changes})


@contextmanager
def serve(source: ModelSource, *, extra: Sequence[str] = ()) -> Iterator[ServerEngine]:
    """A server of its own, and the engine that speaks to it."""
    processes = start(source, extra=extra)
    engine = open_engine([process.url for process in processes], source, processes=processes)
    try:
        yield engine
    finally:
        engine.close()


def run_with_vllm(script: Path, *arguments: str) -> Any:
    """Run a script where vLLM can be imported; what it printed last, as JSON."""
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        [PYTHON, str(script), *arguments],
        env=variables,
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.strip().splitlines()[-1])
