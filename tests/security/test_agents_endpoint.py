"""The endpoint of agents against clients that are wrong, hostile or slow: one sentence each, and the run goes on."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from threading import Timer
from typing import Any

import pytest

from groupwise.agents import endpoint as served
from groupwise.agents.endpoint import Endpoint
from groupwise.agents.sessions import Session
from groupwise.data.records import Task
from tests.unit.agents.scripted_calls import Client

BODY = json.dumps({"model": "policy", "messages": [{"role": "user", "content": "Hi."}]}).encode()
NO_SESSION = "there is no session with this key, or its rollout has ended; the run gives each rollout a key of its own"
ANSWER = {
    "id": "1",
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    opened = Endpoint()
    yield opened
    opened.close()


def open_session(endpoint: Endpoint, *, post: Callable[[Session, object], None] | None = None) -> Session:
    """A session whose calls are answered at once."""
    answer = post or (lambda session, call: call.answer.set_result(ANSWER))  # type: ignore[attr-defined]
    session = Session(number=0, task=Task(id="t"), url=endpoint.url, post=answer)
    endpoint.add(session)
    return session


def refusal(answer: tuple[int, Any, str]) -> tuple[int, str]:
    status, headers, text = answer
    assert headers["x-should-retry"] == "false"
    assert headers["content-type"] == "application/json"
    return status, json.loads(text)["error"]["message"]


def test_a_key_is_needed_and_is_that_of_one_live_session(endpoint: Endpoint) -> None:
    session, other = open_session(endpoint), open_session(endpoint)
    assert session.key != other.key
    assert len(session.key) > 30
    assert Client(endpoint.url, session.key).send(BODY)[0] == 200
    for key in ("", "wrong", session.key[:-1], f"{session.key}x", "é"):
        answer = Client(endpoint.url, key.encode().decode("latin-1")).send(BODY)
        assert refusal(answer) == (401, NO_SESSION)
        assert json.loads(answer[2])["error"]["code"] == "invalid_api_key"
    assert refusal(Client(endpoint.url).send(BODY, Authorization=f"Basic {session.key}")) == (401, NO_SESSION)
    assert refusal(Client(endpoint.url, "no").send(b"", path="/v1/models", method="GET")) == (401, NO_SESSION)
    session.end()
    assert refusal(Client(endpoint.url, session.key).send(BODY)) == (401, NO_SESSION)
    endpoint.remove(session)
    assert refusal(Client(endpoint.url, session.key).send(BODY)) == (401, NO_SESSION)
    assert Client(endpoint.url, other.key).send(BODY)[0] == 200


def test_calls_that_wait_are_refused_when_their_session_ends(endpoint: Endpoint) -> None:
    # `end` locks what `ask` holds, so it comes from another thread, as in a run.
    session = open_session(endpoint, post=lambda session, call: call_later(session.end))
    assert refusal(Client(endpoint.url, session.key).send(BODY)) == (401, NO_SESSION)


def call_later(call: Callable[[], None]) -> None:
    Timer(0.2, call).start()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Host": "127.0.0.1.evil.example:80"},
        {"Host": ""},
    ],
)
def test_web_pages_are_refused_also_with_a_key(endpoint: Endpoint, headers: dict[str, str]) -> None:
    session = open_session(endpoint)
    answer = Client(endpoint.url, session.key).send(BODY, **headers)
    assert refusal(answer) == (403, "this endpoint answers programs on this machine, not web pages")


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"", 400, "the body is not JSON: "),
        (b"{", 400, "the body is not JSON: "),
        (b"[]", 400, "the body is not a JSON object; send one with model and messages"),
        (b"\xff\xfe", 400, "the body is not UTF-8; send JSON as UTF-8"),
        (b'{"a": 1, "a": 2}', 400, "the body is not JSON: the key 'a' appears twice in one object"),
        (b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}", 400, "the body is nested more than 100 deep"),
        (b'{"a": ' + b"[" * 100_000, 400, "the body is not JSON: "),
        (b'{"a": ' + b"9" * 10_000 + b"}", 400, "the body is not JSON: a number in it has thousands of digits"),
        (b" " * (served.MAX_BODY + 1), 413, f"the body has more than {served.MAX_BODY} bytes; send shorter messages"),
    ],
)
def test_malformed_and_oversized_bodies(endpoint: Endpoint, body: bytes, status: int, sentence: str) -> None:
    session = open_session(endpoint)
    answer = refusal(Client(endpoint.url, session.key).send(body))
    assert answer[0] == status
    assert answer[1].startswith(sentence)
    assert Client(endpoint.url, session.key).send(BODY)[0] == 200


def test_other_content_types_methods_and_paths(endpoint: Endpoint) -> None:
    client = Client(endpoint.url, open_session(endpoint).key)
    assert refusal(client.send(BODY, Content_Type="text/plain")) == (
        415,
        "the Content-Type of the body must be application/json",
    )
    use = "use POST /v1/chat/completions or GET /v1/models"
    assert refusal(client.send(BODY, path="/v1/completions")) == (404, f"there is no POST /v1/completions here; {use}")
    assert refusal(client.send(b"", method="DELETE")) == (405, f"there is no DELETE /v1/chat/completions here; {use}")


def test_a_slow_client_is_refused_and_does_not_hold_up_others(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "BODY_SECONDS", 0.5)
    session = open_session(endpoint)
    place = endpoint.url.removeprefix("http://").removesuffix("/v1")
    host, _, port = place.partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {place}\r\nAuthorization: Bearer {session.key}\r\n"
        line.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        begin = time.monotonic()
        assert Client(endpoint.url, session.key).send(BODY)[0] == 200
        assert time.monotonic() - begin < 0.5
        received = b""
        while not received.endswith(b"}}"):
            received += line.recv(2**16)
        assert b"the body did not arrive within 0.5 seconds" in received


def test_a_client_that_goes_away_harms_nothing(endpoint: Endpoint) -> None:
    calls = list[Any]()
    session = open_session(endpoint, post=lambda session, call: calls.append(call))
    place = endpoint.url.removeprefix("http://").removesuffix("/v1")
    host, _, port = place.partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {place}\r\nAuthorization: Bearer {session.key}\r\n"
        line.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
        while not calls:
            time.sleep(0.01)
    calls[0].answer.set_result(ANSWER)
    assert Client(endpoint.url, open_session(endpoint).key).send(BODY)[0] == 200


def test_models_and_streams(endpoint: Endpoint) -> None:
    client = Client(endpoint.url, open_session(endpoint).key)
    status, _, text = client.send(b"", path="/v1/models", method="GET")
    assert (status, [model["id"] for model in json.loads(text)["data"]]) == (200, ["policy"])
    asked = {**json.loads(BODY), "stream": True, "stream_options": {"include_usage": True}}
    status, headers, text = client.send(json.dumps(asked).encode())
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    *events, done, _ = text.split("\n\n")
    assert done == "data: [DONE]"
    first, last, usage = (json.loads(event.removeprefix("data: ")) for event in events)
    assert first["choices"][0]["delta"] == ANSWER["choices"][0]["message"]  # type: ignore[index]
    assert last["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "stop"}
    assert (usage["choices"], usage["usage"]) == ([], ANSWER["usage"])


def test_a_retry_refuses_no_action_a_second_time(endpoint: Endpoint) -> None:
    session = open_session(endpoint, post=lambda session, call: call_later(lambda: session.answer(ANSWER)))
    client, earned = Client(endpoint.url, session.key), list[bool]()
    for retries in ("0", "1"):
        client.send(BODY, X_Groupwise_Accepted="false", x_stainless_retry_count=retries)
        earned.append(session.take_earned()[1])
    assert earned == [False, True]


@pytest.mark.parametrize("stream", [False, True])
def test_a_long_wait_is_filled_with_what_means_nothing(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr(served, "HEARTBEAT_SECONDS", 0.05)
    session = open_session(
        endpoint,
        post=lambda session, call: call_later(lambda: call.answer.set_result(ANSWER)),  # type: ignore[attr-defined]
    )
    body = json.dumps({**json.loads(BODY), "stream": stream}).encode()
    status, _, text = Client(endpoint.url, session.key).send(body)
    assert status == 200
    if stream:
        assert text.startswith(": waiting\n\n: waiting\n\n")
        assert text.endswith("data: [DONE]\n\n")
    else:
        assert text.startswith("   ")
        assert json.loads(text) == ANSWER
