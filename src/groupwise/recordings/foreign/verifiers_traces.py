"""Traces of verifiers 0.4 (`traces.jsonl`): JSON Lines, one episode a line, each with the traces of its agents.

A line is an `Episode`, or a bare `Trace`. A trace is an attempt; each of its sampled message nodes is a step, in the
order of the nodes, which is the order in which they were sampled, also over several branches. Read here, and nothing
else (`node` is an entry of `trace.nodes`):

    trace.task (episode.task): key, else hash, else a digest of data -> task
    episode.group.id, else the task; trace.agent.name -> group   `<group>/<agent>`: agents are not compared
    trace.id                            -> attempt
    trace.agent.name                    -> role
    trace.rewards                       -> outcome   the sum of score * weight; reward on the last step, 0 before
    trace.is_timeout, .ok, .stop_condition, .calls[].finish_reason -> stop, on the last step
    node.sampled                        -> a step
    node.message.tool_calls, .content   -> action   a tool call is `name(arguments)`; the text where there is none
    node.parent, and its message        -> observation   the messages since the sampled node before
    node.token_ids where node.mask      -> response_ids
    node.logprobs                       -> logp_behaviour   verifiers rounds them to 4 decimals
    node.entropies                      -> entropy   as the trainer computed them
    node.advantages                     -> extra.advantage   their mean: the credit that the recording run gave
    node.state_key                      -> state   verifiers has none; for node classes of your own
    trace.calls[].usage.completion_tokens -> tokens   where there are no token ids
    episode.run.work.policy             -> version   where one version sampled the episode

Left out, and counted: traces that do not train (`agent.trainable` is false: judges, frozen opponents), traces
without a score (no reward that is not null: missing is not zero) and traces without a sampled message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

from groupwise.core.records import StopReason
from groupwise.recordings.foreign.record import ForeignLines, Record, make_id
from groupwise.recordings.foreign.verifiers_nodes import step_columns
from groupwise.recordings.lines import Progress
from groupwise.recordings.row import Row, quote_json

TRACE_VERSION = 1
NOT_TRAINABLE = "traces that do not train (agent.trainable is false)"
NOT_SCORED = "traces without a score"
NO_STEPS = "traces without a sampled message"

LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed")
"""Stop conditions by which verifiers says that a limit cut the trace off."""


class VerifiersSource(ForeignLines):
    """The sampled messages of verifiers traces as rows."""

    read_as = "verifiers"

    def read_rows(self, progress: Progress | None, left_out: Counter[str]) -> Iterator[tuple[int, Row]]:
        """Every sampled message; the rows of an episode share its line."""
        for line, value in self.lines.values(progress):
            episode = Record.of(self.lines.path, line, value)
            for trace in episode.records("traces") if "traces" in episode.fields else [episode]:
                for row in _make_rows(episode, trace, left_out):
                    yield line, row


def _make_rows(episode: Record, trace: Record, left_out: Counter[str]) -> list[Row]:
    version = trace.fields.get("version", TRACE_VERSION)
    if version != TRACE_VERSION:
        raise trace.error(
            "version", f"is {quote_json(version)}", f"this reader knows version {TRACE_VERSION} of a trace"
        )
    agent = trace.record("agent")
    if agent is not None and not agent.flag("trainable", default=True):
        left_out[NOT_TRAINABLE] += 1
        return []
    outcome = _read_outcome(trace)
    if outcome is None:
        left_out[NOT_SCORED] += 1
        return []
    steps = list(step_columns(trace))
    if not steps:
        left_out[NO_STEPS] += 1
        return []
    shared = _read_shared_columns(episode, trace, agent)
    rows = [
        {**shared, "index": index, "reward": 0.0, "outcome": outcome, **columns} for index, columns in enumerate(steps)
    ]
    rows[-1] |= {"reward": outcome, "stop": _read_stop(trace).value}
    return cast(list[Row], rows)


def _read_shared_columns(episode: Record, trace: Record, agent: Record | None) -> dict[str, Any]:
    """What all rows of a trace have in common."""
    name = (agent.text("name") if agent is not None else None) or "agent"
    task = _read_task(trace) or _read_task(episode)
    if task is None:
        raise trace.error("task", "is missing", "a trace names its task by key, hash or data")
    group = episode.record("group")
    scope = group.id("id") if group is not None else task
    version = _read_version(episode)
    shared: dict[str, Any] = {"task": task, "group": f"{scope}/{name}", "attempt": trace.id("id"), "role": name}
    return shared if version is None else shared | {"version": version}


def _read_task(record: Record) -> str | None:
    task = record.record("task")
    if task is None:
        return None
    named = task.text("key") or task.text("hash")
    if named is None and "data" in task.fields:
        try:
            return make_id(task.fields["data"])
        except RecursionError:
            raise task.error("data", "is nested too deep to be told from others", "give the task a key") from None
    return named


def _read_outcome(trace: Record) -> float | None:
    """The sum of the weighted scores, or None where nothing was scored."""
    rewards = trace.record("rewards")
    if rewards is None:
        return None
    scored = [reward for name in rewards.fields if (reward := rewards.record(name)) is not None]
    if not scored:
        return None
    return sum(
        reward.number("score") * float(reward.number("weight") if "weight" in reward.fields else 1.0)
        for reward in scored
    )


def _read_stop(trace: Record) -> StopReason:
    if trace.flag("is_timeout"):
        return StopReason.TIMEOUT
    # `errors` also keeps those of attempts that were tried again; `ok` speaks of the last one.
    if not trace.flag("ok", default=True):
        return StopReason.ERROR
    answered = [call for call in trace.records("calls") if call.fields.get("error") is None]
    is_cut = bool(answered) and answered[-1].fields.get("finish_reason") == "length"
    if is_cut or trace.fields.get("stop_condition") in LIMITS:
        return StopReason.TRUNCATED
    return StopReason.TERMINATED


def _read_version(episode: Record) -> int | None:
    record: Record | None = episode
    for name in ("run", "work", "policy"):
        record = record.record(name) if record is not None else None
    if record is None or record.fields.get("start") != record.fields.get("end"):
        return None
    return record.integer("start")
