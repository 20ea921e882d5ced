"""Step dumps of verl-agent and its forks (GiGPO, HGPO): JSON Lines, one active step a row.

verl-agent (Feng et al. 2025, arXiv:2505.10978) keeps these fields for every step of a rollout but writes no file of
its own; forks dump them as they are. Read here, and nothing else:

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
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from groupwise.recordings.foreign.record import ForeignLines, Record
from groupwise.recordings.lines import Progress
from groupwise.recordings.row import Row

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
