"""The slots of an algorithm: what each of its parts is handed, and what it returns.

A slot is a small protocol; `...Part` is the annotation of a field that a part of that slot fills.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

import numpy as np

from groupwise.parts.part import Slot, kind_of
from groupwise.system.errors import ConfigError, list_names, nearest

if TYPE_CHECKING:
    from groupwise.data.credit import Credit, TokenCredit
    from groupwise.data.past_attempts import PastAttempt, RecalledAttempt
    from groupwise.data.records import Trajectory
    from groupwise.data.samples import Pair, Totals
    from groupwise.data.segments import BoolArray, FloatArray, IntArray, Segments
    from groupwise.data.step_table import StepTable
    from groupwise.data.token_table import TokenTable
    from groupwise.store.attempt_index import PastAttempts

Draw = Callable[..., np.random.Generator]
"""A random generator by name: the same name gives the same numbers."""


class Grouper(Protocol):
    """Says who is compared with whom: a label a step, -1 = not comparable."""

    def __call__(self, table: StepTable) -> IntArray: ...


class Signal(Protocol):
    """Says what is compared: a number a step."""

    def __call__(self, table: StepTable) -> FloatArray: ...


class Baseline(Protocol):
    """Takes the group's own level out of its members' values; returns the centred values."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray: ...


class Scale(Protocol):
    """Says how far apart a group's members lie: a number a group."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray: ...


class Estimator(Protocol):
    """Turns a table into credit."""

    def __call__(self, table: StepTable) -> Credit: ...


class TokenCreditPart(Protocol):
    """Turns the credit of steps into that of their sampled tokens, and says which of these train.

    `credit` is handed over in the table's order of steps.
    """

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit: ...


class Filter(Protocol):
    """Says which steps may train: True a step to keep. Groups still count the steps it drops."""

    def __call__(self, table: StepTable) -> BoolArray: ...


class CreditFilter(Protocol):
    """A filter that declares `reads_credit = True`: it is asked once there is credit, so that credit cannot depend on
    it.

    `credit` is handed over in the table's order of steps; `table.trains` says what the other filters leave.
    """

    reads_credit: ClassVar[bool]

    def __call__(self, table: StepTable, credit: Credit) -> BoolArray: ...


class Measure(Protocol):
    """Finds something out about attempts before they are compared: a mapping of facts for each step of each attempt.

    Facts are written down with the steps and become columns of the table, so that credit can be derived again without
    whatever was asked. `tools` is what it may ask, `groupwise.rollout.measures.Tools`; `draw(...)` gives a random
    generator by name.
    """

    @property
    def needs(self) -> frozenset[str]:
        """What of the tools it asks: generate, score, reference, hidden, judge."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Any, *, draw: Draw) -> list[Any]: ...


class Judge(Protocol):
    """Answers questions about attempts, `groupwise.rollout.judges.JudgeQuestion`: a finite number for each."""

    def __call__(self, questions: Sequence[Any]) -> list[float]: ...


class Shaper(Protocol):
    """Adds to what a group's attempts earned by comparing them: a number for each step of each attempt."""

    @property
    def needs_entropy(self) -> bool:
        """Whether it reads the entropies of the sampled tokens, which not every engine records."""

    def __call__(self, group: Sequence[Trajectory]) -> list[tuple[float, ...]]: ...


class Replay(Protocol):
    """Says which past attempts join the groups of an update.

    `version` is the version of the weights that are about to learn; `draw(...)` gives a random generator by name. A
    part that recalls attempts with the credit they had says so with `keeps_credit: ClassVar[bool] = True`, so that a
    loss that reads more than credit is refused before a model loads.
    """

    @property
    def max_log_ratio(self) -> float | None:
        """How far, in nats a token, the policy may have moved away from a past attempt; None = however far."""

    def __call__(
        self, groups: Sequence[Sequence[Trajectory]], past_attempts: PastAttempts, *, version: int, draw: Draw
    ) -> list[RecalledAttempt]: ...


class Admission(Protocol):
    """Says which attempts of a group are compared at all; those that are not leave its statistics too."""

    def __call__(self, group: Sequence[Trajectory], *, draw: Draw) -> Sequence[Trajectory]: ...


class Guidance(Protocol):
    """Says which tasks get further attempts with guidance in their prompt, and what it says."""

    def words(self) -> tuple[str, ...]:
        """What it says beside the environment's own words, for a tokenizer made from scratch."""

    def choose(self, tasks: Sequence[str], past_attempts: PastAttempts, *, draw: Draw) -> list[PastAttempt]:
        """The past attempts that guidance is made of, one for each task that gets some."""

    def text(self, past: Trajectory, say: Callable[[Sequence[int]], str]) -> str:
        """The guidance itself; `say` turns sampled ids into text."""

    def joins_unguided_group(self, trajectory: Trajectory) -> bool:
        """Whether a guided attempt also trains without guidance, among the attempts at the task itself."""


class Pairing(Protocol):
    """Says which attempts at a task a loss holds against each other, as numbers of the table's attempts."""

    def __call__(self, table: StepTable) -> Sequence[Pair]: ...


class Loss(Protocol):
    """Makes the number that is minimised of a micro-batch's token columns; its shares of an update add up.

    The columns and the result hold tensors, which `parts` does not name: see `groupwise.losses`. What else one may
    have:

    - `ignores_zero_credit`: one that says so is not shown samples without credit.
    - `columns`, `channels`: names of the step table's columns and of the algorithm's channels that it is handed.
    - `first_pass(columns, totals)`: makes a summary of a micro-batch, without gradient. It is called for all
      micro-batches of an optimiser step before any of them is learnt from; their summaries, added up by `+` or by a
      method `merge`, come third in the call: `loss(columns, totals, summary)`.
    - `order_turns(num_turns)` and `carry(columns, totals)`: turns are learnt one stage after the other; see
      `groupwise.learner.micro_batches`.
    """

    @property
    def needs(self) -> frozenset[str]: ...

    @property
    def unit(self) -> str: ...

    def __call__(self, columns: Any, totals: Totals, *summary: Any) -> Any: ...


GrouperPart = Annotated[Grouper, Slot("grouper")]
SignalPart = Annotated[Signal, Slot("signal")]
BaselinePart = Annotated[Baseline, Slot("baseline")]
ScalePart = Annotated[Scale, Slot("scale")]
EstimatorPart = Annotated[Estimator, Slot("estimator")]
FilterPart = Annotated[Filter | CreditFilter, Slot("filter")]
AdmissionPart = Annotated[Admission, Slot("admission")]
TokenCreditSlot = Annotated[TokenCreditPart, Slot("token_credit")]
MeasurePart = Annotated[Measure, Slot("measure")]
JudgePart = Annotated[Judge, Slot("judge")]
ShaperPart = Annotated[Shaper, Slot("shaper")]
ReplayPart = Annotated[Replay, Slot("replay")]
GuidancePart = Annotated[Guidance, Slot("guidance")]
PairingPart = Annotated[Pairing, Slot("pairing")]
LossPart = Annotated[Loss, Slot("loss")]


# The slot `engine`: who samples responses, said without torch, so that run files decode without it.
#
# The part says what its engine gives before anything loads; `groupwise.engines.engine` has the engine itself.

ENTROPY = "entropy"
SCORES = "scores"
VERSIONS = "versions"

CAPABILITIES: Mapping[str, str] = {
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
    `supports_inflight_weight_update = True`: `rollout.lag = "free"` asks for it.
    """

    @property
    def gives(self) -> frozenset[str]:
        """Which of `CAPABILITIES` its engine gives; what needs another one is refused before a model loads."""

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
    """Refuse an engine's part that promises what nobody knows."""
    kind = kind_of(type(part))
    if not isinstance(part.gives, frozenset):
        raise ConfigError(
            f"engine: {kind!r} has {part.gives!r} for `gives`; write a frozenset of {list_names(CAPABILITIES)}"
        )
    for name in sorted(map(str, part.gives - CAPABILITIES.keys())):
        raise ConfigError(f"engine: {kind!r} gives {name!r}, which nobody asks for; {nearest(name, CAPABILITIES)}")
    if part.precision not in ("float32", "bfloat16"):
        raise ConfigError(f"engine: {kind!r} computes in {part.precision!r}; write 'float32' or 'bfloat16'")
