"""The canary: after each hand-over of weights the engine must agree with the learner on a fixed prompt.

Weights that never arrive look like staleness for weeks. One short score a hand-over finds it at once, also where an
update moves the weights so little that the old ones would pass for the new: then the engine agrees better with what the
learner said before, or says to the last bit what it said itself, while updates together moved the learner.

An engine that reads the learner's own weights has nothing to take over, and scores with them by construction. What it
may have kept is a way of decoding that leads to where weights were: so it decodes too, and is compared in that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from transformers import PreTrainedModel

from groupwise.data.samples import PromptAndResponse
from groupwise.engines.engine import Engine, ReplicatedEngine, Request, check_generations
from groupwise.learner.protocol import read_scores
from groupwise.system.errors import EngineFault, TrainingError


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far engine and learner may differ, in nats."""

    gap: float
    """Most that they may differ by."""
    rounding: float
    """What rounding alone makes of a difference: an update that moved the learner by less does not tell, by how far the
    two are apart, an engine that stayed behind from one that did not."""
    visible: float
    """Updates that together moved the learner by more change some bit of what an engine says that took them over."""


TOLERANCES = {
    "float32": Tolerance(gap=1e-3, rounding=1e-5, visible=1e-5),
    # On an H200 a model of 1.5 billion weights was up to 0.17 nats from its learner after a hand-over that arrived.
    "bfloat16": Tolerance(gap=1.0, rounding=0.25, visible=0.05),
}
"""By the precision of the engine."""


def choose_tolerance(precision: str, model: PreTrainedModel) -> Tolerance:
    """Choose what suits an engine's precision and a model: one loaded in a narrow type computes in it either way."""
    is_narrow = precision == "bfloat16" or any(value.dtype.itemsize < 4 for value in model.parameters())
    return TOLERANCES["bfloat16" if is_narrow else "float32"]


class ScoringLearner(Protocol):
    """What the canary asks of a learner."""

    def logps(self, pairs: Sequence[PromptAndResponse]) -> list[tuple[float, ...]]: ...


class CheckedEngine(Protocol):
    """What the canary asks of an engine, or of one of its replicas."""

    @property
    def version(self) -> int: ...

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]: ...


@dataclass
class _Memory:
    """What was said at the last check that was passed, and how far apart both ever were."""

    of_learner: Sequence[float]
    of_engine: Sequence[float]
    of_learner_then: Sequence[float]
    """What the learner said when the engine first said this."""
    noise: float


class Canary:
    """A fixed prompt and response that engine and learner must score alike; every replica of an engine for itself."""

    def __init__(
        self,
        prompt_ids: Sequence[int],
        response_ids: Sequence[int],
        *,
        tolerance: Tolerance = TOLERANCES["float32"],
        decodes: bool = False,
    ) -> None:
        """With `decodes`, the engine is also compared in what it samples itself, for as many tokens."""
        self._prompt, self._response = tuple(prompt_ids), tuple(response_ids)
        self._tolerance, self._decodes = tolerance, decodes
        self._memories: dict[str, _Memory] = {}

    def check(self, engine: Engine, learner: ScoringLearner, *, version: int) -> float:
        """Compare engine and learner: the largest gap in log-prob; an error where it is too large or nothing came.

        A replica that does not pass is dismissed, and one that does admitted; it is an error where none passes.
        """
        if isinstance(engine, ReplicatedEngine):
            return self._check_replicas(engine, learner, version)
        gap = self._check_single(engine, "the engine", learner, version)
        return max(gap, self._check_decoding(engine, learner, version)) if self._decodes else gap

    def _check_replicas(self, engine: ReplicatedEngine, learner: ScoringLearner, version: int) -> float:
        gaps, faults = list[float](), list[TrainingError | EngineFault]()
        for replica in engine.replicas:
            try:
                gaps.append(self._check_single(replica, replica.name, learner, version))
                engine.admit(replica.name)
            except (TrainingError, EngineFault) as fault:
                faults.append(fault)
                engine.dismiss(replica.name, str(fault))
        if not gaps and not faults:  # all went out between the hand-over and here, while attempts play on
            raise EngineFault(
                f"after the hand-over of version {version} no server of the engine was left to compare with the "
                "learner; look at the warnings above, then go on with --resume"
            )
        if not gaps:
            raise faults[0]
        return max(gaps)

    def _check_single(self, engine: CheckedEngine, name: str, learner: ScoringLearner, version: int) -> float:
        if engine.version != version:
            raise TrainingError(
                f"{name} reports weights of version {engine.version}, but version {version} was handed "
                "over; its `load` did not take, or training.weight_transfer never called it"
            )
        pairs, num = [(self._prompt, self._response)], len(self._response)
        of_engine = read_scores(engine.score(pairs), num, f"{name} {type(engine).__name__}: score")
        return self._compare(of_engine, self._response, name, learner, version)

    def _check_decoding(self, engine: Engine, learner: ScoringLearner, version: int) -> float:
        """Compare what the engine says of a response while it samples it, the same one for as long as it would."""
        request = Request(prompt_ids=self._prompt, seed=0, max_tokens=len(self._response))
        [answer] = check_generations(engine.generate([request]))
        name = f"the engine, sampling {list(answer.response_ids)},"
        return self._compare(answer.logp, answer.response_ids, name, learner, version)

    def _compare(
        self, of_engine: Sequence[float], response: tuple[int, ...], name: str, learner: ScoringLearner, version: int
    ) -> float:
        pairs = [(self._prompt, response)]
        of_learner = read_scores(learner.logps(pairs), len(response), f"the learner {type(learner).__name__}: logps")
        before = self._memories.get(name)
        gap, moved, has_old_weights = _find_distance(of_engine, of_learner), 0.0, False
        says_the_same = before is not None and [*of_engine] == [*before.of_engine]
        if before is not None:
            # The learner moved and the engine did not, if it says the same to the last bit, however many updates that
            # took, or is about as far from the learner as the learner came, and farther than it ever was.
            rounding, moved = self._tolerance.rounding, _find_distance(of_learner, before.of_learner)
            is_apart = moved > rounding and gap > max(0.5 * moved, rounding, 4 * before.noise)
            has_moved_visibly = _find_distance(of_learner, before.of_learner_then) > self._tolerance.visible
            has_old_weights = is_apart or (has_moved_visibly and says_the_same)
        if not gap <= self._tolerance.gap or has_old_weights:  # NaN: no agreement
            raise TrainingError(
                f"after the hand-over of version {version} {name} and the learner disagree by {gap:.3g} "
                f"nats on a fixed prompt (allowed {self._tolerance.gap:g}; the update moved the learner by "
                f"{moved:.3g}): the engine did not take the weights over, or training.weight_transfer never gave them "
                "to it"
            )
        then = before.of_learner_then if before and says_the_same else of_learner
        self._memories[name] = _Memory(of_learner, of_engine, then, max(gap, before.noise if before else 0.0))
        return gap


def _find_distance(some: Sequence[float], others: Sequence[float]) -> float:
    gaps = [abs(float(a) - float(b)) for a, b in zip(some, others, strict=True)]
    return math.nan if any(map(math.isnan, gaps)) else max(gaps)
