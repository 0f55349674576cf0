"""The page as a whole: its parts, its files, and what it replaces."""

from __future__ import annotations

import logging
import math
import os
import resource
from dataclasses import replace
from pathlib import Path

import made
import parsed
import pytest
from by_hand import board, cell

from workbench.report.figures.selection import BoardFigures
from workbench.report.page import document
from workbench.report.page.answer import Answer
from workbench.report.page.section import Section
from workbench.report.report_options import ReportOptions
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


def section(number: int) -> Section:
    found = board([cell("rtd", [60.0])], label=f"measure {number}")
    figures = BoardFigures(None, (), None, (), ())
    return Section(number, found, Answer("", (), ""), "", figures, (), (), (), (), None, "", (), (), "", (), ())


def page(**changes: object) -> document.Page:
    return replace(document.page_of(FRAMES, [], {}, ReportOptions(), ""), **changes)  # type: ignore[arg-type]


def test_without_scores_the_page_says_so_and_lists_every_run() -> None:
    found = page()
    assert found.sections == () and str(len(FRAMES.runs)) in found.no_scores
    assert [run["run_id"] for run in found.runs] == list(FRAMES.runs["run_id"])
    assert found.rows == {run_id: row for row, run_id in enumerate(FRAMES.runs["run_id"])}
    assert found.arms == "objectives" and list(found.keys) == ["rtd", "bert-mlm"]


def test_contents_have_the_parts_that_are_there_in_order() -> None:
    fixed = ["training", "setup", "runs"]
    assert [fragment for fragment, _ in page().contents] == fixed
    assert [fragment for fragment, _ in page(tuning=[{}]).contents] == ["tuning", *fixed]
    one = page(sections=(section(1),)).contents
    assert [fragment for fragment, _ in one] == ["compute-1", "table-1", "tasks-1", *fixed]
    assert not any("measure" in title for _, title in one)


def test_parts_of_several_measures_name_theirs() -> None:
    found = page(sections=(section(1), section(2))).contents
    titles = dict(found)
    assert len(titles) == len(found) == 2 * 3 + 3
    for number in (1, 2):
        assert all(f"measure {number}" in titles[f"{part}-{number}"] for part in ("compute", "table", "tasks"))


@pytest.mark.parametrize("state", ["interrupted", "damaged", "missing", "diverged", "failed", "running"])
def test_runs_that_did_not_finish_are_in_no_average(state: str) -> None:
    runs = FRAMES.runs.copy()
    runs.loc[1, "state"] = state
    found = document.page_of(replace(FRAMES, runs=runs), [], {}, ReportOptions(), "").absent
    assert [run["run_id"] for run in found] == [runs.loc[1, "run_id"]]
    assert page().absent == []


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
