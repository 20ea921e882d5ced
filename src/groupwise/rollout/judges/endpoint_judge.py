"""A judge that is a language model behind an OpenAI-compatible server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from groupwise.core.errors import ConfigError, EngineFault
from groupwise.core.parts.part import Part
from groupwise.core.text.secrets import resolve_references
from groupwise.engines.remote.http_client import ServerClient, read_url
from groupwise.rollout.judges.endpoint_calls import EndpointCalls, explain_failure
from groupwise.rollout.judges.prompt_and_score import (
    DEFAULT_PROMPT,
    NUMBER_AFTER_SCORE,
    check_prompt,
    fill_prompt,
    read_choice,
    read_number,
)
from groupwise.rollout.judges.protocol import Judgement, JudgeQuestion

SETTING = "algorithm.judge.url"
MAX_PLACE_CHARACTERS = 20_000
Finite = Annotated[float, Field(allow_inf_nan=False)]


class EndpointJudge(Part, slot="judge"):
    """Ask a model at `URL/chat/completions` about each answer, and read a score from what it says.

    Equal questions are asked once in a run. Every answer is written down in the run's folder as it comes (judge.jsonl),
    and a run that goes on reads it there. Where no answer comes, the same is asked again; where one has no score, with
    another seed. Where that does not help, the run ends with a sentence, or goes on with the `fallback`.
    """

    url: str
    """Where the server is, up to and with its version: "http://127.0.0.1:8000/v1"."""
    model: Annotated[str, Field(min_length=1)]
    """What the server calls the model."""
    prompt: str = DEFAULT_PROMPT
    """What is asked. In it stand {answer}, what is judged; {said}, what the response said before that; {context}, what
    was shown; {task}, the task's payload, and {facts} of the step, as JSON; {task.NAME} and {facts.NAME}, an entry of
    these; {task_id}."""
    system: str = ""
    """What the model is told before; empty = nothing."""
    pattern: str = NUMBER_AFTER_SCORE
    """A regular expression whose one group is the score; the last match counts."""
    choices: tuple[tuple[str, Finite], ...] = ()
    """Words with their scores, in the place of a pattern: `choices = [["yes", 1.0], ["no", 0.0]]`; the last counts."""
    lowest: Finite | None = 0.0
    """The lowest number that is a score; None = any."""
    highest: Finite | None = 10.0
    """The highest number that is a score; None = any."""
    samples: Annotated[int, Field(ge=1)] = 1
    """Answers to each question, with a seed of their own; their scores are averaged."""
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = 0.0
    """What the model samples at; None = the server's own."""
    seed: Annotated[int, Field(ge=0, le=2**31)] | None = 0
    """The first seed; None = none is sent."""
    max_tokens: Annotated[int, Field(ge=1)] = 512
    """Tokens of an answer at most."""
    body: Mapping[str, Any] = Field(default_factory=dict)
    """Further fields of the request, for what servers differ in; they win over those above."""
    api_key: str = ""
    """The key as the environment variable that holds it, "${JUDGE_API_KEY}"; empty = none is sent."""
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    """Seconds for one answer."""
    retries: Annotated[int, Field(ge=0, le=100)] = 3
    """How often a question is asked again."""
    retry_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """How long to wait before a server is asked again that failed; twice as long each time, half a minute at most."""
    concurrency: Annotated[int, Field(ge=1, le=256)] = 8
    """Calls that are under way at a time."""
    max_calls: Annotated[int, Field(ge=1)] | None = None
    """Calls that the run may make in all, before an update's questions are asked; what is asked again (`retries`) comes
    on top. None = any number."""
    fallback: Finite | None = None
    """The score of a question that the judge did not answer; None = the run ends."""

    @model_validator(mode="after")
    def _can_be_meant(self) -> EndpointJudge:
        _check_settings(self)
        return self

    @field_validator("api_key")
    @classmethod
    def _is_named(cls, api_key: str) -> str:
        if api_key and not re.fullmatch(r"\$\{[A-Za-z_]\w*\}", api_key):
            raise ValueError("api_key would be kept in the run's folder; write the variable that holds it: '${NAME}'")
        return api_key

    def __call__(self, questions: Sequence[JudgeQuestion]) -> list[float]:
        """The score of each question, asked now; in a run, the record is looked at first."""
        asked = [sample for question in questions for sample in self.write_questions(question)]
        scores = [0.0] * len(asked)
        for place, judgement in self.ask(asked):
            if judgement.score is None:  # the first one has calls: who is stopped before the first call comes after it
                raise EngineFault(f"the judge {self.model!r}: {self.explain(judgement)}")
            scores[place] = judgement.score
        return [
            sum(scores[start : start + self.samples]) / self.samples for start in range(0, len(scores), self.samples)
        ]

    def check(self, *, is_new: bool) -> None:
        """Look the key up and, where nobody has asked yet, see that a server listens."""
        self._make_headers()
        if is_new and self.fallback is None:
            with self._open_client() as client:
                self._make_calls(client).check_server()

    def write_questions(self, question: JudgeQuestion) -> list[Mapping[str, Any]]:
        """The requests about a question, one a sample, and how their answers are read."""
        return _write_requests(self, question)

    def ask(self, asked: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Judgement]]:
        """Ask the server, several at a time; after an answer without a score, nothing else is begun."""
        if asked:
            with self._open_client() as client:
                requests = [sample["request"] for sample in asked]
                yield from self._make_calls(client).settle_all(requests, concurrency=self.concurrency)

    def explain(self, judgement: Judgement) -> str:
        """What went wrong in the last call, and what to do."""
        return explain_failure(judgement, self.url)

    def read_score(self, text: str) -> float | str:
        """The score in an answer, or a few words about why there is none."""
        if self.choices:
            return read_choice(text, self.choices)
        return read_number(text, self.pattern, lowest=self.lowest, highest=self.highest)

    def _open_client(self) -> ServerClient:
        return ServerClient(self.url, setting=SETTING, headers=self._make_headers)

    def _make_calls(self, client: ServerClient) -> EndpointCalls:
        return EndpointCalls(
            client=client,
            read_score=self.read_score,
            timeout=self.timeout,
            retries=self.retries,
            retry_seconds=self.retry_seconds,
            seeds=self.samples,
            fallback=self.fallback,
        )

    def _make_headers(self) -> dict[str, str]:
        return _write_headers(self.api_key)


def _write_headers(api_key: str | None) -> dict[str, str]:
    """The headers that show a key; one that no header may hold is refused, since http.client would show it."""
    if not api_key:
        return {}
    key = resolve_references(api_key).strip()
    if not key.isascii() or not key.isprintable():
        raise ConfigError(
            "algorithm.judge.api_key: the key holds a character that no header may; look at the variable that it comes "
            "from, where a line end in the middle is the usual one"
        )
    return {"Authorization": f"Bearer {key}"}


def _check_settings(judge: EndpointJudge) -> None:
    """Refuse a URL, a pattern, bounds, samples or a prompt that cannot be meant."""
    try:
        read_url(judge.url, SETTING)
        groups = re.compile(judge.pattern).groups
    except ConfigError as error:
        raise ValueError(str(error).removeprefix(f"{SETTING}: ")) from None
    except re.error as error:
        raise ValueError(f"pattern {judge.pattern!r} is no regular expression: {error}") from None
    if groups != 1:
        raise ValueError(f"pattern {judge.pattern!r} has {groups} groups; put the score alone into ( )")
    if judge.lowest is not None and judge.highest is not None and judge.lowest >= judge.highest:
        raise ValueError(f"lowest {judge.lowest:g} is not below highest {judge.highest:g}; no number would be a score")
    if judge.samples > 1 and (judge.temperature == 0 or judge.seed is None):
        raise ValueError("several samples at temperature 0, or without a seed, are one; raise temperature, give a seed")
    check_prompt(judge.prompt)


def _write_requests(judge: EndpointJudge, question: JudgeQuestion) -> list[Mapping[str, Any]]:
    messages = [{"role": "system", "content": judge.system}] if judge.system else []
    filled = fill_prompt(judge.prompt, question, max_characters=MAX_PLACE_CHARACTERS)
    request: dict[str, Any] = {"model": judge.model, "messages": [*messages, {"role": "user", "content": filled}]}
    request["max_tokens"] = judge.max_tokens
    if judge.temperature is not None:
        request["temperature"] = judge.temperature
    reading = {"pattern": judge.pattern, "lowest": judge.lowest, "highest": judge.highest}
    how = {"choices": [list(choice) for choice in judge.choices]} if judge.choices else reading
    return [
        {"request": request | ({} if judge.seed is None else {"seed": judge.seed + sample}) | dict(judge.body), **how}
        for sample in range(judge.samples)
    ]
