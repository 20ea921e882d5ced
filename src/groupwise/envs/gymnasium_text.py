"""Gymnasium's environments with text or discrete observations, as environments of ours."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.packages import import_package
from groupwise.envs.kit.progress import SteppedEnvironment, say_nothing_happens
from groupwise.envs.kit.task_set import check_env, list_seed_tasks
from groupwise.envs.kit.words import NOTHING_HAPPENS, vocabulary_of
from groupwise.parts.outside import WITHOUT_TRUST, may_run
from groupwise.parts.part import Part
from groupwise.system.errors import ConfigError

if TYPE_CHECKING:
    import gymnasium

ENV = "gymnasium"
MAX_TASKS = 1_000_000


class Gymnasium(Part, slot="env"):
    """A registered Gymnasium environment with discrete actions and observations that are text or numbers.

    A task is a seed for `reset`. `terminated` and `truncated` stay separate, as in Gymnasium; `max_steps` truncates
    too. A fork is a deep copy, including the random state. The `state_key` is the observation. If the environment has
    an `action_mask` (Taxi does), masked actions are not admissible.

    Choices: Gymnasium does not report success. A rollout succeeds if it terminates with a positive reward, or with a
    total of at least `success_return` if that is set.
    """

    id: str
    """Name in Gymnasium's registry, such as "FrozenLake-v1"."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Options for `gymnasium.make`."""
    actions: tuple[str, ...] = ()
    """A word for each action; without them, the actions are numbers from 0."""
    words: tuple[str, ...] = ()
    """Every word of the observations, if they are text."""
    about: str = "Choose the next action."
    """The instruction: one line that tells the agent what to do."""
    success_return: float | None = None
    """Total reward from which a rollout counts as a success; None = it terminates with a positive reward."""
    num_train: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 1000
    """Tasks in the train set."""
    num_validation: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 100
    """Tasks in the validation set."""
    num_test: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 200
    """Tasks in the test set."""
    max_steps: Annotated[int, Field(ge=1)] = 100
    """Steps before a rollout is truncated."""

    @property
    def names_module(self) -> bool:
        """Whether a field names a module: Gymnasium imports the text before a colon."""
        texts = (self.id, *(value for value in self.kwargs.values() if isinstance(value, str)))
        return any(":" in name for name in texts)

    @model_validator(mode="after")
    def _names_no_module_where_only_read(self) -> Gymnasium:
        if self.names_module and not may_run():
            raise ValueError(f"the id {self.id!r} imports a module, {WITHOUT_TRUST}")
        return self

    def task_set(self, split: str) -> tuple[Task, ...]:
        return list_seed_tasks(ENV, self, split, {"id": self.id, "kwargs": self.kwargs})

    def open(self, task: Task) -> GymnasiumEnvironment:
        check_env(task, ENV)
        world = _make(task.payload["id"], task.payload["kwargs"])
        return GymnasiumEnvironment(task, self, world, self._name_actions(world))

    def vocabulary(self) -> tuple[str, ...]:
        world = _make(self.id, self.kwargs)
        numbers = range(_count_observations(world.observation_space))
        always = ("state", *(str(number) for number in numbers), *self.words)
        return vocabulary_of((self.instruction(), NOTHING_HAPPENS, *always, *self._name_actions(world)))

    def instruction(self) -> str:
        return self.about

    def _name_actions(self, world: gymnasium.Env[Any, Any]) -> tuple[str, ...]:
        count = getattr(world.action_space, "n", None)
        if count is None or getattr(world.action_space, "start", 0) != 0:
            raise ConfigError(f"gymnasium {self.id!r}: its actions are {world.action_space}; expected discrete actions")
        if self.actions and len(self.actions) != count:
            raise ConfigError(
                f"gymnasium {self.id!r}: there are {count} actions, but `actions` has {len(self.actions)}; name each"
            )
        return self.actions or tuple(str(action) for action in range(int(count)))


class GymnasiumEnvironment(SteppedEnvironment):
    """One rollout in a Gymnasium environment."""

    def __init__(self, task: Task, part: Gymnasium, world: gymnasium.Env[Any, Any], names: tuple[str, ...]) -> None:
        super().__init__(task, part.max_steps)
        self._part, self._world, self._names, self._total = part, world, names, 0.0
        self._progress.observation = self._observe(*world.reset(seed=task.seed))

    def act(self, action: str) -> Outcome:
        self._progress.step()
        if action not in self._names:
            return self._progress.outcome(say_nothing_happens(self.observe()), accepted=False)
        seen, earned, terminated, truncated, about = self._world.step(self._names.index(action))
        reward, threshold = float(earned), self._part.success_return
        self._total += reward
        success = None
        if terminated:
            success = reward > 0 if threshold is None else self._total >= threshold
        observation = self._observe(seen, about)
        return self._progress.outcome(observation, success=success, reward=reward, cut_off=bool(truncated))

    def fork(self) -> Self:
        twin = super().fork()
        twin._world = deepcopy(self._world)
        return twin

    def _observe(self, seen: Any, about: dict[str, Any]) -> Observation:
        numbers = seen if isinstance(seen, tuple) else (seen,)
        text = seen if isinstance(seen, str) else f"state {' '.join(str(int(number)) for number in numbers)}"
        mask = about.get("action_mask")
        admissible = tuple(name for index, name in enumerate(self._names) if mask is None or mask[index])
        return Observation(text=text, state_key=text, admissible=admissible)


def _make(id: str, kwargs: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    package = import_package(ENV, "gymnasium")
    try:
        world: gymnasium.Env[Any, Any] = package.make(id, disable_env_checker=True, **kwargs)
    except package.error.Error as error:
        raise ConfigError(f"gymnasium {id!r}: {error}; choose a registered environment") from None
    return world


def _count_observations(space: gymnasium.Space[Any]) -> int:
    """How many different numbers observations are made of; 0 for text."""
    from gymnasium import spaces

    if isinstance(space, spaces.Text):
        return 0
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return int(space.n)
    if isinstance(space, spaces.Tuple):
        return max(_count_observations(part) for part in space.spaces)
    raise ConfigError(f"gymnasium: the observations are {space}; expected text, or integers from 0")
