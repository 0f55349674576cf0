"""MLflow: a server by MLFLOW_TRACKING_URI, else a database in the run store, `sqlite:///runs/mlflow.db`.

An experiment of MLflow is a study. A run is found again by its tag `workbench.run_id`, and gets the rows that it lacks.
MLflow cannot take rows back; so where a resumed run computed some again, the former copy is deleted and made anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from workbench.trackers import Row, Score, TrackedRun, missing

ID = "workbench.run_id"
TAG = "tag."  # begins the names of MLflow's tags for tags of a run
KEY, VALUE = 250, 5000  # MLflow's limits in characters: of a metric's name, and of a parameter's or tag's value
METRICS, PARAMETERS = 1000, 100  # MLflow's limits in one request
ENDS = {"done": "FINISHED", "failed": "FAILED", "diverged": "FAILED", "interrupted": "KILLED"}
_UNUSABLE = re.compile(r"[^\w.\-: /]")
available = partial(missing, "mlflow", "mlflow-skinny (or mlflow, with its pages)")


class Copy:
    """The open copy of one run. It continues an earlier copy if all rows of that copy are rows of the run."""

    def __init__(self, run: TrackedRun) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        from mlflow import entities
        from mlflow.tracking import MlflowClient

        self._entities, self._tracked, self._last = entities, run, 0
        address = os.environ.get("MLFLOW_TRACKING_URI", "")
        artifacts = None if address else (run.store / ".mlflow").as_uri()  # a name that is no run's
        self._client = MlflowClient(address or f"sqlite:///{run.store / 'mlflow.db'}")
        self._id, self._sent = self._former()
        if not self._id:
            self._id = self._new(artifacts)
        self._client.update_run(self._id, status="RUNNING")
        self._describe()

    def _former(self) -> tuple[str, set[int]]:
        """Return the id of the run's former copy, and the steps that it has; delete copies that cannot be continued."""
        own = {int(row["step"]): row.get("seconds") for row in self._tracked.stored()}
        kept, steps = "", set[int]()
        for found in self._found():
            history = self._client.get_metric_history(found.info.run_id, "step")
            seconds = self._client.get_metric_history(found.info.run_id, "seconds")
            at = {each.step: each.value for each in seconds}
            rows = {each.step: at.get(each.step) for each in history}
            if not kept and rows.items() <= own.items() and len(history) == len(rows) and len(seconds) == len(at):
                kept, steps = found.info.run_id, set(rows)
            else:
                self._client.delete_run(found.info.run_id)
        return kept, steps

    def _found(self) -> Iterator[Any]:
        experiments, token = [], None
        while True:
            page = self._client.search_experiments(page_token=token)
            experiments += [each.experiment_id for each in page]
            token = page.token
            if not token:
                break
        for some in _parts(experiments, 50):
            yield from self._client.search_runs(list(some), f"tags.`{ID}` = '{self._tracked.run_id}'")

    def _new(self, artifacts: str | None) -> str:
        """Return the id of a new run of MLflow in the experiment of the study, which is made if need be."""
        run = self._tracked
        name = run.study or "workbench"
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            with contextlib.suppress(Exception):  # another process has made it meanwhile
                self._client.create_experiment(name, artifacts and f"{artifacts}/{name}")
            experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            raise OSError(f"the experiment {name} cannot be made")
        if experiment.lifecycle_stage == "deleted":
            self._client.restore_experiment(experiment.experiment_id)
        new = self._client.create_run(
            experiment.experiment_id, start_time=int(1000 * run.started), tags={ID: run.run_id}, run_name=run.run_id
        )
        return str(new.info.run_id)

    def _describe(self) -> None:
        """Send the spec as MLflow parameters, and the environment, tags and notes as MLflow tags, which may change."""
        run, entities = self._tracked, self._entities
        spec = {key: value for key, value in run.config.items() if not key.startswith("env.")}
        params = [entities.Param(_name(key), str(value)[:VALUE]) for key, value in spec.items()]
        for some in _parts(params, PARAMETERS):
            self._client.log_batch(self._id, params=some)
        tags = {key: value for key, value in run.config.items() if key.startswith("env.")}
        tags |= {"study": run.study, "job_type": run.job_type, "state": run.state, "mlflow.note.content": run.notes}
        tags |= {f"{TAG}{tag}": "true" for tag in run.tags}
        present = self._client.get_run(self._id).data.tags
        for name in present:
            if name.startswith(TAG) and name not in tags:
                self._client.delete_tag(self._id, name)
        found = [entities.RunTag(_name(key), str(value)[:VALUE]) for key, value in tags.items()]
        for some in _parts(found, PARAMETERS):
            self._client.log_batch(self._id, tags=some)

    def log(self, rows: Sequence[Row]) -> None:
        """Add the rows that the copy lacks, in requests of whole rows; the step is the last value of each row."""
        self._last = int(rows[-1]["step"])
        waiting: list[Any] = []
        for row in rows:
            step = int(row["step"])
            if step in self._sent:
                continue
            at = int(1000 * (self._tracked.started + row.get("seconds", 0.0)))
            names = [*(name for name in row if name != "step"), "step"]
            metrics = [self._entities.Metric(_name(name), float(row[name]), at, step) for name in names]
            if len(waiting) + len(metrics) > METRICS:
                self._send(waiting)
                waiting = []
            waiting += metrics
        self._send(waiting)

    def finish(self, scores: Sequence[Score], files: Mapping[str, Path]) -> None:
        """Add scores at the steps of their encoders, files as artifacts, and the tags and notes of the end."""
        latest, metrics = self._client.get_run(self._id).data.metrics, []
        for each in scores:
            name, value = _name(each.name), float(each.value)
            if each.step is not None:  # at a time of its own, by which MLflow keeps it once
                at = int(1000 * self._tracked.started) + each.step
                metrics.append(self._entities.Metric(name, value, at, each.step))
            elif latest.get(name) != value:
                metrics.append(self._entities.Metric(name, value, int(1000 * time.time()), self._last))
        self._send(metrics)
        for kind, path in files.items():
            add = self._client.log_artifacts if path.is_dir() else self._client.log_artifact
            add(self._id, str(path), kind)
        self._describe()
        self._client.set_terminated(self._id, ENDS.get(self._tracked.state, "RUNNING"))

    def _send(self, metrics: Sequence[Any]) -> None:
        for some in _parts(metrics, METRICS):
            self._client.log_batch(self._id, metrics=some)


open = Copy


def _parts(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Yield values in parts of at most `size`, as requests may have."""
    return (values[start : start + size] for start in range(0, len(values), size))


def _name(key: str) -> str:
    """Return a name that MLflow takes: with other signs replaced, and a hash if that or its length changed the name."""
    clean = "/".join(part if part.strip(". ") else "_" for part in _UNUSABLE.sub("_", key).split("/"))
    if clean == key and len(key) <= KEY:
        return key
    return f"{clean[: KEY - 8]}-{hashlib.sha256(key.encode()).hexdigest()[:6]}"
