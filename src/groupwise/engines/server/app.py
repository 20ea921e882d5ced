"""The HTTP routes of a server, with Starlette: vLLM's routes for weights, and three of ours for lists of requests.

Request bodies have a size limit and a time-out. Answers are JSON, and errors are one sentence.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import math
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from groupwise.engines import messages as wire
from groupwise.engines.messages import Message
from groupwise.engines.server.served_model import RefusedRequest, ServedModel
from groupwise.system.errors import ConfigError, EngineFault, GroupwiseError
from groupwise.system.text import quote_line

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request as HttpRequest
    from starlette.responses import Response

MAX_BODY = 64 * 2**20
"""Size limit of a request: about five million token ids."""
BODY_SECONDS = 60.0
KEPT_SECONDS = 3600
"""How long an idle connection stays open."""
WAITING = 512
"""Maximum number of connections that wait to be accepted."""

Query = Mapping[str, str]
Text = Annotated[str, Field(min_length=1)]

_log = logging.getLogger(__name__)


class WeightFile(Message):
    """A file of weights."""

    path: Text


class UpdateQuestion(Message):
    """Weights to read."""

    update_info: WeightFile


class FinishQuestion(Message):
    """The label of the new weights: an integer, which vLLM writes as text."""

    weight_version: Annotated[str, Field(pattern="^[0-9]{1,18}$")]


class AdapterQuestion(Message):
    """An adapter to load; its name ends with the version of its weights."""

    lora_name: Annotated[str, Field(pattern="(^|-)[0-9]{1,18}$")]
    lora_path: Text


class ChecksumQuestion(Message):
    """A request for checksums of the weights."""

    action: Literal["checksum"]


async def generate_batch(model: ServedModel, question: wire.BatchQuestion, query: Query) -> wire.BatchAnswer:
    answers = await model.generate(question.requests)
    # JSON has no NaN.
    if not all(math.isfinite(number) for answer in answers for number in (*answer.logp, *answer.entropy)):
        raise ValueError("the engine computed a log-prob or an entropy that is not finite")
    return wire.BatchAnswer(generations=tuple(answers))


async def score_batch(model: ServedModel, question: wire.ScoreQuestion, query: Query) -> wire.ScoreAnswer:
    return wire.ScoreAnswer(scores=tuple(await model.score(question.sequences, temperature=question.temperature)))


def list_models(model: ServedModel, question: None, query: Query) -> dict[str, Any]:
    entry = {"id": model.card.name, "object": "model", "root": model.card.root, "max_model_len": model.engine.context}
    return {"object": "list", "data": [entry]}


def describe_server(model: ServedModel, question: None, query: Query) -> wire.ServerInfo:
    return wire.ServerInfo(
        gives=tuple(sorted(model.engine.gives)),
        precision=model.card.precision,
        vocabulary=model.card.vocabulary,
        context=model.engine.context,
    )


def pause(model: ServedModel, question: Message, query: Query) -> None:
    """Let new requests wait; running ones are finished."""
    mode = query.get("mode", "keep")
    if mode not in ("keep", "wait"):
        raise RefusedRequest(f"mode is {quote_line(mode)!r}; use 'keep', since requests cannot be aborted here")
    model.gate.clear()


class ServerRoute(NamedTuple):
    """A route, its function (of the model, the question and the query), and the type of the question."""

    method: str
    path: str
    answer: Callable[..., Any]
    takes: type[Message] = Message


ROUTES = (
    ServerRoute("GET", "/health", lambda *_: {"status": "healthy"}),
    ServerRoute("GET", wire.MODELS, list_models),
    ServerRoute("GET", wire.BATCH_INFO, describe_server),
    ServerRoute("POST", wire.BATCH_GENERATE, generate_batch, wire.BatchQuestion),
    ServerRoute("POST", wire.BATCH_SCORE, score_batch, wire.ScoreQuestion),
    ServerRoute("GET", wire.WEIGHT_INFO, lambda model, *_: {"weight_version": str(model.engine.version)}),
    ServerRoute("POST", "/pause", pause),
    ServerRoute("POST", "/resume", lambda model, *_: model.gate.set()),
    ServerRoute("GET", wire.IS_PAUSED, lambda model, *_: {"is_paused": not model.gate.is_set()}),
    ServerRoute("POST", "/init_weight_transfer_engine", lambda *_: None),
    ServerRoute("POST", "/start_weight_update", lambda model, *_: model.start_update()),
    ServerRoute("POST", "/update_weights", lambda model, asked, _: model.stage(asked.update_info.path), UpdateQuestion),
    ServerRoute(
        "POST", "/finish_weight_update", lambda model, asked, _: model.finish(asked.weight_version), FinishQuestion
    ),
    # Nothing to do: `load` has already reset the cache. A vLLM server needs this call.
    ServerRoute("POST", "/reset_prefix_cache", lambda *_: None),
    ServerRoute("POST", "/weight_checker", lambda model, *_: model.compute_checksums(), ChecksumQuestion),
    ServerRoute(
        "POST",
        "/v1/load_lora_adapter",
        lambda model, asked, _: model.load_adapter(asked.lora_path, asked.lora_name),
        AdapterQuestion,
    ),
    ServerRoute("POST", "/v1/unload_lora_adapter", lambda *_: None),
)


def make_app(model: ServedModel) -> Starlette:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.responses import Response
    from starlette.routing import Route

    def refuse(error: Exception, status: int) -> Response:
        content = {"error": {"message": str(error), "type": type(error).__name__, "code": status}}
        return Response(json.dumps(content), status, media_type="application/json")

    def make_endpoint(route: ServerRoute) -> Callable[[HttpRequest], Any]:
        async def answer(request: HttpRequest) -> Response:
            try:
                question = await _read_question(request, route.takes) if request.method == "POST" else None
                content = route.answer(model, question, request.query_params)
                content = await content if inspect.isawaitable(content) else content
            except RefusedRequest as refusal:
                return refuse(refusal, refusal.status)
            except GroupwiseError as error:
                return refuse(error, 400)
            except Exception as error:  # a model or a kernel may raise anything; the client gets the reason
                _log.exception("%s failed", route.path)
                reason = quote_line(f"{type(error).__name__}: {error}", limit=300)
                return refuse(RuntimeError(f"{route.path} failed ({reason})"), 500)
            is_message = isinstance(content, Message)
            payload = content.model_dump_json() if is_message else json.dumps(content or {})
            return Response(payload, media_type="application/json")

        return answer

    def refuse_route(request: HttpRequest, error: Exception) -> Response:
        path, method = quote_line(request.url.path), quote_line(request.method)
        known = [route.method for route in ROUTES if route.path == request.url.path]
        reason = f"{path} needs {known[0]}, not {method}" if known else f"there is no route {path}"
        return refuse(RefusedRequest(reason), 405 if known else 404)

    return Starlette(
        routes=[Route(route.path, make_endpoint(route), methods=[route.method]) for route in ROUTES],
        exception_handlers={HTTPException: refuse_route},
    )


async def _read_question(request: HttpRequest, kind: type[Message]) -> Message:
    from starlette.requests import ClientDisconnect

    length = request.headers.get("content-length")
    if length is None:
        raise RefusedRequest("the body has no length; send Content-Length", status=411)
    if int(length) > MAX_BODY:
        raise RefusedRequest(f"the body has {length} bytes, but at most {MAX_BODY} are allowed; send less", status=413)
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        # Any web page can make a browser send other content types.
        raise RefusedRequest("the Content-Type of the body must be application/json", status=415)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return kind.model_validate_json(await request.body() or b"{}")
    except TimeoutError:
        raise RefusedRequest(f"the body did not arrive within {BODY_SECONDS:g} seconds", status=408) from None
    except ClientDisconnect:
        raise EngineFault("the client has disconnected") from None
    except ValidationError as error:
        raise RefusedRequest(wire.describe_problem(error)) from None


def take_port(host: str, port: int) -> socket.socket:
    """Bind a port; 0 = any free port. Clients cannot connect before the server listens."""
    # IPPROTO_TCP: else asyncio delays each small answer by about 40 ms.
    place = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, proto=socket.IPPROTO_TCP)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # else closed connections would block it
    try:
        place.bind((host, port))
    except OSError as error:
        place.close()
        raise ConfigError(
            f"port {port} of {quote_line(host)} cannot be taken ({error.strerror}); give another one, or 0 for any "
            "free port"
        ) from None
    except OverflowError:
        place.close()
        raise ConfigError(f"port {port} is invalid; give a number from 0 to 65535") from None
    return place


def make_server(app: Starlette) -> uvicorn.Server:
    """A server for an application: `run(sockets=[...])` listens until `should_exit` is set."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            backlog=WAITING,
            timeout_keep_alive=KEPT_SECONDS,
            timeout_graceful_shutdown=1,
        )
    )
