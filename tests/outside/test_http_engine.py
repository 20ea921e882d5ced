"""(iv) A package adds an engine from a run file alone: a client of its own server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")


from groupwise.engines.conformance import check_engine
from groupwise.engines.engine import Request
from groupwise.engines.model_source import ModelSource
from groupwise.system.errors import ConfigError, EngineFault
from groupwise.training.config.checks import check_engine_gives, needs_measured_entropies
from groupwise.training.config.run_file import load_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.outside.recorded_runs import rows_of, weights_of
from tests.outside.running import OFTEN_RIGHT, groupwise, train_from_file
from tests.unit.engines.small_models import VOCABULARY, family

RUN = (
    OFTEN_RIGHT.replace("max_tokens = 2", "max_tokens = 1")
    + """
[engine]
kind = "http_engine:HttpEngine"
connections = 3

[algorithm]
method = "grpo"
"""
)


def test_a_run_trains_with_it_and_goes_on_to_the_bit(tmp_path: Path) -> None:
    run = train_from_file(tmp_path, RUN)
    rows = rows_of(run)
    assert {number: {row["version"] for row in steps} for number, steps in rows.items()} == {1: {0}, 2: {1}}
    assert not any("entropy" in row for row in rows[1])
    assert weights_of(run, 0) != weights_of(run, 1) != weights_of(run, 2)
    again = tmp_path / "again"
    train(open_run(load_run(tmp_path / "run.toml", overrides=["training.updates=1"]), again))
    train(open_run(load_run(tmp_path / "run.toml"), again), resume=True)
    assert rows_of(again) == rows
    assert weights_of(again, 2) == weights_of(run, 2)
    shown = groupwise("inspect", str(run), cwd=tmp_path)  # a reader need not trust the engine
    assert "update" in shown.stdout


def test_it_keeps_every_rule() -> None:
    from http_engine import HttpEngine

    model = family("llama")
    engine = HttpEngine().open(ModelSource(model=model, tokenizer=None, path=None))
    weights = {name: value.detach() * 1.05 for name, value in model.named_parameters()}
    results = check_engine(engine, token_ids=range(3, VOCABULARY), weights=weights)
    assert {result.rule: result.found for result in results if result.status == "broken"} == {}
    assert [result.rule for result in results if result.status == "not tested"] == [
        "top_k_and_top_p_leave_the_likeliest",
        "entropies_are_those_of_the_distribution",
    ]


def test_what_it_does_not_give_is_measured_by_the_learner_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(RUN.replace('"grpo"', '"r3"'), encoding="utf-8")
    assert needs_measured_entropies(load_run(path))
    check_engine_gives(load_run(path), device="cpu")
    with pytest.raises(ConfigError) as caught:
        check_engine_gives(load_run(path, overrides=["rollout.lag=1"]), device="cpu")
    assert str(caught.value).startswith(
        "algorithm.shapers: EntropyRanking reads the entropies of sampled tokens, which the engine "
        "HttpEngine(connections=3) does not give. The learner can measure them, but only with the weights that sampled."
    )


def test_a_server_that_is_gone_or_fails_is_one_sentence() -> None:
    from http_engine import Client, HttpEngine

    engine = HttpEngine().open(ModelSource(model=family("llama"), tokenizer=None, path=None))
    with pytest.raises(EngineFault, match=r"could not generate \(IndexError: "):
        engine.generate([Request(prompt_ids=(10**6,), seed=0, max_tokens=1)])
    with pytest.raises(EngineFault, match=r"the server at port 1 does not answer \(.*\); start it again"):
        Client(1, connections=1, context=8).score([((3,), (4,))])


def test_config_toml_names_it(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(RUN, encoding="utf-8")
    assert json.loads(json.dumps(load_run(path).config()["engine"])) == {
        "kind": "http_engine:HttpEngine",
        "connections": 3,
    }
