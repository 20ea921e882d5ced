"""Dumps of verl-agent and its forks, and of verl: JSON Lines.

Step dumps of verl-agent and its forks (GiGPO, HGPO): one active step a row. verl-agent (Feng et al. 2025,
arXiv:2505.10978) keeps these fields for every step of a rollout but writes no file of its own; forks dump them as they
are. Read here, and nothing else:

    uid              -> task          the group of attempts, new in every update
    traj_uid         -> attempt
    rewards          -> reward        of the step
    anchor_obs       -> state         text, or a list or object, taken as its canonical JSON text; null = not comparable
    episode_rewards  -> outcome       sum of the attempt's rewards
    is_action_valid  -> well_formed   its tags are there and it holds no Chinese characters; the game may refuse it yet
    active_masks     -> (none)        a step where it is false is padding after the end, and is left out
    episode_lengths  -> (none)        an attempt with more rows than this holds copies: an error
    step_index, step_idx, step_in_traj, step_num, turn_index, turn_idx, env_step or episode_step_index -> index
    parsed_action, projected_action, action_text, action, model_response_text, response_text or output -> action
    obs_text, final_prompt_text, prompt or input -> observation

`uid`, `traj_uid` and `rewards` must be there; of alternatives the first that the first line has is read throughout.
Without a step index, the rows of an attempt are taken in the order of the file. Two fields are **not** the step index:
`index` is a position in the batch, and `step` is the number of the update.

verl's own rollout dumps: `{update}.jsonl`, one response a row (`trainer.rollout_data_dir`, `validation_data_dir`). Read
here, and nothing else:

    input   -> observation, and the task where there is no uid (a digest of the text)
    output  -> action
    score   -> reward and outcome
    step    -> group             the number of the update: attempts at one task are compared within an update
    uid     -> task; of the form `{sample}_{session}_{output}` (verl >= 0.9) it is task, attempt and index
    acc     -> extra.acc

A response is an attempt of one step, numbered in the order of the file. An attempt of several outputs (by `uid`,
whose rows verl writes next to each other) is a step each; its outcome is the score of the last output, as in verl's
own metrics, and the other steps have reward 0. These dumps record no state: nothing is comparable below the attempt.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from groupwise.store.foreign_record import ForeignLines, Record, make_id
from groupwise.store.rollout_lines import Progress
from groupwise.store.rollout_rows import Row

INDEX_FIELDS = (
    "step_index",
    "step_idx",
    "step_in_traj",
    "step_num",
    "turn_index",
    "turn_idx",
    "env_step",
    "episode_step_index",
)
ACTION_FIELDS = (
    "parsed_action",
    "projected_action",
    "action_text",
    "action",
    "model_response_text",
    "response_text",
    "output",
)
OBSERVATION_FIELDS = ("obs_text", "final_prompt_text", "prompt", "input")
PADDING = "steps after the end of their attempt (active_masks is false)"


@dataclass(frozen=True)
class _Fields:
    """Which of the optional fields this file has, by its first line."""

    index: str | None
    action: str | None
    observation: str | None
    has_state: bool
    has_outcome: bool
    has_form: bool

    @classmethod
    def of(cls, first: Record) -> _Fields:
        return cls(
            index=first.first(INDEX_FIELDS),
            action=first.first(ACTION_FIELDS),
            observation=first.first(OBSERVATION_FIELDS),
            has_state="anchor_obs" in first.fields,
            has_outcome="episode_rewards" in first.fields,
            has_form="is_action_valid" in first.fields,
        )


class VerlAgentSource(ForeignLines):
    """The steps of a verl-agent dump as rows."""

    read_as = "verl_agent"

    def read_rows(self, progress: Progress | None, left_out: Counter[str]) -> Iterator[tuple[int, Row]]:
        """Every active step."""
        fields: _Fields | None = None
        seen: dict[tuple[Any, Any], int] = {}
        for line, value in self.lines.values(progress):
            record = Record.of(self.lines.path, line, value)
            fields = fields or _Fields.of(record)
            if "active_masks" in record.fields and not record.truth("active_masks"):
                left_out[PADDING] += 1
                continue
            yield line, _make_row(record, fields, seen)


def _make_row(record: Record, fields: _Fields, seen: dict[tuple[Any, Any], int]) -> Row:
    task, attempt = record.id("uid"), record.id("traj_uid")
    row: Row = {
        "task": task,
        "attempt": attempt,
        "index": _count_row(record, seen, (task, attempt)) if fields.index is None else record.integer(fields.index),
        "reward": record.number("rewards"),
    }
    if fields.has_state:
        row["state"] = record.fields.get("anchor_obs")
    if fields.has_outcome:
        row["outcome"] = record.number("episode_rewards")
    if fields.has_form:
        row["well_formed"] = record.truth("is_action_valid")
    if fields.action is not None:
        row["action"] = record.text(fields.action)
    observation = record.text(fields.observation)
    if observation is not None:
        row["observation"] = observation
    return row


def _count_row(record: Record, seen: dict[tuple[Any, Any], int], attempt: tuple[Any, Any]) -> int:
    """The position of a row among those of its attempt, in the order of the file."""
    index = seen.get(attempt, 0)
    seen[attempt] = index + 1
    if "episode_lengths" in record.fields and index >= (length := record.integer("episode_lengths")):
        raise record.error(
            "episode_lengths",
            f"is {length}, but this is row {index + 1} of attempt {attempt[1]!r}",
            "the dump holds copies (verl-agent pads batches with them): dump before padding, or add a step_index",
        )
    return index


MAX_DIGITS = 100
"""Of the numbers in a `uid`."""

_OUTPUT_UID = re.compile(r"(.+)_(\d+)_(\d+)")


class VerlGenerationsSource(ForeignLines):
    """The responses of a verl dump as rows."""

    read_as = "verl generations"

    def read_rows(self, progress: Progress | None, left_out: Counter[str]) -> Iterator[tuple[int, Row]]:
        """Every response."""
        seen: Counter[str] = Counter()
        values = self.lines.values(progress)
        rows = (_make_generation_row(Record.of(self.lines.path, line, value), seen) for line, value in values)
        for _, attempt in groupby(rows, key=_identify_attempt):
            outputs = list(attempt)
            outcome = outputs[-1][1]["reward"]
            for line, row in outputs:
                row["outcome"] = outcome
                row["reward"] = outcome if row is outputs[-1][1] else 0.0
                yield line, row


def _identify_attempt(numbered: tuple[int, Row]) -> tuple[Any, Any]:
    _, row = numbered
    return row.get("group", row["task"]), row["attempt"]


def _make_generation_row(record: Record, seen: Counter[str]) -> tuple[int, Row]:
    uid = str(record.id("uid")) if "uid" in record.fields else None
    parts = _OUTPUT_UID.fullmatch(uid) if uid is not None else None
    if parts is not None and max(len(parts[2]), len(parts[3])) > MAX_DIGITS:
        raise record.error(
            "uid", f"ends in a number of more than {MAX_DIGITS} digits", "verl numbers sessions and outputs from 0"
        )
    prompt = record.text("input") or ""
    task = parts[1] if parts is not None else uid or f"input-{make_id(prompt)}"
    group = f"{task}@{record.id('step')}" if "step" in record.fields else task
    row: Row = {
        "task": task,
        "group": group,
        "attempt": int(parts[2]) if parts is not None else seen[group],
        "index": int(parts[3]) if parts is not None else 0,
        "observation": prompt,
        "action": record.text("output"),
        "reward": record.number("score"),
    }
    seen[group] += 1
    if "acc" in record.fields:
        row["extra"] = {"acc": record.fields["acc"]}
    return record.line, row
