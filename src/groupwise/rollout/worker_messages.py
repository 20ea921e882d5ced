"""What a run and its workers say to one another: lines of JSON, which run nothing where they are read.

A line of calls is a list of `[number, environment, what, ...]`. A line of answer is `[number, what, ...]` with the
number of its call, so that nothing but the answer that is due is taken for it: not an answer to an earlier call, and
not what a copy of the worker says, which an environment forked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from groupwise.data.records import StopReason, Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.plain_records import show_value, to_plain_advice, to_plain_observation, to_plain_outcome
from groupwise.rollout.environment_runner import Advice, Fault, NoExpert, call_guarded
from groupwise.system.errors import EnvironmentFault

MAX_ANSWER_BYTES = 2**23
"""Of one answer: above what an observation, its key and a step's facts can take, however they are written."""


@dataclass(frozen=True)
class ExpertQuestion:
    """What a worker reads where the expert of an environment is asked."""


@dataclass(frozen=True)
class ForkOrder:
    """What a worker reads where an environment is to be a copy of another, or a new one to show where it stands."""

    source: int | None
    """Key of the environment to copy; None = it is there already, and shows what it shows now."""


@dataclass(frozen=True)
class Ready:
    """A worker has made its environment part and waits for calls."""

    pid: int


@dataclass(frozen=True, slots=True)
class EncodedCall:
    """A call as JSON, encoded once, however often it is sent: open an environment, copy or drop it, act, ask."""

    what: str
    """open, fork, act, ask or close; a close is not answered."""
    words: str
    """The call as JSON, without what tells it from other calls."""


Call = Task | str | ExpertQuestion | ForkOrder | None
"""What a worker reads: a task to open, an action, a question for the expert, an environment to copy, or None for one to
drop."""
Answer = Observation | Outcome | Advice | Ready

_LEAVES = frozenset({str, int, float, bool, type(None)})


CLOSE = EncodedCall("close", '"close"')
ASK = EncodedCall("ask", '"ask"')
SHOW_FORK = EncodedCall("fork", '"fork",null')
"""In place of the copying, where a copy is brought back: its source's actions lead there, and it shows where it is."""


def write_open(task: Task) -> EncodedCall:
    """The call that opens an environment; EnvironmentFault where the task cannot be written."""
    payload = write_payload(task.payload)
    words = ("open", task.id, task.env, task.split, task.seed, payload, task.tags)
    return EncodedCall("open", json.dumps(words)[1:-1])


def write_act(action: str) -> EncodedCall:
    """The call that acts."""
    return EncodedCall("act", f'"act",{json.dumps(action)}')


def write_fork(source: int) -> EncodedCall:
    """The call that copies the environment of a key."""
    return EncodedCall("fork", f'"fork",{source}')


def write_calls(calls: Sequence[tuple[int, int, EncodedCall]]) -> bytes:
    """A line of calls: the number of each, the environment's key, and the call."""
    listed = ",".join(f"[{number},{key},{call.words}]" for number, key, call in calls)
    return f"[{listed}]\n".encode()


def write_line(value: object) -> bytes:
    """Any JSON value as a line; halves of characters survive it."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def read_calls(line: bytes) -> list[tuple[int, int, Call]] | None:
    """The calls of a line; None = there will be no more."""
    calls = json.loads(line)
    return None if calls is None else [(number, key, _read_call(*words)) for number, key, *words in calls]


def write_answer(number: int, answer: Answer) -> bytes:
    """An answer to the call of a number, as a line."""
    return to_json((number, *_answer_words(answer)), inf_nan_mode="constants") + b"\n"


def read_answer(line: bytes) -> tuple[int, Answer]:
    """The call's number and the answer; ValueError for what is no answer at all."""
    try:
        number, what, *words = json.loads(line)
        read = _READ[what]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("no answer") from None
    if type(number) is not int:
        raise ValueError("no answer")
    # Checked here too: a worker is where somebody else's code runs.
    return number, call_guarded(read, *words)


def write_payload(value: object) -> Any:
    """A task's payload, so written that it comes back equal: JSON has no tuples, and only text names things."""
    kind = type(value)
    if kind in _LEAVES:
        return value
    if kind is list:
        return [write_payload(entry) for entry in value]  # type: ignore[attr-defined]
    if kind is tuple:
        return {"tuple": [write_payload(entry) for entry in value]}  # type: ignore[attr-defined]
    if isinstance(value, Mapping):
        return {"pairs": [[write_payload(name), write_payload(entry)] for name, entry in value.items()]}
    raise EnvironmentFault(f"the task's payload holds {show_value(value)}; give JSON values alone")


def read_payload(value: Any) -> Any:
    """What `write_payload` wrote."""
    if type(value) is list:
        return [read_payload(entry) for entry in value]
    if type(value) is dict and "tuple" in value:
        return tuple(read_payload(entry) for entry in value["tuple"])
    if type(value) is dict:
        return {read_payload(name): read_payload(entry) for name, entry in value["pairs"]}
    return value


def _read_call(what: str, *words: Any) -> Call:
    if what == "act":
        return str(words[0])
    if what == "open":
        name, env, split, seed, payload, tags = words
        return Task(id=name, env=env, split=split, seed=seed, payload=read_payload(payload), tags=tuple(tags))
    if what == "fork":
        return ForkOrder(words[0])
    return None if what == "close" else ExpertQuestion()


def _answer_words(answer: Answer) -> tuple[Any, ...]:
    if isinstance(answer, Outcome):
        ending = (answer.terminated, answer.truncated, answer.accepted, answer.success)
        return ("outcome", _observation_words(answer.observation), answer.reward, ending, answer.note, answer.facts)
    if isinstance(answer, Observation):
        return ("observation", *_observation_words(answer))
    if isinstance(answer, Fault):
        return ("fault", answer.reason.value, answer.message)
    if isinstance(answer, Ready):
        return ("ready", answer.pid)
    return ("no expert",) if isinstance(answer, NoExpert) else ("advice", answer)


def _observation_words(seen: Observation) -> tuple[Any, ...]:
    return (seen.text, seen.state_key, seen.admissible, seen.goal)


def _read_observation(text: Any, key: Any, admissible: Any, goal: Any) -> Observation:
    listed = tuple(admissible) if type(admissible) is list else admissible
    return to_plain_observation(Observation(text=text, state_key=_tuples(key), admissible=listed, goal=goal))


def _read_outcome(seen: Any, reward: Any, ending: Any, note: Any, facts: Any) -> Outcome:
    terminated, truncated, accepted, success = ending
    outcome = Outcome(
        observation=_read_observation(*seen),
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        accepted=accepted,
        success=success,
        note=note,
        facts=facts,
    )
    return to_plain_outcome(outcome)


def _read_fault(reason: Any, message: Any) -> Fault:
    return Fault(reason=StopReason(reason), message=str(message))


def _read_ready(pid: Any) -> Ready:
    return Ready(int(pid))


def _tuples(key: Any) -> Any:
    """A key as it was: what JSON writes as a list was a tuple."""
    return tuple(map(_tuples, key)) if type(key) is list else key


_READ: Mapping[str, Callable[..., Answer]] = {
    "observation": _read_observation,
    "outcome": _read_outcome,
    "advice": to_plain_advice,
    "no expert": NoExpert,
    "fault": _read_fault,
    "ready": _read_ready,
}
