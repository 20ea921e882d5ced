"""The attempts of an update: requested by the plan, played, scored, admitted, measured, shaped, joined by past ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from groupwise.core.errors import ConfigError, TrainingError
from groupwise.core.parts.part import Part, kind_of
from groupwise.core.past_attempts import RecalledAttempt
from groupwise.core.records import FAULTS, Origin, SetAside, Trajectory
from groupwise.rewards import score_trajectory, shape_group
from groupwise.rollout.episodes import Attempt
from groupwise.rollout.hosts.waiting import Waiting
from groupwise.rollout.plans.guided import merge_by_task
from groupwise.rollout.plans.joining import Joining, join_groups
from groupwise.rollout.plans.plan import AttemptPlan, Played, PlayedRound
from groupwise.rollout.plans.requests import AttemptRequest, check_requests
from groupwise.training.attempts.admission import admit_attempts
from groupwise.training.attempts.measuring import measure_attempts
from groupwise.training.attempts.recall import recall_attempts
from groupwise.training.attempts.requested import RunPlanTools, make_attempts, prepare_to_train, score_forced
from groupwise.training.run import Run

MAX_ROUNDS = 256
"""Rounds after which a plan that still asks for more is taken for one that never ends."""


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
    waiting: Waiting = field(default_factory=Waiting)
    """What environments took."""
    measures_cost: Mapping[str, float] = field(default_factory=dict)
    """What measures were given to read, sampled and asked, as metrics; nothing where there are none."""

    @property
    def members(self) -> list[Trajectory]:
        """The attempts that are compared or trained on, recalled ones too."""
        return [*self.chosen, *(past.trajectory for past in self.recalled if past.trajectory)]

    @property
    def faults(self) -> list[Trajectory]:
        """The attempts that a fault ended."""
        return [trajectory for trajectory in self.played if not _has_survived(trajectory)]


@dataclass
class _Rounds:
    """What the rounds of an update brought so far."""

    played: list[Trajectory] = field(default_factory=list)
    rounds: list[PlayedRound] = field(default_factory=list)
    joining: list[Joining] = field(default_factory=list)
    tried: Counter[str] = field(default_factory=Counter)
    request_words: dict[tuple[str, int], str] = field(default_factory=dict)
    waiting: Waiting = field(default_factory=Waiting)


def collect_update(run: Run, number: int) -> UpdateAttempts:
    """Play attempts until the plan asks for no more, leave out who is not admitted, then let past ones join."""
    algorithm, plan, rounds, tools = run.config.algorithm, run.config.plan, _Rounds(), RunPlanTools(run)
    while requests := _next_requests(run, number, plan, rounds, tools):
        _play_round(run, number, requests, rounds)
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
    return UpdateAttempts(
        played=rounds.played,
        survivors=_replace_by_measured(survivors, measured),
        chosen=[trajectory for group in shaped for trajectory in group],
        recalled=recalled,
        left_out=left_out,
        set_aside=set_aside,
        request_words=rounds.request_words,
        share_not_admitted=len(not_admitted) / max(sum(map(len, groups)), 1) if admissions else None,
        waiting=rounds.waiting,
        measures_cost=cost,
    )


def play_for_update(
    run: Run, attempts: Sequence[Attempt], *, temperature: float, waiting: Waiting | None = None
) -> list[Trajectory]:
    """Play attempts with the run's engine and environments; tokens forced on them get the policy's own log-probs.

    `waiting` is told what environments took.
    """
    played = run.player.play(attempts, temperature=temperature, waiting=waiting)
    return score_forced(run, attempts, played, temperature)


def _next_requests(
    run: Run, number: int, plan: AttemptPlan, rounds: _Rounds, tools: RunPlanTools
) -> Sequence[AttemptRequest]:
    """What the plan wants next, if it can be played."""
    assert isinstance(plan, Part), "a slot is filled by parts"
    requests = plan.next(
        Played(update=number, rounds=tuple(rounds.rounds)),
        run.config.training.tasks,
        tools=tools,
        past_attempts=run.journal.past_attempts,
        draw=run.draw(number),
    )
    where = f"update {number}: the plan {kind_of(type(plan))}"
    if not requests and not rounds.rounds:
        raise ConfigError(f"{where} asked for nothing in the first round; ask for at least one attempt")
    if requests and len(rounds.rounds) == MAX_ROUNDS:
        raise ConfigError(f"{where} still asked for more after {MAX_ROUNDS} rounds; give an empty list to end them")
    check_requests(
        plan,
        requests,
        is_known=tools.knows,
        attempted={trajectory.task.id for trajectory in rounds.played if trajectory.origin is Origin.FRESH},
        max_tokens=run.config.rollout.max_tokens,
        end_id=run.prompter.frame.end_id,
        vocabulary_size=run.learner.vocabulary_size,
    )
    return requests


def _play_round(run: Run, number: int, requests: Sequence[AttemptRequest], rounds: _Rounds) -> None:
    """Play all requests of a round together, and sort what survived by whom it is compared with."""
    by_request = [make_attempts(run, number, request, rounds.tried) for request in requests]
    attempts = [attempt for attempts in by_request for attempt in attempts]
    played = play_for_update(run, attempts, temperature=run.config.rollout.temperature, waiting=rounds.waiting)
    rounds.played += played
    survivors: list[Joining] = []
    remaining = iter(played)
    for request, attempts in zip(requests, by_request, strict=True):
        scored = [
            score_trajectory(trajectory, run.config.rewards)
            for trajectory in islice(remaining, len(attempts))
            if _has_survived(trajectory)
        ]
        survivors.append((request, [prepare_to_train(request, trajectory) for trajectory in scored]))
    unguided = [group for request, group in survivors if not request.is_guided]
    own = [group for request, group in survivors if request.is_guided and request.joins == "own"]
    joining = [(request, group) for request, group in survivors if request.joins != "own"]
    rounds.joining += joining
    for request, group in survivors:
        if words := request.describe():
            rounds.request_words |= {(trajectory.task.id, trajectory.attempt): words for trajectory in group}
    rounds.rounds.append(
        PlayedRound(
            requests=tuple(requests),
            groups=merge_by_task(unguided),
            guided=merge_by_task(own),
            joining=merge_by_task([group for _, group in joining]),
        )
    )


def _replace_by_measured(
    survivors: Sequence[Trajectory], measured: Sequence[Sequence[Trajectory]]
) -> Sequence[Trajectory]:
    """The survivors, each as its measures left it; guided attempts that were measured are none of them."""
    by_id = {trajectory.id: trajectory for group in measured for trajectory in group}
    return [by_id.get(trajectory.id, trajectory) for trajectory in survivors]


def _has_survived(trajectory: Trajectory) -> bool:
    return trajectory.stop not in FAULTS and bool(trajectory.steps)


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
    lost = [trajectory for trajectory in unguided if not _has_survived(trajectory)]
    causes = Counter(trajectory.error or trajectory.stop.value for trajectory in lost)
    listed = "; ".join(f"{count} x {cause}" for cause, count in causes.most_common(3))
    raise TrainingError(
        f"update {number}: only {len(survivors)} of {len(unguided)} attempts survived ({listed}); mend the environment"
    )
