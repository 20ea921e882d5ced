"""State rules: which model calls of an agent start from the same state.

A rule maps the messages so far to a state key. Calls of two rollouts with equal keys are compared. A key is made of
tool calls and their results. What the user and the assistant write is never in a key: two rollouts hardly ever have
the same words. A state that the agent or a tool gives by itself replaces the rule's key.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field

from groupwise.parts.part import Part
from groupwise.system.json_text import is_shallow, parse_json, to_canonical_json

Messages = Sequence[Mapping[str, Any]]
"""A conversation in OpenAI's chat form."""


class ToolRule(Part):
    """What all rules about tool calls have in common: how they read the calls and their results.

    Choices: arguments and results are canonical JSON if they are JSON, so the order of keys and the white space do not
    matter. In other text, white space is one space. Calls of one reply have no order. Numbers are never changed.
    """

    ignore: tuple[str, ...] = ("think",)
    """Tools whose calls do not count; `*` stands for any text."""
    normalise: bool = True
    """Whether what differs by chance is left out: UUIDs, hexadecimal ids, temporary paths and host names, and in
    results also times and durations."""

    def read(self, messages: Messages) -> ToolUse:
        """The tool calls that count, with their results."""
        in_arguments, in_results = (_IDS, _IDS_AND_TIMES) if self.normalise else (None, None)
        use, waiting = ToolUse(), list[Call]()
        for message in messages:
            if message["role"] == "user":
                use.user_turns += 1
            elif message["role"] == "assistant" and message.get("tool_calls"):
                waiting = [Call.read(call, in_arguments) for call in message["tool_calls"]]
                if counted := [call for call in waiting if not matches(call.name, self.ignore)]:
                    use.replies.append(counted)
                    use.user_turns = 0
            elif message["role"] == "tool":
                answered = next((call for call in waiting if call.id == message.get("tool_call_id")), None)
                if answered is not None:
                    waiting.remove(answered)
                    answered.answer = message
                    answered.result = canonical(join_parts(message.get("content")), in_results)
        return use


class WritingToolRule(ToolRule):
    """What rules have in common that know which tools change the environment."""

    writes: tuple[str, ...] = ()
    """Tools that change the environment; `*` stands for any text. Without them, no call counts as a write."""
    failures: tuple[str, ...] = ("error*", "exception*", "failed*", "nothing happens*", "traceback*")
    """Results of writes that failed and do not count, in lower case; `*` stands for any text. A JSON object with a
    value for `error` is one too."""

    def list_writes(self, use: ToolUse) -> list[str]:
        """The successful writes, without order."""
        writes = (call for reply in use.replies for call in reply if matches(call.name, self.writes))
        return sorted(str(call) for call in writes if call.answer and not is_failure(call.answer, self.failures))


class ExchangeStateRule(WritingToolRule, slot="state_rule"):
    """The last tool calls with their results, the number of user messages since, and all successful writes before.

    Choices: the writes have no order, but their number counts.
    """

    def __call__(self, messages: Messages) -> str:
        use = self.read(messages)
        last = sorted(call.with_result() for reply in use.replies[-1:] for call in reply)
        return make_key(writes=self.list_writes(use), calls=last, user=[str(use.user_turns)])


class WritesStateRule(WritingToolRule, slot="state_rule"):
    """All successful writes so far: what the agent changed, whatever it has read."""

    writes: Annotated[tuple[str, ...], Field(min_length=1)]
    """Tools that change the environment; `*` stands for any text."""

    def __call__(self, messages: Messages) -> str:
        return make_key(writes=self.list_writes(self.read(messages)))


class ResultsStateRule(ToolRule, slot="state_rule"):
    """All tool calls so far with their results: what the agent knows. Order and repetition do not count."""

    def __call__(self, messages: Messages) -> str:
        replies = self.read(messages).replies
        return make_key(known=sorted({call.with_result() for reply in replies for call in reply}))


class ToolHistoryStateRule(ToolRule, slot="state_rule"):
    """All tool calls so far, in order, without their results."""

    def __call__(self, messages: Messages) -> str:
        return make_key(history=[as_list(sorted(map(str, reply))) for reply in self.read(messages).replies])


class LastToolResultStateRule(ToolRule, slot="state_rule"):
    """The results of the last tool calls alone, as most environments show only the present state.

    Choices: different calls may have the same result, such as an empty output. Then different states have one key.
    """

    def __call__(self, messages: Messages) -> str:
        return make_key(results=sorted(call.result for reply in self.read(messages).replies[-1:] for call in reply))


class NoneStateRule(Part, slot="state_rule"):
    """No state key: steps are not compared, only whole rollouts."""

    def __call__(self, messages: Messages) -> None:
        return None


# Tool calls, read from messages.


@dataclass(slots=True, eq=False)
class Call:
    """One tool call and its result."""

    id: str | None
    name: str
    arguments: str
    """As JSON text."""
    result: str = "null"
    """As JSON text; null = no result yet."""
    answer: Mapping[str, Any] | None = None
    """The message with the result."""

    @classmethod
    def read(cls, call: Mapping[str, Any], volatile: re.Pattern[str] | None) -> Call:
        function = call["function"]
        arguments = function.get("arguments") or "{}"
        text = arguments if isinstance(arguments, str) else to_canonical_json(arguments)
        return cls(call.get("id"), function["name"], canonical(text, volatile))

    def __str__(self) -> str:
        return as_list([json.dumps(self.name), self.arguments])

    def with_result(self) -> str:
        return as_list([json.dumps(self.name), self.arguments, self.result])


@dataclass(slots=True, eq=False)
class ToolUse:
    """The tool calls of a conversation."""

    replies: list[list[Call]] = field(default_factory=list)
    """The calls of each reply that has any."""
    user_turns: int = 0
    """The number of user messages after the last of these replies."""


def matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_failure(message: Mapping[str, Any], failures: Iterable[str]) -> bool:
    """Whether a tool's message says that the call failed: by a mark, by its words, or by a key `error`."""
    text = join_parts(message.get("content"))
    value = _parse(text)
    return bool(
        message.get("is_error")
        or message.get("status") == "error"
        or matches(text.strip().lower(), failures)
        or (isinstance(value, dict) and (value.get("error") or value.get("isError")))
    )


def join_parts(content: Any) -> str:
    """The text of a message's content: text, nothing, or a list of parts."""
    if isinstance(content, list):
        return "\n".join(part["text"] if "text" in part else to_canonical_json(part) for part in content)
    return content or ""


# Canonical text. Keys are JSON text, so that two different states never have one key.

MOST = 200
"""Characters of a longer text are replaced by a digest."""

_TEMPORARY = r"(?:/private)?(?:/var)?/tmp/[\w./-]+|/var/folders/[\w./-]+"
_UUID = r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
_HEX = r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{8,}\b"
_HOST = (
    r"\bip-\d+-\d+-\d+-\d+[\w.-]*|\b[\w-]+(?:\.[\w-]+)*\.(?:internal|local|localdomain|lan)\b|"
    r"(?<=\w@)[\w.-]+(?=:[~/])|\b(?:localhost|127\.0\.0\.1):\d+\b"
)
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_TIME = (
    rf"\b\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?|\b{_CLOCK}\b|"
    rf"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d{{1,2}} (?:{_CLOCK}|\d\d:\d\d)\b"
)
_DURATION = r"\b(?:\d+m)?\d+\.\d+ ?s\b|\b\d+(?:\.\d+)? ?(?:ns|us|µs|ms|secs?|seconds?)\b"
_IDS = re.compile(rf"(?P<uuid>{_UUID})|(?P<path>{_TEMPORARY})|(?P<host>{_HOST})|(?P<hex>{_HEX})")
"""What differs by chance. In arguments, times and durations are the agent's own choice."""
_IDS_AND_TIMES = re.compile(rf"(?P<time>{_TIME})|(?P<duration>{_DURATION})|{_IDS.pattern}")


@lru_cache(1024)  # every call reads the same messages again, and some more
def canonical(text: str, volatile: re.Pattern[str] | None) -> str:
    """A text as canonical JSON text, in which parts that differ by chance are named instead."""
    value = _parse(text)
    written = to_canonical_json(" ".join(text.split()) if value is None else value)
    return shorten(written if volatile is None else volatile.sub(lambda found: f"<{found.lastgroup}>", written))


def _parse(text: str) -> Any:
    """The value of a JSON object or list; None for any other text, and for one that is nested too deep."""
    try:
        value = parse_json(text) if text.lstrip()[:1] in ("{", "[") else None
    except ValueError:
        return None
    return value if is_shallow(text, value) else None


def make_key(**parts: Sequence[str]) -> str:
    """A state key of lists of JSON texts."""
    return shorten("{" + ",".join(f'"{name}":{as_list(texts)}' for name, texts in parts.items()) + "}")


def as_list(texts: Iterable[str]) -> str:
    return f"[{','.join(texts)}]"


def shorten(text: str) -> str:
    """A text, or the beginning and the digest of a long one."""
    if len(text) <= MOST:
        return text
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{text[: MOST // 2]}…{digest}"
