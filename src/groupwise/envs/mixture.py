"""Several environments in one run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from statistics import fmean
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from groupwise.data.records import Task
from groupwise.envs.environment import Environment, EnvironmentPart, EnvironmentSlot, HasVocabulary
from groupwise.envs.kit.task_set import SPLITS, check_split, digest_task
from groupwise.envs.part_queries import ask_instruction, ask_max_steps, ask_task_set, ask_vocabulary
from groupwise.parts.part import Part, load_catalogue, name_of
from groupwise.system.errors import ConfigError, GroupwiseError, RecordError
from groupwise.system.json_text import digest_value

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
"""The name of an environment in a mixture: a tag of its tasks."""


class MixtureMember(Part):
    """An environment of a mixture, and its weight."""

    refused_fields: ClassVar[Mapping[str, str]] = {
        "action_parser": "a run has one action parser; set rollout.action_parser for all environments of the mixture",
        "template": "a run has one template; set rollout.template for all environments of the mixture",
        "rewards": "a run has one list of rewards; set [[rewards]] with a function that reads task.tags",
    }
    name: Name
    """Its name in reports: the first tag of its tasks."""
    env: EnvironmentSlot
    """The environment."""
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Its fraction of the tasks, relative to the other weights."""


class Mixture(Part, slot="env", self_contained=True):
    """Several environments, mixed by weight. Every update has tasks of each; a group belongs to one task.

    A task set lists the tasks of all environments in turns by weight, so its first tasks are mixed like training. An
    environment without tasks left is skipped. No content may be in different splits of two environments. Tasks keep
    their ids. Their first tag is the environment's name, and their other tags begin with it. So evaluations report each
    environment and the total.
    """

    members: Annotated[tuple[MixtureMember, ...], Field(min_length=2)]
    """The environments."""

    @field_validator("members")
    @classmethod
    def _have_names_of_their_own(cls, members: tuple[MixtureMember, ...]) -> tuple[MixtureMember, ...]:
        names = [member.name for member in members]
        if len(set(names)) < len(names):
            raise ValueError(f"two environments share a name ({', '.join(names)}); give each its own name")
        if any(isinstance(member.env, Mixture) for member in members):
            raise ValueError("a mixture within a mixture; list all environments in one")
        return members

    @property
    def names_module(self) -> bool:
        """Whether one of them comes from outside groupwise."""
        known: set[type] = set(load_catalogue("env").values())
        return any(type(env) not in known or getattr(env, "names_module", False) for env in self.environments.values())

    @property
    def environments(self) -> dict[str, EnvironmentPart]:
        return {member.name: member.env for member in self.members}

    @property
    def weights(self) -> dict[str, float]:
        return {member.name: member.weight for member in self.members}

    @property
    def max_steps(self) -> int:
        """The largest limit; each environment keeps its own."""
        return max(ask_max_steps(env) for env in self.environments.values())

    def task_set(self, split: str) -> tuple[Task, ...]:
        check_split(split)
        task_sets = {
            name: [
                replace(task, tags=(name, *(f"{name}/{tag}" for tag in task.tags))) for task in ask_task_set(env, split)
            ]
            for name, env in self.environments.items()
        }
        owner: dict[str, str] = {}
        for name, tasks in task_sets.items():
            for task in tasks:
                if (other := owner.setdefault(task.id, name)) != name:
                    raise ConfigError(
                        f"mixture: {other!r} and {name!r} both have the task {task.id}; mix environments whose tasks "
                        "differ"
                    )
        _check_splits(self.environments)
        mixed: list[Task] = []
        taken = dict.fromkeys(task_sets, 0)
        while left := [name for name, tasks in task_sets.items() if taken[name] < len(tasks)]:
            name = choose_next(self.weights, taken, among=left)
            mixed.append(task_sets[name][taken[name]])
            taken[name] += 1
        return tuple(mixed)

    def open(self, task: Task) -> Environment:
        name = self.name_of(task)
        own_tags = tuple(tag.removeprefix(f"{name}/") for tag in task.tags[1:])
        return self.environments[name].open(replace(task, tags=own_tags))

    def vocabulary(self) -> tuple[str, ...]:
        return tuple(sorted({word for env in self.environments.values() for word in ask_vocabulary(env)}))

    def instruction(self) -> str:
        return " ".join(filter(None, map(ask_instruction, self.environments.values())))

    def name_of(self, task: Task) -> str:
        if not task.tags or task.tags[0] not in self.environments:
            raise RecordError(
                f"task {task.id} belongs to none of the mixture's environments ({', '.join(self.environments)}); use "
                "tasks of its task sets"
            )
        return task.tags[0]


def find_environment(env: EnvironmentPart, task: Task) -> EnvironmentPart:
    """The environment of a task: one of a mixture's, or the only one."""
    return env.environments[env.name_of(task)] if isinstance(env, Mixture) else env


def list_environments(env: EnvironmentPart) -> dict[str, EnvironmentPart]:
    return env.environments if isinstance(env, Mixture) else {"": env}


def has_vocabulary(env: EnvironmentPart) -> bool:
    return all(isinstance(inner, HasVocabulary) for inner in list_environments(env).values())


def choose_first_tasks(env: EnvironmentPart, tasks: Sequence[Task]) -> dict[str, Task]:
    """The first task of each environment, by the environment's name; the only one has none."""
    first: dict[str, Task] = {}
    for task in tasks:
        first.setdefault(env.name_of(task) if isinstance(env, Mixture) else "", task)
    return first


def limit_steps(env: EnvironmentPart, steps: int) -> EnvironmentPart:
    """The environment with another step limit; of a mixture, each one with it."""
    if isinstance(env, Mixture):
        members = tuple(member.model_copy(update={"env": limit_steps(member.env, steps)}) for member in env.members)
        return env.model_copy(update={"members": members})
    if not (isinstance(env, Part) and "max_steps" in type(env).model_fields):
        raise ConfigError(f"{name_of(env)} has no setting max_steps")
    return type(env)(**{**dict(env), "max_steps": steps})


def mean_max_steps(env: EnvironmentPart) -> float:
    """The step limit of a rollout, averaged by the weights of the environments."""
    if not isinstance(env, Mixture):
        return ask_max_steps(env)
    steps = [ask_max_steps(inner) for inner in env.environments.values()]
    return fmean(steps, weights=list(env.weights.values()))


def _check_splits(environments: Mapping[str, EnvironmentPart]) -> None:
    """Raise if two environments have the same content in different splits; ids contain the split, so they differ."""
    contents: dict[tuple[str, str], set[str]] = {}
    for name, env in environments.items():
        for split in SPLITS:
            try:
                contents[name, split] = {_identify(env, task) for task in ask_task_set(env, split)}
            except GroupwiseError:  # there is no such split, or it cannot be read: the error comes when it is used
                contents[name, split] = set()
    for (name, split), (other, other_split) in permutations(contents, 2):
        num_shared = len(contents[name, split] & contents[other, other_split])
        if name != other and split != other_split and num_shared:
            raise ConfigError(
                f"mixture: the {split} split of {name!r} and the {other_split} split of {other!r} share {num_shared} "
                f"{'task' if num_shared == 1 else 'tasks'}; remove them from one of the two, or evaluations use "
                "trained tasks"
            )


def _identify(env: EnvironmentPart, task: Task) -> str:
    """A digest of a task's content, without its split; `identify_content` of the environment says what counts."""
    identify = getattr(env, "identify_content", None)
    try:
        return digest_value(identify(task)) if identify else digest_task(task)
    except (TypeError, ValueError):  # JSON cannot write the payload
        return task.id


def choose_next(weights: Mapping[str, float], taken: Mapping[str, int], *, among: Collection[str] | None = None) -> str:
    """The name whose turns are furthest behind its fraction of the weights; the first of equals. `taken` counts turns.

    No name is ever more than one turn ahead of its fraction. Of two names, none is more than one turn behind either.

    >>> taken = {"a": 0, "b": 0}
    >>> for _ in range(8):
    ...     name = choose_next({"a": 3, "b": 1}, taken)
    ...     taken[name] += 1
    >>> taken
    {'a': 6, 'b': 2}
    """
    names = [name for name in weights if among is None or name in among]
    total = sum(weights[name] for name in names)
    turns = sum(taken[name] for name in names) + 1
    return max(names, key=lambda name: weights[name] / total * turns - taken[name])
