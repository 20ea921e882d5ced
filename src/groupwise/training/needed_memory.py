"""The memory that a run always needs, from the shapes of its weights. A run that cannot fit is rejected.

`groupwise doctor` also estimates activations, keys and values.
"""

from __future__ import annotations

from groupwise.learner import optimizers
from groupwise.learner.config import LearnerConfig, ShardedLearnerConfig
from groupwise.models.outline import ModelPlan
from groupwise.models.pretrained import PretrainedModel
from groupwise.parts.part import Part
from groupwise.system.processes import check_fits
from groupwise.training.config.engine_config import LocalEngine
from groupwise.training.config.run_config import RunConfig


def check_memory(config: RunConfig, plan: ModelPlan, *, available: float, shares: int, learns: bool = True) -> None:
    """Check that weights, gradients and optimizer state fit into `available` bytes.

    `shares` is the number of processes that the learner is sharded over. Without `learns`, nothing is trained.
    """
    learner = find_local_learner(config)
    kept = count_weights(
        plan,
        learner or LearnerConfig(),
        has_reference=config.needs_reference,
        has_value_model=has_value_model(config),
    )
    names = {"weights"}  # an outside learner may keep the rest anywhere
    if learner is not None:
        names |= kept.keys() if learns else {"reference"}
    parts = {name: size / shares for name, size in kept.items() if name in names}
    if isinstance(config.engine, LocalEngine):
        parts["engine"] = count_engine_weights(config.engine, plan)
    remedy, model = "lower model.hidden or model.layers", config.model
    if isinstance(model, PretrainedModel):
        settings = [] if model.lora_rank else ["model.lora_rank"]
        settings += ['model.dtype = "bfloat16"'] if model.dtype == "float32" else []
        remedy = "use a smaller model" + (f", or set {' or '.join(settings)}" if settings else "")
    check_fits(parts, available, remedy=remedy)


def count_weights(
    plan: ModelPlan, learner: LearnerConfig, *, has_reference: bool = False, has_value_model: bool = False
) -> dict[str, float]:
    """Bytes of weights, reference, gradients and optimizer state, and of all these of a critic's own model."""
    weights = [(value.numel(), value.element_size(), value.requires_grad) for value in plan.weights]
    every = sum(num * width for num, width, _ in weights)
    trained = sum(num * width for num, width, trains in weights if trains)
    optimizer = sum(num * count_moment_bytes(learner, width) for num, width, trains in weights if trains)
    return {
        "weights": every,
        "reference": trained if has_reference else 0,
        "gradients": 0 if is_applied_at_once(learner) else trained,
        "optimizer": optimizer,
        "critic": every + trained + optimizer if has_value_model else 0,
    }


def count_engine_weights(settings: LocalEngine, plan: ModelPlan) -> float:
    if settings.share_weights:
        return 0
    is_narrow = settings.precision == "bfloat16"  # an adapter is cast too; 4-bit weights are not
    return sum(
        value.numel() * (2 if is_narrow and value.is_floating_point() else value.element_size())
        for value in plan.weights
    )


def is_applied_at_once(learner: LearnerConfig) -> bool:
    """Whether each gradient is applied as soon as it is computed, so they are never all in memory."""
    return learner.apply_gradients == "as_they_come"


def count_moment_bytes(settings: LearnerConfig, width: int) -> float:
    """Bytes of optimizer state per weight of `width` bytes: two moments, and a float32 copy if set."""
    moments = 2 * (1 + 4 / optimizers.BLOCK) if settings.optimizer == "adamw_8bit" else 8
    has_master = width < 4 and settings.bfloat16_weights == "float32_masters"
    return moments + (4 if has_master else 0)


def find_local_learner(config: RunConfig) -> LearnerConfig | None:
    """The settings of the local learner, or of one inside an outside learner; None = there is none."""
    part = config.training.learner
    assert isinstance(part, Part), "the slot is filled by parts"
    return next((inner for inner in part.parts() if isinstance(inner, LearnerConfig)), None)


def count_shares(config: RunConfig) -> int | None:
    """Number of processes that the learner is sharded over; None if the run file does not say."""
    part = config.training.learner
    return part.ranks if isinstance(part, ShardedLearnerConfig) else 1


def has_value_model(config: RunConfig) -> bool:
    critic = config.algorithm.critic
    return critic is not None and critic.owns_trunk
