"""The attempts of an update, ready to learn from: played, chosen, admitted, measured, shaped, joined by past ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from groupwise.core.errors import ConfigError, TrainingError
from groupwise.core.journal.states import StateBefore
from groupwise.core.parts.part import Part, kind_of
from groupwise.core.past_attempts import RecalledAttempt
from groupwise.core.records import Origin, SetAside, Trajectory, has_survived
from groupwise.rewards import shape_group
from groupwise.rollout.hosts.waiting import Waiting
from groupwise.rollout.plans.guided import merge_by_task
from groupwise.rollout.plans.joining import join_groups
from groupwise.rollout.plans.plan import AttemptPlan, Played
from groupwise.training.attempts.admission import admit_attempts
from groupwise.training.attempts.measuring import measure_attempts
from groupwise.training.attempts.recall import recall_attempts
from groupwise.training.attempts.rounds import PlayedRounds, play_rounds
from groupwise.training.run import Run


@dataclass(frozen=True, kw_only=True)
class UpdateAttempts:
    """The attempts of an update: all that were played, and those of them that are compared and trained on."""

    played: Sequence[Trajectory]
    """Every attempt, faults included."""
    survivors: Sequence[Trajectory]
    """The unguided attempts that ended without a fault, scored: these speak for the policy. Those that were measured
    have the facts on their steps, and none has what shaping added."""
    chosen: Sequence[Trajectory]
    """The attempts that are compared and trained on, group by group."""
    recalled: Sequence[RecalledAttempt] = ()
    """Past attempts that take part."""
    left_out: int = 0
    """Past attempts that were wanted, but that the policy has moved too far away from."""
    set_aside: Sequence[SetAside] = ()
    """Attempts that an admission left out, or whose place a guided one took."""
    request_words: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """What the plan asked for guided attempts with, in words, by task and attempt."""
    share_not_admitted: float | None = None
    """Share of the attempts before admissions that these left out; None = there are no admissions."""
    states: Sequence[StateBefore] = ()
    """What stateful parts remembered when the attempts were made ready: states and columns of the same moment."""
    waiting: Waiting = field(default_factory=Waiting)
    """What environments took."""
    played_in: float | None = None
    """Seconds that playing them took, where that was not the loop's own time; None = it was."""
    measures_cost: Mapping[str, float] = field(default_factory=dict)
    """What measures were given to read, sampled and asked, as metrics; nothing where there are none."""

    @property
    def members(self) -> list[Trajectory]:
        """The attempts that are compared or trained on, recalled ones too."""
        return [*self.chosen, *(past.trajectory for past in self.recalled if past.trajectory)]

    @property
    def faults(self) -> list[Trajectory]:
        """The attempts that a fault ended."""
        return [trajectory for trajectory in self.played if not has_survived(trajectory)]


def collect_update(run: Run, number: int) -> UpdateAttempts:
    """Play attempts until the plan asks for no more, leave out who is not admitted, then let past ones join."""
    return prepare_update(run, play_rounds(run, number))


def prepare_update(run: Run, rounds: PlayedRounds) -> UpdateAttempts:
    """Make of the rounds of an update what is learnt from: chosen, admitted, measured, shaped, joined by past ones."""
    algorithm, plan, number = run.config.algorithm, run.config.plan, rounds.number
    played = Played(update=number, rounds=rounds.rounds)
    survivors = [trajectory for group in played.groups for trajectory in group]
    _check_enough(run, number, plan, rounds.played, survivors)
    # A task that came in several rounds is one group: its attempts are compared, and joined, together.
    chosen = merge_by_task(plan.choose(played, run.config.training.tasks))
    groups, replaced = join_groups(chosen, rounds.joining)
    admissions = algorithm.admissions or ()
    admitted, not_admitted = admit_attempts(groups, admissions, draw=run.draw(number))
    measured, cost = measure_attempts(run, number, admitted)
    shaped = [shape_group(group, algorithm.shapers) for group in measured]
    set_aside = [*replaced, *not_admitted]
    recalled, left_out = recall_attempts(run, number, shaped, set_aside)
    attempts = UpdateAttempts(
        played=rounds.played,
        survivors=_replace_by_measured(survivors, measured),
        chosen=[trajectory for group in shaped for trajectory in group],
        recalled=recalled,
        left_out=left_out,
        set_aside=set_aside,
        request_words=rounds.request_words,
        share_not_admitted=len(not_admitted) / max(sum(map(len, groups)), 1) if admissions else None,
        waiting=rounds.waiting,
        played_in=rounds.played_in,
        measures_cost=cost,
    )
    with run.state_lock:  # attempts of later updates may ask the parts meanwhile
        return replace(attempts, states=run.part_states.describe_before(attempts.members))


def _replace_by_measured(
    survivors: Sequence[Trajectory], measured: Sequence[Sequence[Trajectory]]
) -> Sequence[Trajectory]:
    """The survivors, each as its measures left it; guided attempts that were measured are none of them."""
    by_id = {trajectory.id: trajectory for group in measured for trajectory in group}
    return [by_id.get(trajectory.id, trajectory) for trajectory in survivors]


def _check_enough(
    run: Run, number: int, plan: AttemptPlan, played: Sequence[Trajectory], survivors: Sequence[Trajectory]
) -> None:
    """Stop the run, with the causes, where too few unguided attempts ended without a fault."""
    unguided = [trajectory for trajectory in played if trajectory.origin is Origin.FRESH]
    if not unguided:
        assert isinstance(plan, Part), "a slot is filled by parts"
        raise ConfigError(
            f"update {number}: the plan {kind_of(type(plan))} asked for guided attempts only, which say nothing of the "
            "policy by itself; ask for some without guidance, forced tokens or a temperature too"
        )
    if len(survivors) >= max(run.config.training.min_survivors * len(unguided), 1):
        return
    lost = [trajectory for trajectory in unguided if not has_survived(trajectory)]
    causes = Counter(trajectory.error or trajectory.stop.value for trajectory in lost)
    listed = "; ".join(f"{count} x {cause}" for cause, count in causes.most_common(3))
    raise TrainingError(
        f"update {number}: only {len(survivors)} of {len(unguided)} attempts survived ({listed}); mend the environment"
    )
