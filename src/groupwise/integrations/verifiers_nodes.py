"""The message graph of one verifiers trace as steps: which node is a step, what it saw and what it did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from groupwise.core.rollouts.row import shown
from groupwise.integrations.foreign import Record


def step_columns(trace: Record) -> Iterator[dict[str, Any]]:
    """What each sampled node of a trace gives to its row, in the order of the nodes."""
    nodes = trace.records("nodes")
    sampled_tokens = _completion_tokens(trace)
    for position, node in enumerate(nodes):
        if not node.fields.get("sampled"):
            continue
        columns: dict[str, Any] = {
            "action": _action(node),
            "observation": _observation(nodes, node),
            **_tokens(node, sampled_tokens.get(position)),
        }
        if "state_key" in node.fields:
            columns["state"] = node.fields["state_key"]
        advantages = node.fields.get("advantages")
        if isinstance(advantages, list) and advantages:
            columns["extra"] = {"advantage": sum(advantages) / len(advantages)}
        yield columns


def _tokens(node: Record, counted: int | None) -> dict[str, Any]:
    """The sampled tokens: their ids where recorded, else their number as the provider told it."""
    ids, mask = node.fields.get("token_ids") or [], node.fields.get("mask") or []
    if len(ids) != len(mask):
        raise node.error("mask", f"has {len(mask)} entries for {len(ids)} token_ids", "write the traces again")
    response_ids = [token for token, is_sampled in zip(ids, mask, strict=True) if is_sampled]
    if not response_ids:
        return {"response_ids": []} if counted is None else {"tokens": counted}
    columns: dict[str, Any] = {"response_ids": response_ids}
    for name, key in (("logprobs", "logp_behaviour"), ("entropies", "entropy")):
        values = node.fields.get(name) or []
        if len(values) not in (0, len(response_ids)):
            found = f"has {len(values)} entries for {len(response_ids)} sampled tokens"
            raise node.error(name, found, "write the traces again")
        if values:
            columns[key] = values
    return columns


def _completion_tokens(trace: Record) -> dict[int, int]:
    counted: dict[int, int] = {}
    for call in trace.records("calls"):
        usage = call.record("usage")
        if usage is not None and isinstance(call.fields.get("node"), int):
            counted[call.fields["node"]] = usage.integer("completion_tokens")
    return counted


def _action(node: Record) -> str | None:
    message = node.record("message")
    if message is None:
        return None
    calls = message.records("tool_calls")
    if calls:
        return "\n".join(f"{call.text('name') or ''}({call.text('arguments') or ''})" for call in calls)
    return _content(message)


def _observation(nodes: list[Record], node: Record) -> str:
    """The messages between this node and the sampled node before it, or the root."""
    texts: list[str] = []
    walked = node
    for _ in nodes:
        parent = walked.fields.get("parent")
        if parent is None:
            break
        if not isinstance(parent, int) or not 0 <= parent < len(nodes):
            raise walked.error("parent", f"is {shown(parent)}", f"the trace has {len(nodes)} nodes")
        walked = nodes[parent]
        if walked.fields.get("sampled"):
            break
        message = walked.record("message")
        texts.append(_content(message) or "" if message is not None else "")
    return "\n".join(reversed(texts))


def _content(message: Record) -> str | None:
    content = message.fields.get("content")
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return content if isinstance(content, str) else None
