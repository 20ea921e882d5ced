"""Plans: which tasks get rollouts in an update, how many and with which hint, and which groups are compared."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Protocol, get_args

from groupwise.data.records import Origin, SetAside, Task, Trajectory, score_of
from groupwise.parts.part import Count, Part, Slot, kind_of
from groupwise.parts.slots import Draw, HintPart
from groupwise.store.rollout_index import PastRollouts
from groupwise.system.errors import ConfigError

Group = Sequence[Trajectory]
"""The rollouts of one task that ended without a fault, scored."""


@dataclass(frozen=True, kw_only=True)
class PlayedRound:
    """The results of the requests of one round."""

    requests: Sequence[RolloutRequest] = ()
    """The requests."""
    groups: Sequence[Group] = ()
    """The rollouts without a hint, by task."""
    hinted: Sequence[Group] = ()
    """The rollouts with a hint that are compared with each other, by prompt."""
    joining: Sequence[Group] = ()
    """The rollouts with a hint that join or replace those without, by task."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """The rounds of an update so far."""

    update: int
    """Number of the update."""
    rounds: Sequence[PlayedRound] = ()
    """Its rounds, oldest first."""

    @property
    def groups(self) -> list[Group]:
        """The groups without a hint of all rounds; a task that came twice has two."""
        return [group for played in self.rounds for group in played.groups]

    @property
    def hinted(self) -> list[Group]:
        """The groups with a hint of all rounds, each compared on its own."""
        return [group for played in self.rounds for group in played.hinted]


class PlanTools(Protocol):
    """What a plan may use: new tasks, the train set, and the tokenizer."""

    @property
    def tasks(self) -> Sequence[Task]:
        """The whole train set."""

    def fresh(self, num: int) -> list[Task]:
        """The next tasks of the run's curriculum."""

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, Mapping[str, float]]:
        """What stateful parts know about tasks, by column name and task id."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a text, for forced tokens."""

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of a response."""


class RolloutPlan(Protocol):
    """Fills the slot `plan`: chooses tasks, their number of rollouts and hints, and the groups that are compared.

    A plan whose hints have words of their own also has `words()`, like a template.
    """

    def next(
        self, played: Played, wanted: int, *, group_size: int, tools: PlanTools, past_rollouts: PastRollouts, draw: Draw
    ) -> list[RolloutRequest]:
        """The requests of the next round; empty = the update has enough.

        Args:
            played: the rounds of this update so far.
            wanted: `training.tasks`, the number of groups of an update.
            group_size: `rollout.group_size`, the number of rollouts per task.
            tools: functions of the run, such as new tasks.
            past_rollouts: the rollouts of earlier updates, by task.
            draw: random generators by name; the same name gives the same numbers, also after a resume.
        """

    def choose(self, played: Played, wanted: int) -> list[Group]:
        """The groups that are compared, once there are enough."""


class Flat(Part, slot="plan"):
    """The same number of rollouts for every task."""

    reads_past_rollouts: ClassVar[bool] = False

    def next(
        self, played: Played, wanted: int, *, group_size: int, tools: PlanTools, past_rollouts: PastRollouts, draw: Draw
    ) -> list[RolloutRequest]:
        tasks = [] if played.rounds else tools.fresh(wanted)
        return [RolloutRequest(task=task, rollouts=group_size) for task in tasks]

    def choose(self, played: Played, wanted: int) -> list[Group]:
        return [*played.groups, *played.hinted]


class TopUp(Part, slot="plan"):
    """Drop zero-variance groups, and sample further tasks instead.

    Source: dynamic sampling of DAPO (Yu et al. 2025, arXiv:2503.14476): keep a group iff 0 < solved < n, and sample
    until the batch is full. Choices: a round requests only as many tasks as are missing, not a whole batch. The score
    `of` is compared, or the return if rollouts lack that score, so that a length penalty does not make equal answers
    differ. After `rounds` rounds the update continues with the groups it has.
    """

    drops_solved_groups: ClassVar[bool] = True
    """It drops tasks that every rollout solved."""
    rounds: Count = 4
    """Maximum number of rounds of an update, with the first one."""
    of: str = "success"
    """The score that must differ within a group."""
    reads_past_rollouts: ClassVar[bool] = False

    def next(
        self, played: Played, wanted: int, *, group_size: int, tools: PlanTools, past_rollouts: PastRollouts, draw: Draw
    ) -> list[RolloutRequest]:
        missing = wanted - sum(map(self._teaches, played.groups))
        if len(played.rounds) == self.rounds or missing <= 0:
            return []
        return [RolloutRequest(task=task, rollouts=group_size) for task in tools.fresh(missing)]

    def choose(self, played: Played, wanted: int) -> list[Group]:
        """The first `wanted` groups with a learning signal; if there is none, all groups, so that metrics show it."""
        teaching = [group for group in played.groups if self._teaches(group)][:wanted]
        return [*(teaching or played.groups), *played.hinted]

    def _teaches(self, group: Group) -> bool:
        return len({trajectory.scores.get(self.of, trajectory.scores["return"]) for trajectory in group}) > 1


PlanSlot = Annotated[RolloutPlan, Slot("plan")]
"""A run-file field for a plan."""


# Rollout requests of a plan, and their checks.

MARK = "~"
"""Separates the id of a task from the digest of the hint."""

Joins = Literal["own", "unhinted", "replaces_one", "replaces_group"]
"""Which rollouts are compared with those with a hint.

own: only each other, because another prompt is another problem.
unhinted: the rollouts of the task without a hint, too.
replaces_one: these too; each replaces the rollout without a hint that has the lowest score, if its own is higher.
replaces_group: each other and rollouts with a hint that joined before; they replace all rollouts without a hint.
"""

TrainingPrompt = Literal["given", "unhinted"]
"""The prompt that a rollout with a hint trains with: the given one, or the same without the hint."""


@dataclass(frozen=True, kw_only=True)
class RolloutRequest:
    """A request for rollouts of one task, all with the same hint and settings.

    Worked example: `RolloutRequest(task=task, rollouts=4, hint_text="Look in the drawer.", joins="unhinted",
    loss_context="unhinted")` runs four rollouts whose prompts begin with the hint. They are compared with the rollouts
    without a hint, and train with the prompt without the hint.

    A request is hinted if it has a hint, forced tokens or a temperature.
    """

    task: Task
    """A task of the train set."""
    rollouts: int
    """Number of rollouts, at least 1."""
    hint_text: str = ""
    """The hint: prompts begin with it, after the instruction; empty = no hint."""
    forced: tuple[int, ...] = ()
    """Token ids that the first response begins with; the policy samples the rest."""
    trains_forced: bool = False
    """Whether the forced tokens train like sampled ones."""
    temperature: float | None = None
    """Sampling temperature; None = `rollout.temperature`."""
    joins: Joins = "own"
    """Which rollouts they are compared with; a request without a hint always joins its task's group."""
    loss_context: TrainingPrompt = "given"
    """The prompt that the rollouts train with."""
    why: str = ""
    """Why the plan requests them; shown in reports."""
    parent: str | None = None
    """Id of the rollout that the hint was made of: one of this update, or a past one that was read."""

    @cached_property
    def is_hinted(self) -> bool:
        """Whether it has a hint, forced tokens or a temperature of its own."""
        return bool(self.hint_text or self.forced) or self.temperature is not None

    @cached_property
    def origin(self) -> Origin:
        """The origin of its rollouts.

        Rollouts that join others, or that were sampled from another distribution than they train with, are `hinted`:
        their ratio divides by the recorded log-probs. Rollouts that train with the given prompt and are compared only
        with each other are `reflected`.
        """
        if not self.is_hinted:
            return Origin.FRESH
        is_as_sampled = self.temperature is None and self.loss_context == "given" and not self.trains_forced
        return Origin.REFLECTED if is_as_sampled and self.joins == "own" else Origin.HINTED

    @cached_property
    def group_task(self) -> Task:
        """The task in whose group the rollouts are numbered and compared; a group of its own has another id."""
        if not self.is_hinted or self.joins != "own":
            return self.task
        identity = self.hint_text
        if self.forced or self.temperature is not None:
            identity += f"{MARK}{self.forced}{MARK}{self.temperature}"
        digest = hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()
        return replace(self.task, id=f"{self.task.id}{MARK}{digest}")

    def describe(self) -> str:
        """The request in words, without its task and hint; empty if the origin of its rollouts says it all."""
        forced = f"{len(self.forced)} forced token{'' if len(self.forced) == 1 else 's'}"
        words = [
            self.why,
            "" if self.temperature is None else f"temperature {self.temperature}",
            forced + (" that train" if self.trains_forced else "") if self.forced else "",
            "" if self.joins == "own" else f"joins {self.joins}",
            "trains without its hint" if self.loss_context == "unhinted" else "",
        ]
        return "; ".join(filter(None, words))


def check_requests(
    plan: Part,
    requests: Sequence[RolloutRequest],
    *,
    is_known: Callable[[str], bool],
    tried: Collection[str],
    max_tokens: int,
    end_id: int,
    vocabulary_size: int,
) -> None:
    """Raise an error that names the plan for requests that cannot be run.

    `is_known` says whether a task id is in the train set. `tried` has the ids of the tasks with rollouts without a
    hint in earlier rounds of the update.
    """
    where, with_group = f"the plan {kind_of(type(plan))}: its request", set(tried)
    for request in requests:
        if not isinstance(request.task, Task):
            raise ConfigError(
                f"{where} has task={request.task!r}; give a Task, as tools.fresh and tools.tasks have them"
            )
        if not request.is_hinted:
            with_group.add(request.task.id)
    for request in requests:
        if fault := _find_fault(request, is_known, with_group, max_tokens, end_id, vocabulary_size):
            raise ConfigError(f"{where} for task {request.task.id!r} {fault}")


def _find_fault(
    request: RolloutRequest,
    is_known: Callable[[str], bool],
    with_group: Collection[str],
    max_tokens: int,
    end_id: int,
    vocabulary_size: int,
) -> str | None:
    temperature = request.temperature
    if not isinstance(request.forced, tuple):
        return f"has forced={request.forced!r}; give a tuple of token ids, as tools.encode makes them of a text"
    if request.parent is not None and not isinstance(request.parent, str):
        return f"has parent={request.parent!r}; give the id of a trajectory, as text, or none"
    if not is_known(request.task.id):
        return "is for a task that the training task set does not have; take tasks from tools.fresh or tools.tasks"
    if type(request.rollouts) is not int or request.rollouts < 1:
        return f"has rollouts={request.rollouts!r}; ask for at least 1, or leave the request out"
    if not isinstance(request.hint_text, str) or not isinstance(request.why, str):
        return "has a hint_text or a why that is not text; give text, empty for none"
    if request.joins not in get_args(Joins) or request.loss_context not in get_args(TrainingPrompt):
        return (
            f"has joins={request.joins!r} and loss_context={request.loss_context!r}; joins is one of "
            f"{', '.join(get_args(Joins))}, loss_context one of {', '.join(get_args(TrainingPrompt))}"
        )
    if request.loss_context == "unhinted" and not request.hint_text:
        return "has loss_context='unhinted' and no hint_text; leave loss_context out"
    if request.joins != "own" and not request.is_hinted:
        return f"has joins={request.joins!r}, but nothing that guides it; leave joins out"
    if request.joins != "own" and request.task.id not in with_group:
        return (
            f"has joins={request.joins!r}, but the update has no unhinted rollouts at the task to join; ask for some "
            "in the same round or an earlier one"
        )
    if request.trains_forced and not request.forced:
        return "has trains_forced and nothing forced; leave trains_forced out"
    if request.forced and not all(type(token) is int and token >= 0 for token in request.forced):
        return f"has forced={request.forced!r}; give token ids, as tools.encode makes them of a text"
    if request.forced and (largest := max(request.forced)) >= vocabulary_size:
        return (
            f"has the forced token {largest}, but the model knows ids below {vocabulary_size}; force what "
            "tools.encode makes of a text"
        )
    if len(request.forced) >= max_tokens:
        return (
            f"forces {len(request.forced)} tokens, and rollout.max_tokens is {max_tokens}, so that none is left to "
            "sample; force fewer, or raise rollout.max_tokens"
        )
    if end_id in request.forced:
        return f"forces the token {end_id}, which ends a response, so that none is left to sample; leave it out"
    is_number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
    if temperature is not None and not (is_number and 0 < temperature < math.inf):
        return f"has temperature={temperature!r}; give a number above 0, or none for rollout.temperature"
    return None


# Rollouts with a hint that join those without a hint, or replace some.

Joining = tuple[RolloutRequest, Sequence[Trajectory]]
"""A request whose rollouts join others, and its rollouts that ended without a fault."""


def join_groups(groups: Sequence[Group], joining: Sequence[Joining]) -> tuple[list[list[Trajectory]], list[SetAside]]:
    """Add rollouts with a hint to the groups, in the order of the requests; returns groups and dropped rollouts.

    If the plan did not choose the group of their task, or the group is empty, the rollouts with a hint are dropped.
    """
    group_of: dict[str, list[Trajectory]] = {}
    for chosen in groups:
        group_of[chosen[0].task.id] = list(chosen)
    set_aside: list[SetAside] = []
    for request, rollouts in joining:
        group = group_of.get(request.task.id)
        if group is None:
            by = "the plan: the group it was to join is not there"
            set_aside += [SetAside(trajectory=rollout, by=by) for rollout in rollouts]
        elif request.joins == "unhinted":
            group += rollouts
        elif request.joins == "replaces_one":
            set_aside += _replace_one(group, rollouts)
        elif rollouts:  # rollouts with a hint that joined before stay; if none survived, all stay
            by = f"the plan: the hinted rollouts from {rollouts[0].rollout} on took its place"
            set_aside += [SetAside(trajectory=member, by=by) for member in group if member.origin is Origin.FRESH]
            group[:] = [*(member for member in group if member.origin is not Origin.FRESH), *rollouts]
    return list(group_of.values()), set_aside


def _replace_one(group: list[Trajectory], rollouts: Sequence[Trajectory]) -> list[SetAside]:
    """Let each replace the rollout without a hint with the lowest score (the last of several), if its own is higher."""
    set_aside = []
    for rollout in rollouts:
        unhinted = [member for member in group if member.origin is Origin.FRESH]
        lowest = min(unhinted, key=lambda member: (score_of(member), -member.rollout), default=None)
        if lowest is None or score_of(rollout) <= score_of(lowest):
            set_aside.append(SetAside(trajectory=rollout, by="the plan: no unhinted rollout scored lower"))
            continue
        group.remove(lowest)
        group.append(rollout)
        set_aside.append(SetAside(trajectory=lowest, by=f"the plan: rollout {rollout.rollout} took its place"))
    return set_aside


# A plan with hints: the rollouts of another plan, and further rollouts with a hint in their prompt.


class Hinted(Part, slot="plan"):
    """Another plan, with a further group with a hint for each of its tasks that the hint part chooses.

    If a method has `algorithm.hint`, this plan wraps `rollout.plan`. A run file may also name it.
    """

    plan: PlanSlot
    """The plan for rollouts without a hint."""
    hint: HintPart
    """The part that chooses tasks for rollouts with a hint, and writes the hint."""

    def words(self) -> tuple[str, ...]:
        return (*plan_words(self.plan), *self.hint.words())

    def next(
        self, played: Played, wanted: int, *, group_size: int, tools: PlanTools, past_rollouts: PastRollouts, draw: Draw
    ) -> list[RolloutRequest]:
        requests = self.plan.next(
            played, wanted, group_size=group_size, tools=tools, past_rollouts=past_rollouts, draw=draw
        )
        by_id = {request.task.id: request.task for request in requests if not request.is_hinted}
        hinted = []
        for past in self.hint.choose(list(by_id), past_rollouts, draw=draw):
            source = past_rollouts.read(past)
            hinted.append(
                RolloutRequest(
                    task=by_id[past.task],
                    rollouts=group_size,
                    hint_text=self.hint.text(source, tools.text),
                    parent=source.id,
                )
            )
        return [*requests, *hinted]

    def choose(self, played: Played, wanted: int) -> list[Group]:
        groups = self.plan.choose(played, wanted)
        merged = merge_by_task(groups)
        group_of = {group[0].task.id: group for group in merged}
        joining = [trajectory for turn in played.rounds for group in turn.joining for trajectory in group]
        copies: dict[str, list[Trajectory]] = {}
        for trajectory in (trajectory for group in merged for trajectory in group):
            unhinted = group_of.get(trajectory.task.id.rpartition(MARK)[0])
            if trajectory.origin is not Origin.REFLECTED or unhinted is None:
                continue
            if not self.hint.joins_unhinted_group(trajectory):
                continue
            # A copy as if sampled without the hint, with a number after all others of the task.
            task = unhinted[0].task
            joined = copies.setdefault(task.id, [])
            numbers = [member.rollout for member in (*unhinted, *joining) if member.task.id == task.id]
            joined.append(
                replace(
                    strip_hint(trajectory),
                    id=f"{trajectory.id}{MARK}",
                    task=task,
                    rollout=max(numbers) + 1 + len(joined),
                    origin=Origin.HINTED,
                    off_policy=True,
                    parent=trajectory.id,
                )
            )
        return [*groups, *copies.values()]


def strip_hint(trajectory: Trajectory) -> Trajectory:
    """Give a rollout the prompts that it would have had without its hint; its responses stay."""
    steps = [replace(step, prompt_ids=step.unhinted_prompt_ids, unhinted_prompt_ids=()) for step in trajectory.steps]
    return replace(trajectory, steps=tuple(steps))


def merge_by_task(groups: Sequence[Group]) -> list[list[Trajectory]]:
    """Make one group per task, also if the task came in several rounds."""
    merged: dict[str, list[Trajectory]] = {}
    for group in groups:
        for trajectory in group:
            merged.setdefault(trajectory.task.id, []).append(trajectory)
    return list(merged.values())


def plan_words(plan: object) -> tuple[str, ...]:
    """The words of a plan's hints, beside those of the environment; most plans have none."""
    words = getattr(plan, "words", None)
    return tuple(words()) if words else ()
