"""The message graph of one verifiers trace as steps: which node is a step, what it saw and what it did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from groupwise.recordings.foreign.record import Record
from groupwise.recordings.row import quote_json

MAX_OBSERVED = 256 << 20
"""Characters of all observations of a trace together."""
_NODE_PRICE = 64
"""Characters that the way over a node counts as, so that empty messages do not go on for ever."""


def step_columns(trace: Record) -> Iterator[dict[str, Any]]:
    """What each sampled node of a trace gives to its row, in the order of the nodes."""
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
    """The sampled tokens: their ids where recorded, else their number as the provider told it."""
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
    """What each sampled node of a trace saw, within a budget.

    Nodes that share a long past tell it again and again: a small file can ask for more text than there is memory.
    """

    def __init__(self, nodes: list[Record]) -> None:
        self._nodes = nodes
        self._left = MAX_OBSERVED

    def before(self, node: Record) -> str:
        """The messages between a node and the sampled node before it, or the root."""
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
                advice = "nodes that share so long a past are not read: write the traces apart"
                raise node.error("parent", f"tells more than {MAX_OBSERVED} characters again", advice)
        return "\n".join(reversed(texts))


def _read_content(message: Record) -> str | None:
    content = message.fields.get("content")
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return content if isinstance(content, str) else None
