"""Engines over servers keep every rule, whichever way they are asked."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from groupwise.engines.conformance import check_engine
from groupwise.engines.engine import Engine, SubmittingEngine
from tests.unit.engines import toy_model
from tests.unit.engines.conftest import OpenEngine, StartServer
from tests.unit.engines.conftest import open_engine as open_engine
from tests.unit.engines.conftest import start_server as start_server
from tests.unit.engines.own_server import move_weights, open_client, serve_model
from tests.unit.engines.small_models import VOCABULARY, family


def keep_rules(engine: Engine, token_ids: range, weights: dict[str, torch.Tensor]) -> list[str]:
    """Check an engine; the rules that were not tested."""
    results = check_engine(engine, token_ids=token_ids, weights=weights)
    assert {result.rule: result.found for result in results if result.status == "broken"} == {}
    return [result.rule for result in results if result.status == "not tested"]


def test_our_server_keeps_every_rule() -> None:
    with serve_model() as url, open_client(url) as engine:
        assert not isinstance(engine, SubmittingEngine)
        left_out = keep_rules(engine, range(3, VOCABULARY), move_weights(family("llama")))
    assert left_out == ["submit_answers_as_generate_does"]


def test_servers_that_take_a_request_a_call_keep_every_rule(start_server: StartServer, open_engine: OpenEngine) -> None:
    engine = open_engine(start_server(), start_server())
    assert isinstance(engine, SubmittingEngine)
    weights = {name: torch.from_numpy(value) for name, value in toy_model.make_weights(1).items()}
    left_out = keep_rules(engine, range(3, toy_model.VOCABULARY), weights)
    assert left_out == ["entropies_are_those_of_the_distribution"]
