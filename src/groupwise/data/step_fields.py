"""The fields of a recorded step: one table, from which everything else that spells them derives.

Rows of files and journals, the types of Parquet columns, what a past attempt is read back from, the columns of the step
table, credit computed again, the page of the format: all of them go through `STEP_FIELDS`. A further field is an entry
here and, where a step holds it, a field of `Step`; docs/howto/extending/step_fields.md goes through it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from groupwise.data import field_kinds as kinds
from groupwise.data.field_kinds import KEPT, Check, Owner, Presence, StepField, TableColumn
from groupwise.data.records import Origin, Step

# Which weights sampled a step, where several sampled its attempt.


def find_one_version(step: Step) -> int | None:
    """The one version that sampled the step, where that is known."""
    known = {version for version, _ in step.versions}
    return known.pop() if len(known) == 1 else None


def list_token_versions(step: Step) -> tuple[int, ...] | None:
    """The version of each token, where several sampled the step."""
    if len({version for version, _ in step.versions}) < 2:
        return None
    return tuple(version for version, tokens in step.versions for _ in range(tokens))


_ALWAYS = TableColumn(presence=Presence.ALWAYS)
_HANDED_IN = Presence.BY_ITSELF

STEP_FIELDS: tuple[StepField, ...] = (
    StepField(
        name="task",
        kind=kinds.ID,
        owner=Owner.ROLLOUT,
        meaning="the task that was attempted",
        trajectory="task.id",
        absent=KEPT,
        required=True,
        column=_ALWAYS,
    ),
    StepField(
        name="group",
        kind=kinds.ID,
        owner=Owner.READER,
        meaning="which attempts were compared together, where that is not all attempts at the task: the same task at "
        "another update, say. Where given, it takes the task's place as the scope of every comparison",
        uniform=True,
    ),
    StepField(
        name="attempt",
        kind=kinds.ID,
        owner=Owner.ROLLOUT,
        meaning="the attempt, within its task (or group)",
        trajectory="attempt",
        absent=KEPT,
        required=True,
        column=_ALWAYS,
    ),
    StepField(
        name="index",
        kind=kinds.COUNT,
        owner=Owner.ROLLOUT,
        meaning="position of the step in its attempt",
        step="index",
        absent=KEPT,
        required=True,
        column=_ALWAYS,
    ),
    StepField(
        name="segment",
        kind=kinds.COUNT,
        owner=Owner.READER,
        meaning="part of a step that was cut into several training sequences; absent = 0",
        absent=0,
    ),
    StepField(
        name="state",
        kind=kinds.STATE,
        owner=Owner.ENVIRONMENT,
        meaning="what makes two steps comparable. A list or object counts as its canonical JSON text (keys sorted, no "
        "white space); `null` or absent = not comparable",
        step="state_key",
        absent=KEPT,
        column=_ALWAYS,
    ),
    StepField(
        name="observation",
        kind=kinds.TEXT,
        owner=Owner.ENVIRONMENT,
        meaning="what the environment showed before the agent acted",
        step="observation",
    ),
    StepField(
        name="action",
        kind=kinds.TEXT_OR_NULL,
        owner=Owner.ROLLOUT,
        meaning="the parsed action",
        step="action",
        absent=KEPT,
        column=_ALWAYS,
    ),
    StepField(
        name="reward",
        kind=kinds.NUMBER,
        owner=Owner.ENVIRONMENT,
        meaning="reward of this step alone",
        step="reward",
        made="step.reward + step.shaped",
        absent=KEPT,
        required=True,
        column=_ALWAYS,
    ),
    StepField(
        name="reward_alone",
        kind=kinds.NUMBER,
        owner=Owner.ENVIRONMENT,
        meaning="the reward before comparing the attempts of its group added to it (a ranking reward, say), where that "
        "differs",
        step="reward",  # in this order: read back, a step has the reward that it had by itself
        made="step.reward if step.shaped else None",
        follows="stop",
        column=TableColumn(made_by="from_trajectories makes it where a shaper added something"),
    ),
    StepField(
        name="well_formed",
        kind=kinds.FLAG,
        owner=Owner.ROLLOUT,
        meaning="whether the response had the form that was asked for, whatever the environment made of it",
        step="well_formed",
        unknown=None,
        uniform=True,
        column=TableColumn(presence=Presence.WHERE_ALL, check=Check.FLAG, of_whole_step=True),
    ),
    StepField(
        name="accepted",
        kind=kinds.FLAG,
        owner=Owner.ENVIRONMENT,
        meaning="whether the environment accepted the action, whatever the form of the response",
        step="accepted",
        unknown=None,
        uniform=True,
        column=TableColumn(presence=Presence.WHERE_ALL, check=Check.FLAG, of_whole_step=True),
    ),
    StepField(
        name="valid",
        kind=kinds.FLAG,
        owner=Owner.READER,
        meaning="both of these together, in recordings that do not tell them apart. Where both are there it follows "
        "from them and is left out; where it stands alone, it does not say which of the two a step lacked, and the "
        "penalty on malformed responses (`invalid_penalty` of GiGPO and HGPO) is refused by name",
        step="recorded_valid",
        made="step.recorded_valid if step.well_formed is None or step.accepted is None else None",
        uniform=True,
        column=TableColumn(
            presence=_HANDED_IN,
            check=Check.FLAG,
            of_whole_step=True,
            made_by="a table makes it of 'well_formed' and 'accepted'",
        ),
    ),
    StepField(
        name="cut",
        kind=kinds.FLAG,
        owner=Owner.POLICY,
        meaning="whether the response was cut off at its most tokens",
        step="cut",
        absent=KEPT,
        uniform=True,
        column=TableColumn(presence=Presence.ALWAYS, check=Check.FLAG, of_whole_step=True),
    ),
    StepField(
        name="outcome",
        kind=kinds.NUMBER,
        owner=Owner.ENVIRONMENT,
        meaning="score of the whole attempt, the same on all its rows; absent = the sum of its rewards",
        trajectory="outcome",
        uniform=True,
        column=TableColumn(
            presence=_HANDED_IN,
            check=Check.NUMBER,
            of_whole_step=True,
            made_by="from_trajectories makes it of `Trajectory.outcome`",
        ),
    ),
    StepField(
        name="stop",
        kind=kinds.STOP,
        owner=Owner.ENVIRONMENT,
        meaning="why the attempt ended, on its last row",
        made="trajectory.stop if step is trajectory.steps[-1] else None",
        column=TableColumn(presence=Presence.ALWAYS, made_by="from_trajectories makes it of `Trajectory.stop`"),
    ),
    StepField(
        name="role",
        kind=kinds.ID_OR_NULL,
        owner=Owner.ROLLOUT,
        meaning="which player acted",
        step="role",
        column=TableColumn(),
    ),
    StepField(
        name="branch",
        kind=kinds.ID_OR_NULL,
        owner=Owner.ROLLOUT,
        meaning="the branch point that the step was sampled from",
        step="branch",
        column=_ALWAYS,
    ),
    StepField(
        name="next_state",
        kind=kinds.STATE,
        owner=Owner.READER,
        meaning="the state that the step led to, where it is not the next row's",
        column=TableColumn(),
    ),
    StepField(
        name="accuracy",
        kind=kinds.NUMBER,
        owner=Owner.ENVIRONMENT,
        meaning="share of correct answers, where it is not the outcome",
        made="trajectory.scores.get('accuracy')",
        uniform=True,
        follows="outcome",
        column=TableColumn(
            presence=Presence.WHERE_ALL,
            check=Check.NUMBER,
            made_by="from_trajectories makes it of the score of that name",
        ),
    ),
    StepField(
        name="tokens",
        kind=kinds.COUNT,
        owner=Owner.READER,
        meaning="number of sampled tokens, where the ids are not stored",
        uniform=True,
        column=TableColumn(
            presence=_HANDED_IN, check=Check.SUM, made_by="from_trajectories counts the recorded response_ids"
        ),
    ),
    StepField(
        name="prompt_ids",
        kind=kinds.INTEGERS,
        owner=Owner.ROLLOUT,
        meaning="token ids that the engine was given",
        step="prompt_ids",
        absent=(),
        bulk=True,
    ),
    StepField(
        name="unguided_prompt_ids",
        kind=kinds.INTEGERS,
        owner=Owner.ROLLOUT,
        meaning="the same without the guidance that they held; absent = they held none",
        step="unguided_prompt_ids",
        absent=(),
        bulk=True,
    ),
    StepField(
        name="response_ids",
        kind=kinds.INTEGERS,
        owner=Owner.POLICY,
        meaning="token ids that the engine sampled; an empty list counts as 0 tokens",
        step="response_ids",
        # Also where it is empty: a step without tokens among others with them has sampled 0, not an unknown number.
        absent=KEPT,
        uniform=True,
    ),
    StepField(
        name="logp_behaviour",
        kind=kinds.NUMBERS,
        owner=Owner.POLICY,
        meaning="log-probability of each sampled token when it was sampled, one per response id",
        step="logp_behaviour",
        absent=(),
        one_per_token=True,
        bulk=True,
    ),
    StepField(
        name="entropy",
        kind=kinds.NUMBERS,
        owner=Owner.POLICY,
        meaning="entropy of the sampling distribution, one per response id",
        step="entropy",
        absent=(),
        one_per_token=True,
        bulk=True,
    ),
    StepField(
        name="forced",
        kind=kinds.COUNT,
        owner=Owner.ROLLOUT,
        meaning="how many of the first response ids were given instead of sampled; they do not train",
        step="forced",
        absent=0,
    ),
    StepField(
        name="version",
        kind=kinds.INTEGER,
        owner=Owner.POLICY,
        meaning="policy version that sampled the step",
        made="trajectory.versions[0] if len(trajectory.versions) == 1 else find_one_version(step)",
    ),
    StepField(
        name="versions",
        kind=kinds.INTEGERS,
        owner=Owner.POLICY,
        meaning="policy version that sampled each token, one per response id, where several sampled the step; then "
        "`version` is absent",
        made="None if len(trajectory.versions) == 1 else list_token_versions(step)",
        one_per_token=True,
        bulk=True,
    ),
    StepField(
        name="origin",
        kind=kinds.ORIGIN,
        owner=Owner.ROLLOUT,
        meaning="where the attempt came from; absent = fresh",
        trajectory="origin",
        absent=Origin.FRESH.value,
        follows="extra",
    ),
    StepField(
        name="extra",
        kind=kinds.OBJECT,
        owner=Owner.MEASURE,
        meaning="further columns by name, for `Column(name)`: the facts of a step, from its environment and from "
        "measures, and columns of your own",
        step="facts",
        made="dict(step.facts) if step.facts else None",
    ),
    StepField(
        name="age",
        kind=kinds.COUNT,
        owner=Owner.READER,
        meaning="versions of the weights since those that sampled the attempt",
        in_rows=False,
        column=TableColumn(
            presence=_HANDED_IN,
            check=Check.COUNT,
            of_whole_step=True,
            made_by="from_trajectories(..., version=...) makes it of `Trajectory.versions`",
        ),
    ),
    StepField(
        name="off_policy",
        kind=kinds.FLAG,
        owner=Owner.READER,
        meaning="whether another policy sampled the attempt than the one that learns",
        in_rows=False,
        column=TableColumn(
            presence=_HANDED_IN,
            check=Check.FLAG,
            of_whole_step=True,
            made_by="from_trajectories makes it of `Trajectory.off_policy`",
        ),
    ),
    StepField(
        name="trains",
        kind=kinds.FLAG,
        owner=Owner.READER,
        meaning="whether the step may train",
        in_rows=False,
        column=TableColumn(presence=_HANDED_IN, check=Check.FLAG, of_whole_step=True),
    ),
)
"""Every field, in the order in which files write them."""

COLUMNS = {field.name: field.column for field in STEP_FIELDS if field.column is not None}
"""The columns that the step table knows, by name; any other is kept as it is."""

FIRST_OBSERVATION = "first_observation"
"""Column with a digest of the observation, on steps of index 0: attempts at one task begin alike."""

RESERVED_NAMES = frozenset(
    (*(field.name for field in STEP_FIELDS), FIRST_OBSERVATION, "episode_return", "cls")  # the last is no keyword
)
"""Names that a row or the step table means something of its own by: no fact of a step, no column in `extra` and no
column of a stateful part may have one of them."""


def describe_column_source(name: str) -> str:
    """Where a column comes from that a table lacks, for messages; empty = nobody makes it."""
    field = next((field for field in STEP_FIELDS if field.name == name), None)
    if field is None or field.column is None:
        return ""
    every = ", where every step says so" if field.column.presence is Presence.WHERE_ALL else ""
    return field.column.made_by or (f"from_trajectories makes it of `Step.{field.step}`{every}" if field.step else "")


# Functions written out from the table of step fields, as `dataclasses` writes its own.
#
# Every step passes through them. A loop over the table takes half as long again as the code that one would write by
# hand; so that code is written from the table, once, when a module is imported.


def compile_function(arguments: str, body: str, known: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """The function of some arguments with this body, which may use the names that are known.

    Nothing of the text may come from anywhere but the source of groupwise.

    >>> compile_function("row", "return 'cut' in row")({"cut": True})
    True
    """
    names = {"find_one_version": find_one_version, "list_token_versions": list_token_versions, **(known or {})}
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    exec(compile(f"def function({arguments}):\n{indented}", "<the table of step fields>", "exec"), names)
    function: Callable[..., Any] = names["function"]
    return function
