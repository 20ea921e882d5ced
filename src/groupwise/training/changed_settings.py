"""Which settings may change when a run is resumed.

Its length, learning rate, evaluation, checkpoints, alarms and hardware may change; the journal records the changes.
What is learned (model, environment, rewards, advantages, loss, prompts, tasks, seed) must not change. The path of
data, of a model or of a reward function may change if the old path is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from groupwise.envs.data_set import HUB
from groupwise.parts.part import flatten_settings
from groupwise.store.journal import SettingChange
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import ConfigError
from groupwise.system.files import parse_toml, read_text_file
from groupwise.system.text import quote_line
from groupwise.training.config.run_config import RunConfig, undo_correction

LAG = ("rollout.lag", "rollout.max_staleness", "rollout.corrects_lag")
MAY_CHANGE = (
    *("training.updates", "training.checkpoint_every", "training.min_survivors", "training.weight_sync"),
    *("checkpoints", "evaluation", "alarms", "trackers", "task_set"),
    *("device", "threads", "shares_cores", "engine", "env.url"),
    *("rollout.max_tokens", "rollout.workers", "rollout.env_timeout"),
    *LAG,
)
"""Settings and whole sections that may change; a new task set file is compared with the run's tasks."""
LEARNER = "training.learner"
OF_LEARNER = (
    *("learning_rate", "schedule", "weight_decay", "betas", "eps", "max_grad_norm"),
    *("token_budget", "share_prefixes", "apply_gradients", "checkpoint_layers", "compile_layers", "ranks"),
)
"""Settings of any learner that may change, also of one that it wraps."""
MODEL_PLACE = "model.path"
ENV_PLACES = ("path", "test_path", "documents", "questions")
"""Last words of settings that say where an environment's data are. `check_moved` compares the tasks at a new place."""


def check_changes(recorded: RunConfig, config: RunConfig, folder: Path) -> list[SettingChange]:
    """The settings that change in a resumed run; a setting that must not change is an error."""
    changes = compare_settings(flatten_config(recorded), flatten_config(config))
    if any(_is_within(change.path, LAG) for change in changes):
        # Compare without the correction and the filter that `rollout.lag` adds to an algorithm.
        sides = (recorded, config)
        ages = {side.rollout.max_staleness for side in sides if side.rollout.lag and side.rollout.corrects_lag}
        before, after = (
            side.model_copy(update={"algorithm": undo_correction(side.algorithm, max_ages=ages)}) for side in sides
        )
        changes = compare_settings(flatten_config(before), flatten_config(after))
    refused = [change for change in changes if not _may_change(change)]
    if refused:
        first = refused[0]
        more = f" ({len(refused) - 1} more like it)" if len(refused) > 1 else ""
        raise ConfigError(
            f"{first.path} cannot change in a resumed run: it was {_quote(first.before)}, is {_quote(first.after)}"
            f"{more}; leave it as in {RunPaths(folder).config}, or begin another run in another folder"
        )
    return changes


def check_moved(changes: Iterable[SettingChange], named: Mapping[str, str], now: Mapping[str, str]) -> None:
    """If an environment's data have a new path, check that the tasks there are those that the run began with.

    `named` has the hash of the tasks of each split that the run used so far, `now` the hash of the tasks there now.
    """
    moved = next((change for change in changes if _is_env_place(change.path)), None)
    if moved is None:
        return
    refusal = f"{moved.path} cannot change in a resumed run: it was {_quote(moved.before)}, and"
    shared = [split for split in now if split in named]
    if not shared:
        raise ConfigError(
            f"{refusal} the journal has no hash to compare the tasks at {_quote(moved.after)} with; put the data back "
            "to where they were, or begin another run in another folder"
        )
    for split in shared:
        if named[split] != now[split]:
            raise ConfigError(
                f"{refusal} at {_quote(moved.after)} are other tasks (the {split} task set was {named[split][:12]}, is "
                f"{now[split][:12]}); give the new place of the same data, or begin another run in another folder"
            )


def read_recorded(folder: Path) -> RunConfig | None:
    """The settings in a run's folder; None if there are none."""
    path = RunPaths(folder).config
    try:
        content = parse_toml(read_text_file(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); put it back from a copy, or remove it") from None
    try:
        return RunConfig(**content)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.describe()}") from None


def flatten_config(config: RunConfig) -> dict[str, Any]:
    """A run's settings by path, without `made_by`."""
    return flatten_settings({name: value for name, value in config.config().items() if name != "made_by"})


def compare_settings(before: Mapping[str, Any], after: Mapping[str, Any], number: int = 0) -> list[SettingChange]:
    """The settings that differ between two flat run files; `number` is the update after which they differ."""
    paths = [*before, *(path for path in after if path not in before)]
    return [
        SettingChange(number=number, path=path, before=before.get(path), after=after.get(path))
        for path in paths
        if before.get(path) != after.get(path)
    ]


def undo_changes(settings: dict[str, Any], changes: Sequence[SettingChange], number: int) -> dict[str, Any]:
    """Flat settings as they were when an update was made: the present ones with all later changes undone.

    Changes right after the update are undone too, because a run that was killed there resumes from it once more.
    """
    then = dict(settings)
    for change in sorted(changes, key=lambda change: -change.number):
        if change.number >= number:
            then[change.path] = change.before
    return {path: value for path, value in then.items() if value is not None}


def _may_change(change: SettingChange) -> bool:
    if _is_within(change.path, ("rewards",)) and change.path.endswith(".function"):
        # If the old file is gone, another file may have the function.
        file, _, name = str(change.before).rpartition(":")
        return file.endswith(".py") and not Path(file).exists() and str(change.after).endswith(f".py:{name}")
    if change.path == MODEL_PLACE or _is_env_place(change.path):
        return isinstance(change.before, str) and _was_moved(change.before, is_model=change.path == MODEL_PLACE)
    rest = change.path.removeprefix(f"{LEARNER}.").split(".") if change.path.startswith(f"{LEARNER}.") else ()
    return _is_within(change.path, MAY_CHANGE) or any(name in OF_LEARNER for name in rest)


def _is_env_place(path: str) -> bool:
    return _is_within(path, ("env",)) and path.rpartition(".")[2] in ENV_PLACES


def _was_moved(before: str, *, is_model: bool) -> bool:
    """Whether a path is empty now; a name on the hub is not a path."""
    place = Path(before).expanduser()
    if not before or before.startswith(HUB) or (is_model and not place.is_absolute()):
        return False
    return not place.exists() and not (has_magic(before) and glob(str(place)))


def _is_within(path: str, sections: Iterable[str]) -> bool:
    return any(path == section or path.startswith((f"{section}.", f"{section}[")) for section in sections)


def _quote(value: Any) -> str:
    return quote_line(repr(value), limit=60)
