"""Which cheap measures stand for which expensive ones: rank correlations over the encoders of one or more reports.

    python experiments/benchmarks/agreement.py OUT REPORT [REPORT ...] --expensive mean=SST-2,STS-B,CoLA,MRPC,RTE

A report is a folder that `workbench report` wrote, or the encoders.csv of an earlier table, whose rows are taken over.
OUT gets encoders.csv, a row for each encoder with all its measures; agreement.csv, a row for each pair of a measure and
an expensive one; and agreement.svg. --expensive names the mean of some tasks, and may be given several times, as for
texts in two languages. A loss that agrees has a negative correlation. Three questions are asked:

- `pooled`: do all encoders have the same order by both? With the interval of Bonett and Wright (2000), for independent
  encoders.
- `within`: have the budgets and seeds of one arm the same order? Mean over arms, with Student's interval over arms.
- `across`: have the arms the same order at one text, scale, budget and seed? Mean over those cells, with Student's
  interval over cells. Only this says whether a measure may choose an objective.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from known_studies import SCALE
from scipy import stats

from workbench.report.statistics.intervals import t_interval

KEYS = ["text", "scale", "arm", "budget", "seed", "flops", "kind", "run_id"]
QUESTIONS: dict[str, list[str]] = {  # columns of which a group of encoders has equal values
    "pooled": [], "within": ["text", "scale", "arm"], "across": ["text", "scale", "budget", "seed"],
}  # fmt: skip
FEWEST = {"pooled": 5, "within": 3, "across": 3}  # encoders for one correlation
LABELS = {"pooled": "all encoders", "within": "within an arm", "across": "across arms, equal compute"}


def encoders_of(folder: Path, expensive: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Return a row for each finished encoder of a report or a table: its keys, and each measure's mean over its seeds.

    `expensive` are tasks by the name of their mean, which an encoder has that has all of them. Of minimal pairs there
    are columns for other scorers than an objective's own, as in `pairs:replace [generator-pll]`; `[electric]` is the
    own scorer where an objective has no `electric`.
    """
    if folder.suffix == ".csv":
        return pd.read_csv(folder)
    runs, scores = pd.read_csv(folder / "runs.csv"), pd.read_csv(folder / "scores.csv")
    runs = runs[runs["state"].eq("done") | runs["kind"].eq("untrained")]
    scale = runs["run_id"].str.extract(SCALE, expand=False)
    keys = runs.assign(text=runs["data_fingerprint"], scale=scale, flops=runs["flops_matmul"])[KEYS]
    measures = scores.pivot_table(index="run_id", columns="task", values="value", aggfunc="mean")
    details = pd.read_csv(folder / "metrics.csv")
    readings = details[details["split"].isin(["electric", "generator-pll"]) & details["metric"].eq("accuracy")]
    for (task, scorer), values in readings.groupby(["task", "split"]):
        reading = values.set_index("run_id")["value"].reindex(measures.index)
        measures[f"{task} [{scorer}]"] = reading.fillna(measures[task]) if scorer == "electric" else reading
    measures = measures.join(last_losses(pd.read_csv(folder / "curves.csv")))
    for name, tasks in expensive.items():
        if set(tasks) <= set(measures):
            measures[name] = measures[list(tasks)].mean(axis=1, skipna=False)
    return keys.merge(measures, left_on="run_id", right_index=True)


def last_losses(curves: pd.DataFrame) -> pd.DataFrame:
    """Return the mean losses of each run's last tenth of steps: `loss`, and `masked-word loss`, in nats.

    The latter is the generator's, or of an objective without a generator its own.
    """
    curves = curves.reindex(columns=["run_id", "last_step", "rows", "loss", "mlm_loss", "generator_loss"])
    end = curves[curves["last_step"] > 0.9 * curves.groupby("run_id")["last_step"].transform("max")]
    losses = pd.DataFrame({
        "loss": end["loss"], "masked-word loss": end["generator_loss"].fillna(end["mlm_loss"]),
    })  # fmt: skip
    weights = end["rows"].groupby(end["run_id"]).sum()
    return losses.mul(end["rows"], axis=0).groupby(end["run_id"]).sum(min_count=1).div(weights, axis=0)


def rank_correlations(a: pd.Series[float], b: pd.Series[float]) -> tuple[float, float]:
    """Return Spearman's rho and Kendall's tau-b; NaN if one of the two is constant."""
    if a.nunique() < 2 or b.nunique() < 2:
        return math.nan, math.nan
    return float(stats.spearmanr(a, b).statistic), float(stats.kendalltau(a, b).statistic)


def fisher_interval(value: float, n: int, kind: str) -> tuple[float, float]:
    """Return the 95 % interval of one rank correlation over `n` encoders (Bonett and Wright 2000)."""
    if n < FEWEST["pooled"] or not abs(value) < 1:
        return math.nan, math.nan
    half = stats.norm.ppf(0.975) * (
        math.sqrt((1 + value**2 / 2) / (n - 3)) if kind == "spearman" else math.sqrt(0.437 / (n - 4))
    )
    return math.tanh(math.atanh(value) - half), math.tanh(math.atanh(value) + half)


def with_interval(name: str, values: Sequence[float], question: str, encoders: int) -> dict[str, float]:
    """Return the mean of some correlations and the ends of its 95 % interval, by the names of their columns."""
    if not values:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"), math.nan)
    mean = t_interval(values)
    if question == "pooled":
        low, high = fisher_interval(mean.mean, encoders, name)
    elif mean.low is None or mean.high is None:
        low = high = math.nan
    else:
        low, high = max(mean.low, -1.0), min(mean.high, 1.0)
    return {name: mean.mean, f"{name}_low": low, f"{name}_high": high}


def agreement(encoders: pd.DataFrame, expensive: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Return a row for each measure, expensive measure and question, over the trained encoders that have both.

    `expensive` are tasks by the name of their mean.
    """
    trained = encoders[encoders["kind"] == "pre-training"]
    measures, rows = [name for name in encoders.columns if name not in KEYS], []
    targets = [(name, each) for name, tasks in expensive.items() for each in (name, *tasks) if each in measures]
    for mean, target in targets:
        for measure in measures:
            if measure == target or (mean in (measure, target) and {measure, target} <= {mean, *expensive[mean]}):
                continue  # a mean agrees with its own parts
            both = trained[[*KEYS, measure, target]].dropna(subset=[measure, target])
            if len(both) < FEWEST["pooled"]:
                continue
            for question, keys in QUESTIONS.items():
                groups = [group for _, group in both.groupby(keys)] if keys else [both]
                groups = [group for group in groups if len(group) >= FEWEST[question]]
                pairs = [rank_correlations(group[measure], group[target]) for group in groups]
                known = [pair for pair in pairs if not math.isnan(pair[0])]
                rows.append({
                    "measure": measure, "stands_for": target, "question": question,
                    "encoders": sum(map(len, groups)), "groups": len(known),
                    **with_interval("spearman", [rho for rho, _ in known], question, len(both)),
                    **with_interval("kendall", [tau for _, tau in known], question, len(both)),
                })  # fmt: skip
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame, target: str, out: Path) -> None:
    """Draw Spearman's rho of each measure with `target`, pooled, within and across arms, with intervals."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = table[table["stands_for"] == target]
    order = rows[rows["question"] == "across"].sort_values("spearman")["measure"].tolist()
    figure, axes = plt.subplots(figsize=(7, 1 + 0.42 * len(order)), layout="constrained")
    for offset, (question, marker) in zip(
        (0.2, 0.0, -0.2), (("pooled", "s"), ("within", "^"), ("across", "o")), strict=True
    ):
        part = rows[rows["question"] == question].set_index("measure").reindex(order)
        low, high = part["spearman"] - part["spearman_low"], part["spearman_high"] - part["spearman"]
        axes.errorbar(
            part["spearman"], np.arange(len(order)) + offset, xerr=[low.fillna(0), high.fillna(0)], fmt=marker,
            capsize=2, label=LABELS[question],
        )  # fmt: skip
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.set(yticks=range(len(order)), yticklabels=order, xlim=(-1.05, 1.05), xlabel=f"Spearman's rho with {target}")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)
    figure.savefig(out)
    plt.close(figure)


def main(words: Sequence[str] | None = None) -> None:
    """Write the three files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--expensive", required=True, action="append", metavar="NAME=TASK,TASK", help="tasks of a mean")
    given = parser.parse_args(words)
    expensive = {name: tasks.split(",") for name, _, tasks in (each.partition("=") for each in given.expensive)}
    encoders = pd.concat([encoders_of(folder, expensive) for folder in given.reports], ignore_index=True)
    encoders = encoders.round(4)  # as the table has them: what differs by rounding alone is a tie
    table = agreement(encoders, expensive)
    given.out.mkdir(parents=True, exist_ok=True)
    for name, sheet in (("encoders", encoders.sort_values([*KEYS])), ("agreement", table)):
        sheet.round(4).to_csv(given.out / f"{name}.csv", index=False, lineterminator="\n")
    draw(table, next(iter(expensive)), given.out / "agreement.svg")


if __name__ == "__main__":
    main()
