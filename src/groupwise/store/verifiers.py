"""Traces of verifiers 0.4 (`traces.jsonl`): JSON Lines, one episode per line, each with the traces of its agents.

A line is an `Episode`, or a single `Trace`. A trace is a rollout. Each of its sampled message nodes is a step, in the
order of the nodes, which is the order of sampling, also with several branches. Only these fields are read (`node` is an
entry of `trace.nodes`):

    trace.task (episode.task): key, else hash, else a digest of data -> task
    episode.group.id, else the task; trace.agent.name -> group   `<group>/<agent>`: agents are not compared
    trace.id                            -> rollout
    trace.agent.name                    -> role
    trace.rewards                       -> outcome   the sum of score * weight; reward on the last step, 0 before
    trace.is_timeout, .ok, .stop_condition, .calls[].finish_reason -> stop, on the last step
    node.sampled                        -> a step
    node.message.tool_calls, .content   -> action   a tool call is `name(arguments)`; without one, the text
    node.parent, and its message        -> observation   the messages since the previous sampled node
    node.token_ids where node.mask      -> response_ids
    node.logprobs                       -> logp_behaviour   verifiers rounds them to 4 decimals
    node.entropies                      -> entropy   as the trainer computed them
    node.advantages                     -> extra.advantage   their mean: the advantage in the recorded run
    node.state_key                      -> state   verifiers has none; for your own node classes
    trace.calls[].usage.completion_tokens -> tokens   if there are no token ids
    episode.run.work.policy             -> version   if one version sampled the episode

Left out, and counted: traces that do not train (`agent.trainable` is false: judges, frozen opponents), traces
without a score (all rewards are null: missing is not zero) and traces without a sampled message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from groupwise.data.records import StopReason
from groupwise.store.foreign_record import Record, make_id, read_records
from groupwise.store.rollout_lines import JsonLines, Progress
from groupwise.store.rollout_rows import RolloutRow, quote_json

TRACE_VERSION = 1
NOT_TRAINABLE = "traces that do not train (agent.trainable is false)"
NOT_SCORED = "traces without a score"
NO_STEPS = "traces without a sampled message"

LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed")
"""Stop conditions of verifiers for traces that reached a limit."""


def read_verifiers_rows(
    lines: JsonLines, progress: Progress | None, left_out: Counter[str]
) -> Iterator[tuple[int, RolloutRow]]:
    """Every sampled message of verifiers traces; the rows of an episode share its line."""
    for episode in read_records(lines, progress):
        for trace in episode.records("traces") if "traces" in episode.fields else [episode]:
            for row in _make_rows(episode, trace, left_out):
                yield episode.line, row


def _make_rows(episode: Record, trace: Record, left_out: Counter[str]) -> list[RolloutRow]:
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
        {**shared, "step": index, "reward": 0.0, "outcome": outcome, **columns} for index, columns in enumerate(steps)
    ]
    rows[-1] |= {"reward": outcome, "stop": _read_stop(trace).value}
    return rows


def _read_shared_columns(episode: Record, trace: Record, agent: Record | None) -> dict[str, Any]:
    name = (agent.text("name") if agent is not None else None) or "agent"
    task = _read_task(trace) or _read_task(episode)
    if task is None:
        raise trace.error("task", "is missing", "a trace names its task by key, hash or data")
    group = episode.record("group")
    scope = group.id("id") if group is not None else task
    version = _read_version(episode)
    shared: dict[str, Any] = {"task": task, "group": f"{scope}/{name}", "rollout": trace.id("id"), "role": name}
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
            raise task.error("data", "is nested too deep for a digest", "give the task a key") from None
    return named


def _read_outcome(trace: Record) -> float | None:
    """The sum of the weighted scores; None = there are no scores."""
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
    # `errors` also has those of earlier tries; `ok` is about the last one.
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


# The steps of one trace, from its message graph.

MAX_OBSERVED = 256 << 20
"""Characters of all observations of a trace together."""
_NODE_PRICE = 64
"""Characters that are counted for each visited node, to limit long chains of empty messages."""


def step_columns(trace: Record) -> Iterator[dict[str, Any]]:
    """The columns of each sampled node of a trace, in the order of the nodes."""
    nodes = trace.records("nodes")
    observations = _Observations(nodes)
    sampled_tokens = _count_completion_tokens(trace)
    for position, node in enumerate(nodes):
        if not node.flag("sampled"):
            continue
        columns: dict[str, Any] = {
            "action": _read_action(node),
            "observation": observations.before(node),
            **_read_tokens(node, sampled_tokens.get(position)),
        }
        if "state_key" in node.fields:
            columns["state"] = node.fields["state_key"]
        advantages = node.numbers("advantages")
        if advantages:
            columns["extra"] = {"advantage": sum(map(float, advantages)) / len(advantages)}
        yield columns


def _read_tokens(node: Record, counted: int | None) -> dict[str, Any]:
    """The sampled tokens: their ids if recorded, else their number from the API's usage."""
    ids, mask = node.integers("token_ids"), node.truths("mask")
    if len(ids) != len(mask):
        raise node.error("mask", f"has {len(mask)} entries for {len(ids)} token_ids", "write the traces again")
    response_ids = [token for token, is_sampled in zip(ids, mask, strict=True) if is_sampled]
    if not response_ids:
        return {"response_ids": []} if counted is None else {"tokens": counted}
    columns: dict[str, Any] = {"response_ids": response_ids}
    for name, key in (("logprobs", "logp_behaviour"), ("entropies", "entropy")):
        values = node.numbers(name)
        if len(values) not in (0, len(response_ids)):
            fault = f"has {len(values)} entries for {len(response_ids)} sampled tokens"
            raise node.error(name, fault, "write the traces again")
        if values:
            columns[key] = values
    return columns


def _count_completion_tokens(trace: Record) -> dict[int, int]:
    counted: dict[int, int] = {}
    for call in trace.records("calls"):
        usage = call.record("usage")
        if usage is not None and type(call.fields.get("node")) is int:
            counted[call.fields["node"]] = usage.integer("completion_tokens")
    return counted


def _read_action(node: Record) -> str | None:
    message = node.record("message")
    if message is None:
        return None
    calls = message.records("tool_calls")
    if calls:
        return "\n".join(f"{call.text('name') or ''}({call.text('arguments') or ''})" for call in calls)
    return _read_content(message)


class _Observations:
    """The observations of a trace's sampled nodes, with a limit of their total size.

    Nodes with a long common past repeat it: a small file can give more text than there is memory.
    """

    def __init__(self, nodes: list[Record]) -> None:
        self._nodes = nodes
        self._left = MAX_OBSERVED

    def before(self, node: Record) -> str:
        """The messages between a node and the previous sampled node, or the root."""
        texts: list[str] = []
        walked = node
        while (parent := walked.fields.get("parent")) is not None:
            if type(parent) is not int or not 0 <= parent < len(self._nodes):
                raise walked.error("parent", f"is {quote_json(parent)}", f"the trace has {len(self._nodes)} nodes")
            if len(texts) > len(self._nodes):
                raise node.error("parent", "leads back to where it came from", "write the traces again")
            walked = self._nodes[parent]
            if walked.flag("sampled"):
                break
            message = walked.record("message")
            texts.append(_read_content(message) or "" if message is not None else "")
            self._left -= _NODE_PRICE + len(texts[-1])
            if self._left < 0:
                advice = "the nodes of this trace share too long a past: write its branches as separate traces"
                raise node.error("parent", f"repeats more than {MAX_OBSERVED} characters", advice)
        return "\n".join(reversed(texts))


def _read_content(message: Record) -> str | None:
    content = message.fields.get("content")
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return content if isinstance(content, str) else None
