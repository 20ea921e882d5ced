"""Trackers: copies of a run's metrics for other people's dashboards. The journal is the original."""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.training.trackers.csv_file import Csv
from groupwise.training.trackers.mlflow import Mlflow
from groupwise.training.trackers.tensorboard import Tensorboard
from groupwise.training.trackers.tracker import LiveTracker, Tracker, TrackerSlot
from groupwise.training.trackers.trackers import Trackers, check_trackers, track_run
from groupwise.training.trackers.trackio import Trackio
from groupwise.training.trackers.wandb import Wandb

TRACKERS: dict[str, type[Part]] = {
    "csv": Csv,
    "tensorboard": Tensorboard,
    "wandb": Wandb,
    "trackio": Trackio,
    "mlflow": Mlflow,
}

__all__ = [
    "TRACKERS",
    "Csv",
    "LiveTracker",
    "Mlflow",
    "Tensorboard",
    "Tracker",
    "TrackerSlot",
    "Trackers",
    "Trackio",
    "Wandb",
    "check_trackers",
    "track_run",
]
