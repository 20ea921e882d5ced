"""The messages between engine and servers, in both directions, validated strictly by pydantic.

There are two protocols. vLLM's route takes one request per call: `write_generate`, `read_generate`. groupwise servers
also take a list of requests, which they answer as one batch: `BatchQuestion`, `read_batch`. An answer that does not
fit its question is a ValueError; the caller adds which server it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field, ValidationError

from groupwise.data.samples import PromptAndResponse
from groupwise.engines.engine import Generation, Request, check_generations
from groupwise.system.text import describe_value, quote_line

MODELS = "/v1/models"
GENERATE = "/inference/v1/generate"
BATCH_INFO = "/groupwise/v1/info"
BATCH_GENERATE = "/groupwise/v1/generate"
BATCH_SCORE = "/groupwise/v1/score"
WEIGHT_INFO = "/weight_info"
IS_PAUSED = "/is_paused"
SERVER_INFO = "/server_info?config_format=json"

MAX_VERSIONS = 10**7
ANSWER_BYTES = 2**16
"""Size limit of an answer without its tokens."""
TOKEN_BYTES = 2**10
"""Size limit of an answer per token."""
ROUNDING = 1e-3
"""Amount by which rounding may lift a log-prob above 0."""
IMPOSSIBLE_LOGP = -9000.0
"""Some servers write this for a missing log-prob; no sampled token has one as low."""

Ids = Annotated[tuple[int, ...], FailFast()]
PromptIds = Annotated[Ids, Field(min_length=1)]


class Message(BaseModel):
    """A message: no string or boolean counts as a number, and no number is NaN or infinite."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


def describe_problem(error: ValidationError) -> str:
    """The first problem of a message: its path, the problem, and the value."""
    problem = error.errors(include_url=False)[0]
    path = ".".join(map(str, problem["loc"]))
    cause = problem.get("ctx", {}).get("error")
    words = str(cause) if isinstance(cause, ValueError) else f"{problem['msg'][0].lower()}{problem['msg'][1:]}"
    found = problem["input"]
    if isinstance(found, bytes):
        found = found[:200].decode("utf-8", "replace")
    shown = quote_line(repr(found), limit=60) if isinstance(found, str | int | float) else describe_value(found)
    return f"{path}: {words}, found {shown}".removeprefix(": ")


def limit_bytes(num_tokens: int) -> int:
    return ANSWER_BYTES + TOKEN_BYTES * num_tokens


def write_label(version: int, *, owner: int) -> str:
    """A server's name for the weights of a version: the owner, then the version.

    So a run does not mistake another run's weights for its own. It is a number, since groupwise servers count versions.
    """
    return str(owner * MAX_VERSIONS + version)


# --- which model a server has ---


class ModelEntry(Message):
    """A model of a server; an adapter has a parent."""

    id: str
    max_model_len: int | None = None
    parent: str | None = None


class ModelList(Message):
    """The models of a server."""

    data: tuple[ModelEntry, ...]


class WeightInfo(Message):
    """The label of a server's weights."""

    weight_version: str


def read_model(text: bytes) -> tuple[str, int | None]:
    for entry in ModelList.model_validate_json(text).data:
        if entry.parent is None:
            return entry.id, entry.max_model_len
    raise ValueError("no model in its answer; is it vLLM?")


def read_label(text: bytes) -> str:
    return WeightInfo.model_validate_json(text).weight_version


# --- vLLM's protocol: one request per call ---


class TokenLogp(Message):
    """The log-prob of a token."""

    logprob: float
    token_id: int | None = None
    top_logprobs: tuple[TokenLogp, ...] | None = None
    """Of other requested tokens at its position."""


class Logps(Message):
    """The log-probs of a response."""

    content: tuple[TokenLogp, ...]


class WeightSpan(Message):
    """Tokens of a response that weights of one label sampled: from `start` up to `end`."""

    version: Annotated[str, Field(min_length=1, max_length=200)]
    start: int
    end: int


class Choice(Message):
    """A response."""

    token_ids: Ids = ()
    logprobs: Logps | None = None
    finish_reason: Literal["stop", "length"] | None = None
    weight_versions: tuple[WeightSpan, ...] | None = None


class GenerateAnswer(Message):
    """The answer to one request."""

    choices: Annotated[tuple[Choice, ...], Field(min_length=1, max_length=1)]
    prompt_logprobs: tuple[dict[str, TokenLogp] | None, ...] | None = None
    """Log-probs of the prompt's own tokens by id; the first has none."""


class SampledResponse(NamedTuple):
    """A response, with labels instead of versions."""

    generation: Generation
    """The response, without its versions."""
    spans: tuple[tuple[str, int], ...]
    """Label of the weights and number of tokens per span, in order; empty if the server does not give them."""


PLAIN_SAMPLING: Mapping[str, Any] = {
    "n": 1,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_tokens": 0,
    "ignore_eos": True,
    "detokenize": False,
}
"""Settings that sample from the model's own distribution, at the request's temperature."""


def write_question(model: str, ids: Sequence[int], **sampling: Any) -> dict[str, Any]:
    """A question as JSON. It has every setting that could change the distribution: no server default applies."""
    return {"model": model, "token_ids": list(ids), "sampling_params": {**PLAIN_SAMPLING, **sampling}}


def write_generate(request: Request, *, model: str) -> dict[str, Any]:
    return write_question(
        model,
        request.prompt_ids,
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        max_tokens=request.max_tokens,
        seed=request.seed,
        stop_token_ids=list(request.stop_ids),
        logprobs=0,
    )


def read_generate(text: bytes, request: Request, *, vocabulary: int) -> SampledResponse:
    [choice] = GenerateAnswer.model_validate_json(text).choices
    ids, content = choice.token_ids, () if choice.logprobs is None else choice.logprobs.content
    stopped = _check_response(ids, request, vocabulary)
    if len(content) != len(ids):
        raise ValueError(f"{len(ids)} tokens came with {len(content)} log-probs")
    for entry, token in zip(content, ids, strict=True):
        if entry.token_id not in (token, None):
            raise ValueError(f"the log-prob of token {token} belongs to token {entry.token_id}")
    logp = tuple(_check_logp(entry.logprob) for entry in content)
    spans = _read_spans(choice, len(ids))
    return SampledResponse(Generation(response_ids=ids, logp=logp, entropy=(), stopped=stopped, versions=()), spans)


def write_score(prompt: Sequence[int], response: Sequence[int], *, model: str) -> dict[str, Any]:
    """Ask for the log-probs of a recorded response at temperature 1; it is sent as the end of the prompt."""
    return write_question(model, (*prompt, *response), temperature=1.0, max_tokens=1, seed=0, prompt_logprobs=0)


def read_score(text: bytes, prompt: Sequence[int], response: Sequence[int]) -> tuple[tuple[float, ...], str | None]:
    """The log-probs of the response, and the label of the weights."""
    answer = GenerateAnswer.model_validate_json(text)
    rows, num = answer.prompt_logprobs or (), len(prompt) + len(response)
    if len(rows) != num:
        raise ValueError(f"prompt_logprobs has {len(rows)} entries, but {num} are needed")
    logps = []
    for row, token in zip(rows[len(prompt) :], response, strict=True):
        if row is None or str(token) not in row:
            raise ValueError(f"prompt_logprobs lacks the log-prob of token {token}")
        logps.append(_check_logp(row[str(token)].logprob))
    return tuple(logps), _read_single_label(answer.choices[0])


def write_next_score(context: Sequence[int], token: int, *, model: str, temperature: float) -> dict[str, Any]:
    """Ask for the log-prob of one next token at a temperature, by way of the prefix cache."""
    twice = [token, token]  # vLLM drops one entry of the list, for the token that it sampled
    sampling: dict[str, Any] = {"max_tokens": 1, "seed": 0, "logprobs": 2, "logprob_token_ids": twice}
    return write_question(model, context, temperature=temperature, **sampling)


def read_next_score(text: bytes, token: int) -> tuple[float, str | None]:
    """The log-prob of the requested token, and the label of the weights."""
    [choice] = GenerateAnswer.model_validate_json(text).choices
    content = () if choice.logprobs is None else choice.logprobs.content
    if len(content) != 1:
        raise ValueError(f"one token came with {len(content)} log-probs")
    for entry in (content[0], *(content[0].top_logprobs or ())):
        if entry.token_id == token:
            return _check_logp(entry.logprob), _read_single_label(choice)
    raise ValueError(f"the answer lacks the log-prob of token {token}, which was requested")


# --- the protocol of groupwise servers: a batch per call ---


class ServerInfo(Message):
    """The description of a groupwise server."""

    gives: tuple[str, ...]
    precision: str
    """Of the engine."""
    vocabulary: int
    context: int | None = None
    """Maximum number of tokens of a prompt and its response together."""


class BatchQuestion(Message):
    """Requests that are answered together."""

    model_config = ConfigDict(extra="forbid")

    requests: Annotated[tuple[Request, ...], FailFast()]


class BatchAnswer(Message):
    """One response per request; its versions are the labels of the weights, which are numbers here."""

    generations: tuple[Annotated[Generation, AfterValidator(lambda answer: check_generations([answer])[0])], ...]


class ScoreQuestion(Message):
    """Prompts with responses that are scored together."""

    sequences: Annotated[tuple[tuple[PromptIds, Ids], ...], FailFast()]
    temperature: Annotated[float, Field(gt=0)] = 1.0


class ScoreAnswer(Message):
    """One log-prob per token of each response."""

    scores: tuple[tuple[float, ...], ...]


def read_batch(text: bytes, requests: Sequence[Request], *, vocabulary: int) -> list[SampledResponse]:
    answers, responses = BatchAnswer.model_validate_json(text).generations, list[SampledResponse]()
    if len(answers) != len(requests):
        raise ValueError(f"generations has {len(answers)} entries, but {len(requests)} are needed")
    for answer, request in zip(answers, requests, strict=True):
        stopped = _check_response(answer.response_ids, request, vocabulary)
        spans = tuple((str(span.version), span.tokens) for span in answer.versions)
        responses.append(SampledResponse(replace(answer, stopped=stopped, versions=()), spans))
    return responses


def read_scores(text: bytes, sequences: Sequence[PromptAndResponse]) -> list[tuple[float, ...]]:
    scores = ScoreAnswer.model_validate_json(text).scores
    found, needed = [len(row) for row in scores], [len(response) for _, response in sequences]
    if found != needed:
        raise ValueError(f"scores of {found} tokens came for responses of {needed}")
    return list(scores)


# --- pieces ---


def _check_response(ids: Sequence[int], request: Request, vocabulary: int) -> bool:
    """Whether a stop token ended a response; a ValueError if its tokens or its end are invalid."""
    if ids and not 0 <= min(ids) <= max(ids) < vocabulary:
        raise ValueError(f"token ids are from {min(ids)} to {max(ids)}, but must be from 0 to {vocabulary - 1}")
    if not 1 <= len(ids) <= request.max_tokens:
        raise ValueError(f"a response has {len(ids)} tokens, but must have 1 to {request.max_tokens}")
    stops = set(request.stop_ids)
    if stops.intersection(ids[:-1]):
        raise ValueError("a response continues after a stop token")
    if ids[-1] not in stops and len(ids) < request.max_tokens:
        raise ValueError(f"a response ended after {len(ids)} of {request.max_tokens} tokens without a stop token")
    return ids[-1] in stops


def _check_logp(logp: float) -> float:
    if not IMPOSSIBLE_LOGP < logp <= ROUNDING:
        raise ValueError(f"a log-prob is {logp:g}, which is impossible for a sampled token")
    return logp


def _read_spans(choice: Choice, num: int) -> tuple[tuple[str, int], ...]:
    """Labels and numbers of tokens; empty if the server does not give versions."""
    if choice.weight_versions is None:
        return ()
    end = 0
    for span in choice.weight_versions:
        if span.start != end or span.end < end:
            raise ValueError(f"a span of weight_versions is from {span.start} to {span.end}, after {end}")
        end = span.end
    if end != num:
        raise ValueError(f"weight_versions cover {end} of {num} tokens")
    return tuple((span.version, span.end - span.start) for span in choice.weight_versions if span.end > span.start)


def _read_single_label(choice: Choice) -> str | None:
    """The label of the weights that sampled the single token of an answer; None if the server does not give it."""
    spans = _read_spans(choice, 1)
    return spans[0][0] if spans else None
