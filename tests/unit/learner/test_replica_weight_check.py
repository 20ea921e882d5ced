"""The weight check of engines with replicas: each is checked by itself, and answers only once it agrees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from groupwise.engines.client import ServerEngine, open_server_engine
from groupwise.engines.engine import Request
from groupwise.learner.weight_check import WeightCheck
from groupwise.system.errors import EngineFault, TrainingError
from tests.unit.engines.scripted_server import ScriptedServer, die
from tests.unit.engines.toy_model import ToyModel, make_source, make_weights, write_weights

PROMPT, RESPONSE = tuple(range(1, 21)), (4, 5, 6)
"""A prompt of two blocks that a server may keep."""
STREAM = "/inference/v1/generate"


def learner(seed: int) -> Any:
    """A learner with weights of a seed."""
    return ToyModel(make_weights(seed))


@pytest.fixture
def servers() -> Iterator[list[ScriptedServer]]:
    started = [ScriptedServer(), ScriptedServer()]
    yield started
    for server in started:
        server.kill()


@pytest.fixture
def engine(servers: list[ScriptedServer]) -> Iterator[ServerEngine]:
    engine = open_server_engine(
        [server.url for server in servers],
        source=make_source(),
        precision="float32",
        request_timeout=10.0,
        sync_timeout=10.0,
        max_in_flight=4,
    )
    yield engine
    engine.close()


def sync(engine: ServerEngine, weight_check: WeightCheck, folder: Path, *, seed: int, version: int) -> float:
    """Hand weights of a seed over, and check them."""
    engine.load_file(write_weights(folder, seed), version=version)
    return weight_check.check(engine, learner(seed), version=version)


def count_alive(engine: ServerEngine) -> float:
    return engine.take_metrics()["replicas/alive"]


def test_replicas_that_took_the_weights_pass(engine: ServerEngine, tmp_path: Path) -> None:
    weight_check = WeightCheck(PROMPT, RESPONSE)
    assert sync(engine, weight_check, tmp_path, seed=0, version=0) < 1e-9
    assert sync(engine, weight_check, tmp_path, seed=1, version=1) < 1e-9
    assert count_alive(engine) == 2


def test_a_replica_that_took_nothing_is_out_and_the_run_goes_on(
    engine: ServerEngine, servers: list[ScriptedServer], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    weight_check = WeightCheck(PROMPT, RESPONSE)
    sync(engine, weight_check, tmp_path, seed=0, version=0)
    servers[1].takes_weights = False
    sync(engine, weight_check, tmp_path, seed=1, version=1)
    assert count_alive(engine) == 1
    assert (
        f"after the weight sync of version 1, replica 1 ({servers[1].url}) and the learner disagree by" in caplog.text
    )
    requests = [Request(prompt_ids=(1, 2), seed=seed, max_tokens=3, session=str(seed)) for seed in range(8)]
    assert {span.version for answer in engine.generate(requests) for span in answer.versions} == {1}
    servers[1].takes_weights = True
    sync(engine, weight_check, tmp_path, seed=2, version=2)  # and comes back
    assert count_alive(engine) == 2


def test_where_no_replica_took_anything_the_run_stops(
    engine: ServerEngine, servers: list[ScriptedServer], tmp_path: Path
) -> None:
    weight_check = WeightCheck(PROMPT, RESPONSE)
    sync(engine, weight_check, tmp_path, seed=0, version=0)
    for server in servers:
        server.takes_weights = False
    with pytest.raises(
        TrainingError, match=r"^after the weight sync of version 1, replica 0 .* did not load the weights"
    ):
        sync(engine, weight_check, tmp_path, seed=1, version=1)


def test_where_all_replicas_went_out_after_the_sync_the_run_stops_in_a_sentence(
    engine: ServerEngine, tmp_path: Path
) -> None:
    weight_check = WeightCheck(PROMPT, RESPONSE)
    sync(engine, weight_check, tmp_path, seed=0, version=0)
    for replica in engine.replicas:
        engine.dismiss(replica.name, "it died while rollouts played on")
    with pytest.raises(EngineFault, match="no server of the engine is left to compare with"):
        weight_check.check(engine, learner(0), version=0)


def test_keys_and_values_of_old_weights_are_found(
    engine: ServerEngine, servers: list[ScriptedServer], tmp_path: Path
) -> None:
    weight_check = WeightCheck(PROMPT, RESPONSE)
    sync(engine, weight_check, tmp_path, seed=0, version=0)
    for server in servers:
        server.forgets_prefixes = False
    with pytest.raises(TrainingError, match=r"^after the weight sync of version 1, replica 0 .* disagree by"):
        sync(engine, weight_check, tmp_path, seed=1, version=1)


def test_a_replica_that_comes_back_is_held_to_its_own_weight_check(
    engine: ServerEngine, servers: list[ScriptedServer], tmp_path: Path
) -> None:
    weight_check = WeightCheck(PROMPT, RESPONSE)
    sync(engine, weight_check, tmp_path, seed=0, version=0)
    servers[0].trouble(STREAM, die)
    engine.generate([Request(prompt_ids=(1,), seed=seed, max_tokens=2) for seed in range(8)])
    servers[0].start()
    servers[0].takes_weights = False
    sync(engine, weight_check, tmp_path, seed=1, version=1)
    assert count_alive(engine) == 1
    servers[0].takes_weights = True
    sync(engine, weight_check, tmp_path, seed=2, version=2)
    assert count_alive(engine) == 2


def test_a_replica_that_dies_at_its_weight_check_is_out(
    engine: ServerEngine, servers: list[ScriptedServer], tmp_path: Path
) -> None:
    weight_check = WeightCheck(PROMPT, RESPONSE)
    engine.load_file(write_weights(tmp_path, 0), version=0)
    servers[0].trouble(STREAM, die)
    weight_check.check(engine, learner(0), version=0)
    assert count_alive(engine) == 1


def test_an_engine_that_was_handed_nothing_is_found(engine: ServerEngine) -> None:
    with pytest.raises(TrainingError, match=r"^replica 0 .* reports weights of version 0, but version 1 was sent"):
        WeightCheck(PROMPT, RESPONSE).check(engine, learner(0), version=1)
