"""A run's trackers as one observer: they are told everything once, and none of them can stop the run."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import Part, kind_of
from groupwise.core.run_paths import RunPaths
from groupwise.core.text.secrets import redact_all
from groupwise.training.observer import RunObserver
from groupwise.training.trackers.tracker import LiveTracker, Tracker

if TYPE_CHECKING:
    from groupwise.core.journal.journal import Update
    from groupwise.evaluation.summary import Evaluation


def check_trackers(trackers: Sequence[Tracker]) -> None:
    """Refuse what cannot work, before anything is loaded: a package that is not there, a tracker named twice."""
    kinds = [_kind(tracker) for tracker in trackers]
    for kind, tracker in zip(kinds, trackers, strict=True):
        if kinds.count(kind) > 1:
            raise ConfigError(f"trackers: {kind!r} is named twice; name each tracker once")
        if tracker.package and find_spec(tracker.package) is None:
            raise ConfigError(
                f"the tracker {kind!r} needs the package {tracker.package}, which is not installed: "
                f"pip install 'groupwise[{tracker.package}]'"
            )


@contextmanager
def track_run(trackers: Sequence[Tracker], config: Mapping[str, Any], folder: Path) -> Iterator[Trackers]:
    """Track a run as long as the context lasts."""
    live = Trackers(trackers, config, folder)
    try:
        yield live
    finally:
        live.finish()


class Trackers(RunObserver):
    """Hands a run's metrics to its trackers.

    What a tracker has been told is bookmarked in the run's folder. A resumed run makes some updates again, the same to
    the bit; they are not told again. A tracker that fails is left out from there on: the journal has everything.
    """

    def __init__(self, trackers: Sequence[Tracker], config: Mapping[str, Any], folder: Path) -> None:
        self._path = RunPaths(folder).bookmarks
        self._marks = _read_bookmarks(self._path)
        self._live: dict[str, LiveTracker] = {}
        for tracker in trackers:
            kind = _kind(tracker)
            mark = self._marks.setdefault(kind, {})
            try:
                self._live[kind] = tracker.start(redact_all(config), folder, run_id=mark.get("run_id"))
            except Exception as error:  # whatever a dashboard's client raises, now is the time to say it
                raise ConfigError(
                    f"the tracker {kind!r} cannot be started ({type(error).__name__}: {error}); mend that, or leave "
                    "it out"
                ) from error
            mark["run_id"] = self._live[kind].run_id
        self._bookmark()

    def on_update(self, update: Update) -> None:
        """Hand on the metrics of an update."""
        self._tell("update", update.number, update.metrics)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Hand on what an evaluation found."""
        low, high = evaluation.interval
        metrics = {"success": evaluation.success, "success_low": low, "success_high": high, "steps": evaluation.steps}
        self._tell("evaluation", evaluation.number, {f"evaluation/{name}": value for name, value in metrics.items()})

    def finish(self) -> None:
        """Finish them all."""
        for kind, tracker in list(self._live.items()):
            self._call_tracker(kind, tracker.finish)
        self._live.clear()

    def _tell(self, what: str, number: int, metrics: Mapping[str, float]) -> None:
        for kind, tracker in list(self._live.items()):
            if number > self._marks[kind].get(what, -1):
                self._call_tracker(kind, lambda tracker=tracker: tracker.log(number, metrics))
                self._marks[kind][what] = number
        self._bookmark()

    def _call_tracker(self, kind: str, call: Any) -> None:
        """Call a tracker. The one place where whatever it raises is caught: a dashboard out of reach ends no run."""
        try:
            call()
        except Exception as error:
            self._live.pop(kind, None)
            warnings.warn(
                f"the tracker {kind!r} failed ({type(error).__name__}: {error}) and is left out from here on; "
                "the journal has everything",
                stacklevel=2,
            )

    def _bookmark(self) -> None:
        if self._marks:
            draft = self._path.with_suffix(".tmp")
            draft.write_text(json.dumps(self._marks, indent=2))
            draft.replace(self._path)


def _kind(tracker: Tracker) -> str:
    assert isinstance(tracker, Part), "a tracker is a part"
    return kind_of(type(tracker))


def _read_bookmarks(path: Path) -> dict[str, dict[str, Any]]:
    """What each tracker was told before; nothing where that cannot be read, and a warning."""
    try:
        marks: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        marks = None
    if isinstance(marks, dict) and all(isinstance(mark, dict) for mark in marks.values()):
        return marks
    warnings.warn(f"{path} cannot be read; trackers begin anew, and may be told some updates twice", stacklevel=2)
    return {}
