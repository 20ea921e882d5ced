"""Going on with other settings: what may change is written down with its update, what must not is refused by name."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise import ConfigError, train
from groupwise.learner.protocol import hash_weights
from groupwise.parts.part import Part
from groupwise.store.journal import SettingChange
from groupwise.store.run_folder import RunPaths
from groupwise.training.changed_settings import check_changes, compare_settings, undo_changes
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.run_file import load_run
from groupwise.training.loop import train as run_loop
from groupwise.training.open_run import open_run
from tests.unit.training.runs import small_config

RATE = "training.learner.learning_rate"


class Halved(Part, slot="schedule"):
    """The whole rate for some steps, then half of it."""

    steps: int

    def __call__(self, step: int) -> float:
        return 1.0 if step < self.steps else 0.5


def change(config: RunConfig, **sections: Any) -> RunConfig:
    """Settings with some in their place: sections by name, fields of a section joined by two underscores."""
    content = config.config()
    for path, value in sections.items():
        *places, name = path.split("__")
        section = content
        for place in places:
            section = section[place]
        section[name] = value
    return RunConfig(**content)


def play(folder: Path, config: RunConfig, *, resume: bool = False) -> tuple[str, str]:
    """Train; the digests of the journal and of the weights."""
    with open_run(config, folder) as run:
        run_loop(run, resume=resume)
        return run.journal.digest(), hash_weights(run.learner.weights())


def read_changes(folder: Path, config: RunConfig) -> list[SettingChange]:
    with open_run(config, folder, read_only=True) as run:
        return run.journal.changes()


def dump_journal(folder: Path) -> list[str]:
    """Everything that is in a run's journal, as SQL."""
    with closing(sqlite3.connect(RunPaths(folder).journal)) as database:
        return list(database.iterdump())


@pytest.fixture(scope="module")
def halfway(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run after two of its updates."""
    folder = tmp_path_factory.mktemp("halfway")
    play(folder, small_config(updates=2))
    return folder


@pytest.fixture
def folder(halfway: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(halfway, tmp_path / "run"))


def test_another_rate_gives_what_a_run_with_that_rate_scheduled_would_give(folder: Path, tmp_path: Path) -> None:
    scheduled = small_config(updates=4, learner={"schedule": Halved(steps=2)})
    whole = play(tmp_path / "scheduled", scheduled)
    assert whole != play(tmp_path / "unchanged", small_config(updates=4))
    assert play(folder, small_config(updates=4, learner={"learning_rate": 5e-3}), resume=True) == whole
    assert read_changes(folder, scheduled) == [
        SettingChange(number=2, path=RATE, before=1e-2, after=5e-3),
        SettingChange(number=2, path="training.updates", before=2, after=4),
    ]
    assert load_run(folder).training.learner.learning_rate == 5e-3  # type: ignore[attr-defined]


def test_a_run_that_goes_on_unchanged_is_the_run_that_never_stopped(folder: Path, tmp_path: Path) -> None:
    whole = play(tmp_path / "whole", small_config(updates=4))
    assert play(folder, small_config(updates=3), resume=True) != whole
    assert play(folder, small_config(updates=4), resume=True) == whole
    paths = [(change.number, change.path) for change in read_changes(folder, small_config())]
    assert paths == [(2, "training.updates"), (3, "training.updates")]
    assert play(folder, small_config(updates=4), resume=True) == whole
    assert len(read_changes(folder, small_config())) == 2, "nothing changed the third time"


def test_a_run_that_is_killed_after_a_change_has_it_once(folder: Path) -> None:
    faster = small_config(updates=3, learner={"learning_rate": 2e-2})
    before = RunPaths(folder).config.read_bytes()
    play(folder, faster, resume=True)
    RunPaths(folder).latest.write_text("0002")
    after = RunPaths(folder).config.read_bytes()
    for content in (before, after):  # killed before, or after, the settings were written
        RunPaths(folder).config.write_bytes(content)
        play(folder, faster, resume=True)
        assert [(change.path, change.before, change.after) for change in read_changes(folder, faster)] == [
            (RATE, 1e-2, 2e-2),
            ("training.updates", 2, 3),
        ]
        RunPaths(folder).latest.write_text("0002")
    play(folder, small_config(updates=3), resume=True)
    assert [change.path for change in read_changes(folder, faster)] == ["training.updates"], "it was taken back"


def test_a_run_that_goes_back_beyond_a_change_has_it_where_it_goes_on(folder: Path) -> None:
    faster = small_config(updates=3, learner={"learning_rate": 2e-2})
    play(folder, faster, resume=True)
    RunPaths(folder).latest.write_text("0001")
    play(folder, faster, resume=True)
    assert [(change.number, change.path) for change in read_changes(folder, faster)] == [
        (1, RATE),
        (1, "training.updates"),
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("seed", 1),
        ("env__num_words", 5),
        ("model__hidden", 32),
        ("rewards", [{"kind": "environment", "weight": 2.0}]),
        ("algorithm__advantage__scale", {"kind": "deviation"}),
        ("rollout__temperature", 0.5),
        ("rollout__group_size", 4),
        ("rollout__system", "Be brief."),
        ("training__tasks", 1),
        ("training__learner__passes", 2),
        ("training__learner__optimizer", "adamw_8bit"),
        ("warm_start", {"tasks": 2}),
    ],
)
def test_what_is_learnt_must_not_change(path: str, value: Any, folder: Path) -> None:
    config = small_config(updates=3)
    setting = path.replace("__", ".")
    kept = RunPaths(folder).config.read_bytes()
    with pytest.raises(ConfigError) as caught:
        check_changes(config, change(config, **{path: value}), folder)
    said = str(caught.value)
    assert said.startswith(setting), said
    assert " cannot change in a resumed run: it was " in said
    assert said.endswith(f"; leave it as in {folder}/config.toml, or begin another run in another folder")
    if path == "seed":
        with pytest.raises(ConfigError, match=r"^seed cannot change in a resumed run: it was 0, is 1; "):
            play(folder, config.model_copy(update={"seed": 1}), resume=True)
        assert RunPaths(folder).config.read_bytes() == kept
        play(folder, config, resume=True)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("training__learner__weight_decay", 0.1),
        ("training__learner__schedule", {"kind": "cosine", "steps": 10}),
        ("training__checkpoint_every", 3),
        ("checkpoints__keep", "best"),
        ("evaluation__every", 1),
        ("evaluation__split", "test"),
        ("alarms__window", 2),
        ("alarms__cut_off__action", "stop"),
        ("rollout__max_tokens", 2),
        ("rollout__workers", 1),
        ("trackers", [{"kind": "csv", "file": "metrics.csv"}]),
        ("threads", 1),
    ],
)
def test_how_it_is_learnt_may_change(path: str, value: Any, tmp_path: Path) -> None:
    config = small_config(updates=3)
    changes = check_changes(config, change(config, **{path: value}), tmp_path)
    assert changes
    assert all(change.path.startswith(path.replace("__", ".")) for change in changes)


def test_a_lag_may_change_with_the_correction_that_it_brings(tmp_path: Path) -> None:
    now, ahead = small_config(), change(small_config(), rollout__lag=1)
    assert now.algorithm != ahead.algorithm
    assert {change.path for change in check_changes(now, ahead, tmp_path)} == {"rollout.lag"}
    assert {change.path for change in check_changes(ahead, now, tmp_path)} == {"rollout.lag"}
    other = change(ahead, algorithm__advantage__scale={"kind": "deviation"})
    with pytest.raises(ConfigError, match=r"^algorithm\.advantage\.scale\.kind cannot change"):
        check_changes(now, other, tmp_path)
    older = change(small_config(), rollout__lag=1, rollout__max_staleness=3)
    assert {change.path for change in check_changes(ahead, older, tmp_path)} == {"rollout.max_staleness"}
    kept = change(ahead, rollout__lag=0)  # as --resume --set rollout.lag=0 has it
    assert {change.path for change in check_changes(ahead, kept, tmp_path)} == {"rollout.lag"}


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("algorithm__filters", [{"kind": "zero_spread"}]),
        ("algorithm__loss__corrections", [{"kind": "mask"}]),
        ("algorithm__loss__corrections", [{"kind": "truncate", "high": 9.0}]),
    ],
)
def test_a_lag_opens_nothing_but_what_it_brings(setting: str, value: Any, tmp_path: Path) -> None:
    other = change(small_config(), **{setting: value, "rollout__lag": 1})
    where = setting.replace("__", r"\.")
    for before, after in ((small_config(), other), (other, small_config())):
        with pytest.raises(ConfigError, match=rf"^{where}.* cannot change"):
            check_changes(before, after, tmp_path)


def test_a_model_may_be_found_where_it_was_moved_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make_config(path: str) -> RunConfig:
        return change(small_config(), model={"kind": "pretrained", "path": path, "dtype": "float32"})

    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    assert check_changes(make_config(str(tmp_path / "model")), make_config("model"), tmp_path) == [], "the same place"
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match=r"^model\.path cannot change"):
        check_changes(make_config(str(tmp_path / "model")), make_config("other"), tmp_path)
    (tmp_path / "model").rmdir()
    moved = check_changes(make_config(str(tmp_path / "model")), make_config("other"), tmp_path)
    assert [change.path for change in moved] == ["model.path"]


def test_a_model_of_the_hub_is_no_place_that_could_be_empty(tmp_path: Path) -> None:
    def make_config(path: str) -> RunConfig:
        return change(small_config(), model={"kind": "pretrained", "path": path, "dtype": "float32"})

    with pytest.raises(ConfigError, match=r"^model\.path cannot change"):
        check_changes(make_config("owner/one"), make_config("owner/other"), tmp_path)


def ask(path: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "data_set", "path": path, **fields}


def write_questions(path: Path, *words: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f'{{"prompt": "Say {word}.", "answer": "{word}"}}\n' for word in words))
    return str(path)


@pytest.mark.parametrize("before", ["hub:owner/name", "data/*.jsonl", "~/data/q.jsonl", "data"])
def test_data_that_are_still_there_were_not_moved(before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    write_questions(tmp_path / "data" / "q.jsonl", "one")
    now, other = change(small_config(), env=ask(before)), change(small_config(), env=ask("other.jsonl"))
    with pytest.raises(ConfigError, match=r"^env\.path cannot change"):
        check_changes(now, other, tmp_path)


def test_data_of_a_member_and_those_of_the_test_may_be_moved(tmp_path: Path) -> None:
    def make_config(folder: str) -> RunConfig:
        member = {
            "name": "questions",
            "env": ask(str(tmp_path / folder / "q.jsonl"), test_path=str(tmp_path / folder / "test.jsonl")),
        }
        words = {"name": "words", "env": {"kind": "identity"}}
        return change(small_config(), env={"kind": "mixture", "members": [member, words]})

    changes = check_changes(make_config("here"), make_config("there"), tmp_path)
    assert [change.path for change in changes] == ["env.members[0].env.path", "env.members[0].env.test_path"]


def test_how_the_algorithm_was_written_is_no_change(tmp_path: Path) -> None:
    written, again = change(small_config(), made_by={"method": "hgpo"}), change(small_config(), made_by={"method": "x"})
    assert check_changes(written, again, tmp_path) == check_changes(small_config(), again, tmp_path) == []


def test_the_file_of_a_reward_function_may_be_moved(tmp_path: Path) -> None:
    def make_config(folder: str, name: str = "score") -> RunConfig:
        file = tmp_path / folder / "mine.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text("def score(trajectory):\n    return 0.0\n\n\nother = score\n", encoding="utf-8")
        return change(small_config(), rewards=[{"kind": "function", "function": f"{file}:{name}"}])

    before, after, other = make_config("before"), make_config("after"), make_config("after", "other")
    with pytest.raises(ConfigError, match=r"^rewards\[0\]\.function cannot change"):
        check_changes(before, after, tmp_path)
    (tmp_path / "before" / "mine.py").unlink()
    assert [change.path for change in check_changes(before, after, tmp_path)] == ["rewards[0].function"]
    with pytest.raises(ConfigError, match=r"^rewards\[0\]\.function cannot change"):
        check_changes(before, other, tmp_path)


def test_moved_data_must_hold_the_same_tasks(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(40)]
    first = write_questions(tmp_path / "first.jsonl", *words)
    config = change(small_config(updates=1), env=ask(first, verifier="words"), rollout__max_tokens=2)
    folder = tmp_path / "run"
    play(folder, config)
    kept = RunPaths(folder).config.read_bytes()
    Path(first).unlink()
    other = write_questions(tmp_path / "other.jsonl", *(f"v{number}" for number in range(40)))
    with pytest.raises(ConfigError, match=r"^env\.path cannot change in a resumed run: .* are other tasks \(the tr"):
        play(folder, change(config, env__path=other, training__updates=2), resume=True)
    assert RunPaths(folder).config.read_bytes() == kept
    same = write_questions(tmp_path / "same.jsonl", *words)
    moved = change(config, env__path=same, training__updates=2)
    play(folder, moved, resume=True)
    assert [change.path for change in read_changes(folder, moved)] == ["env.path", "training.updates"]


@pytest.fixture
def moved_run(tmp_path: Path) -> tuple[RunConfig, Path, Path]:
    """A run after one update whose data are gone; what it was made with, where they are now, and where others are."""
    words = [f"w{number}" for number in range(40)]
    first = write_questions(tmp_path / "first.jsonl", *words)
    config = change(small_config(updates=1), env=ask(first, verifier="words"), rollout__max_tokens=2)
    play(tmp_path / "run", config)
    other = write_questions(tmp_path / "other.jsonl", *(f"v{number}" for number in range(40)))
    return config, Path(first).rename(tmp_path / "moved.jsonl"), Path(other)


def test_a_resume_that_is_refused_leaves_the_journal_as_it_was(
    moved_run: tuple[RunConfig, Path, Path], tmp_path: Path
) -> None:
    config, moved, other = moved_run
    folder = tmp_path / "run"
    before = dump_journal(folder)
    longer = change(config, training__updates=2, evaluation__split="validation")
    with pytest.raises(ConfigError, match=r"are other tasks \(the train task set was "):
        play(folder, change(longer, env__path=str(other)), resume=True)
    assert dump_journal(folder) == before
    right = change(longer, env__path=str(moved))
    play(folder, right, resume=True)  # the task set that is new has nothing to be compared with
    with open_run(right, folder, read_only=True) as run:
        assert run.journal.task_sets() == run.task_sets
        assert set(run.task_sets) == {"train", "validation"}


def test_data_that_nobody_can_compare_were_not_moved(moved_run: tuple[RunConfig, Path, Path], tmp_path: Path) -> None:
    config, moved, other = moved_run
    folder = tmp_path / "run"
    with closing(sqlite3.connect(RunPaths(folder).journal)) as database, database:
        database.execute("DELETE FROM about WHERE key LIKE 'task_set %'")
    before = dump_journal(folder)
    for place in (moved, other):
        with pytest.raises(ConfigError) as caught:
            play(folder, change(config, training__updates=2, env__path=str(place)), resume=True)
        assert str(caught.value).startswith("env.path cannot change in a resumed run: it was ")
        assert str(caught.value).endswith(
            " with; put the data back to where they were, or begin another run in another folder"
        )
        assert dump_journal(folder) == before
    moved.rename(tmp_path / "first.jsonl")
    play(folder, change(config, training__updates=2), resume=True)


def test_fewer_updates_than_were_made_change_nothing(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings, journal = RunPaths(folder).config.read_bytes(), dump_journal(folder)
    with caplog.at_level(logging.WARNING):
        assert train(small_config(updates=1, learner={"learning_rate": 2e-2}), folder, resume=True) == folder
    assert caplog.messages == [
        f"{folder} has made 2 updates already, more than 1; nothing was changed. To continue, raise training.updates"
    ]
    assert RunPaths(folder).config.read_bytes() == settings
    assert dump_journal(folder) == journal
    now = play(folder, small_config(updates=2), resume=True)
    assert play(folder, small_config(updates=1), resume=True) == now, "the run is where it was"


def test_a_secret_is_refused_before_it_is_in_the_journal(folder: Path) -> None:
    secret = "hunter22hunter22"
    with open_run(small_config(updates=3), folder) as run:
        run.config = run.config.model_copy(update={"task_set": f"https://me:{secret}@example.org/task_set.json"})
        with pytest.raises(ConfigError, match=r"^task_set: this is a secret"):
            run_loop(run, resume=True)
    assert read_changes(folder, small_config()) == []
    for path in folder.rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes(), path


def test_a_tracker_that_cannot_work_is_refused_before_a_change_is_written(folder: Path) -> None:
    twice = change(small_config(updates=3), trackers=[{"kind": "csv"}, {"kind": "csv", "file": "b.csv"}])
    with pytest.raises(ConfigError, match="'csv' is named twice"):
        play(folder, twice, resume=True)
    assert read_changes(folder, small_config()) == []


def test_several_that_must_not_change_are_counted(tmp_path: Path) -> None:
    other = change(small_config(), seed=1, training__tasks=1, model__hidden=32)
    with pytest.raises(ConfigError, match=r"^seed cannot change .* is 1 \(2 more like it\); leave"):
        check_changes(small_config(), other, tmp_path)


def test_settings_as_they_were_when_an_update_was_made() -> None:
    changes = [
        SettingChange(number=2, path="a", before=1, after=2),
        SettingChange(number=5, path="a", before=2, after=3),
        SettingChange(number=5, path="b", before=None, after=7),
    ]
    now = {"a": 3, "b": 7, "c": 0}
    assert undo_changes(now, changes, 6) == now
    assert undo_changes(now, changes, 5) == {"a": 2, "c": 0}
    assert undo_changes(now, changes, 3) == {"a": 2, "c": 0}
    assert undo_changes(now, changes, 2) == {"a": 1, "c": 0}
    assert compare_settings({"a": 1, "c": 0}, now, 2) == [
        SettingChange(number=2, path="a", before=1, after=3),
        SettingChange(number=2, path="b", before=None, after=7),
    ]


def test_where_there_is_nothing_to_resume_a_run_begins_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        folder = train(small_config(updates=1), tmp_path / "new", resume=True)
    assert f"{folder}: there is nothing to resume yet, so the run begins" in caplog.messages
    caplog.clear()
    train(small_config(updates=2), folder, resume=True)
    assert caplog.messages == []


def test_settings_that_cannot_be_read_are_a_sentence(folder: Path) -> None:
    RunPaths(folder).config.write_text("seed = ")
    with pytest.raises(
        ConfigError, match=r"config\.toml: cannot be read \(.*\); put it back from a copy, or remove it"
    ):
        play(folder, small_config(updates=3), resume=True)
    RunPaths(folder).config.unlink()
    play(folder, small_config(updates=3), resume=True)
    assert read_changes(folder, small_config()) == []
