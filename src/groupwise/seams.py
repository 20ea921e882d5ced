"""What a package of your own imports: every name that the pages under docs/seams use, in one place.

from groupwise.seams import Part, StepTable, TokenCredit

Each name is loaded when it is first asked for, so that a part is declared where torch is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise.core.lazy_names import import_when_asked

if TYPE_CHECKING:
    from groupwise.core.credit import Comparison, Credit, Derivation, Mixture, Shared
    from groupwise.core.errors import (
        ConfigError,
        EngineFault,
        EnvironmentFault,
        GroupwiseError,
        RecordError,
        TrainingError,
    )
    from groupwise.core.journal.attempt_index import PastAttempts
    from groupwise.core.pairs import Pair
    from groupwise.core.parts.engine_slot import EngineSlot
    from groupwise.core.parts.part import Part, Slot
    from groupwise.core.parts.slots import Draw, Loss
    from groupwise.core.parts.stateful import ObservedUpdate, PartState
    from groupwise.core.past_attempts import PastAttempt, RecalledAttempt
    from groupwise.core.records import Origin, Step, StopReason, Task, Trajectory
    from groupwise.core.sample import Sample
    from groupwise.core.score_requests import PromptAndResponse, Whose
    from groupwise.core.segments import BoolArray, FloatArray, IntArray, Segments
    from groupwise.core.step_table import StepTable
    from groupwise.core.token_credit import TokenCredit, TokenTrace
    from groupwise.core.token_table import TokenTable
    from groupwise.core.totals import Totals
    from groupwise.engines.conformance.suite import check_engine
    from groupwise.engines.engine import Engine, Generation, Request, VersionSpan
    from groupwise.engines.model_source import ModelSource
    from groupwise.envs import Environment, Observation, Outcome, Progress
    from groupwise.losses import (
        ENTROPY,
        OLD_LOGP,
        PAIRS,
        REFERENCE_LOGP,
        SPANS,
        LossResult,
        PairSums,
        PairTerms,
        PolicyLoss,
        Tally,
        TokenColumns,
        TokenLoss,
        TrajectorySums,
        share_of_pairs,
        share_of_step,
    )
    from groupwise.rollout import AttemptRequest, Group, PlanTools, Played, PlayedRound
    from groupwise.rollout.forks import Fork
    from groupwise.rollout.judges import JudgeQuestion
    from groupwise.rollout.measures import Continuation, Tools
    from groupwise.training.engine.config import LocalEngine
    from groupwise.training.learner import Learned, Learner, LearnerConfig, LearnerSlot
    from groupwise.training.run_config import WarmStartConfig
    from groupwise.training.weight_transfer import WeightTransfer, WeightTransferSlot

PLACES = {
    "groupwise.core.credit": (
        "Comparison",
        "Credit",
        "Derivation",
        "Mixture",
        "Shared",
    ),
    "groupwise.core.parts.engine_slot": ("EngineSlot",),
    "groupwise.core.errors": (
        "ConfigError",
        "EngineFault",
        "EnvironmentFault",
        "GroupwiseError",
        "RecordError",
        "TrainingError",
    ),
    "groupwise.core.journal.attempt_index": ("PastAttempts",),
    "groupwise.core.past_attempts": (
        "PastAttempt",
        "RecalledAttempt",
    ),
    "groupwise.core.pairs": ("Pair",),
    "groupwise.core.parts.part": (
        "Part",
        "Slot",
    ),
    "groupwise.core.score_requests": (
        "PromptAndResponse",
        "Whose",
    ),
    "groupwise.core.records": (
        "Origin",
        "Step",
        "StopReason",
        "Task",
        "Trajectory",
    ),
    "groupwise.core.sample": ("Sample",),
    "groupwise.core.segments": (
        "BoolArray",
        "FloatArray",
        "IntArray",
        "Segments",
    ),
    "groupwise.core.parts.slots": (
        "Draw",
        "Loss",
    ),
    "groupwise.core.parts.stateful": (
        "ObservedUpdate",
        "PartState",
    ),
    "groupwise.core.step_table": ("StepTable",),
    "groupwise.core.token_credit": (
        "TokenCredit",
        "TokenTrace",
    ),
    "groupwise.core.token_table": ("TokenTable",),
    "groupwise.core.totals": ("Totals",),
    "groupwise.engines.conformance.suite": ("check_engine",),
    "groupwise.engines.engine": (
        "Engine",
        "Generation",
        "Request",
        "VersionSpan",
    ),
    "groupwise.engines.model_source": ("ModelSource",),
    "groupwise.envs": (
        "Environment",
        "Observation",
        "Outcome",
        "Progress",
    ),
    "groupwise.losses": (
        "ENTROPY",
        "OLD_LOGP",
        "PAIRS",
        "REFERENCE_LOGP",
        "SPANS",
        "LossResult",
        "PolicyLoss",
        "Tally",
        "TokenColumns",
        "TokenLoss",
        "PairSums",
        "PairTerms",
        "TrajectorySums",
        "share_of_pairs",
        "share_of_step",
    ),
    "groupwise.rollout": (
        "AttemptRequest",
        "Group",
        "Played",
        "PlayedRound",
        "PlanTools",
    ),
    "groupwise.rollout.forks": ("Fork",),
    "groupwise.rollout.judges": ("JudgeQuestion",),
    "groupwise.rollout.measures": (
        "Continuation",
        "Tools",
    ),
    "groupwise.training.engine.config": ("LocalEngine",),
    "groupwise.training.learner": (
        "Learned",
        "Learner",
        "LearnerConfig",
        "LearnerSlot",
    ),
    "groupwise.training.run_config": ("WarmStartConfig",),
    "groupwise.training.weight_transfer": (
        "WeightTransfer",
        "WeightTransferSlot",
    ),
}
"""Where the names are defined, module by module."""

__getattr__ = import_when_asked(
    __name__, {name: f"{module}:{name}" for module, names in PLACES.items() for name in names}
)

__all__ = [
    "ENTROPY",
    "OLD_LOGP",
    "PAIRS",
    "REFERENCE_LOGP",
    "SPANS",
    "AttemptRequest",
    "BoolArray",
    "Comparison",
    "ConfigError",
    "Continuation",
    "Credit",
    "Derivation",
    "Draw",
    "Engine",
    "EngineFault",
    "EngineSlot",
    "Environment",
    "EnvironmentFault",
    "FloatArray",
    "Fork",
    "Generation",
    "Group",
    "GroupwiseError",
    "IntArray",
    "JudgeQuestion",
    "Learned",
    "Learner",
    "LearnerConfig",
    "LearnerSlot",
    "LocalEngine",
    "Loss",
    "LossResult",
    "Mixture",
    "ModelSource",
    "Observation",
    "ObservedUpdate",
    "Origin",
    "Outcome",
    "Pair",
    "PairSums",
    "PairTerms",
    "Part",
    "PartState",
    "PastAttempt",
    "PastAttempts",
    "PlanTools",
    "Played",
    "PlayedRound",
    "PolicyLoss",
    "Progress",
    "PromptAndResponse",
    "RecalledAttempt",
    "RecordError",
    "Request",
    "Sample",
    "Segments",
    "Shared",
    "Slot",
    "Step",
    "StepTable",
    "StopReason",
    "Tally",
    "Task",
    "TokenColumns",
    "TokenCredit",
    "TokenLoss",
    "TokenTable",
    "TokenTrace",
    "Tools",
    "Totals",
    "TrainingError",
    "Trajectory",
    "TrajectorySums",
    "VersionSpan",
    "WarmStartConfig",
    "WeightTransfer",
    "WeightTransferSlot",
    "Whose",
    "check_engine",
    "share_of_pairs",
    "share_of_step",
]
