"""The rounds of an update: requested by the plan, played and scored, until the plan asks for no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
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


@dataclass(frozen=True, kw_only=True)
class Playground:
    """What rounds are played with, and where the plan reads; a thread that plays has one of its own."""

    player: Player
    """Plays the attempts."""
    tools: RunPlanTools
    """What the plan may ask for."""
    open_past_attempts: Callable[[], AbstractContextManager[PastAttempts]]
    """Opens the past attempts for the plan to read in a round."""

    @classmethod
    def of(cls, run: Run, number: int) -> Playground:
        """The run's own, for whoever plays while nothing else happens."""
        return cls(
            player=run.player,
            tools=RunPlanTools(run, number, run.prompter),
            open_past_attempts=lambda: nullcontext(run.journal.past_attempts),
        )

    @classmethod
    def of_thread(cls, run: Run, number: int, player: Player) -> Playground:
        """One for a thread, which has a player of its own and its own way to the past attempts."""
        return cls(
            player=player,
            tools=RunPlanTools(run, number, player.prompter),
            open_past_attempts=partial(_open_past_attempts, run),
        )


def play_rounds(run: Run, number: int, playground: Playground | None = None) -> PlayedRounds:
    """Play attempts until the plan asks for no more; None = with what the run itself has."""
    playground = playground or Playground.of(run, number)
    rounds = PlayedRounds(number)
    while requests := _next_requests(run, rounds, playground):
        _play_round(run, requests, rounds, playground.player)
    return rounds


def play_for_update(
    player: Player, attempts: Sequence[Attempt], *, temperature: float, waiting: EnvTiming | None = None
) -> list[Trajectory]:
    """Play attempts; tokens forced on them get the policy's own log-probs. `waiting` is told what environments took."""
    played = player.play(attempts, temperature=temperature, waiting=waiting)
    return score_forced(player.engine, attempts, played, temperature)


@contextmanager
def _open_past_attempts(run: Run) -> Iterator[PastAttempts]:
    """Open the past attempts for a thread: SQLite lets no other use the run's own connection."""
    with Journal(run.paths.journal, read_only=True) as journal:
        yield journal.past_attempts


def _next_requests(run: Run, rounds: PlayedRounds, playground: Playground) -> Sequence[AttemptRequest]:
    plan: AttemptPlan = run.config.plan
    assert isinstance(plan, Part), "a slot is filled by parts"
    with playground.open_past_attempts() as past_attempts:
        requests = plan.next(
            Played(update=rounds.number, rounds=tuple(rounds.rounds)),
            run.config.training.tasks,
            tools=playground.tools,
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
        is_known=playground.tools.knows,
        attempted={trajectory.task.id for trajectory in rounds.played if trajectory.origin is Origin.FRESH},
        max_tokens=run.config.rollout.max_tokens,
        end_id=playground.player.prompter.frame.end_id,
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


def prepare_to_train(request: AttemptRequest, trajectory: Trajectory) -> Trajectory:
    """Give an attempt the prompt that its request lets it train with, and mark it where that makes it off-policy."""
    if request.loss_context == "unguided":
        trajectory = strip_guidance(trajectory)
    return replace(trajectory, off_policy=True) if request.origin is Origin.GUIDED else trajectory


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
