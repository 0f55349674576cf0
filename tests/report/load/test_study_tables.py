"""The tables of a study: its runs, the scores that count, and published models beside them."""

from __future__ import annotations

import logging
import math
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import parsed
import pytest
from made import LEVELS, noisy, published, recorded, scored, spec_of, study, trained

from workbench.execution.study import distinct_runs
from workbench.execution.study_runner import untrained
from workbench.report import write
from workbench.report.comparison import leaderboards
from workbench.report.load import study_tables
from workbench.report.load.study_tables import choose
from workbench.spec.stages import BoundRun
from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore


def test_every_run_of_the_record_has_a_row_whatever_became_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = RunStore(tmp_path / "runs")
    specs = [spec_of("rtd", seed, {"steps": 8}) for seed in range(4)]
    whole, broken, gone, stopped = (trained(store, spec, 8) for spec in specs)
    for run in (whole, broken, stopped):
        scored(run, "order", 0, 61.0)
    shutil.rmtree(gone.path)
    (broken.path / "metrics.jsonl").write_text("rubbish")
    for name in ("done.json", "manifest.json"):
        (stopped.path / name).unlink()
    with caplog.at_level(logging.WARNING):
        loaded = study_tables.read_and_warn(store, recorded(store, specs))
    rows = {row["run_id"]: row for row in loaded.rows("runs")}
    assert [rows[run.run_id]["state"] for run in (whole, broken, gone, stopped)] == [
        "done", "damaged", "missing", "interrupted"
    ]  # fmt: skip
    assert rows[stopped.run_id]["reason"] == "stopped at step 8 of 8; the same command resumes it"
    assert rows[gone.run_id]["reason"] == "not started" and rows[broken.run_id]["seed"] == 1
    assert list(loaded.scores["run_id"]) == [whole.run_id]  # scores of the others count nowhere
    assert rows[whole.run_id]["arm"] == "rtd" and rows[whole.run_id]["steps"] == 8
    assert {record.getMessage() for record in caplog.records} == {
        f"{broken.path} is damaged and is left out: {rows[broken.run_id]['reason']}; move that folder away and give "
        f"the command that trained it again, which makes it anew (workbench verify {store.root} names every changed "
        "file)",
        f"{gone.run_id} is missing and is left out: there is no such folder",
    }


def test_tables_hold_every_metric_of_the_chosen_scores(tmp_path: Path) -> None:
    store, name = study(tmp_path / "runs", noisy(LEVELS), ("rtd", "bert-mlm"), seeds=2, tasks=("order", "next"))
    loaded = study_tables.read_study(store, name)
    assert loaded.axis == "objective" and loaded.statistic == "mean" and not loaded.notes
    assert len(loaded.runs) == 2 + 2 * 2 and list(loaded.by_id()) == list(loaded.runs["run_id"])
    assert set(loaded.runs[loaded.runs["role"] == "untrained"]["arm"]) == {"untrained"}
    assert len(loaded.scores) == 6 * 2 * 2 and len(loaded.other) == 2 * len(loaded.scores)
    assert set(loaded.other["metric"]) == {"accuracy", "matthews", "f1"} and set(loaded.other["split"]) == {"test"}
    assert len(loaded.baselines) == 2 * len(loaded.scores) and loaded.points.empty


def test_a_note_says_that_files_were_not_compared_with_their_hashes(tmp_path: Path) -> None:
    store, name = study(tmp_path / "runs", noisy(LEVELS), ("rtd",), seeds=2, tasks=("order",))
    assert study_tables.read_study(store, name, verify=False).notes == (
        "Files were not compared with their hashes (--no-verify).",
    )


def score(run: str, value: float, digest: str = "aa", **changes: Any) -> dict[str, Any]:
    settings = {"lr": 1e-4, "length": 128}
    given = {"run_id": run, "task": "order", "suite": "probes", "value": value, "digest": digest, "finetune": settings}
    return given | {"path": f"{run}/scores/order-{digest}-0.json"} | changes


def test_scores_under_the_settings_of_the_experiment_are_chosen_before_those_of_the_most() -> None:
    own = score("a", 60.0)
    others = [score(run, 61.0, "bb", finetune={"lr": 2e-4, "length": 64}) for run in ("a", "b")]
    for tasks, kept in (
        ({"lr": 1e-4}, [own]), ({"lr": 2e-4}, others), ({"lr": 9.0}, others), ({"lr": None, "length": 128}, [own]),
    ):  # fmt: skip
        notes: list[str] = []
        assert choose([own, *others], tasks, notes) == kept
        (note,) = notes
        left, shown = ("bb", "aa") if kept == [own] else ("aa", "bb")
        assert f"(digest {left}; shown: {shown})" in note
        assert note.startswith("order: 2 scores" if kept == [own] else "order: 1 score ")


def test_scores_of_other_tasks_and_those_that_are_not_numbers_are_left_out() -> None:
    notes: list[str] = []
    rows = [
        score("a", 60.0), score("b", float("nan")), score("a", 1.0, task="CoLA", suite="glue"),
        score("a", 2.0, task="mine", suite="table"),
    ]  # fmt: skip
    assert choose(rows, {"names": ["order"]}, notes) == rows[:1]
    assert notes == ["b/scores/order-aa-0.json: the score is not a number and is left out"]
    assert [s["task"] for s in choose(rows, {"names": ["glue", "data/mine.csv"]}, [])] == ["CoLA", "mine"]
    assert [s["task"] for s in choose(rows, {"names": ["next"]}, [])] == ["order", "CoLA", "mine"]


def folder_of(store: RunStore, name: str) -> Path:
    """The folder of the published model that was given this name."""
    specs = {run.path: run.spec().published for run in store.runs()}
    return next(path for path, known in specs.items() if known is not None and known.name == name)


CHANGES: dict[str, dict[str, Any]] = {
    "other data": {"data": "e" * 16},
    "another metric": {"metric": "f1", "values": {"test": {"f1": 70.0}}},
}


@pytest.mark.parametrize("case", CHANGES)
def test_scores_that_are_not_comparable_are_left_out_with_a_sentence(
    case: str, with_published: tuple[RunStore, str]
) -> None:
    store, name = with_published
    other = published(store, "elsewhere", 1e13)
    scored(other, "package", 0, 70.0)
    scored(other, "order", 0, **{"value": 70.0} | CHANGES[case])
    found = study_tables.read_study(store, name)
    [board] = leaderboards(found)
    assert "elsewhere" not in [model.name for model in board.measured]
    assert any("elsewhere" in note and "order are of other data" in note for note in found.notes)


def test_a_damaged_one_is_left_out_with_a_sentence(with_published: tuple[RunStore, str]) -> None:
    store, name = with_published
    folder = folder_of(store, "owner/big")
    path = next(folder.glob("scores/*.json"))
    path.write_text(path.read_text().replace("9", "8", 1))
    found = study_tables.read_study(store, name)
    assert [model.name for model in found.published] == ["small"]
    assert any(f"owner/big ({folder.name})" in note and "damaged" in note for note in found.notes)


def test_the_setting_with_most_scores_counts(with_published: tuple[RunStore, str]) -> None:
    store, name = with_published
    scored(RunDir(folder_of(store, "small")), "order", 0, 1.0, digest="00000000")
    assert study_tables.read_study(store, name).published[1].scores["order"] == {0: 61.0, 2: 63.0, 10: 71.0}


def test_they_stand_beside_the_arms_and_change_no_number(with_published: tuple[RunStore, str]) -> None:
    store, name = with_published
    found = study_tables.read_study(store, name)
    [board] = leaderboards(found)
    assert [(model.name, model.score, model.source) for model in board.measured] == [
        ("owner/big", 94.0, "a paper"), ("small", 65.0, "not stated"),
    ]  # fmt: skip
    assert board.measured[0].flops == 3e12 and math.isnan(board.measured[1].flops)
    assert set(board.arms) == {"rtd", "bert-mlm"} and not any("published" in run for run in board.run_scores)
    assert not any(str(row["run_id"]).startswith("published") for row in found.rows("runs"))
    assert found.published[0].scores["order"] == {0: 90.0, 2: 92.0, 10: 100.0}


def test_the_page_and_its_table_mark_them(with_published: tuple[RunStore, str], tmp_path: Path) -> None:
    store, name = with_published
    page = write(store, name, tmp_path / "report")
    [table] = [t for t in parsed.page(page).find("table") if t.attributes.get("data-name") == "published"]
    rows = {row.find("th")[0].text: [cell.text for cell in row.find("td")] for row in table.find("tr")[1:]}
    assert rows["owner/big"] == ["94.0", "3.0×10¹²", "a paper"] and rows["small"] == ["65.0", "–", "not stated"]
    rows = parsed.sheet(tmp_path / "report" / "published.csv")
    assert len(rows) == 12 and rows[0]["model"] == "owner/big" and {row["flops_stated"] for row in rows} >= {""}
    assert [row["fine_tuning_seed"] for row in rows[:3]] == ["0", "2", "10"]


BUDGET = {"steps": 60}
SCORERS = {"bert-mlm": "pll", "rtd": "originality"}


def page(tmp_path: Path, suite: str, task: str, ties: int = 3) -> tuple[str, Path]:
    """The report on two objectives and their untrained encoders, three seeds each."""
    store = RunStore(tmp_path / "runs")
    specs = [spec_of(name, seed, BUDGET) for name in SCORERS for seed in range(3)]
    bare = [run.spec for run in distinct_runs(untrained(BoundRun(spec)) for spec in specs)]
    for spec in [*specs, *bare]:
        run = trained(store, spec)
        value = 50.0 + spec.seed if spec in bare else 60.0 + spec.seed + len(spec.objective)
        scored(run, task, 0, value, suite=suite, metric="accuracy", values={"mean": {"accuracy": value}},
               baselines={"chance": 50.0}, scorer=SCORERS[spec.objective], ties=ties, test_rows=1000)  # fmt: skip
    name = recorded(store, specs, bare, tasks={"names": [task]})
    out = tmp_path / "report"
    return write(store, name, out).read_text(), out


def test_a_reader_is_told_how_sentences_were_scored_and_of_ties(tmp_path: Path) -> None:
    text, out = page(tmp_path, "pairs", "pairs")
    assert "pll (BERT MLM and untrained) and originality (RTD). Scorers differ between arms" in text
    assert "27 of 9,000 pairs, over all runs, have the same score for both sentences; each counts half." in text
    assert "chance" in text and "Paper, table 5" not in text
    sheet = pd.read_csv(out / "scores.csv")
    assert set(sheet["scorer"]) == set(SCORERS.values()) and set(sheet["ties"]) == {3}
    assert set(pd.read_csv(out / "baselines.csv")["baseline"]) == {"chance"}
