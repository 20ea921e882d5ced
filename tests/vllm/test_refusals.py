"""What vLLM servers are refused for, or refuse: one sentence each, before anything is lost."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from groupwise.engines.model_source import ModelSource
from groupwise.engines.server_processes import ServerProcess
from groupwise.engines.vllm.command import vllm_command
from groupwise.system.errors import ConfigError, EngineFault
from tests.vllm.environment import (
    CONTEXT,
    PYTHON,
    SECONDS,
    list_weights,
    make_model,
    open_engine,
    save_model,
    start,
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    return save_model(make_model(), tmp_path_factory.mktemp("refused") / "model")


@pytest.fixture(scope="module")
def plain(source: ModelSource) -> Iterator[ServerProcess]:
    """A server that was started by hand, without a way in for weights that we know."""

    def make_command(port: int) -> tuple[list[str], dict[str, str]]:
        return vllm_command(
            Path(source.path or ""),
            port=port,
            served_model_name="policy",
            dtype="float32",
            max_model_len=CONTEXT,
            python=PYTHON,
            extra=["--weight-transfer-config", '{"backend": "nccl"}'],
        )

    log = (source.folder or Path()) / "by-hand.log"
    process = ServerProcess(make_command, name="a server that was started by hand", log=log)
    process.wait_until_healthy(timeout=SECONDS)
    yield process
    process.stop()


def test_a_server_in_another_precision(source: ModelSource, plain: ServerProcess) -> None:
    with pytest.raises(ConfigError) as caught:
        open_engine([plain.url], source, precision="bfloat16")
    assert str(caught.value) == (
        f"engine.urls: the server {plain.url} computes in float32, but engine.precision is bfloat16; start the server "
        "with that dtype, or change the setting"
    )


def test_a_server_of_another_model(plain: ServerProcess) -> None:
    other = make_model()
    other.resize_token_embeddings(300)
    with pytest.raises(ConfigError) as caught:
        open_engine([plain.url], ModelSource(model=other, tokenizer=None, path=None))
    assert str(caught.value) == (
        f"engine.urls: the server {plain.url} does not have the 300 tokens of the run's model; "
        "start it with the run's model"
    )


def test_a_server_without_our_way_in_for_weights(source: ModelSource, plain: ServerProcess) -> None:
    engine = open_engine([plain.url], source)
    with pytest.raises(EngineFault) as caught:
        engine.load(list_weights(source.model), version=0)
    engine.close()
    assert f"the server {plain.url} cannot load weights from a file (" in str(caught.value)
    assert str(caught.value).endswith(
        "; start it with `groupwise serve`, or install groupwise without its dependencies beside vLLM, and start it "
        'with --weight-transfer-config \'{"backend": "groupwise_file"}\''
    )


def test_a_server_that_is_not_there(source: ModelSource) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(
            EngineFault, match=rf"the server {url} cannot be reached to .*; start it, or correct its URL"
        ):
            open_engine([url], source)


def test_a_port_that_is_taken(source: ModelSource) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        with pytest.raises((ConfigError, EngineFault), match=rf"port {port}|127\.0\.0\.1:{port}"):
            ServerProcess(lambda port: (["never"], {}), name="a server", log=Path("never"), port=port)


def test_heads_that_are_too_narrow(tmp_path: Path) -> None:
    narrow = save_model(make_model(heads=4), tmp_path / "narrow")
    with pytest.raises(ConfigError, match="its attention heads have width 16, but vLLM on a CPU needs"):
        start(narrow)


def test_weights_of_another_model_end_no_server(source: ModelSource) -> None:
    """A weight sync that fails is a sentence, and the server takes the right weights afterwards."""
    processes = start(source)
    engine = open_engine([process.url for process in processes], source, processes=processes)
    try:
        with pytest.raises(
            EngineFault, match=r"did not read weights from .*There is no module or parameter named 'of'"
        ):
            engine.load({"of.another.model": torch.zeros(2)}, version=1)
        engine.load(list_weights(source.model), version=2)
        assert engine.version == 2
    finally:
        engine.close()
