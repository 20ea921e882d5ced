"""The attempts of an update, ready to learn from: played, chosen, admitted, measured, shaped, joined by past ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice

from groupwise.credit import score_trajectory, shape_group
from groupwise.data.past_attempts import RecalledAttempt
from groupwise.data.records import Origin, SetAside, Task, Trajectory, has_survived
from groupwise.data.seeds import seed_of
from groupwise.engines.engine import Engine
from groupwise.parts.part import Part, kind_of
from groupwise.parts.slots import Admission, Draw, Replay
from groupwise.parts.stateful import StateBefore
from groupwise.rollout.environment_runner import EnvTiming
from groupwise.rollout.episodes import Attempt, Player
from groupwise.rollout.plans import (
    AttemptPlan,
    AttemptRequest,
    Joining,
    Played,
    PlayedRound,
    check_requests,
    join_groups,
    merge_by_task,
    strip_guidance,
)
from groupwise.rollout.prompts import Prompter
from groupwise.store.attempt_index import PastAttempts
from groupwise.store.journal import Journal
from groupwise.system.errors import ConfigError, TrainingError
from groupwise.training.collect.measuring import measure_attempts
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


# The rounds of an update: requested by the plan, played and scored, until the plan asks for no more.

MAX_ROUNDS = 256
"""Rounds after which a plan that still asks for more is taken for one that never ends."""


@dataclass
class PlayedRounds:
    """What the rounds of an update brought so far."""

    number: int
    played: list[Trajectory] = field(default_factory=list)
    """Every attempt, faults included."""
    rounds: list[PlayedRound] = field(default_factory=list)
    """What the plan is shown of them, oldest first."""
    joining: list[Joining] = field(default_factory=list)
    """Guided attempts that join or replace unguided ones."""
    tried: Counter[str] = field(default_factory=Counter)
    """How many attempts each task had, by its id."""
    request_words: dict[tuple[str, int], str] = field(default_factory=dict)
    """What the plan asked for guided attempts with, in words, by task and attempt."""
    waiting: EnvTiming = field(default_factory=EnvTiming)
    played_in: float | None = None
    """Seconds that all rounds took, where they were played ahead; None = they were not."""


def play_rounds(run: Run, number: int, player: Player | None = None) -> PlayedRounds:
    """Play attempts until the plan asks for no more, with the run's own player, or with one that a thread has."""
    rounds, own = PlayedRounds(number), player or run.player
    tools = RunPlanTools(run, number, own.prompter)
    while True:
        with nullcontext(run.journal.past_attempts) if player is None else _open_past_attempts(run) as past_attempts:
            requests = _ask_plan(run, rounds, tools, past_attempts, end_id=own.prompter.frame.end_id)
        if not requests:
            return rounds
        _play_round(run, requests, rounds, own)


def play_for_update(
    player: Player, attempts: Sequence[Attempt], *, temperature: float, waiting: EnvTiming
) -> list[Trajectory]:
    """Play attempts; tokens forced on them get the policy's own log-probs. `waiting` is told what environments took."""
    played = player.play(attempts, temperature=temperature, waiting=waiting)
    if any(attempt.forced for attempt in attempts):
        return score_forced(player.engine, attempts, played, temperature)
    return played


@contextmanager
def _open_past_attempts(run: Run) -> Iterator[PastAttempts]:
    """Open the past attempts for a thread: SQLite lets no other use the run's own connection."""
    with Journal(run.paths.journal, read_only=True) as journal:
        yield journal.past_attempts


def _ask_plan(
    run: Run, rounds: PlayedRounds, tools: RunPlanTools, past_attempts: PastAttempts, *, end_id: int
) -> Sequence[AttemptRequest]:
    """What the plan wants next, if it can be played; nothing where it wants no more."""
    plan: AttemptPlan = run.config.plan
    assert isinstance(plan, Part), "a slot is filled by parts"
    requests = plan.next(
        Played(update=rounds.number, rounds=tuple(rounds.rounds)),
        run.config.training.tasks,
        tools=tools,
        past_attempts=past_attempts,
        draw=run.draw(rounds.number),
    )
    where = f"update {rounds.number}: the plan {kind_of(type(plan))}"
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
        end_id=end_id,
        vocabulary_size=run.learner.vocabulary_size,
    )
    return requests


def _play_round(run: Run, requests: Sequence[AttemptRequest], rounds: PlayedRounds, player: Player) -> None:
    """Play all requests of a round together, and sort what survived by whom it is compared with."""
    by_request = [make_attempts(run, rounds.number, request, rounds.tried) for request in requests]
    attempts = [attempt for attempts in by_request for attempt in attempts]
    played = play_for_update(player, attempts, temperature=run.config.rollout.temperature, waiting=rounds.waiting)
    rounds.played += played
    survivors: list[Joining] = []
    remaining = iter(played)
    for request, attempts in zip(requests, by_request, strict=True):
        scored = [
            score_trajectory(trajectory, run.config.rewards, read_response=player.prompter.text)
            for trajectory in islice(remaining, len(attempts))
            if has_survived(trajectory)
        ]
        if request.loss_context == "unguided":
            scored = [strip_guidance(trajectory) for trajectory in scored]
        if request.origin is Origin.GUIDED:
            scored = [replace(trajectory, off_policy=True) for trajectory in scored]
        survivors.append((request, scored))
        if words := request.describe():
            rounds.request_words |= {(trajectory.task.id, trajectory.attempt): words for trajectory in scored}
    joining = [(request, group) for request, group in survivors if request.joins != "own"]
    rounds.joining += joining
    rounds.rounds.append(
        PlayedRound(
            requests=tuple(requests),
            groups=merge_by_task([group for request, group in survivors if not request.is_guided]),
            guided=merge_by_task(
                [group for request, group in survivors if request.is_guided and request.joins == "own"]
            ),
            joining=merge_by_task([group for _, group in joining]),
        )
    )


# The attempts that a plan requests: what it may choose from, their numbers and seeds, and what they train on.


@dataclass
class RunPlanTools:
    """What a run's plan can ask for: tasks, and the words of the tokenizer."""

    run: Run
    number: int
    prompter: Prompter
    """Has the tokenizer that the plan's words are turned into tokens with; a thread that plays has one of its own."""
    handed_out: set[str] = field(default_factory=set)
    """Ids of the tasks that the curriculum gave for this update."""

    @property
    def tasks(self) -> Sequence[Task]:
        return self.run.tasks

    def fresh(self, num: int) -> list[Task]:
        """The next tasks of the run's curriculum, which goes on by as many."""
        if type(num) is not int or num < 0:
            raise ConfigError(f"the plan asked tools.fresh for {num!r} tasks; ask for a whole number, 0 or more")
        with self.run.state_lock:
            tasks = self.run.drawn_tasks.draw(self.number, num, self.run.curriculum)
        self.handed_out |= {task.id for task in tasks}
        return tasks

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, Mapping[str, float]]:
        """What the run's stateful parts know of tasks, by the name of the column and the id of the task."""
        with self.run.state_lock:
            return self.run.part_states.columns(tasks)

    def encode(self, text: str) -> tuple[int, ...]:
        return self.prompter.encode(text)

    def text(self, token_ids: Sequence[int]) -> str:
        return self.prompter.text(token_ids)

    def knows(self, task_id: str) -> bool:
        """Whether a task may be attempted: the curriculum gave it, or the panel has it."""
        return task_id in self.handed_out or any(task.id == task_id for task in self.run.tasks)


def make_attempts(run: Run, number: int, request: AttemptRequest, tried: Counter[str]) -> list[Attempt]:
    """Make the attempts of a request; a task that comes again within an update gets further ones, not the same."""
    task = request.group_task
    first = tried[task.id]
    tried[task.id] += request.attempts
    return [
        Attempt(
            task=task,
            number=attempt,
            seed=seed_of(run.config.seed, "update", number, task.id, attempt),
            origin=request.origin,
            guidance_text=request.guidance_text,
            forced=request.forced,
            trains_forced=request.trains_forced,
            temperature=request.temperature,
            parent=request.parent,
        )
        for attempt in range(first, tried[task.id])
    ]


def score_forced(
    engine: Engine, attempts: Sequence[Attempt], played: Sequence[Trajectory], temperature: float
) -> list[Trajectory]:
    """Give attempts the policy's own log-probs of the tokens that were forced on them, in place of zeros."""
    scored = list(played)
    numbers = [n for n, attempt in enumerate(attempts) if attempt.forced and played[n].steps]
    for asked in sorted({attempts[n].temperature or temperature for n in numbers}):
        alike = [n for n in numbers if (attempts[n].temperature or temperature) == asked]
        pairs = [(played[n].steps[0].prompt_ids, attempts[n].forced) for n in alike]
        for n, logps in zip(alike, engine.score(pairs, temperature=asked), strict=True):
            first, *rest = played[n].steps
            first = replace(first, logp_behaviour=(*logps, *first.logp_behaviour[len(logps) :]))
            scored[n] = replace(played[n], steps=(first, *rest))
    return scored
