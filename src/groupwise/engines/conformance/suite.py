"""The conformance suite for engines: run it on your own before you train with it.

for result in check_engine(engine, token_ids=range(100), weights=other_weights):
    print(result.status, result.rule, result.found)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from groupwise.core.errors import ConfigError
from groupwise.core.rules import RuleResult, describe_result, try_rule
from groupwise.engines.conformance import rules
from groupwise.engines.conformance.subject import Subject
from groupwise.engines.engine import Engine

if TYPE_CHECKING:
    import torch

Rule = Callable[[Subject], str]
"""A named promise of an engine; see `rules`."""

RULES: tuple[Rule, ...] = (
    rules.answers_every_request,
    rules.log_probs_are_log_probs,
    rules.same_request_gives_same_tokens,
    rules.neighbours_change_nothing,
    rules.other_seeds_give_other_tokens,
    rules.tokens_come_as_often_as_log_probs_say,
    rules.log_probs_are_those_of_score,
    rules.temperature_zero_takes_the_likeliest,
    rules.stop_tokens_end_a_response,
    rules.max_tokens_cut_a_response,
    rules.entropies_are_those_of_the_distribution,
    rules.versions_name_the_weights_in_use,
    rules.context_is_what_it_says,
    rules.sessions_change_nothing,
    rules.submit_answers_as_generate_does,
    rules.weights_are_taken_over,
    rules.old_weights_leave_nothing_behind,
)
"""All rules, in the order they are checked. If the first one is broken, the rest are not checked."""


def check_engine(
    engine: Engine,
    *,
    token_ids: Sequence[int],
    weights: Mapping[str, torch.Tensor] | None = None,
    max_gap: float = 1e-3,
    seconds: float = 60.0,
    seed: int = 0,
) -> list[RuleResult]:
    """Check an engine against every rule.

    Args:
        engine: the engine; one that is not needed afterwards, since it is left with the weights below.
        token_ids: ids that prompts may be made of.
        weights: other weights of the same model, by name, to hand over; None = handing over is not tested.
        max_gap: nats by which two ways of computing one log-prob may differ; some 0.5 in bfloat16. Above 0.01 tokens
            that two ways sampled are compared but for rounding.
        seconds: how long an answer to `submit` may take.
        seed: for prompts and seeds.
    """
    if len(set(token_ids)) < 2:
        raise ConfigError(f"token_ids: found {len(set(token_ids))} ids; give at least 2 that prompts can be made of")
    subject = Subject(
        engine=engine, token_ids=tuple(token_ids), weights=weights, max_gap=max_gap, seconds=seconds, seed=seed
    )
    results: list[RuleResult] = []
    for rule in RULES:
        if results and results[0].status == "broken":
            results.append(describe_result(rule, "not tested", "the engine could not be asked"))
        else:
            results.append(try_rule(rule, lambda: subject))
    return results
