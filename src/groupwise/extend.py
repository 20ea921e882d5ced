"""The public names for packages of your own: everything that the pages under docs/howto/extending use.

from groupwise.extend import Part, StepTable, TokenCredit

A part can be defined without torch.
"""

from __future__ import annotations

from groupwise.data.credit import Comparison, Credit, Derivation, Shared, TokenCredit, TokenTrace, WeightedSum
from groupwise.data.past_rollouts import PastRollout, ReplayedRollout
from groupwise.data.records import Origin, Step, StopReason, Task, Trajectory
from groupwise.data.samples import Pair, PolicyRole, PromptAndResponse, Sample, Totals
from groupwise.data.segments import BoolArray, FloatArray, IntArray, Segments
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.engines.conformance import check_engine
from groupwise.engines.engine import Engine, Generation, Request, VersionSpan
from groupwise.engines.model_source import ModelSource
from groupwise.envs import Environment, Observation, Outcome, Progress
from groupwise.learner import (
    Learned,
    Learner,
    LearnerConfig,
    LearnerSlot,
    ValueHead,
    ValueModel,
    WeightSync,
    WeightSyncSlot,
)
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
from groupwise.parts.part import Part, Slot
from groupwise.parts.slots import Draw, EngineSlot, Loss
from groupwise.parts.stateful import ObservedUpdate, PartState
from groupwise.rollout import Group, PlanTools, Played, PlayedRound, RolloutRequest
from groupwise.rollout.forks import Fork
from groupwise.rollout.judges import JudgeQuestion
from groupwise.rollout.scorers import Continuation, Tools
from groupwise.store.rollout_index import PastRollouts
from groupwise.system.errors import (
    ConfigError,
    EngineFault,
    EnvironmentFault,
    GroupwiseError,
    RecordError,
    TrainingError,
)
from groupwise.training.config.engine_config import LocalEngine
from groupwise.training.config.run_config import WarmStartConfig

__all__ = [
    "ENTROPY",
    "OLD_LOGP",
    "PAIRS",
    "REFERENCE_LOGP",
    "SPANS",
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
    "PastRollout",
    "PastRollouts",
    "PlanTools",
    "Played",
    "PlayedRound",
    "PolicyLoss",
    "PolicyRole",
    "Progress",
    "PromptAndResponse",
    "RecordError",
    "ReplayedRollout",
    "Request",
    "RolloutRequest",
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
    "ValueHead",
    "ValueModel",
    "VersionSpan",
    "WarmStartConfig",
    "WeightSync",
    "WeightSyncSlot",
    "WeightedSum",
    "check_engine",
    "share_of_pairs",
    "share_of_step",
]
