"""A store that an earlier commit wrote opens, is reported and resumes; stores of other formats are refused by name."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from drills.small import environment, write_table, write_text
from make_old_store import words

from workbench.report import write
from workbench.report.load.runs_table import find_record
from workbench.store.atomic import sealed
from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore
from workbench.store.verify import verify

STORES = sorted((Path(__file__).parents[1] / "fixtures").glob("store-*"))


@pytest.fixture(params=STORES, ids=lambda path: path.name)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RunStore:
    return RunStore(shutil.copytree(request.param, tmp_path / "runs"))


def test_there_is_one_of_todays_format() -> None:
    assert json.loads((STORES[-1] / "store.json").read_text()) == {"format": 2}


def test_its_runs_are_read(store: RunStore) -> None:
    states = {run.run_id.rsplit("-", 2)[0]: run.state for run in store.runs()}
    assert states == {"bert-mlm-nano": "done", "rtd-nano": "interrupted", "untrained-nano": "done"}
    done = next(run for run in store.runs() if run.run_id.startswith("bert"))
    assert [row["step"] for row in done.metrics()] == list(range(1, 7)) and len(done.scores()) == 1
    assert done.spec().name == done.run_id, "a spec of then has another name now"


def test_it_is_reported(store: RunStore, tmp_path: Path) -> None:
    page = write(store, find_record(store, "ablation"), tmp_path / "report").read_text()
    assert all(run.run_id in page for run in store.runs())


def test_its_killed_run_goes_on(store: RunStore, tmp_path: Path) -> None:
    before = next(store.root.glob("rtd-*/metrics.jsonl")).read_text().splitlines()
    (tmp_path / "elsewhere").mkdir()  # the runs were begun on small.txt and animals.csv in the present folder
    text, table = write_text(tmp_path / "elsewhere/other.txt"), write_table(tmp_path / "elsewhere/animals.csv")
    command = [sys.executable, "-m", "workbench", *words(text, table, Path("runs"), "rtd")]
    variables = environment(tmp_path / "cache")
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    after = next(store.root.glob("rtd-*/metrics.jsonl")).read_text().splitlines()
    assert next(store.root.glob("rtd-*")).joinpath("done.json").is_file()
    assert after[:4] == before[:4] and len(after) == 6, "it began again from step 0"
    assert all((run.path / "manifest.json").exists() for run in store.runs())
    assert {each.kind for _, each in verify(store).differences} == {"spared"}, "more than the folders left out here"


def test_a_run_of_format_1_in_a_store_of_today_is_named_and_left_alone(store: RunStore) -> None:
    """Its name depends on the path of its text, so no command would find it again."""
    run = store.runs()[0]
    raw = json.loads((run.path / "spec.json").read_text()) | {"format": 1}
    raw.pop("content_sha256")
    (run.path / "spec.json").write_bytes(sealed(raw))
    fault = RunDir(run.path).damage or ""
    assert fault.startswith("spec.json is of format 1, but this version of workbench reads format 2")
