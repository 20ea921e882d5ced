"""Our engines keep every rule; every broken one breaks the rule it was made to break, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from groupwise.core.errors import ConfigError
from groupwise.core.rules import RuleResult
from groupwise.engines.conformance.suite import RULES, check_engine
from groupwise.engines.engine import Request
from groupwise.engines.scripted import ScriptedEngine
from groupwise.engines.static_cache.engine import StaticCacheEngine
from groupwise.engines.transformers.engine import TransformersEngine
from tests.conformance.wrong_engines import BREAKS, VOCABULARY, Chain, first_table
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
        "entropies_are_those_of_the_distribution": "the engine does not give entropies",
        "versions_name_the_weights_in_use": "the engine does not give versions",
        "context_is_what_it_says": "a context of 1000000 tokens is too long to try",
        "submit_answers_as_generate_does": "the engine has no `submit`; attempts are played in step",
        "weights_are_taken_over": "no weights were given to hand over; give check_engine(weights=...)",
        "old_weights_leave_nothing_behind": "no weights were given to hand over; give check_engine(weights=...)",
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
    assert {(result.status, result.found) for result in others} == {("not tested", "the engine could not be asked")}


def test_prompts_need_something_to_be_made_of() -> None:
    with pytest.raises(ConfigError, match="token_ids: found 1 ids; give at least 2"):
        check_engine(Chain(), token_ids=[3, 3])
