"""Make the statistics of kept reports again, from their own CSV files, where the rules of the report have changed.

    python experiments/benchmarks/kept.py reports/kept/*/

The run folders of kept reports are gone; scores, baselines and spending are in their CSV files. Made again are the
tables of comparisons (table, pairs, tasks, noise and verdict) and, in the page, the answers, the warnings about them,
the figures of scores against compute, and the sections with these tables. Figures over the axis, training curves and
settings stay as they were written.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.report import columns, csv_tables
from workbench.report.comparison.boards import boards
from workbench.report.comparison.verdict import verdicts
from workbench.report.load.frames import POINT, RUN, SCORE, Frames, no_points
from workbench.report.page import document, rendering
from workbench.report.page.warnings import checks
from workbench.report.report_options import ReportOptions
from workbench.store.atomic import dumps, write_atomic

AXES = {"generator-size": "generator.width", "weight-tying": "tying"}  # by the beginning of a name; else the objective
SECTION = r'<section id="{}">.*?</section>'
ANSWERS = r'(?:<div class="answer">.*?</div>\n)+'
WARNINGS = r"<aside>.*?</aside>"


def read(folder: Path) -> Frames:
    """Return what the CSV files of a kept report hold of its experiment."""
    files = {name: pd.read_csv(folder / f"{name}.csv") for name in ("runs", "scores", "metrics", "baselines")}
    tables = {name: columns.as_in_frames(table) for name, table in files.items()}
    runs = with_columns(tables["runs"].astype({"arm": str}), RUN)
    baselines = tables["baselines"].query("task != 'mean'").assign(run_id="")
    text = (folder / "index.html").read_text(encoding="utf-8")
    axis = next((axis for sweep, axis in AXES.items() if folder.name.startswith(sweep)), "objective")
    record = {
        "name": _between(text, '<p class="kicker">workbench report<span>', "</span>"),
        "question": _between(text, "<h1>", "</h1>"),
        "experiment": folder.name, "axis": axis, "command": "", "tasks": {}, "text": {},
        "updated": "", "contrasts": contrasts(pd.read_csv(folder / "pairs.csv", dtype={"contrast": str})),
    }  # fmt: skip
    points = folder / "points.csv"
    return Frames(
        record, runs, with_columns(tables["scores"], SCORE), tables["metrics"], baselines,
        pd.DataFrame(columns=["run_id", "step"]), {run: {} for run in runs["run_id"]}, {}, (),
        points=with_columns(columns.as_in_frames(pd.read_csv(points)), POINT) if points.exists() else no_points(),
    )  # fmt: skip


def contrasts(pairs: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the comparisons of `pairs.csv` that were declared before the runs, as an experiment's record has them."""
    if "declared" not in pairs:
        return []
    declared = pairs[(pairs["declared"] == "yes") & (pairs["suite"] == pairs["suite"].iloc[0])]
    return [
        {"label": row["contrast"], "seen": 0, "runs_a": row["runs_a"].split(), "runs_b": row["runs_b"].split()}
        for row in declared.fillna({"contrast": ""}).to_dict("records")
    ]


def with_columns(table: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Return the table with every column of today, without values where the report's version had none."""
    return table.reindex(columns=list(dict.fromkeys([*table.columns, *names])))


def _between(text: str, before: str, after: str) -> str:
    return text.partition(before)[2].partition(after)[0]


def corrected(old: str, new: str, doubts: list[str]) -> str:
    """Return the old page with what follows from the scores taken from the new one, and the doubts added in front."""
    names = re.findall(r'<section id="((?:compute|table|conventions|tasks)-\d+)">', old)
    for pattern in (ANSWERS, *(SECTION.format(name) for name in names)):
        before, after = (re.search(pattern, text, re.DOTALL) for text in (old, new))
        assert before is not None
        old = old.replace(before[0], after[0] if after else "", 1)
    sentence = rendering.environment().from_string("{% from 'macros.html.j2' import sentence %}{{ sentence(text) }}")
    items = "".join(f"<li>{sentence.render(text=text)}</li>" for text in doubts)
    if "<aside>" not in old:
        old = old.replace("<nav ", "<aside>\n<h2>Before you rely on it</h2>\n<ul></ul>\n</aside>\n<nav ", 1)
    aside = re.search(WARNINGS, old, re.DOTALL)
    assert aside is not None
    kept = [item for item in re.findall(r"<li>.*?</li>", aside[0], re.DOTALL) if "untrained encoder" not in item]
    others = "".join(item for item in kept if item not in items)
    start, end = aside[0].index("<ul>"), aside[0].index("</ul>")
    return old.replace(aside[0], f"{aside[0][:start]}<ul>{items}{others}{aside[0][end:]}", 1)


def correct(folder: Path) -> None:
    """Write the tables and the page of one kept report again."""
    found = read(folder)
    results = boards(found)
    judged = verdicts(results, found)
    made = csv_tables.sheets(found, results, judged)
    for name in ("table.csv", "pairs.csv", "tasks.csv", "noise.csv", "verdict.csv"):
        write_atomic(folder / name, csv_tables.text(made[name]).encode())
    write_atomic(folder / "verdict.json", f"{dumps(judged[0].to_json())}\n".encode())
    doubts = [text for board in results for text in checks.from_scores(board, found.axis)]
    new = document.render(found, results, {}, ReportOptions())
    old = (folder / "index.html").read_text(encoding="utf-8")
    write_atomic(folder / "index.html", corrected(old, new, doubts).encode())
    write_atomic(folder / "compute.svg", document.picture(found, results[0]).encode())


if __name__ == "__main__":
    for word in sys.argv[1:]:
        correct(Path(word))
