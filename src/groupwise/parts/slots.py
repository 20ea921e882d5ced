"""The slots of an algorithm: the arguments and results of its parts.

Each slot is a small protocol. `...Part` is the annotation of a field that takes a part of that slot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

import numpy as np

from groupwise.parts.part import Slot, kind_of
from groupwise.system.errors import ConfigError, list_names, nearest

if TYPE_CHECKING:
    from groupwise.data.credit import Credit, TokenCredit
    from groupwise.data.past_rollouts import PastRollout, ReplayedRollout
    from groupwise.data.records import Trajectory
    from groupwise.data.samples import Pair, Totals
    from groupwise.data.segments import BoolArray, FloatArray, IntArray, Segments
    from groupwise.data.step_table import StepTable
    from groupwise.data.token_table import TokenTable
    from groupwise.store.rollout_index import PastRollouts

Draw = Callable[..., np.random.Generator]
"""A random generator by name: the same name gives the same numbers."""


class Grouper(Protocol):
    """Says which steps are compared: one group label per step, -1 = not comparable."""

    def __call__(self, table: StepTable) -> IntArray: ...


class Signal(Protocol):
    """Says what is compared: one number per step."""

    def __call__(self, table: StepTable) -> FloatArray: ...


class Baseline(Protocol):
    """Subtracts a group's baseline from its members' values; returns the centred values."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray: ...


class Scale(Protocol):
    """The spread of a group's values: one number per group."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray: ...


class Estimator(Protocol):
    """Computes the advantages of a table."""

    def __call__(self, table: StepTable) -> Credit: ...


class TokenCreditPart(Protocol):
    """Turns the advantages of steps into those of their sampled tokens, and says which tokens train.

    `credit` is in the table's order of steps.
    """

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit: ...


class Filter(Protocol):
    """Says which steps may train: True = keep. Groups still count the steps it drops."""

    def __call__(self, table: StepTable) -> BoolArray: ...


class CreditFilter(Protocol):
    """A filter with `reads_credit = True`: it is called after the advantages are computed, which cannot depend on it.

    `credit` is in the table's order of steps; `table.trains` says which steps the other filters keep.
    """

    reads_credit: ClassVar[bool]

    def __call__(self, table: StepTable, credit: Credit) -> BoolArray: ...


class Scorer(Protocol):
    """A scorer: calls a model or judge before the rollouts are compared, and gives a mapping of step info per step.

    Step info is stored with the steps and becomes columns of the table, so advantages can be computed again without the
    model or judge. `tools` is a `groupwise.rollout.scorers.Tools`; `draw(...)` gives a random generator by name.
    """

    @property
    def needs(self) -> frozenset[str]:
        """The tools that it uses: generate, score, reference, hidden, judge."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Any, *, draw: Draw) -> list[Any]: ...


class Judge(Protocol):
    """Answers questions about rollouts, `groupwise.rollout.judges.JudgeQuestion`, with one finite number each."""

    def __call__(self, questions: Sequence[Any]) -> list[float]: ...


class Shaper(Protocol):
    """Group reward shaping: compares a group's rollouts and adds to their rewards, one number per step."""

    @property
    def needs_entropy(self) -> bool:
        """Whether it reads the entropies of the sampled tokens, which some engines do not record."""

    def __call__(self, group: Sequence[Trajectory]) -> list[tuple[float, ...]]: ...


class Replay(Protocol):
    """Says which past rollouts join the groups of an update.

    `version` is the policy version that learns; `draw(...)` gives a random generator by name. A part whose replayed
    rollouts keep their old advantages declares `keeps_credit: ClassVar[bool] = True`. Then a loss that reads more than
    advantages is an error before a model loads.
    """

    @property
    def max_log_ratio(self) -> float | None:
        """How far, in nats per token, the policy may have moved away from a past rollout; None = no limit."""

    def __call__(
        self, groups: Sequence[Sequence[Trajectory]], past_rollouts: PastRollouts, *, version: int, draw: Draw
    ) -> list[ReplayedRollout]: ...


class RolloutFilter(Protocol):
    """A rollout filter: says which rollouts of a group are kept. The others are left out of its statistics too."""

    def __call__(self, group: Sequence[Trajectory], *, draw: Draw) -> Sequence[Trajectory]: ...


class Hint(Protocol):
    """Says which tasks get further rollouts with a hint in the prompt, and writes the hint."""

    def words(self) -> tuple[str, ...]:
        """Words of its hints that the environment does not use, for a tokenizer that is made from scratch."""

    def choose(self, tasks: Sequence[str], past_rollouts: PastRollouts, *, draw: Draw) -> list[PastRollout]:
        """The past rollouts that hints are made of, one for each task that gets a hint."""

    def text(self, past: Trajectory, say: Callable[[Sequence[int]], str]) -> str:
        """The hint; `say` decodes sampled ids."""

    def joins_unhinted_group(self, trajectory: Trajectory) -> bool:
        """Whether a rollout with a hint also trains without the hint, in the task's own group."""


class Pairing(Protocol):
    """Says which rollouts of a task a loss compares in pairs, as numbers of the table's rollouts."""

    def __call__(self, table: StepTable) -> Sequence[Pair]: ...


class Loss(Protocol):
    """Computes the loss of a micro-batch from its token columns. The losses of all micro-batches of an update add up.

    The columns and the result hold tensors, see `groupwise.losses`. Optional members:

    - `ignores_zero_credit`: if True, it gets no samples with advantage 0.
    - `columns`, `channels`: names of the step table's columns and of the algorithm's channels that it reads.
    - `first_pass(columns, totals)`: a summary of a micro-batch, without gradient. It is called for all micro-batches of
      an optimizer step before the loss. The sum of the summaries, by `+` or by a method `merge`, is the third argument:
      `loss(columns, totals, summary)`.
    - `order_turns(num_turns)` and `carry(columns, totals)`: turns are learned in stages; see
      `groupwise.learner.micro_batches`.
    """

    @property
    def needs(self) -> frozenset[str]: ...

    @property
    def unit(self) -> str: ...

    def __call__(self, columns: Any, totals: Totals, *summary: Any) -> Any: ...


class Critic(Protocol):
    """Values the states of an update before its advantages, and learns from their returns.

    The learner opens it on a model. The call is its loss per state. Tensors have one entry per state: the value under
    the current weights, which has the gradient; the recorded value; the return. The result is a
    `groupwise.losses.TokenLoss`.
    """

    @property
    def by(self) -> Literal["token", "step"]:
        """Which states it values: those before each sampled token, or those in which steps begin."""

    @property
    def gamma(self) -> float:
        """Discount of the returns that it learns, per token or per step."""

    @property
    def lam(self) -> float:
        """Fraction of later differences in these returns: 1 = what was sampled, 0 = the next value."""

    @property
    def learning_rate(self) -> float:
        """Its largest learning rate."""

    @property
    def owns_trunk(self) -> bool:
        """Whether it trains a copy of the policy's model; if not, only a head on the policy's hidden states."""

    def __call__(self, value_T: Any, old_T: Any, return_T: Any) -> Any: ...


class StateRule(Protocol):
    """Says from which state a model call of an agent starts: a key, or None = not comparable.

    `messages` is the conversation so far, in OpenAI's chat form. Calls of two rollouts with equal keys are compared.
    """

    def __call__(self, messages: Sequence[Mapping[str, Any]]) -> str | None: ...


GrouperPart = Annotated[Grouper, Slot("grouper")]
SignalPart = Annotated[Signal, Slot("signal")]
BaselinePart = Annotated[Baseline, Slot("baseline")]
ScalePart = Annotated[Scale, Slot("scale")]
EstimatorPart = Annotated[Estimator, Slot("estimator")]
FilterPart = Annotated[Filter | CreditFilter, Slot("filter")]
RolloutFilterPart = Annotated[RolloutFilter, Slot("rollout_filter")]
TokenCreditSlot = Annotated[TokenCreditPart, Slot("token_credit")]
ScorerPart = Annotated[Scorer, Slot("scorer")]
JudgePart = Annotated[Judge, Slot("judge")]
ShaperPart = Annotated[Shaper, Slot("shaper")]
ReplayPart = Annotated[Replay, Slot("replay")]
HintPart = Annotated[Hint, Slot("hint")]
CriticPart = Annotated[Critic, Slot("critic")]
PairingPart = Annotated[Pairing, Slot("pairing")]
LossPart = Annotated[Loss, Slot("loss")]
StateRulePart = Annotated[StateRule, Slot("state_rule")]


# The slot `engine`. It is here, without torch, because run files are read without torch; the protocol of an engine is
# `groupwise.engines.engine`.

ENTROPY = "entropy"
SCORES = "scores"
VERSIONS = "versions"
TRUNCATION = "truncation"

CAPABILITIES: Mapping[str, str] = {
    ENTROPY: "the entropies of sampled tokens",
    SCORES: "the log-probs of recorded tokens",
    VERSIONS: "which version of the weights sampled a token",
    TRUNCATION: "samples of the most likely tokens only (top_p, top_k)",
}
"""What an engine may give in addition to sampled tokens and their log-probs, in words."""

_CUT = (
    "training samples from the whole distribution: with a truncated one, the log-probs would not be the policy's, and "
    "every ratio of the loss would be wrong (by 0.69 nats at top_p = 0.5); use temperature"
)
_PENALTY = (
    "no engine here penalises repeated tokens, because the learner could not compute the same distribution; use a "
    "reward instead"
)
_STOP = (
    "a response ends with the token that ends a turn, never at a string, because a string may end inside a token; "
    "limit max_tokens, or parse the action with rollout.action_parser"
)
REFUSED_SAMPLING: Mapping[str, str] = {
    **dict.fromkeys(("top_p", "top_k"), f"{_CUT}, or truncate in [evaluation], from which nothing is learned"),
    "min_p": f"{_CUT}, or top_p and top_k in [evaluation], from which nothing is learned",
    **dict.fromkeys(("repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias"), _PENALTY),
    **dict.fromkeys(("stop", "stop_strings"), _STOP),
}
"""Sampling settings of other tools that training does not have here, with the reason."""
REFUSED_IN_EVALUATION: Mapping[str, str] = {
    name: reason for name, reason in REFUSED_SAMPLING.items() if name not in ("top_p", "top_k")
}
"""The same for evaluations, which may truncate the distribution."""

REFUSED_SHARING: Mapping[str, str] = {
    "share_weights": "only the engine that computes in the trainer's own modules can read the learner's weights where "
    'they are; use kind = "local"'
}
"""Settings that engines with their own copy of the weights do not have, with the reason."""


class EnginePart(Protocol):
    """The settings of an engine, and how it is opened.

    An engine that answers several threads at once, also during a weight sync, has
    `supports_inflight_weight_update = True`. `rollout.lag = "free"` needs it.
    """

    @property
    def gives(self) -> frozenset[str]:
        """Which of `CAPABILITIES` its engine gives. If a run needs another one, it fails before a model loads."""

    @property
    def precision(self) -> str:
        """float32 or bfloat16: how near its log-probs are to the learner's."""

    def check_device(self, device: str) -> None:
        """Raise an error, before a model loads, if the engine cannot work with the learner's device: "cpu", "cuda"."""

    def open(self, source: Any) -> Any:
        """The engine for a run's model, a `groupwise.engines.model_source.ModelSource`.

        It has its own copy of the model's weights, as version 0: from the loaded model, from the model's folder, or in
        a server that was started with them.
        """


EngineSlot = Annotated[EnginePart, Slot("engine")]
"""A field that takes an engine."""


def check_engine_part(part: Any) -> None:
    """Raise a ConfigError if an engine's part declares unknown capabilities or an unknown precision."""
    kind = kind_of(type(part))
    if not isinstance(part.gives, frozenset):
        raise ConfigError(
            f"engine: {kind!r} has {part.gives!r} for `gives`; write a frozenset of {list_names(CAPABILITIES)}"
        )
    for name in sorted(map(str, part.gives - CAPABILITIES.keys())):
        raise ConfigError(
            f"engine: {kind!r} has {name!r} in `gives`, which is not a capability; {nearest(name, CAPABILITIES)}"
        )
    if part.precision not in ("float32", "bfloat16"):
        raise ConfigError(f"engine: {kind!r} has precision {part.precision!r}; write 'float32' or 'bfloat16'")
