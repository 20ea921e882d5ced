"""vLLM in the trainer's own process: its settings, without torch, so that run files decode without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from groupwise.core.parts.engine_slot import REFUSED_SAMPLING, REFUSED_SHARING, SCORES, VERSIONS
from groupwise.core.parts.part import Part

if TYPE_CHECKING:
    from groupwise.engines.engine import Engine
    from groupwise.engines.model_source import ModelSource


class VllmInProcess(Part, slot="engine"):
    """Samples with vLLM in the trainer's own process, with a copy of the model; needs vLLM beside groupwise."""

    gives: ClassVar[frozenset[str]] = frozenset({SCORES, VERSIONS})
    """No entropies: vLLM does not compute them."""
    refused_fields: ClassVar[Mapping[str, str]] = {**REFUSED_SAMPLING, **REFUSED_SHARING}

    precision: Literal["float32", "bfloat16"] = "float32"
    """What vLLM computes in; weights are cast at each hand-over."""
    context: Annotated[int, Field(ge=2)] | None = None
    """Tokens that a prompt and its response may have together; none = what the model allows."""
    memory: Annotated[float, Field(gt=0, le=1)] = 0.4
    """Share of the GPU's memory that vLLM may take."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of vLLM's `LLM`, by their names there, such as `attention_backend`."""

    def check_device(self, device: str) -> None:
        """Refuse where vLLM is not installed."""
        from groupwise.engines.vllm.in_process import check_vllm_is_here

        check_vllm_is_here()

    def open(self, source: ModelSource) -> Engine:
        """VLLM over a copy of the model."""
        from groupwise.engines.vllm.in_process import VllmOptions, open_vllm_engine

        return open_vllm_engine(
            source,
            VllmOptions(precision=self.precision, context=self.context, gpu_memory=self.memory, further=self.options),
        )
