"""The content of the page: facts, notes and tables."""

from __future__ import annotations

import logging
import math
import os
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import boards
import made
import pandas as pd
import parsed
import pytest
from boards import board, cell

from workbench import report
from workbench.report.data_files import results_of
from workbench.report.load.study_tables import Frames
from workbench.report.page import document, rendering
from workbench.report.results import Leaderboard, ReportOptions
from workbench.spec.scoring import BABYLM, GLUE, LINEAR, PROBES, SUITES, ZERO_SHOT, score_label
from workbench.store.atomic import STAGE
from workbench.store.run_store import RunStore

EMPTY = made.in_memory(lambda *_: 0.0, ("rtd", "bert-mlm"), 2)
RECORD = {
    "axis": "objective", "question": "Which?", "command": "", "tasks": {}, "text": {}, "experiment": "x", "name": "x",
}  # fmt: skip
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


def test_cells_that_are_the_same_model_as_an_arm_are_named_with_it(tmp_path: Path) -> None:
    """From the record in a store; a cell whose run is not among the runs of the report is left out."""
    store, name = made.study(tmp_path / "runs", lambda *_: 50.0, ("rtd", "bert-mlm"), 2, tasks=("order",), tunings=1)
    run = next(one for one in store.experiment(name).runs if one.startswith("rtd"))
    cells = [{"objective": "rtd", "generator.depth": 0.5}, {"generator.depth": 0.25}, {"generator.depth": 1.0}]
    rows = [{"cell": cell, "run": "gone" if cell is cells[2] else run} for cell in cells]
    made.edit(store.root / "experiments" / f"{name}.json", merged=rows)
    written = parsed.page(report.write(RunStore(store.root), name, tmp_path / "out"))
    [note, *_] = [each.text for each in written.by_id("answer").find("p") if "same model" in each.text]
    assert note == "RTD, generator depth 1/2 and Generator depth 1/4 are the same model as RTD."


def write(study: tuple[RunStore, str], out: Path) -> Path:
    return report.write(*study, out)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunStore, str]:
    return store_of(tmp_path_factory.mktemp("study") / "runs", 0)


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


@pytest.mark.parametrize(
    ("suite", "tasks", "text"),
    [
        ("pairs", ("pairs:replace",), "pairs:replace"),
        ("linear", ("linear:next",), "linear:next"),
        ("probes", ("order", "next"), "mean of order, next"),
        ("probes", PROBES, "probe score (package, order, next and signature)"),
        ("linear", LINEAR, "linear probe score (linear:package, linear:order, linear:next and linear:signature)"),
        ("glue", GLUE, "GLUE (CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI and RTE)"),
    ],
)
def test_a_score_is_described_by_its_tasks_once(suite: str, tasks: tuple[str, ...], text: str) -> None:
    scores = board([cell("rtd", [60.0])], suite=suite, tasks=tasks, label=score_label(suite, tasks))
    assert rendering.score(scores) == text


ARMS = ("rtd", "bert-mlm", "electra-15")
BOARD = boards.board([cell(arm, [60.0, 61.0]) for arm in ARMS], suite="pairs", tasks=("pairs",))
NO_ROWS = made.in_memory(lambda *_: 0.0, (), 0)


def row(arm: str, seed: int, scorer: str, ties: int = 0, rows: int = 1000, suite: str = "pairs") -> dict[str, Any]:
    run = f"{arm}-{boards.BUDGET}-s{seed}"
    return {"run_id": run, "suite": suite, "task": "t", "scorer": scorer, "ties": ties, "test_rows": rows}


def notes(board: Leaderboard, frames: Frames) -> list[str]:
    return rendering.notes(board, frames)


def frames(*rows: dict[str, Any]) -> Frames:
    return replace(
        NO_ROWS, scores=pd.DataFrame(rows, columns=["run_id", "suite", "task", "scorer", "ties", "test_rows"])
    )


@pytest.mark.parametrize("suite", SUITES)
def test_only_scores_without_training_and_of_tagging_have_notes(suite: str) -> None:
    found = notes(boards.board([cell("rtd", [60.0])], suite=suite), frames(row("rtd", 0, "pll", suite=suite)))
    assert bool(found) == (suite in (*ZERO_SHOT, "tagging"))


def test_tagging_is_told_by_task_and_way_of_scoring() -> None:
    rows = [row("rtd", seed, "F1 of spans", suite="tagging") for seed in (0, 1)]
    found = notes(boards.board([cell("rtd", [60.0])], suite="tagging"), frames(*rows))
    assert found == ["t: F1 of spans."]


@pytest.mark.parametrize(
    ("scorers", "text", "apart"),
    [
        ({("rtd", 0): "pll", ("rtd", 1): "pll"}, "pll (rtd)", False),
        ({("rtd", 0): "pll", ("bert-mlm", 0): "pll"}, "pll (rtd and bert-mlm)", False),
        ({("rtd", 0): "originality", ("bert-mlm", 0): "pll", ("electra-15", 1): "pll"},
         "originality (rtd) and pll (bert-mlm and electra-15)", True),
    ],
)  # fmt: skip
def test_scorers_are_told_with_their_arms(scorers: dict[tuple[str, int], str], text: str, apart: bool) -> None:
    told, *_ = notes(BOARD, frames(*(row(*run, scorer) for run, scorer in scorers.items())))
    assert text in told and (told.count(".") > 1) == apart


def test_the_untrained_encoder_has_a_scorer_too() -> None:
    bare = cell("untrained", [50.0], budget="none")
    found = replace(BOARD, untrained=bare)
    rows = frames(row("rtd", 0, "pll"), row("rtd", 1, "pll") | {"run_id": bare.runs[0]})
    assert "pll (rtd and untrained)." in notes(found, rows)[0]
    (told,) = notes(found, frames(row("rtd", 0, "originality"), row("rtd", 1, "pll") | {"run_id": bare.runs[0]}))[:1]
    assert told == (
        "Sentences are scored by originality (rtd) and pll (untrained). The untrained encoders have another scorer, to "
        "which a part of the gain may be due."
    )
    assert "pll (rtd)." in notes(BOARD, rows)[0]  # runs that are on no board


def test_one_scorer_of_all_arms_that_was_trained_on_other_inputs_is_doubted() -> None:
    rows = frames(*(row(arm, 0, "originality") for arm in ARMS))
    told, _ = notes(BOARD, rows)
    assert told == "Sentences are scored by originality (all arms)."
    told, _ = notes(replace(BOARD, other_inputs=True), rows)
    assert "(all arms). Scorers are trained on other inputs in each arm, so a difference" in told


def test_ties_are_added_up_over_the_runs_of_the_suite() -> None:
    rows = [row("rtd", 0, "pll", 3), row("bert-mlm", 0, "pll", 1200, 2500), row("rtd", 1, "pll", 99, suite="blimp"),
            row("rtd", 1, "", 99)]  # fmt: skip
    _, told = notes(BOARD, frames(*rows))
    assert "1,203 of 3,500 " in told


def test_no_ties_are_said_where_there_were_pairs() -> None:
    assert len(notes(BOARD, frames(row("rtd", 0, "pll")))) == 2
    assert not any(letter.isdigit() for letter in notes(BOARD, frames(row("rtd", 0, "pll")))[1])
    assert notes(BOARD, frames()) == [] == notes(BOARD, frames(row("rtd", 0, "")))


@pytest.mark.parametrize(
    ("tasks", "shown"), [(("blimp-filtered",), True), (("blimp", "blimp-filtered"), True), (("blimp",), False)]
)
def test_published_points_stand_beside_the_same_pairs_alone(tasks: tuple[str, ...], shown: bool) -> None:
    found: Leaderboard = replace(BOARD, suite="blimp", tasks=tasks)
    text = " ".join(notes(found, frames(row("rtd", 0, "pll", suite="blimp"))))
    for point in BABYLM:
        assert text.count(f"{point.name} {point.blimp:.1f} ({point.year})") == shown
    for size in {point.data for point in BABYLM}:
        assert text.count(f" {size} words ") == shown
