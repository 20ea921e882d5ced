"""The study: compares every method's advantages with the true advantages of one recording."""

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
from groupwise.data.segments import FloatArray
from groupwise.envs.environment import EnvironmentPart
from groupwise.lab.enumerated import EnumeratedWorld
from groupwise.lab.measures import measure_credit
from groupwise.lab.played_recording import PlayedCondition, record_played
from groupwise.lab.recording import (
    FIRST_PROMPT_ID,
    Key,
    LabTools,
    ListedTask,
    ListedTools,
    Recording,
    Sight,
    list_task,
    record_listed,
)
from groupwise.lab.tabular import TabularPolicy
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import name_of
from groupwise.parts.slots import Draw
from groupwise.rollout.environment_runner import Fault
from groupwise.rollout.episodes import Rollout
from groupwise.rollout.forks import Fork, play_forks
from groupwise.rollout.plans import Group
from groupwise.rollout.scorers import GivesHidden
from groupwise.system.errors import ConfigError, GroupwiseError
from groupwise.training.collect.collect import admit_rollouts
from groupwise.training.collect.measuring import RunTools, add_info
from groupwise.training.part_states import PartStates
from groupwise.training.run import Run
from groupwise.training.samples import CreditedBatch, credit_batch


@dataclass(frozen=True, kw_only=True)
class ListedCondition:
    """What is studied in a tabular environment."""

    env: EnvironmentPart
    """An environment whose tasks `enumerate_task` can list."""
    tasks: int = 8
    """Tasks per update, the first of the train set."""
    rollouts: int = 8
    updates: int = 100
    skill: float = 1.5
    """Logit of the best action; 0 = a random policy."""
    roughness: float = 0.5
    """Standard deviation of the noise on the logits."""
    sees: Sight = 0
    """Past steps that the policy sees besides the current text; "situation" = the whole state."""
    key: Key = "situation"
    """What makes two steps comparable."""
    gamma: float = 1.0
    seed: int = 0


def record_condition(condition: ListedCondition) -> tuple[Recording, LabTools]:
    make_policy = partial(
        make_skilled_policy, skill=condition.skill, roughness=condition.roughness, seed=condition.seed
    )
    tasks: list[ListedTask] = []
    for task in condition.env.task_set("train")[: condition.tasks]:
        first = tasks[-1].next_prompt if tasks else FIRST_PROMPT_ID
        tasks.append(list_task(condition.env, task, make_policy, sees=condition.sees, first_prompt=first))
    recording = record_listed(
        tasks,
        updates=condition.updates,
        rollouts=condition.rollouts,
        key=condition.key,
        gamma=condition.gamma,
        seed=condition.seed,
    )
    return recording, ListedTools(condition.env, tasks)


def list_algorithms(names: Sequence[str] | None = None) -> dict[str, Algorithm]:
    """Methods by name, with their defaults; None = all methods."""
    return {name: methods.build(name) for name in names or methods.names()}


def study_recording(
    recording: Recording,
    algorithms: Mapping[str, Algorithm],
    *,
    tools: LabTools,
    seed: int = 0,
    tell: Callable[[str], None] = lambda name: None,
) -> dict[str, Any]:
    """Compare the advantages of each algorithm with the truth of a recording.

    Returns the recording's numbers and one entry per algorithm: its errors, or why it could not be measured, or the
    earlier algorithm with exactly the same advantages.
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
        raise ConfigError("none of the chosen methods can be measured here; choose other methods")
    return {"recording": recording.describe(), "methods": results}


def _leave_out_nan(numbers: Any) -> Any:
    """Replace NaN by None, for JSON."""
    if isinstance(numbers, dict):
        return {name: _leave_out_nan(number) for name, number in numbers.items()}
    return None if isinstance(numbers, float) and not np.isfinite(numbers) else numbers


# Policies with a given skill.

PATIENCE_FACTOR = 0.95
"""Discount factor that decides which actions are best: an earlier reward is better."""
AS_GOOD = 1e-9
"""Actions whose values differ by less are equally good."""


def make_skilled_policy(
    world: EnumeratedWorld, *, skill: float, roughness: float = 0.5, seed: int = 0
) -> TabularPolicy:
    """A softmax over the actions, for each view.

        logit(action | view) = skill * (fraction of the view's states in which the action is best) + roughness * noise

    Skill 0 is a random policy. With a high skill, it takes the best action that its view allows. The noise is one
    normal number per view and action, drawn once, so the policy is fixed.
    """
    value = np.zeros(len(world.states))
    worth = np.zeros((len(world.states), len(world.actions)))
    for step in reversed(range(world.horizon)):  # backward induction to the first step
        at = world.at_step(step)
        to_come = np.append(value, 0.0)[world.following[at]]
        worth = (world.chance[at] * (world.reward[at] + PATIENCE_FACTOR * to_come)).sum(axis=-1)
        value = worth.max(axis=1)
    best = np.asarray(worth >= value[:, None] - AS_GOOD)  # (S, A)
    num = np.bincount(world.view, minlength=len(world.views))[:, None]
    share = np.zeros((len(world.views), len(world.actions)))
    np.add.at(share, world.view, best / best.sum(axis=1, keepdims=True))
    rows = {}
    for view, logits in zip(world.views, skill * share / num, strict=True):
        # A view always has the same noise, whatever other views there are.
        past = [word for step in view.past for word in step]
        generator = np.random.default_rng(seed_of(seed, "view", view.text, *past))
        rough = logits + roughness * generator.standard_normal(len(world.actions))
        weights = np.exp(rough - rough.max())
        rows[view] = weights / weights.sum()
    return TabularPolicy(actions=world.actions, rows=rows, window=world.window)


# The advantages that a method gives an update, by the same calls as in training: filter, score, shape, estimate.

Level = Literal["rollout", "step", "token"]
"""The finest unit whose advantages differ: whole rollouts, steps or tokens."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MethodCredit:
    """The advantages that a method gives the steps of a recording."""

    values: FloatArray
    """Advantage of each step (N); 0 if it does not train. If tokens have their own, the mean over the tokens for which
    the policy had a choice."""
    level: Level
    """The finest unit whose advantages differ in this recording."""


def credit_recording(algorithm: Algorithm, recording: Recording, *, tools: LabTools, seed: int = 0) -> MethodCredit:
    """Compute the advantages of each update alone, as if it were the first of a run.

    So replayed rollouts, states of parts and rollouts with a hint are left out. Of several channels, only the first
    (`advantage`) counts.
    """
    if algorithm.critic is not None:
        raise ConfigError(f"{name_of(algorithm.critic)} learns during a run, and the lab trains no critic")
    for part in algorithm.scorers or ():
        for need in sorted(part.needs - tools.gives):
            raise ConfigError(f"{name_of(part)} needs {need!r}, which the lab's policy does not have")
    values = np.concatenate(
        [
            credit_update(algorithm, groups, tools=tools, seed=seed_of(seed, "update", number))
            for number, groups in enumerate(recording.updates)
        ]
    )
    return MethodCredit(values=values, level=_find_level(algorithm, recording, values))


def credit_update(algorithm: Algorithm, groups: Sequence[Group], *, tools: LabTools, seed: int) -> FloatArray:
    """The advantage of every step of an update, in the order of its groups and rollouts."""

    def draw(*path: str | int) -> np.random.Generator:
        return np.random.default_rng(seed_of(seed, *path))

    admitted, _ = admit_rollouts(groups, algorithm.rollout_filters or (), draw=draw)
    measured = _measure(algorithm, admitted, tools, draw)
    chosen = [rollout for group in measured for rollout in shape_group(group, algorithm.shapers)]
    by_step: dict[tuple[str, int], float] = {}
    if chosen:
        states = PartStates.start(algorithm, seed=seed, tasks=[group[0].task for group in groups])
        version = max((version for rollout in chosen for version in rollout.versions), default=0)
        batch = credit_batch(algorithm, chosen, version=version, states=states.describe_before(chosen))
        by_step = _read_credit(batch)
    return np.array(
        [by_step.get((rollout.id, step.index), 0.0) for group in groups for rollout in group for step in rollout.steps]
    )


def _measure(algorithm: Algorithm, groups: Sequence[Group], tools: LabTools, draw: Draw) -> Sequence[Group]:
    for place, part in enumerate(algorithm.scorers or ()):
        groups = add_info(part, groups, part(groups, tools, draw=partial(draw, "measure", place)))
    return groups


def _read_credit(batch: CreditedBatch) -> dict[tuple[str, int], float]:
    steps = [(rollout, step) for rollout in batch.trajectories for step in rollout.steps]
    credit = {}
    for row, (rollout, step) in enumerate(steps):
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
        credit[rollout.id, step.index] = value if batch.keep[row] else 0.0
    return credit


def _find_level(algorithm: Algorithm, recording: Recording, values: FloatArray) -> Level:
    if algorithm.token_credit is not None:
        return "token"
    place = 0
    for rollout in recording.rollouts:
        own = values[place : place + len(rollout.steps)]
        if not np.all(own == own[:1]):
            return "step"
        place += len(rollout.steps)
    return "rollout"


# The lab with a run's own policy. Continuations from forks give the truth.


class RunLabTools(RunTools):
    """A run's own tools for scorers, with a list of what they have."""

    @property
    def gives(self) -> frozenset[str]:
        """What scorers may need. The run's initial policy is not available."""
        hidden = {"hidden"} if isinstance(self._run.learner, GivesHidden) else set()
        judge = {"judge"} if self._run.judge is not None else set()
        return frozenset({"generate", "score", "play", "fork", "expert", *hidden, *judge})


def record_run(run: Run, condition: PlayedCondition) -> tuple[Recording, RunLabTools]:
    """Sample rollouts of a run's policy, which does not learn meanwhile, and continue some of its steps."""
    player, settings = run.player, run.config.rollout
    run.host.open({0: run.tasks[0]})
    copy = run.host.fork(0, [1])[1]
    run.host.close([0, 1])
    if isinstance(copy, Fault):
        raise ConfigError(f"env: continuations need an environment that can be copied, and it cannot: {copy.message}")

    def play(rollouts: Sequence[Rollout]) -> list[Trajectory]:
        return player.play(rollouts, temperature=settings.temperature)

    def pay(played: Trajectory) -> Trajectory:
        return score_trajectory(played, run.config.rewards, read_response=run.prompter.text)

    def continue_from(forks: Sequence[Fork]) -> list[Trajectory]:
        return [pay(played) for played in play_forks(forks, player, temperature=settings.temperature)]

    recording = record_played(run.tasks[: condition.tasks], play, continue_from, condition, pay=pay)
    return recording, RunLabTools(run, 0)
