"""The table of a study: every design has a row with its own numbers, and what is not known has a word for it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from workbench.cli.study_table import as_text
from workbench.execution.run_list import Job, job_of
from workbench.execution.study_plan import Design, Noise
from workbench.spec import experiment
from workbench.spec.presets import resolve

BASE = resolve("nano", {"budget.flops": 1e11})
SMALL = Design(2, 3.5e11, 45.0, None)
LARGE = Design(8, 1.4e12, 3720.0, 1.236, 1.4567, 5.25, 2441.0, 7.75)
ONE, TWO = Noise("GLUE größe", 0.5, "as assumed"), Noise("probes", 1.234, "x", 4, 0.74, 3.55)


@pytest.fixture(scope="module")
def job() -> Job:
    return job_of(experiment.load("ablation"), BASE, 1, ["rtd", "bert-mlm"])


def tables(text: str) -> list[list[dict[str, str]]]:
    """Return the tables in a text, each a list of rows by the name of the column, cut where their rules are."""
    lines, found = text.splitlines(), []
    for place, rule in enumerate(lines):
        if not re.fullmatch(r"-+(  -+)+", rule):
            continue
        spans = [match.span() for match in re.finditer("-+", rule)]
        names = [lines[place - 1][start:end].strip() for start, end in spans]
        rows = [line for line in lines[place + 1 :]]
        rows = rows[: rows.index("")] if "" in rows else rows
        found.append([dict(zip(names, (row[a:b].strip() for a, b in spans), strict=True)) for row in rows])
    return found


def test_every_number_of_a_design_stands_in_its_column(job: Job) -> None:
    [[small, large]] = tables(as_text(job, [ONE], [[SMALL, LARGE]]))
    assert (large["seeds"], float(large["FLOPs (matmul)"]), large["time"], large["gap"]) == (
        "8",
        1.4e12,
        "1 h 2 min",
        "1.24",
    )
    assert [large[key] for key in ("gap, auto", "mean seeds", "mean time", "mean seeds if equal")] == [
        "1.46", "5.2", "40 min 41 s", "7.8",
    ]  # fmt: skip
    assert (small["seeds"], float(small["FLOPs (matmul)"]), small["time"]) == ("2", 3.5e11, "45 s")


def test_what_cannot_be_shown_and_what_was_not_simulated_are_told_apart(job: Job) -> None:
    [[row]] = tables(as_text(job, [ONE], [[SMALL]]))
    assert row["gap"] == "none"
    assert {row[key] for key in ("gap, auto", "mean seeds", "mean time", "mean seeds if equal")} == {"-"}
    [[zero]] = tables(as_text(job, [ONE], [[replace(LARGE, gap=0.0)]]))
    assert zero["gap"] == "0.00"


@pytest.mark.parametrize("name", ["added_gap", "mean_seeds", "mean_seconds"])
def test_a_design_that_lacks_one_number_of_adding_seeds_shows_none_of_them(job: Job, name: str) -> None:
    [[row]] = tables(as_text(job, [ONE], [[replace(LARGE, **{name: None})]]))
    assert row["gap, auto"] == row["mean time"] == "-" and row["gap"] == "1.24"


def test_each_measure_has_its_noise_and_its_table(job: Job) -> None:
    text = as_text(job, [ONE, TWO], [[SMALL], [SMALL, LARGE]])
    assert [len(rows) for rows in tables(text)] == [1, 2]
    assert text.index(str(ONE)) < text.index(str(TWO)) and "größe" in text
    assert all(number in str(TWO) for number in ("1.23", "0.74", "3.55", "4 df"))
    with pytest.raises(ValueError):
        as_text(job, [ONE, TWO], [[SMALL]])


def test_arms_and_declared_comparisons_come_first(job: Job, tmp_path: Path) -> None:
    first = as_text(job, [ONE], [[SMALL]]).splitlines()[0]
    assert first.startswith("2 ") and "rtd against bert-mlm" in first and "electra-15" not in first
    path = tmp_path / "mine.py"
    path.write_text('QUESTION = "?"\nAXES = {"objective": ("rtd", "bert-mlm", "electra-15")}\n')
    plain = as_text(job_of(experiment.load(str(path)), BASE, 1, []), [ONE], [[SMALL]]).splitlines()[0]
    assert plain.startswith("3 ") and "against" not in plain and not plain.rstrip().endswith(":")


def test_flops_are_counted_by_the_convention_of_the_budget(job: Job) -> None:
    paper = replace(job, base=resolve("nano", {"budget.flops": 1e11, "budget.convention": "paper"}))
    [[row]] = tables(as_text(paper, [ONE], [[SMALL]]))
    assert "FLOPs (paper)" in row


def test_the_noise_for_which_the_gaps_hold_is_told(job: Job) -> None:
    assert "with a probability of 0.8 if all arms have the same noise;" in as_text(job, [ONE], [[SMALL]])


def test_what_another_processor_moves_is_told_for_the_fewest_and_the_most_seeds(job: Job) -> None:
    few, many = replace(SMALL, moved=0.6322), replace(LARGE, moved=0.3162)
    text = as_text(job, [ONE], [[few, replace(few, seeds=4, moved=0.4711), many]])
    (line,) = [line for line in text.splitlines() if "arithmetic" in line]
    assert "about 0.63 points with 2 seeds and 0.32 points with 8 seeds (" in line and "0.47" not in text
    assert "arithmetic" not in as_text(job, [ONE], [[SMALL, LARGE]])
    assert "about 0.63 points with 2 seeds (" in as_text(job, [ONE], [[few]])
