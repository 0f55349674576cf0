"""Rendering of pages: templates with filters, the facts beside the scores, and the page of `workbench bench`.

A page is one file that loads nothing else.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workbench
from workbench.errors import plural
from workbench.report import drawing, formatting
from workbench.report.comparison import every_metric
from workbench.report.formatting import count, cut, duration, interval, listing, power, seeds
from workbench.report.load.arm_names import UNTRAINED
from workbench.report.load.run_files import FINISHED, number, part
from workbench.report.load.study_tables import Frames
from workbench.report.results import Leaderboard, compute_text
from workbench.report.statistics.intervals import FEW_ITEMS
from workbench.report.statistics.paired_comparison import SHARE_IN_WORDS, moved_by_arithmetic
from workbench.spec.parts import by_source, size_in_words
from workbench.spec.scoring import BABYLM, BABYLM_NOTE, ZERO_SHOT, label_of_tasks, points_of
from workbench.store.atomic import dumps, sweep_old, write_together

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

# ----------------------------------------
# The facts beside the scores: what was run, on which text, for how long, and how sentences were scored.

PASSING = ("started", "command")  # entries of env.json that differ between runs in any case


def known(value: object) -> bool:
    """Return whether a cell of a table holds a value."""
    import pandas as pd

    return value is not None and value is not pd.NA and not (isinstance(value, float) and math.isnan(value))


def shown(value: object) -> str:
    """Return a setting as text of at most 120 characters; a dash for none."""
    if value is None or value == "":
        return "–"
    return cut(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value), 120)


def no_scores(frames: Frames) -> str:
    """Return the answer of a page without any comparison: the reason why there is none."""
    done = sum(run["state"] in FINISHED for run in frames.rows("runs"))
    if not done:
        return "There is no answer yet: no run has finished."
    if frames.scores.empty:
        trained = f"{plural(done, 'run')} {'is' if done == 1 else 'are'} trained"
        return f"There is no answer yet: {trained}, but none was measured on a task."
    return "There is no answer yet: no trained run has a score on every task."


def facts(frames: Frames, boards: Sequence[Leaderboard]) -> list[tuple[str, str]]:
    """Return the names and values of the facts about a whole study."""
    runs = frames.rows("runs")
    arms = [run for run in runs if run["role"] == "arm"]
    done = [run for run in runs if run["state"] in FINISHED]
    spec: Mapping[str, Any] = next((frames.settings[r["run_id"]] for r in arms if frames.settings[r["run_id"]]), {})
    counts = [len(cell.scores) for board in boards for cell in board.at(board.budget)]
    convention = str(next((r["convention"] for r in arms if known(r["convention"])), "paper"))
    budgets = list(dict.fromkeys(run["budget"] for run in arms if frames.settings[run["run_id"]]))
    layers, width = spec.get("encoder.layers", 0), spec.get("encoder.hidden", 0)
    flops = f"{power(_total(runs, f'flops_{convention}'))} ({convention})"
    before, spent = "", number(spec.get("pair.flops"))
    if spec.get("pair.names"):
        amount = "unknown FLOPs" if math.isnan(spent) else f"{power(spent)} FLOPs"
        before = f"{spec['pair.names']}: {amount} were spent before, which are in no number here"
    text, words = str(spec.get("data.corpus") or "unknown"), number(frames.record["text"].get("words"))
    if not math.isnan(words):
        sources = {str(name): number(count) for name, count in part(frames.record["text"], "sources").items()}
        text += f" ({words:,.0f} words{f': {by_source(sources)}' if len(sources) > 1 else ''})"
    seen = ""
    if counted := [run for run in done if run["role"] == "arm" and known(run["words"])]:
        few, many = (pick(run["words"] for run in counted) for pick in (min, max))
        low, high = (pick(run["epochs"] for run in counted) for pick in (min, max))
        seen = f"{count(few)} to {count(many)} ({low:.3g} to {high:.3g} epochs)"
        if many <= few * 1.005:
            seen = f"{count(many)} ({high:.3g} epochs)"
    rows = [
        ("Score", "; ".join(map(score, boards)) or "none"),
        ("Budget of a run", listing(budgets) or "unknown"),
        ("Compute", compute_text(frames)),
        ("Pre-training seeds", seeds(counts) if counts else "none with scores"),
        ("Runs", f"{len(done)} of {len(runs)} finished"),
        ("Encoder", f"{size_in_words(layers, width)} ({spec.get('scale')})" if layers else "unknown"),
        ("Went on from", before),
        ("Text", text),
        ("Words seen by a run", seen),
        ("FLOPs of all runs", flops),
    ]
    return [(name, value) for name, value in rows if value]


def _total(runs: Sequence[Mapping[str, Any]], column: str) -> float:
    return math.fsum(run[column] for run in runs if known(run[column]))


def score(board: Leaderboard) -> str:
    """Return the label of a score, with its tasks unless these are the label: `GLUE (CoLA, ...)`, `RTE`."""
    return board.label + (f" ({listing(board.tasks)})" if board.label != label_of_tasks(board.tasks) else "")


def time_note(frames: Frames) -> str:
    """Return a sentence on the time that all runs took."""
    runs = [run for run in frames.rows("runs") if known(run["seconds"])]
    times = f"{duration(_total(runs, 'seconds'))} of training and {duration(_total(runs, 'finetune_seconds'))}"
    return f"{plural(len(runs), 'run')} took {times} of fine-tuning and scoring, summed over runs."


def values_of_runs(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """Return {key: {value as text: ids of its runs}}, without the keys that differ between runs in any case."""
    tables = {run_id: table for run_id, table in tables.items() if table}
    runs_of: dict[str, dict[str, list[str]]] = {}
    for key in dict.fromkeys(key for table in tables.values() for key in table if key not in PASSING):
        for run_id, table in tables.items():
            runs_of.setdefault(key, {}).setdefault(str(table.get(key)), []).append(run_id)
    return runs_of


def environments(frames: Frames) -> dict[str, list[Any]]:
    """Return the entries of env.json that all runs share (`same`), and each value of the others with its runs."""
    same: list[Any] = []
    different: list[Any] = []
    for key, runs_of in values_of_runs(frames.environments).items():
        for value, run_ids in runs_of.items():
            text = cut(value, 300)
            if value not in ("None", ""):
                same += [(key, text)] if len(runs_of) == 1 else []
                different += [(key, text, run_ids)] if len(runs_of) > 1 else []
    return {"same": same, "different": different}


def notes(board: Leaderboard, frames: Frames, title: Callable[[str], str] = str) -> list[str]:
    """Return the notes under the tables of a measure: an interval for new test items too, and how it was scored.

    `title` returns the name of an arm that people say.
    """
    items = [text] if (text := on_new_items(board, title)) else []
    rows = [row for row in frames.rows("scores") if row["suite"] == board.suite and row.get("scorer")]
    if board.suite == "tagging":
        ways = dict.fromkeys((row["task"], row["scorer"]) for row in rows)
        return [*items, *(f"{task}: {scorer}." for task, scorer in ways)]
    if board.suite not in ZERO_SHOT:
        return items
    cells = [*board.cells, *([board.untrained] if board.untrained else [])]
    arms = {run: cell.arm for cell in cells for run in cell.runs}
    arms_of: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["run_id"] in arms:
            arms_of.setdefault(str(row["scorer"]), {})[arms[row["run_id"]]] = None
    by_scorer = []
    for scorer, scored in arms_of.items():
        of_all = len(board.arms) > 2 and scored.keys() >= set(board.arms)
        by_arm = ["all arms"] if of_all else [title(arm) for arm in scored if arm != UNTRAINED]
        by_scorer.append(f"{scorer} ({listing([*by_arm, *(arm for arm in scored if arm == UNTRAINED)])})")
    apart = ""
    if board.other_inputs or sum(set(scored) != {UNTRAINED} for scored in arms_of.values()) > 1:
        how = "are trained on other inputs in each arm" if board.other_inputs else "differ between arms"
        apart = (
            f" Scorers {how}, so a difference here may be due to the scorer and not to the encoder; linear probes and "
            f"fine-tuning treat all encoders alike."
        )
    elif len(arms_of) > 1:
        apart = " The untrained encoders have another scorer, to which a part of the gain may be due."
    texts = [f"Sentences are scored by {listing(by_scorer)}.{apart}"] if arms_of else []
    pairs, ties = sum(int(row["test_rows"]) for row in rows), sum(int(row["ties"]) for row in rows)
    if ties:
        some = f"{ties:,} of {plural(pairs, 'pair')}, over all runs, {'has' if ties == 1 else 'have'}"
        texts.append(f"{some} the same score for both sentences; each counts half.")
    elif pairs:
        texts.append("In no pair do both sentences have the same score.")
    if "blimp-filtered" in board.tasks:
        sizes = dict.fromkeys(point.data for point in BABYLM)
        each = [(size, [f"{p.name} {p.blimp:.1f} ({p.year})" for p in BABYLM if p.data == size]) for size in sizes]
        published = "; ".join(f"from {size} words {listing(points)}" for size, points in each)
        sources = listing(list(dict.fromkeys(point.source for point in BABYLM)))
        start = "Published on the filtered pairs by BabyLM's organisers"
        texts.append(f"{start}: {published}. {BABYLM_NOTE} ({sources}).")
    return [*items, *texts]


def on_new_items(board: Leaderboard, title: Callable[[str], str] = str) -> str:
    """Return the first interval of a board for new test items as well, where these are few; "" elsewhere."""
    again = [(p, board.items.get(board.budget, {}).get(frozenset((p.a, p.b)))) for p in board.pairs[board.budget]]
    few = [(pair, found) for pair, found in again if found is not None and found.items < FEW_ITEMS]
    if not few:
        return ""
    pair, found = few[0]
    mean = pair.compared.estimate.mean
    return (
        f"With the {found.items:,} test items drawn again as well, the difference of {title(pair.a)} and "
        f"{title(pair.b)} is {interval(mean, found.high - mean)}; pairs.csv has the others."
    )


def arithmetic_note(board: Leaderboard) -> str:
    """Return how far means would move with the same seeds on other arithmetic; "" if the noise is unknown."""
    noise = next(iter(board.noise.get(board.budget, ())), None)
    if noise is None or not noise.paired or not noise.n:
        return ""
    moved = moved_by_arithmetic(noise.paired, noise.n)
    return (
        f"With the same {seeds([noise.n])} on another kind of arithmetic, such as another processor, the mean of an "
        f"arm would move by about {moved:.2f} points and a difference by {math.sqrt(2) * moved:.2f} (one standard "
        f"deviation; {SHARE_IN_WORDS}). The intervals contain this noise."
    )


# ----------------------------------------
# Templates.

Row = Mapping[str, Any]

TEMPLATES = Path(__file__).parent / "templates"
COLOURS = drawing.categorical([f"part {number}" for number in range(len(drawing.PALETTE))])


def render_page(name: str, colours: str, script: str = "", /, folder: Path = TEMPLATES, **context: Any) -> str:
    """Return a page from a template, with the CSS rules of its arms' `colours` and its `script`.

    The template is in `folder` and may extend those of reports. The page's Content-Security-Policy allows its own style
    sheet and script alone, by their hashes.
    """
    style = "\n" + template("report.css") + drawing.SHAPES + "\n" + colours
    whole = {"style": style, "script": script}
    for key, text in list(whole.items()):
        whole[f"{key}_hash"] = f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
    return environment(folder).get_template(name).render(whole | {"version": workbench.__version__} | context)


def template(name: str) -> str:
    """Return the text of a file in `templates`."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


@functools.cache
def environment(folder: Path = TEMPLATES) -> Environment:
    """Return the Jinja environment, which escapes values, refuses unknown names and shows invisible characters."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=lambda value: formatting.clean(value) if type(value) is str else value,
    )  # fmt: skip
    templates.filters |= {
        "score": _score, "half": lambda half, mean: f"{half:.{formatting.places_for(mean, half)}f}",
        "sd": lambda v: _number(v, ".2f"), "pvalue": lambda v: _number(v, ".3f", 0.001),
        "power": formatting.power, "count": formatting.count, "duration": formatting.duration,
        "unbroken": _unbroken, "exponents": _exponents,
        "start": lambda digest: str(digest)[:12] if known(digest) else "",
        "raw": lambda value: str(value).removesuffix(".0"), "short": formatting.short,
    }  # fmt: skip
    templates.tests["known"] = known
    templates.globals |= {
        "notes": notes, "arithmetic_note": arithmetic_note, "every_metric": every_metric,
        "points_of": points_of,
    }  # fmt: skip
    return templates


def _score(mean: float | None, half: float | None, sign: bool = False, places: int = 1) -> str:
    """Return a mean with as many decimals as its interval needs, or `places` without an interval."""
    if mean is None:
        return formatting.points(None)
    return formatting.points(mean, places if half is None else formatting.places_for(mean, half), sign)


def _unbroken(text: str) -> Markup:
    """Return a sentence as markup in which no line ends between a number and its unit, or inside a name before one."""
    from markupsafe import Markup

    units = r"\d[\d.]*(?: \u00b1 [\d.]+)? (?:%|points?|seeds?|h|min|days?)(?!\w)"
    names = r"\w+ \d+%|(?:Generator|depth|heads) \d(?:/\d)?\b"  # ELECTRA 15%, Generator 1, depth 1/2
    text = str(Markup.escape(formatting.clean(text)))
    return Markup(re.sub(f"({units}|{names})", r'<span class="unit">\1</span>', text))


def _exponents(text: str) -> str:
    number = r"(?<![\w.-])(\d+(?:\.\d+)?)e\+?(-?\d+)\b"
    return re.sub(number, lambda match: f"{match[1]}{formatting.TIMES}{formatting.ten_to(int(match[2]))}", text)


def _number(value: float | None, form: str, least: float = 0.0) -> str:
    """Return a number in a format; a dash for None, and `< 0.001` below `least`."""
    if value is None:
        return "–"
    return f"< {least:g}" if 0 <= value < least else f"{value:{form}}"


def write_bench(rows: Sequence[Row], out: Path) -> Path:
    """Write `out`/index.html and `out`/bench.json. Returns the path of the page. Raises OSError if the disk fails.

    There is at least one row; each is measured or left out.
    """
    done = [row for row in rows if not row["skipped"]]
    by_scale: dict[str, list[Row]] = {}
    for row in done:
        by_scale.setdefault(row["scale"], []).append(row)
    page = render_page(
        "bench.html.j2", drawing.colour_rules(COLOURS), rows=done, notes=bench_notes(rows), first=rows[0],
        ceilings={row["precision"]: row["ceiling_flops_per_second"] for row in rows}, by_scale=by_scale,
        parts=list(done[0]["shares"]) if done else [], looks=len(COLOURS), width_of=drawing.width_of,
    )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    sweep_old(out)
    numbers = dumps(list(rows)) + "\n"
    write_together({out / "bench.json": numbers.encode(), out / "index.html": page.encode("utf-8", "replace")})
    return out / "index.html"


def bench_notes(rows: Sequence[Row]) -> list[str]:
    """Return each note on the measurements once, with the rows that it applies to."""
    about: dict[str, list[str]] = {}
    for row in rows:
        for note in [*row["notes"], *([f"left out: {row['skipped']}"] if row["skipped"] else [])]:
            about.setdefault(note, []).append(f"{row['objective']} at {row['scale']}")
    return [f"{note} ({', '.join(names) if len(names) < len(rows) else 'all'})" for note, names in about.items()]
