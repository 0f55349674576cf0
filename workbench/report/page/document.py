"""The report page: one HTML file with answers, figures and tables, which loads nothing from elsewhere."""

from __future__ import annotations

import csv
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.report import csv_tables
from workbench.report.comparison.boards import Board, boards
from workbench.report.comparison.reached import Reached, reached
from workbench.report.comparison.spending import counted, question
from workbench.report.comparison.verdict import Verdict, verdicts
from workbench.report.figures import selection, svg, tuned
from workbench.report.figures.panels import Training
from workbench.report.figures.selection import Figure
from workbench.report.load import frames
from workbench.report.load.frames import Frames
from workbench.report.load.naming import spoken
from workbench.report.load.run_files import FINISHED
from workbench.report.page import experiment_facts, rendering
from workbench.report.page.phrases import several
from workbench.report.page.section import Section, section
from workbench.report.page.warnings import checks
from workbench.report.report_options import ReportOptions
from workbench.report.statistics.noise import LEAST_DF
from workbench.store.atomic import dumps, sweep_old, write_together

if TYPE_CHECKING:
    from workbench.store.run_store import RunStore

log = logging.getLogger("workbench")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Page:
    """The content of the page: a section for each measure, and the parts that concern the whole experiment."""

    record: Mapping[str, Any]
    question: str
    verdicts: Sequence[Verdict]  # of each measure; the first one decides
    axis: str  # in words, such as generator width
    arms: str  # the noun for all arms, such as objectives
    prefix: str  # the beginning of the names of the CSV files beside the page
    order: bool  # whether tables show the almost stochastic order
    sections: tuple[Section, ...]
    no_scores: str  # the answer if there is no section
    facts: Sequence[tuple[str, str]]
    warnings: Sequence[str]
    keys: Mapping[str, str]  # arm -> its mark, as SVG
    tuning: Sequence[Row]
    tuning_figure: Figure | None
    reached: Sequence[Reached]
    training: Training
    time_note: str
    scale_note: str
    settings: Mapping[str, Sequence[Any]]
    environment: Mapping[str, Sequence[Any]]
    states: tuple[Sequence[int], Sequence[tuple[str, str, Mapping[int, str]]]]  # seeds; arm, budget, state by seed
    runs: Sequence[Row]
    counted: str  # the convention under which the table of runs shows FLOPs
    rows: Mapping[str, int]  # run id -> its row in the table of runs
    least_df: int = LEAST_DF

    @property
    def absent(self) -> list[Row]:
        """Return the runs that are in no average because their training is not finished."""
        return [run for run in self.runs if run["state"] not in FINISHED]

    @property
    def contents(self) -> list[tuple[str, str]]:
        """Return the fragment (of a link) and the title of each part of the page."""
        parts = [part for one in self.sections for part in one.contents(len(self.sections) > 1)]
        parts += [("tuning", "Tuning")] if self.tuning else []
        return [*parts, ("training", "Training"), ("setup", "What was run"), ("runs", "Every run")]


def write(
    store: RunStore, record_name: str, out: Path, missing: Mapping[str, str], options: ReportOptions,
    loaded: Frames | None = None,
) -> Path:  # fmt: skip
    """Write the page and its CSV files; the parameters and errors are those of `workbench.report.write`."""
    if loaded is None:
        loaded = frames.read_and_warn(store, record_name, options.verify)
    results = boards(loaded, options.order)
    page = out if out.suffix == ".html" else out / "index.html"
    prefix = "" if page.name == "index.html" else f"{page.stem}-"
    page.parent.mkdir(parents=True, exist_ok=True)
    sweep_old(page.parent)
    _warn_of_replaced(page.parent / f"{prefix}runs.csv", loaded, store)
    content = page_of(loaded, results, missing, options, prefix)
    tables = csv_tables.sheets(loaded, results, content.verdicts)
    texts = {name: csv_tables.text(sheet) for name, sheet in tables.items()}
    texts["verdict.json"] = f"{dumps(content.verdicts[0].to_json() if content.verdicts else {})}\n"
    html = rendering.html("report.html.j2", page=content)
    if results:
        texts["compute.svg"] = picture(loaded, results[0])
    files = {page.parent / f"{prefix}{name}": text for name, text in texts.items()} | {
        page: html
    }  # the page is last: after a kill it is missing, not old
    write_together({path: text.encode("utf-8", "replace") for path, text in files.items()})
    return page


def _warn_of_replaced(table: Path, loaded: Frames, store: RunStore) -> None:
    """Log a warning if an existing report lists runs that this one does not, as a report on another store may."""
    before: set[Any] = set()
    # Nothing is read if there is no table, or if it is not one of a report.
    with suppress(OSError, ValueError, csv.Error), table.open(newline="", encoding="utf-8") as file:
        before = {row.get("run_id") for row in csv.DictReader(file)} - {None}
    if before - {run["run_id"] for run in loaded.rows("runs")}:
        log.warning(
            "the report in %s has runs that are not in %s, and is replaced by this one; give another folder with "
            "--out to keep both", table.parent, store.root,
        )  # fmt: skip


def picture(loaded: Frames, board: Board) -> str:
    """Return the main figure of a board as the text of an SVG file."""
    return svg.standalone(selection.drawing(loaded).picture(board), rendering.template("colours.css"))


def render(
    loaded: Frames, results: list[Board], missing: Mapping[str, str], options: ReportOptions, prefix: str = ""
) -> str:
    """Return the page as HTML. `prefix` is the beginning of the names of the CSV files that it links to."""
    return rendering.html("report.html.j2", page=page_of(loaded, results, missing, options, prefix))


def page_of(
    loaded: Frames, results: list[Board], missing: Mapping[str, str], options: ReportOptions, prefix: str
) -> Page:
    """Return the content of the page on an experiment."""
    drawing, found = selection.drawing(loaded), verdicts(results, loaded)
    return Page(
        record=loaded.record,
        verdicts=found,
        question=question(loaded),
        axis=spoken(loaded.axis),
        arms=several(loaded.axis),
        prefix=prefix,
        order=options.order,
        sections=tuple(section(place, board, loaded, drawing, options, found) for place, board in enumerate(results)),
        no_scores=experiment_facts.no_scores(loaded),
        facts=experiment_facts.facts(loaded, results),
        warnings=checks.warnings(loaded, results, missing),
        keys={arm: look.swatch() for arm, look in drawing.looks.items()},
        tuning=tuned.rows(loaded),
        tuning_figure=drawing.tuning(),
        reached=reached(loaded),
        training=drawing.training(results),
        time_note=experiment_facts.time_note(loaded),
        scale_note=experiment_facts.scale_note(loaded),
        settings=experiment_facts.settings(loaded),
        environment=experiment_facts.environments(loaded),
        states=checks.cells(loaded),
        runs=loaded.rows("runs"),
        counted=counted(loaded),
        rows=drawing.rows,
    )
