"""A self-test of the trainer on this machine: a tiny model samples, scores, learns and syncs its weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from groupwise.data.samples import Sample, count_totals
from groupwise.data.seeds import seed_of
from groupwise.engines.conformance import check_engine
from groupwise.engines.engine import ClosingEngine, Request
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.envs.mixture import mean_max_steps
from groupwise.learner.config import LearnerConfig
from groupwise.learner.protocol import hash_weights
from groupwise.learner.weight_check import WeightCheck, choose_tolerance
from groupwise.learner.weight_sync import InMemory
from groupwise.losses import PolicyLoss
from groupwise.models.causal_lm import choose_device
from groupwise.models.outline import ModelPlan, plan_model
from groupwise.models.pretrained import PretrainedModel
from groupwise.models.tiny import TinyModel
from groupwise.system.errors import TrainingError
from groupwise.system.quoted_errors import RuleResult
from groupwise.training.config.checks import check_engine_gives
from groupwise.training.config.engine_config import LocalEngine
from groupwise.training.config.run_config import RunConfig
from groupwise.training.doctor.memory import RunMemory, estimate_memory
from groupwise.training.needed_memory import check_memory, count_moment_bytes, count_shares, find_local_learner
from groupwise.training.open_run import open_model, open_run_engine

WORDS = ("take", "the", "red", "mug", "from", "a", "shelf")
TOLERANCE = 1e-5
"""Largest difference in log-probability between sampling a token and scoring it."""
TEMPERATURE = 0.7


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """One check of the self-test."""

    name: str
    finding: str
    ok: bool


def self_test() -> Iterator[CheckResult]:
    """Run the checks in order; the first that fails ends the test."""
    bench = _Bench()
    for name, check in (
        ("scored log-probs equal sampled ones", bench.sample_and_score),
        ("a learner step changes the weights", bench.learn),
        ("the engine gets the new weights", bench.sync),
    ):
        try:
            yield CheckResult(name=name, finding=check(), ok=True)
        except (TrainingError, RuntimeError) as error:
            yield CheckResult(name=name, finding=str(error), ok=False)
            return


class _Bench:
    """A tiny model, its engine and its learner."""

    def __init__(self) -> None:
        tiny = TinyModel(hidden=32, layers=2)
        model, tokenizer = tiny.open(words=WORDS, seed=0)
        self._prompt = tuple(tokenizer(" ".join(WORDS), add_special_tokens=False).input_ids)
        self._engine = TransformersEngine(tiny.build(tokenizer, seed=0))
        self._learner = LearnerConfig(learning_rate=1e-2).open(model, PolicyLoss(), temperature=TEMPERATURE)
        self._samples: list[Sample] = []

    def sample_and_score(self) -> str:
        requests = [
            Request(prompt_ids=self._prompt[: 2 + i % 5], seed=i, max_tokens=1 + i % 6, temperature=TEMPERATURE)
            for i in range(16)
        ]
        sampled = self._engine.generate(requests)
        pairs = [(request.prompt_ids, answer.response_ids) for request, answer in zip(requests, sampled, strict=True)]
        scored = self._engine.score(pairs, temperature=TEMPERATURE)
        gap = max(
            abs(a - b)
            for answer, logps in zip(sampled, scored, strict=True)
            for a, b in zip(answer.logp, logps, strict=True)
        )
        if not gap <= TOLERANCE:
            raise TrainingError(f"log-probs differ by {gap:.2g} nats, more than {TOLERANCE:g}")
        self._samples = [
            Sample(
                prompt_ids=prompt,
                response_ids=response,
                advantage=1.0 if number % 2 else -1.0,
                logp_behaviour=answer.logp,
                trajectory=number,
                step=0,
                group=0,
            )
            for number, ((prompt, response), answer) in enumerate(zip(pairs, sampled, strict=True))
        ]
        return f"largest difference {gap:.1g} nats over {sum(len(response) for _, response in pairs)} tokens"

    def learn(self) -> str:
        before = hash_weights(self._learner.weights())
        learned = self._learner.learn(self._samples, count_totals(self._samples, max_tokens=6))
        if hash_weights(self._learner.weights()) == before:
            raise TrainingError("the weights did not change")
        return f"gradient of length {learned.metrics['learner/grad_norm']:.2g}"

    def sync(self) -> str:
        weight_check = WeightCheck(self._prompt, self._prompt[:3])
        InMemory().sync(self._learner.weights(), self._engine, version=1)
        return f"largest difference {weight_check.check(self._engine, self._learner, version=1):.1g} nats"


NUDGE = 0.02
"""Relative size of the noise on each weight for the sync; absolute for weights of 0, as in a new adapter."""


def check_run_engine(config: RunConfig) -> list[RuleResult]:
    """Check the engine of a run against every rule, with prompts of the run's own tokens."""
    device = choose_device(config.device)
    check_engine_gives(config, device=device.type)
    model, tokenizer = open_model(config, device, learns=False)
    if isinstance(config.engine, LocalEngine):  # the rules sync other weights than the learner's
        config = config.model_copy(update={"engine": config.engine.model_copy(update={"share_weights": False})})
    engine = open_run_engine(config, model.to(device), tokenizer)
    special = set(tokenizer.all_special_ids)
    token_ids = [token for token in range(len(tokenizer)) if token not in special]
    try:
        return check_engine(
            engine,
            token_ids=token_ids,
            weights=_nudge_weights(model, seed_of(config.seed, "engine check")),
            max_gap=choose_tolerance(config.engine.precision, model).gap,
        )
    finally:
        if isinstance(engine, ClosingEngine):
            engine.close()


def _nudge_weights(model: torch.nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """The trained weights with some noise, as after a little learning."""
    draw = torch.Generator().manual_seed(seed % 2**63)
    return {
        name: value.detach()
        + NUDGE * torch.randn(value.shape, generator=draw).to(value) * torch.where(value == 0, 1, value.detach())
        for name, value in model.named_parameters()
        if value.requires_grad
    }


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Estimated size of a run."""

    rollouts: int
    tokens: int
    """Largest number of tokens sampled per update."""
    parameters: int
    """Parameters of the model, without those of an adapter."""
    trained: int
    memory: RunMemory
    checkpoint: float
    """Bytes of one checkpoint."""
    checkpoints: int


def estimate_sizes(config: RunConfig, *, available: float | None = None) -> Sizes:
    """Estimate the size of a run, without loading its weights; an error if they do not fit into `available` bytes.

    A checkpoint has the trained weights and their optimizer state: of a model with an adapter the adapter only.
    """
    rollouts = config.training.tasks * config.rollout.group_size
    plan, tokenizer = plan_run_model(config)
    shares = count_shares(config)
    if available is not None and shares is not None:
        check_memory(config, plan, available=available, shares=shares)
    outline = plan.sketch()
    trained = sum(value.numel() for value in outline.parameters() if value.requires_grad)
    learner = find_local_learner(config) or LearnerConfig()
    stored = [
        (value.numel(), value.element_size())
        for value in outline.parameters()
        if value.requires_grad or plan.lora is None
    ]
    return Sizes(
        rollouts=rollouts,
        tokens=round(rollouts * mean_max_steps(config.env)) * config.rollout.max_tokens,
        parameters=sum(value.numel() for name, value in outline.named_parameters() if ".lora_" not in name),
        trained=trained,
        memory=estimate_memory(config, plan, tokenizer),
        checkpoint=sum(num * (width + count_moment_bytes(learner, width)) for num, width in stored),
        checkpoints=_count_checkpoints(config),
    )


def plan_run_model(config: RunConfig) -> tuple[ModelPlan, Any]:
    words = config.words()
    if isinstance(config.model, PretrainedModel | TinyModel):
        tokenizer, _ = config.model.open_tokenizer(words=words)
        plan = plan_model(config.model, words=words)
        assert plan is not None
        return plan, tokenizer
    model, tokenizer = config.model.open(
        words=words, seed=0
    )  # other models show their shapes only when they are loaded
    return ModelPlan(config=model.config), tokenizer


def _count_checkpoints(config: RunConfig) -> int:
    updates, keep, evaluation = config.training.updates, config.checkpoints.keep, config.evaluation
    written = {*range(0, updates, config.training.checkpoint_every), updates}
    if keep == "all":
        return len(written)
    if evaluation.tasks and evaluation.every:  # the best is also saved if no checkpoint was due
        written |= set(range(0, updates, evaluation.every))
    always = 3 if keep == "best" else keep + 2  # the reference and the best
    return min(len(written), always)
