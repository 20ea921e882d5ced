"""Chat messages as token ids, and back: requests, prompts by the model's own chat template, and completions.

A call is a sample: its prompt ids are exactly what the model reads. If our own earlier reply comes back in the history,
its sampled ids are kept and only the messages after it are rendered; so prompts of one rollout share prefixes.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, starmap
from typing import Any, Literal

from groupwise.agents.sessions import RefusedCall
from groupwise.agents.tool_calls import ToolCallParser, find_format
from groupwise.data.records import Task
from groupwise.engines.engine import Generation
from groupwise.envs.environment import Observation
from groupwise.rollout.prompts import DialogueFrame, Exchange, Opening, Prompt, Prompter
from groupwise.system.errors import ConfigError
from groupwise.system.json_text import is_shallow, parse_json, to_canonical_json
from groupwise.system.text import quote_line

MODEL = "policy"
"""The name of the model that is trained."""
CREATED = 0
"""The time in answers: a clock would make two equal runs differ."""
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
"""Roles of messages, and what chat templates call them."""
READ_FIELDS = ("model", "messages", "tools", "stop", "stream", "stream_options", "n", "logit_bias")
"""Fields of a request that are read here. The others are recorded; the run's own settings count."""
KEPT_PROMPTS = 64
"""Size of the cache of encoded texts."""
MARK = "\u2402mark\u2403"
FIRST_MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "x"}, {"role": "assistant", "content": MARK}]
"""The shortest dialogue that later messages can follow."""

Message = Mapping[str, Any]
EarlierReplies = Literal["keep", "render"]


# Requests.


def check_request(sent: Mapping[str, Any]) -> dict[str, Any]:
    """The messages, tools and stop texts of a request, as templates take them, and what else was asked for."""
    if sent.get("model") != MODEL:
        asked = quote_line(repr(sent.get("model")), limit=60)
        raise RefusedCall(
            f"model: found {asked}, but this endpoint serves {MODEL!r} alone; ask another endpoint for other models",
            status=404,
            code="model_not_found",
            param="model",
        )
    if sent.get("n") not in (None, 1):
        raise _wrong("n", "a call has one answer, which is one step; leave n out, and call again for another answer")
    if sent.get("logit_bias"):
        raise _wrong("logit_bias", "it would change the distribution that is trained; leave it out")
    for name in ("functions", "function_call"):
        if sent.get(name):
            raise _wrong(name, "this form is of 2023; use tools and tool_choice")
    messages = sent.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _wrong("messages", "expected a list of at least one message")
    tools = sent.get("tools") or []
    if not isinstance(tools, list) or not all(map(_is_tool, tools)):
        raise _wrong("tools", 'expected a list of {"type": "function", "function": {"name": ...}}')
    stop = sent.get("stop") or []
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(text, str) and text for text in stop):
        raise _wrong("stop", "expected a text or a list of texts")
    return {
        "messages": [_read_message(message, f"messages[{place}]") for place, message in enumerate(messages)],
        "tools": tools,
        "stop": stop,
        "asked": {name: value for name, value in sent.items() if name not in READ_FIELDS and value is not None},
    }


def _wrong(param: str, problem: str) -> RefusedCall:
    return RefusedCall(f"{param}: {problem}", param=param)


def _is_tool(tool: Any) -> bool:
    function = tool.get("function") if isinstance(tool, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _read_message(message: Any, where: str) -> dict[str, Any]:
    """A message as chat templates take it: content is text, and arguments are objects."""
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or role not in ROLES:
        raise _wrong(where, f"expected an object with a role, one of {', '.join(ROLES)}")
    read: dict[str, Any] = {"role": ROLES[role], "content": _read_content(message.get("content"), f"{where}.content")}
    for name in ("name", "tool_call_id", "reasoning_content"):
        if isinstance(message.get(name), str) and message[name]:
            read[name] = message[name]
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise _wrong(f"{where}.tool_calls", "expected a list of calls")
    if calls:
        read["tool_calls"] = [_read_call(call, f"{where}.tool_calls[{place}]") for place, call in enumerate(calls)]
    return read


def _read_content(content: Any, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = [part for part in content if part] if isinstance(content, list) else [content]
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    if len(texts) < len(parts):
        raise _wrong(where, "expected text, null, or a list of parts with text; images and sound are not read")
    return "".join(texts)


def _read_call(call: Any, where: str) -> dict[str, Any]:
    if not _is_tool(call):
        raise _wrong(where, 'expected {"id": ..., "type": "function", "function": {"name": ..., "arguments": ...}}')
    arguments = call["function"].get("arguments")
    if isinstance(arguments, str):
        with suppress(ValueError):  # a call that a client made itself is shown as it was
            value = parse_json(arguments)
            arguments = value if is_shallow(arguments, value) else arguments
    function = {"name": call["function"]["name"], "arguments": {} if arguments is None else arguments}
    return {"id": str(call.get("id", "")), "type": "function", "function": function}


def find_told_state(messages: Sequence[Message]) -> str | None:
    """The state that the last tool gave with its result, as `_state` of a JSON object; None if it gave none."""
    last = messages[-1]
    if last["role"] != "tool" or '"_state"' not in last["content"]:
        return None
    with suppress(ValueError):
        result = parse_json(last["content"])
        if isinstance(result, dict) and isinstance(result.get("_state"), str):
            return str(result["_state"])
    return None


# Prompts.


@dataclass(frozen=True, kw_only=True, slots=True)
class CallSeen(Observation):
    """A call of the model as the loop sees it: its text is the record of the new messages."""

    prompt_ids: tuple[int, ...]


@dataclass(frozen=True)
class Conversation:
    """The messages of an answered call with its reply, and their ids."""

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]]
    ids: tuple[int, ...]


class AgentPrompter(Prompter):
    """Prompts of calls, by the model's own chat template; without one, messages follow each other as plain text."""

    def __init__(
        self, tokenizer: Any, *, earlier_replies: EarlierReplies = "keep", max_tokens: int | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.earlier_replies = earlier_replies
        self.max_tokens = max_tokens
        self.over_limit = "refuse"
        # Prompts of a group begin alike: the first ones are often equal.
        self.encode = lru_cache(KEPT_PROMPTS)(lambda text: tuple(tokenizer(text, add_special_tokens=False).input_ids))
        self.frame = self._read_frame()
        self.action_parser = ToolCallParser(find_format(tokenizer.chat_template))
        self._shows_tools = self._find_tools()

    def copy(self) -> AgentPrompter:
        return AgentPrompter(
            copy.deepcopy(self.tokenizer), earlier_replies=self.earlier_replies, max_tokens=self.max_tokens
        )

    def for_task(self, task: Task) -> AgentPrompter:
        return self

    def encode_opening(self, goal: str, hint_text: str = "") -> Opening:
        """Ids for the weight check alone: the prompts of agents are their own."""
        return Opening(ids=self._encode_messages(FIRST_MESSAGES[:1], []))

    def make_prompts(self, asked: Iterable[tuple[Opening, Sequence[Exchange], Observation]]) -> list[Prompt]:
        prompts = []
        for _, past, seen in asked:
            assert isinstance(seen, CallSeen), "the runner of agents shows nothing else"
            prompts.append(Prompt(seen.prompt_ids, len(past), 0))
        return prompts

    def make_exchanges(self, steps: Iterable[tuple[Observation, Sequence[int], str]]) -> list[Exchange]:
        return [
            Exchange(observation_ids=(), response_ids=tuple(response), in_words=("", "")) for _, response, _ in steps
        ]

    def encode_call(self, body: Mapping[str, Any], known: Sequence[Conversation]) -> tuple[tuple[int, ...], int]:
        """The prompt of a call, and how many of its messages an earlier call had already."""
        messages, tools = body["messages"], body["tools"]
        if tools and not self._shows_tools:
            raise _wrong("tools", "the model's chat template shows no tools; describe them in a message")
        found = find_conversation(messages, tools, known)
        if found is None:
            return self._encode_messages(messages, tools), 0
        rest = messages[len(found.messages) :]
        ids = self._continue(found.ids, rest) if self.earlier_replies == "keep" else None
        return ids or self._encode_messages(messages, tools), len(found.messages)

    def end_response(self, response_ids: tuple[int, ...]) -> tuple[int, ...]:
        """A response with its end token, also if it was cut off."""
        end_id = self.frame.end_id
        return response_ids if response_ids[-1:] == (end_id,) else (*response_ids, end_id)

    def _find_tools(self) -> bool:
        """Whether the chat template shows tools: it must show the description of one."""
        parameters = {"type": "object", "properties": {}}
        function = {"name": "marked", "description": MARK, "parameters": parameters}
        try:
            return MARK in self._write(FIRST_MESSAGES[:1], [{"type": "function", "function": function}])
        except RefusedCall:
            return False

    def _read_frame(self) -> DialogueFrame:
        if not self.tokenizer.chat_template:
            return DialogueFrame.from_tokenizer(self.tokenizer)
        after = self._write(FIRST_MESSAGES, [], opens_reply=False).partition(MARK)[2]
        ids = self.encode(after.lstrip())
        special = {number for number, token in self.tokenizer.added_tokens_decoder.items() if token.special}
        end_id = ids[0] if ids and ids[0] in special else self.tokenizer.eos_token_id
        if not isinstance(end_id, int):
            raise ConfigError("the tokenizer has no end token; set `eos_token`, which ends every response")
        return DialogueFrame(opening=(), before_response=(), before_past_response=(), between=(), end_id=end_id)

    def _continue(self, ids: tuple[int, ...], rest: Sequence[Message]) -> tuple[int, ...] | None:
        """The ids of a conversation, and the messages after it; None if the template cannot write these alone."""
        if not self.tokenizer.chat_template:
            return (*ids, *self.frame.between, *self._encode_plain(rest))
        try:
            _, mark, text = self._write([*FIRST_MESSAGES, *rest], []).partition(MARK)
        except RefusedCall:
            return None
        end = str(self.tokenizer.decode([self.frame.end_id], skip_special_tokens=False))
        return (*ids, *self.encode(text.removeprefix(end))) if mark and text.startswith(end) else None

    def _encode_messages(self, messages: Sequence[Message], tools: Sequence[Any]) -> tuple[int, ...]:
        if not self.tokenizer.chat_template:
            return (*self.frame.opening, *self._encode_plain(messages))
        return self.encode(self._write(messages, tools))

    def _encode_plain(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Messages without a template: a reply ends with its end token, and a prompt with the mark of a reply."""
        frame, ids = self.frame, list[int]()
        for is_reply, listed in groupby(messages, key=lambda message: message["role"] == "assistant"):
            contents = [message["content"] for message in listed]
            if is_reply:
                for content in contents:
                    ids += (*frame.before_past_response, *self.encode(content), frame.end_id, *frame.between)
            else:
                ids += self.encode("\n".join(contents))
        return (*ids, *frame.before_response)

    def _write(self, messages: Sequence[Message], tools: Sequence[Any], *, opens_reply: bool = True) -> str:
        if not self.tokenizer.chat_template:
            return ""
        try:
            write: Any = self.tokenizer.apply_chat_template
            return str(write(messages, tools=tools or None, tokenize=False, add_generation_prompt=opens_reply))
        except Exception as error:  # templates are programs of the model's authors
            reason = quote_line(f"{type(error).__name__}: {error}", limit=200)
            raise RefusedCall(
                f"messages: the model's chat template refuses them ({reason})", param="messages"
            ) from None


def find_conversation(
    messages: Sequence[Message], tools: Sequence[Any], known: Sequence[Conversation]
) -> Conversation | None:
    """The longest earlier call, with its reply, that these messages continue."""
    for earlier in sorted(known, key=lambda earlier: len(earlier.messages), reverse=True):
        pairs = zip(earlier.messages, messages, strict=False)
        if len(earlier.messages) < len(messages) and earlier.tools == tools and all(starmap(_is_same, pairs)):
            return earlier
    return None


def _is_same(ours: Message, theirs: Message) -> bool:
    """Whether a message came back unchanged; what clients add to a reply does not count."""
    if ours["role"] != "assistant":
        return ours == theirs
    return all(ours.get(name) == theirs.get(name) for name in ("role", "content", "tool_calls"))


# Completions.


def make_completion(
    body: Mapping[str, Any], action: str, generation: Generation, *, num_prompt: int, call: int
) -> dict[str, Any]:
    """The answer to a call from the assistant message that was read. Its ids follow from the number of the call."""
    message = json.loads(action)
    content = message["content"]
    for text in body["stop"]:
        content = content.partition(text)[0]  # the sampled ids stay whole
    calls = [
        {"id": _derive_id(f"{call}.{place}")[:9], **each}  # nine characters: Mistral's templates refuse others
        for place, each in enumerate(message.get("tool_calls", ()))
    ]
    message = {"role": "assistant", "content": content or (None if calls else "")}
    if calls:
        message["tool_calls"] = calls
    finish = "length" if not generation.stopped else "tool_calls" if calls else "stop"
    num = len(generation.response_ids)
    return {
        "id": f"chatcmpl-{_derive_id(str(call))}",
        "object": "chat.completion",
        "created": CREATED,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": {"prompt_tokens": num_prompt, "completion_tokens": num, "total_tokens": num_prompt + num},
    }


def _derive_id(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def read_reply(completion: Mapping[str, Any]) -> dict[str, Any]:
    """The message of a completion, as it is compared with what comes back."""
    return _read_message(completion["choices"][0]["message"], "our own message")


def write_call(body: Mapping[str, Any], num_known: int, *, shows_tools: bool) -> str:
    """The record of a call as JSON: its new messages, its tools if they are new, and what else it asked for."""
    record = {"messages": body["messages"][num_known:]}
    if shows_tools and body["tools"]:
        record["tools"] = body["tools"]
    if body["asked"]:
        record["asked"] = body["asked"]
    return to_canonical_json(record)
