"""Agents that talk to a scripted model through the real endpoint, for tests: a tokenizer with tools, and a player."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from transformers import PreTrainedTokenizerFast

from groupwise.agents.agent_runner import AgentRunner
from groupwise.agents.chat import AgentPrompter
from groupwise.agents.function_agent import read_end
from groupwise.agents.sessions import Ended, Session
from groupwise.agents.state_rules import NoneStateRule
from groupwise.data.records import Task, Trajectory
from groupwise.engines.engine import Engine, Request
from groupwise.engines.scripted import ScriptedEngine
from groupwise.rollout.episodes import Player, Rollout
from tests.unit.rollout.chat_templates import make_tokenizer

TOOL_TEMPLATE = (
    "{%- if tools %}{{- '<|im_start|>system\nTools:' }}{%- for tool in tools %}{{- ' ' + tool | tojson }}{%- endfor %}"
    "{{- '<|im_end|>\n' }}{%- endif %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'tool' %}{{- '<|im_start|>user\n<tool_response>\n' + message.content }}"
    "{{- '\n</tool_response><|im_end|>\n' }}"
    "{%- else %}{{- '<|im_start|>' + message.role + '\n' + message.content }}"
    "{%- for call in message.tool_calls or [] %}{{- '\n<tool_call>\n' }}"
    "{{- {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}{{- '\n</tool_call>' }}"
    "{%- endfor %}{{- '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
"""ChatML with tools, as Qwen 2.5 writes them."""

TOOLS = [{"type": "function", "function": {"name": "find", "description": "Find things.", "parameters": {}}}]


@cache
def make_tool_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = make_tokenizer("chatml")
    twin = PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, eos_token="<|im_end|>")
    twin.chat_template = TOOL_TEMPLATE
    return twin


class Client:
    """Any request to an endpoint, each over a connection of its own."""

    def __init__(self, url: str, key: str = "") -> None:
        self._place, self._key = urlsplit(url), key

    def send(
        self, body: bytes, *, path: str = "/v1/chat/completions", method: str = "POST", **headers: str
    ) -> tuple[int, Mapping[str, str], str]:
        known = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(http.client.HTTPConnection(str(self._place.hostname), self._place.port, timeout=30)) as line:
            line.request(method, path, body, known | named)
            answer = line.getresponse()
            return answer.status, dict(answer.headers), answer.read().decode()

    def ask(self, messages: Any, **fields: Any) -> dict[str, Any]:
        """The message of the answer; ConnectionError with the reason for a refusal."""
        status, _, text = self.send(json.dumps({"model": "policy", "messages": messages, **fields}).encode())
        content = json.loads(text)
        if status != 200:
            raise ConnectionError(f"{status}: {content['error']['message']}")
        message: dict[str, Any] = content["choices"][0]["message"]
        return message


Agent = Callable[[Session], Any]


def start_in_thread(agent: Agent) -> Callable[[Session, Callable[[Ended | BaseException], None]], None]:
    def start(session: Session, done: Callable[[Ended | BaseException], None]) -> None:
        def run() -> None:
            try:
                done(read_end(agent(session)))
            except BaseException as error:
                done(error)

        threading.Thread(target=run, daemon=True).start()

    return start


def play_agents(
    agent: Agent,
    responses: Callable[[str], str] | Sequence[str],
    *,
    rollouts: int = 1,
    tasks: int = 1,
    engine: Callable[[Callable[[Request], list[int]]], Engine] = ScriptedEngine,
    max_tokens: int = 200,
    earlier_replies: Any = "keep",
    tokenizer: PreTrainedTokenizerFast | None = None,
    **settings: Any,
) -> list[Trajectory]:
    """Play agents against a model that answers prompts by a function of their text, or with one text after another."""
    tokenizer = tokenizer or make_tool_tokenizer()
    prompter = AgentPrompter(tokenizer, earlier_replies=earlier_replies)
    given = iter(responses) if not callable(responses) else None

    def answer(request: Request) -> list[int]:
        text = next(given) if given is not None else responses(tokenizer.decode(request.prompt_ids))  # type: ignore[operator]
        return [*tokenizer(text, add_special_tokens=False).input_ids, prompter.frame.end_id]

    known: dict[str, Any] = {"timeout": 20.0, "max_calls": 20, "solved_at": 1.0, "state": NoneStateRule()} | settings
    with AgentRunner(start_in_thread(agent), **known) as runner:
        player = Player(
            engine=engine(answer),
            host=runner,
            prompter=prompter,
            action_parser=prompter.action_parser,
            max_tokens=max_tokens,
        )
        listed = [
            Rollout(task=Task(id=f"t{task}", payload={"n": task}), number=number, seed=10 * task + number)
            for task in range(tasks)
            for number in range(rollouts)
        ]
        return player.play(listed, temperature=1.0)


def write_call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
