"""Learning: the learner, the loop, checkpoints, evaluation. No method is named here; parts put numbers on tokens."""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.training.engine.config import LocalEngine
from groupwise.training.engine.remote import ServerEngineConfig, VllmServerConfig
from groupwise.training.engine.vllm_in_process import VllmInProcess
from groupwise.training.learner.schedules import Constant, Cosine, Linear

ENGINES: dict[str, type[Part]] = {
    "local": LocalEngine,
    "server": ServerEngineConfig,
    "vllm": VllmServerConfig,
    "vllm_in_process": VllmInProcess,
}

SCHEDULES: dict[str, type[Part]] = {
    "constant": Constant,
    "linear": Linear,
    "cosine": Cosine,
}

__all__ = [
    "ENGINES",
    "SCHEDULES",
    "Constant",
    "Cosine",
    "Linear",
    "LocalEngine",
    "ServerEngineConfig",
    "VllmInProcess",
    "VllmServerConfig",
]
