"""Our own server: answers to the bit, weights that arrive whole or not at all, and refusals in one sentence."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save_file

from groupwise.engines.engine import Generation, Request, VersionSpan
from groupwise.engines.scripted import ScriptedEngine
from groupwise.engines.server import app
from groupwise.engines.server.app import MAX_BODY
from groupwise.engines.transformers_engine import TransformersEngine
from tests.unit.engines.own_server import call, move_weights, open_client, serve_model
from tests.unit.engines.small_models import VOCABULARY, family, requests

IN_BATCH = {"prompt_ids": [5, 6], "seed": 1, "max_tokens": 2}


def test_a_batch_is_answered_as_the_engine_answers_it_to_the_bit() -> None:
    asked = requests(session=True)
    pairs = [(request.prompt_ids, (7, 8)) for request in asked]
    local = TransformersEngine(family("llama"))
    with serve_model() as url, open_client(url) as engine:
        assert engine.generate(asked) == local.generate(asked)
        assert engine.score(pairs, temperature=0.7) == local.score(pairs, temperature=0.7)
        for served in (engine, local):
            served.load(move_weights(family("llama")), version=7)
        following = [replace(request, prompt_ids=(*request.prompt_ids, 9)) for request in asked]
        assert engine.generate(following) == local.generate(following)
        assert engine.version == 7


def test_what_is_asked_together_is_one_batch_and_sessions_pass_through() -> None:
    batches: list[list[str | None]] = []

    class Recorder(ScriptedEngine):
        def generate(self, requests: Any) -> list[Generation]:
            batches.append([request.session for request in requests])
            return super().generate(requests)

    asked = [Request(prompt_ids=(5,), seed=i, max_tokens=1, session=f"rollout {i}") for i in range(3)]
    with serve_model(engine=Recorder(lambda request: [7])) as url, open_client(url) as engine:
        engine.generate(asked)
        assert batches == [["rollout 0", "rollout 1", "rollout 2"]]


def test_info_of_the_server() -> None:
    with serve_model() as url:
        assert call(url, "GET", "/health") == (200, {"status": "healthy"})
        assert call(url, "GET", "/v1/models")[1]["data"] == [
            {"id": "policy", "object": "model", "root": "a/folder", "max_model_len": 256}
        ]
        info = call(url, "GET", "/groupwise/v1/info")[1]
        assert info["gives"] == ["entropy", "scores", "truncation", "versions"]
        assert (info["vocabulary"], info["context"], info["precision"]) == (VOCABULARY, 256, "float32")
        checksums = call(url, "POST", "/weight_checker", {"action": "checksum"})[1]["checksums"]
        assert set(checksums) == {name for name, _ in family("llama").named_parameters()}


def test_weights_of_another_model_are_refused_whole(tmp_path: Path) -> None:
    weights = {name: value.contiguous() for name, value in move_weights(family("llama")).items()}
    name = max(weights)
    save_file(weights | {name: weights[name][:1].clone()}, tmp_path / "narrow.safetensors")
    save_file({"nobody": torch.zeros(2)}, tmp_path / "other.safetensors")
    (tmp_path / "text.safetensors").write_text("no weights")
    with serve_model() as url:
        before = call(url, "POST", "/weight_checker", {"action": "checksum"})
        assert call(url, "POST", "/start_weight_update")[0] == 200
        for file, words in (
            ("narrow", f"it serves another model: {name} has shape ("),
            ("other", "it serves another model, without the weight 'nobody'; start it with the run's model"),
            ("text", "cannot be read here"),
            ("nowhere", "cannot be read here (No such file or directory"),
        ):
            path = str(tmp_path / f"{file}.safetensors")
            status, message = call(url, "POST", "/update_weights", {"update_info": {"path": path}})
            assert status == 400
            assert words in message
        assert call(url, "POST", "/weight_checker", {"action": "checksum"}) == before


def test_an_update_has_an_order_and_a_version(tmp_path: Path) -> None:
    save_file({name: v.contiguous() for name, v in move_weights(family("llama")).items()}, tmp_path / "w.safetensors")
    update = {"update_info": {"path": str(tmp_path / "w.safetensors")}}
    with serve_model() as url:
        not_started = "no update of the weights was started; call /start_weight_update first"
        assert call(url, "POST", "/update_weights", update) == (409, not_started)
        assert call(url, "POST", "/finish_weight_update", {"weight_version": "3"}) == (409, not_started)
        assert call(url, "POST", "/start_weight_update")[0] == 200
        assert call(url, "POST", "/update_weights", update)[0] == 200
        assert call(url, "GET", "/weight_info") == (200, {"weight_version": "0"})
        assert call(url, "POST", "/finish_weight_update", {"weight_version": "v3"}) == (
            400,
            "weight_version: string should match pattern '^[0-9]{1,18}$', found 'v3'",
        )
        assert call(url, "POST", "/finish_weight_update", {"weight_version": "3"})[0] == 200
        assert call(url, "GET", "/weight_info") == (200, {"weight_version": "3"})
        assert call(url, "POST", "/reset_prefix_cache")[0] == 200


def test_requests_wait_while_it_is_paused() -> None:
    answers: list[Any] = []
    with serve_model() as url:
        assert call(url, "POST", "/pause?mode=abort")[0] == 400
        assert call(url, "POST", "/pause?mode=keep")[0] == 200
        asking = threading.Thread(
            target=lambda: answers.append(call(url, "POST", "/groupwise/v1/generate", {"requests": [IN_BATCH]}))
        )
        asking.start()
        asking.join(0.2)
        assert asking.is_alive()
        assert call(url, "POST", "/resume")[0] == 200
        asking.join(60)
    assert answers[0][0] == 200


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompt_ids": []}, "requests.1.prompt_ids: tuple should have at least 1 item after validation, not 0"),
        ({"prompt_ids": [5, 120]}, "token ids are from 5 to 120, but must be from 0 to 119"),
        ({"prompt_ids": [5, 1.0]}, "requests.1.prompt_ids.1: input should be a valid integer, found 1.0"),
        ({"prompt_ids": [5, True]}, "requests.1.prompt_ids.1: input should be a valid integer, found True"),
        ({"seed": -1}, "requests.1.seed: input should be greater than or equal to 0, found -1"),
        ({"seed": 2**64}, "requests.1.seed: input should be less than 18446744073709551616"),
        ({"max_tokens": 0}, "requests.1.max_tokens: input should be greater than or equal to 1, found 0"),
        ({"temperature": -1.0}, "requests.1.temperature: input should be greater than or equal to 0, found -1.0"),
        ({"temperature": float("inf")}, "requests.1.temperature: input should be a finite number, found inf"),
        ({"session": 5}, "requests.1.session: input should be a valid string, found 5"),
        ({"top_p": 0.0}, "requests.1.top_p: input should be greater than 0, found 0.0"),
        ({"top_p": 1.5}, "requests.1.top_p: input should be less than or equal to 1, found 1.5"),
        ({"top_k": -1}, "requests.1.top_k: input should be greater than or equal to 0, found -1"),
        ({"min_p": 0.5}, "requests.1.min_p: unexpected keyword argument, found 0.5"),
        ({"max_tokens": 255}, "the request needs 257 tokens, but the model's context is 256"),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused(change: dict[str, Any], words: str) -> None:
    with serve_model() as url:
        status, message = call(url, "POST", "/groupwise/v1/generate", {"requests": [IN_BATCH, IN_BATCH | change]})
    assert status == 400
    assert message.startswith(words)


def raw(url: str, text: str) -> int:
    """The status that an answer begins with."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(text.encode())
        return int(connection.recv(1000).split()[1])


def test_http_that_is_not_meant_for_it_is_refused() -> None:
    with serve_model() as url:
        route = "/groupwise/v1/generate"
        assert call(url, "POST", "/health") == (405, "/health needs GET, not POST")
        assert call(url, "GET", "/nowhere") == (404, "there is no route /nowhere")
        assert call(url, "POST", route, b"{")[0] == 400
        assert call(url, "POST", route, b"[]") == (400, "input should be an object, found a list of 0")
        assert call(url, "POST", route, headers={"Content-Type": "text/plain"})[0] == 415
        assert call(url, "POST", route, b"", headers={"Content-Length": str(MAX_BODY + 1)})[0] == 413
        assert raw(url, f"POST {route} HTTP/1.1\r\nHost: here\r\nContent-Length: many\r\n\r\n") == 400
        assert raw(url, f"POST {route} HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n") == 411


def test_a_body_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODY_SECONDS", 0.2)
    head = "POST /resume HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
    with serve_model() as url:
        assert raw(url, head + "{") == 408


def test_what_the_engine_raises_or_computes_wrongly_is_said() -> None:
    class Broken(ScriptedEngine):
        def generate(self, requests: Any) -> list[Generation]:
            if requests[0].seed:
                raise IndexError("a kernel failed")
            return [
                Generation(
                    response_ids=(1,), logp=(float("nan"),), entropy=(), stopped=False, versions=(VersionSpan(0, 1),)
                )
            ]

    with serve_model(engine=Broken(lambda request: [1])) as url:
        route = "/groupwise/v1/generate"
        assert call(url, "POST", route, {"requests": [IN_BATCH]}) == (
            500,
            "/groupwise/v1/generate failed (IndexError: a kernel failed)",
        )
        status, message = call(url, "POST", route, {"requests": [IN_BATCH | {"seed": 0}]})
        assert status == 500
        assert "a log-prob or an entropy that is not finite" in message
