"""Leaderboards: averages, declared comparisons, intervals for new test items, and scores along training."""

from __future__ import annotations

import random
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import made
import numpy as np
import pandas as pd
import parsed
import pytest
from boards import ELECTRA, board_with_points, contrast, declare, declared_study
from made import SHARES, overtaking, store_of

from workbench.report import data_files, recommendation, write
from workbench.report.comparison import leaderboard, leaderboards, points_by_budget
from workbench.report.load import study_tables
from workbench.report.load.study_tables import Frames, PublishedRun
from workbench.report.page import warnings
from workbench.report.page.rendering import on_new_items
from workbench.report.results import Leaderboard
from workbench.report.statistics.intervals import t_quantile
from workbench.report.statistics.paired_comparison import pairwise
from workbench.report.statistics.power import family_of, smallest_gap
from workbench.report.verdict import verdict_of
from workbench.spec.parts import Budget
from workbench.store import manifest, validation
from workbench.store.atomic import sealed
from workbench.store.run_store import RunStore


def test_published_models_have_the_same_statistic(tmp_path: Path) -> None:
    measured = []
    for statistic in ("mean", "median"):
        found = study_tables.read_study(*made.study(tmp_path / statistic, lambda *_: 50.0, ("rtd",), tasks=("CoLA",),
                                   record={"tasks": {"names": ["glue"], "statistic": statistic}}))  # fmt: skip
        model = PublishedRun(
            "p", "someone/model", 1e18, "its card", {"CoLA": {0: 1.0, 1: 2.0, 2: 9.0}}, {"CoLA": "glue"}
        )
        (leaderboard,) = leaderboards(replace(found, published=(model,)))
        measured.append(leaderboard.measured[0].score)
    assert measured == [4.0, 2.0]


def levels(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
    """Return a score that tells arm, budget, task, seed and fine-tuning seed apart."""
    number = {"untrained": 0, "rtd": 10, "bert-mlm": 5}[arm]
    return 50 + number + steps / 60 + list(made.PROBES).index(task) + seed**2 / 2 + tuning**2 / 10


def made_board(frames: Frames) -> Leaderboard:
    found = leaderboard(frames, "probes")
    assert found is not None
    return found


def test_each_arm_is_held_against_the_untrained_encoder_of_its_seed() -> None:
    frames = made.in_memory(levels, ("rtd",), 3, 1)
    (cell,) = made_board(frames).cells
    assert cell.gain is not None and cell.gain.estimate.mean == pytest.approx(11.0)  # seeds cancel
    assert cell.gain.estimate.n == 3
    other = {run_id: values | {"encoder.hidden": 32 if run_id == "rtd-60-s1" else 64}
             for run_id, values in frames.settings.items()}  # fmt: skip
    (cell,) = made_board(replace(frames, settings=other)).cells
    assert cell.gain is not None and cell.gain.estimate.n == 2  # an encoder of another size is no start of it


def test_a_run_that_lacks_a_task_is_named_and_in_no_mean() -> None:
    frames = made.in_memory(levels, ("rtd", "bert-mlm"), 2, 2)
    lacks = (frames.scores["run_id"] == "rtd-60-s1") & (frames.scores["task"] == "order")
    found = made_board(replace(frames, scores=frames.scores[~lacks]))
    assert found.missing == {"rtd-60-s1": ("order",)}
    assert {cell.arm: sorted(cell.scores) for cell in found.cells} == {"rtd": [0], "bert-mlm": [0, 1]}
    assert "rtd-60-s1" not in found.run_scores
    none = replace(frames, scores=frames.scores[frames.scores["run_id"].str.startswith("untrained")])
    assert leaderboard(none, "probes") is None and leaderboards(none) == []


def test_a_baseline_has_a_mean_where_every_counted_task_has_it() -> None:
    frames = made.in_memory(levels, ("rtd",), 2, 1)
    values = [
        ("order", "majority", 40.0), ("order", "majority", 40.0), ("next", "bag", 1.0), ("next", "bag", float("nan")),
    ]  # fmt: skip
    values += [(task, "chance", 10.0 * number) for number, task in enumerate(made.PROBES)]
    rows = [{"run_id": "", "task": task, "baseline": name, "value": value} for task, name, value in values]
    found = made_board(replace(frames, baselines=type(frames.baselines)(rows)))
    assert found.baselines["majority"] == {"order": 40.0} and found.baselines["bag"] == {"next": 1.0}
    assert found.baseline("majority") is None and found.baseline("absent") is None
    assert found.baseline("chance") == pytest.approx(15.0)


def test_correction_runs_over_the_declared_comparisons_alone() -> None:
    found, _ = declared_study(made.LEVELS, declare(ELECTRA))
    scores = {cell.arm: cell.scores for cell in found.cells}
    alone = pairwise(scores, family=[("rtd", "bert-mlm"), ("rtd", "electra-15")])
    every = pairwise(scores)
    pairs = {(pair.a, pair.b): pair.compared for pair in found.pairs[found.budget]}
    assert len(pairs) == 10 and {pair for pair, c in pairs.items() if c.declared} == set(ELECTRA)
    for pair in ELECTRA:
        assert pairs[pair] == alone[pair] and pairs[pair].adjusted < every[pair].adjusted
    for pair in pairs.keys() - set(ELECTRA):
        assert pairs[pair].adjusted == every[pair].adjusted and not pairs[pair].claimed


def test_pairs_that_were_not_declared_are_never_ahead() -> None:
    """All-tokens MLM is four points above BERT MLM, but this comparison was not declared."""
    found, frames = declared_study(made.LEVELS, declare([("rtd", "electra-15")]))
    said = {(row["a"], row["b"]): row["verdict"] for row in data_files.pair_rows(found)}
    assert said.pop(("rtd", "electra-15")) == "ahead" and set(said.values()) == {"exploratory"}
    whole, _ = declared_study(made.LEVELS, [])
    claimed = [row["a"] for row in data_files.pair_rows(whole) if row["verdict"] == "ahead"]
    assert "all-tokens-mlm" in claimed
    taken = recommendation.advise(found, frames, Budget(steps=60))
    assert "no comparison that was declared beforehand puts one of rtd, all-tokens-mlm" in taken


def test_a_comparison_declared_when_scores_were_there_does_not_narrow_the_correction() -> None:
    found, frames = declared_study(made.LEVELS, declare(ELECTRA, seen=2))
    whole, _ = declared_study(made.LEVELS, [])
    assert found.pairs == whole.pairs and not found.families
    [said] = warnings.declared_late(frames)
    assert said in warnings.cautions(frames, [found], {})
    said = said.reason
    assert "rtd against bert-mlm (2) and rtd against electra-15 (2)" in said and "covers all pairs" in said
    mixed, frames = declared_study(made.LEVELS, [*declare(ELECTRA[:1]), *declare(ELECTRA[1:], seen=1)])
    assert mixed.family.pairs == ELECTRA[:1] and "exploratory" in warnings.declared_late(frames)[0].reason


def test_a_late_comparison_of_a_report_that_does_not_name_its_arms_is_warned_of() -> None:
    _, frames = declared_study(made.LEVELS, declare(ELECTRA, seen=2))
    for row in frames.record["contrasts"]:
        row.pop("a"), row.pop("b")
    assert "unknown against unknown (2)" in warnings.declared_late(frames)[0].reason


def test_runs_that_are_missing_leave_a_contrast_out() -> None:
    found, _ = declared_study({"rtd": 70.0, "bert-mlm": 65.0, "untrained": 60.0}, declare(ELECTRA))
    assert found.family.pairs == ELECTRA[:1]


def test_the_smallest_gap_is_that_of_the_declared_comparisons() -> None:
    found, _ = declared_study(made.LEVELS, declare(ELECTRA))
    noise = found.noise[found.budget][0]
    family = family_of([cell.arm for cell in found.cells], ELECTRA)
    assert noise.gap == smallest_gap(noise.paired or 0.0, 5, 5, family)


def test_the_page_and_its_tables_name_what_was_declared(tmp_path: Path) -> None:
    levels = {"rtd": 75.0, "bert-mlm": 65.0, "electra-15": 55.0, "untrained": 50.0}
    store, name = made.study(tmp_path / "runs", made.noisy(levels), ("rtd", "bert-mlm", "electra-15"), seeds=4)
    ids = {a: [made.spec_of(a, s, {"steps": 60}).name for s in range(4)] for a in levels if a != "untrained"}
    row = contrast("rtd", "bert-mlm", 0, label="all of <ELECTRA>") | {"runs_a": ids["rtd"], "runs_b": ids["bert-mlm"]}
    first = store.experiment(name)
    store.extend_experiment(replace(first, contrasts=[row]))
    text = " ".join(parsed.page(write(store, name, tmp_path / "out")).find("body")[0].text.split())
    assert "all of <ELECTRA>" in text and "electra-15 is ahead" not in text and "bert-mlm is ahead" not in text
    rows = parsed.sheet(tmp_path / "out" / "pairs.csv")
    assert [(r["a"], r["b"], r["verdict"], r["declared"], r["contrast"]) for r in rows] == [
        ("rtd", "bert-mlm", "ahead", "yes", "all of <ELECTRA>"),
        ("rtd", "electra-15", "exploratory", "no", ""),
        ("bert-mlm", "electra-15", "exploratory", "no", ""),
    ]


RIGHT = {"rtd": 0.75, "bert-mlm": 0.6, "untrained": 0.5}


def study_with_items(draw: random.Random, items: int = 300, seeds: int = 5, tasks: Sequence[str] = ("t",)) -> Frames:
    """Arms that are right on items of a difficulty of their own, in all seeds alike, with noise of each seed."""
    frames = made.in_memory(lambda *_: 0.0, ("rtd", "bert-mlm"), seeds, tunings=1)
    signs: dict[str, dict[str, list[str]]] = {}
    rows: list[dict[str, Any]] = []
    level = {arm: {t: [draw.gauss(0, 0.3) for _ in range(items)] for t in tasks} for arm in RIGHT}
    for run in frames.rows("runs"):
        for task in tasks:
            shift = draw.gauss(0, 0.03)
            right = [draw.random() < RIGHT[run["arm"]] + shift + hard for hard in level[run["arm"]][task]]
            signs.setdefault(run["run_id"], {})[task] = ["".join("-+"[one] for one in right)]
            score = 100 * sum(right) / items
            rows.append({"run_id": run["run_id"], "suite": "linear", "task": task, "metric": "accuracy", "seed": 0,
                         "value": score, "test_rows": items})  # fmt: skip
    return replace(frames, scores=pd.DataFrame(rows), items=signs)


def board_with_items(frames: Frames) -> Leaderboard:
    found = leaderboard(frames, "linear")
    assert found is not None
    return found


def test_the_variance_is_that_of_seeds_and_of_a_bootstrap_over_items() -> None:
    """The closed form agrees with items drawn again, the same ones for both arms and all seeds."""
    frames = study_with_items(random.Random(1), tasks=("t", "u"))
    found = board_with_items(frames)
    (pair,) = found.pairs[found.budget]
    (one,) = found.items[found.budget].values()
    e, random_items = pair.compared.estimate, np.random.default_rng(0)
    points = {
        (arm, task): np.mean(
            [[100.0 * (sign == "+") for sign in frames.items[f"{arm}-60-s{s}"][task][0]] for s in range(5)], axis=0
        )
        for arm in ("rtd", "bert-mlm") for task in ("t", "u")
    }  # fmt: skip
    again = np.zeros(4000)
    for task in ("t", "u"):
        gaps = points["rtd", task] - points["bert-mlm", task]
        again += gaps[random_items.integers(0, 300, (4000, 300))].mean(axis=1) / 2
    assert e.half is not None and e.df is not None
    half = np.hypot(e.half, t_quantile(0.95, e.df + 1) * again.std())
    assert one.items == 600 and (one.high - one.low) / 2 == pytest.approx(half, rel=0.03)
    assert (one.high + one.low) / 2 == pytest.approx(e.mean) and one.high - one.low > 2 * e.half
    (row,) = data_files.pair_rows(found)
    assert (row["items"], row["low_items"], row["high_items"]) == (600, one.low, one.high)
    verdict = verdict_of(found, "objective")
    assert (verdict.items, verdict.low_items, verdict.high_items) == (600, one.low, one.high)
    words = f"With the 600 test items drawn again as well, the difference of rtd and bert-mlm is {e.mean:.1f}"
    assert words in on_new_items(found)


def test_it_covers_the_difference_on_other_items_where_the_interval_over_seeds_does_not() -> None:
    narrow = wide = 0
    for number in range(80):
        found = board_with_items(study_with_items(random.Random(number), items=100, seeds=4))
        (pair,) = found.pairs[found.budget]
        (one,) = found.items[found.budget].values()
        low, high = pair.compared.estimate.low, pair.compared.estimate.high
        assert low is not None and high is not None
        expected = (pair.a == "rtd" and 15.0) or -15.0  # in expectation over items and seeds, before clipping
        narrow += low <= expected <= high
        wide += one.low <= expected <= one.high
    assert wide >= 72 > narrow


@pytest.mark.parametrize("lost", ["run", "length", "mean"])
def test_without_the_items_of_a_run_there_is_no_such_interval(lost: str) -> None:
    frames = study_with_items(random.Random(2))
    signs = {run: dict(tasks) for run, tasks in frames.items.items()}
    if lost == "run":
        del signs["rtd-60-s1"]
    else:
        (old,) = signs["rtd-60-s1"]["t"]
        signs["rtd-60-s1"]["t"] = [old + old] if lost == "length" else ["+" * len(old)]
    found = board_with_items(replace(frames, items=signs))
    (row,) = data_files.pair_rows(found)
    assert not found.items[found.budget] and "items" not in row and "drawn again" not in on_new_items(found)


def test_every_score_of_a_point_is_in_the_table_with_its_place(pointed_study: tuple[RunStore, str, Path]) -> None:
    store, _, page = pointed_study
    rows = parsed.sheet(page.parent / "points.csv")
    assert len(rows) == 2 * 4 * (len(SHARES) + 1)
    for row in rows:
        raw = validation.Contents(store.root / row["run_id"]).read(row["path"].removeprefix(f"{row['run_id']}/"))
        assert float(row["value"]) == raw["value"] and raw["task"] == row["task"] == "pairs"
        early = row["mark"] != "end"
        assert (row["before_end_of_decay"] == "yes") == early
        place = row["path"].split("/")
        assert place[1] == "points" and int(place[2]) == int(row["steps"]) if early else place[1] == "scores"
        assert float(row["flops_matmul"]) == pytest.approx(1.1e9 * int(row["steps"]))


def test_an_arm_is_a_line_of_means_with_intervals(pointed_study: tuple[RunStore, str, Path]) -> None:
    board = board_with_points(*pointed_study[:2])
    (line,) = points_by_budget(board.points, "rtd")
    assert [place.mark for place in line] == [*SHARES, "end"]
    for place in line:
        share = SHARES.get(place.mark, 1.0)
        mine = [overtaking("rtd", share, seed) for seed in range(4)]
        assert place.estimate.mean == pytest.approx(sum(mine) / 4) and place.estimate.half is not None
        assert len(place.runs) == 4


def test_runs_without_points_leave_the_others_theirs(tmp_path: Path) -> None:
    store, name = store_of(tmp_path, overtaking)
    for number, run in enumerate(store.runs()):
        if number % 4 == 1 or run.run_id.startswith("bert"):
            shutil.rmtree(run.path / "points")
            files = manifest.entries(run.path)
            (run.path / manifest.NAME).write_bytes(sealed(manifest.content(run.run_id, files)))
    write(store, name, tmp_path / "report")
    found = board_with_points(store, name).points
    assert {len(place.scores) for place in found if place.arm == "rtd"} == {3, 4}
    assert [place.mark for place in found if place.arm == "bert-mlm"] == ["end"]


def test_the_score_of_a_run_is_the_mean_over_tasks_of_means_over_fine_tunings() -> None:
    found = made_board(made.in_memory(levels, ("bert-mlm", "rtd"), 3, 3, (60, 120)))
    for arm, steps in (("rtd", 60), ("bert-mlm", 120)):
        wanted = {
            seed: statistics.fmean(levels(arm, steps, task, seed, n) for task in made.PROBES for n in range(3))
            for seed in range(3)
        }
        (cell,) = [cell for cell in found.cells if (cell.arm, cell.budget) == (arm, f"{steps} steps")]
        assert cell.scores == pytest.approx(wanted) and cell.spent["tokens"] == 4096 * steps
        assert cell.estimate.mean == pytest.approx(statistics.fmean(wanted.values()))
    assert found.budgets == ("60 steps", "120 steps") and found.budget == "120 steps"  # by compute, the largest last
    assert [cell.arm for cell in found.at("60 steps")] == ["rtd", "bert-mlm"] and found.arms == ("bert-mlm", "rtd")
    assert found.finetunings == (3,) and found.convention() == "paper" and not found.missing
