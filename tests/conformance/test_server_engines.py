"""Our own engine behind HTTP keeps every rule that it keeps in process, whichever way it is asked."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from groupwise.engines.conformance import check_engine
from groupwise.engines.engine import SubmittingEngine
from tests.unit.engines.own_server import move_weights, open_client, serve_model
from tests.unit.engines.small_models import VOCABULARY, family


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("takes_batches", "not_tested"),
    [(True, "submit_answers_as_generate_does"), (False, "entropies_are_those_of_the_distribution")],
    ids=["batches", "one by one"],
)
def test_our_server_keeps_every_rule(takes_batches: bool, not_tested: str) -> None:
    with serve_model(takes_batches=takes_batches) as url, open_client(url, max_in_flight=2) as engine:
        assert isinstance(engine, SubmittingEngine) != takes_batches
        results = check_engine(engine, token_ids=range(3, VOCABULARY), weights=move_weights(family("llama")))
    assert {result.rule: result.found for result in results if result.status == "broken"} == {}
    assert [result.rule for result in results if result.status == "not tested"] == [not_tested]
