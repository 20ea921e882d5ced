"""Task sets: the fixed tasks of an environment's splits.

An instance's split is a function of its content. So no two splits share an instance, and no setting of an environment's
fields can move an instance from the test set of one run into the train set of another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import AfterValidator

from groupwise.data.records import Task
from groupwise.envs.environment import EnvironmentPart
from groupwise.envs.part_queries import ask_task_set
from groupwise.parts.part import Part, Slot
from groupwise.system.errors import ConfigError, FileError, RecordError, nearest
from groupwise.system.files import read_text_file, write_atomic
from groupwise.system.json_text import digest_value, parse_json, to_json
from groupwise.system.text import quote_line

SPLITS = ("train", "validation", "test")
TEST_SHARE = 0.16
VALIDATION_SHARE = 0.10
PATIENCE = 1000
"""Proposals in a row without a new task after which the instances count as exhausted."""

FIRST_SEED = {"train": 0, "validation": 1_000_000, "test": 2_000_000}
"""The first seed of each split, if tasks are consecutive seeds."""

TaskSets = Mapping[str, tuple[Task, ...]]
Item = TypeVar("Item")


class TaskSetSizes(NamedTuple):
    """How many tasks each task set has."""

    train: int
    validation: int
    test: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """An instance that may become a task; its payload describes it completely."""

    payload: Mapping[str, Any]
    seed: int = 0
    """For the random events of the instance; not part of its identity."""
    tags: tuple[str, ...] = ()


def task_set_hash(tasks: Iterable[Task]) -> str:
    """The digest of a task set: sha256 over its task ids in any order."""
    return hashlib.sha256("\n".join(sorted(task.id for task in tasks)).encode()).hexdigest()


def choose_split(task_sets: TaskSets, split: str) -> tuple[Task, ...]:
    if split not in task_sets:
        raise ConfigError(f"there is no split {split!r}; {nearest(split, task_sets)}")
    return task_sets[split]


def check_split(split: str) -> None:
    choose_split(dict.fromkeys(SPLITS, ()), split)


def task_set_sizes_of(part: Any) -> TaskSetSizes:
    return TaskSetSizes(part.num_train, part.num_validation, part.num_test)


def list_seed_tasks(
    env: str,
    part: Any,
    split: str,
    payload: Mapping[str, Any],
    *,
    first_seed: Mapping[str, int] = FIRST_SEED,
    tags: tuple[str, ...] = (),
) -> tuple[Task, ...]:
    """The tasks of a split that differ only by their seed; seeds are consecutive."""
    check_split(split)
    seeds = range(first_seed[split], first_seed[split] + task_set_sizes_of(part)._asdict()[split])
    return tuple(Task.create(env=env, split=split, seed=seed, payload=payload, tags=tags) for seed in seeds)


def check_disjoint(task_sets: Mapping[str, Sequence[Task]]) -> None:
    """Raise if two splits share a task, by id or by content (seed and payload), or one lists a task twice."""
    owner: dict[str, tuple[str, str]] = {}
    for split, tasks in task_sets.items():
        ids = {task.id for task in tasks}
        if len(ids) < len(tasks):
            raise RecordError(f"split {split!r} lists {len(tasks) - len(ids)} of its tasks twice; list each task once")
        for task in tasks:
            other = owner.get(task.id) or owner.get(digest_task(task))
            if other:
                raise RecordError(
                    f"task {task.id} of split {split!r} is task {other[1]} of split {other[0]!r}; "
                    "an instance may be in one split only, or the test set measures memorization"
                )
        owner |= {key: (split, task.id) for task in tasks for key in (task.id, digest_task(task))}


def digest_task(task: Task) -> str:
    return digest_value({"env": task.env, "seed": task.seed, "payload": task.payload})


def split_of_content(payload: Mapping[str, Any]) -> str:
    return _split_of(digest_value(payload))


def _split_of(digest: str) -> str:
    share = int(digest[:13], 16) / 16**13
    if share < TEST_SHARE:
        return "test"
    return "validation" if share < TEST_SHARE + VALIDATION_SHARE else "train"


@cache
def draw_task_sets(env: str, draw: Callable[..., Proposal | None], *settings: Any, sizes: TaskSetSizes) -> TaskSets:
    """The task sets from the proposals `draw(*settings, 0)`, `draw(*settings, 1)`, ...; made once."""
    return build_task_sets(env, partial(draw, *settings), sizes=sizes._asdict())


def build_task_sets(env: str, propose: Callable[[int], Proposal | None], *, sizes: Mapping[str, int]) -> TaskSets:
    """Fill the task sets from a stream of proposals: each distinct instance goes to the split of its content.

    `propose(0)`, `propose(1)`, ... are instances, or None if a draw failed. If the instances run out, a task set is
    smaller than asked for; an empty one is an error.
    """
    task_sets: dict[str, list[Task]] = {split: [] for split in SPLITS}
    seen: set[str] = set()
    index = idle = 0
    while idle < PATIENCE and any(len(task_sets[split]) < sizes[split] for split in SPLITS):
        proposal = propose(index)
        index, idle = index + 1, idle + 1
        digest = digest_value(proposal.payload) if proposal else ""
        if proposal is None or digest in seen:
            continue
        split = _split_of(digest)
        if len(task_sets[split]) < sizes[split]:
            seen.add(digest)
            task_sets[split].append(_make_task(env, split, proposal))
            idle = 0
    return _check_task_sets(env, task_sets)


def divide_task_sets(env: str, proposals: Iterable[Proposal]) -> TaskSets:
    """Divide all instances of a small environment into task sets, in the order of their digests."""
    ordered = sorted(proposals, key=lambda proposal: digest_value(proposal.payload))
    num_test = max(1, int(len(ordered) * TEST_SHARE))
    num_left = num_test + max(1, int(len(ordered) * VALIDATION_SHARE))
    cut = {"train": ordered[num_left:], "validation": ordered[num_test:num_left], "test": ordered[:num_test]}
    return _check_task_sets(
        env, {split: [_make_task(env, split, proposal) for proposal in cut[split]] for split in SPLITS}
    )


def interleave(task_sets: Sequence[TaskSets]) -> TaskSets:
    """Merge several task sets of each split in turn, so that the first tasks are balanced."""
    return {split: take_in_turn([task_set[split] for task_set in task_sets]) for split in SPLITS}


def take_in_turn(lists: Sequence[Sequence[Item]]) -> tuple[Item, ...]:
    """The first entry of each list, then the second of each, and so on.

    >>> take_in_turn(["ad", "b", "ce"])
    ('a', 'b', 'c', 'd', 'e')
    """
    longest = max(map(len, lists))
    return tuple(entries[place] for place in range(longest) for entries in lists if place < len(entries))


def _refuse_repeats(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError(f"a name is listed twice in {', '.join(names)}; list each once")
    return names


DISTINCT = AfterValidator(_refuse_repeats)
"""Marks a field of names: none may be listed twice."""


def check_env(task: Task, env: str) -> None:
    if task.env != env:
        raise RecordError(f"task {task.id} belongs to the environment {task.env!r}, not {env!r}; open it with that one")


def _check_task_sets(env: str, task_sets: Mapping[str, Sequence[Task]]) -> TaskSets:
    for split, tasks in task_sets.items():
        if not tasks:
            raise ConfigError(
                f"{env}: the {split} task set is empty because too few instances exist; make the instances larger"
            )
    return {split: tuple(tasks) for split, tasks in task_sets.items()}


def _make_task(env: str, split: str, proposal: Proposal) -> Task:
    return Task.create(env=env, split=split, seed=proposal.seed, payload=proposal.payload, tags=proposal.tags)


# Task set files record the tasks of results, so that a change is noticed.

SCHEMA = 2
MAX_BYTES = 64 << 20
"""Size limit of a task set file: half a million tasks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSetFile:
    """The task sets of an environment: task ids and digests by split.

    Worked example: env {"kind": "identity", "length": 2, ...}, tasks {"train": ("identity-train-0c1f...", ...), ...},
    hashes {"train": "5b1d...", ...}.
    """

    env: Mapping[str, Any]
    """The complete configuration of the environment."""
    tasks: Mapping[str, tuple[str, ...]]
    """Task ids of each split, in order."""
    hashes: Mapping[str, str]
    """The `task_set_hash` of each split; evaluations record it too."""

    @classmethod
    def of(cls, part: Part) -> TaskSetFile:
        task_sets = task_sets_of(part)
        return cls(
            env=part.config(),
            tasks={split: tuple(task.id for task in tasks) for split, tasks in task_sets.items()},
            hashes={split: task_set_hash(tasks) for split, tasks in task_sets.items()},
        )

    @classmethod
    def read(cls, path: Path) -> TaskSetFile:
        """Read a task set file; raise if it is not one, or if it was changed by hand."""
        try:
            content = parse_json(read_text_file(path, max_bytes=MAX_BYTES))
            if (schema := content["schema"]) != SCHEMA:
                raise FileError(
                    f"{path}: it has schema {quote_line(repr(schema), limit=60)}, but this version reads schema "
                    f"{SCHEMA}; make it again"
                )
            file = cls(
                env=dict(content["env"]),
                tasks={split: _read_ids(content["task_sets"][split]["tasks"]) for split in SPLITS},
                hashes={split: str(content["task_sets"][split]["hash"]) for split in SPLITS},
            )
            seal, expected = content["seal"], file._make_seal()
        except FileError:
            raise
        except FileNotFoundError:
            raise FileError(f"{path}: there is no such file; make it with `groupwise tasks ENV --out {path}`") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FileError(
                f"{path}: not a task set file ({type(error).__name__}: {quote_line(str(error))}); "
                "make one with `groupwise tasks ENV --out FILE`"
            ) from None
        if seal != expected:
            raise FileError(f"{path}: its content does not match its seal, so it was changed; make it again")
        return file

    def write(self, path: Path) -> None:
        if path.exists() and TaskSetFile.read(path) != self:
            raise FileError(
                f"{path}: a different task set file exists already; choose another name, or remove it first"
            )
        with write_atomic(path) as draft:
            draft.write_text(to_json(self._to_json() | {"seal": self._make_seal()}), encoding="utf-8")

    def part(self) -> Part:
        return Slot("env").fill(self.env)

    def check(self, part: Part, *, name: str) -> None:
        """Raise if an environment's task sets differ from the file; errors call it `name`."""
        kind, kind_here = self.env.get("kind"), part.config().get("kind")
        if kind != kind_here:
            raise RecordError(
                f"{name}: it has the task sets of the environment {kind!r}, not of {kind_here!r}; give the task set "
                "file of this environment, or make one with `groupwise tasks ENV --out FILE`"
            )
        now = TaskSetFile.of(part)
        for split in SPLITS:
            if now.hashes[split] != self.hashes[split]:
                before, after = set(self.tasks[split]), set(now.tasks[split])
                raise RecordError(
                    f"{name}: the {split} task set changed: {len(before - after)} of its {len(before)} tasks are gone "
                    f"and {len(after - before)} are new ({self.hashes[split][:12]} is now {now.hashes[split][:12]}). "
                    "Results on the two are not comparable. Restore the fields and data that made it, or make the "
                    "file again"
                )

    def _to_json(self) -> dict[str, Any]:
        task_sets = {split: {"hash": self.hashes[split], "tasks": list(self.tasks[split])} for split in SPLITS}
        return {"schema": SCHEMA, "env": dict(self.env), "task_sets": task_sets}

    def _make_seal(self) -> str:
        return digest_value(self._to_json())


def _read_ids(tasks: Any) -> tuple[str, ...]:
    if not isinstance(tasks, list) or not all(isinstance(task, str) for task in tasks):
        raise TypeError("the tasks of a task set are a list of texts")
    return tuple(tasks)


def task_sets_of(part: Part) -> dict[str, tuple[Task, ...]]:
    """The task sets of an environment; raise if two of them share a task."""
    env: EnvironmentPart = part  # type: ignore[assignment]
    task_sets = {split: ask_task_set(env, split) for split in SPLITS}
    check_disjoint(task_sets)
    return task_sets


def check_evaluated(part: Part, *, split: str, tasks: set[str], digest: str) -> None:
    task_sets = {name: {task.id for task in task_set} for name, task_set in task_sets_of(part).items()}
    strange = tasks - task_sets.get(split, set())
    if strange:
        raise RecordError(
            f"an evaluation on split {split!r} (task set {digest[:12]}) has {len(strange)} tasks that are not in this "
            f"task set, such as {min(strange)}; the environment or its data changed, so evaluate again"
        )
