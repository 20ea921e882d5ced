"""What is compared: a run for each variant, alike but for its engine and its lag."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

TASKS, ROLLOUTS = 16, 8
CONTEXT = 4096
"""Tokens that a prompt and its response may have together."""
GPU_SHARE = 0.07
"""Share of the GPU's memory that vLLM is told it may take; keys and values have 4 GiB, set beside it."""
PHASES: dict[str, tuple[str, str]] = {
    "engines": ("ours", "vLLM in process"),
    "vLLM server": ("vLLM server, lag 0", "vLLM server, lag 1"),
    "our server": ("our server, lag 0", "our server, lag 1"),
}
"""Variants that take turns; the first is what the second is compared with."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How large an update is, and where it is computed."""

    model: Path
    """Folder of the model."""
    device: str
    """cuda, or cpu to try the script."""
    updates: int
    """Updates of a variant, warm ones and the last included."""
    max_steps: int
    """Steps of every rollout."""
    token_budget: int
    """Distinct tokens of a micro-batch."""

    @property
    def precision(self) -> str:
        """What engines and learner compute in."""
        return "bfloat16" if self.device == "cuda" else "float32"


def describe_variant(name: str, shape: Shape, url: str | None) -> dict[str, Any]:
    """The settings of a variant's run; `url` is where its server listens, if it has one."""
    engine = describe_engine(name, shape, url)
    return {
        "algorithm": {"method": "hgpo", "loss": {"old": "learner"}},
        "device": shape.device,
        "env": {"kind": "household", "max_steps": shape.max_steps},
        "rewards": [{"kind": "benchmarks.vllm_update.model:DrawnReward"}],
        "model": {"kind": "pretrained", "path": str(shape.model)},
        "engine": engine,
        "rollout": {
            "max_tokens": 16,
            "history": {"kind": "full"},
            "group_size": ROLLOUTS,
            "lag": 1 if name.endswith("lag 1") else 0,
            "workers": 0,
        },
        "training": {
            "updates": shape.updates,
            "tasks": TASKS,
            "checkpoint_every": 1000,
            "learner": {
                "learning_rate": 1e-6,
                "token_budget": shape.token_budget,
                "precision": shape.precision,
            },
        },
        "evaluation": {"tasks": 0},
    }


def describe_engine(name: str, shape: Shape, url: str | None) -> dict[str, Any]:
    """The settings of a variant's engine."""
    if name == "ours":
        return {"kind": "local", "precision": shape.precision, "rows": TASKS * ROLLOUTS, "memory": 0.05}
    if name == "vLLM in process":
        settings = {"kind": "vllm_in_process", "precision": shape.precision, "context": CONTEXT, "memory": GPU_SHARE}
        options = {"attention_backend": "FLASH_ATTN", "kv_cache_memory_bytes": 4 << 30, "max_num_seqs": 128}
        return settings | ({"options": options} if shape.device == "cuda" else {})
    kind = "vllm" if name.startswith("vLLM") else "server"
    return {"kind": kind, "urls": [url], "precision": shape.precision}
