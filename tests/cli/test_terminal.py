"""Results as text: tables, and the plan of a command."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import OBJECTIVES, run_job
from typer.testing import CliRunner

from workbench.bench import estimate
from workbench.cli import app, terminal
from workbench.cli.lists import LISTS
from workbench.cli.terminal import study_text
from workbench.execution.study import Job, job_of
from workbench.execution.study_power import Design, Noise
from workbench.spec import experiment, presets
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.training.plan import memory


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run takes a second, and no step is timed."""
    monkeypatch.setattr(estimate, "training_seconds", lambda plans, host: [1.0] * len(plans))


cells = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text("abc ", min_size=1).map(str.strip)


@pytest.mark.parametrize("match", [None, "tokens", "none"])
def test_a_plan_asks_at_equal_compute_only_where_it_is(match: str | None, untimed: None) -> None:
    job = run_job("ablation", presets.resolve("nano", {"budget.tokens": 2e6}), match=match)
    priced, matches = job.priced
    text = terminal.plan_table(job, priced, matches, Host(device="cpu"))
    document = terminal.plan_json(job, priced, matches)
    assert ("At equal compute, what does" in text) == document["equal_compute"] == (match is None)
    assert document["question"].startswith("At equal compute, what" if match is None else "What does each step")
    assert ("not at equal compute: an arm spends up to 2.97" in text) == (match is not None)
    assert "FLOPs (matmul)" in text


@pytest.mark.parametrize(
    ("words", "whole"),
    [(["rtd"], "time for the run: about 1 s"), (["rtd", "bert-mlm"], "time for all 2 runs: about 2 s")],
)
def test_a_plan_of_one_run_speaks_of_one(words: list[str], whole: str, untimed: None) -> None:
    job = run_job("ablation", presets.resolve("nano", {"budget.steps": 9}), words)
    priced, matches = job.priced
    assert whole in terminal.plan_table(job, priced, matches, Host(device="cpu"))


@pytest.mark.parametrize(
    ("trained", "told"),
    [
        (0, "one run at a time)"),
        (1, "1 of them is trained already, and the others take about 9 s"),
        (10, "10 of them are trained already"),
    ],
)
def test_a_plan_says_what_is_left_of_it(trained: int, told: str, untimed: None) -> None:
    job = run_job("ablation", presets.resolve("nano", {"budget.steps": 9}), seeds=2)
    priced, matches = job.priced
    names = [spec.name for spec, _ in priced][:trained]
    assert terminal.plan_table(job, priced, matches, Host(device="cpu"), trained=names).endswith(told)
    document = terminal.plan_json(job, priced, matches, trained=names)
    assert [row["trained"] for row in document["runs"]] == [True] * trained + [False] * (10 - trained)


@pytest.mark.parametrize(
    ("host", "columns"),
    [
        (Host(device="cpu"), {"memory": (1, False)}),
        (Host(device="cpu", devices=4), {"memory each": (4, False), "with --shard": (4, True)}),
        (Host(device="cpu", devices=4, shard=True), {"memory each": (4, True), "without --shard": (4, False)}),
    ],
)
def test_a_plan_prices_the_memory_of_each_device_with_and_without_shard(
    host: Host, columns: dict[str, tuple[int, bool]], untimed: None
) -> None:
    job = run_job("ablation", presets.resolve("mini", {"budget.steps": 100}), ["rtd"])
    priced, matches = job.priced
    (spec, plan), *_ = priced
    given = terminal._memory_of(spec, plan, host)
    assert given == {name: terminal._bytes(memory(spec, plan.parameters, *how)) for name, how in columns.items()}
    assert len(set(given.values())) == len(columns), "they differ"
    text = terminal.plan_table(job, priced, matches, host)
    assert all(f"{name}  " in text and value in text for name, value in given.items())


@pytest.mark.parametrize("devices", [1, 4])
def test_a_plan_prices_the_rows_that_are_computed_at_once(devices: int) -> None:
    """Activations are those of a micro-batch; weights, gradients and moments stay."""
    priced, _ = run_job("ablation", presets.resolve("mini", {"budget.steps": 100}), ["rtd"]).priced
    spec, plan = priced[0]
    column = "memory" if devices == 1 else "memory each"
    given = terminal._memory_of(spec, plan, Host(device="cpu", devices=devices, micro_batch=2))[column]
    state = 16 * plan.parameters["total"]
    activations = memory(spec, plan.parameters) - state
    assert given == terminal._bytes(state + activations * 2 // spec.batch.size)
    assert given != terminal._memory_of(spec, plan, Host(device="cpu", devices=devices))[column]


@pytest.mark.parametrize(
    ("tasks", "told"),
    [
        (("none",), "\ntasks none: nothing is measured\n"),
        (("RTE", "CoLA"), "\ntasks RTE, CoLA: 3 fine-tuning seeds each\n"),
        (("pairs", "linear:next"), "\ntasks pairs, linear:next: nothing is fine-tuned\n"),
        (("pairs", "RTE"), "\ntasks pairs, RTE: 3 fine-tuning seeds on RTE\n"),
    ],
)
def test_a_plan_counts_fine_tunings_only_where_there_are_some(tasks: tuple[str, ...], told: str, untimed: None) -> None:
    job = run_job("ablation", presets.resolve("nano", {"tasks.names": tasks, "tasks.seeds": 3}), ["rtd"])
    priced, matches = job.priced
    assert told in terminal.plan_table(job, priced, matches, Host(device="cpu"))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, "peak learning rates 0.002 of bert-mlm, 0.003 of replace-mlm and electra-15, 0.004 of rtd"),
        ({"optim.lr": 4e-4}, "peak learning rate 0.0004"),
        ({"optim.lr": 4e-4, "optim.generator_lr": 1e-3}, "peak learning rate 0.0004 (generator 0.001)"),
    ],
)
def test_a_plan_tells_the_rates_that_the_runs_have(
    asked: dict[str, Any], told: str, untimed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presets, "OBJECTIVES", {"nano": OBJECTIVES["nano"] | {"rtd": {"optim.lr": 4e-3}}})
    base = presets.resolve("nano", {"budget.steps": 100} | asked)
    words = ["bert-mlm", "replace-mlm", "electra-15", "rtd"]
    job = job_of(experiment.load("ablation"), base, 1, words, set(asked))
    priced, matches = job.priced
    assert f"32 rows a step, {told}\n" in terminal.plan_table(job, priced, matches, Host(device="cpu"))


def test_the_constant_of_the_official_script_for_xlnet_stands_beside_our_count() -> None:
    lines = CliRunner().invoke(app, ["flops", "--scale", "xlnet-large", "--objective", "permutation-lm"]).stdout
    assert "3,610,795,736,498,176,000,000" in lines
    assert "the official script gives xlnet-large as published 3.857e+21 FLOPs: a profiler's count of" in lines
    assert "official script" not in CliRunner().invoke(app, ["flops", "--scale", "bert-base"]).stdout


def test_the_list_prints_what_is_unknown_as_unknown() -> None:
    rows = json.loads(CliRunner().invoke(app, ["list", "published", "--json"]).stdout)
    by_name = {row["name"]: row for row in rows}
    assert by_name["Seznam/small-e-czech"]["steps"] is None and by_name["AILabTUL/mELECTRA"]["flops"] is None
    assert by_name["izumi-lab/bert-small-japanese-fin"]["packages"] == "fugashi, ipadic"
    assert by_name["google/electra-large-generator"]["flops"] == 3.1e21
    lines = CliRunner().invoke(app, ["list", "published"]).stdout.splitlines()
    assert {"name", "model_class", "licence", "steps", "flops", "source"} <= set(lines[0].split())
    [czech] = [line for line in lines if line.startswith("Seznam/small-e-czech")]
    assert "unknown" in czech and "cc-by-4.0" in czech and " - " not in czech


@given(st.lists(st.tuples(cells, st.integers(0, 10**9)), min_size=1, max_size=5))
def test_columns_stand_under_their_names(values: list[tuple[Any, int]]) -> None:
    rows = [{"a key": one, "b": two} for one, two in values]
    head, rule, *lines = terminal.table(rows).split("\n")
    widths = [len(dashes) for dashes in rule.split("  ")]
    assert len(lines) == len(rows) and head.startswith(("a key", " " * (widths[0] - 5) + "a key"))
    for line, row in zip(lines, rows, strict=True):
        first, last = line[: widths[0]], line[widths[0] + 2 :]
        assert last == f"{row['b']:,}".rjust(widths[1])
        shown = {True: "yes", False: "no"}[row["a key"]] if isinstance(row["a key"], bool) else row["a key"]
        assert first.strip() == ("-" if shown is None else f"{shown:,}" if isinstance(shown, int) else shown)


def test_no_rows_are_said_and_none_has_the_word_that_is_given() -> None:
    assert terminal.table([]) == "nothing to show"
    assert terminal.table([{"a": None}], empty="unknown").endswith("unknown")


def test_a_short_number_has_the_unit_of_its_rounded_value() -> None:
    numbers = (999.9, 999_499, 999_990, 1e6, 999.6e9, 9.999e14, 1.5e18)
    assert [terminal._short(number) for number in numbers] == ["999.9", "999K", "1M", "1M", "1T", "1e+15", "1.5e+18"]


def test_every_list_has_rows_of_equal_keys() -> None:
    for name, rows in ((name, make()) for name, make in LISTS.items()):
        assert rows and len({tuple(row) for row in rows}) == 1, name
        assert len({str(row[next(iter(row))]) for row in rows}) == len(rows), name


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
    [[small, large]] = tables(study_text(job, [ONE], [[SMALL, LARGE]]))
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
    [[row]] = tables(study_text(job, [ONE], [[SMALL]]))
    assert row["gap"] == "none"
    assert {row[key] for key in ("gap, auto", "mean seeds", "mean time", "mean seeds if equal")} == {"-"}
    [[zero]] = tables(study_text(job, [ONE], [[replace(LARGE, gap=0.0)]]))
    assert zero["gap"] == "0.00"


@pytest.mark.parametrize("name", ["added_gap", "mean_seeds", "mean_seconds"])
def test_a_design_that_lacks_one_number_of_adding_seeds_shows_none_of_them(job: Job, name: str) -> None:
    [[row]] = tables(study_text(job, [ONE], [[replace(LARGE, **{name: None})]]))
    assert row["gap, auto"] == row["mean time"] == "-" and row["gap"] == "1.24"


def test_each_measure_has_its_noise_and_its_table(job: Job) -> None:
    text = study_text(job, [ONE, TWO], [[SMALL], [SMALL, LARGE]])
    assert [len(rows) for rows in tables(text)] == [1, 2]
    assert text.index(str(ONE)) < text.index(str(TWO)) and "größe" in text
    assert all(number in str(TWO) for number in ("1.23", "0.74", "3.55", "4 df"))
    with pytest.raises(ValueError):
        study_text(job, [ONE, TWO], [[SMALL]])


def test_arms_and_declared_comparisons_come_first(job: Job, tmp_path: Path) -> None:
    first = study_text(job, [ONE], [[SMALL]]).splitlines()[0]
    assert first.startswith("2 ") and "rtd against bert-mlm" in first and "electra-15" not in first
    path = tmp_path / "mine.py"
    path.write_text('QUESTION = "?"\nAXES = {"objective": ("rtd", "bert-mlm", "electra-15")}\n')
    plain = study_text(job_of(experiment.load(str(path)), BASE, 1, []), [ONE], [[SMALL]]).splitlines()[0]
    assert plain.startswith("3 ") and "against" not in plain and not plain.rstrip().endswith(":")


def test_flops_are_counted_by_the_convention_of_the_budget(job: Job) -> None:
    paper = replace(job, base=resolve("nano", {"budget.flops": 1e11, "budget.convention": "paper"}))
    [[row]] = tables(study_text(paper, [ONE], [[SMALL]]))
    assert "FLOPs (paper)" in row


def test_the_noise_for_which_the_gaps_hold_is_told(job: Job) -> None:
    assert "with a probability of 0.8 if all arms have the same noise;" in study_text(job, [ONE], [[SMALL]])


def test_what_another_processor_moves_is_told_for_the_fewest_and_the_most_seeds(job: Job) -> None:
    few, many = replace(SMALL, moved=0.6322), replace(LARGE, moved=0.3162)
    text = study_text(job, [ONE], [[few, replace(few, seeds=4, moved=0.4711), many]])
    (line,) = [line for line in text.splitlines() if "arithmetic" in line]
    assert "about 0.63 points with 2 seeds and 0.32 points with 8 seeds (" in line and "0.47" not in text
    assert "arithmetic" not in study_text(job, [ONE], [[SMALL, LARGE]])
    assert "about 0.63 points with 2 seeds (" in study_text(job, [ONE], [[few]])
