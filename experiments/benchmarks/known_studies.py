"""Table of what kept studies could tell: for each measure its noise, and the objectives above two baselines.

    python experiments/benchmarks/known_studies.py reports/kept workbench/execution/known_studies.csv

`workbench plan-study` reads the table. An objective is above its untrained encoders if the 95 % interval of the
difference, paired by seed, is above zero, and above a bag of words if the 95 % interval of its mean is above that
score.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pandas as pd

SCALE = re.compile(r"-(nano|micro|mini|small|base|large)-s\d+-")


def rows_of(folder: Path) -> pd.DataFrame:
    """Return a row for each measure at the largest budget of a kept report whose arms are objectives."""
    settings = json.loads((folder / "report.json").read_text())["settings"]
    corpus = settings["same"]["data.corpus"]
    runs, tasks = pd.read_csv(folder / "runs.csv"), pd.read_csv(folder / "tasks.csv")
    noise, baselines = pd.read_csv(folder / "noise.csv"), pd.read_csv(folder / "baselines.csv")
    trained = runs[(runs["kind"] == "pre-training") & (runs["state"] == "done")]
    most = trained.sort_values("flops_matmul").to_dict("records")[-1]
    words = baselines[baselines["baseline"].isin(("bag-of-words", "word-lookup"))].set_index("task")["value"]
    scale = SCALE.search(str(most["run_id"]))
    rows = []
    for task, scores in tasks[tasks["budget"].eq(most["budget"])].groupby("task", sort=False):
        arms = scores[scores["gain"].notna()]
        suite = arms["suite"].iloc[0]
        named = noise[noise["suite"].eq(suite) & noise["budget"].eq(most["budget"])].to_dict("records")
        [spread] = [row for name in (task, "mean") for row in named if row["task"] == name][:1]
        rows.append({
            "study": folder.name, "scale": scale[1] if scale else "", "text": Path(str(corpus)).name,
            "flops": f"{most['flops_matmul']:.2g}", "task": task, "metric": arms["metric"].iloc[0],
            "seeds": int(spread["seeds"]), "sd": round(spread["sd_paired"], 3), "df": int(spread["df"]),
            "best": round(arms["mean"].max(), 2), "bag_of_words": round(words.get(task, float("nan")), 2),
            "objectives": " ".join(arms["arm"]),
            "above_untrained": " ".join(arms["arm"][arms["gain_low"] > 0]),
            "above_bag_of_words": " ".join(arms["arm"][arms["low"] > words.get(task, float("inf"))]),
        })  # fmt: skip
    return pd.DataFrame(rows)


def main(kept: Path, out: Path) -> None:
    """Write the table of all studies of objectives that have at least three seeds."""
    folders = [path.parent for path in sorted(kept.glob("*/report.json"))]
    table = pd.concat([rows_of(folder) for folder in folders if _of_objectives(folder)])
    table.sort_values(["study", "task"]).to_csv(out, index=False, lineterminator="\n")


def _of_objectives(folder: Path) -> bool:
    """Return whether the arms of a report are objectives, with at least three seeds of each."""
    return folder.name.startswith(("ablation", "bert-and-rtd", "tuned")) and folder.name not in (
        "ablation-mini-electric",  # encoders of ablation-mini-h100 by another scorer
        "ablation-mini-linear",  # two seeds: intervals of one degree of freedom
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
