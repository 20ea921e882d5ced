"""The engine of this process: its settings, without torch, so that run files decode without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from groupwise.core.parts.engine_slot import ENTROPY, REFUSED_SAMPLING, SCORES, VERSIONS
from groupwise.core.parts.part import Part

if TYPE_CHECKING:
    from groupwise.engines.engine import Engine
    from groupwise.engines.model_source import ModelSource


class LocalEngine(Part, slot="engine"):
    """Samples in the trainer's own process, with a copy of the model on the same device, or with the learner's own."""

    gives: ClassVar[frozenset[str]] = frozenset({ENTROPY, SCORES, VERSIONS})
    """All that an engine can give."""
    refused_fields: ClassVar[Mapping[str, str]] = REFUSED_SAMPLING

    precision: Literal["float32", "bfloat16"] = "float32"
    """What the engine computes in: float32 = its weights as the model was loaded; bfloat16 = cast at each hand-over."""
    share_weights: bool = False
    """Whether the engine reads the learner's own weights instead of a copy: one model in memory, and a hand-over copies
    nothing. Their precision must be the engine's; needs `rollout.lag = 0` and the local learner."""
    decoding: Literal["auto", "eager", "graphs"] = "auto"
    """How tokens are decoded: graphs = in lanes, a CUDA graph a step; auto = graphs on a GPU where the model allows."""
    rows: Annotated[int, Field(ge=1)] = 256
    """Most responses that decode at a time, with graphs."""
    memory: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Share of the GPU's memory that keys and values may take, with graphs."""
    compile_parts: Literal["auto"] | bool = "auto"
    """Whether norms and feed-forward parts are compiled, with graphs: faster, after half a minute at the start; auto =
    where there are no layers of our own for the model. What fails its trial is left out, and the log says so."""
    batch_tokens: Annotated[int, Field(ge=1)] = 32768
    """Most tokens of a batch: of prompts that are read together, and, without graphs, of prompts and responses."""

    def check_device(self, device: str) -> None:
        """Refuse graphs where there is no GPU."""
        from groupwise.engines.open_engine import check_decoding

        check_decoding(self.decoding, device)

    def open(self, source: ModelSource) -> Engine:
        """An engine over a copy of the model, or over the model's own weights."""
        from groupwise.engines.open_engine import check_shared_weights, open_engine

        if self.share_weights:
            check_shared_weights(source.model, self.precision)
        return open_engine(
            source.share_model() if self.share_weights else source.copy_model(),
            precision=self.precision,
            decoding=self.decoding,
            rows=self.rows,
            memory=self.memory,
            compile_parts=self.compile_parts,
            batch_tokens=self.batch_tokens,
        )
