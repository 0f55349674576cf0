"""A run is found again wherever its text, tokenizer and tables lie, and however they are named or packed."""

from __future__ import annotations

import gzip
import json
import lzma
import shutil
from pathlib import Path
from typing import Any

import pytest

from .conftest import SETS, Command

BUDGET = ["--budget", "steps=6", "--threads", 1, "--save-every", 2, "--set", "tasks.seeds=1", "--set", "tasks.epochs=1"]


def words_of(text: object, table: object, objective: str = "rtd") -> list[object]:
    return ["run", "ablation", "--objective", objective, "--corpus", text, "--tasks", table, *BUDGET, *SETS, "--json"]


@pytest.fixture(scope="module")
def study(text: Path, table: Path, workbench: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished study of one run, whose text and table lie beside the store."""
    folder = tmp_path_factory.mktemp("study")
    shutil.copy(text, folder / "mine.txt")
    shutil.copy(table, folder)
    workbench(*words_of("mine.txt", table.name), cwd=folder, ends=0)
    return folder


def written(store: Path) -> dict[Path, int]:
    """When each file of the runs was last written; files that are read alone stay as they are."""
    runs = [path.parent for path in store.glob("*/spec.json")]
    return {path: path.stat().st_mtime_ns for run in runs for path in run.rglob("*") if path.is_file()}


def as_text(source: Path, place: Path) -> Path:
    return Path(shutil.copy(source, place / "renamed.txt"))


def as_gzip(source: Path, place: Path) -> Path:
    (place / "a.txt.gz").write_bytes(gzip.compress(source.read_bytes()))
    return place / "a.txt.gz"


def as_xz_in_a_folder(source: Path, place: Path) -> Path:
    (place / "deep").mkdir()
    (place / "deep" / "b.txt.xz").write_bytes(lzma.compress(source.read_bytes()))
    return place / "deep"


def as_rows(source: Path, place: Path) -> Path:
    documents = source.read_text(encoding="utf-8").strip().split("\n\n")
    (place / "c.jsonl").write_text("".join(json.dumps({"text": each}) + "\n" for each in documents))
    return place / "c.jsonl"


@pytest.mark.parametrize("form", [as_text, as_gzip, as_xz_in_a_folder, as_rows])
def test_nothing_is_trained_again_where_the_same_text_lies_elsewhere(
    form: Any, study: Path, table: Path, workbench: Command, tmp_path: Path
) -> None:
    shutil.copytree(study / "runs", tmp_path / "runs")
    (tmp_path / "data").mkdir()
    text, copy = form(study / "mine.txt", tmp_path / "data"), shutil.copy(table, tmp_path / "data")
    before = written(tmp_path / "runs")
    workbench(*words_of(text, copy), cwd=tmp_path, ends=0)
    assert written(tmp_path / "runs") == before, "a run was trained, measured or made again"
    names = [record.name for record in (tmp_path / "runs/experiments").iterdir() if record.suffix == ".json"]
    assert len(names) == 1, "the study has two records"


def test_other_text_at_the_same_place_is_another_run(
    study: Path, table: Path, workbench: Command, tmp_path: Path
) -> None:
    shutil.copytree(study, tmp_path / "study")
    text = tmp_path / "study/mine.txt"
    text.write_text(text.read_text() + "\nthe cat sees one last dog on a hill.\n")
    before = {path.parent.name for path in (study / "runs").glob("*/spec.json")}
    done = workbench(*words_of("mine.txt", table.name), cwd=tmp_path / "study", ends=0)
    ids = {run["run_id"] for run in json.loads(done.stdout)["runs"]}
    assert len(ids) == len(before) == 2 and not ids & before


def test_a_tokenizer_that_was_saved_is_the_one_that_was_trained(
    study: Path, table: Path, workbench: Command, tmp_path: Path
) -> None:
    shutil.copytree(study / "runs", tmp_path / "runs")
    folder = shutil.copytree(next((study / "runs").glob("rtd-*")) / "encoder", tmp_path / "words")
    before = written(tmp_path / "runs")
    words = [*words_of(study / "mine.txt", table), "--set", f"data.tokenizer={folder}"]
    done = workbench(*words, cwd=tmp_path)
    assert done.returncode == 0 and written(tmp_path / "runs") == before, done.stderr


@pytest.mark.parametrize(
    "processes",
    [("--workers", 1), *(pytest.param(each, marks=pytest.mark.slow) for each in (("--workers", 2), ("--devices", 2)))],
)
def test_a_run_goes_on_and_a_report_joins_what_two_places_made(
    processes: tuple[object, ...], study: Path, table: Path, workbench: Command, tmp_path: Path
) -> None:
    """A run that was only begun is trained where the text has another path, which env.json names; so is a new seed."""
    shutil.copytree(study / "runs", tmp_path / "runs")
    begun = next((tmp_path / "runs").glob("rtd-*"))
    for path in begun.iterdir():
        if path.name != "spec.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    text = as_gzip(study / "mine.txt", tmp_path)
    done = workbench(*words_of(text, table), "--seeds", 2, *processes, cwd=tmp_path, ends=0)
    answer = json.loads(done.stdout)
    assert {run["state"] for run in answer["runs"]} == {"done"} and len(answer["runs"]) == 4
    places = {
        run["run_id"]: json.loads((tmp_path / "runs" / run["run_id"] / "env.json").read_text())["places"]["data.corpus"]
        for run in answer["runs"]
    }
    assert sorted(map(str, places.values())) == sorted([str(["mine.txt"])] + [str([str(text)])] * 3)
    rows = workbench("export", "ablation", "--runs", "runs", cwd=tmp_path).stdout.splitlines()
    arms = {line.split(",")[rows[0].split(",").index("arm")] for line in rows[1:]}
    assert arms == {"rtd", "untrained"}, "runs of one text are not one arm"
