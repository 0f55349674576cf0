"""The page: everything that was found, put into words and marks, as one HTML file that asks nothing of anyone."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workbench
from workbench.report import csv_tables, words
from workbench.report.comparison.boards import Board, boards
from workbench.report.comparison.reached import reached
from workbench.report.comparison.spending import question, unequal
from workbench.report.figures import scaling, selection, svg, tuned
from workbench.report.load import frames
from workbench.report.load.frames import Frames
from workbench.report.load.naming import spoken
from workbench.report.load.run_files import FINISHED
from workbench.report.options_asked import Asked
from workbench.report.page import advice, checks, crossings, decided, equal, facts, sentence_scoring
from workbench.report.page.answer import answer
from workbench.report.page.doubts import doubted
from workbench.report.page.facts import known
from workbench.report.statistics.noise import LEAST_DF
from workbench.report.statistics.per_task import every_metric
from workbench.report.statistics.resampling import TAU
from workbench.spec.published import POINTS, finding
from workbench.store.atomic import write_atomic

if TYPE_CHECKING:
    from jinja2 import Environment

    from workbench.store.run_store import RunStore

TEMPLATES = Path(__file__).parent / "templates"


def write(store: RunStore, record_name: str, out: Path, missing: Mapping[str, str], asked: Asked) -> Path:
    """See `workbench.report.write`."""
    found = frames.read(store, record_name, asked.verify)
    frames.warn_of_damage(found)
    results = boards(found, asked.order)
    page = out if out.suffix == ".html" else out / "index.html"
    prefix = "" if page.name == "index.html" else f"{page.stem}-"
    page.parent.mkdir(parents=True, exist_ok=True)
    for name, sheet in csv_tables.sheets(found, results).items():
        write_atomic(page.parent / f"{prefix}{name}", csv_tables.text(sheet).encode("utf-8", "replace"))
    html = render(found, results, missing, asked, prefix)
    for picture in selection.pictures(found, results)[:1]:
        alone = svg.alone(picture, template("colours.css"))
        write_atomic(page.parent / f"{prefix}compute.svg", alone.encode("utf-8", "replace"))
    write_atomic(page, html.encode("utf-8", "replace"))
    return page


def template(name: str) -> str:
    """The text of a file in `templates`."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def environment() -> Environment:
    """Templates with every value escaped, unknown names refused, and characters that can't be seen made visible."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: words.clean(value) if type(value) is str else value,
    )
    made.filters |= {
        "score": _score, "half": _half, "sd": lambda v: _number(v, ".2f"),
        "freedom": lambda v: _number(v, ".3g"), "pvalue": lambda v: _number(v, ".3f", 0.001),
        "power": words.power, "count": words.count, "duration": words.duration, "start": _start, "cap": words.capital,
    }  # fmt: skip
    return made


def _score(mean: float | None, half: float | None, sign: bool = False, places: int = 1) -> str:
    """A mean rounded as its interval asks."""
    if mean is None:
        return words.points(None)
    return words.points(mean, places if half is None else words.places_for(mean, half), sign)


def _half(half: float, mean: float) -> str:
    return f"{half:.{words.places_for(mean, half)}f}"


def _number(value: float | None, form: str, least: float = 0.0) -> str:
    if value is None:
        return "–"
    return f"< {least:g}" if 0 <= value < least else f"{value:{form}}"


def _start(value: object) -> str:
    """The beginning of a digest."""
    return str(value)[:12] if known(value) else ""


def render(found: Frames, results: list[Board], missing: Mapping[str, str], asked: Asked, prefix: str = "") -> str:
    """The whole page. `prefix` stands before the names of the CSV files it links to."""
    style = "\n" + template("colours.css") + template("style.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    runs = found.rows("runs")
    rows = {run["run_id"]: i for i, run in enumerate(runs)}
    drawn = selection.Drawn(found, results, rows)
    one = found.axis == "objective"
    context = {
        "style": style,
        "style_hash": f"sha256-{digest}",
        "version": workbench.__version__,
        "record": found.record,
        "question": question(found),
        "prefix": prefix,
        "axis": "objective" if one else spoken(found.axis),
        "axis_plural": "objectives" if one else f"settings of {spoken(found.axis)}",
        "arms_title": "The objectives" if one else f"The settings of {spoken(found.axis)}",
        "boards": results,
        "answers": [answer(board, found.axis) for board in results],
        "no_scores": facts.no_scores(found),
        "facts": facts.facts(found, results),
        "warnings": checks.warnings(found, results, missing),
        "contents": facts.contents(results, drawn.along, drawn.extensions, bool(tuned.trials(found))),
        "rows": rows,
        "runs": runs,
        "absent": [run for run in runs if run["state"] not in FINISHED],
        "keys": drawn.keys,
        "along": drawn.along,
        "along_title": spoken(found.axis),
        "findings": [finding(found.axis, board.arms) for board in results],
        "cells": checks.cells(found),
        "extensions": drawn.extensions,
        "extension_note": selection.EXTENSION_NOTE,
        "extension_rows": [scaling.rows(board, selection.main_axis(board)) for board in results],
        "crossings": [crossed(board) for board in results],
        "crossing_note": crossings.NOTE,
        "curved": [selection.has_curve(board) for board in results],
        "held": [equal.under_each(board, found) for board in results],
        "unequal": [{b: unequal(board, b) for b in board.budgets} for board in results],
        "zero_shot": [sentence_scoring.notes(board, found) for board in results],
        "advice": [
            advice.advise(board, found, asked.budget_under(board.convention()), board.convention()) for board in results
        ],
        "conventions": [board.convention() for board in results],
        "tuning": tuned.rows(found),
        "tuning_figures": (tuned.figure(found, selection.WIDE, "tw"), tuned.figure(found, selection.NARROW, "tn")),
        "compute": drawn.compute,
        "others": drawn.others,
        "sides": drawn.sides,
        "reached": reached(found),
        "curves": drawn.curves,
        "curves_note": drawn.curves_note,
        "bases": [{b: base(board, b) for b in board.budgets} for board in results],
        "by_task": [{(c.task, c.budget, c.arm): c for c in board.task_cells} for board in results],
        "published": POINTS if any(board.label == "GLUE" for board in results) else (),
        "metrics": [every_metric(found.rows("other"), board.at(board.budget), board.metrics) for board in results],
        "flips": [any(p.compared.flip is not None for p in board.pairs[board.budget]) for board in results],
        "orders": asked.order,
        "pairs_notes": [pairs_note(board, asked) for board in results],
        "over": over,
        "least_df": LEAST_DF,
        "verdict": csv_tables.verdict,
        "looks": [decided.look_rows(board) for board in results],
        "pair_of": lambda pair: frozenset((pair.a, pair.b)),
        "doubted": [{b: {c.arm for c in doubted(board, b)} for b in board.budgets} for board in results],
        "known": known,
        "table_note": TABLE_NOTE,
        "scale_note": facts.scale_note(found),
        "time_note": facts.time_note(found),
        "settings": facts.settings(found),
        "environment": facts.environments(found),
    }
    return environment().get_template("report.html.j2").render(context)


TABLE_NOTE = (
    "± is a 95 % Student t interval over pre-training seeds, for a mean with one degree of freedom less than seeds. "
    "Differences are paired by seed; their intervals are each on its own, the wider of what two kinds of noise give: "
    "that which all arms share, and that of the two arms alone. Their degrees of freedom are in the CSV file."
)


def crossed(board: Board) -> list[str]:
    """Return sentences on where arms change places, and by which amount of compute they have not."""
    return crossings.sentences(board, selection.main_axis(board))


def pairs_note(board: Board, asked: Asked) -> str:
    """What stands in the further columns of the table of pairs."""
    said = []
    if any(pair.compared.flip is not None for pairs in board.pairs.values() for pair in pairs):
        said.append("The permutation test flips the signs of the paired differences in every way; six seeds at least.")
    if asked.order:
        said.append(
            "Almost stochastic order: how far the first is from being better at every quantile, an upper 95 % bound, "
            f"from 0 to 1; below {TAU} it counts as better. It pairs nothing, and below five seeds its bootstrap "
            "says little."
        )
    return " ".join(said)


def base(board: Board, budget: str) -> str:
    """The arm that the others are compared with: the paper's, where it is here, else the best."""
    arms = [cell.arm for cell in board.at(budget)]
    return board.published.base if board.published and board.published.base in arms else arms[0]


def over(board: Board, budget: str, arm: str, estimate: Any) -> Any:
    """The paired difference of an arm and the base, as the macro `estimate` writes it."""
    pairs = {(pair.a, pair.b): pair.difference.estimate for pair in board.pairs[budget]}
    other = base(board, budget)
    if arm == other:
        return "–"
    if (arm, other) in pairs:
        return estimate(pairs[arm, other], True)
    found = pairs[other, arm]
    return estimate(replace(found, mean=-found.mean), True)
