"""What an action rule reads out of sample responses, and what the environment makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from groupwise.core.records import Task
from groupwise.envs.environment import Observation
from groupwise.rollout.actions import ActionRule
from groupwise.rollout.hosts.host import Fault
from groupwise.rollout.prompts.prompter import Prompter
from groupwise.training.preview.sample_responses import WatchedHost, find_action

IMPOSSIBLE = "fly to the moon"
"""An action that hardly any world knows."""
FIRST_NUMBER = 1_000_000
"""Numbers of the environments that samples are tried in, beyond those of attempts."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A response, and what came of it at the first step of a task."""

    sample: str
    """What the response is an example of."""
    response: str
    """What it says, as the rule is handed it."""
    action: str
    """What the rule read, which is sent to the environment."""
    verdict: Literal["valid", "malformed", "refused", "fault"]
    """Malformed: it has not the form that was asked for; refused: it has, and the environment did not accept it."""
    fault: str = ""
    """What the environment raised, if it did."""
    is_cut: bool = False
    """Whether it was cut off at the most tokens that a response may have."""


@dataclass(frozen=True)
class _Sample:
    name: str
    text: str
    is_cut: bool = False


def read_samples(
    host: WatchedHost,
    task: Task,
    *,
    prompter: Prompter,
    rule: ActionRule,
    max_tokens: int,
    given: Sequence[str] = (),
) -> list[Reading]:
    """Read sample responses to the first prompt of a task, each tried in an environment of its own."""
    seen = host.open({FIRST_NUMBER: task})[FIRST_NUMBER]
    if isinstance(seen, Fault):
        return []
    action, _ = find_action(host, FIRST_NUMBER, seen)
    host.close([FIRST_NUMBER])
    samples = [*(_Sample("given", text) for text in given), *_make_samples(rule, action, seen)]
    responses = [_cut(sample, prompter, max_tokens) for sample in samples]
    return [_read(host, task, number, response, rule) for number, response in enumerate(responses, FIRST_NUMBER + 1)]


def _make_samples(rule: ActionRule, action: str | None, seen: Observation) -> Iterator[_Sample]:
    if action is not None:
        said = rule.say(action, admissible=seen.admissible)
        yield _Sample("as it is asked for", said)
        yield _Sample("cut off at max_tokens", said[: max(len(said) // 2, 1)], is_cut=True)
        yield _Sample("in other words", f"I think that I should {action} now.")
    yield _Sample("an action that nobody offered", rule.say(IMPOSSIBLE, admissible=seen.admissible))
    yield _Sample("nothing", "")


def _cut(sample: _Sample, prompter: Prompter, max_tokens: int) -> _Sample:
    """The sample as far as it may go, through the tokenizer, as a response goes; its end is a token too."""
    ids = prompter.encode(sample.text)
    is_cut = sample.is_cut or len(ids) >= max_tokens
    return _Sample(sample.name, prompter.text(ids[:max_tokens]), is_cut=is_cut)


def _read(host: WatchedHost, task: Task, number: int, sample: _Sample, rule: ActionRule) -> Reading:
    """Send what the rule reads to a fresh environment."""
    seen = host.open({number: task})[number]
    describe = partial(Reading, sample=sample.name, response=sample.text, is_cut=sample.is_cut)
    if isinstance(seen, Fault):
        return describe(action="", verdict="fault", fault=seen.message)
    action = rule.read(sample.text, stopped=not sample.is_cut, admissible=seen.admissible)
    outcome = host.act({number: action.text})[number]
    host.close([number])
    if isinstance(outcome, Fault):
        return describe(action=action.text, verdict="fault", fault=outcome.message)
    well_formed: Literal["valid", "refused"] = "valid" if outcome.accepted else "refused"
    verdict: Literal["valid", "malformed", "refused"] = well_formed if action.well_formed else "malformed"
    return describe(action=action.text, verdict=verdict)
