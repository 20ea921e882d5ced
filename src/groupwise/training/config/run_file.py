"""Run files: a run as TOML, with its algorithm by method or part by part.

    seed = 0

    [algorithm]
    method = "NAME"                # a method by name, with its options
    depth = 4

    [env]
    kind = "household"

    [model]
    kind = "tiny"

Beside its options, a method's parts can be changed one by one:

    [algorithm.loss]
    old = "engine"                 # the rest of the loss stays the method's

An algorithm can also be spelled out, as `groupwise methods --show NAME` prints it:

    [algorithm.advantage]
    kind = "relative"
    by = { kind = "by_task" }
    of = { kind = "episode_return" }

Later settings override earlier ones: a method's defaults, the file that the run file extends (`extends =
"base.toml"`), the run file, `--set a.b.c=value`. `--unset a.b.c` first removes a setting from both files.

With `--set algorithm.method=NAME`, options in the file that the other method does not have are ignored, with a note.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise import methods
from groupwise.methods import build
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import DEFAULT_KINDS, page_of
from groupwise.parts.path_settings import write_in
from groupwise.store.journal import Journal
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import ConfigError, Problem, find_near, nearest
from groupwise.system.files import MAX_KEY_PARTS, parse_toml, parse_value, read_text_file
from groupwise.system.secrets import check_no_secret
from groupwise.system.text import quote_line
from groupwise.training.config.run_config import RunConfig

Tell = Callable[[str], object]
"""Is called with a sentence that says what was left out."""

MAX_MESSAGE = 2000
"""Largest length of an error."""


def load_algorithm(path: Path) -> Algorithm:
    """Read the algorithm of a run file; every error names the file."""
    file = read_run_file(path, wanted="a method's name or a TOML file")
    try:
        return decode_algorithm(file.content)
    except ConfigError as error:
        raise ConfigError(_shorten(f"{file.name_place(error.key)}: {error.describe()}")) from None


def load_run(
    path: Path | str, *, overrides: Sequence[str] = (), unset: Sequence[str] = (), tell: Tell = warnings.warn
) -> RunConfig:
    """Read a run file, with `a.b.c=value` overrides on top; every error names the file and the overrides.

    Args:
        path: a TOML file, or the folder of a run.
        overrides: settings by path, such as `training.updates=80`.
        unset: paths of settings of the file to ignore, such as `training.learner`.
        tell: gets a sentence about options that another method than the file's does not have.
    """
    path = Path(path)
    if path.is_dir():
        paths = RunPaths(path)
        if paths.journal.is_file():  # the error about another version's folder is its schema, not a setting's old name
            Journal(paths.journal, read_only=True).close()
        path = paths.config
    file = read_run_file(path)
    try:
        return decode_run(file.content, overrides=overrides, unset=unset, tell=tell)
    except ConfigError as error:
        given = [override.partition("=")[0].split(".") for override in overrides]
        is_given = any(list(error.key[: len(key)]) == key for key in given)
        place = str(path) if is_given else file.name_place(error.key)
        options = [*(("--unset", key) for key in unset), *(("--set", override) for override in overrides)]
        changed = "".join(f" {option} {quote_line(text, limit=200)}" for option, text in options)
        raise ConfigError(_shorten(f"{place}{' with' if changed else ''}{changed}: {error.describe()}")) from None


def decode_algorithm(content: Mapping[str, Any]) -> Algorithm:
    return _decode_section(content)[0]


def _decode_section(
    content: Mapping[str, Any], *, of_other: Container[str] = (), tell: Tell = warnings.warn
) -> tuple[Algorithm, Mapping[str, Any] | None]:
    """The algorithm, and the section [algorithm] as far as it was used; None if it names no method.

    Keys in `of_other` were written for another method; those that this method does not have are left out.
    """
    for name in content:
        if name not in RunConfig.model_fields:
            raise ConfigError(problems=[Problem.of_unknown([name], RunConfig.model_fields, listed_by=page_of(""))])
    try:
        return _decode_written(content.get("algorithm"), of_other, tell)
    except ConfigError as error:
        raise error.below("algorithm") from None


def _decode_written(
    section: object, of_other: Container[str], tell: Tell
) -> tuple[Algorithm, Mapping[str, Any] | None]:
    if not isinstance(section, Mapping) or not section:
        raise ConfigError(
            "no method is given; write a section [algorithm] with a `method`, or with an `advantage` and its `kind`"
        )
    if "method" not in section:
        _check_parts_only(section)
        return Algorithm(**section), None
    method = str(section["method"])
    known = methods.summary(method).options
    over = {key: value for key, value in section.items() if key in Algorithm.model_fields}
    options = {key: value for key, value in section.items() if key != "method" and key not in over}
    lacking = [key for key in options if key in of_other and key not in known]
    options = {key: value for key, value in options.items() if key not in lacking}
    _check_options(method, options, known)
    algorithm = build(method, **options)
    absent = [
        key  # settings of a part that the method, as it was asked for, does not have
        for key in ("replay", "hint", "pairing", "critic")
        if isinstance(over.get(key), Mapping) and "kind" not in over[key] and getattr(algorithm, key) is None
    ]
    for key in absent:
        if key not in of_other:
            raise ConfigError(
                f"the method {method!r}, with the options given, has no {key} whose settings could change; leave the "
                "settings out, or give them a `kind`",
                key=(key,),
            )
    if lacking or absent:
        names = ", ".join(f"algorithm.{key}" for key in (*lacking, *absent))
        tell(f"the method {method!r} does not have {names}: left out")
    over = {key: value for key, value in over.items() if key not in absent}
    algorithm = Algorithm(**lay_over(algorithm.config(), over)) if over else algorithm
    return algorithm, {key: value for key, value in section.items() if key not in (*lacking, *absent)}


def _check_options(method: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise a ConfigError for a key that is neither an option of the method nor a part of an algorithm."""
    own, parts = [*known], [*Algorithm.model_fields]
    for key in given:
        if key not in (*own, *parts):
            near = find_near(key, [*own, *parts])
            if near and near[0] in parts:
                names = nearest(key, parts, listed_by=page_of(""))
            else:
                names = nearest(key, own, listed_by=f"`groupwise methods --show {method}`")
            text = f"not an option of the method {method!r}, and not a part of an algorithm; {names}"
            raise ConfigError(problems=[Problem((key,), text, is_unknown=not near)])


def _check_parts_only(section: Mapping[str, Any]) -> None:
    """Without a method, its options are errors."""
    options = {option for name in methods.names() for option in methods.summary(name).options}
    for key in section:
        if key in Algorithm.model_fields:
            continue
        if key in options:
            raise ConfigError(
                "this is an option of a method, but the file names no method; add algorithm.method, or change the "
                "part itself",
                key=(key,),
            )
        valid = ["method", *Algorithm.model_fields]
        raise ConfigError(problems=[Problem.of_unknown([key], valid, listed_by=page_of(""))])


def decode_run(
    content: Mapping[str, Any], *, overrides: Sequence[str] = (), unset: Sequence[str] = (), tell: Tell = warnings.warn
) -> RunConfig:
    """Turn a run file's content into a run; the arguments are those of `load_run`.

    Paths in it, also of a file that it extends, are relative to the working directory.
    """
    if EXTENDS in content:
        here = Path("settings")
        content = RunFile(path=here, written=content, base=read_base(content, here)).content
    merged: dict[str, Any] = copy.deepcopy(dict(content))
    given = [parse_setting(override, option="--set ")[0] for override in overrides]
    if "algorithm.method" in given:
        section = merged.get("algorithm")
        if isinstance(section, Mapping) and "method" not in section:
            # A run's own config spells out all parts, which would override those of the other method.
            merged["algorithm"] = merged.pop("made_by", {})
    for key in unset:
        unset_setting(merged, key)
    written = merged.get("algorithm")
    written = dict(written) if isinstance(written, Mapping) else {}
    for override in overrides:
        override_setting(merged, override)
    check_no_secret(merged)
    _check_sections(merged)
    algorithm, made_by = _decode_section(merged, of_other=_list_of_other(written, merged, given), tell=tell)
    if made_by is None and merged["algorithm"] == content.get("algorithm"):
        made_by = merged.get("made_by")  # a run's own settings, with unchanged parts
    return RunConfig(**{**merged, "algorithm": algorithm, "made_by": made_by})


def _check_sections(content: Mapping[str, Any]) -> None:
    """One error names every section that a run needs and that is missing."""
    needed = {"algorithm": "a `method`", "env": "a `kind`", "model": "a `kind`"}
    if "agent" in content:
        del needed["env"]
    missing = [f"[{name}] with {key}" for name, key in needed.items() if name not in content]
    if missing:
        raise ConfigError(f"sections are missing; write {', '.join(missing)}")


def _list_of_other(written: Mapping[str, Any], merged: Mapping[str, Any], given: Sequence[str]) -> set[str]:
    """If `--set` names another method: the keys that the file wrote for its own method.

    Misspelled keys, and keys of `--set` itself, are not among them: they stay errors.
    """
    section, before = merged.get("algorithm"), str(written.get("method"))
    if not isinstance(section, Mapping) or before not in methods.names() or section.get("method") == before:
        return set()
    known = {*Algorithm.model_fields, *methods.summary(before).options}
    return known & {key for key in written if not any(f"{path}.".startswith(f"algorithm.{key}.") for path in given)}


def _shorten(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 1]}…"


def parse_setting(text: str, *, option: str = "") -> tuple[str, Any]:
    """Read `KEY=VALUE`; the value is TOML, or else plain text.

    >>> parse_setting("depth=4"), parse_setting("scale=none")
    (('depth', 4), ('scale', 'none'))

    `option` is how a message writes what comes before a setting, such as `--set `.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{quote_line(repr(text))} has no value; write {option}{quote_line(key, limit=200)}=VALUE")
    return key.strip(), parse_value(value.strip())


def parse_settings(texts: Iterable[str], *, option: str = "", prefix: str = "") -> dict[str, Any]:
    """Read settings by key, without an optional prefix such as `env.`; the last value of a key counts."""
    settings = [parse_setting(text, option=option) for text in texts]
    return {key.removeprefix(prefix): value for key, value in settings}


def override_setting(content: dict[str, Any], text: str) -> None:
    """Set `training.updates=80` in the content of a run file."""
    path, value = parse_setting(text, option="--set ")
    *sections, key = path.split(".")
    if len(sections) > MAX_KEY_PARTS:
        raise ConfigError(f"the key of {quote_line(repr(text), limit=60)} has too many parts; no setting is so deep")
    for depth, section in enumerate(sections, start=1):
        content = content.setdefault(section, {})
        if isinstance(content, list):
            name = quote_line(".".join(sections[:depth]), limit=200)
            raise ConfigError(f"{quote_line(repr(section))} is a list; give it whole: --set '{name}=[...]'")
        if not isinstance(content, dict):
            raise ConfigError(f"{quote_line(repr(section))} is a value, not a section")
    content[key] = value


def unset_setting(content: dict[str, Any], path: str) -> None:
    """Remove a setting such as `training.learner` from the content of a run file, so its default counts."""
    *sections, key = path.strip().split(".")
    where = f"--unset {quote_line(path, limit=200)}"
    for depth, name in enumerate((*sections, key)):
        if name not in content:
            raise ConfigError(
                f"{where}: the file does not set {quote_line(repr(name), limit=200)}; {nearest(name, content)}"
            )
        if depth < len(sections):
            content = content[name]
            if not isinstance(content, dict):
                raise ConfigError(f"{where}: {quote_line(repr(name))} is no section")
    del content[key]


# A run file may extend another one:
#
#     extends = "base.toml"          # relative to this file; base.toml itself extends none
#
# Tables are merged. A list, or a table of another `kind` or `method`, replaces the one below. Paths in each file are
# relative to that file.

EXTENDS = "extends"
WANTED = "a run file (TOML) or the folder of a run"


@dataclass(frozen=True, kw_only=True)
class RunFile:
    """A file and the one that it extends."""

    path: Path
    """Where it is."""
    written: Mapping[str, Any]
    """Its own content."""
    base: RunFile | None = None
    """The file that it extends; None = none."""

    @property
    def content(self) -> dict[str, Any]:
        own = {key: value for key, value in self.written.items() if key != EXTENDS}
        if self.base is None:
            return own
        below = dict(self.base.written)
        if "algorithm" in own:
            below.pop("made_by", None)  # of a run's own settings; its parts may change here
        return lay_over(below, own)

    def name_place(self, key: Sequence[str]) -> str:
        """The file that has a key, for messages."""
        if self.base is None or _count_known(self.written, key) >= _count_known(self.base.written, key):
            return str(self.path)
        return f"{self.base.path} (extended by {self.path})"


def read_run_file(path: Path, *, wanted: str = WANTED) -> RunFile:
    """Read a run file, and the one that it extends; every error names the file."""
    content = _read(path, wanted)
    return RunFile(path=path, written=content, base=read_base(content, path))


def read_base(content: Mapping[str, Any], path: Path) -> RunFile | None:
    """Read the file that the content of a file extends, if it does."""
    if EXTENDS not in content:
        return None
    named = content[EXTENDS]
    if not isinstance(named, str) or not named:
        raise ConfigError(f"{path}: extends: found {quote_line(repr(named), limit=60)}; give the path of a run file")
    base = path.parent / Path(named).expanduser()
    try:
        below = _read(base, "a run file (TOML)")
    except ConfigError as error:
        raise ConfigError(f"{path}: extends: {error}") from None
    if EXTENDS in below:
        raise ConfigError(
            f"{base}: extends: a file that another one extends cannot extend a third; write the settings of "
            f"{quote_line(repr(below[EXTENDS]), limit=200)} here, or let {path} extend that"
        )
    return RunFile(path=base, written=below)


def lay_over(below: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Put changes on top of settings: a table that keeps its kind is filled up, everything else is replaced.

    >>> lay_over({"env": {"kind": "a", "size": 3}, "seed": 1}, {"env": {"size": 4}})
    {'env': {'kind': 'a', 'size': 4}, 'seed': 1}
    >>> lay_over({"env": {"kind": "a", "size": 3}}, {"env": {"kind": "b"}})
    {'env': {'kind': 'b'}}
    """
    merged = dict(below)
    for key, value in changes.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping) and _keeps_kind(key, before, value):
            merged[key] = lay_over(before, value)
        else:
            merged[key] = value
    return merged


def _keeps_kind(name: str, before: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
    if name == "algorithm" and changes.get("method", before.get("method")) != before.get("method"):
        return False
    kind = before.get("kind", DEFAULT_KINDS.get(name))
    return bool(changes.get("kind", kind) == kind)


def _read(path: Path, wanted: str) -> dict[str, Any]:
    try:
        text = read_text_file(path)
    except FileNotFoundError:
        near = find_near(path.stem, [file.stem for file in path.parent.glob("*.toml")])
        meant = f"did you mean {path.with_name(near[0] + '.toml')}? Give" if near else "give"
        raise ConfigError(f"{path}: there is no such file; {meant} {wanted}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: cannot be read ({reason}); give {wanted}") from None
    try:
        content: dict[str, Any] = write_in(parse_toml(text), path.parent)
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    return content


def _count_known(content: Any, key: Sequence[str]) -> int:
    """How many leading words of a key's path a file has."""
    count = 0
    for word in key:
        if not isinstance(content, Mapping) or word not in content:
            break
        content = content[word]
        count += 1
    return count
