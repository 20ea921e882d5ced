"""The conformance suite on engines over servers, in both ways of asking."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from groupwise.engines.conformance import check_engine
from tests.unit.engines.conftest import OpenEngine, StartServer
from tests.unit.engines.toy_model import VOCABULARY, make_weights


@pytest.mark.few(1)
@pytest.mark.parametrize("num_servers", [1, 2])
@pytest.mark.parametrize("takes_batches", [False, True], ids=["a request a call", "in batches"])
def test_an_engine_over_servers_keeps_every_rule(
    start_server: StartServer, open_engine: OpenEngine, takes_batches: bool, num_servers: int
) -> None:
    engine = open_engine(*(start_server(takes_batches=takes_batches) for _ in range(num_servers)), max_in_flight=16)
    weights = {name: torch.from_numpy(value) for name, value in make_weights(1).items()}
    results = check_engine(engine, token_ids=range(VOCABULARY), weights=weights)
    assert {result.rule: result.found for result in results if result.status == "broken"} == {}
    untested = {result.rule for result in results if result.status == "not tested"}
    without_entropy, without_submit = "entropies_are_those_of_the_distribution", "submit_answers_as_generate_does"
    assert untested == {without_submit if takes_batches else without_entropy}


@pytest.mark.more
def test_a_server_that_keeps_old_prefixes_breaks_a_rule(start_server: StartServer, open_engine: OpenEngine) -> None:
    server = start_server()
    server.forgets_prefixes = False
    weights = {name: torch.from_numpy(value) for name, value in make_weights(1).items()}
    results = check_engine(open_engine(server, max_in_flight=16), token_ids=range(VOCABULARY), weights=weights)
    broken = {result.rule for result in results if result.status == "broken"}
    assert broken == {"old_weights_leave_nothing_behind"}
