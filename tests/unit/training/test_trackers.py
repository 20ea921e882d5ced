"""Trackers: told everything once, resumed where they were, and never in the way."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from groupwise.parts.part import Part, load_catalogue
from groupwise.store.journal import Update
from groupwise.system.errors import ConfigError
from groupwise.training.evaluation.summary import Evaluation
from groupwise.training.metrics import METRICS
from groupwise.training.trackers import Csv, Mlflow, Tensorboard, Trackers, Trackio, Wandb, check_trackers
from tests.unit.evaluations import make_evaluated

CONFIG = {"seed": 3, "env": {"kind": "identity"}, "rewards": [{"kind": "environment", "weight": 1.0}]}


def update(number: int, **metrics: float) -> Update:
    return Update(number=number, version=number, metrics=metrics or {"rollout/success": number / 10})


def evaluation(number: int) -> Evaluation:
    row = make_evaluated(number=number)
    return Evaluation.from_rows([row])


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class Recorder(Part, slot="tracker"):
    """Records what it is told, in a list outside."""

    fails_at: int = -1

    @property
    def package(self) -> str:
        return ""

    def start(self, config: Mapping[str, Any], folder: Path, *, run_id: str | None) -> Any:
        calls.append(("start", dict(config), folder.name, run_id))

        def log(number: int, metrics: Mapping[str, float]) -> None:
            if number == self.fails_at:
                raise ConnectionError("no route")
            calls.append(("log", number, dict(metrics)))

        return SimpleNamespace(run_id="id-1", log=log, finish=lambda: calls.append(("finish",)))


calls: list[Any] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


def test_a_tracker_is_started_told_everything_in_order_and_finished(tmp_path: Path) -> None:
    with Trackers((Recorder(),), CONFIG, tmp_path) as trackers:
        trackers.on_evaluation(evaluation(0))
        trackers.on_update(update(1))
        trackers.on_evaluation(evaluation(1))
    shares = {"success": 1.0, "steps": 2.0, "success_low": pytest.approx(0.2065, abs=1e-4), "success_high": 1.0}
    metrics = {f"evaluation/{name}": value for name, value in shares.items()}
    assert calls == [
        ("start", CONFIG, tmp_path.name, None),
        ("log", 0, metrics),
        ("log", 1, {"rollout/success": 0.1}),
        ("log", 1, metrics),
        ("finish",),
    ]
    assert metrics.keys() <= METRICS.keys()


def test_what_a_resumed_run_makes_again_is_not_told_again_and_the_same_run_goes_on(tmp_path: Path) -> None:
    for numbers in ((1, 2, 3), (2, 3, 4)):
        with Trackers((Recorder(),), CONFIG, tmp_path) as trackers:
            for number in numbers:
                trackers.on_update(update(number))
                trackers.on_evaluation(evaluation(number))
    assert [call[3] for call in calls if call[0] == "start"] == [None, "id-1"]
    assert [call[1] for call in calls if call[0] == "log"] == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_tracker_that_fails_is_left_out_and_the_others_go_on(tmp_path: Path) -> None:
    with Trackers((Recorder(fails_at=2), Csv()), CONFIG, tmp_path) as trackers:
        trackers.on_update(update(1))
        with pytest.warns(UserWarning, match="no route") as warned:
            trackers.on_update(update(2))
        trackers.on_update(update(3))
    assert [call[1] for call in calls if call[0] == "log"] == [1]
    assert [row["update"] for row in table(tmp_path / "metrics.csv")] == ["1", "2", "3"]
    [warning] = warned
    assert str(warning.message).endswith(
        "failed (ConnectionError: no route) and is not used any more; the journal has everything"
    )


def test_trackers_are_finished_when_the_run_ends_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Trackers((Recorder(),), CONFIG, tmp_path):
        raise KeyboardInterrupt
    assert calls[-1] == ("finish",)


def test_a_tracker_that_cannot_start_says_so_at_once(tmp_path: Path) -> None:
    class Absent(Recorder, slot="tracker"):
        def start(self, config: Mapping[str, Any], folder: Path, *, run_id: str | None) -> Any:
            raise OSError("not logged in")

    with pytest.raises(ConfigError) as caught, Trackers((Absent(),), CONFIG, tmp_path):
        pass
    assert "cannot be started (OSError: not logged in); fix that, or leave it out" in str(caught.value)


def test_an_absent_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.training.trackers.find_spec", lambda name: None)
    with pytest.raises(ConfigError) as caught:
        check_trackers((Csv(), Wandb()))
    assert str(caught.value) == (
        "the tracker 'wandb' needs the package wandb, which is not installed: pip install 'groupwise[wandb]'"
    )


def test_a_tracker_is_named_once() -> None:
    with pytest.raises(ConfigError) as caught:
        check_trackers((Csv(), Csv(file="other.csv")))
    assert str(caught.value) == "trackers: 'csv' is named twice; name each tracker once"


def test_every_package_has_an_extra_of_its_name() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    packages = {part().package for part in load_catalogue("tracker").values()}  # type: ignore[attr-defined]
    assert packages - {""} <= project["optional-dependencies"].keys()
    for package in packages - {""}:
        assert project["optional-dependencies"][package][0].startswith(package)


def test_the_csv_file_grows_by_rows_and_columns_and_leaves_blank_what_was_not_measured(tmp_path: Path) -> None:
    live = Csv().start(CONFIG, tmp_path, run_id=None)
    live.log(0, {"evaluation/success": 0.25})
    live.log(1, {"rollout/success": 0.1, "loss/total": 1e-7})
    live.log(2, {"rollout/success": 0.5})
    live.log(2, {"evaluation/success": 0.75})
    assert (tmp_path / "metrics.csv").read_text().splitlines() == [
        "update,evaluation/success,loss/total,rollout/success",
        "0,0.25,,",
        "1,,1e-07,0.1",
        "2,0.75,,0.5",
    ]
    again = Csv().start(CONFIG, tmp_path, run_id=live.run_id)
    again.log(3, {"rollout/success": 1.0})
    assert [row["update"] for row in table(tmp_path / "metrics.csv")] == ["0", "1", "2", "3"]
    Csv().start(CONFIG, tmp_path, run_id=None).log(1, {"rollout/success": 0.0})
    assert (tmp_path / "metrics.csv").read_text().splitlines() == ["update,rollout/success", "1,0.0"]


def test_tensorboard_reads_back_what_was_written_over_two_sessions(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for numbers in ((1, 2), (2, 3)):
        with Trackers((Tensorboard(),), CONFIG, tmp_path) as trackers:
            for number in numbers:
                trackers.on_update(update(number))
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("rollout/success")] == [
        (1, pytest.approx(0.1)),
        (2, pytest.approx(0.2)),
        (3, pytest.approx(0.3)),
    ]
    assert b'kind = "identity"' in events.Tensors("config/text_summary")[0].tensor_proto.string_val[0]


class Fake(ModuleType):
    """A client's module that records its calls."""

    def __init__(self, name: str, **answers: Any) -> None:
        super().__init__(name)
        self.calls: list[Any] = []
        for key, answer in answers.items():
            setattr(self, key, self.record(key, answer))

    def record(self, name: str, answer: Any = None) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, *args, kwargs))
            return answer

        return call


def fake_run(fake: Fake, **fields: str) -> SimpleNamespace:
    return SimpleNamespace(**fields, log=fake.record("log"), finish=fake.record("finish"))


def test_wandb_gets_the_config_the_numbers_and_the_same_id_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Fake("wandb")
    fake.init = fake.record("init", fake_run(fake, id="abc"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    for number in (1, 2):
        with Trackers((Wandb(project="p", mode="offline"),), CONFIG, tmp_path) as trackers:
            trackers.on_update(update(number))
    settings = {"project": "p", "entity": None, "name": tmp_path.name, "resume": "allow", "dir": str(tmp_path)}
    more = {"config": CONFIG, "mode": "offline"}
    assert fake.calls == [
        ("init", settings | more | {"id": None}),
        ("log", {"rollout/success": 0.1}, {"step": 1}),
        ("finish", {}),
        ("init", settings | more | {"id": "abc"}),
        ("log", {"rollout/success": 0.2}, {"step": 2}),
        ("finish", {}),
    ]
    assert json.loads((tmp_path / "trackers.json").read_text()) == {"wandb": {"run_id": "abc", "update": 2}}


def test_trackio_goes_on_with_the_run_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake("trackio")
    fake.init = fake.record("init", fake_run(fake, name="mine"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trackio", fake)
    for number in (1, 2):
        with Trackers((Trackio(name="mine"),), CONFIG, tmp_path) as trackers:
            trackers.on_update(update(number))
    begun = [call[1] for call in fake.calls if call[0] == "init"]
    assert [(settings["name"], settings["resume"]) for settings in begun] == [("mine", "never"), ("mine", "must")]
    assert [call[1:] for call in fake.calls if call[0] == "log"] == [
        ({"rollout/success": 0.1}, {"step": 1}),
        ({"rollout/success": 0.2}, {"step": 2}),
    ]


def test_mlflow_gets_parameters_once_and_metrics_at_their_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake("mlflow", get_experiment_by_name=None, create_experiment="7", log_param=None, log_metric=None)
    fake.create_run = fake.record("create_run", SimpleNamespace(info=SimpleNamespace(run_id="r1")))  # type: ignore[attr-defined]
    fake.set_terminated = fake.record("set_terminated")  # type: ignore[attr-defined]
    fake.MlflowClient = lambda **settings: fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    for number in (1, 2):
        with Trackers((Mlflow(),), CONFIG, tmp_path) as trackers:
            trackers.on_update(update(number))
    parameters = [call[2:4] for call in fake.calls if call[0] == "log_param"]
    assert parameters == [
        ("seed", "3"),
        ("env.kind", "identity"),
        ("rewards.0.kind", "environment"),
        ("rewards.0.weight", "1.0"),
    ]
    assert [call[1:] for call in fake.calls if call[0] == "log_metric"] == [
        ("r1", "rollout/success", 0.1, {"step": 1}),
        ("r1", "rollout/success", 0.2, {"step": 2}),
    ]
    assert [call[1:] for call in fake.calls if call[0] == "set_terminated"] == [
        ("r1", {}),
        ("r1", {"status": "RUNNING"}),
        ("r1", {}),
    ]
