"""From settings to a trained run: `open_run` opens what they name, `train` learns. What a program of your own calls.

Settings come as people have them: decoded (`RunConfig`), a run file's content as a dict, or the file itself. Opening
and the loop are defined in `training`, which opens runs itself (to resume one) and knows no run files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.system.errors import ConfigError
from groupwise.system.text import describe_value
from groupwise.training import loop
from groupwise.training import open_run as opening
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.run_file import decode_run, load_run
from groupwise.training.observer import RunObserver, check_observers
from groupwise.training.run import Run

Settings = RunConfig | Mapping[str, Any] | Path | str
"""A run's settings: decoded, as a run file's content, or where the file (or the folder of a run) is."""

RUNS = Path("runs")
"""Where runs go that are given no folder."""


def open_run(
    config: Settings,
    folder: Path | str | None = None,
    *,
    model_and_tokenizer: tuple[Any, Any] | None = None,
    read_only: bool = False,
) -> Run:
    """Open everything a run needs; what cannot work is refused before a model loads.

    The folder is locked until the run is closed, or `train` returns. With `read_only` it is not: somebody else may
    write there meanwhile, this run does not.

    Args:
        config: the run: a `RunConfig`, the content of a run file as a dict, or the path of one.
        folder: where the run is, or will be; None = a new folder, `runs/1` or the next number that is free.
        model_and_tokenizer: to take the place of those that the settings would open.
        read_only: whether nothing is written into the folder.
    """
    decoded = read_settings(config)
    place = name_new_folder(RUNS) if folder is None else Path(folder)
    return opening.open_run(decoded, place, model_and_tokenizer=model_and_tokenizer, read_only=read_only)


def train(
    run: Run | Settings,
    folder: Path | str | None = None,
    *,
    resume: bool = False,
    observers: Sequence[RunObserver] = (),
) -> Path:
    """Make a run's updates, and leave a complete folder: settings, journal, checkpoints, what trackers write.

    Args:
        run: one that was opened, or the settings of one, which is then opened and closed here.
        folder: where the run is, or will be, as `open_run` takes it; not for a run that is open.
        resume: whether to go on from the last checkpoint, as if the run had never stopped.
        observers: told what happens; they change nothing.

    Returns:
        The run's folder, for `read_run` and every command.
    """
    check_observers(observers)  # before a model loads
    if isinstance(run, Run):
        if folder is not None:
            raise ConfigError(f"train was given a folder for a run that is open in {run.folder}; leave it out")
        loop.train(run, resume=resume, observers=observers)
        return run.folder
    with open_run(run, folder) as opened:
        loop.train(opened, resume=resume, observers=observers)
        return opened.folder


def read_settings(config: Settings) -> RunConfig:
    """Settings, decoded, in whichever form they come."""
    if isinstance(config, RunConfig):
        return config
    if isinstance(config, Mapping):
        return decode_run(config)
    if isinstance(config, str | Path):
        return load_run(config)
    raise ConfigError(
        f"the settings of a run are {describe_value(config)}; give a dict as in a run file, such as "
        "{'algorithm': {'recipe': NAME}, 'env': {'kind': 'household'}, 'model': {'kind': 'tiny'}}, a RunConfig, or "
        "the path of a run file"
    )


def name_new_folder(parent: Path) -> Path:
    """The first numbered folder that is not there yet."""
    number = 1
    while (parent / str(number)).exists():
        number += 1
    return parent / str(number)


__all__ = ["load_run", "open_run", "train"]
