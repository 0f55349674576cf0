"""A run whose copy goes to a tracker, and a tracker that records what it is given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunDir, RunStore

# Writes a line of JSON for each call. A copy is in place of the one before it.
RECORDER = '''"""Records calls."""

import json


def available():
    return None


def open(run):
    return Copy(run)


class Copy:
    def __init__(self, run):
        self.run, self.file = run, (run.folder / "mirrors" / "recorded.jsonl").open("w")
        self.write(config=dict(run.config), study=run.study, job_type=run.job_type, reached=run.reached)

    def log(self, rows):
        for row in rows:
            self.write(row=row)

    def finish(self, scores, files):
        self.write(
            scores=[list(each) for each in scores], files={key: str(path) for key, path in files.items()},
            state=self.run.state, tags=list(self.run.tags), notes=self.run.notes,
        )
        self.file.close()

    def write(self, **content):
        self.file.write(json.dumps(content) + "\\n")
        self.file.flush()
'''


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home directory without logins, and without settings of trackers."""
    for name in list(os.environ):
        if name.startswith(("WANDB_", "TRACKIO_", "MLFLOW_")) or name == "NETRC":
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TRACKIO_DIR", str(home / "trackio"))
    return home


@pytest.fixture
def run(tmp_path: Path, home: Path) -> Iterator[RunDir]:
    """Return a new run."""
    yield RunStore(tmp_path / "runs").open(BoundRun(RunSpec()))


@pytest.fixture
def recorder(tmp_path: Path) -> Path:
    """Return the file of a tracker that writes what it is given to `mirrors/recorded.jsonl` in the run's folder."""
    path = tmp_path / "recorder.py"
    path.write_text(RECORDER)
    return path
