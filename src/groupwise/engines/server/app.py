"""The routes of a server, over Starlette: those of vLLM 0.32 that a run uses, and three of our own that take batches.

Bodies have a bounded size and arrive in time, answers are JSON, and what is refused is refused in one sentence.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import math
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, ValidationError

from groupwise.engines import messages as wire
from groupwise.engines.engine import Generation, Request
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
"""Bytes of a request: some five million token ids."""
BODY_SECONDS = 60.0
"""Seconds that the rest of a request may take once it has begun to arrive."""
KEPT_SECONDS = 3600
"""How long a connection that brings nothing stays open."""
WAITING = 512
"""Connections that may wait to be accepted."""

Query = Mapping[str, str]
Text = Annotated[str, Field(min_length=1)]
Zero = Annotated[float, Field(ge=0, le=0)]
One = Annotated[float, Field(ge=1, le=1)]

_log = logging.getLogger(__name__)


class WeightFile(Message):
    """Where weights lie."""

    path: Text


class UpdateQuestion(Message):
    """Weights that are to be read."""

    update_info: WeightFile


class FinishQuestion(Message):
    """What the weights that were read are called: a whole number, which vLLM writes as text."""

    weight_version: Annotated[str, Field(pattern="^[0-9]{1,18}$")]


class AdapterQuestion(Message):
    """An adapter that is to be taken over; its name ends with the version of its weights."""

    lora_name: Annotated[str, Field(pattern="(^|-)[0-9]{1,18}$")]
    lora_path: Text


class ChecksumQuestion(Message):
    """Digests of the weights are asked for."""

    action: Literal["checksum"]


class Sampling(Message):
    """vLLM's settings: those that our engine has not may say what asks nothing of it."""

    model_config = ConfigDict(extra="forbid")

    temperature: Annotated[float, Field(ge=0)] = 1.0
    max_tokens: Annotated[int, Field(ge=1)] = 16
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    stop_token_ids: wire.Ids = ()
    prompt_logprobs: Annotated[int, Field(ge=0, le=1)] | None = None
    """Given: log-probs of the prompt's own tokens are asked for."""
    logprob_token_ids: wire.Ids = ()
    """Tokens whose log-probs at the first place are asked for, whatever is sampled there."""
    logit_bias: dict[str, Zero] = Field(default_factory=dict)
    """A bias of nothing: a way to ask whether the model has a token."""
    top_p: One = 1.0
    top_k: Annotated[int, Field(ge=-1, le=0)] = 0
    min_p: Zero = 0.0
    repetition_penalty: One = 1.0
    presence_penalty: Zero = 0.0
    frequency_penalty: Zero = 0.0
    n: One = 1
    min_tokens: Zero = 0
    logprobs: Annotated[int, Field(ge=0, le=2)] = 0
    ignore_eos: Literal[True] = True
    detokenize: bool = False
    skip_special_tokens: bool = False


class SingleQuestion(Message):
    """A request of vLLM's route for token ids."""

    model: str | None = None
    token_ids: wire.PromptIds
    sampling_params: Sampling
    session: str | None = None


async def generate_batch(model: ServedModel, question: wire.BatchQuestion, query: Query) -> wire.BatchAnswer:
    """Answer a list of requests as one batch."""
    return wire.BatchAnswer(generations=_check_numbers(await model.generate(question.requests)))


async def score_batch(model: ServedModel, question: wire.ScoreQuestion, query: Query) -> wire.ScoreAnswer:
    """Score a list of responses as one batch."""
    return wire.ScoreAnswer(scores=tuple(await model.score(question.sequences, temperature=question.temperature)))


async def generate_single(model: ServedModel, question: SingleQuestion, query: Query) -> wire.GenerateAnswer:
    """Answer a request as vLLM does, with `entropies` in addition."""
    name, prompt, asked = question.model or model.card.name, question.token_ids, question.sampling_params
    if name not in (model.card.name, model.adapter):
        raise RefusedRequest(f"there is no model {quote_line(name)!r} here, only {model.card.name!r}", status=404)
    model.check_tokens([int(token) if token.isdecimal() else -1 for token in asked.logit_bias])
    request = Request(
        prompt_ids=prompt,
        seed=asked.seed,
        max_tokens=asked.max_tokens,
        temperature=asked.temperature,
        stop_ids=asked.stop_token_ids,
        session=question.session,
    )
    [answer] = _check_numbers(await model.generate([request]))
    named = tuple(dict.fromkeys(asked.logprob_token_ids))
    scores = await model.score([(prompt, (token,)) for token in named], temperature=asked.temperature or 1.0)
    top = tuple(wire.TokenLogp(token_id=token, logprob=logp) for token, (logp,) in zip(named, scores, strict=True))
    content = tuple(
        wire.TokenLogp(token_id=token, logprob=logp, top_logprobs=() if place else top)
        for place, (token, logp) in enumerate(zip(answer.response_ids, answer.logp, strict=True))
    )
    spans, start = list[wire.WeightSpan](), 0
    for version, tokens in answer.versions:
        spans.append(wire.WeightSpan(version=str(version), start=start, end=start + tokens))
        start += tokens
    choice = wire.Choice(
        token_ids=answer.response_ids,
        logprobs=wire.Logps(content=content),
        entropies=answer.entropy,
        finish_reason="stop" if answer.stopped else "length",
        weight_versions=tuple(spans),
    )
    of_prompt = None
    if asked.prompt_logprobs is not None:  # at temperature 1, as vLLM gives them
        [logps] = await model.score([(prompt[:1], prompt[1:])], temperature=1.0)
        rows = ({str(token): wire.TokenLogp(logprob=logp)} for token, logp in zip(prompt[1:], logps, strict=True))
        of_prompt = (None, *rows)
    return wire.GenerateAnswer(model=name, choices=(choice,), prompt_logprobs=of_prompt)


def _check_numbers(answers: Sequence[Generation]) -> tuple[Generation, ...]:
    """Refuse to send what no reader takes; JSON has no NaN."""
    for answer in answers:
        if not all(map(math.isfinite, (*answer.logp, *answer.entropy))):
            raise ValueError("the engine computed a log-prob or an entropy that is not finite")
    return tuple(answers)


def list_models(model: ServedModel, question: None, query: Query) -> dict[str, Any]:
    """The model, and how many tokens it reads."""
    entry = {"id": model.card.name, "object": "model", "root": model.card.root, "max_model_len": model.engine.context}
    return {"object": "list", "data": [entry]}


def describe_server(model: ServedModel, question: None, query: Query) -> wire.ServerInfo:
    """What the run's client must know of a server."""
    return wire.ServerInfo(
        gives=tuple(sorted(model.engine.gives)),
        precision=model.card.precision,
        vocabulary=model.card.vocabulary,
        context=model.engine.context,
    )


def pause(model: ServedModel, question: Message, query: Query) -> dict[str, str]:
    """Let requests wait from now on; what is being computed is finished first."""
    mode = query.get("mode", "keep")
    if mode not in ("keep", "wait"):
        raise RefusedRequest(f"mode is {quote_line(mode)!r}; give 'keep', since nothing is given up half-way here")
    model.gate.clear()
    return {"status": "paused"}


def resume(model: ServedModel, question: Message, query: Query) -> dict[str, str]:
    """Let requests through again."""
    model.gate.set()
    return {"status": "resumed"}


def start_update(model: ServedModel, question: Message, query: Query) -> dict[str, str]:
    """Begin an update of the weights."""
    model.start_update()
    return {"message": "started"}


async def update_weights(model: ServedModel, question: UpdateQuestion, query: Query) -> dict[str, str]:
    """Read weights, which are not used yet."""
    await model.stage_file(question.update_info.path)
    return {"message": "read"}


async def finish_update(model: ServedModel, question: FinishQuestion, query: Query) -> dict[str, str]:
    """Use what was read."""
    await model.finish_update(int(question.weight_version))
    return {"message": "finished"}


async def load_adapter(model: ServedModel, question: AdapterQuestion, query: Query) -> dict[str, str]:
    """Take an adapter over; requests call it by its name."""
    await model.load_adapter(question.lora_path, question.lora_name)
    return {"message": f"adapter {question.lora_name} is in use"}


async def compute_checksums(model: ServedModel, question: ChecksumQuestion, query: Query) -> dict[str, Any]:
    """Digests of the weights."""
    return {"checksums": await model.compute_checksums()}


class ServerRoute(NamedTuple):
    """A route: what it takes, and what answers."""

    method: str
    path: str
    answer: Callable[..., Any]
    takes: type[Message] = Message


VLLM_ROUTES = (
    ServerRoute("GET", "/health", lambda *_: {"status": "healthy"}),
    ServerRoute("GET", wire.MODELS, list_models),
    ServerRoute("GET", wire.WEIGHT_INFO, lambda model, *_: {"weight_version": str(model.engine.version)}),
    ServerRoute("POST", wire.GENERATE, generate_single, SingleQuestion),
    ServerRoute("POST", "/pause", pause),
    ServerRoute("POST", "/resume", resume),
    ServerRoute("GET", wire.IS_PAUSED, lambda model, *_: {"is_paused": not model.gate.is_set()}),
    ServerRoute("POST", "/init_weight_transfer_engine", lambda *_: {"message": "nothing to prepare"}),
    ServerRoute("POST", "/start_weight_update", start_update),
    ServerRoute("POST", "/update_weights", update_weights, UpdateQuestion),
    ServerRoute("POST", "/finish_weight_update", finish_update, FinishQuestion),
    # `load` has forgotten what old weights computed; a vLLM server has not, and must be told.
    ServerRoute("POST", "/reset_prefix_cache", lambda *_: {"message": "nothing of older weights is kept"}),
    ServerRoute("POST", "/weight_checker", compute_checksums, ChecksumQuestion),
    ServerRoute("POST", "/v1/load_lora_adapter", load_adapter, AdapterQuestion),
    ServerRoute("POST", "/v1/unload_lora_adapter", lambda *_: {"message": "older adapters are not kept"}),
)
BATCH_ROUTES = (
    ServerRoute("GET", wire.BATCH_INFO, describe_server),
    ServerRoute("POST", wire.BATCH_GENERATE, generate_batch, wire.BatchQuestion),
    ServerRoute("POST", wire.BATCH_SCORE, score_batch, wire.ScoreQuestion),
)


def make_app(model: ServedModel, *, takes_batches: bool = True) -> Starlette:
    """An application that answers for a model; without `takes_batches` it has vLLM's routes alone."""
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
            except Exception as error:  # whatever a model or a kernel raises: whoever asked should hear of it
                _log.exception("%s failed", route.path)
                reason = quote_line(f"{type(error).__name__}: {error}", limit=300)
                return refuse(RuntimeError(f"{route.path} failed ({reason})"), 500)
            is_message = isinstance(content, Message)
            payload = content.model_dump_json(exclude_none=True) if is_message else json.dumps(content)
            return Response(payload, media_type="application/json")

        return answer

    def refuse_route(request: HttpRequest, error: Exception) -> Response:
        path, method = quote_line(request.url.path), quote_line(request.method)
        known = [route.method for route in routes if route.path == request.url.path]
        words = f"{path} is called with {known[0]}, not {method}" if known else f"there is no {path} here"
        return refuse(RefusedRequest(words), 405 if known else 404)

    routes = (*VLLM_ROUTES, *(BATCH_ROUTES if takes_batches else ()))
    return Starlette(
        routes=[Route(route.path, make_endpoint(route), methods=[route.method]) for route in routes],
        exception_handlers={HTTPException: refuse_route},
    )


async def _read_question(request: HttpRequest, kind: type[Message]) -> Message:
    """The body as the message that a route takes."""
    from starlette.requests import ClientDisconnect

    length = request.headers.get("content-length")
    if length is None:
        raise RefusedRequest("the body has no length; send Content-Length", status=411)
    if int(length) > MAX_BODY:
        raise RefusedRequest(f"the body has {length} bytes, of at most {MAX_BODY}; send fewer at once", status=413)
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        # A page in a browser can send other kinds unasked.
        raise RefusedRequest("the body is not application/json; say so in Content-Type", status=415)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return kind.model_validate_json(await request.body() or b"{}")
    except TimeoutError:
        raise RefusedRequest(f"the body did not arrive within {BODY_SECONDS:g} seconds", status=408) from None
    except ClientDisconnect:
        raise EngineFault("whoever asked has gone") from None
    except ValidationError as error:
        raise RefusedRequest(wire.describe_problem(error)) from None


def take_port(host: str, port: int) -> socket.socket:
    """Take a port; 0 = any that is free. Nobody can connect before it is listened at."""
    # Named TCP, as else asyncio lets each small answer wait some 40 ms for an acknowledgement.
    place = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, proto=socket.IPPROTO_TCP)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that ended do not take it
    try:
        place.bind((host, port))
    except OSError as error:
        place.close()
        raise ConfigError(
            f"port {port} of {quote_line(host)} cannot be taken ({error.strerror}); give another one, or 0 for any "
            "that is free"
        ) from None
    except OverflowError:
        place.close()
        raise ConfigError(f"port {port} is none; give a number from 0 to 65535") from None
    return place


def make_server(app: Starlette) -> uvicorn.Server:
    """A server for an application: `run(sockets=[...])` listens, until `should_exit` is set."""
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


def check_can_serve() -> None:
    """Refuse an environment without what serving needs."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ConfigError("serving needs Starlette and uvicorn; run pip install 'groupwise[serve]'") from None
