"""A sweep: its variants (variants) with all their settings, its seeds, and the folders of its runs.

    FOLDER/
        sweep.json          the plan
        VARIANT/
            seed0.toml      the run file of the variant and the seed, complete
            seed0.log       the output of its process
            seed0/          the run folder
        results.json        the table
        report.html         the report

The plan is written before the first run begins. A later command must include all of it, with the same settings; it may
add more.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from groupwise.store.run_folder import SWEEP_PLAN
from groupwise.system.errors import ConfigError, FileError
from groupwise.system.files import parse_value, read_text_file, write_atomic
from groupwise.system.json_text import to_json
from groupwise.system.text import quote_line
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.run_file import Tell, load_run, parse_setting
from groupwise.training.run_reader import find_setting_differences

RESULTS = "results.json"
SCHEMA = 2
MAX_PLAN_BYTES = 64 << 20
MAX_SHOWN = 3
"""Largest number of variants that a message names."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A variant: settings that several runs with different seeds share."""

    name: str
    choices: Mapping[str, str]
    """Its settings on the command line, by path."""
    settings: Mapping[str, Any]
    """All settings of its runs, without the seed."""


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of a sweep."""

    variant: str
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.variant} seed {self.seed}"

    @property
    def file(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.toml")

    @property
    def log(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.log")


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """All variants and seeds of a sweep."""

    threads: int
    """Threads of a run without this setting; stored, because the number can change the last digits of results."""
    seeds: tuple[int, ...]
    variants: tuple[Variant, ...]

    def list_runs(self, folder: Path) -> list[PlannedRun]:
        """Every run, all variants with the first seed first: a stopped sweep can still be compared."""
        return [
            PlannedRun(variant=variant.name, seed=seed, folder=folder / variant.name / f"seed{seed}")
            for seed in self.seeds
            for variant in self.variants
        ]

    def load_config(self, run: PlannedRun) -> RunConfig:
        variant = next(variant for variant in self.variants if variant.name == run.variant)
        return RunConfig(**{**variant.settings, "seed": run.seed})


def plan_sweep(
    file: Path,
    settings: Sequence[str],
    *,
    num_seeds: int,
    threads: int,
    unset: Sequence[str] = (),
    tell: Tell = warnings.warn,
) -> SweepPlan:
    """Plan every combination of settings, each with `num_seeds` seeds, counted from the run file's seed.

    `settings` are `a.b=1,2` from the command line; `threads` is for run files without this setting; `tell` gets a
    sentence about options that the method of a variant does not have.
    """
    choices = list_choices(settings)
    notes: dict[str, None] = {}
    configs = [
        load_run(
            file,
            overrides=[f"{key}={value}" for key, value in choice.items()],
            unset=unset,
            tell=lambda line: notes.setdefault(line, None),
        )
        for choice in choices
    ]
    for line in notes:
        tell(line)
    names = name_variants(choices, otherwise=file.stem)
    for name, config in zip(names, configs, strict=True):
        if not config.evaluation.tasks:
            raise ConfigError(f"{file}: evaluation.tasks is 0 in {name!r}, but a sweep compares evaluations; raise it")
    variants = [
        Variant(name=name, choices=choice, settings=_describe_settings(config, threads))
        for name, choice, config in zip(names, choices, configs, strict=True)
    ]
    first = configs[0].seed
    return SweepPlan(threads=threads, seeds=tuple(range(first, first + num_seeds)), variants=tuple(variants))


def read_plan(folder: Path) -> SweepPlan | None:
    path = folder / SWEEP_PLAN
    if not path.is_file():
        return None
    try:
        content = json.loads(read_text_file(path, max_bytes=MAX_PLAN_BYTES))
        if content["schema"] != SCHEMA:
            raise ValueError(f"it has schema {content['schema']!r}, this version reads {SCHEMA}")
        return SweepPlan(
            threads=int(content["threads"]),
            seeds=tuple(map(int, content["seeds"])),
            variants=tuple(_read_variant(variant) for variant in content["variants"]),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileError(
            f"{path}: cannot be read as the plan of a sweep ({error}); give the folder that `groupwise sweep --out "
            "FOLDER` wrote"
        ) from None


def write_plan(plan: SweepPlan, folder: Path) -> None:
    write_json(folder / SWEEP_PLAN, {"schema": SCHEMA, **asdict(plan)})


def write_json(path: Path, content: Any) -> None:
    with write_atomic(path, advice="free some space, or give another folder") as draft:
        draft.write_text(to_json(content), encoding="utf-8")


def write_run_file(plan: SweepPlan, run: PlannedRun) -> None:
    import tomli_w  # only needed for training

    try:
        run.file.parent.mkdir(parents=True, exist_ok=True)
        run.file.write_text(tomli_w.dumps(plan.load_config(run).config()), encoding="utf-8")
    except OSError as error:
        raise FileError(
            f"{run.file}: cannot be written ({error.strerror}); give a folder that you may write to, with space left"
        ) from None


def extend_plan(recorded: SweepPlan, wanted: SweepPlan, folder: Path) -> tuple[SweepPlan, str]:
    """The plan to continue with, and what it adds to the recorded plan; an error if it is another sweep.

    Variants with the same settings are the same, and keep the name of their folder.
    """
    matches: dict[str, Variant | None] = {}
    for variant in recorded.variants:  # the variant of the other plan with the same settings
        settings = _fill_up(variant, recorded.threads)
        same = (other for other in wanted.variants if not find_setting_differences(settings, other.settings))
        matches[variant.name] = next(same, None)
    asked = {variant.name: variant for variant in wanted.variants}
    for variant in recorded.variants:
        if matches[variant.name] is None and variant.name in asked:
            change = find_setting_differences(_fill_up(variant, recorded.threads), asked[variant.name].settings)[0]
            raise ConfigError(
                f"{folder} holds a sweep whose variant {variant.name!r} has {change.path} = {change.first!r}, but now "
                f"it is {change.second!r}; change it back, or give another folder with --out"
            )
    missing = [name for name, match in matches.items() if match is None] + [
        f"seed {seed}" for seed in recorded.seeds if seed not in wanted.seeds
    ]
    if missing:
        raise ConfigError(
            f"{folder} holds a sweep that also has {_list_names(missing)}; include these too, or give another folder "
            "with --out"
        )
    kept = [
        replace(variant, choices=match.choices)
        for variant in recorded.variants
        if (match := matches[variant.name]) is not None
    ]
    new = [variant for variant in wanted.variants if variant not in matches.values()]
    for variant in new:
        if variant.name in matches:
            raise ConfigError(
                f"{folder} holds a sweep with another variant called {variant.name!r}; give another folder with --out"
            )
    added = [variant.name for variant in new] + [f"seed {seed}" for seed in wanted.seeds if seed not in recorded.seeds]
    return replace(recorded, seeds=wanted.seeds, variants=(*kept, *new)), _list_names(added) if added else ""


def _fill_up(variant: Variant, threads: int) -> dict[str, Any]:
    """The settings of a recorded variant; settings of newer versions have their defaults."""
    return _describe_settings(RunConfig(**variant.settings), threads)


def _describe_settings(config: RunConfig, threads: int) -> dict[str, Any]:
    settings = {name: value for name, value in config.config().items() if name != "seed"}
    plain: dict[str, Any] = json.loads(
        json.dumps({**settings, "threads": config.threads or threads, "shares_cores": False})
    )
    return plain


def _read_variant(content: Mapping[str, Any]) -> Variant:
    name = str(content["name"])
    if Path(name).name != name or name.startswith("."):
        raise ValueError(f"the variant {name!r} is not a valid folder name")
    return Variant(name=name, choices=dict(content["choices"]), settings=dict(content["settings"]))


def _list_names(names: Sequence[str]) -> str:
    rest = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(names[:MAX_SHOWN]) + rest


METHOD = "algorithm.method"
MAX_NAME = 80
"""Largest length of a variant's name, which is also its folder's."""
BRACKETS = {"[": 1, "{": 1, "]": -1, "}": -1}

Choice = dict[str, str]
"""One value, as text, per setting."""


def list_choices(settings: Sequence[str]) -> list[Choice]:
    """Every combination of `a.b=1,2` settings, in the order in which they were given.

    >>> list_choices(["depth=1,2", "scale=none"])
    [{'depth': '1', 'scale': 'none'}, {'depth': '2', 'scale': 'none'}]
    """
    values: dict[str, list[str]] = {}
    for setting in settings:
        key, _ = parse_setting(setting, option="--set ")
        if key in values:
            raise ConfigError(f"--set {key} is given twice; give all of its values at once: --set {key}=1,2")
        if key == "seed":
            raise ConfigError("--set seed: a sweep counts its seeds from the run file's; set their number with --seeds")
        values[key] = _split_values(key, setting.partition("=")[2])
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def name_variants(choices: Sequence[Choice], *, otherwise: str) -> list[str]:
    """Name each variant, and its folder, by the settings in which the variants differ.

    >>> name_variants([{"algorithm.method": "one", "a.b": "1"}, {"algorithm.method": "two", "a.b": "1"}], otherwise="x")
    ['one', 'two']
    """
    differing = [key for key in choices[0] if len({choice[key] for choice in choices}) > 1]
    if not differing:
        return [_make_folder_name(otherwise)]
    short = {key: _shorten_key(key, differing) for key in differing}
    names = [
        _make_folder_name(",".join(f"{short[key]}{_describe_value(choice[key])}" for key in differing))
        for choice in choices
    ]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two variants of the sweep would both be called {name!r}; give settings that make the names differ"
            )
    return names


def _split_values(key: str, text: str) -> list[str]:
    """Split values at commas, except inside quotes and brackets.

    >>> _split_values("plan", '{ kind = "top_up", rounds = 4 },flat')
    ['{ kind = "top_up", rounds = 4 }', 'flat']
    """
    values, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        depth += 0 if quote else BRACKETS.get(character, 0)
        if character == "," and not depth and not quote:
            values.append("")
        else:
            values[-1] += character
    values = [value.strip() for value in values]
    if "" in values:
        raise ConfigError(f"--set {quote_line(f'{key}={text}', limit=200)} lacks a value; write --set {key}=1,2")
    if len(set(values)) < len(values):
        raise ConfigError(f"--set {quote_line(f'{key}={text}', limit=200)} has a value twice; name each once")
    return values


def _shorten_key(key: str, keys: Sequence[str]) -> str:
    """The last word of a setting's path if it is unique; empty for the method."""
    if key == METHOD:
        return ""
    last = key.rpartition(".")[2]
    is_alone = sum(other.rpartition(".")[2] == last for other in keys) == 1
    return f"{last if is_alone else key}="


def _describe_value(text: str) -> str:
    value: Any = parse_value(text)
    if isinstance(value, Mapping):
        rest = {key: inner for key, inner in value.items() if key != "kind"}
        return f"{value.get('kind', '')}{json.dumps(rest) if rest else ''}"
    return str(value)


def _make_folder_name(text: str) -> str:
    """A name that is safe for file systems and shells."""
    plain = re.sub(r"[^A-Za-z0-9._+=,-]+", "-", text).strip("-.,")
    return plain[:MAX_NAME] or "run"


# How many runs of a sweep train at the same time: as many as cores, memory and GPUs allow.

MEMORY_SHARE = 0.9
"""Fraction of the free memory that runs may use, because needs are estimates."""
PROCESS_MEMORY = 0.8e9
"""Bytes of a training process without its model: the interpreter, torch, transformers."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The free resources of a machine."""

    cores: int
    memory: float | None
    """Free bytes; None = the system does not say."""
    gpus: Sequence[float]
    """Free bytes of each GPU for the runs; empty = they run on the CPU."""


@dataclass(frozen=True, kw_only=True)
class RunNeeds:
    """The resources of the largest run of a sweep."""

    threads: int
    memory: float
    """Bytes of weights, gradients, optimizer state and activations, on a GPU if there is one."""
    alone_because: str = ""
    """Why no other run may run at the same time; empty = others may."""
    fills_gpu: bool = False
    """Whether its engine uses a whole GPU's memory."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where runs may train at the same time."""

    gpus: tuple[int | None, ...]
    """One place per run at the same time: the number of its GPU, or None on the CPU."""
    reason: str
    """What limits the number, in words."""


def find_places(num_runs: int, needs: RunNeeds, machine: Machine) -> Places:
    """Where at most `num_runs` runs can train at the same time; there is always one place.

    A run on a GPU needs a core and the memory of that GPU; one on the CPU needs as many cores as it has threads.

    >>> needs = RunNeeds(threads=2, memory=1e9)
    >>> find_places(10, needs, Machine(cores=8, memory=64e9, gpus=()))
    Places(gpus=(None, None, None, None), reason='8 free cores for 2 threads each')
    """
    if needs.alone_because:
        return Places(gpus=(0 if machine.gpus else None,), reason=needs.alone_because)
    limits = {"no more runs": num_runs}
    if machine.memory is not None:
        of_run = PROCESS_MEMORY + (0.0 if machine.gpus else needs.memory)
        limits[f"{machine.memory / 1e9:.1f} GB of free memory"] = int(MEMORY_SHARE * machine.memory / of_run)
    places: list[int | None] = [None] * num_runs
    if machine.gpus:
        # A GPU that seems too small still gets one run.
        rooms = [
            1 if needs.fills_gpu else max(1, int(MEMORY_SHARE * free / max(needs.memory, 1.0))) for free in machine.gpus
        ]
        places = [gpu for place in range(max(rooms)) for gpu, room in enumerate(rooms) if place < room]
        limits[f"room on {_count(len(rooms), 'GPU')}"] = len(places)
        limits[_count(machine.cores, "free core")] = machine.cores
    else:
        cores = f"{_count(machine.cores, 'free core')} for {_count(needs.threads, 'thread')} each"
        limits[cores] = machine.cores // needs.threads
    reason = min(limits, key=lambda words: limits[words])
    return Places(gpus=tuple(places[: max(1, limits[reason])]), reason=reason)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
