"""Trackers: copies of a run's metrics for dashboards and files. The journal is the original."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, Self

import tomli_w

from groupwise.parts.part import Part, Slot, kind_of
from groupwise.parts.path_settings import make_absolute, resolve_by
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import ConfigError
from groupwise.system.files import write_atomic
from groupwise.system.json_text import to_json
from groupwise.system.secrets import redact_all, resolve_references
from groupwise.training.observer import RunObserver

if TYPE_CHECKING:
    from groupwise.store.journal import Update
    from groupwise.training.evaluation.summary import Evaluation


class LiveTracker(Protocol):
    """A tracker of one run."""

    @property
    def run_id(self) -> str:
        """The dashboard's name of the run, with which a resumed run continues."""

    def log(self, number: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of an update, or of the evaluation after it; numbers grow, and may repeat once."""

    def finish(self) -> None:
        """Write out what is left."""


class Tracker(Protocol):
    """Fills the slot `tracker`: sends the numbers of a run to a dashboard or a file."""

    @property
    def package(self) -> str:
        """The package that it needs, and the extra that installs it; empty = none."""

    def start(self, config: Mapping[str, Any], folder: Path, *, run_id: str | None) -> LiveTracker:
        """Begin to track a run.

        Args:
            config: the resolved run file.
            folder: the run's folder.
            run_id: the dashboard's name of the run, if it was tracked before.
        """


TrackerSlot = Annotated[Tracker, Slot("tracker")]
"""A field of a run file that a tracker fills."""


@dataclass(frozen=True, kw_only=True)
class Client:
    """A live tracker that forwards to a dashboard's own client."""

    run_id: str
    log: Callable[[int, Mapping[str, float]], None]
    finish: Callable[[], None]


class Csv(Part, slot="tracker"):
    """One row per update, one column per metric; missing values are empty."""

    package: ClassVar[str] = ""

    file: str = "metrics.csv"
    """Name of the file in the run's folder."""

    def start(self, config: Mapping[str, Any], folder: Path, *, run_id: str | None) -> CsvFile:
        return CsvFile(folder / self.file, go_on=run_id is not None)


class CsvFile:
    """The file, whose columns grow as metrics appear."""

    def __init__(self, path: Path, *, go_on: bool) -> None:
        self._path = path
        self._rows: dict[int, dict[str, str]] = {}
        if go_on and path.exists():
            with path.open(newline="", encoding="utf-8") as file:
                self._rows = {int(row["update"]): row for row in csv.DictReader(file)}
        self._columns: dict[str, None] = dict.fromkeys(name for row in self._rows.values() for name in row)

    @property
    def run_id(self) -> str:
        return self._path.name

    def log(self, number: int, metrics: Mapping[str, float]) -> None:
        row = self._rows.setdefault(number, {"update": str(number)})
        is_new = len(row) == 1
        row |= {name: repr(float(value)) for name, value in sorted(metrics.items())}
        if is_new and self._columns and row.keys() <= self._columns.keys():
            with self._path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, self._columns).writerow(row)
            return
        self._columns |= dict.fromkeys(row)
        with write_atomic(self._path) as draft, draft.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(self._rows.values())

    def finish(self) -> None:
        """Every row is on disk already."""


class Tensorboard(Part, slot="tracker"):
    """Event files that `tensorboard --logdir runs` shows."""

    package: ClassVar[str] = "tensorboard"

    folder: str = "tensorboard"
    """Folder of the event files, in the run's folder."""

    def start(self, config: Mapping[str, Any], folder: Path, *, run_id: str | None) -> LiveTracker:
        from torch.utils.tensorboard import SummaryWriter

        writer: Any = SummaryWriter(str(folder / self.folder))
        if run_id is None:
            # Four spaces make it a block of code in TensorBoard's Markdown.
            text = "".join(f"    {line}\n" for line in tomli_w.dumps(dict(config)).splitlines())
            writer.add_text("config", text, 0)

        def log(number: int, metrics: Mapping[str, float]) -> None:
            for name, value in metrics.items():
                writer.add_scalar(name, value, number)
            writer.flush()

        return Client(run_id=self.folder, log=log, finish=writer.close)


LONGEST_PARAMETER = 500
"""Characters of a parameter that every MLflow store accepts."""


def resolve_store(uri: str) -> str:
    """Where a store is, a folder by its absolute path; addresses and the names of Databricks stay.

    >>> resolve_store("http://127.0.0.1:5000"), resolve_store("databricks")
    ('http://127.0.0.1:5000', 'databricks')
    """
    return uri if ":" in uri or uri in ("databricks", "databricks-uc", "uc") else make_absolute(uri)


class Mlflow(Part, slot="tracker"):
    """A run in MLflow; a resumed run continues it."""

    package: ClassVar[str] = "mlflow"

    experiment: str = "groupwise"
    """The experiment it belongs to."""
    uri: Annotated[str, resolve_by(resolve_store)] | None = None
    """Address of the store; None = MLFLOW_TRACKING_URI. Write a password in it as `${NAME}`, an environment
    variable."""
    name: str | None = None
    """The run's name there; None = that of its folder."""

    def start(self, config: Mapping[str, Any], folder: Path, *, run_id: str | None) -> LiveTracker:
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=resolve_references(self.uri))
        if run_id is not None:
            client.set_terminated(run_id, status="RUNNING")
            run = run_id
        else:
            known = client.get_experiment_by_name(self.experiment)
            experiment = known.experiment_id if known else client.create_experiment(self.experiment)
            run = client.create_run(experiment, run_name=self.name or folder.resolve().name).info.run_id
            for name, value in _settings("", config):
                client.log_param(run, name, value[:LONGEST_PARAMETER])

        def log(number: int, metrics: Mapping[str, float]) -> None:
            for name, value in metrics.items():
                client.log_metric(run, name, float(value), step=number)

        return Client(run_id=run, log=log, finish=lambda: client.set_terminated(run))


def _settings(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Settings by path: `training.updates`, `rewards.0.kind`."""
    if isinstance(value, Mapping | list):
        entries = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, inner in entries:
            yield from _settings(f"{path}.{name}" if path else str(name), inner)
    else:
        yield path, str(value)


class Trackio(Part, slot="tracker"):
    """A run in Trackio; a resumed run continues it."""

    package: ClassVar[str] = "trackio"

    project: str = "groupwise"
    """The project it belongs to."""
    name: str | None = None
    """The run's name there; None = that of its folder."""

    def start(self, config: Mapping[str, Any], folder: Path, *, run_id: str | None) -> LiveTracker:
        import trackio

        run = trackio.init(
            project=self.project,
            name=run_id or self.name or folder.resolve().name,
            resume="never" if run_id is None else "must",
            config=dict(config),
            embed=False,
        )
        # Of several runs of one name, Trackio continues the latest.
        return Client(
            run_id=str(run.name), log=lambda number, metrics: run.log(dict(metrics), step=number), finish=run.finish
        )


class Wandb(Part, slot="tracker"):
    """A run at Weights & Biases; a resumed run continues it."""

    package: ClassVar[str] = "wandb"

    project: str = "groupwise"
    """The project it belongs to."""
    entity: str | None = None
    """User or team; None = your own."""
    name: str | None = None
    """The run's name there; None = that of its folder."""
    mode: Literal["online", "offline"] = "online"
    """online = sent at once; offline = kept in the run folder for `wandb sync`."""

    def start(self, config: Mapping[str, Any], folder: Path, *, run_id: str | None) -> LiveTracker:
        import wandb

        run = wandb.init(
            project=self.project,
            entity=self.entity,
            name=self.name or folder.resolve().name,
            id=run_id,
            resume="allow",
            dir=str(folder),
            config=dict(config),
            mode=self.mode,
        )
        return Client(
            run_id=str(run.id), log=lambda number, metrics: run.log(dict(metrics), step=number), finish=run.finish
        )


def check_trackers(trackers: Sequence[Tracker]) -> None:
    """Check that packages are installed and no tracker is named twice, before anything is loaded."""
    kinds = [_kind(tracker) for tracker in trackers]
    for kind, tracker in zip(kinds, trackers, strict=True):
        if kinds.count(kind) > 1:
            raise ConfigError(f"trackers: {kind!r} is named twice; name each tracker once")
        if tracker.package and find_spec(tracker.package) is None:
            raise ConfigError(
                f"the tracker {kind!r} needs the package {tracker.package}, which is not installed: "
                f"pip install 'groupwise[{tracker.package}]'"
            )


class Trackers(RunObserver):
    """Sends a run's metrics to its trackers, within a `with` block.

    Bookmarks in the run folder say what was sent. Updates that a resumed run repeats are not sent again. A tracker that
    fails is dropped; the journal has everything.
    """

    def __init__(self, trackers: Sequence[Tracker], config: Mapping[str, Any], folder: Path) -> None:
        self._path = RunPaths(folder).bookmarks
        self._marks = _read_bookmarks(self._path)
        self._names_task_sets = bool((config.get("evaluation") or {}).get("task_sets"))
        self._live: dict[str, LiveTracker] = {}
        for tracker in trackers:
            kind = _kind(tracker)
            mark = self._marks.setdefault(kind, {})
            try:
                self._live[kind] = tracker.start(redact_all(config), folder, run_id=mark.get("run_id"))
            except Exception as error:  # a dashboard's client may raise anything
                raise ConfigError(
                    f"the tracker {kind!r} cannot be started ({type(error).__name__}: {error}); fix that, or leave it "
                    "out"
                ) from error
            mark["run_id"] = self._live[kind].run_id
        self._bookmark()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for kind, tracker in list(self._live.items()):
            self._call_tracker(kind, tracker.finish)
        self._live.clear()

    def on_update(self, update: Update) -> None:
        self._tell("update", update.number, update.metrics)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        place, metrics = "evaluation", evaluation.metrics()
        if self._names_task_sets:
            place = f"evaluation/{evaluation.name}"
            for category in evaluation.by_tag():
                metrics |= {f"{category.name}/{name}": value for name, value in category.metrics().items()}
        self._tell(place, evaluation.number, {f"{place}/{name}": value for name, value in metrics.items()})

    def _tell(self, what: str, number: int, metrics: Mapping[str, float]) -> None:
        for kind, tracker in list(self._live.items()):
            if number > self._marks[kind].get(what, -1):
                self._call_tracker(kind, lambda tracker=tracker: tracker.log(number, metrics))
                self._marks[kind][what] = number
        self._bookmark()

    def _call_tracker(self, kind: str, call: Any) -> None:
        """Call a tracker and catch any error: a dashboard that is not reachable must not end the run."""
        try:
            call()
        except Exception as error:
            self._live.pop(kind, None)
            warnings.warn(
                f"the tracker {kind!r} failed ({type(error).__name__}: {error}) and is not used any more; the journal "
                "has everything",
                stacklevel=2,
            )

    def _bookmark(self) -> None:
        if self._marks:
            with write_atomic(self._path) as draft:
                draft.write_text(to_json(self._marks), encoding="utf-8")


def _kind(tracker: Tracker) -> str:
    assert isinstance(tracker, Part), "a tracker is a part"
    return kind_of(type(tracker))


def _read_bookmarks(path: Path) -> dict[str, dict[str, Any]]:
    """What was sent to each tracker before; empty, with a warning, if it cannot be read."""
    try:
        marks: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        marks = None
    if isinstance(marks, dict) and all(isinstance(mark, dict) for mark in marks.values()):
        return marks
    warnings.warn(f"{path} cannot be read; trackers start again, and may get some updates twice", stacklevel=2)
    return {}
