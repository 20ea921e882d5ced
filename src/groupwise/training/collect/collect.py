"""The rollouts of an update: sample, choose, filter, score, shape and replay them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from operator import attrgetter

from groupwise.credit import score_trajectory, shape_group
from groupwise.data.past_rollouts import ReplayedRollout
from groupwise.data.records import Origin, SetAside, Task, Trajectory, has_survived
from groupwise.data.seeds import seeds_of
from groupwise.engines.engine import Engine
from groupwise.learner.protocol import GivesEntropies, Learner, read_entropies
from groupwise.parts.part import Part, kind_of
from groupwise.parts.slots import Draw, Replay, RolloutFilter
from groupwise.parts.stateful import StateBefore
from groupwise.rollout.environment_runner import EnvTiming
from groupwise.rollout.episodes import Player, Rollout
from groupwise.rollout.plans import (
    Joining,
    Played,
    PlayedRound,
    RolloutPlan,
    RolloutRequest,
    check_requests,
    join_groups,
    merge_by_task,
    strip_hint,
)
from groupwise.rollout.prompts import Prompter
from groupwise.store.journal import Journal
from groupwise.system.errors import ConfigError, TrainingError
from groupwise.training.collect.measuring import run_scorers, value_states
from groupwise.training.run import Run


@dataclass(frozen=True, kw_only=True)
class UpdateRollouts:
    """The rollouts of an update: all that were sampled, and those of them that are compared and trained on."""

    played: Sequence[Trajectory]
    """Every rollout, errors included."""
    survivors: Sequence[Trajectory]
    """The rollouts without hints that ended without an error, with rewards and step info, without reward shaping: they
    show what the policy can do."""
    chosen: Sequence[Trajectory]
    """The rollouts that are compared and trained on, group by group."""
    replayed: Sequence[ReplayedRollout] = ()
    left_out: int = 0
    """Number of past rollouts that were not replayed because the policy has changed too much since then."""
    set_aside: Sequence[SetAside] = ()
    """Rollouts that a rollout filter dropped, or that a rollout with a hint replaced."""
    request_words: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """How the plan described its requests with hints, by task and rollout."""
    rejected_fraction: float | None = None
    """Fraction of the rollouts that the rollout filters dropped; None = there are no filters."""
    states: Sequence[StateBefore] = ()
    """States and columns of the stateful parts when the rollouts were prepared."""
    waiting: EnvTiming = field(default_factory=EnvTiming)
    played_in: float | None = None
    """Seconds of sampling in another thread; None = the loop sampled them."""
    scorer_costs: Mapping[str, float] = field(default_factory=dict)
    """Tokens that scorers read and sampled, and their questions, as metrics; empty without scorers."""


def collect_update(run: Run, number: int) -> UpdateRollouts:
    """Sample rollouts until the plan asks for no more, and prepare them for learning."""
    return prepare_update(run, play_rounds(run, number))


def prepare_update(run: Run, rounds: PlayedRounds) -> UpdateRollouts:
    """Choose, filter, score, shape and replay."""
    algorithm, plan, number = run.config.algorithm, run.config.plan, rounds.number
    played = Played(update=number, rounds=rounds.rounds)
    survivors = list(chain.from_iterable(played.groups))
    unhinted = [trajectory for trajectory in rounds.played if trajectory.origin is Origin.FRESH]
    if not unhinted or len(survivors) < max(run.config.training.min_survivors * len(unhinted), 1):
        raise _make_loss_error(number, plan, unhinted, survivors)
    # A task of several rounds is one group: its rollouts are compared, and joined, together.
    groups: Sequence[Sequence[Trajectory]] = merge_by_task(plan.choose(played, run.config.training.tasks))
    set_aside, not_admitted = list[SetAside](), list[SetAside]()
    if rounds.joining:
        groups, set_aside = join_groups(groups, rounds.joining)
    num_joined = sum(map(len, groups))
    cost, replayed, left_out = dict[str, float](), list[ReplayedRollout](), 0
    if algorithm.rollout_filters:
        groups, not_admitted = admit_rollouts(groups, algorithm.rollout_filters, draw=run.draw(number))
        set_aside += not_admitted
    if algorithm.scorers:
        groups, cost = run_scorers(run, number, groups)
    if algorithm.critic is not None:
        groups = value_states(run.learner, algorithm.critic, groups)
    if algorithm.scorers or algorithm.critic is not None:
        measured = {trajectory.id: trajectory for group in groups for trajectory in group}
        survivors = [measured.get(trajectory.id, trajectory) for trajectory in survivors]
    if algorithm.shapers:
        groups = [shape_group(group, algorithm.shapers) for group in groups]
    if algorithm.replay is not None:
        replayed, left_out = replay_rollouts(run, algorithm.replay, number, groups, set_aside)
    rollouts = UpdateRollouts(
        played=rounds.played,
        survivors=survivors,
        chosen=list(chain.from_iterable(groups)),
        replayed=replayed,
        left_out=left_out,
        set_aside=set_aside,
        request_words=rounds.request_words,
        rejected_fraction=len(not_admitted) / max(num_joined, 1) if algorithm.rollout_filters else None,
        waiting=rounds.waiting,
        played_in=rounds.played_in,
        scorer_costs=cost,
    )
    if not run.part_states.parts:
        return rollouts
    members = [*rollouts.chosen, *(past.trajectory for past in replayed if past.trajectory)]
    with run.state_lock:  # rollouts of later updates may read the states meanwhile
        return replace(rollouts, states=run.part_states.describe_before(members))


def _make_loss_error(
    number: int, plan: RolloutPlan, unhinted: Sequence[Trajectory], survivors: Sequence[Trajectory]
) -> ConfigError | TrainingError:
    """Too few rollouts without hints ended without an error."""
    if not unhinted:
        assert isinstance(plan, Part), "a slot is filled by parts"
        return ConfigError(
            f"update {number}: the plan {kind_of(type(plan))} asked for no rollout that shows what the policy can do "
            "alone; ask also for some without a hint, forced tokens or a temperature"
        )
    lost = [trajectory for trajectory in unhinted if not has_survived(trajectory)]
    causes = Counter(trajectory.error or trajectory.stop.value for trajectory in lost)
    listed = "; ".join(f"{count} x {cause}" for cause, count in causes.most_common(3))
    return TrainingError(
        f"update {number}: only {len(survivors)} of {len(unhinted)} rollouts survived ({listed}); fix the environment"
    )


def admit_rollouts(
    groups: Sequence[Sequence[Trajectory]], rollout_filters: Sequence[RolloutFilter], *, draw: Draw
) -> tuple[list[Sequence[Trajectory]], list[SetAside]]:
    """Apply the rollout filters: the groups that remain, without empty ones, and the rollouts that were dropped."""
    remaining, set_aside = list(groups), list[SetAside]()
    for rollout_filter in rollout_filters:
        assert isinstance(rollout_filter, Part), "a slot is filled by parts"
        name, before = kind_of(type(rollout_filter)), remaining
        remaining = [rollout_filter(group, draw=draw) for group in before]
        for group, admitted in zip(before, remaining, strict=True):
            ids = {id(member) for member in group}
            admitted_ids = {id(member) for member in admitted}
            if not admitted_ids <= ids or len(admitted_ids) != len(admitted):
                raise ConfigError(
                    f"the rollout filter {name}: of the {len(group)} rollouts of {group[0].task.id!r} it returned "
                    f"{len(admitted)}, not all of them from this group, or one twice; return some of the given "
                    "rollouts, unchanged"
                )
            set_aside += [
                SetAside(trajectory=member, by=f"the rollout filter {name}")
                for member in group
                if id(member) not in admitted_ids
            ]
        remaining = [group for group in remaining if group]
    return remaining, set_aside


def replay_rollouts(
    run: Run, replay: Replay, number: int, groups: Sequence[Sequence[Trajectory]], set_aside: Sequence[SetAside]
) -> tuple[list[ReplayedRollout], int]:
    """The past rollouts that join the groups, and the number of those left out because the policy changed too much.

    They are numbered after all other rollouts of their group, and marked as off-policy.
    """
    past_rollouts = run.journal.past_rollouts
    wanted = replay(groups, past_rollouts, version=number - 1, draw=run.draw(number))
    read = [(member, past_rollouts.read(member.past)) for member in wanted]
    pairs = [(step.prompt_ids, step.response_ids) for _, past in read for step in past.steps]
    scores = iter(run.engine.score(pairs, temperature=run.config.rollout.temperature))
    tasks = {trajectory.task.id: trajectory.task for group in groups for trajectory in group}
    following = Counter({group[0].task.id: max(trajectory.rollout for trajectory in group) + 1 for group in groups})
    for trajectory in (aside.trajectory for aside in set_aside):
        following[trajectory.task.id] = max(following[trajectory.task.id], trajectory.rollout + 1)
    members: list[ReplayedRollout] = []
    for member, past in read:
        distance, tokens, logps_now = 0.0, 0, list[tuple[float, ...]]()
        for step, now in zip(past.steps, islice(scores, len(past.steps)), strict=True):
            distance += sum(abs(a - b) for a, b in zip(now, step.logp_behaviour, strict=True))
            tokens += len(now)
            logps_now.append(tuple(now))
        log_ratio = distance / max(tokens, 1)
        is_near = replay.max_log_ratio is None or log_ratio <= replay.max_log_ratio
        if not is_near:
            continue
        trajectory = replace(
            past,
            task=tasks.get(member.task, past.task),
            rollout=following[member.task],
            origin=Origin.REPLAYED,
            off_policy=True,
            parent=past.id,
        )
        following[member.task] += 1
        members.append(
            replace(
                member,
                trajectory=trajectory,
                log_ratio=log_ratio,
                logps_now=tuple(logps_now) if member.ratio == "recomputed" else (),
                credit=past_rollouts.credit_of(member.past) if member.keeps_credit else (),
            )
        )
    # Those that are not compared come last.
    return sorted(members, key=attrgetter("keeps_credit")), len(read) - len(members)


MAX_ROUNDS = 256
"""Most rounds of an update: a plan that asks for more never ends."""


@dataclass
class PlayedRounds:
    """The rounds of an update so far."""

    number: int
    played: list[Trajectory] = field(default_factory=list)
    """Every rollout, errors included."""
    rounds: list[PlayedRound] = field(default_factory=list)
    """The rounds as the plan sees them, oldest first."""
    joining: list[Joining] = field(default_factory=list)
    """Rollouts with hints that join or replace those without."""
    tried: Counter[str] = field(default_factory=Counter)
    """Number of rollouts per task, by its id."""
    with_group: set[str] = field(default_factory=set)
    """Ids of the tasks that have rollouts without hints."""
    request_words: dict[tuple[str, int], str] = field(default_factory=dict)
    waiting: EnvTiming = field(default_factory=EnvTiming)
    played_in: float | None = None
    """Seconds of all rounds, if they were sampled ahead; else None."""


def play_rounds(run: Run, number: int, player: Player | None = None) -> PlayedRounds:
    """Sample rollouts until the plan asks for no more, with the run's own player or with that of a thread."""
    rounds, own, plan = PlayedRounds(number), player or run.player, run.config.plan
    assert isinstance(plan, Part), "a slot is filled by parts"
    where, tools = f"update {number}: the plan {kind_of(type(plan))}", RunPlanTools(run, number, own.prompter)
    while True:
        with ExitStack() as opened:
            journal = run.journal
            if player is not None:  # a thread cannot use the run's own SQLite connection
                journal = opened.enter_context(Journal(run.paths.journal, read_only=True))
            requests = plan.next(
                Played(update=number, rounds=tuple(rounds.rounds)),
                run.config.training.tasks,
                group_size=run.config.rollout.group_size,
                tools=tools,
                past_rollouts=journal.past_rollouts,
                draw=run.draw(number),
            )
            if not requests and not rounds.rounds:
                raise ConfigError(f"{where} asked for nothing in the first round; ask for at least one rollout")
            if requests and len(rounds.rounds) == MAX_ROUNDS:
                raise ConfigError(f"{where} still asked for more after {MAX_ROUNDS} rounds; return [] to end them")
            check_requests(
                plan,
                requests,
                is_known=tools.knows,
                tried=rounds.with_group,
                max_tokens=run.config.rollout.max_tokens,
                end_id=own.prompter.frame.end_id,
                vocabulary_size=run.learner.vocabulary_size,
            )
        if not requests:
            return rounds
        _play_round(run, requests, rounds, own)


def _play_round(run: Run, requests: Sequence[RolloutRequest], rounds: PlayedRounds, player: Player) -> None:
    """Run all requests of a round together, and sort the survivors by the group that they are compared with.

    If a task comes again within an update, it gets further rollouts with other seeds.
    """
    numbered: list[tuple[RolloutRequest, Task, int]] = []
    for request in requests:
        task = request.group_task
        first = rounds.tried[task.id]
        rounds.tried[task.id] += request.rollouts
        numbered += [(request, task, number) for number in range(first, rounds.tried[task.id])]
    seeds = seeds_of([(run.config.seed, "update", rounds.number, task.id, number) for _, task, number in numbered])
    rollouts = [
        Rollout(
            task=task,
            number=number,
            seed=seed,
            origin=request.origin,
            hint_text=request.hint_text,
            forced=request.forced,
            trains_forced=request.trains_forced,
            temperature=request.temperature,
            parent=request.parent,
        )
        for (request, task, number), seed in zip(numbered, seeds, strict=True)
    ]
    temperature = run.config.rollout.temperature
    played = player.play(rollouts, temperature=temperature, waiting=rounds.waiting)
    if any(map(attrgetter("forced"), rollouts)):
        played = score_forced(player.engine, rollouts, played, temperature)
    if run.measures_entropies:
        played = measure_entropies(run.learner, rollouts, played, temperature)
    rounds.played += played
    remaining = iter(played)
    groups, hinted, joining = list[list[Trajectory]](), list[list[Trajectory]](), list[list[Trajectory]]()
    for request in requests:
        scored: list[Trajectory] = []
        for trajectory in islice(remaining, request.rollouts):
            if not has_survived(trajectory):
                continue
            trajectory = score_trajectory(trajectory, run.config.rewards, read_response=player.prompter.text)
            if request.loss_context == "unhinted":
                trajectory = strip_hint(trajectory)
            if request.origin is Origin.HINTED:
                trajectory = replace(trajectory, off_policy=True)
            scored.append(trajectory)
        if words := request.describe():
            rounds.request_words |= {(trajectory.task.id, trajectory.rollout): words for trajectory in scored}
        if not request.is_hinted:
            rounds.with_group.add(request.task.id)
            groups.append(scored)
        elif request.joins == "own":
            hinted.append(scored)
        else:
            rounds.joining.append((request, scored))
            joining.append(scored)
    rounds.rounds.append(
        PlayedRound(
            requests=tuple(requests),
            groups=merge_by_task(groups),
            hinted=merge_by_task(hinted),
            joining=merge_by_task(joining),
        )
    )


@dataclass
class RunPlanTools:
    """What a run's plan can ask for: tasks, columns and the tokenizer."""

    run: Run
    number: int
    prompter: Prompter
    """Has the tokenizer; a sampling thread has a prompter of its own."""
    handed_out: set[str] = field(default_factory=set)
    """Ids of the curriculum's tasks for this update."""

    @property
    def tasks(self) -> Sequence[Task]:
        return self.run.tasks

    def fresh(self, num: int) -> list[Task]:
        if type(num) is not int or num < 0:
            raise ConfigError(f"the plan called tools.fresh({num!r}); give a whole number of tasks, 0 or more")
        with self.run.state_lock:
            tasks = self.run.drawn_tasks.draw(self.number, num, self.run.curriculum)
        self.handed_out.update(map(attrgetter("id"), tasks))
        return tasks

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, Mapping[str, float]]:
        """The columns of the run's stateful parts, by the name of the column and the id of the task."""
        with self.run.state_lock:
            return self.run.part_states.columns(tasks)

    def encode(self, text: str) -> tuple[int, ...]:
        return self.prompter.encode(text)

    def text(self, token_ids: Sequence[int]) -> str:
        return self.prompter.text(token_ids)

    def knows(self, task_id: str) -> bool:
        """Whether the curriculum gave a task, or the train set has it."""
        return task_id in self.handed_out or any(task.id == task_id for task in self.run.tasks)


def score_forced(
    engine: Engine, rollouts: Sequence[Rollout], played: Sequence[Trajectory], temperature: float
) -> list[Trajectory]:
    """Replace the zeros of forced tokens by the policy's own log-probs."""
    scored = list(played)
    numbers = [n for n, rollout in enumerate(rollouts) if rollout.forced and played[n].steps]
    for asked in sorted({rollouts[n].temperature or temperature for n in numbers}):
        alike = [n for n in numbers if (rollouts[n].temperature or temperature) == asked]
        pairs = [(played[n].steps[0].prompt_ids, rollouts[n].forced) for n in alike]
        for n, logps in zip(alike, engine.score(pairs, temperature=asked), strict=True):
            first, *rest = played[n].steps
            first = replace(first, logp_behaviour=(*logps, *first.logp_behaviour[len(logps) :]))
            scored[n] = replace(played[n], steps=(first, *rest))
    return scored


def measure_entropies(
    learner: Learner, rollouts: Sequence[Rollout], played: Sequence[Trajectory], temperature: float
) -> list[Trajectory]:
    """Add the entropies that the engine does not give, by the learner, which still has the weights that sampled.

    Forced tokens were not sampled: as with an engine, theirs is 0. Rollouts that ended with an error are left out.
    """
    assert isinstance(learner, GivesEntropies), "checked when the run was opened"
    whose, measured = f"the learner {type(learner).__name__}", list(played)
    numbers = [number for number, trajectory in enumerate(played) if has_survived(trajectory)]
    for asked in sorted({rollouts[n].temperature or temperature for n in numbers}):
        alike = [n for n in numbers if (rollouts[n].temperature or temperature) == asked]
        pairs = [(step.prompt_ids, step.response_ids) for n in alike for step in played[n].steps]
        entropies = iter(read_entropies(learner.entropies(pairs, temperature=asked), pairs, whose))
        for n in alike:
            steps = [replace(step, entropy=next(entropies)) for step in played[n].steps]
            if num := len(rollouts[n].forced):
                steps[0] = replace(steps[0], entropy=(0.0,) * num + steps[0].entropy[num:])
            measured[n] = replace(played[n], steps=tuple(steps))
    return measured
