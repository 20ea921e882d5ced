"""The weight check: after each weight sync, engine and learner must give a fixed prompt the same log-probs.

Without it, weights that never arrive look like staleness for weeks. The check also works if an update moves the weights
very little: then an engine with old weights agrees better with the learner's previous log-probs, or repeats its own
bit-exactly while the learner moved.

An engine that reads the learner's own weights scores with them by construction. But it may have kept a compiled
decoding path with old weights, so what it samples is compared too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from transformers import PreTrainedModel

from groupwise.data.samples import PromptAndResponse
from groupwise.engines.engine import Engine, ReplicatedEngine, Request, check_generations
from groupwise.learner.protocol import read_scores
from groupwise.system.errors import EngineFault, TrainingError


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Limits for the log-probs of engine and learner, in nats."""

    gap: float
    """Largest difference that is allowed."""
    rounding: float
    """Difference that rounding alone can cause. If an update moved the learner by less, the gap does not show whether
    the engine has the new weights."""
    visible: float
    """If updates together moved the learner by more, the log-probs of an engine with new weights change in some bit."""


TOLERANCES = {
    "float32": Tolerance(gap=1e-3, rounding=1e-5, visible=1e-5),
    # On an H200, an engine with 1.5B parameters was up to 0.17 nats from its learner after a successful weight sync.
    "bfloat16": Tolerance(gap=1.0, rounding=0.25, visible=0.05),
}


def choose_tolerance(precision: str, model: PreTrainedModel) -> Tolerance:
    """By the engine's precision; a model loaded in a narrow type computes in it either way."""
    is_narrow = precision == "bfloat16" or any(value.dtype.itemsize < 4 for value in model.parameters())
    return TOLERANCES["bfloat16" if is_narrow else "float32"]


class ScoringLearner(Protocol):
    """What the weight check needs of a learner."""

    def logps(self, pairs: Sequence[PromptAndResponse]) -> list[tuple[float, ...]]: ...


class CheckedEngine(Protocol):
    """What the weight check needs of an engine, or of one of its replicas."""

    @property
    def version(self) -> int: ...

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]: ...


@dataclass
class _Memory:
    """The log-probs at the last check that passed, and the largest gap so far."""

    of_learner: Sequence[float]
    of_engine: Sequence[float]
    of_learner_then: Sequence[float]
    """Log-probs of the learner when the engine first returned `of_engine`."""
    noise: float


class WeightCheck:
    """A fixed prompt and response that the learner and each replica of the engine must score alike."""

    def __init__(
        self,
        prompt_ids: Sequence[int],
        response_ids: Sequence[int],
        *,
        tolerance: Tolerance = TOLERANCES["float32"],
        decodes: bool = False,
    ) -> None:
        """With `decodes`, a response that the engine samples, of the same length, is compared too."""
        self._prompt, self._response = tuple(prompt_ids), tuple(response_ids)
        self._tolerance, self._decodes = tolerance, decodes
        self._memories: dict[str, _Memory] = {}

    def check(self, engine: Engine, learner: ScoringLearner, *, version: int) -> float:
        """Return the largest gap in log-probs between engine and learner; an error if it is too large.

        A replica that fails is dismissed, one that passes is admitted. It is an error if none passes.
        """
        if isinstance(engine, ReplicatedEngine):
            return self._check_replicas(engine, learner, version)
        gap = self._check_single(engine, "the engine", learner, version)
        if self._decodes:
            request = Request(prompt_ids=self._prompt, seed=0, max_tokens=len(self._response))
            [answer] = check_generations(engine.generate([request]))
            name = f"the engine, sampling {list(answer.response_ids)},"
            gap = max(gap, self._compare(answer.logp, answer.response_ids, name, learner, version))
        return gap

    def _check_replicas(self, engine: ReplicatedEngine, learner: ScoringLearner, version: int) -> float:
        gaps, faults = list[float](), list[TrainingError | EngineFault]()
        for replica in engine.replicas:
            try:
                gaps.append(self._check_single(replica, replica.name, learner, version))
                engine.admit(replica.name)
            except (TrainingError, EngineFault) as fault:
                faults.append(fault)
                engine.dismiss(replica.name, str(fault))
        if not gaps and not faults:  # all replicas failed after the weight sync, while rollouts continue
            raise EngineFault(
                f"after the weight sync of version {version}, no server of the engine is left to compare with the "
                "learner; see the warnings above, then continue with --resume"
            )
        if not gaps:
            raise faults[0]
        return max(gaps)

    def _check_single(self, engine: CheckedEngine, name: str, learner: ScoringLearner, version: int) -> float:
        if engine.version != version:
            raise TrainingError(
                f"{name} reports weights of version {engine.version}, but version {version} was sent; its `load` had "
                "no effect, or training.weight_sync never called it"
            )
        pairs, num = [(self._prompt, self._response)], len(self._response)
        of_engine = read_scores(engine.score(pairs), num, f"{name} {type(engine).__name__}: score")
        return self._compare(of_engine, self._response, name, learner, version)

    def _compare(
        self, of_engine: Sequence[float], response: tuple[int, ...], name: str, learner: ScoringLearner, version: int
    ) -> float:
        pairs = [(self._prompt, response)]
        of_learner = read_scores(learner.logps(pairs), len(response), f"the learner {type(learner).__name__}: logps")
        before = self._memories.get(name)
        gap, moved, has_old_weights = find_distance(of_engine, of_learner), 0.0, False
        says_the_same = before is not None and [*of_engine] == [*before.of_engine]
        if before is not None:
            # The engine has old weights in two cases. Either it repeats its log-probs bit-exactly while the learner
            # moved, over any number of updates. Or its gap is about as large as the learner's move, and a new maximum.
            rounding, moved = self._tolerance.rounding, find_distance(of_learner, before.of_learner)
            is_apart = moved > rounding and gap > max(0.5 * moved, rounding, 4 * before.noise)
            has_moved_visibly = find_distance(of_learner, before.of_learner_then) > self._tolerance.visible
            has_old_weights = is_apart or (has_moved_visibly and says_the_same)
        if not gap <= self._tolerance.gap or has_old_weights:  # also if the gap is NaN
            raise TrainingError(
                f"after the weight sync of version {version}, {name} and the learner disagree by {gap:.3g} nats on a "
                f"fixed prompt (allowed {self._tolerance.gap:g}; the update moved the learner by {moved:.3g}). The "
                "engine did not load the weights, or training.weight_sync never sent them"
            )
        then = before.of_learner_then if before and says_the_same else of_learner
        self._memories[name] = _Memory(of_learner, of_engine, then, max(gap, before.noise if before else 0.0))
        return gap


def find_distance(some: Sequence[float], others: Sequence[float]) -> float:
    return float(np.max(np.abs(np.subtract(some, others))))
