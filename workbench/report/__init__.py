"""Reports: one self-contained HTML file made from run directories, with its tables as CSV beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.report.load.study_tables import Frames
    from workbench.report.results import Leaderboard, ReportOptions, Results
    from workbench.store.run_store import RunStore


def write(
    store: RunStore, record_name: str, out: Path, missing: Mapping[str, str] | None = None,
    options: ReportOptions | None = None, loaded: Frames | None = None,
) -> Path:  # fmt: skip
    """Write the report on one experiment record: `out`/index.html (or `out` itself, if it ends in .html) and CSV files.

    `missing` maps each task that was requested but is not available to the reason. `loaded` are the tables of the
    record if they were read already. Returns the path of the page. Raises InputError if there is no such record,
    OSError if the disk fails.
    """
    from workbench.report import data_files  # pandas and matplotlib are loaded only now
    from workbench.report.page import document

    results = data_files.from_store(store, record_name, missing, options, loaded)
    document.warn_of_replaced(results, out, store)
    return document.write(results, out)


def main_figure(results: Results, board: Leaderboard) -> str:
    """Return the main figure of one measure, as the page draws it: an SVG file with its colours."""
    from workbench.report import charts, drawing
    from workbench.report.page.document import WIDE

    looks = drawing.looks(results)
    drawn = drawing.draw(charts.main(results, board, "main"), looks, *WIDE)
    return drawing.standalone(drawn, drawing.colour_rules(looks))


def verdict_beside(page: Path) -> dict[str, Any]:
    """Return the verdict that was written beside a page, as plain data; empty if it has no scores or no such file."""
    from workbench.store.atomic import read_object

    try:
        return read_object(page.parent / f"{'' if page.name == 'index.html' else f'{page.stem}-'}verdict.json")
    except FileNotFoundError:
        return {}


def verdict_line(verdict: Mapping[str, Any]) -> str:
    """Return a verdict (`results.Verdict`, as plain data) as a line, with the code names that its arms' names hide."""
    from workbench.report.formatting import short

    sentence, names = str(verdict.get("sentence") or ""), verdict.get("names")
    codes = {short(name): code for code, name in names.items()} if isinstance(names, dict) else {}
    any_name = "|".join(map(re.escape, sorted(codes, key=len, reverse=True)))  # "Adversarial RTD" before "RTD"
    found = dict.fromkeys(re.findall(rf"(?<!\w)(?:{any_name})(?!\w)", sentence))
    hidden = [name for name in found if "-".join(re.findall(r"\w+", name.lower())) != codes.get(name, name).lower()]
    known = [f"{name} is {codes[name]}" for name in hidden]
    return f"{sentence} ({', '.join(known)})" if known else sentence


def write_again(folder: Path, out: Path | None = None, options: ReportOptions | None = None) -> Path:
    """Draw a report again from its data files alone, in its own folder or in `out`. Returns the path of the page.

    Raises InputError if the folder has no data files of a report or they are damaged, OSError if the disk fails.
    """
    from workbench.report import data_files
    from workbench.report.page import document

    page, prefix = document.place_of_files(folder)
    return document.write(data_files.from_folder(page.parent, options, prefix), out or folder)


def write_paper(page: Path, folder: Path) -> Path:
    """Write what a paper takes from the report at `page` into a folder: figures, LaTeX tables and an appendix.

    Returns the path of the appendix. Raises InputError if the report has no data files, OSError if the disk fails.
    """
    from workbench.report import data_files, paper
    from workbench.report.page import document

    return paper.write(data_files.from_folder(page.parent, prefix=document.place_of_files(page)[1]), folder)


def write_plan(flops: Mapping[str, float], out: Path) -> Path:
    """Write `out`/plan.svg: published scores over compute, and the FLOPs of each planned arm (paper convention).

    Returns the path of the figure. Raises OSError if the disk fails.
    """
    from workbench.report import drawing
    from workbench.store.atomic import write_atomic

    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / "plan.svg", drawing.plan_figure(flops).encode("utf-8", "replace"))
    return out / "plan.svg"
