"""A sample: one training sequence, a prompt the engine was given and the response it sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

from groupwise.core.errors import RecordError


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One training sequence with the credit of its sampled tokens.

    Worked example: step 1 of attempt 4, prompt (7, 8, 9), sampled (5, 2), credit 0.5:

        Sample(prompt_ids=(7, 8, 9), response_ids=(5, 2), advantage=0.5, logp_behaviour=(-0.1, -2.3),
               trajectory=4, step=1, group=0)

    trains on two tokens: 5, predicted from 9, and 2, predicted from 5; both have advantage 0.5. A sample without
    sampled tokens, or with `trains` off, trains on none: no layout holds it and no total counts it. With
    `trained=(False, True)` it trains on token 2 alone: 5 is still read, and nothing else is made of it.
    """

    prompt_ids: tuple[int, ...]
    """Token ids the engine was given; at least one: the last of them predicts the first sampled token."""
    response_ids: tuple[int, ...]
    """Token ids the engine sampled; only these train."""
    advantage: float | tuple[float, ...]
    """Advantage of the whole response, or of each sampled token."""
    logp_behaviour: tuple[float, ...] = ()
    """Log-probability of each sampled token when it was sampled; empty = not recorded."""
    entropy: tuple[float, ...] = ()
    """Entropy of the sampling distribution at each sampled token; empty = not recorded."""
    trajectory: int
    """Number of its trajectory within the update."""
    step: int
    """Index of its step within the trajectory."""
    group: int
    """Number of its group within the update."""
    trains: bool = True
    """Whether it trains; off = it only took part in comparisons."""
    trained: tuple[bool, ...] | None = None
    """Which of the sampled tokens train, where not all do; None = all."""
    off_policy: bool = False
    """Whether another policy sampled it than the one that learns: its ratio is taken against `logp_behaviour`."""
    spans: tuple[int, ...] | None = None
    """Span of the response that each sampled token belongs to, for losses that take ratios by span; None = not told."""
    columns: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Named numbers for the loss, the same for all its tokens; those that the loss declares."""
    channels: Mapping[str, float | tuple[float, ...]] = field(default_factory=dict, hash=False)
    """Further credit for the loss by name: of the whole response, or of each sampled token."""

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise RecordError(
                f"{self.name}: the prompt is empty, so that nothing predicts the first sampled token; "
                "begin it with a token such as the tokenizer's beginning of sequence"
            )
        num = len(self.response_ids)
        if (self.logp_behaviour and len(self.logp_behaviour) != num) or (self.entropy and len(self.entropy) != num):
            name = "entropy" if len(self.logp_behaviour) in (0, num) else "logp_behaviour"
            raise RecordError(
                f"{self.name}: {name} has {len(getattr(self, name))} entries for {num} sampled tokens; "
                "record one per token, or none"
            )
        if type(self.advantage) is tuple:
            self._check_credit("advantage", self.advantage)
        if self.channels:
            for name, credit in self.channels.items():
                self._check_credit(f"channel {name!r}", credit)
        if self.trained is not None and len(self.trained) != num:
            raise RecordError(
                f"{self.name}: trained has {len(self.trained)} entries for {num} sampled tokens; "
                "say of each token whether it trains, or leave it out"
            )

        if self.spans is not None and len(self.spans) != num:
            raise RecordError(
                f"{self.name}: spans has {len(self.spans)} entries for {num} sampled tokens; "
                "say of each token to which span it belongs, or leave it out"
            )

    def _check_credit(self, name: str, credit: float | tuple[float, ...]) -> None:
        if isinstance(credit, tuple) and len(credit) != len(self.response_ids):
            raise RecordError(
                f"{self.name}: {name} has {len(credit)} entries for {len(self.response_ids)} sampled "
                "tokens; give one number, or one per token"
            )

    @property
    def name(self) -> str:
        """How messages speak of the sample."""
        return f"sample of trajectory {self.trajectory}, step {self.step}"

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Prompt and response, as the model reads them."""
        return self.prompt_ids + self.response_ids

    @property
    def num_trained(self) -> int:
        """How many of its tokens train."""
        if not self.trains:
            return 0
        return len(self.response_ids) if self.trained is None else sum(self.trained)

    @property
    def computed_ids(self) -> tuple[int, ...]:
        """Prompt, and the response up to its last token that trains: what comes after that is never computed."""
        return self.prompt_ids + (self.response_ids if self.trained is None else self.computed_response_ids)

    @property
    def computed_response_ids(self) -> tuple[int, ...]:
        """The response up to its last token that trains."""
        if self.trained is None:
            return self.response_ids
        return self.response_ids[: max((n for n, trains in enumerate(self.trained, 1) if trains), default=0)]

    def of_trained(self, values: float | Sequence[float]) -> float | Sequence[float]:
        """Of a value for each sampled token, those of the tokens that train; a single value stays as it is."""
        if self.trained is None or not isinstance(values, Sequence) or not len(values):
            return values
        return tuple(compress(values, self.trained))
