"""Settings of engines in other processes: what cannot be meant or cannot be reached is refused before a model loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.engines import server_launch as launch
from groupwise.engines.model_source import ModelSource
from groupwise.models import PretrainedModel, TinyModel
from groupwise.parts.outside import only_reading
from groupwise.system.errors import ConfigError, EngineFault
from groupwise.system.processes import find_free_port
from groupwise.training import ServerEngineConfig, VllmServerConfig
from groupwise.training.config.checks import check_engine_gives
from groupwise.training.config.engine_config import VARIABLE
from groupwise.training.open_run import open_run
from tests.end_to_end.runs import config
from tests.fresh_interpreter import fresh
from tests.unit.engines.own_server import serve_model
from tests.unit.engines.small_models import family

HEALTH_SERVER = Path(__file__).parents[1] / "engines" / "health_server.py"
KINDS = [ServerEngineConfig, VllmServerConfig]


@pytest.mark.parametrize("kind", KINDS)
def test_servers_are_named_or_started_not_both(kind: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(urls=("http://127.0.0.1:1",), replicas=2)
    assert str(caught.value) == (
        f"{kind.__name__}: urls names 1 server and replicas asks for 2 more; give urls of running servers, or "
        "replicas to let the run start them"
    )


def test_run_files_decode_without_torch() -> None:
    code = (
        "import sys\nfrom groupwise.parts.part import Slot\n"
        "for kind in ('server', 'vllm'):\n"
        "    part = Slot('engine').fill({'kind': kind, 'replicas': 2, 'precision': 'bfloat16'})\n"
        "    print(kind, sorted(part.gives), part.config()['replicas'])\n"
        "print('torch' in sys.modules)\n"
    )
    assert fresh(code) == (
        "server ['entropy', 'scores', 'truncation', 'versions'] 2\nvllm ['scores', 'truncation', 'versions'] 2\nFalse\n"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_is_not_there_stops_a_run_before_anything_is_made(kind: Any, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{find_free_port()}"
    with pytest.raises(EngineFault) as caught:
        open_run(config(1, engine=kind(urls=(url,))), tmp_path / "run")
    assert str(caught.value) == (
        f"the server {url} cannot be reached to say that it is healthy (Connection refused); start it, or correct its "
        "URL"
    )
    assert not (tmp_path / "run").exists()


def test_a_server_that_is_named_twice_is_refused_before_it_is_reached() -> None:
    url = f"http://127.0.0.1:{find_free_port()}"
    with pytest.raises(ConfigError, match=r"occurs 2 times; name each server once$"):
        ServerEngineConfig(urls=(url, f"{url}/")).check_device("cpu")


def test_servers_that_were_launched_beside_the_run_are_waited_for_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    port = find_free_port()
    url = f"http://127.0.0.1:{port}"
    monkeypatch.setenv(VARIABLE, f"{url},")
    late = f"import runpy, time; time.sleep(1); runpy.run_path({str(HEALTH_SERVER)!r}, run_name='__main__')"
    server = subprocess.Popen([sys.executable, "-c", late, str(port)])
    try:
        with only_reading():  # whoever runs the command named it, not the run
            check_engine_gives(config(1, engine=ServerEngineConfig(replicas=3, start_timeout=30)), device="cpu")
            check_engine_gives(config(1, engine=VllmServerConfig(python="./anything")), device="cpu")
    finally:
        server.kill()
        server.wait()
    assert caplog.messages == [f"waiting up to 30 seconds for the server {url}"]


def test_a_launched_server_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{find_free_port()}"
    monkeypatch.setenv(VARIABLE, url)
    with pytest.raises(ConfigError) as caught:
        ServerEngineConfig(start_timeout=0.1).check_device("cpu")
    assert str(caught.value) == (
        f"{VARIABLE}: the server {url} cannot be reached to say that it is healthy (Connection refused); start it, or "
        "correct its URL (0.1 seconds, engine.start_timeout, have passed)"
    )


def test_servers_that_were_launched_for_another_engine_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "http://a:1 http://b:1")
    with pytest.raises(ConfigError) as caught:
        check_engine_gives(config(1), device="cpu")
    assert str(caught.value) == (
        f"the variable {VARIABLE} names 2 servers, but the engine LocalEngine uses none; set engine.kind = "
        '"server" or "vllm", or unset the variable'
    )
    with pytest.raises(ConfigError) as caught:
        ServerEngineConfig(urls=("http://a:1", "http://c:1")).check_device("cpu")
    assert str(caught.value) == (
        f"engine.urls names http://a:1, http://c:1, but the variable {VARIABLE} names http://a:1, http://b:1; leave "
        "the setting out, or unset the variable"
    )
    monkeypatch.setenv(VARIABLE, "a:1")
    with pytest.raises(ConfigError, match=rf"^{VARIABLE}: 'a:1' is not the URL of a server"):
        ServerEngineConfig().check_device("cpu")


def test_a_server_of_another_model_is_refused(tmp_path: Path) -> None:
    with serve_model() as url, pytest.raises(ConfigError, match="has a vocabulary of 120 tokens, but the run's model"):
        open_run(config(1, engine=ServerEngineConfig(urls=(url,))), tmp_path / "run")


def test_a_server_of_another_precision_is_refused(tmp_path: Path) -> None:
    size = int(_open_tiny()[0].config.vocab_size)
    with (
        serve_model(vocabulary=size) as url,
        pytest.raises(ConfigError, match=r"computes in float32, but engine\.prec"),
    ):
        open_run(config(1, engine=ServerEngineConfig(urls=(url,), precision="bfloat16")), tmp_path / "run")


@pytest.mark.parametrize(
    ("engine", "reach"),
    [
        (
            ServerEngineConfig(urls=("http://127.0.0.1:1",)),
            "'server' is not loaded without --trust: it connects to the",
        ),
        (VllmServerConfig(python="./anything"), "'vllm' is not loaded without --trust: it starts the program"),
    ],
)
def test_a_run_that_is_only_read_reaches_no_server_and_starts_no_program(engine: Any, reach: str) -> None:
    with only_reading(), pytest.raises(ConfigError, match=reach):
        check_engine_gives(config(1, engine=engine), device="cpu")
    with only_reading():  # our own code, on a model that is data
        check_engine_gives(config(1, engine=ServerEngineConfig(replicas=1)), device="cpu")


def _open_tiny() -> tuple[Any, Any]:
    run = config(1)
    return run.model.open(words=run.words(), seed=0)


def test_heads_that_vllm_refuses_are_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.engines.vllm.command.find_vllm", lambda python: None)
    narrow = config(1, engine=VllmServerConfig())
    with pytest.raises(ConfigError) as caught:
        check_engine_gives(narrow, device="cpu")
    assert str(caught.value) == (
        "model.heads: 4 heads of 8 each, but vLLM on a CPU needs heads of at least 32; use fewer heads or the "
        "local engine"
    )
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 64, "num_attention_heads": 4}))
    with pytest.raises(ConfigError, match="its attention heads have width 16, but vLLM on a CPU needs"):
        VllmServerConfig().check_model(PretrainedModel(path=str(tmp_path)))
    for engine in (VllmServerConfig(memory=0.5), VllmServerConfig(urls=("http://127.0.0.1:1",))):
        engine.check_model(TinyModel())  # on a GPU, or somebody else's: not known
    VllmServerConfig().check_model(TinyModel(heads=2))


def test_an_environment_without_vllm_is_refused_before_a_model_loads() -> None:
    with pytest.raises(ConfigError, match="/no/such/python does not run as a Python interpreter"):
        check_engine_gives(config(1, engine=VllmServerConfig(python="/no/such/python")), device="cpu")


def test_what_servers_load(tmp_path: Path) -> None:
    """The run's own folder where it is what the run trains; else the model as it stands, written for them."""
    model, tokenizer = _open_tiny()
    whole, place = tmp_path / "whole", tmp_path / "place"
    scratch = ModelSource(model=model, tokenizer=tokenizer, path=None, folder=place)
    assert launch._find_own_model(scratch, place) == place / "model"
    assert launch._find_whole_model(scratch, place) == (place / "model", 0)
    model.save_pretrained(whole)
    tokenizer.save_pretrained(whole)
    named = ModelSource(model=model, tokenizer=tokenizer, path=str(whole))
    assert launch._find_own_model(named, tmp_path / "unused") == str(whole)
    assert launch._find_whole_model(named, tmp_path / "unused") == (whole, 0)
    with_adapter, _ = PretrainedModel(path=str(whole), lora_rank=4).open(words=(), seed=0)
    adapted = ModelSource(model=with_adapter, tokenizer=tokenizer, path=str(whole))
    assert launch._find_own_model(adapted, tmp_path / "adapter") == tmp_path / "adapter" / "model"
    assert (tmp_path / "adapter" / "model" / "adapter_config.json").is_file()
    assert launch._find_whole_model(adapted, tmp_path / "unused") == (whole, 4)
    again = ModelSource(model=adapted.model, tokenizer=tokenizer, path=str(tmp_path / "adapter" / "model"))
    assert launch._find_own_model(again, tmp_path / "unused") == again.path
    assert not (tmp_path / "unused").exists()


def test_a_model_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    model, tokenizer = _open_tiny()
    (tmp_path / "file").touch()
    source = ModelSource(model=model, tokenizer=tokenizer, path=None, folder=tmp_path / "file")
    with pytest.raises(EngineFault, match=r"the model could not be written to .*file/model for servers"):
        launch._find_own_model(source, tmp_path / "file")


def test_a_model_of_a_small_family_is_no_tiny_model() -> None:
    VllmServerConfig().check_model(family("llama"))  # no settings that say how wide its heads are
