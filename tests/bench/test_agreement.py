"""Rank correlations between measures, recomputed by counting pairs of encoders."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

ARMS, BUDGETS, SEEDS = ("a", "b", "c", "d"), ("1e12", "2e12", "4e12"), (0, 1)


BENCHMARKS = Path(__file__).parents[2] / "experiments" / "benchmarks"


@pytest.fixture
def agreement(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import agreement

    return agreement


@pytest.fixture
def encoders() -> pd.DataFrame:
    draw = np.random.default_rng(3)
    rows = []
    for arm, budget, seed in itertools.product(ARMS, BUDGETS, SEEDS):
        quality = ARMS.index(arm) + float(budget) / 1e12
        keys = {"text": "t", "scale": "nano", "arm": arm, "budget": budget, "seed": seed, "flops": float(budget)}
        values = {"cheap": quality + draw.normal(), "A": quality, "B": 2 * quality + draw.normal()}
        rows.append({**keys, "kind": "pre-training", "run_id": f"{arm}{budget}{seed}", **values})
    untrained = {**rows[0], "kind": "untrained", "cheap": 1e9, "A": -1e9}
    table = pd.DataFrame([*rows, untrained])
    return table.assign(mean=(table["A"] + table["B"]) / 2)


def tau(a: list[float], b: list[float]) -> float:
    """Count concordant and discordant pairs; there are no ties in these values."""
    signs = [np.sign(a[i] - a[j]) * np.sign(b[i] - b[j]) for i, j in itertools.combinations(range(len(a)), 2)]
    return sum(signs) / len(signs)


def rho(a: list[float], b: list[float]) -> float:
    """Return 1 - 6 sum(d^2) / (n (n^2 - 1)), which holds without ties."""
    ranks = [[sorted(values).index(value) for value in values] for values in (a, b)]
    return 1 - 6 * sum((x - y) ** 2 for x, y in zip(*ranks, strict=True)) / (len(a) * (len(a) ** 2 - 1))


@pytest.mark.parametrize("question, keys", [("pooled", ()), ("within", ("arm",)), ("across", ("budget", "seed"))])
def test_each_question_is_answered_by_the_encoders_of_one_group(
    agreement: ModuleType, encoders: pd.DataFrame, question: str, keys: tuple[str, ...]
) -> None:
    table = agreement.agreement(encoders.drop(columns="mean"), {"mean": ["A", "B"]})
    [row] = table[
        (table["measure"] == "cheap") & (table["stands_for"] == "B") & (table["question"] == question)
    ].to_dict("records")
    trained = encoders[encoders["kind"] == "pre-training"]
    groups = [group for _, group in trained.groupby(list(keys))] if keys else [trained]
    pairs = [(group["cheap"].tolist(), group["B"].tolist()) for group in groups]
    assert row["groups"] == len(groups) and row["encoders"] == 24
    assert row["spearman"] == pytest.approx(np.mean([rho(*pair) for pair in pairs]))
    assert row["kendall"] == pytest.approx(np.mean([tau(*pair) for pair in pairs]))
    assert row["spearman_low"] < row["spearman"] < row["spearman_high"]
    both = agreement.agreement(encoders, {"mean": ["A", "B"]})
    assert "mean" not in set(both["measure"]) and {"A", "B"}.isdisjoint(both["measure"][both["stands_for"] == "mean"])
    assert set(table["stands_for"]) == {"A", "B"} and set(both["stands_for"]) == {"mean", "A", "B"}


def test_the_interval_of_pooled_correlations_covers_the_true_one(agreement: ModuleType) -> None:
    """Of 400 samples of 30 from a normal distribution with rho 0.6, about 95 % contain Spearman's value of it."""
    draw, true, inside = np.random.default_rng(0), 6 / math.pi * math.asin(0.3), 0
    for _ in range(400):
        a, noise = draw.normal(size=(2, 30))
        value = agreement.rank_correlations(pd.Series(a), pd.Series(0.6 * a + 0.8 * noise))[0]
        low, high = agreement.fisher_interval(value, 30, "spearman")
        inside += low <= true <= high
    assert 0.92 < inside / 400 < 0.98


def test_a_kept_report_gives_a_row_for_each_encoder_and_a_figure(agreement: ModuleType, tmp_path: Path) -> None:
    kept = Path(__file__).parents[2] / "reports" / "kept" / "ablation-micro-finetuned"
    if not kept.is_dir():
        pytest.skip("there are no kept reports here")
    agreement.main([str(tmp_path), str(kept), "--expensive", "mean=SST-2,STS-B,CoLA,MRPC,RTE"])
    encoders = pd.read_csv(tmp_path / "encoders.csv")
    assert (encoders["kind"] == "pre-training").sum() == 20
    runs = pd.read_csv(kept / "runs.csv").set_index("run_id")["score_glue"]
    assert encoders.set_index("run_id")["mean"].sub(runs).abs().max() < 1e-3
    assert "<svg" in (tmp_path / "agreement.svg").read_text()


def test_pairs_have_columns_for_other_scorers_and_runs_for_their_last_losses(agreement: ModuleType) -> None:
    kept = Path(__file__).parents[2] / "reports" / "kept" / "ablation-micro-danish-tagged"
    if not kept.is_dir():
        pytest.skip("there are no kept reports here")
    table = agreement.encoders_of(kept, {}).set_index("run_id")
    metrics = pd.read_csv(kept / "metrics.csv").query("task == 'pairs:replace' and metric == 'accuracy'")
    curves = pd.read_csv(kept / "curves.csv")
    for run_id, row in table[table["kind"] == "pre-training"].iterrows():
        scores = metrics[metrics["run_id"] == run_id].set_index("split")["value"].to_dict()
        assert row["pairs:replace [generator-pll]"] == pytest.approx(scores.get("generator-pll", math.nan), nan_ok=True)
        assert row["pairs:replace [electric]"] == pytest.approx(scores.get("electric", row["pairs:replace"]))
        steps = curves[curves["run_id"] == run_id].to_dict("records")
        last = [each for each in steps if each["last_step"] > 0.9 * steps[-1]["last_step"]]
        of_words = "mlm_loss" if row["arm"] == "bert-mlm" else "generator_loss"
        for name, column in (("loss", "loss"), ("masked-word loss", of_words)):
            total = sum(each[column] * each["rows"] for each in last)
            assert row[name] == pytest.approx(total / sum(each["rows"] for each in last))
    assert table[table["kind"] == "untrained"][["loss", "masked-word loss"]].isna().all(axis=None)


KEPT = BENCHMARKS.parents[1] / "reports/kept/yardstick"
EXPENSIVE = {
    "mean": ["SST-2", "STS-B", "CoLA", "MRPC", "RTE"],
    "mean of tags": ["tag:da_ddt-ud", "tag:da_ddt-ud-pos-pos"],
}


def test_the_kept_agreement_follows_from_the_kept_encoders(agreement: ModuleType) -> None:
    encoders, kept = pd.read_csv(KEPT / "encoders.csv"), pd.read_csv(KEPT / "agreement.csv")
    for name, tasks in EXPENSIVE.items():
        means = encoders[tasks].mean(axis=1, skipna=False).tolist()
        assert means == pytest.approx(encoders[name].tolist(), abs=1e-4, nan_ok=True)
    again = agreement.agreement(encoders, EXPENSIVE)
    pd.testing.assert_frame_equal(again.round(4), kept, atol=2e-4)


def test_the_page_has_the_numbers_of_the_kept_agreement() -> None:
    page = (BENCHMARKS.parents[1] / "docs/explanation/budgets.md").read_text(encoding="utf-8")
    kept, tables = pd.read_csv(KEPT / "agreement.csv"), page.split("| measure | all encoders |")[1:]
    for target, text in zip(("mean", "tag:da_ddt-ud-pos-pos"), tables, strict=True):
        table = kept[kept["stands_for"] == target].set_index(["measure", "question"])
        lines = [line for line in text.splitlines() if line.startswith("| `")]
        assert lines
        for line in lines:
            name, cells = line.split(" | ", 1)
            rows = [table.loc[(name.split("`")[1], question)] for question in ("pooled", "within", "across")]
            shown = [f"{row.spearman:.2f} ({row.spearman_low:.2f} to {row.spearman_high:.2f})" for row in rows]
            assert cells.rstrip(" |") == " | ".join(shown)
