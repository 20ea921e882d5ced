"""Attempt plans: who is attempted in an update, how often and with what guidance, and which groups are compared."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Protocol, get_args

from pydantic import Field

from groupwise.data.records import Origin, SetAside, Task, Trajectory, score_of
from groupwise.parts.part import Part, Slot, kind_of
from groupwise.parts.slots import Draw, GuidancePart
from groupwise.store.attempt_index import PastAttempts
from groupwise.system.errors import ConfigError

Group = Sequence[Trajectory]
"""The attempts at one task that ended without a fault, scored."""


@dataclass(frozen=True, kw_only=True)
class PlayedRound:
    """What came of the requests of one round."""

    requests: Sequence[AttemptRequest] = ()
    """What was asked for."""
    groups: Sequence[Group] = ()
    """The unguided attempts, by task."""
    guided: Sequence[Group] = ()
    """The guided attempts that are compared with one another, by their prompt."""
    joining: Sequence[Group] = ()
    """The guided attempts that join or replace unguided ones, by task."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """What an update has played so far."""

    update: int
    """Number of the update."""
    rounds: Sequence[PlayedRound] = ()
    """Its rounds, oldest first."""

    @property
    def groups(self) -> list[Group]:
        """The unguided groups of all rounds; a task that came twice has two."""
        return [group for played in self.rounds for group in played.groups]

    @property
    def guided(self) -> list[Group]:
        """The groups of all rounds that are compared with one another alone."""
        return [group for played in self.rounds for group in played.guided]


class PlanTools(Protocol):
    """What a plan may ask of its run: fresh tasks, the whole panel, and the tokenizer."""

    @property
    def tasks(self) -> Sequence[Task]:
        """The whole training panel."""

    def fresh(self, num: int) -> list[Task]:
        """The next tasks of the run's curriculum, which goes on by as many."""

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, Mapping[str, float]]:
        """What stateful parts know of tasks, by the name of the column and the id of the task."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a text, to be forced."""

    def text(self, token_ids: Sequence[int]) -> str:
        """What a response says."""


class AttemptPlan(Protocol):
    """Fills the slot `plan`: says which tasks are attempted, how often and with what guidance, and which groups count.

    One that says words of its own in guidance also has `words()`, as a template has.
    """

    @property
    def attempts(self) -> int:
        """Attempts that a task gets as a rule, for estimates and for parts that need a certain number."""

    def next(
        self, played: Played, wanted: int, *, tools: PlanTools, past_attempts: PastAttempts, draw: Draw
    ) -> list[AttemptRequest]:
        """What to attempt in the next round; nothing = the update has enough.

        Args:
            played: the rounds of this update so far.
            wanted: `training.tasks`, the groups an update should have.
            tools: what the run can be asked for, such as fresh tasks.
            past_attempts: the attempts of earlier updates, by task.
            draw: random generators by name; the same name gives the same numbers, also after a resume.
        """

    def choose(self, played: Played, wanted: int) -> list[Group]:
        """The groups that go on to be compared, once there are enough."""


class Flat(Part, slot="plan"):
    """The same number of attempts at every task, and that is it."""

    attempts: Annotated[int, Field(ge=2)] = 8
    """Attempts at each task."""
    reads_past_attempts: ClassVar[bool] = False

    def next(
        self, played: Played, wanted: int, *, tools: PlanTools, past_attempts: PastAttempts, draw: Draw
    ) -> list[AttemptRequest]:
        tasks = [] if played.rounds else tools.fresh(wanted)
        return [AttemptRequest(task=task, attempts=self.attempts) for task in tasks]

    def choose(self, played: Played, wanted: int) -> list[Group]:
        return [*played.groups, *played.guided]


class TopUp(Part, slot="plan"):
    """Leave out the groups whose attempts all did equally well, and attempt further tasks in their place.

    Source: dynamic sampling of DAPO (Yu et al. 2025, arXiv:2503.14476): keep a group iff 0 < solved < n, and sample on
    until the batch is full. Choices: a round asks for as many tasks as are missing, not for a whole batch again; what
    is compared is the score `of`, or the return where attempts have no such score, so that a length penalty does not
    make equal answers differ; after `rounds` rounds the update goes on with what there is.
    """

    drops_solved_groups: ClassVar[bool] = True
    """It leaves out tasks that every attempt solved."""
    attempts: Annotated[int, Field(ge=2)] = 8
    """Attempts at each task."""
    rounds: Annotated[int, Field(ge=1)] = 4
    """Most rounds of an update; the first one is counted."""
    of: str = "success"
    """The score that must differ within a group."""
    reads_past_attempts: ClassVar[bool] = False

    def next(
        self, played: Played, wanted: int, *, tools: PlanTools, past_attempts: PastAttempts, draw: Draw
    ) -> list[AttemptRequest]:
        missing = wanted - sum(map(self._teaches, played.groups))
        if len(played.rounds) == self.rounds or missing <= 0:
            return []
        return [AttemptRequest(task=task, attempts=self.attempts) for task in tools.fresh(missing)]

    def choose(self, played: Played, wanted: int) -> list[Group]:
        """The first `wanted` that teach something; where none does, all of them, so that the update says so."""
        teaching = [group for group in played.groups if self._teaches(group)][:wanted]
        return [*(teaching or played.groups), *played.guided]

    def _teaches(self, group: Group) -> bool:
        return len({trajectory.scores.get(self.of, trajectory.scores["return"]) for trajectory in group}) > 1


PlanSlot = Annotated[AttemptPlan, Slot("plan")]
"""A field of a run file that an attempt plan fills."""


# Attempt requests: what a plan asks for, and what is wrong with a request that cannot be played.

MARK = "~"
"""Parts the id of a task from that of the guidance with which it was attempted."""

Joins = Literal["own", "unguided", "replaces_one", "replaces_group"]
"""Whom guided attempts are compared with.

own: one another; another prompt is another problem.
unguided: the unguided attempts at the task, beside them.
replaces_one: those too, each in the place of the unguided attempt of lowest score, where it scored higher.
replaces_group: one another and guided ones that joined before, in the place of all unguided attempts at the task.
"""

TrainingPrompt = Literal["given", "unguided"]
"""Which prompt a guided attempt trains with: the one it was given, or the same without the guidance."""


@dataclass(frozen=True, kw_only=True)
class AttemptRequest:
    """Some attempts at one task, all of one kind.

    Worked example: `AttemptRequest(task=task, attempts=4, guidance_text="Look in the drawer.", joins="unguided",
    loss_context="unguided")` plays four attempts whose prompts begin with the hint; they are compared with the
    unguided attempts at the task, and train as if they had never seen the hint.

    A request is unguided where it asks for nothing but a task and a number of attempts; any other is guided.
    """

    task: Task
    """A task of the training panel."""
    attempts: int
    """How many attempts to play, at least 1."""
    guidance_text: str = ""
    """What prompts begin with, after the instruction; empty = the task alone."""
    forced: tuple[int, ...] = ()
    """Token ids that the first response begins with; the policy samples what comes after them."""
    trains_forced: bool = False
    """Whether the forced tokens train like sampled ones."""
    temperature: float | None = None
    """Divides the logits instead of `rollout.temperature`; None = that one."""
    joins: Joins = "own"
    """Whom the attempts are compared with; an unguided request always joins its task's group."""
    loss_context: TrainingPrompt = "given"
    """Which prompt the attempts train with."""
    why: str = ""
    """What the plan wants the attempts for, for whoever inspects them."""
    parent: str | None = None
    """Id of the attempt that the guidance was made of: one of this update, or of a past attempt that was read."""

    @cached_property
    def is_guided(self) -> bool:
        """Whether its attempts say nothing of how the policy does at the task by itself."""
        return bool(self.guidance_text or self.forced) or self.temperature is not None

    @cached_property
    def origin(self) -> Origin:
        """What its attempts are recorded as.

        An attempt that joins others, or that another distribution sampled than the one that learns, is `guided`: its
        ratio is taken against the log-probs that it was sampled with. One that trains with the prompt it was given,
        compared with its like, is `reflected`.
        """
        if not self.is_guided:
            return Origin.FRESH
        is_as_sampled = self.temperature is None and self.loss_context == "given" and not self.trains_forced
        return Origin.REFLECTED if is_as_sampled and self.joins == "own" else Origin.GUIDED

    @cached_property
    def group_task(self) -> Task:
        """The task whose group the attempts are numbered and compared in; that of a group of its own has another id."""
        if not self.is_guided or self.joins != "own":
            return self.task
        identity = self.guidance_text
        if self.forced or self.temperature is not None:
            identity += f"{MARK}{self.forced}{MARK}{self.temperature}"
        digest = hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()
        return replace(self.task, id=f"{self.task.id}{MARK}{digest}")

    def describe(self) -> str:
        """The request in words, beside its task and guidance; empty where the origin of its attempts says it all."""
        forced = f"{len(self.forced)} forced token{'' if len(self.forced) == 1 else 's'}"
        words = [
            self.why,
            "" if self.temperature is None else f"temperature {self.temperature}",
            forced + (" that train" if self.trains_forced else "") if self.forced else "",
            "" if self.joins == "own" else f"joins {self.joins}",
            "trains without its guidance" if self.loss_context == "unguided" else "",
        ]
        return "; ".join(filter(None, words))


def check_requests(
    plan: Part,
    requests: Sequence[AttemptRequest],
    *,
    is_known: Callable[[str], bool],
    attempted: Collection[str],
    max_tokens: int,
    end_id: int,
    vocabulary_size: int,
) -> None:
    """Refuse requests that cannot be played, in a sentence that names the plan.

    `is_known` tells whether the task of an id may be attempted, `attempted` has the ids of the tasks with unguided
    attempts in earlier rounds of the update.
    """
    where = f"the plan {kind_of(type(plan))}: its request"
    for request in requests:
        if fault := _find_type_fault(request, vocabulary_size):
            raise ConfigError(f"{where} {fault}")
    with_group = {*attempted, *[request.task.id for request in requests if not request.is_guided]}
    for request in requests:
        if fault := _find_fault(request, is_known, with_group, max_tokens, end_id):
            raise ConfigError(f"{where} for task {request.task.id!r} {fault}")


def _find_type_fault(request: AttemptRequest, vocabulary_size: int) -> str | None:
    if not isinstance(request.task, Task):
        return f"has task={request.task!r}; give a Task, as tools.fresh and tools.tasks have them"
    where = f"for task {request.task.id!r} has"
    if not isinstance(request.forced, tuple):
        return f"{where} forced={request.forced!r}; give a tuple of token ids, as tools.encode makes them of a text"
    for token in request.forced:
        if type(token) is int and token >= vocabulary_size:
            return (
                f"{where} the forced token {token}, but the model knows ids below {vocabulary_size}; force what "
                "tools.encode makes of a text"
            )
    temperature = request.temperature
    if temperature is not None and (not isinstance(temperature, int | float) or isinstance(temperature, bool)):
        return f"{where} temperature={temperature!r}; give a number above 0, or none for rollout.temperature"
    if request.parent is not None and not isinstance(request.parent, str):
        return f"{where} parent={request.parent!r}; give the id of a trajectory, as text, or none"
    return None


def _find_fault(
    request: AttemptRequest, is_known: Callable[[str], bool], with_group: Collection[str], max_tokens: int, end_id: int
) -> str | None:
    if not is_known(request.task.id):
        return "is for a task that the training panel does not have; take tasks from tools.fresh or tools.tasks"
    if type(request.attempts) is not int or request.attempts < 1:
        return f"has attempts={request.attempts!r}; ask for at least 1, or leave the request out"
    if not isinstance(request.guidance_text, str) or not isinstance(request.why, str):
        return "has a guidance_text or a why that is not text; give text, empty for none"
    if request.joins not in get_args(Joins) or request.loss_context not in get_args(TrainingPrompt):
        return (
            f"has joins={request.joins!r} and loss_context={request.loss_context!r}; joins is one of "
            f"{', '.join(get_args(Joins))}, loss_context one of {', '.join(get_args(TrainingPrompt))}"
        )
    if request.loss_context == "unguided" and not request.guidance_text:
        return "has loss_context='unguided' and no guidance_text; leave loss_context out"
    if request.joins != "own" and not request.is_guided:
        return f"has joins={request.joins!r}, but nothing that guides it; leave joins out"
    if request.joins != "own" and request.task.id not in with_group:
        return (
            f"has joins={request.joins!r}, but the update has no unguided attempts at the task to join; ask for some "
            "in the same round or an earlier one"
        )
    if request.trains_forced and not request.forced:
        return "has trains_forced and nothing forced; leave trains_forced out"
    if not all(type(token) is int and token >= 0 for token in request.forced):
        return f"has forced={request.forced!r}; give token ids, as tools.encode makes them of a text"
    if len(request.forced) >= max_tokens:
        return (
            f"forces {len(request.forced)} tokens, and rollout.max_tokens is {max_tokens}, so that none is left to "
            "sample; force fewer, or raise rollout.max_tokens"
        )
    if end_id in request.forced:
        return f"forces the token {end_id}, which ends a response, so that none is left to sample; leave it out"
    if request.temperature is not None and not (math.isfinite(request.temperature) and request.temperature > 0):
        return f"has temperature={request.temperature}; give a number above 0, or none for rollout.temperature"
    return None


# Guided attempts that join the unguided ones at their task, or take the place of some.

Joining = tuple[AttemptRequest, Sequence[Trajectory]]
"""A request whose attempts join others, and those of its attempts that ended without a fault."""


def join_groups(groups: Sequence[Group], joining: Sequence[Joining]) -> tuple[list[list[Trajectory]], list[SetAside]]:
    """Let guided attempts join the groups, in the order of the requests; the groups, and who lost their place.

    Where the plan did not choose the group of their task, or nobody in it survived, guided attempts join nobody.
    """
    group_of = {group[0].task.id: list(group) for group in groups}
    set_aside: list[SetAside] = []
    for request, attempts in joining:
        group = group_of.get(request.task.id)
        if group is None:
            by = "the plan: the group it was to join is not there"
            set_aside += [SetAside(trajectory=attempt, by=by) for attempt in attempts]
        elif request.joins == "unguided":
            group += attempts
        elif request.joins == "replaces_one":
            set_aside += _replace_one(group, attempts)
        elif attempts:  # guided ones that joined before stay, and so does everybody where none survived
            by = f"the plan: the guided attempts from {attempts[0].attempt} on took its place"
            set_aside += [SetAside(trajectory=member, by=by) for member in group if member.origin is Origin.FRESH]
            group[:] = [*(member for member in group if member.origin is not Origin.FRESH), *attempts]
    return list(group_of.values()), set_aside


def _replace_one(group: list[Trajectory], attempts: Sequence[Trajectory]) -> list[SetAside]:
    """Let each take the place of the unguided attempt of lowest score, of several the last, where it scored higher."""
    set_aside = []
    for attempt in attempts:
        unguided = [member for member in group if member.origin is Origin.FRESH]
        lowest = min(unguided, key=lambda member: (score_of(member), -member.attempt), default=None)
        if lowest is None or score_of(attempt) <= score_of(lowest):
            set_aside.append(SetAside(trajectory=attempt, by="the plan: no unguided attempt scored lower"))
            continue
        group.remove(lowest)
        group.append(attempt)
        set_aside.append(SetAside(trajectory=lowest, by=f"the plan: attempt {attempt.attempt} took its place"))
    return set_aside


# A plan with guidance: the attempts of another plan, and beside them attempts with guidance in their prompt.


class Guided(Part, slot="plan"):
    """Another plan, with a further group for each of its tasks that the guidance chooses.

    A recipe's `algorithm.guidance` makes this plan of `rollout.plan`; a run file may also name it.
    """

    plan: PlanSlot
    """Who is attempted without guidance."""
    guidance: GuidancePart
    """Which of these tasks are also attempted with guidance, and what it says."""

    @property
    def attempts(self) -> int:
        return self.plan.attempts

    def words(self) -> tuple[str, ...]:
        return (*plan_words(self.plan), *self.guidance.words())

    def next(
        self, played: Played, wanted: int, *, tools: PlanTools, past_attempts: PastAttempts, draw: Draw
    ) -> list[AttemptRequest]:
        requests = self.plan.next(played, wanted, tools=tools, past_attempts=past_attempts, draw=draw)
        by_id = {request.task.id: request.task for request in requests if not request.is_guided}
        guided = []
        for past in self.guidance.choose(list(by_id), past_attempts, draw=draw):
            source = past_attempts.read(past)
            guided.append(
                AttemptRequest(
                    task=by_id[past.task],
                    attempts=self.attempts,
                    guidance_text=self.guidance.text(source, tools.text),
                    parent=source.id,
                )
            )
        return [*requests, *guided]

    def choose(self, played: Played, wanted: int) -> list[Group]:
        groups = self.plan.choose(played, wanted)
        merged = merge_by_task(groups)
        group_of = {group[0].task.id: group for group in merged}
        joining = [trajectory for turn in played.rounds for group in turn.joining for trajectory in group]
        copies: dict[str, list[Trajectory]] = {}
        for trajectory in (trajectory for group in merged for trajectory in group):
            unguided = group_of.get(trajectory.task.id.rpartition(MARK)[0])
            if trajectory.origin is not Origin.REFLECTED or unguided is None:
                continue
            if not self.guidance.joins_unguided_group(trajectory):
                continue
            # A copy as if sampled without guidance, numbered after all at the task that it joins.
            task = unguided[0].task
            joined = copies.setdefault(task.id, [])
            numbers = [member.attempt for member in (*unguided, *joining) if member.task.id == task.id]
            joined.append(
                replace(
                    strip_guidance(trajectory),
                    id=f"{trajectory.id}{MARK}",
                    task=task,
                    attempt=max(numbers) + 1 + len(joined),
                    origin=Origin.GUIDED,
                    off_policy=True,
                    parent=trajectory.id,
                )
            )
        return [*groups, *copies.values()]


def strip_guidance(trajectory: Trajectory) -> Trajectory:
    """Give an attempt the prompts that it would have had without guidance; its responses stay."""
    steps = [replace(step, prompt_ids=step.unguided_prompt_ids, unguided_prompt_ids=()) for step in trajectory.steps]
    return replace(trajectory, steps=tuple(steps))


def merge_by_task(groups: Sequence[Group]) -> list[list[Trajectory]]:
    """Make one group of each task: a task that came in several rounds is compared as a whole."""
    merged: dict[str, list[Trajectory]] = {}
    for group in groups:
        for trajectory in group:
            merged.setdefault(trajectory.task.id, []).append(trajectory)
    return list(merged.values())


def plan_words(plan: object) -> tuple[str, ...]:
    """The words that a plan says beside the environment's own; most say none."""
    words = getattr(plan, "words", None)
    return tuple(words()) if words else ()
