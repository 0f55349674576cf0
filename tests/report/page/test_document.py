"""The page as a whole: its parts, its files, and what it replaces."""

from __future__ import annotations

import logging
import math
import os
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import made
import parsed
import pytest

from workbench.report.page import document
from workbench.report.report_options import ReportOptions
from workbench.report.results import results_of
from workbench.store.atomic import STAGE
from workbench.store.run_store import RunStore

EMPTY = made.in_memory(lambda *_: 0.0, ("rtd", "bert-mlm"), 2)
RECORD = {
    "axis": "objective",
    "question": "Which?",
    "command": "",
    "tasks": {},
    "text": {},
    "experiment": "x",
    "name": "x",
}
RUNS = EMPTY.runs.assign(words=math.nan, epochs=math.nan, reason="")
FRAMES = replace(EMPTY, record=RECORD, runs=RUNS, scores=EMPTY.scores.iloc[:0])


def page(runs: Any = None) -> document.Page:
    return document.Page(results_of(replace(FRAMES, runs=FRAMES.runs if runs is None else runs), {}, ReportOptions()))


def test_without_scores_the_page_says_so_and_lists_every_run() -> None:
    found = page()
    assert found.measures == [] and found.main is None and "no answer yet" in found.answer
    assert [run["run_id"] for run in found.runs] == list(FRAMES.runs["run_id"])
    assert found.rows == {run_id: row for row, run_id in enumerate(FRAMES.runs["run_id"])}
    assert list(found.looks) == ["rtd", "bert-mlm"]
    assert [fragment for fragment, _ in found.contents] == ["answer", "spending", "settings", "runs", "method"]


@pytest.mark.parametrize("state", ["interrupted", "damaged", "missing", "diverged", "failed", "running"])
def test_runs_that_did_not_finish_are_in_no_average(state: str) -> None:
    runs = FRAMES.runs.copy()
    runs.loc[1, "state"] = state
    assert [run["run_id"] for run in page(runs).states] == [runs.loc[1, "run_id"]]
    assert page().states == []


def store_of(root: Path, seed: int) -> tuple[RunStore, str]:
    """A store with one trained run, which logged nothing and was measured on nothing: there is nothing to draw."""
    store = RunStore(root)
    spec = made.spec_of("bert-mlm", seed, {"steps": 1})
    made.trained(store, spec, 0)
    return store, made.recorded(store, [spec])


def write(study: tuple[RunStore, str], out: Path) -> Path:
    return document.write(*study, out, {}, ReportOptions())


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunStore, str]:
    return store_of(tmp_path_factory.mktemp("study") / "runs", 0)


def test_a_page_is_a_folder_or_a_file_beside_its_tables(tmp_path: Path, study: tuple[RunStore, str]) -> None:
    assert write(study, tmp_path / "out") == tmp_path / "out" / "index.html"
    assert write(study, tmp_path / "deep" / "mine.html") == tmp_path / "deep" / "mine.html"
    names = {path.name for path in (tmp_path / "out").glob("*.csv")}
    assert "runs.csv" in names and {path.name for path in (tmp_path / "deep").glob("*.csv")} == {
        f"mine-{n}" for n in names
    }
    links = {link.attributes["href"] for link in parsed.page(tmp_path / "deep" / "mine.html").find("a")}
    assert "mine-runs.csv" in links and not links & names
    assert not list(tmp_path.rglob("compute.svg"))


def test_a_report_of_another_store_is_replaced_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, other = store_of(tmp_path / "one", 0), store_of(tmp_path / "other", 1)
    out = tmp_path / "out"
    with caplog.at_level(logging.WARNING, "workbench"):
        write(one, out)
        write(one, out)
        write(other, out / "page.html")  # whose tables have other names
        assert caplog.messages == []
        write(other, out)
    [told] = caplog.messages
    assert str(out) in told and str(other[0].root) in told
    assert [row["run_id"] for row in parsed.sheet(out / "runs.csv")] == [run.run_id for run in other[0].runs()]


def test_a_report_that_cannot_be_written_leaves_the_one_before_as_it_was(
    tmp_path: Path, study: tuple[RunStore, str]
) -> None:
    page = write(study, tmp_path)
    for table in tmp_path.glob("*.csv"):
        table.write_text("of the report before")
    (left := tmp_path / f"{STAGE}{'0' * 32}").write_text("of a process that was killed")
    os.utime(left, (0, 0))
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path != left}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (page.stat().st_size - 1, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write(study, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"a,b\n1,2\n", b'"' + b"x" * 200_000], ids=["binary", "other", "long"]
)
def test_a_table_that_is_no_report_s_is_replaced_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, study: tuple[RunStore, str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "runs.csv").write_bytes(content)
    with caplog.at_level(logging.WARNING, "workbench"):
        write(study, tmp_path / "out")
    assert caplog.messages == []
    assert len(parsed.sheet(tmp_path / "out" / "runs.csv")) == 1
