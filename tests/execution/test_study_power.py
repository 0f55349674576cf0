"""`workbench plan-study`: the gap that a number of seeds shows, what it costs, and where the noise comes from."""

from __future__ import annotations

import csv
import math
import subprocess
import sys
from pathlib import Path

import made
import pytest

from workbench.errors import InputError
from workbench.execution import study_power
from workbench.execution.study import job_of
from workbench.report.comparison import leaderboards
from workbench.report.load import study_tables
from workbench.report.statistics.paired_comparison import moved_by_arithmetic
from workbench.report.statistics.power import needed_seeds, smallest_gap
from workbench.spec import experiment
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.store.run_store import RunStore

BASE = resolve("nano", {"budget.flops": 1e11})


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_power, "training_seconds", lambda runs, host: [10.0 for _ in runs])


def test_each_row_says_what_the_rule_shows_and_what_all_runs_cost(quick: None) -> None:
    job = job_of(experiment.load("ablation"), BASE, 1, ["rtd", "bert-mlm", "electra-15"])
    rows = study_power.designs(job, 2.0, Host(), 1, (2, 4, 8))
    flops = sum(plan.flops["matmul"] for _, plan in job.priced[0])
    arms, family = study_power.arms_and_family(job)
    assert arms == 3 and family == ((0, 1), (2, 1), (0, 2))
    for row in rows:
        assert row.gap == smallest_gap(2.0, 3, row.seeds, family)
        assert row.flops == pytest.approx(flops * row.seeds) and row.seconds == 30.0 * row.seeds
        assert row.moved == moved_by_arithmetic(2.0, row.seeds)
    assert rows[0].gap is None and rows[0].added_gap is None  # two degrees of freedom
    assert rows[1].added_gap == rows[1].gap and rows[1].mean_seeds == 4  # one look
    last = rows[2]
    assert last.gap is not None and last.added_gap is not None and last.mean_seeds is not None
    assert last.gap < last.added_gap < 1.3 * last.gap and 4 < last.mean_seeds < 8
    assert last.mean_seconds == pytest.approx(30 * last.mean_seeds)
    assert needed_seeds(last.gap, 2.0, 3, family) == 8
    assert study_power.designs(job, 2.0, Host(), 2, (4,))[0].seconds == 60.0


def test_contrasts_of_several_budgets_are_planned_for_the_largest(quick: None, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        'QUESTION = "?"\nAXES = {"budget.share": (0.5, 1.0), "objective": ("rtd", "bert-mlm")}\n'
        'CONTRASTS = {"objective": [("rtd", "bert-mlm")]}\n'
    )
    job = job_of(experiment.load(str(path)), BASE, 1, [])
    assert len(job.declared) == 2 and study_power.arms_and_family(job) == (2, ((0, 1),))


def test_the_noise_is_that_of_the_report(tmp_path: Path) -> None:
    store, name = made.study(tmp_path / "runs", made.noisy(made.LEVELS), ("rtd", "bert-mlm"), seeds=5, tunings=1)
    [found] = study_power.measured(store, "ablation")
    [board] = leaderboards(study_tables.read_study(store, name, verify=False))
    noise = board.noise[board.budget][0]
    assert (found.sd, found.df, found.measure) == (noise.paired, 4, "probe score")
    assert found.low is not None and found.high is not None and found.low < found.sd < found.high
    assert found.high / found.sd == pytest.approx(math.sqrt(4 / 0.4844), rel=1e-3)  # chi-squared of 4, 2.5 %


def test_a_store_without_noise_is_refused(tmp_path: Path) -> None:
    store, _ = made.study(tmp_path / "runs", made.noisy(made.LEVELS), ("rtd", "bert-mlm"), seeds=1, tunings=1)
    with pytest.raises(InputError, match="has no two arms with two seeds in common and different scores; give --sd"):
        study_power.measured(store, "ablation")
    with pytest.raises(InputError, match="holds no experiment 'weight-tying'"):
        study_power.measured(RunStore(tmp_path / "runs"), "weight-tying")


def test_a_damaged_run_gives_no_noise_and_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, _ = made.study(tmp_path / "runs", made.noisy(made.LEVELS), ("rtd", "bert-mlm"), seeds=4, tunings=1)
    run = next(run for run in store.runs() if run.run_id.startswith("rtd"))
    (run.path / "env.json").write_text("{")
    [found] = study_power.measured(store, "ablation")
    assert found.df == 2 and f"{run.path} is damaged and is left out: env.json cannot be read" in caplog.text


ROOT = Path(__file__).parents[2]


def test_kept_studies_say_what_a_measure_could_tell(quick: None) -> None:
    job = job_of(experiment.load("ablation"), resolve("micro", {"budget.flops": 6e13}), 1, [])
    kept = {one.measure: one for one in study_power.known(job)}
    with study_power.KNOWN.open(newline="") as file:
        rows = {(row["study"], row["task"]): row for row in csv.DictReader(file)}
    family = study_power.arms_and_family(job)[1]
    for name, one in kept.items():
        # 1.4e12 is further than a factor of ten away, and 2e14 further than 4e13; two measures have fewer FLOPs alone.
        assert one.flops == {"tag:da_ddt-ud": 2e13, "pairs": 1.4e13}.get(name, 4e13)
        row = rows[one.study, name]
        gap = smallest_gap(float(row["sd"]), 5, 4, family)
        assert one.gap == gap and one.seeds_for == {
            gap: needed_seeds(gap, float(row["sd"]), 5, family) for gap in (4, 2, 1)
        }
    assert kept["MRPC"].tells == "nothing: no objective is above its untrained encoder"
    assert kept["STS-B"].tells == "little: no objective is above a bag of words"
    assert (
        kept["linear:next"].tells == "1 of 5 objectives"
    )  # all are above a bag of words, one above untrained encoders
    assert kept["pairs:replace"].tells == "5 of 5 objectives"
    longer = job_of(experiment.load("ablation"), resolve("micro", {"budget.flops": 3e14}), 1, [])
    kept = {one.measure: one for one in study_power.known(longer)}
    assert {one.study for one in kept.values()} >= {"bert-and-rtd-micro", "ablation-micro-finetuned"}
    assert kept["linear:next"].tells == "2 of 2 objectives"  # of the two that this study has
    least = job_of(experiment.load("ablation"), resolve("nano", {"budget.flops": 1e11}), 1, [])
    assert study_power.known(least) == []


@pytest.mark.skipif(not (ROOT / "reports" / "kept").is_dir(), reason="there are no kept reports here")
def test_the_table_of_kept_studies_is_the_one_of_the_kept_reports(tmp_path: Path) -> None:
    script = ROOT / "experiments" / "benchmarks" / "known_studies.py"
    command = [sys.executable, str(script), str(ROOT / "reports" / "kept"), str(tmp_path / "made.csv")]
    subprocess.run(command, check=True)
    assert (tmp_path / "made.csv").read_bytes() == study_power.KNOWN.read_bytes()
