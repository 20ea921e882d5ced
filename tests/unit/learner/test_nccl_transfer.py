"""Weights over NCCL: what is refused before a server stands still, and what servers are asked around the sending."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.engines.http_client import ServerClient, ServerFault
from groupwise.learner import nccl
from groupwise.learner.nccl import Nccl, ServerGroup
from groupwise.system.errors import ConfigError, EngineFault


class Servers:
    """An engine whose servers can be sent weights."""

    def __init__(self) -> None:
        self.versions: list[int] = []

    def load_through(self, send: Callable[[Sequence[Any], str], None], *, version: int) -> None:
        self.versions.append(version)
        send([SimpleNamespace(name="a")], f"label {version}")


@pytest.fixture
def sends(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, list[str]]]:
    """What was sent, where a trainer side and GPUs are pretended to be there."""
    sent: list[tuple[str, str, list[str]]] = []
    monkeypatch.setattr(nccl, "find_spec", lambda name: object())

    def form_group(self: Any, replicas: Sequence[Any]) -> None:
        self._group, self._source = SimpleNamespace(label=""), SimpleNamespace(weights={})
        group = " ".join(replica.name for replica in replicas)
        self._trainer = SimpleNamespace(
            send_weights=lambda: sent.append((group, self._group.label, list(self._source.weights)))
        )

    monkeypatch.setattr(nccl.NcclTransfer, "_form_group", form_group)
    return sent


def on_gpu(name: str = "weight") -> dict[str, Any]:
    """A weight that says it is on a GPU."""
    return {name: SimpleNamespace(device=torch.device("cuda"), detach=lambda: None)}


def test_an_engine_without_servers_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        Nccl().open(None).sync({}, object(), version=1)  # type: ignore[arg-type]
    assert str(caught.value) == ("training.weight_sync: the engine object has no servers to send to; use in_memory")


def test_without_vllm_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "find_spec", lambda name: None)
    engine = Servers()
    with pytest.raises(ConfigError) as caught:
        Nccl().open(None).sync(on_gpu(), engine, version=1)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "training.weight_sync: nccl sends by vLLM's trainer side, which is not here; run pip install "
        "'groupwise[vllm]', or use through_file"
    )
    assert engine.versions == [], "no server stood still for it"


def test_weights_on_a_cpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "find_spec", lambda name: object())
    with pytest.raises(
        ConfigError, match="nccl sends from a GPU, but head is on cpu; set device = 'cuda', or use thro"
    ):
        Nccl().open(None).sync({"head": torch.zeros(2)}, Servers(), version=1)  # type: ignore[arg-type]


def test_a_group_is_formed_once_and_each_version_goes_under_its_label(sends: list[tuple[str, str, list[str]]]) -> None:
    transfer, engine = Nccl().open(None), Servers()
    for version in (1, 2):
        transfer.sync(on_gpu(), engine, version=version)  # type: ignore[arg-type]
    assert sends == [("a", "label 1", ["weight"]), ("a", "label 2", ["weight"])]


def test_whoever_failed_to_send_meets_the_servers_anew(
    sends: list[tuple[str, str, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    transfer, engine = Nccl().open(None), Servers()
    transfer.sync(on_gpu(), engine, version=1)  # type: ignore[arg-type]

    def fail() -> None:
        raise EngineFault("the wire broke")

    transfer._trainer.send_weights = fail
    with pytest.raises(EngineFault, match="the wire broke"):
        transfer.sync(on_gpu(), engine, version=2)  # type: ignore[arg-type]
    transfer.sync(on_gpu(), engine, version=3)  # type: ignore[arg-type]
    assert [label for _, label, _ in sends] == ["label 1", "label 3"]


class Client:
    """A server's client that keeps what was asked."""

    def __init__(self, workers: Any) -> None:
        self.url, self._workers = "http://there", workers
        self.asked: list[tuple[str, Any]] = []

    def get(self, path: str, **_: Any) -> Any:
        return self._workers

    def post(self, path: str, question: Any, **_: Any) -> None:
        self.asked.append((path, question))


@pytest.fixture
def clients() -> list[Any]:
    return [Client({"world_size": 2}), Client({"world_size": 1}), Client({"world_size": 3})]


def test_each_server_joins_at_the_rank_after_the_one_before(clients: list[Any]) -> None:
    group = ServerGroup(clients, seconds=5)
    group.init_weight_transfer_engine({"rank_offset": 1, "world_size": 7})
    assert [client.asked[0][1]["init_info"] for client in clients] == [
        {"rank_offset": rank, "world_size": 7} for rank in (1, 3, 4)
    ]
    assert sum(group.world_sizes) == 6


def test_every_step_is_asked_of_every_server_and_the_label_is_said_at_the_end(clients: list[Any]) -> None:
    group = ServerGroup(clients, seconds=5)
    group.label = "7-of-us"
    group.start_weight_update()
    group.update_weights({"names": ["a"]})
    group.finish_weight_update()
    for client in clients:
        assert client.asked == [
            ("/start_weight_update", {}),
            ("/update_weights", {"update_info": {"names": ["a"]}}),
            ("/finish_weight_update", {"weight_version": "7-of-us"}),
        ]


def test_a_server_that_does_not_say_how_many_workers_it_has_is_refused() -> None:
    client: ServerClient = Client(["no"])  # type: ignore[assignment]
    with pytest.raises(ServerFault, match="the server http://there did not say how many workers it has"):
        ServerGroup([client], seconds=5)
