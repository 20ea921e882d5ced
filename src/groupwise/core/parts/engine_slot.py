"""The slot `engine`: who samples responses, said without torch, so that run files decode without it.

The part says what its engine gives before anything loads; `groupwise.engines.engine` has the engine itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Protocol

from groupwise.core.errors import ConfigError, list_names, nearest
from groupwise.core.parts.part import Slot, kind_of

ENTROPY = "entropy"
SCORES = "scores"
VERSIONS = "versions"

GIFTS: Mapping[str, str] = {
    ENTROPY: "the entropies of sampled tokens",
    SCORES: "the log-probs of recorded tokens",
    VERSIONS: "which version of the weights sampled a token",
}
"""What an engine may give beside sampled tokens and their log-probs, in words."""

_CUT = (
    "no engine cuts the distribution: the log-probs of what is left would not be the policy's, and every ratio of the "
    "loss would be off (0.69 nats at top_p = 0.5); use temperature"
)
_PENALTY = (
    "no engine penalises tokens for having been said: the learner could not compute the same distribution; reward what "
    "you want instead"
)
_STOP = (
    "a response ends with the token that ends a turn, never at a string: text follows from tokens, and a string may "
    "end within one; limit max_tokens, or read the action out of the response with rollout.action_rule"
)
REFUSED_SAMPLING: Mapping[str, str] = {
    **dict.fromkeys(("top_p", "top_k", "min_p"), _CUT),
    **dict.fromkeys(("repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias"), _PENALTY),
    **dict.fromkeys(("stop", "stop_strings"), _STOP),
}
"""Settings of sampling that other tools have and that every engine here refuses alike, with the reason."""

REFUSED_SHARING: Mapping[str, str] = {
    "share_weights": "only the engine that computes in the trainer's own modules can read the learner's weights where "
    'they are; use kind = "local"',
}
"""What engines with weights elsewhere refuse."""


class EnginePart(Protocol):
    """Fills the slot `engine`: the settings of an engine, and how it is opened.

    One whose engine answers several threads at once, and goes on answering while it takes over weights, also has
    `goes_on_over_handover = True`: `rollout.lag = "free"` asks for it.
    """

    @property
    def gives(self) -> frozenset[str]:
        """Which of `GIFTS` its engine gives; what needs another one is refused before a model loads."""

    @property
    def precision(self) -> str:
        """What it computes in, float32 or bfloat16: how near its log-probs are to the learner's."""

    def check_device(self, device: str) -> None:
        """Refuse, before a model loads, what cannot work where the learner computes: "cpu", "cuda"."""

    def open(self, source: Any) -> Any:
        """The engine for a run's model, a `groupwise.engines.model_source.ModelSource`.

        It holds weights of its own, those of the model, as version 0. Where they come from is its affair: a copy of
        the loaded model, the model's folder, or a server that was started with them.
        """


EngineSlot = Annotated[EnginePart, Slot("engine")]
"""A field of a run file that an engine fills."""


def check_engine_part(part: Any) -> None:
    """Refuse a part from elsewhere that is no engine's, or that promises what nobody knows."""
    kind = kind_of(type(part))
    missing = [name for name in ("gives", "precision", "check_device", "open") if not hasattr(part, name)]
    if missing:
        raise ConfigError(f"engine: {kind!r} has no {missing[0]!r}; docs/seams/engine.md has what an engine part needs")
    if not isinstance(part.gives, frozenset):
        raise ConfigError(f"engine: {kind!r} has {part.gives!r} for `gives`; write a frozenset of {list_names(GIFTS)}")
    for name in sorted(map(str, part.gives - GIFTS.keys())):
        raise ConfigError(f"engine: {kind!r} gives {name!r}, which nobody asks for; {nearest(name, GIFTS)}")
    if part.precision not in ("float32", "bfloat16"):
        raise ConfigError(f"engine: {kind!r} computes in {part.precision!r}; write 'float32' or 'bfloat16'")
