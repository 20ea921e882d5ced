"""The study: every recipe's credit, held against the truth of one recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from groupwise import methods
from groupwise.credit import score_trajectory, shape_group
from groupwise.data.records import Trajectory
from groupwise.data.seeds import seed_of
from groupwise.data.segments import BoolArray, FloatArray
from groupwise.envs.environment import EnvironmentPart
from groupwise.lab.enumerated import EnumeratedWorld
from groupwise.lab.measures import measure_credit
from groupwise.lab.played_recording import PlayedCondition, record_played
from groupwise.lab.recording import FIRST_PROMPT_ID, Key, ListedTask, Recording, Sight, list_task, record_listed
from groupwise.lab.tabular import TabularPolicy
from groupwise.lab.tools import LabTools, ListedTools
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import name_of
from groupwise.parts.slots import Draw
from groupwise.rollout.environment_runner import Fault
from groupwise.rollout.episodes import Attempt
from groupwise.rollout.forks import Fork, play_forks
from groupwise.rollout.measures import GivesHidden
from groupwise.rollout.plans import Group
from groupwise.system.errors import ConfigError, GroupwiseError
from groupwise.training.collect.collect import admit_attempts
from groupwise.training.collect.measuring import RunTools, add_facts
from groupwise.training.part_states import PartStates
from groupwise.training.run import Run
from groupwise.training.samples import CreditedBatch, credit_batch


@dataclass(frozen=True, kw_only=True)
class ListedCondition:
    """Circumstances in which credit is studied, in a world that can be listed."""

    env: EnvironmentPart
    """The environment: one whose tasks `enumerate_task` can list."""
    tasks: int = 8
    """Tasks of every update, the first of the training panel."""
    attempts: int = 8
    """Attempts of a group."""
    updates: int = 100
    """How often all groups are drawn."""
    skill: float = 1.5
    """How much likelier than by chance the policy does what is best."""
    roughness: float = 0.5
    """How different its habits are from one situation to the next."""
    sees: Sight = 0
    """How many past steps the policy sees beside the text of now; or "situation": the whole state, as a policy does
    that remembers everything."""
    key: Key = "situation"
    """What makes two steps comparable."""
    gamma: float = 1.0
    """How much a reward one step later counts in the truth."""
    seed: int = 0
    """Where all random numbers come from."""


def record_condition(condition: ListedCondition) -> tuple[Recording, LabTools]:
    """Play a condition and find the truth of its steps."""
    make_policy = partial(
        make_skilled_policy, skill=condition.skill, roughness=condition.roughness, seed=condition.seed
    )
    tasks: list[ListedTask] = []
    for task in condition.env.panel("train")[: condition.tasks]:
        first = tasks[-1].next_prompt if tasks else FIRST_PROMPT_ID
        tasks.append(list_task(condition.env, task, make_policy, sees=condition.sees, first_prompt=first))
    recording = record_listed(
        tasks,
        updates=condition.updates,
        attempts=condition.attempts,
        key=condition.key,
        gamma=condition.gamma,
        seed=condition.seed,
    )
    return recording, ListedTools(condition.env, tasks)


def list_algorithms(names: Sequence[str] | None = None) -> dict[str, Algorithm]:
    """The recipes of the catalogue by name, with their own defaults; None = all of them."""
    return {name: methods.build(name) for name in names or methods.names()}


def study_recording(
    recording: Recording,
    algorithms: Mapping[str, Algorithm],
    *,
    tools: LabTools,
    seed: int = 0,
    tell: Callable[[str], None] = lambda name: None,
) -> dict[str, Any]:
    """Hold the credit of each algorithm against the truth of a recording.

    Returns what the recording is like, and for each algorithm how far it is from the truth; or why it cannot be said;
    or the earlier algorithm whose credit is the same in every digit.
    """
    results: dict[str, Any] = {}
    known: dict[str, FloatArray] = {}
    for name, algorithm in algorithms.items():
        tell(name)
        try:
            credit = credit_recording(algorithm, recording, tools=tools, seed=seed)
        except GroupwiseError as error:
            results[name] = {"not_measured": str(error)}
            continue
        twin = next((other for other, values in known.items() if np.array_equal(values, credit.values)), None)
        if twin is not None:
            results[name] = {"level": credit.level, "same_as": twin}
            continue
        known[name] = credit.values
        results[name] = {"level": credit.level, **_leave_out_nan(asdict(measure_credit(credit.values, recording)))}
    if not known:
        raise ConfigError("none of the recipes that were asked for can be measured here; ask for others")
    return {"recording": recording.describe(), "recipes": results}


def _leave_out_nan(numbers: Any) -> Any:
    """The same with None where a number is not known, as JSON has it."""
    if isinstance(numbers, dict):
        return {name: _leave_out_nan(number) for name, number in numbers.items()}
    return None if isinstance(numbers, float) and not np.isfinite(numbers) else numbers


# Policies whose skill is a dial: how much likelier than by chance they do what is best.

PATIENCE_FACTOR = 0.95
"""What a reward one step later is worth where it is decided which actions are best: earlier is better."""
AS_GOOD = 1e-9
"""Actions whose values differ by less are equally good."""


def make_skilled_policy(
    world: EnumeratedWorld, *, skill: float, roughness: float = 0.5, seed: int = 0
) -> TabularPolicy:
    """A softmax over the actions, for everything that can be seen.

        logit(action | view) = skill * (share of the view's states in which the action is best) + roughness * noise

    With skill 0 it wanders; with a high one it does what is best as far as it can see that. The noise is a normal
    number for each view and action, drawn once: no two situations are alike, and the policy stays a fixed one.
    """
    best = _find_best_actions(world)
    num = np.bincount(world.view, minlength=len(world.views))[:, None]
    share = np.zeros((len(world.views), len(world.actions)))
    np.add.at(share, world.view, best / best.sum(axis=1, keepdims=True))
    rows = {}
    for view, logits in zip(world.views, skill * share / num, strict=True):
        # The same numbers for the same view, whatever else there is.
        past = [word for step in view.past for word in step]
        generator = np.random.default_rng(seed_of(seed, "view", view.text, *past))
        rough = logits + roughness * generator.standard_normal(len(world.actions))
        weights = np.exp(rough - rough.max())
        rows[view] = weights / weights.sum()
    return TabularPolicy(actions=world.actions, rows=rows, window=world.window)


def _find_best_actions(world: EnumeratedWorld) -> BoolArray:
    """Which actions are best in each state (S, A), with all steps to go, by backward induction."""
    value = np.zeros(len(world.states))
    worth = np.zeros((len(world.states), len(world.actions)))
    for step in reversed(range(world.horizon)):
        at = world.at_step(step)
        to_come = np.append(value, 0.0)[world.following[at]]
        worth = (world.chance[at] * (world.reward[at] + PATIENCE_FACTOR * to_come)).sum(axis=-1)
        value = worth.max(axis=1)
    return np.asarray(worth >= value[:, None] - AS_GOOD)


# The credit that a recipe gives an update, by the same calls as in training: admitted, measured, shaped, credited.

Level = Literal["attempt", "step", "token"]
"""Below what a recipe's credit differs: all steps of an attempt have one number, or steps have, or tokens have."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RecipeCredit:
    """What a recipe gave every step of a recording."""

    values: FloatArray
    """Credit of each step (N); of a step with credit on its tokens, the mean over those where the policy had a choice;
    0 for what does not train."""
    level: Level
    """Below what it differs, as found in the recording."""


def credit_recording(algorithm: Algorithm, recording: Recording, *, tools: LabTools, seed: int = 0) -> RecipeCredit:
    """Give every update of a recording credit, each by itself, as the first update of a run.

    What a recipe remembers of earlier updates (past attempts that it recalls, states of its parts) and attempts that it
    would ask for with guidance are left out: every update begins anew. Of several channels, the first is taken: that of
    `advantage`.
    """
    check_needs(algorithm, tools)
    values = np.concatenate(
        [
            credit_update(algorithm, groups, tools=tools, seed=seed_of(seed, "update", number))
            for number, groups in enumerate(recording.updates)
        ]
    )
    return RecipeCredit(values=values, level=_find_level(algorithm, recording, values))


def check_needs(algorithm: Algorithm, tools: LabTools) -> None:
    """Refuse an algorithm whose measures need what the lab's policy does not have."""
    for part in algorithm.measures or ():
        for need in sorted(part.needs - tools.gives):
            raise ConfigError(f"{name_of(part)} asks for {need!r}, which this policy does not have")


def credit_update(algorithm: Algorithm, groups: Sequence[Group], *, tools: LabTools, seed: int) -> FloatArray:
    """The credit of every step of an update, in the order of its groups and attempts."""

    def draw(*path: str | int) -> np.random.Generator:
        return np.random.default_rng(seed_of(seed, *path))

    admitted, _ = admit_attempts(groups, algorithm.admissions or (), draw=draw)
    measured = _measure(algorithm, admitted, tools, draw)
    chosen = [attempt for group in measured for attempt in shape_group(group, algorithm.shapers)]
    by_step: dict[tuple[str, int], float] = {}
    if chosen:
        states = PartStates.start(algorithm, seed=seed, tasks=[group[0].task for group in groups])
        version = max((version for attempt in chosen for version in attempt.versions), default=0)
        batch = credit_batch(algorithm, chosen, version=version, states=states.describe_before(chosen))
        by_step = _read_credit(batch)
    return np.array(
        [by_step.get((attempt.id, step.index), 0.0) for group in groups for attempt in group for step in attempt.steps]
    )


def _measure(algorithm: Algorithm, groups: Sequence[Group], tools: LabTools, draw: Draw) -> Sequence[Group]:
    for place, part in enumerate(algorithm.measures or ()):

        def draw_for(*path: str | int, place: int = place) -> np.random.Generator:
            return draw("measure", place, *path)

        groups = add_facts(part, groups, part(groups, tools, draw=draw_for))
    return groups


def _read_credit(batch: CreditedBatch) -> dict[tuple[str, int], float]:
    """The credit of each step that trains, by its attempt and index."""
    steps = [(attempt, step) for attempt in batch.trajectories for step in attempt.steps]
    credit = {}
    for row, (attempt, step) in enumerate(steps):
        value = float(batch.values[row])
        if batch.tokens is not None:
            own = batch.tokens[row]
            had_choice = [entropy > 0 for entropy in step.entropy] or [True] * len(own.values)
            chosen = [
                number
                for number, trains, chose in zip(own.values, own.trains, had_choice, strict=True)
                if trains and chose
            ]
            value = float(np.mean(chosen)) if chosen else 0.0
        credit[attempt.id, step.index] = value if batch.keep[row] else 0.0
    return credit


def _find_level(algorithm: Algorithm, recording: Recording, values: FloatArray) -> Level:
    if algorithm.token_credit is not None:
        return "token"
    place = 0
    for attempt in recording.attempts:
        own = values[place : place + len(attempt.steps)]
        if not np.all(own == own[:1]):
            return "step"
        place += len(attempt.steps)
    return "attempt"


# The lab on a run of one's own: its policy plays, continuations from forks tell the truth.


class RunLabTools(RunTools):
    """A run's own tools for measures, which say what they have."""

    @property
    def gives(self) -> frozenset[str]:
        """What measures may need: not the policy that a run started from, which a lab has not."""
        hidden = {"hidden"} if isinstance(self._run.learner, GivesHidden) else set()
        judge = {"judge"} if self._run.judge is not None else set()
        return frozenset({"generate", "score", "play", "fork", "expert", *hidden, *judge})


def record_run(run: Run, condition: PlayedCondition) -> tuple[Recording, RunLabTools]:
    """Play a run's policy, which does not learn meanwhile, and continue some of its steps."""
    player, settings = run.player, run.config.rollout
    tasks = run.tasks[: condition.tasks]
    _check_forkable(run)

    def play(attempts: Sequence[Attempt]) -> list[Trajectory]:
        return player.play(attempts, temperature=settings.temperature)

    def pay(played: Trajectory) -> Trajectory:
        return score_trajectory(played, run.config.rewards, read_response=run.prompter.text)

    def continue_from(forks: Sequence[Fork]) -> list[Trajectory]:
        return [pay(played) for played in play_forks(forks, player, temperature=settings.temperature)]

    recording = record_played(tasks, play, continue_from, condition, pay=pay)
    return recording, RunLabTools(run, 0)


def _check_forkable(run: Run) -> None:
    """Refuse a world that cannot be copied, before anything is played."""
    run.host.open({0: run.tasks[0]})
    copy = run.host.fork(0, [1])[1]
    run.host.close([0, 1])
    if isinstance(copy, Fault):
        raise ConfigError(
            f"env: there are no continuations to tell the truth by, for a world cannot be copied: {copy.message}"
        )
