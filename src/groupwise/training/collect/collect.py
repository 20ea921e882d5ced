"""The attempts of an update, ready to learn from: played, chosen, admitted, measured, shaped, joined by past ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from groupwise.credit import shape_group
from groupwise.data.past_attempts import RecalledAttempt
from groupwise.data.records import Origin, SetAside, Trajectory, has_survived
from groupwise.parts.part import Part, kind_of
from groupwise.parts.slots import Admission, Draw, Replay
from groupwise.parts.stateful import StateBefore
from groupwise.rollout.environment_runner import EnvTiming
from groupwise.rollout.guidance import merge_by_task
from groupwise.rollout.plans import AttemptPlan, Played, join_groups
from groupwise.system.errors import ConfigError, TrainingError
from groupwise.training.collect.measuring import measure_attempts
from groupwise.training.collect.rounds import PlayedRounds, play_rounds
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
    rejected_fraction: float | None = None
    """Share of the attempts before admissions that these left out; None = there are no admissions."""
    states: Sequence[StateBefore] = ()
    """What stateful parts remembered when the attempts were made ready: states and columns of the same moment."""
    waiting: EnvTiming = field(default_factory=EnvTiming)
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
    groups: Sequence[Sequence[Trajectory]]
    groups, replaced = join_groups(chosen, rounds.joining)
    num_joined, set_aside, not_admitted = sum(map(len, groups)), [*replaced], list[SetAside]()
    cost, recalled, left_out = dict[str, float](), list[RecalledAttempt](), 0
    if algorithm.admissions:
        groups, not_admitted = admit_attempts(groups, algorithm.admissions, draw=run.draw(number))
        set_aside += not_admitted
    if algorithm.measures:
        groups, cost = measure_attempts(run, number, groups)
        measured = {trajectory.id: trajectory for group in groups for trajectory in group}
        survivors = [measured.get(trajectory.id, trajectory) for trajectory in survivors]
    if algorithm.shapers:
        groups = [shape_group(group, algorithm.shapers) for group in groups]
    if algorithm.replay is not None:
        recalled, left_out = recall_attempts(run, algorithm.replay, number, groups, set_aside)
    attempts = UpdateAttempts(
        played=rounds.played,
        survivors=survivors,
        chosen=[trajectory for group in groups for trajectory in group],
        recalled=recalled,
        left_out=left_out,
        set_aside=set_aside,
        request_words=rounds.request_words,
        rejected_fraction=len(not_admitted) / max(num_joined, 1) if algorithm.admissions else None,
        waiting=rounds.waiting,
        played_in=rounds.played_in,
        measures_cost=cost,
    )
    if not len(run.part_states):
        return attempts
    with run.state_lock:  # attempts of later updates may ask the parts meanwhile
        return replace(attempts, states=run.part_states.describe_before(attempts.members))


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


# Admission: which attempts of each group the algorithm's admissions let in, and who was set aside by whom.


def admit_attempts(
    groups: Sequence[Sequence[Trajectory]], admissions: Sequence[Admission], *, draw: Draw
) -> tuple[list[Sequence[Trajectory]], list[SetAside]]:
    """The groups that are compared, without those of which nobody is left, and the attempts that are not admitted."""
    remaining, set_aside = list(groups), list[SetAside]()
    for admission in admissions:
        assert isinstance(admission, Part), "a slot is filled by parts"
        name, before = kind_of(type(admission)), remaining
        remaining = [admission(group, draw=draw) for group in before]
        for group, admitted in zip(before, remaining, strict=True):
            ids = {id(member) for member in group}
            admitted_ids = {id(member) for member in admitted}
            if not admitted_ids <= ids or len(admitted_ids) != len(admitted):
                raise ConfigError(
                    f"the admission {name}: of the {len(group)} attempts at {group[0].task.id!r} it gave "
                    f"{len(admitted)} back, not all of them members of the group, or one twice; give back some of the "
                    "attempts that came, as they are"
                )
            set_aside += [
                SetAside(trajectory=member, by=f"the admission {name}")
                for member in group
                if id(member) not in admitted_ids
            ]
        remaining = [group for group in remaining if group]
    return remaining, set_aside


# Replay: past attempts that join an update, read back, held against the policy of today, numbered after the others.


def recall_attempts(
    run: Run,
    replay: Replay,
    number: int,
    groups: Sequence[Sequence[Trajectory]],
    set_aside: Sequence[SetAside],
) -> tuple[list[RecalledAttempt], int]:
    """Recall the past attempts that join the groups; they, and how many were left out as too far from the policy.

    Their numbers come after those of the groups' own attempts, also of the ones that were set aside.
    """
    wanted = replay(groups, run.journal.past_attempts, version=number - 1, draw=run.draw(number))
    read = [replace(member, trajectory=run.journal.past_attempts.read(member.past)) for member in wanted]
    scored = _score_distance(run, read)
    limit = replay.max_log_ratio
    near = [member for member in scored if limit is None or (member.log_ratio or 0.0) <= limit]
    return _number_members(run, near, groups, set_aside), len(scored) - len(near)


def _score_distance(run: Run, recalled: Sequence[RecalledAttempt]) -> list[RecalledAttempt]:
    """Write down how far the policy has moved away from each past attempt, a token on average.

    Those that are measured against the policy of the present also get the log-probs that they have under it.
    """
    steps = [
        (i, step)
        for i, member in enumerate(recalled)
        for step in (member.trajectory.steps if member.trajectory else ())
    ]
    scores = run.engine.score(
        [(step.prompt_ids, step.response_ids) for _, step in steps], temperature=run.config.rollout.temperature
    )
    by_member: list[list[tuple[float, ...]]] = [[] for _ in recalled]
    total, tokens = dict.fromkeys(range(len(recalled)), 0.0), Counter[int]()
    for (i, step), now in zip(steps, scores, strict=True):
        total[i] += sum(abs(a - b) for a, b in zip(now, step.logp_behaviour, strict=True))
        tokens[i] += len(now)
        by_member[i].append(tuple(now))
    return [
        replace(
            member,
            log_ratio=total[i] / max(tokens[i], 1),
            logps_now=tuple(by_member[i]) if member.ratio == "recomputed" else (),
        )
        for i, member in enumerate(recalled)
    ]


def _number_members(
    run: Run,
    recalled: Sequence[RecalledAttempt],
    groups: Sequence[Sequence[Trajectory]],
    set_aside: Sequence[SetAside],
) -> list[RecalledAttempt]:
    """Make past attempts members of their groups: numbered after the group's own, and marked as off-policy."""
    tasks = {trajectory.task.id: trajectory.task for group in groups for trajectory in group}
    following = Counter({group[0].task.id: max(trajectory.attempt for trajectory in group) + 1 for group in groups})
    for trajectory in (aside.trajectory for aside in set_aside):
        following[trajectory.task.id] = max(following[trajectory.task.id], trajectory.attempt + 1)
    members: list[RecalledAttempt] = []
    for past in recalled:
        assert past.trajectory is not None, "it was read"
        trajectory = replace(
            past.trajectory,
            task=tasks.get(past.task, past.trajectory.task),
            attempt=following[past.task],
            origin=Origin.REPLAYED,
            off_policy=True,
            parent=past.trajectory.id,
        )
        following[past.task] += 1
        credit = run.journal.past_attempts.credit_of(past.past) if past.keeps_credit else ()
        members.append(replace(past, trajectory=trajectory, credit=credit))
    return sorted(members, key=lambda member: member.keeps_credit)  # those that are not compared come last
