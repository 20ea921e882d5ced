"""What a run needs of its engine; one that does not give it is refused before a model loads."""

from __future__ import annotations

from collections.abc import Iterator

from groupwise.learner.config import LearnerConfig, ShardedLearnerConfig
from groupwise.learner.weight_sync import InMemory
from groupwise.parts.part import Part, name_of
from groupwise.parts.slots import CAPABILITIES, ENTROPY, SCORES, VERSIONS, check_engine_part
from groupwise.system.errors import ConfigError
from groupwise.training.config.engine_config import LocalEngine, VllmInProcess, check_uses_servers
from groupwise.training.config.run_config import RunConfig


def check_engine_gives(config: RunConfig, *, device: str) -> None:
    """Refuse an engine that cannot work where the learner computes, or that does not give what the run reads."""
    check_engine_part(config.engine)
    for gift, place, reader, instead in _list_needs(config):
        if gift not in config.engine.gives:
            raise ConfigError(
                f"{place}: {reader} reads {CAPABILITIES[gift]}, which the engine {name_of(config.engine)} does not "
                f"give; use an engine that does{instead}"
            )
    if isinstance(config.engine, LocalEngine | VllmInProcess):
        check_uses_servers(config.engine)
    config.engine.check_device(device)
    _check_overlap(config, device)
    _check_sharing(config)
    if isinstance(config.engine, VllmInProcess) and isinstance(config.training.learner, ShardedLearnerConfig):
        raise ConfigError(
            "engine: vLLM in the trainer's own process starts a process group, which a sharded learner would take for "
            'its own; use servers ([engine] kind = "vllm")'
        )
    check_model = getattr(config.engine, "check_model", None)  # of engines that cannot take every model
    if check_model is not None:
        check_model(config.model)


def _check_overlap(config: RunConfig, device: str) -> None:
    """Refuse to play and learn at once in one process on a GPU: torch's choice of attention kernels is the process's.

    The engine changes it while it decodes in lanes, so that the learner's own kernels would depend on the clock.
    """
    if config.rollout.lag and device == "cuda" and isinstance(config.engine, LocalEngine):
        raise ConfigError(
            f"rollout.lag: the engine {name_of(config.engine)} shares a process with the learner, and on a GPU the "
            "attention kernels that learn would then depend on the clock; give the engine a process of its own "
            '([engine] kind = "server"), or set rollout.lag to 0'
        )


def _check_sharing(config: RunConfig) -> None:
    """Refuse to share weights where the engine may read them while they change, or they are not what is handed over."""
    if not getattr(config.engine, "share_weights", False):
        return
    learner, transfer = config.training.learner, config.training.weight_transfer
    if config.rollout.lag:
        reason = f"attempts are played while these change (rollout.lag = {config.rollout.lag!r}); set rollout.lag to 0"
    elif type(learner) is not LearnerConfig:
        reason = f'the learner {name_of(learner)} does not have them whole in one place; use kind = "local"'
    elif not isinstance(transfer, InMemory):
        reason = f"{name_of(transfer)} would carry them from there to where they are; use the weight_transfer in_memory"
    elif config.engine.precision == "bfloat16" and getattr(config.model, "dtype", None) == "float32":
        reason = (
            "they are float32 and the engine would compute in bfloat16; set model.dtype = 'bfloat16', or "
            "engine.precision = 'float32', which leaves weights as loaded"
        )
    else:
        return
    raise ConfigError(f"engine.share_weights: the engine cannot read the learner's own weights, since {reason}")


def _list_needs(config: RunConfig) -> Iterator[tuple[str, str, str, str]]:
    """What is needed, the place in the run file of who needs it, its name, and what else could be done."""
    for shaper in config.algorithm.shapers:
        if shaper.needs_entropy:
            yield ENTROPY, "algorithm.shapers", name_of(shaper), ", or leave the shaper out"
    inside, loss = config.algorithm.token_credit, config.algorithm.loss
    readers = {
        "token_credit": [*inside.parts()] if isinstance(inside, Part) else [],
        "measures": [*(config.algorithm.measures or ())],
        "loss": [*loss.parts()] if isinstance(loss, Part) else [],
    }
    for place, parts in readers.items():
        for reader in parts:
            if getattr(reader, "needs_entropy", False):
                yield ENTROPY, f"algorithm.{place}", name_of(reader), ", or leave the part out"
    for part in config.algorithm.filters:
        if getattr(part, "needs_versions", False):
            yield VERSIONS, "algorithm.filters", name_of(part), ", or leave the filter out"
    replay = config.algorithm.replay
    if replay is not None:
        yield SCORES, "algorithm.replay", name_of(replay), ", or leave out algorithm.replay"
        yield VERSIONS, "algorithm.replay", name_of(replay), ", or leave out algorithm.replay"
    yield SCORES, "engine", "the check after each hand-over of weights", ""
