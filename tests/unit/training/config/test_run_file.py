"""Run files: an algorithm as TOML, and everything that can be wrong with one."""

from __future__ import annotations

import sqlite3
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from groupwise import Algorithm, ConfigError, FileError, methods
from groupwise.credit import ByTask, EpisodeReturn, Relative
from groupwise.learner.config import LearnerConfig
from groupwise.methods.r3 import CrossContextReplay
from groupwise.store.journal import Journal
from groupwise.training.config.run_file import decode_algorithm, decode_run, load_algorithm, load_run, override_setting

METHODS = "`groupwise methods` lists them all"


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_method_by_name_with_its_options(tmp_path: Path) -> None:
    path = write(tmp_path, '[algorithm]\nmethod = "hgpo"\ndepth = 4\nscale = "none"\n')
    assert load_algorithm(path) == methods.hgpo(depth=4, scale="none")


def test_a_run_of_another_version_is_named_by_its_schema_and_not_by_a_setting(tmp_path: Path) -> None:
    write(tmp_path, "[rollout]\nattempts = 8\n").rename(tmp_path / "config.toml")
    with Journal(tmp_path / "journal.sqlite"):
        pass
    with sqlite3.connect(tmp_path / "journal.sqlite") as database:
        database.execute("UPDATE about SET value = '1' WHERE key = 'schema'")
    with pytest.raises(FileError, match=r"journal\.sqlite: the journal has schema 1, this version reads 2; use the"):
        load_run(tmp_path)


def test_the_parts_themselves(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        [algorithm.advantage]
        kind = "relative"
        by = { kind = "by_task" }
        of = "episode_return"
        """,
    )
    assert load_algorithm(path).advantage == Relative(by=ByTask(), of=EpisodeReturn())


@pytest.mark.parametrize("name", methods.names())
def test_every_method_survives_being_written_out_as_a_run_file(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, tomli_w.dumps({"algorithm": methods.build(name).config()}))
    assert load_algorithm(path) == methods.build(name)


NO_METHOD = (
    "algorithm: no method is given; write a section [algorithm] with a `method`, or with an `advantage` and its `kind`"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", NO_METHOD),
        ('algorithm = "hgpo"', NO_METHOD),
        ("[algorithm]\n", NO_METHOD),
        (
            '[algorithm]\nmethod = "hgop"',
            f"algorithm.method: there is no method 'hgop'; did you mean 'hgpo'? {METHODS}",
        ),
        (
            '[algorithm]\nmethod = "hgpo"\ndpth = 3',
            "algorithm.dpth: not an option of the method 'hgpo', and not a part of an algorithm; did you mean 'depth'? "
            "`groupwise methods --show hgpo` lists them all",
        ),
        (
            '[algorithm]\nmethod = "grpo"\nlos = "policy_loss"',
            "algorithm.los: not an option of the method 'grpo', and not a part of an algorithm; did you mean 'loss'? "
            "docs/reference/settings.md lists them all",
        ),
        (
            '[algorithm]\nmethod = "hgpo"\ndepth = -3',
            "algorithm.depth: expected a number greater than or equal to 0, found -3",
        ),
        (
            '[algorithm.advantage]\nkind = "relative"\nby = { kind = "by_tas" }\nof = "episode_return"',
            "algorithm.advantage.by.kind: there is no grouper 'by_tas'; did you mean 'by_task'? "
            "docs/reference/parts/grouper.md lists them all",
        ),
        (
            '[algorithm]\nadvantag = "sum"',
            "algorithm.advantag: unknown setting; did you mean 'advantage'? docs/reference/settings.md lists them all",
        ),
        ("[algorithm", "not valid TOML: Expected ']' at the end of a table declaration (at end of document)"),
        ("depth = \n", "not valid TOML: Invalid value (at line 1, column 9)"),
    ],
)
def test_a_wrong_run_file_is_an_error_that_names_the_file(text: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_algorithm(path)
    assert str(caught.value) == f"{path}: {message}"


def test_an_unknown_section_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    path = write(tmp_path, "[algoritm]\n")
    with pytest.raises(ConfigError) as caught:
        load_algorithm(path)
    assert str(caught.value) == (
        f"{path}: algoritm: unknown setting; did you mean 'algorithm'? docs/reference/settings.md lists them all"
    )


def test_a_run_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    with pytest.raises(ConfigError) as caught:
        load_algorithm(path)
    assert str(caught.value) == f"{path}: there is no such file; give a method's name or a TOML file"


def test_a_file_of_nearly_that_name_is_offered(tmp_path: Path) -> None:
    (tmp_path / "household.toml").touch()
    with pytest.raises(ConfigError) as caught:
        load_run(tmp_path / "houshold.toml")
    wanted = f"did you mean {tmp_path / 'household.toml'}? Give a run file (TOML) or the folder of a run"
    assert str(caught.value) == f"{tmp_path / 'houshold.toml'}: there is no such file; {wanted}"


def test_a_run_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError) as caught:
        load_algorithm(path)
    assert str(caught.value) == (
        f"{path}: cannot be read (byte 1 is not UTF-8 (0xff)); give a method's name or a TOML file"
    )


def test_parts_of_a_method_can_be_changed_one_by_one() -> None:
    plain = decode_algorithm({"algorithm": {"method": "hgpo", "depth": 1}})
    changed = decode_algorithm(
        {
            "algorithm": {
                "method": "hgpo",
                "depth": 1,
                "loss": {"old": "engine", "penalties": []},
                "filters": ["zero_spread"],
            }
        }
    )
    assert changed.advantage == plain.advantage
    assert plain.loss is not None
    assert changed.loss == plain.loss.model_copy(update={"old": "engine", "penalties": ()})  # type: ignore[attr-defined]
    assert [type(part).__name__ for part in changed.filters] == ["ZeroSpread"]


def test_a_part_of_another_kind_replaces_the_methods() -> None:
    surrogate = {"kind": "clip", "low": 0.1, "high": 0.3}
    changed = decode_algorithm({"algorithm": {"method": "cispo", "loss": {"surrogate": surrogate}}})
    made = changed.config()["loss"]["surrogate"]
    assert (made["kind"], made["low"], made["high"]) == ("clip", 0.1, 0.3)


def test_a_wrong_part_of_a_method_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^algorithm\.loss\.odl: unknown setting; did you mean 'old'"):
        decode_algorithm({"algorithm": {"method": "hgpo", "loss": {"odl": "engine"}}})


def test_another_method_takes_the_place_of_an_algorithm_that_is_spelled_out() -> None:
    """A run's own config names every part: asked for another method, the run must become another one."""
    content = {"algorithm": methods.dr_grpo().config(), "env": {"kind": "identity"}, "model": {"kind": "tiny"}}
    assert decode_run(content).algorithm == methods.dr_grpo()
    assert decode_run(content, overrides=["algorithm.method=hgpo"]).algorithm == methods.hgpo()
    changed = decode_run(content, overrides=["algorithm.method=hgpo", "algorithm.depth=1"])
    assert changed.algorithm == methods.hgpo(depth=1)
    with pytest.raises(ConfigError) as caught:
        decode_run(content, overrides=["algorithm.with_reflection=false"])
    assert str(caught.value) == (
        "algorithm.with_reflection: this is an option of a method, but the file names no method; add algorithm.method, "
        "or change the part itself"
    )


def test_settings_of_a_part_that_was_switched_off_are_refused() -> None:
    section = {"method": "r3", "with_reflection": False, "hint": {"prompt": "terse"}}
    with pytest.raises(ConfigError) as caught:
        decode_algorithm({"algorithm": section})
    assert str(caught.value) == (
        "algorithm.hint: the method 'r3', with the options given, has no hint whose settings could change; "
        "leave the settings out, or give them a `kind`"
    )
    given = {"method": "grpo", "replay": {"kind": "cross_context_replay", "k": 3}}
    assert decode_algorithm({"algorithm": given}).replay == CrossContextReplay(k=3)


RUN = {"env": {"kind": "identity"}, "model": {"kind": "tiny"}}


def decode_telling(
    algorithm: dict[str, Any], *overrides: str, unset: Sequence[str] = ()
) -> tuple[Algorithm, list[str]]:
    notes: list[str] = []
    config = decode_run(RUN | {"algorithm": algorithm}, overrides=overrides, unset=unset, tell=notes.append)
    return config.algorithm, notes


def test_options_that_another_method_lacks_are_left_out_with_a_note() -> None:
    """`sweep --set algorithm.method=grpo,hgpo` failed on the options of the file's own method."""
    written = {"method": "hgpo", "depth": 4, "scale": "none", "loss": {"old": "engine"}}
    assert decode_telling(written) == (decode_algorithm({"algorithm": written}), [])
    algorithm, notes = decode_telling(written, "algorithm.method=dr_grpo")
    assert algorithm == decode_algorithm({"algorithm": {"method": "dr_grpo", "loss": {"old": "engine"}}})
    assert notes == ["the method 'dr_grpo' does not have algorithm.depth, algorithm.scale: left out"]
    kept, notes = decode_telling(written, "algorithm.method=gigpo")
    assert kept == decode_algorithm({"algorithm": {"method": "gigpo", "scale": "none", "loss": {"old": "engine"}}})
    assert notes == ["the method 'gigpo' does not have algorithm.depth: left out"]


def test_settings_of_a_part_that_another_method_lacks_are_left_out_too() -> None:
    written = {"method": "r3", "hint": {"prompt": "terse"}}
    algorithm, notes = decode_telling(written, "algorithm.method=grpo")
    assert algorithm == methods.grpo()
    assert notes == ["the method 'grpo' does not have algorithm.hint: left out"]


def test_without_anyone_to_tell_what_is_left_out_is_a_warning() -> None:
    with pytest.warns(UserWarning, match="the method 'grpo' does not have algorithm.depth: left out"):
        decode_run(RUN | {"algorithm": {"method": "hgpo", "depth": 4}}, overrides=["algorithm.method=grpo"])


@pytest.mark.parametrize(
    ("written", "overrides", "message"),
    [
        (
            {"method": "hgpo"},
            ["algorithm.method=grpo", "algorithm.depth=3"],
            "algorithm.depth: not an option of the method 'grpo'",
        ),
        (
            {"method": "hgpo", "depth": 1},
            ["algorithm.method=grpo", "algorithm.depth=3"],
            "algorithm.depth: not an option of the method 'grpo'",
        ),
        (
            {"method": "hgpo", "dpth": 3},
            ["algorithm.method=grpo"],
            "algorithm.dpth: not an option of the method 'grpo'",
        ),
        (
            {"method": "hgpo", "dpth": 3},
            ["algorithm.method=hgpo"],
            "algorithm.dpth: not an option of the method 'hgpo'",
        ),
        (
            {"method": "hgop", "depth": 3},
            ["algorithm.method=grpo"],
            "algorithm.depth: not an option of the method 'grpo'",
        ),
        (
            {"method": "r3"},
            ["algorithm.method=grpo", "algorithm.hint.prompt=terse"],
            "algorithm.hint: the method",
        ),
    ],
)
def test_what_was_given_for_the_other_method_itself_or_was_never_an_option_is_an_error(
    written: dict[str, Any], overrides: list[str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        decode_telling(written, *overrides)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("algorithm", "overrides", "made_by"),
    [
        ({"method": "hgpo", "depth": 4}, [], {"method": "hgpo", "depth": 4}),
        ({"method": "hgpo", "depth": 2}, ["algorithm.depth=3"], {"method": "hgpo", "depth": 3}),
        ({"method": "hgpo", "depth": 4, "gamma": 0.5}, ["algorithm.method=gigpo"], {"method": "gigpo", "gamma": 0.5}),
        ({"method": "grpo"}, ["algorithm.loss.old=engine"], {"method": "grpo", "loss": {"old": "engine"}}),
        (methods.hgpo().config(), [], None),
    ],
)
def test_what_was_written_for_the_algorithm_is_kept_beside_its_parts(
    algorithm: dict[str, Any], overrides: list[str], made_by: dict[str, Any] | None
) -> None:
    config = decode_run(RUN | {"algorithm": algorithm}, overrides=overrides, tell=str)
    assert config.made_by == made_by
    assert config.config().get("made_by") == made_by
    again = decode_run(tomllib.loads(tomli_w.dumps(config.config())))
    assert again == config, "a run's own settings carry it on"


def test_of_stored_settings_the_parts_count_and_what_they_were_made_by_is_a_name() -> None:
    stored = decode_run(RUN | {"algorithm": {"method": "hgpo", "depth": 4}}).config()
    assert decode_run(stored | {"made_by": {"method": "grpo"}}).algorithm == methods.hgpo(depth=4)
    same = decode_run(stored, overrides=["algorithm.loss.old=learner", "seed=3"])
    assert (same.algorithm, same.made_by) == (methods.hgpo(depth=4), {"method": "hgpo", "depth": 4})
    changed = decode_run(stored, overrides=["algorithm.loss.old=engine"])
    assert changed.made_by is None, "these are nobody's parts"


def test_another_method_takes_the_options_that_stored_settings_were_made_by() -> None:
    stored = decode_run(RUN | {"algorithm": {"method": "hgpo", "depth": 4, "gamma": 0.5}}).config()
    notes: list[str] = []
    config = decode_run(stored, overrides=["algorithm.method=gigpo"], tell=notes.append)
    assert config == decode_run(RUN | {"algorithm": {"method": "gigpo", "gamma": 0.5}})
    assert notes == ["the method 'gigpo' does not have algorithm.depth: left out"]
    assert decode_run(stored, overrides=["algorithm.method=hgpo"]).config() == stored


def test_a_setting_that_is_unset_has_its_default_before_others_are_set() -> None:
    content = RUN | {"algorithm": {"method": "hgpo", "depth": 4}, "training": {"learner": {"eps": 1e-5}, "tasks": 3}}
    config = decode_run(content, unset=["algorithm.depth", "training.tasks"])
    assert (config.algorithm, config.training.tasks) == (methods.hgpo(), 16)
    whole = decode_run(content, unset=["training.learner"], overrides=["training.learner.learning_rate=0.5"])
    assert whole.training.learner == LearnerConfig(learning_rate=0.5)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("training.updtes", "the file does not set 'updtes'; did you mean 'updates'? Valid: updates"),
        ("trainin.updates", "the file does not set 'trainin'; did you mean 'training'? Valid: algorithm, training"),
        ("training.updates.more", "'updates' is no section"),
    ],
)
def test_what_the_file_does_not_set_cannot_be_unset(tmp_path: Path, key: str, message: str) -> None:
    path = write(tmp_path, '[algorithm]\nmethod = "grpo"\n[training]\nupdates = 3\n')
    with pytest.raises(ConfigError) as caught:
        load_run(path, unset=[key], overrides=["seed=1"])
    assert str(caught.value) == f"{path} with --unset {key} --set seed=1: --unset {key}: {message}"


def test_an_entry_of_a_list_is_not_set_alone() -> None:
    content = {"env": {"kind": "mixture", "members": [{"weight": 1.0}]}}
    with pytest.raises(ConfigError) as raised:
        override_setting(content, "env.members.0.weight=-1")
    assert str(raised.value) == "'members' is a list; give it whole: --set 'env.members=[...]'"


def test_more_threads_than_torch_can_count_are_an_error_of_the_run_file() -> None:
    with pytest.raises(ConfigError, match="threads: expected a number less than or equal to 65536"):
        decode_run({"algorithm": {"method": "grpo"}, "env": "identity", "model": "tiny", "threads": 10**20})


def test_one_error_names_every_missing_section() -> None:
    with pytest.raises(ConfigError) as caught:
        decode_run({"env": "identity"})
    assert str(caught.value) == "sections are missing; write [algorithm] with a `method`, [model] with a `kind`"
