"""JSON Lines dumps of verl-agent and its forks, and of verl.

Step dumps of verl-agent and its forks (GiGPO, HGPO): one active step per row. verl-agent (Feng et al. 2025,
arXiv:2505.10978) has these fields for every step of a rollout but writes no file; forks dump them unchanged. Only
these are read:

    uid              -> task          the group of rollouts, new in every update
    traj_uid         -> rollout
    rewards          -> reward        of the step
    anchor_obs       -> state         text, or a list or object, taken as its canonical JSON text; null = not comparable
    episode_rewards  -> outcome       sum of the rollout's rewards
    is_action_valid  -> well_formed   it has its tags and no Chinese characters; the environment may still reject it
    active_masks     -> (none)        a step with false is padding after the end, and is left out
    episode_lengths  -> (none)        a rollout with more rows than this has copies: an error
    step_index, step_idx, step_in_traj, step_num, turn_index, turn_idx, env_step or episode_step_index -> index
    parsed_action, projected_action, action_text, action, model_response_text, response_text or output -> action
    obs_text, final_prompt_text, prompt or input -> observation

`uid`, `traj_uid` and `rewards` are required. Of alternatives, the first that is in the first line is read in all lines.
Without a step index, the rows of a rollout are its steps in the order of the file. Two fields are **not** the step
index: `index` is a position in the batch, and `step` is the number of the update.

verl's own rollout dumps: `{update}.jsonl`, one response per row (`trainer.rollout_data_dir`, `validation_data_dir`).
Only these fields are read:

    input   -> observation, and the task if there is no uid (a digest of the text)
    output  -> action
    score   -> reward and outcome
    step    -> group             the number of the update: rollouts of one task are compared within an update
    uid     -> task; of the form `{sample}_{session}_{output}` (verl >= 0.9) it is task, rollout and index
    acc     -> extra.acc

A response is a rollout of one step, numbered in the order of the file. In a rollout of several outputs (by `uid`; verl
writes its rows next to each other) each output is a step. Its final score is that of the last output, as in verl's own
metrics, and the other steps have reward 0. These dumps have no states, so only whole rollouts are comparable.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from groupwise.store.foreign_record import Record, make_id, read_records
from groupwise.store.rollout_lines import JsonLines, Progress
from groupwise.store.rollout_rows import RolloutRow

INDEX_FIELDS = (
    *("step_index", "step_idx", "step_in_traj", "step_num"),
    *("turn_index", "turn_idx", "env_step", "episode_step_index"),
)
ACTION_FIELDS = (
    *("parsed_action", "projected_action", "action_text", "action"),
    *("model_response_text", "response_text", "output"),
)
OBSERVATION_FIELDS = ("obs_text", "final_prompt_text", "prompt", "input")
PADDING = "steps after the end of their rollout (active_masks is false)"


def read_verl_agent_rows(
    lines: JsonLines, progress: Progress | None, left_out: Counter[str]
) -> Iterator[tuple[int, RolloutRow]]:
    """Every active step of a verl-agent dump."""
    first: Record | None = None
    seen: Counter[tuple[Any, Any]] = Counter()
    for record in read_records(lines, progress):
        if first is None:
            first = record
            index, action = record.first(INDEX_FIELDS), record.first(ACTION_FIELDS)
            observation = record.first(OBSERVATION_FIELDS)
        if "active_masks" in record.fields and not record.truth("active_masks"):
            left_out[PADDING] += 1
            continue
        task, rollout = record.id("uid"), record.id("traj_uid")
        row: RolloutRow = {
            "task": task,
            "rollout": rollout,
            "step": _count_row(record, seen, (task, rollout)) if index is None else record.integer(index),
            "reward": record.number("rewards"),
        }
        if "anchor_obs" in first.fields:
            row["state"] = record.fields.get("anchor_obs")
        if "episode_rewards" in first.fields:
            row["outcome"] = record.number("episode_rewards")
        if "is_action_valid" in first.fields:
            row["well_formed"] = record.truth("is_action_valid")
        if action is not None:
            row["action"] = record.text(action)
        if (seen_text := record.text(observation)) is not None:
            row["observation"] = seen_text
        yield record.line, row


def _count_row(record: Record, seen: Counter[tuple[Any, Any]], rollout: tuple[Any, Any]) -> int:
    """The position of a row among those of its rollout, in the order of the file."""
    index = seen[rollout]
    seen[rollout] += 1
    if "episode_lengths" in record.fields and index >= (length := record.integer("episode_lengths")):
        raise record.error(
            "episode_lengths",
            f"is {length}, but this is row {index + 1} of rollout {rollout[1]!r}",
            "the dump holds copies (verl-agent pads batches with them): dump before padding, or add a step_index",
        )
    return index


MAX_DIGITS = 100
"""Of a number in a `uid`."""

_OUTPUT_UID = re.compile(r"(.+)_(\d+)_(\d+)")


def read_verl_generations(
    lines: JsonLines, progress: Progress | None, left_out: Counter[str]
) -> Iterator[tuple[int, RolloutRow]]:
    """Every response of a verl dump."""
    seen: Counter[str] = Counter()
    rows = (_make_generation_row(record, seen) for record in read_records(lines, progress))
    for _, rollout in groupby(rows, key=lambda numbered: (numbered[1]["group"], numbered[1]["rollout"])):
        outputs = list(rollout)
        outcome = outputs[-1][1]["reward"]
        for line, row in outputs:
            row["outcome"] = outcome
            row["reward"] = outcome if row is outputs[-1][1] else 0.0
            yield line, row


def _make_generation_row(record: Record, seen: Counter[str]) -> tuple[int, RolloutRow]:
    uid = str(record.id("uid")) if "uid" in record.fields else None
    parts = _OUTPUT_UID.fullmatch(uid) if uid is not None else None
    if parts is not None and max(len(parts[2]), len(parts[3])) > MAX_DIGITS:
        raise record.error(
            "uid", f"ends in a number of more than {MAX_DIGITS} digits", "verl numbers sessions and outputs from 0"
        )
    prompt = record.text("input") or ""
    task = parts[1] if parts is not None else uid or f"input-{make_id(prompt)}"
    group = f"{task}@{record.id('step')}" if "step" in record.fields else task
    row: RolloutRow = {
        "task": task,
        "group": group,
        "rollout": int(parts[2]) if parts is not None else seen[group],
        "step": int(parts[3]) if parts is not None else 0,
        "observation": prompt,
        "action": record.text("output"),
        "reward": record.number("score"),
    }
    seen[group] += 1
    if "acc" in record.fields:
        row["extra"] = {"acc": record.fields["acc"]}
    return record.line, row
