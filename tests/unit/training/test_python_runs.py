"""A run made from Python is a run: its folder is complete, and every command works on it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise import ConfigError, FileError, RunConfig, RunObserver, load_run, open_run, read_run, train
from groupwise.learner.protocol import hash_weights
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import TrainingError
from groupwise.training.config.run_file import decode_run
from groupwise.training.trackers import Csv
from tests.unit.cli.conftest import Run as Command
from tests.unit.cli.conftest import groupwise  # noqa: F401
from tests.unit.training.runs import small_config, small_run

ROOT = Path(__file__).parents[3]


def list_files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.iterdir())


def test_a_run_from_python_is_a_whole_folder(tmp_path: Path) -> None:
    config = small_config(updates=1)
    with open_run(config, str(tmp_path / "run")) as run:
        train(run)
    assert list_files(tmp_path / "run") == ["checkpoints", "config.toml", "journal.sqlite"], "no lock, no log"
    assert load_run(str(tmp_path / "run")) == config
    assert load_run(RunPaths(tmp_path / "run").config) == config
    assert set(run.task_sets) == {"train"}


def test_report_inspect_evaluate_and_resume_work_on_it(groupwise: Command, tmp_path: Path) -> None:  # noqa: F811
    with open_run(small_config(updates=1), tmp_path / "run") as run:
        train(run)
    assert groupwise("inspect", "run", "--update", "1").status == 0
    assert groupwise("report", "run").status == 0
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
    assert groupwise("evaluate", "run", "--dry-run", "--seeds", "1").status == 0
    ran = groupwise("train", "--resume", "run", "--set", "training.updates=2")
    assert ran.status == 0, ran.err
    assert ran.err.strip() == "changed since the run began: training.updates was 1, is 2\nresumes after update 1 of 2"
    with open_run(small_config(updates=2), tmp_path / "whole") as whole:
        train(whole)
    with open_run(load_run(tmp_path / "run"), tmp_path / "run", read_only=True) as again:
        assert again.journal.update_numbers() == [1, 2]
    files = [RunPaths(tmp_path / name).checkpoint(2) / "model.safetensors" for name in ("run", "whole")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_python_goes_on_with_a_run_of_the_command(groupwise: Command, tmp_path: Path) -> None:  # noqa: F811
    file = tmp_path / "run.toml"
    RunPaths(tmp_path).write_config(small_config(updates=1).config())
    RunPaths(tmp_path).config.rename(file)
    assert groupwise("train", "run.toml", "--out", "run").status == 0
    config = load_run(tmp_path / "run", overrides=["training.updates=2"])
    with open_run(config, tmp_path / "run") as run:
        train(run, resume=True)
    assert load_run(tmp_path / "run").training.updates == 2, "the settings that it went on with"
    with open_run(small_config(updates=2), tmp_path / "whole") as whole:
        train(whole)
    assert hash_weights(run.learner.weights()) == hash_weights(whole.learner.weights())


def test_a_folder_that_holds_a_run_keeps_its_settings(tmp_path: Path) -> None:
    with open_run(small_config(updates=1), tmp_path) as run:
        train(run)
    before = RunPaths(tmp_path).config.read_bytes()
    with open_run(small_config(updates=3), tmp_path) as run, pytest.raises(TrainingError, match="holds a run already"):
        train(run)
    assert RunPaths(tmp_path).config.read_bytes() == before


def test_updates_made_by_hand_are_not_lost_to_a_refusal(tmp_path: Path) -> None:
    from groupwise.training.loop import make_update
    from groupwise.training.observer import RunObserver

    with open_run(small_config(updates=2), tmp_path / "run") as run:
        make_update(run, 1, RunObserver())
        with pytest.raises(TrainingError, match="holds a run already"):
            train(run)
    assert RunPaths(tmp_path / "run").journal.is_file()


def with_trackers(config: RunConfig, *trackers: Any) -> RunConfig:
    return config.model_copy(update={"trackers": trackers})


def test_trackers_of_the_settings_are_told(tmp_path: Path) -> None:
    with open_run(with_trackers(small_config(updates=2), Csv()), tmp_path) as run:
        train(run)
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) >= 3
    assert RunPaths(tmp_path).bookmarks.is_file()


def test_a_tracker_that_is_named_twice_is_refused_and_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'csv' is named twice"):
        open_run(with_trackers(small_config(), Csv(), Csv(file="other.csv")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_secret_is_not_written_down(tmp_path: Path) -> None:
    config = small_config().model_copy(update={"task_set": "https://me:hunter22hunter22@example.org/task_set.json"})
    run = open_run(small_config(), tmp_path / "run")
    run.config = config
    with pytest.raises(ConfigError, match=r"^task_set: this is a secret"):
        train(run)
    assert not (tmp_path / "run").exists()


SETTINGS = {
    "algorithm": {"method": "grpo"},
    "env": {"kind": "identity"},
    "model": {"kind": "tiny"},
    "rollout": {"group_size": 2},
    "training": {"updates": 2, "tasks": 2},
    "evaluation": {"tasks": 4, "rollouts": 2},
}


def test_settings_as_a_dict_a_file_and_typed_are_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    typed = decode_run(SETTINGS)
    RunPaths(tmp_path).write_config(typed.config())
    folders = [train(SETTINGS), train(typed), train("config.toml", tmp_path / "named")]
    assert folders == [Path("runs/1"), Path("runs/2"), tmp_path / "named"]
    weights = [(RunPaths(folder).checkpoint(2) / "model.safetensors").read_bytes() for folder in folders]
    assert len(set(weights)) == 1


def test_updates_one_by_one_are_the_run_that_train_makes(tmp_path: Path) -> None:
    whole = train(SETTINGS, tmp_path / "whole")
    with open_run(SETTINGS, tmp_path / "steps") as run:
        numbers = [update.number for update in run.updates()]
        assert [row.number for row in run.journal.evaluations()].count(2) == 8, "the last evaluation is made too"
    assert numbers == [1, 2]
    files = [RunPaths(folder).checkpoint(2) / "model.safetensors" for folder in (whole, tmp_path / "steps")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_loop_that_is_left_gives_the_folder_back_and_goes_on_later(tmp_path: Path) -> None:
    settings = {**SETTINGS, "training": {"updates": 3, "tasks": 2, "checkpoint_every": 1}}
    with open_run(settings, tmp_path / "left") as run:
        for update in run.updates():
            if update.number == 1:
                break
        run.journal.last_number()  # still open
    train(settings, tmp_path / "left", resume=True)
    whole = train(settings, tmp_path / "whole")
    files = [RunPaths(folder).checkpoint(3) / "model.safetensors" for folder in (whole, tmp_path / "left")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_what_is_no_settings_is_told_and_leaves_no_folder(tmp_path: Path) -> None:
    number: Any = 3
    with pytest.raises(
        ConfigError, match=r"^the settings of a run are the int 3; give the path of a run file, a RunConfig, or a dict"
    ):
        train(number, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"^modell: unknown setting; did you mean 'model'"):
        open_run({**SETTINGS, "modell": {}}, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"no such file"):
        open_run(tmp_path / "absent.toml", tmp_path / "run")
    with small_run(tmp_path / "open") as run, pytest.raises(ConfigError, match="a run that is open in"):
        train(run, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def run_blocks(page: str) -> dict[str, Any]:
    """Run the Python of a page, block after block."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    return names


def test_the_blocks_of_the_page_run_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks("docs/howto/python.md")
    assert RunPaths(tmp_path / "runs" / "first").checkpoint(5).is_dir()
    assert RunPaths(tmp_path / "runs" / "third").checkpoint(3).is_dir()


def test_the_blocks_about_alarms_and_going_on_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_blocks("docs/howto/alarms.md")
    assert " no_signal warn no group had any advantage in 1 updates (update " in capsys.readouterr().out
    with read_run(names["folder"], frames="pandas") as run:
        assert list(run.alarms()["name"])[:1] == ["no_signal"]
        assert list(run.changes()["path"]) == ["training.learner.learning_rate", "training.updates"]


def test_the_loop_of_the_page_learns_with_our_credit() -> None:
    policy = run_blocks("docs/howto/your_trainer.md")["policy"]
    assert (policy.softmax(-1).diagonal() > 0.8).all(), policy.softmax(-1)


def test_a_host_that_cannot_be_ended_leaves_neither_engine_nor_journal_nor_lock_behind(tmp_path: Path) -> None:
    closed: list[str] = []

    class Stuck:
        def shutdown(self) -> None:
            raise OSError("a worker hangs")

    run: Any = small_run(tmp_path)
    run.host.shutdown()
    run.host, run.engine.close = Stuck(), lambda: closed.append("engine")
    with pytest.raises(OSError, match="a worker hangs"):
        run.close()
    assert closed == ["engine"]
    with pytest.raises(FileError, match="the run is closed"):
        run.journal.last_number()
    small_run(tmp_path).close()


def test_a_run_that_was_closed_goes_on_no_more(tmp_path: Path) -> None:
    with open_run(small_config(updates=2), tmp_path) as run:
        next(run.updates())
    with pytest.raises(FileError, match="the run is closed; open it again to continue or to read it"):
        next(run.updates(resume=True))
    with pytest.raises(FileError, match="the run is closed"):
        run.journal.name_task_sets({})


@pytest.mark.parametrize(
    ("observers", "sentence"),
    [
        ([print], "observers has print, which cannot be told anything (it has no on_stage)"),
        ([RunObserver], "observers has RunObserver, which cannot be told anything (it is a class, and no"),
        (print, "observers is a builtin_function_or_method, and no list of observers"),
    ],
)
def test_what_cannot_observe_is_refused_before_a_model_loads(tmp_path: Path, observers: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        train(small_config(updates=1), tmp_path / "run", observers=observers)
    assert str(caught.value).startswith(sentence)
    assert str(caught.value).endswith("; derive a class from groupwise.RunObserver, and give [YourClass()]")
    assert not (tmp_path / "run").exists()
