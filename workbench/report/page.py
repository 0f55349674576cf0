"""The page: everything that was found, put into words and marks, as one HTML file that asks nothing of anyone."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workbench
from workbench.files import write_atomic
from workbench.published import POINTS
from workbench.report import checks, figures, frames, sheets, words
from workbench.report.answer import answer, claimed
from workbench.report.frames import Frames
from workbench.report.reading import FINISHED, flatten
from workbench.report.tables import Board, boards

if TYPE_CHECKING:
    from jinja2 import Environment

    from workbench.store import RunStore

TEMPLATES = Path(__file__).parent / "templates"
SECTIONS = (("training", "Training"), ("setup", "What was run"), ("runs", "Every run"))


def write(store: RunStore, record_name: str, out: Path, missing: Mapping[str, str]) -> Path:
    """See `workbench.report.write`."""
    found = frames.read(store, record_name)
    results = boards(found)
    page = out if out.suffix == ".html" else out / "index.html"
    prefix = "" if page.name == "index.html" else f"{page.stem}-"
    page.parent.mkdir(parents=True, exist_ok=True)
    for name, sheet in sheets.sheets(found, results).items():
        write_atomic(page.parent / f"{prefix}{name}", sheets.text(sheet).encode("utf-8", "replace"))
    html = render(found, results, missing, prefix)
    write_atomic(page, html.encode("utf-8", "replace"))
    return page


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
        "score": _score, "half": _half, "sd": lambda v: _number(v, ".2f"), "pvalue": lambda v: _number(v, ".3f", 0.001),
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


def known(value: object) -> bool:
    """Whether a cell of a table holds anything."""
    import pandas as pd

    return value is not None and value is not pd.NA and not (isinstance(value, float) and math.isnan(value))


def render(found: Frames, results: list[Board], missing: Mapping[str, str], prefix: str = "") -> str:
    """The whole page. `prefix` stands before the names of the CSV files it links to."""
    style = "\n" + (TEMPLATES / "style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    runs = found.rows("runs")
    rows = {run["run_id"]: i for i, run in enumerate(runs)}
    drawn = figures.Drawn(found, results, rows)
    one = found.axis == "objective"
    context = {
        "style": style,
        "style_hash": f"sha256-{digest}",
        "version": workbench.__version__,
        "record": found.record,
        "prefix": prefix,
        "axis": "objective" if one else found.axis,
        "axis_plural": "objectives" if one else f"settings of {found.axis}",
        "arms_title": "The objectives" if one else f"The settings of {found.axis}",
        "boards": results,
        "answers": [answer(board, found.axis) for board in results],
        "no_scores": no_scores(found),
        "facts": facts(found, results),
        "warnings": checks.warnings(found, results, missing),
        "contents": contents(found, results),
        "rows": rows,
        "runs": runs,
        "absent": [run for run in runs if run["state"] not in FINISHED],
        "keys": drawn.keys,
        "compute": drawn.compute,
        "others": drawn.others,
        "sides": drawn.sides,
        "curves": drawn.curves,
        "curves_note": drawn.curves_note,
        "bases": [{b: base(board, b) for b in board.budgets} for board in results],
        "by_task": [{(c.task, c.budget, c.arm): c for c in board.task_cells} for board in results],
        "published": POINTS if any(board.label == "GLUE" for board in results) else (),
        "over": over,
        "claimed": claimed,
        "known": known,
        "table_note": TABLE_NOTE,
        "scale_note": scale_note(found),
        "time_note": time_note(found),
        "settings": settings(found),
        "environment": environments(found),
    }
    return environment().get_template("report.html.j2").render(context)


TABLE_NOTE = (
    "± is a 95 % Student t interval over pre-training seeds; differences are paired by seed, each with an interval of "
    "its own."
)


def base(board: Board, budget: str) -> str:
    """The arm that the others are compared with: the paper's, where it is here, else the best."""
    arms = [cell.arm for cell in board.at(budget)]
    return board.published.base if board.published and board.published.base in arms else arms[0]


def over(board: Board, budget: str, arm: str, estimate: Any) -> Any:
    """The paired difference of an arm and the base, as the macro `estimate` writes it."""
    from workbench.report.statistics import paired_difference

    cells = {cell.arm: cell for cell in board.at(budget)}
    other = base(board, budget)
    if arm == other:
        return "–"
    return estimate(paired_difference(cells[arm].scores, cells[other].scores).estimate, True)


def no_scores(found: Frames) -> str:
    """What to say where nothing can be compared."""
    done = sum(run["state"] in FINISHED for run in found.rows("runs"))
    if not done:
        return "There is no answer yet: no run has finished."
    if found.scores.empty:
        return (
            f"{done} runs are trained, but none was measured on a task, so nothing can be said about which is better."
        )
    return "There is no answer yet: no trained run has a score on every task."


def contents(found: Frames, results: list[Board]) -> list[tuple[str, str]]:
    """Fragment and title of each section."""
    several = len(results) > 1
    made = []
    for i, board in enumerate(results, 1):
        of = f" ({board.label})" if several else ""
        made += [(f"compute-{i}", f"Score against compute{of}"), (f"table-{i}", f"Table{of}")]
        made += [(f"tasks-{i}", f"Task by task{of}")]
    return [*made, *SECTIONS]


def facts(found: Frames, results: list[Board]) -> list[tuple[str, str]]:
    """What a reader wants to know first."""
    runs = found.rows("runs")
    arms = [run for run in runs if run["role"] == "arm"]
    done = sum(run["state"] in FINISHED for run in runs)
    spec: Mapping[str, Any] = next((found.settings[r["run_id"]] for r in arms if found.settings[r["run_id"]]), {})
    scores = "; ".join(
        board.label if board.label.startswith("mean of") else f"{board.label} ({words.listing(list(board.tasks))})"
        for board in results
    )
    counts = [len(cell.scores) for board in results for cell in board.at(board.budget)]
    seconds = math.fsum(r["seconds"] for r in runs if known(r["seconds"]))
    tuning = math.fsum(r["finetune_seconds"] for r in runs if known(r["finetune_seconds"]))
    flops = math.fsum(r["flops_paper"] for r in runs if known(r["flops_paper"]))
    budgets = list(dict.fromkeys(run["budget"] for run in arms if found.settings[run["run_id"]]))
    layers, width = spec.get("encoder.layers"), spec.get("encoder.hidden")
    told = [
        ("Score", scores or "none"),
        ("Budget of a run", words.listing(budgets) or "unknown"),
        ("Pre-training seeds", words.seeds(counts) if counts else "none with scores"),
        ("Runs", f"{done} of {len(runs)} trained"),
        ("Encoder", f"{layers} layers of {width} ({spec.get('scale')})" if layers else "unknown"),
        ("Text", str(spec.get("data.corpus") or "unknown")),
        ("Pre-training in all", f"{words.power(flops)} FLOPs, {words.duration(seconds)}"),
        ("Fine-tuning in all", words.duration(tuning)),
    ]
    return told


def scale_note(found: Frames) -> str:
    spec: Mapping[str, Any] = next((s for s in found.settings.values() if s), {})
    layers, width = spec.get("encoder.layers"), spec.get("encoder.hidden")
    return (
        f"The encoder here has {layers} layers of {width} and another score, another text and another budget may stand "
        f"behind it: compare the order and the signs, not the size of the numbers."
    )


def time_note(found: Frames) -> str:
    """Who ran it for how long."""
    runs = [r for r in found.rows("runs") if known(r["seconds"])]
    seconds = math.fsum(r["seconds"] for r in runs)
    tuning = math.fsum(r["finetune_seconds"] for r in runs if known(r["finetune_seconds"]))
    return (
        f"{len(runs)} runs took {words.duration(seconds)} of training and {words.duration(tuning)} of fine-tuning, "
        f"added up over runs. The command:"
        if found.record["command"]
        else f"{len(runs)} runs took {words.duration(seconds)} of training and {words.duration(tuning)} of fine-tuning."
    )


def settings(found: Frames) -> dict[str, list[Any]]:
    """The specs of the arms: what all share, and what differs apart from axis, seed and budget."""
    arms = {r["run_id"]: found.settings[r["run_id"]] for r in found.rows("runs") if r["role"] == "arm"}
    aside = ("tasks.", "seed", "scale", *found.axis.split(","))
    mine = {i: {k: v for k, v in spec.items() if not k.startswith(aside)} for i, spec in arms.items()}
    same, different = _split(mine)
    tasks = [(k, _value(v)) for k, v in flatten(found.record["tasks"]).items() if v is not None]
    return {"same": same, "different": different, "tasks": tasks}


def environments(found: Frames) -> dict[str, list[Any]]:
    same, different = _split(found.environments)
    return {"same": same, "different": different}


def _split(tables: Mapping[str, Mapping[str, Any]]) -> tuple[list[tuple[str, str]], list[tuple[str, str, list[str]]]]:
    """Keys with one value over all runs, and the others with every value and who has it. Unset values say nothing."""
    same, different = [], []
    for key, values in checks.by_value(tables).items():
        if len(values) == 1:
            same += [(key, _value(value)) for value in values if value not in ("None", "")]
        else:
            different += [(key, _value(value), ids) for value, ids in values.items() if value not in ("None", "")]
    return same, different


def _value(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= 300 else f"{text[:299]}…"
