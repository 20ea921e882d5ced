"""Our engines keep every rule; every broken one breaks the rule it was made to break, and no other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from groupwise.engines.conformance import RULES, check_engine, find_difference
from groupwise.engines.engine import Generation, Request
from groupwise.engines.scripted import ScriptedEngine
from groupwise.engines.static_cache.engine import StaticCacheEngine
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.system.errors import ConfigError
from groupwise.system.quoted_errors import NotTestedError, RuleResult
from tests.conformance.wrong_engines import (
    BREAKS,
    IN_FEW_DIGITS,
    VOCABULARY,
    Chain,
    Coarse,
    CoarseAndSeedsByPlace,
    first_table,
)
from tests.unit.engines.small_models import VOCABULARY as NUM_TOKENS
from tests.unit.engines.small_models import family

NO_SUBMIT = {"submit_answers_as_generate_does"}


def check_chain(engine: Chain, **settings: Any) -> list[RuleResult]:
    weights = {"table": -first_table()}
    return check_engine(engine, token_ids=range(VOCABULARY), **{"weights": weights, "seconds": 0.2, **settings})


def statuses(results: Sequence[RuleResult], status: str) -> dict[str, str]:
    return {result.rule: result.found for result in results if result.status == status}


def move_weights(model: Any) -> dict[str, Any]:
    """Other weights of a model."""
    return {name: value.detach() + 0.05 * torch.sin(1000 * value.detach()) for name, value in model.named_parameters()}


def test_a_sound_engine_keeps_every_rule() -> None:
    assert {result.rule: result.status for result in check_chain(Chain())} == {rule.__name__: "kept" for rule in RULES}


@pytest.mark.parametrize("engine", BREAKS, ids=lambda engine: engine.__name__)
def test_a_broken_engine_breaks_its_rule_and_no_other(engine: type[Chain]) -> None:
    assert list(statuses(check_chain(engine()), "broken")) == [BREAKS[engine]]


@pytest.mark.parametrize("engine", IN_FEW_DIGITS, ids=lambda engine: engine.__name__)
def test_a_broken_engine_is_found_where_tokens_are_compared_but_for_rounding(engine: type[Chain]) -> None:
    assert list(statuses(check_chain(engine(), max_gap=0.5), "broken")) == [BREAKS[engine]]


def test_a_token_that_tips_over_breaks_a_rule_only_where_digits_are_many() -> None:
    assert statuses(check_chain(Coarse(), max_gap=0.5), "broken") == {}
    assert "neighbours_change_nothing" in statuses(check_chain(Coarse()), "broken")
    in_few_digits = statuses(check_chain(Coarse(), max_gap=0.5), "kept")["neighbours_change_nothing"]
    assert in_few_digits == "12 requests, in two orders and alone, but for rounding"


def test_rounding_does_not_explain_other_seeds() -> None:
    broken = statuses(check_chain(CoarseAndSeedsByPlace(), max_gap=0.5), "broken")
    assert list(broken) == ["neighbours_change_nothing"]
    assert re.fullmatch(
        r"asked alone, 1\d of 12 responses diverged within \d\d tokens, about as often as with other seeds; rounding "
        r"explains up to \d+",
        broken["neighbours_change_nothing"],
    )


def test_log_probs_that_neighbours_move_by_more_than_rounding_are_found() -> None:
    class Leaks(Coarse):
        """What stands in the other rows is added to every log-prob that is said, and to none that is sampled from."""

        def answer(self, request: Request) -> Any:
            answer = super().answer(request)
            return replace(answer, logp=tuple(logp - 0.3 * (self.rows == 1) for logp in answer.logp))

    broken = statuses(check_chain(Leaks(), max_gap=0.2), "broken")
    assert broken["neighbours_change_nothing"].startswith("asked alone, the same tokens have log-probs that differ by ")


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_our_engine_in_bfloat16_keeps_every_rule_and_other_seeds_break_it(name: str) -> None:
    class SeedsByRows(TransformersEngine):
        def generate(self, requests: Sequence[Request]) -> Any:
            return super().generate([replace(r, seed=r.seed + len(requests)) for r in requests])

    for engine, broken in ((TransformersEngine, []), (SeedsByRows, ["neighbours_change_nothing"])):
        model = family(name).to(torch.bfloat16)
        weights = move_weights(model)
        results = check_engine(engine(model), token_ids=range(3, NUM_TOKENS), weights=weights, max_gap=0.5)
        assert list(statuses(results, "broken")) == broken


def test_where_rounding_decides_every_token_nothing_is_compared() -> None:
    def say(token: int, logp: float) -> list[Generation]:
        responses = [(4, token)] * 6 + [(token, 4)] * 6  # one half parts at the second token, the other at the first
        return [
            Generation(response_ids=ids, logp=(logp,) * 2, entropy=(), stopped=False, versions=()) for ids in responses
        ]

    request = Request(prompt_ids=(1,), seed=0, max_tokens=2)
    with pytest.raises(NotTestedError, match="rounding is larger than the tokens' probabilities"):
        find_difference([request] * 12, say(10, -9.0), say(30, -8.9), max_gap=0.5)


def test_every_rule_is_broken_by_some_engine() -> None:
    assert {rule.__name__ for rule in RULES} == set(BREAKS.values())


def test_every_rule_says_why_it_matters() -> None:
    for result in check_chain(Chain()):
        assert len(result.why.split()) > 8
        assert result.found


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_the_transformers_engine_keeps_every_rule(name: str) -> None:
    results = check_engine(
        TransformersEngine(family(name)), token_ids=range(3, NUM_TOKENS), weights=move_weights(family(name))
    )
    assert statuses(results, "broken") == {}
    assert set(statuses(results, "not tested")) == NO_SUBMIT


def test_the_engine_with_a_static_cache_keeps_every_rule() -> None:
    engine = StaticCacheEngine(family("llama"), use_graphs=False, rows=32)
    results = check_engine(engine, token_ids=range(3, NUM_TOKENS), weights=move_weights(family("llama")))
    assert statuses(results, "broken") == {}
    assert set(statuses(results, "not tested")) == NO_SUBMIT


def test_a_script_keeps_the_rules_that_speak_of_it() -> None:
    def say(request: Request) -> list[int]:
        return [(sum(request.prompt_ids) + place) % 7 + 3 for place in range(request.max_tokens)]

    results = check_engine(ScriptedEngine(say), token_ids=range(3, 20))
    assert statuses(results, "broken") == {}
    assert set(statuses(results, "not tested")) == NO_SUBMIT | {
        "other_seeds_give_other_tokens",
        "top_k_and_top_p_leave_the_likeliest",
        "tokens_come_as_often_as_log_probs_say",
        "entropies_are_those_of_the_distribution",
        "context_is_what_it_says",
        "weights_are_taken_over",
        "old_weights_leave_nothing_behind",
    }


def test_an_engine_that_gives_less_is_asked_less() -> None:
    class Plain(Chain):
        gives = frozenset()
        context = 10**6
        submit = None  # type: ignore[assignment]

        def answer(self, request: Request) -> Any:
            answer = super().answer(request)
            object.__setattr__(answer, "entropy", ())
            object.__setattr__(answer, "versions", ())
            return answer

        def score(self, sequences: Any, *, temperature: float = 1.0) -> Any:
            raise NotImplementedError

    results = check_chain(Plain(), weights=None)
    assert statuses(results, "broken") == {}
    assert statuses(results, "not tested") == {
        "log_probs_are_those_of_score": "the engine does not give scores",
        "top_k_and_top_p_leave_the_likeliest": "the engine does not truncate the distribution",
        "entropies_are_those_of_the_distribution": "the engine does not give entropies",
        "versions_name_the_weights_in_use": "the engine does not give versions",
        "context_is_what_it_says": "a context of 1000000 tokens is too long to test",
        "submit_answers_as_generate_does": "the engine has no `submit`; rollouts run synchronously",
        "weights_are_taken_over": "there are no other weights to load; give check_engine(weights=...)",
        "old_weights_leave_nothing_behind": "there are no other weights to load; give check_engine(weights=...)",
    }


def test_an_engine_that_cannot_be_asked_is_told_once() -> None:
    class Dead(Chain):
        def generate(self, requests: Any) -> Any:
            raise ConnectionRefusedError("nobody listens at 127.0.0.1:1")

    first, *others = check_chain(Dead())
    assert (first.status, first.found) == (
        "broken",
        "it raised ConnectionRefusedError: nobody listens at 127.0.0.1:1",
    )
    assert {(result.status, result.found) for result in others} == {("not tested", "the engine gives no answers")}


def test_prompts_need_something_to_be_made_of() -> None:
    with pytest.raises(ConfigError, match="token_ids: found 1 ids; give at least 2"):
        check_engine(Chain(), token_ids=[3, 3])
