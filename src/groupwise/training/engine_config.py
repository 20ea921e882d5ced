"""How responses are sampled: the engine's settings, without torch, so that run files decode without it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from groupwise.core.parts import Part


class EngineConfig(Part):
    """How responses are sampled."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """What the engine computes in: float32 = its weights as the model was loaded; bfloat16 = cast at each hand-over."""
    decoding: Literal["auto", "eager", "graphs"] = "auto"
    """How tokens are decoded: graphs = in slots, a CUDA graph a step; auto = graphs on a GPU where the model allows."""
    rows: Annotated[int, Field(ge=1)] = 256
    """Most responses that decode at a time, with graphs."""
    memory: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Share of the GPU's memory that keys and values may take, with graphs."""
    compile_parts: bool = False
    """Whether norms and feed-forward parts are compiled, with graphs: faster, after half a minute at the start."""
    batch_tokens: Annotated[int, Field(ge=1)] = 32768
    """Most tokens of a batch: of prompts that are read together, and, without graphs, of prompts and responses."""
