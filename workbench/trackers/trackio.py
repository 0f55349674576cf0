"""trackio: a database on this machine, which `trackio show` shows and `trackio sync` publishes.

TRACKIO_DIR is the folder of the database, and TRACKIO_PROJECT the project, by default workbench. Rows are written to
the database itself, since `trackio.log` leaves them to a thread and reports no error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from workbench.trackers import Row, Score, TrackedRun, missing

REMOTE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")  # by which trackio would write elsewhere
available = partial(missing, "trackio")


class Copy:
    """The open copy of one run. An earlier copy is deleted from the database."""

    def __init__(self, run: TrackedRun) -> None:
        from trackio.sqlite_storage import SQLiteStorage

        self._storage: Any = SQLiteStorage
        self._tracked, self._last = run, 0
        self._project = os.environ.get("TRACKIO_PROJECT", "workbench")
        SQLiteStorage.validate_project_name(self._project)
        SQLiteStorage.init_db(self._project)
        SQLiteStorage.delete_run(self._project, run.run_id, run.run_id)

    def log(self, rows: Sequence[Row]) -> None:
        """Add rows; the step is passed separately, since trackio allows no metric named "step"."""
        self._last = int(rows[-1]["step"])
        self._write({int(row["step"]): row for row in rows}, "row")

    def finish(self, scores: Sequence[Score], files: Mapping[str, Path]) -> None:
        """Add scores at the steps of their encoders, and the files as artifacts."""
        at: dict[int, dict[str, float]] = {self._last: {}}
        for each in scores:
            at.setdefault(self._last if each.step is None else each.step, {})[each.name] = each.value
        self._write(at, "scores")
        if files:
            self._add(files)

    def _write(self, rows: Mapping[int, Row], kind: str) -> None:
        """Write rows by step; raises an error of the database."""
        run = self._tracked
        times = [run.started + row.get("seconds", 0.0) for row in rows.values()]
        config = {
            **run.config, "job_type": run.job_type, "tags": list(run.tags), "notes": run.notes, "state": run.state,
            "_Group": run.study or None, "_Created": datetime.fromtimestamp(run.started, UTC).isoformat(),
        }  # fmt: skip
        self._storage.bulk_log(
            self._project,
            run.run_id,
            [{key: value for key, value in row.items() if key != "step"} for row in rows.values()],
            steps=list(rows),
            timestamps=[datetime.fromtimestamp(at, UTC).isoformat() for at in times],
            config=config,
            log_ids=[f"{run.run_id}/{kind}/{step}" for step in rows],
            run_id=run.run_id,
        )

    def _add(self, files: Mapping[str, Path]) -> None:
        for name in REMOTE:
            os.environ.pop(name, None)
        import trackio

        tracked = self._tracked
        run: Any = trackio.init(
            self._project, name=tracked.run_id, resume="must", embed=False, auto_log_gpu=False, auto_log_cpu=False
        )
        for kind, path in files.items():
            name = tracked.run_id if kind == "encoder" else f"{tracked.study}-report"
            run.log_artifact(str(path), name=name, type="model" if kind == "encoder" else kind)
        run.finish()


open = Copy
