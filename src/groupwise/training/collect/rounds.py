"""The rounds of an update: requested by the plan, played and scored, until the plan asks for no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice

from groupwise.credit import score_trajectory
from groupwise.data.records import Origin, Task, Trajectory, has_survived
from groupwise.data.seeds import seed_of
from groupwise.engines.engine import Engine
from groupwise.parts.part import Part, kind_of
from groupwise.rollout.environment_runner import EnvTiming
from groupwise.rollout.episodes import Attempt, Player
from groupwise.rollout.guidance import merge_by_task, strip_guidance
from groupwise.rollout.plans import AttemptPlan, AttemptRequest, Joining, Played, PlayedRound, check_requests
from groupwise.rollout.prompts import Prompter
from groupwise.store.attempt_index import PastAttempts
from groupwise.store.journal import Journal
from groupwise.system.errors import ConfigError
from groupwise.training.run import Run

MAX_ROUNDS = 256
"""Rounds after which a plan that still asks for more is taken for one that never ends."""


@dataclass
class PlayedRounds:
    """What the rounds of an update brought so far."""

    number: int
    """Of the update."""
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
    """What environments took."""
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
    """Of the update that the plan is for."""
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
