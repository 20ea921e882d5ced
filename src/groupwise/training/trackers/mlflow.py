"""MLflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from groupwise.core.parts.part import Part
from groupwise.core.parts.path_settings import make_absolute, resolve_by
from groupwise.core.text.secrets import resolve_references

LONGEST_PARAMETER = 500
"""Characters of a parameter that every MLflow store takes."""


def resolve_store(uri: str) -> str:
    """Where a store is, a folder by its absolute path; addresses and the names of Databricks stay.

    >>> resolve_store("http://127.0.0.1:5000"), resolve_store("databricks")
    ('http://127.0.0.1:5000', 'databricks')
    """
    return uri if ":" in uri or uri in ("databricks", "databricks-uc", "uc") else make_absolute(uri)


class Mlflow(Part, slot="tracker"):
    """A run in MLflow; a resumed run goes on with the same one."""

    experiment: str = "groupwise"
    """The experiment it belongs to."""
    uri: Annotated[str, resolve_by(resolve_store)] | None = None
    """Where the store is; None = what MLFLOW_TRACKING_URI says. A password in it is written as `${NAME}`, the name of
    an environment variable."""
    name: str | None = None
    """Its name there; None = that of the run's folder."""

    @property
    def package(self) -> str:
        """What must be installed."""
        return "mlflow"

    def start(self, config: Mapping[str, Any], folder: Path, *, run_id: str | None) -> MlflowRun:
        """Begin or go on."""
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=resolve_references(self.uri))
        if run_id is not None:
            client.set_terminated(run_id, status="RUNNING")
            return MlflowRun(client, run_id)
        known = client.get_experiment_by_name(self.experiment)
        experiment = known.experiment_id if known else client.create_experiment(self.experiment)
        run = MlflowRun(client, client.create_run(experiment, run_name=self.name or folder.resolve().name).info.run_id)
        run.describe(config)
        return run


class MlflowRun:
    """A run in MLflow."""

    def __init__(self, client: Any, run_id: str) -> None:
        self._client, self._run_id = client, run_id

    @property
    def run_id(self) -> str:
        """Its id there."""
        return self._run_id

    def describe(self, config: Mapping[str, Any]) -> None:
        """Say what the run is, a parameter a setting."""
        for name, value in _settings("", config):
            self._client.log_param(self._run_id, name, value[:LONGEST_PARAMETER])

    def log(self, number: int, metrics: Mapping[str, float]) -> None:
        """Hand the metrics over, at the update's number."""
        for name, value in metrics.items():
            self._client.log_metric(self._run_id, name, float(value), step=number)

    def finish(self) -> None:
        """Mark the run as over."""
        self._client.set_terminated(self._run_id)


def _settings(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Settings by path: `training.updates`, `rewards.0.kind`."""
    if isinstance(value, Mapping | list):
        entries = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, inner in entries:
            yield from _settings(f"{path}.{name}" if path else str(name), inner)
    else:
        yield path, str(value)
