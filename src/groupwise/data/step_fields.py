"""The fields of a recorded step, as one table.

Everything that handles fields uses `STEP_FIELDS`: rows of files and journals, types of Parquet columns, replayed
rollouts, the step table, the page of the format. To add a field, add an entry here and, if steps hold it, a field of
`Step`; see docs/howto/extending/step_fields.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from groupwise.data import field_kinds as kinds
from groupwise.data.field_kinds import KEPT, Check, Owner, Presence, StepField, TableColumn
from groupwise.data.records import Origin, Step

# The policy versions of a step, if several sampled its rollout.


def find_one_version(step: Step) -> int | None:
    """The version that sampled the step, if it is known and only one did."""
    known = {version for version, _ in step.versions}
    return known.pop() if len(known) == 1 else None


def list_token_versions(step: Step) -> tuple[int, ...] | None:
    """The version of each token, if several sampled the step."""
    if len({version for version, _ in step.versions}) < 2:
        return None
    return tuple(version for version, tokens in step.versions for _ in range(tokens))


_ALWAYS = TableColumn(presence=Presence.ALWAYS)
_HANDED_IN = Presence.BY_ITSELF

# fmt: off
STEP_FIELDS: tuple[StepField, ...] = (
    StepField(
        name="task", kind=kinds.ID, owner=Owner.ROLLOUT,
        meaning="id of the task",
        trajectory="task.id", absent=KEPT, required=True, column=_ALWAYS,
    ),
    StepField(
        name="group", kind=kinds.ID, owner=Owner.READER,
        meaning="which rollouts were compared with each other, if not all rollouts of the task: for example, those "
        "of one update. If given, it replaces the task as the scope of every comparison",
        uniform=True,
    ),
    StepField(
        name="rollout", kind=kinds.ID, owner=Owner.ROLLOUT,
        meaning="the rollout, within its task (or group)",
        trajectory="rollout", absent=KEPT, required=True, column=_ALWAYS,
    ),
    StepField(
        name="step", kind=kinds.COUNT, owner=Owner.ROLLOUT,
        meaning="position of the step in its rollout",
        step="index", absent=KEPT, required=True, column=_ALWAYS,
    ),
    StepField(
        name="segment", kind=kinds.COUNT, owner=Owner.READER,
        meaning="part of a step that was cut into several training sequences; absent = 0",
        absent=0,
    ),
    StepField(
        name="state", kind=kinds.STATE, owner=Owner.ENVIRONMENT,
        meaning="the state key: steps with equal keys are comparable. A list or object counts as its canonical JSON "
        "text (keys sorted, no white space); `null` or absent = not comparable",
        step="state_key", absent=KEPT, column=_ALWAYS,
    ),
    StepField(
        name="observation", kind=kinds.TEXT, owner=Owner.ENVIRONMENT,
        meaning="what the environment showed before the agent acted",
        step="observation",
    ),
    StepField(
        name="action", kind=kinds.TEXT_OR_NULL, owner=Owner.ROLLOUT,
        meaning="the parsed action",
        step="action", absent=KEPT, column=_ALWAYS,
    ),
    StepField(
        name="reward", kind=kinds.NUMBER, owner=Owner.ENVIRONMENT,
        meaning="reward of this step",
        step="reward", made="step.reward + step.shaped", absent=KEPT, required=True, column=_ALWAYS,
    ),
    StepField(
        # Listed after `reward`, so that a step is read back with its reward before shaping.
        name="reward_alone", kind=kinds.NUMBER, owner=Owner.ENVIRONMENT,
        meaning="the reward before group reward shaping (such as a ranking reward), if it differs",
        step="reward", made="step.reward if step.shaped else None", follows="stop",
        column=TableColumn(made_by="from_trajectories makes it where a shaper added something"),
    ),
    StepField(
        name="well_formed", kind=kinds.FLAG, owner=Owner.ROLLOUT,
        meaning="whether the response had the required format",
        step="well_formed", unknown=None, uniform=True,
        column=TableColumn(presence=Presence.WHERE_ALL, check=Check.FLAG, of_whole_step=True),
    ),
    StepField(
        name="accepted", kind=kinds.FLAG, owner=Owner.ENVIRONMENT,
        meaning="whether the environment accepted the action, in whatever format the response was",
        step="accepted", unknown=None, uniform=True,
        column=TableColumn(presence=Presence.WHERE_ALL, check=Check.FLAG, of_whole_step=True),
    ),
    StepField(
        name="valid", kind=kinds.FLAG, owner=Owner.READER,
        meaning="both of these together, for recordings that do not separate them. Leave it out if both are given. "
        "If only this one is given, the penalty on malformed responses (`invalid_penalty` of GiGPO and HGPO) "
        "fails with an error, because the column does not say which of the two a step lacked",
        step="recorded_valid",
        made="step.recorded_valid if step.well_formed is None or step.accepted is None else None", uniform=True,
        column=TableColumn(
            presence=_HANDED_IN, check=Check.FLAG, of_whole_step=True,
            made_by="a table makes it of 'well_formed' and 'accepted'",
        ),
    ),
    StepField(
        name="cut", kind=kinds.FLAG, owner=Owner.POLICY,
        meaning="whether the response was cut off at the token limit",
        step="cut", absent=KEPT, uniform=True,
        column=TableColumn(presence=Presence.ALWAYS, check=Check.FLAG, of_whole_step=True),
    ),
    StepField(
        name="outcome", kind=kinds.NUMBER, owner=Owner.ENVIRONMENT,
        meaning="final score of the rollout, the same on all its rows; absent = the sum of its rewards",
        trajectory="outcome", uniform=True,
        column=TableColumn(
            presence=_HANDED_IN, check=Check.NUMBER, of_whole_step=True,
            made_by="from_trajectories makes it of `Trajectory.outcome`",
        ),
    ),
    StepField(
        name="stop", kind=kinds.STOP, owner=Owner.ENVIRONMENT,
        meaning="why the rollout ended, on its last row",
        made="trajectory.stop if step is trajectory.steps[-1] else None",
        column=TableColumn(presence=Presence.ALWAYS, made_by="from_trajectories makes it of `Trajectory.stop`"),
    ),
    StepField(
        name="role", kind=kinds.ID_OR_NULL, owner=Owner.ROLLOUT,
        meaning="which player acted",
        step="role", column=TableColumn(),
    ),
    StepField(
        name="branch", kind=kinds.ID_OR_NULL, owner=Owner.ROLLOUT,
        meaning="the branch point that the step was sampled from",
        step="branch", column=_ALWAYS,
    ),
    StepField(
        name="next_state", kind=kinds.STATE, owner=Owner.READER,
        meaning="the state after the step, if it is not that of the next row",
        column=TableColumn(),
    ),
    StepField(
        name="accuracy", kind=kinds.NUMBER, owner=Owner.ENVIRONMENT,
        meaning="fraction of correct answers, if it is not the final score",
        made="trajectory.scores.get('accuracy')", uniform=True, follows="outcome",
        column=TableColumn(
            presence=Presence.WHERE_ALL, check=Check.NUMBER,
            made_by="from_trajectories makes it of the score of that name",
        ),
    ),
    StepField(
        name="tokens", kind=kinds.COUNT, owner=Owner.READER,
        meaning="number of sampled tokens, if the ids are not stored",
        uniform=True,
        column=TableColumn(
            presence=_HANDED_IN, check=Check.SUM,
            made_by="from_trajectories counts the recorded response_ids",
        ),
    ),
    StepField(
        name="prompt_ids", kind=kinds.INTEGERS, owner=Owner.ROLLOUT,
        meaning="token ids that the engine was given",
        step="prompt_ids", absent=(), bulk=True,
    ),
    StepField(
        name="prompt_cut", kind=kinds.COUNT, owner=Owner.ROLLOUT,
        meaning="how many token ids `rollout.max_prompt_tokens` removed from the prompt; absent = 0",
        step="prompt_cut", absent=0,
    ),
    StepField(
        name="unhinted_prompt_ids", kind=kinds.INTEGERS, owner=Owner.ROLLOUT,
        meaning="the same without the hint; absent = the prompt had no hint",
        step="unhinted_prompt_ids", absent=(), bulk=True,
    ),
    StepField(
        # Written even if empty: then the step sampled 0 tokens, not an unknown number.
        name="response_ids", kind=kinds.INTEGERS, owner=Owner.POLICY,
        meaning="token ids that the engine sampled; an empty list counts as 0 tokens",
        step="response_ids", absent=KEPT, uniform=True,
    ),
    StepField(
        name="logp_behaviour", kind=kinds.NUMBERS, owner=Owner.POLICY,
        meaning="log-probability of each sampled token when it was sampled, one per response id",
        step="logp_behaviour", absent=(), one_per_token=True, bulk=True,
    ),
    StepField(
        name="entropy", kind=kinds.NUMBERS, owner=Owner.POLICY,
        meaning="entropy of the sampling distribution, one per response id",
        step="entropy", absent=(), one_per_token=True, bulk=True,
    ),
    StepField(
        name="forced", kind=kinds.COUNT, owner=Owner.ROLLOUT,
        meaning="how many of the first response ids were given instead of sampled; they do not train",
        step="forced", absent=0,
    ),
    StepField(
        name="version", kind=kinds.INTEGER, owner=Owner.POLICY,
        meaning="policy version that sampled the step",
        made="trajectory.versions[0] if len(trajectory.versions) == 1 else find_one_version(step)",
    ),
    StepField(
        name="versions", kind=kinds.INTEGERS, owner=Owner.POLICY,
        meaning="policy version that sampled each token, one per response id, if several sampled the step; then "
        "`version` is absent",
        made="None if len(trajectory.versions) == 1 else list_token_versions(step)", one_per_token=True, bulk=True,
    ),
    StepField(
        name="origin", kind=kinds.ORIGIN, owner=Owner.ROLLOUT,
        meaning="where the rollout came from; absent = fresh",
        trajectory="origin", absent=Origin.FRESH.value, follows="extra",
    ),
    StepField(
        name="extra", kind=kinds.OBJECT, owner=Owner.SCORER,
        meaning="further columns by name, for `Column(name)`: step info from the environment and from scorers, and "
        "columns of your own",
        step="info", made="dict(step.info) if step.info else None",
    ),
    StepField(
        name="age", kind=kinds.COUNT, owner=Owner.READER,
        meaning="staleness: policy versions since the one that sampled the rollout",
        in_rows=False,
        column=TableColumn(
            presence=_HANDED_IN, check=Check.COUNT, of_whole_step=True,
            made_by="from_trajectories(..., version=...) makes it of `Trajectory.versions`",
        ),
    ),
    StepField(
        name="off_policy", kind=kinds.FLAG, owner=Owner.READER,
        meaning="whether the rollout was sampled off-policy, not by the policy that learns",
        in_rows=False,
        column=TableColumn(
            presence=_HANDED_IN, check=Check.FLAG, of_whole_step=True,
            made_by="from_trajectories makes it of `Trajectory.off_policy`",
        ),
    ),
    StepField(
        name="trains", kind=kinds.FLAG, owner=Owner.READER,
        meaning="whether the step may train",
        in_rows=False, column=TableColumn(presence=_HANDED_IN, check=Check.FLAG, of_whole_step=True),
    ),
)
# fmt: on
"""Every field, in the order of files."""

COLUMNS = {field.name: field.column for field in STEP_FIELDS if field.column is not None}
"""The columns that the step table checks, by name; all others are kept as they are."""

FIRST_OBSERVATION = "first_observation"
"""Column with a digest of the observation on steps of index 0, to check that rollouts of one task begin alike."""

RESERVED_NAMES = frozenset(
    (*(field.name for field in STEP_FIELDS), FIRST_OBSERVATION, "episode_return", "cls")  # the last is no keyword
)
"""Names that rows or the step table use themselves. Step info, columns in `extra` and columns of stateful parts must
have other names."""


def describe_column_source(name: str) -> str:
    """How a missing column is made, for messages; empty = no code makes it."""
    field = next((field for field in STEP_FIELDS if field.name == name), None)
    if field is None or field.column is None:
        return ""
    every = ", where every step says so" if field.column.presence is Presence.WHERE_ALL else ""
    return field.column.made_by or (f"from_trajectories makes it of `Step.{field.step}`{every}" if field.step else "")


# Functions generated from the table of step fields, as `dataclasses` generates its methods.
#
# They run for every step. A loop over the table takes 1.5 times as long as hand-written code, so such code is generated
# once, at import.


def compile_function(arguments: str, body: str, known: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Compile a function from its arguments and body; the body may use the names in `known`.

    The text must come from the source of groupwise only.

    >>> compile_function("row", "return 'cut' in row")({"cut": True})
    True
    """
    names = {"find_one_version": find_one_version, "list_token_versions": list_token_versions, **(known or {})}
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    exec(compile(f"def function({arguments}):\n{indented}", "<the table of step fields>", "exec"), names)
    function: Callable[..., Any] = names["function"]
    return function
