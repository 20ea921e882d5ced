"""Training runs: what a run file says, the loop, what is recorded of it."""

from __future__ import annotations

from groupwise.parts.part import Part
from groupwise.training.config.engine_config import LocalEngine, ServerEngineConfig, VllmInProcess, VllmServerConfig
from groupwise.training.trackers import Csv, Mlflow, Tensorboard, Trackio, Wandb

CATALOGUE: dict[str, dict[str, type[Part]]] = {
    "engine": {
        "local": LocalEngine,
        "server": ServerEngineConfig,
        "vllm": VllmServerConfig,
        "vllm_in_process": VllmInProcess,
    },
    "tracker": {"csv": Csv, "tensorboard": Tensorboard, "wandb": Wandb, "trackio": Trackio, "mlflow": Mlflow},
}
"""Slot -> kind -> class."""

__all__ = [
    "CATALOGUE",
    "Csv",
    "LocalEngine",
    "Mlflow",
    "ServerEngineConfig",
    "Tensorboard",
    "Trackio",
    "VllmInProcess",
    "VllmServerConfig",
    "Wandb",
]
