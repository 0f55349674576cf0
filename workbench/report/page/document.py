"""The report page: one HTML file with the answer first, made from the report's results alone; it loads nothing."""

from __future__ import annotations

import csv
import json
import logging
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import plural
from workbench.report import charts, data_files, drawing, recommendation
from workbench.report.charts import Chart
from workbench.report.formatting import capital, clean, listing, seeds, short
from workbench.report.load.arm_names import UNTRAINED, arm_name, person_name
from workbench.report.load.run_files import FINISHED, flatten
from workbench.report.page import rendering
from workbench.report.page.warnings import Caution, cautions
from workbench.report.results import (
    NO_BUDGET,
    Cell,
    Leaderboard,
    Pair,
    Results,
    Verdict,
    seeds_to_decide,
    spending_ratios,
)
from workbench.report.statistics.group_sequential import NOTHING
from workbench.report.statistics.intervals import Estimate
from workbench.spec import scoring
from workbench.spec.parts import CONVENTIONS
from workbench.store.atomic import sweep_old, write_together

if TYPE_CHECKING:
    from workbench.store.run_store import RunStore

log = logging.getLogger("workbench")
Row = dict[str, Any]

MOST_PAIRS = 200  # rows of pairs that were not declared; the file has all
MOST_SECTIONS = 200  # runs with a section of their own
WIDE, NARROW, PANEL = (700, 400), (358, 225), (330, 210)  # CSS pixels
OPEN_CURVES = 6  # figures of training curves that are not folded


def place_of_files(out: Path) -> tuple[Path, str]:
    """Return the path of the page, given itself or its folder, and how the names of the files beside it begin."""
    page = out if out.suffix == ".html" else out / "index.html"
    return page, "" if page.name == "index.html" else f"{page.stem}-"


def write(results: Results, out: Path) -> Path:
    """Write the page and the data files of results. Returns the path of the page. Raises OSError if the disk fails."""
    page, prefix = place_of_files(out)
    page.parent.mkdir(parents=True, exist_ok=True)
    sweep_old(page.parent)
    files = files_beside(results)
    content = Page(results, prefix)
    rules, script = drawing.colour_rules(content.looks), rendering.template("report.js")
    html = rendering.render_page("report.html.j2", rules, script, page=content)
    texts = {page.parent / f"{prefix}{name}": text for name, text in files.items()}
    write_together(texts | {page: html.encode("utf-8", "replace")})  # the page is last: after a kill it is missing
    return page


def files_beside(results: Results) -> dict[str, bytes]:
    """Return the files that a page links to, by name: the data files, and its main figure if there are scores."""
    files = data_files.data_files(results)
    if results.by_verdict:
        chart, looks = charts.main(results, results.by_verdict[0], "picture"), drawing.looks(results)
        svg = drawing.standalone(drawing.draw(chart, looks, 920, 440), drawing.colour_rules(looks))
        files["compute.svg"] = svg.encode("utf-8", "replace")
    return files


def warn_of_replaced(results: Results, out: Path, store: RunStore) -> None:
    """Log a warning if an existing report lists runs that this one does not, as a report on another store may."""
    page, prefix = place_of_files(out)
    before: set[Any] = set()
    table = page.parent / f"{prefix}runs.csv"  # there may be none, or one that is not of a report
    with suppress(OSError, ValueError, csv.Error), table.open(newline="", encoding="utf-8") as file:
        before = {row.get("run_id") for row in csv.DictReader(file)} - {None}
    if before - {run["run_id"] for run in results.frames.rows("runs")}:
        log.warning(
            "the report in %s has runs that are not in %s, and is replaced by this one; give another folder with "
            "--out to keep both", page.parent, store.root,
        )  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A chart with its drawings: for a desk, and for a phone ("" if one drawing fits both)."""

    chart: Chart
    wide: str
    narrow: str = ""


@dataclass(frozen=True)
class Measure:
    """One board on the page: its verdict, its name for people, its arms, and the limits of their small drawings."""

    board: Leaderboard
    verdict: Verdict
    name: str
    limits: tuple[float, float]
    cells: Sequence[Cell]


class Page:
    """The content of the page, in the order in which it is read."""

    every_budget, points = False, charts.GRID  # of the curves

    def __init__(self, results: Results, prefix: str = "") -> None:
        self.results, self.frames, self.prefix = results, results.frames, prefix
        self.boards = results.by_verdict  # the deciding measure first
        self.looks = drawing.looks(results)
        self.charts: dict[str, Chart] = {}  # all that the page shows, by name
        self.answer = results.verdicts[0].sentence if results.verdicts else rendering.no_scores(self.frames)
        self.measures = [
            Measure(board, verdict, capital(verdict.measure), charts.forest(results, board, "").limits,
                    board.at(board.budget))
            for board, verdict in zip(self.boards, results.verdicts, strict=True)
        ]  # fmt: skip
        self.finding = scoring.finding(self.frames.axis.split(",")[0], results.arms)  # of the paper
        self.facts = rendering.facts(self.frames, self.boards)
        self.time_note = rendering.time_note(self.frames)
        self.environments = rendering.environments(self.frames)
        tasks = flatten(self.frames.record["tasks"])
        self.tasks_settings = [(key, rendering.shown(value)) for key, value in tasks.items() if value is not None]
        self.runs = self.frames.rows("runs")
        self.rows = {run["run_id"]: number for number, run in enumerate(self.runs)}  # of the table of runs
        self.states = [run for run in self.runs if run["state"] not in FINISHED]  # runs that are in no average
        conventions = {str(run["convention"]) for run in self.runs if run["role"] == "arm"}
        one = len(conventions) == 1 and conventions <= set(CONVENTIONS)
        self.counted = conventions.pop() if one else "paper"  # the convention of FLOPs in the table of runs

    def title(self, arm: str) -> str:
        """Return the name of an arm that people say."""
        return self.results.titles.get(arm, arm)

    def look(self, arm: str) -> str:
        """Return the CSS classes of an arm."""
        look = self.looks.get(arm)
        return look.classes if look else "q"

    @property
    def merged(self) -> list[str]:
        """Return a sentence on each arm that stands for further cells of a sweep, which are the same model."""
        arms = {run["run_id"]: run["arm"] for run in self.runs}
        cells: dict[str, list[str]] = {}
        for row in self.frames.record.get("merged") or []:
            if row["run"] in arms:
                settings = ", ".join(f"{key}={value}" for key, value in row["cell"].items())
                cells.setdefault(arms[row["run"]], []).append(person_name(self.frames.axis, settings))
        return [
            f"{listing(names)} {'is' if len(names) == 1 else 'are'} the same model as {self.title(arm)}."
            for arm, names in cells.items()
        ]

    def bar(self, estimate: Estimate, limits: tuple[float, float], arm: str, zero: bool = False) -> str:
        """Return the small drawing of a mean with its interval, with a line at zero for a difference."""
        return drawing.bar(estimate.mean, estimate.half, limits, self.look(arm), zero) if estimate.n else ""

    @cached_property
    def main(self) -> Figure | None:
        """Return the main figure: score against compute, or the forest of means."""
        return self._figure(charts.main(self.results, self.boards[0], "main")) if self.boards else None

    @cached_property
    def forest(self) -> Figure | None:
        """Return the forest of the deciding measure, unless it is the main figure with all arms."""
        if self.main is None or (self.main.chart.kind == "forest" and not self.main.chart.left_out):
            return None
        return self._figure(charts.forest(self.results, self.boards[0], "forest"))

    def _figure(self, chart: Chart) -> Figure:
        self.charts[chart.name] = chart
        return Figure(chart, drawing.draw(chart, self.looks, *WIDE), drawing.draw(chart, self.looks, *NARROW))

    @cached_property
    def sure(self) -> list[str]:
        """Return how sure the answer is, in a few words each: seeds, compute, decided of declared, gaps missed."""
        if not self.boards:
            return []
        board = self.boards[0]
        cells, pairs = board.at(board.budget), board.pairs[board.budget]
        parts = [seeds([cell.estimate.n for cell in cells]), board.budget]
        claimed = [pair for pair in pairs if pair.compared.claimed]  # of declared pairs alone, if any were declared
        own = sum(not board.alike(pair.a, pair.b) for pair in claimed)
        by_own = f", {own:,} by own scores" if own else ""
        decided = len(claimed)
        if board.family.pairs:
            declared = sum(pair.compared.declared for pair in pairs)
            parts.append(f"{decided} of {plural(declared, 'declared comparison')} decided{by_own}")
        elif len(cells) > 1:
            parts.append(f"{decided:,} of {len(pairs):,} pairs decided{by_own}, none declared")
        gap = self.results.verdicts[0].detectable
        if gap is not None:
            parts.append(f"gaps under {gap:.1f} points are often missed" if gap < 100 else "any gap is often missed")
        return parts

    @property
    def about(self) -> str:
        """Return scale and text in a few words."""
        spec: Mapping[str, Any] = next((s for s in self.frames.settings.values() if s), {})
        corpus = str(spec.get("data.corpus") or "").strip("()[]'\",")
        stem = re.sub(r"(\.(txt|jsonl?|parquet|csv|tsv|gz|xz|bz2|zst|zip))+$", "", corpus.rpartition("/")[2])
        words = [str(spec.get("scale") or ""), short(stem, 32)]
        return ", ".join(word for word in words if word and word != "None")

    def chosen(self, board: Leaderboard, declared: bool) -> list[tuple[str, Pair]]:
        """Return the budget and arms of comparisons, the largest budget first: declared ones, or all others."""
        return [
            (budget, pair)
            for budget in reversed(board.budgets) for pair in board.pairs[budget]
            if (pair.compared.declared and bool(board.families.get(budget, NOTHING).pairs)) == declared
        ]  # fmt: skip

    def pairs(self, board: Leaderboard, declared: bool) -> list[Row]:
        """Return the rows of comparisons: declared ones, or the first of all others."""
        chosen = self.chosen(board, declared)
        return [self._pair(board, budget, pair) for budget, pair in (chosen if declared else chosen[:MOST_PAIRS])]

    def _pair(self, board: Leaderboard, budget: str, pair: Pair) -> Row:
        compared, estimate = pair.compared, pair.compared.estimate
        needed = None if compared.claimed else seeds_to_decide(board, budget, pair)
        states = {"ahead": "yes", "behind": "yes", "open": "no"}
        decided = states[compared.verdict] if compared.declared else "exploratory"
        status = next((look.status.get((pair.a, pair.b)) or look.status.get((pair.b, pair.a))
                       for look in reversed(board.looks)), None) if budget == board.budget else None  # fmt: skip
        return {
            "pair": pair, "budget": budget, "estimate": estimate, "p": compared.adjusted, "decided": decided,
            "label": board.labels.get(frozenset((pair.a, pair.b)), ""), "needed": needed, "status": status,
            "items": board.items.get(budget, {}).get(frozenset((pair.a, pair.b))),
            "alike": board.alike(pair.a, pair.b), "flip": compared.flip, "order": compared.order,
            "claimed": compared.claimed,
        }  # fmt: skip

    def gap_limits(self, rows: Sequence[Row]) -> tuple[float, float]:
        """Return the range of the small drawings of differences."""
        ends = [e.mean + sign * (e.half or 0.0) for row in rows if (e := row["estimate"]).n for sign in (-1, 1)]
        return min([0.0, *ends]), max([1.0, *ends])

    @cached_property
    def cautions(self) -> list[Caution]:
        """Return the warnings, the gravest first, with measures and arms as people call them."""
        names = {f"{measure.board.label}: ": f"{measure.name}: " for measure in self.measures}
        names |= {f"{arm} ": f"{self.title(arm)} " for arm in self.results.arms}
        listed = cautions(self.frames, self.boards, self.results.missing, self.title)
        return [Caution(_renamed(caution.short, names), _renamed(caution.reason, names)) for caution in listed]

    @cached_property
    def curves(self) -> tuple[list[Figure], list[Figure]]:
        """Return the figures of training curves: the most telling ones, and the others, which are folded."""
        figures = [
            Figure(chart, drawing.draw(chart, self.looks, *PANEL))
            for chart in charts.curves(self.results, self.every_budget, self.points)
        ]
        self.charts |= {figure.chart.name: figure.chart for figure in figures}
        telling = [f for f in figures if f.chart.name.removeprefix("curve-") in charts.FIRST][:OPEN_CURVES]
        first = telling or figures[:1]
        return first, [figure for figure in figures if figure not in first]

    @property
    def legend(self) -> tuple[list[str], list[str]]:
        """Return the arms of the curves: those with a colour, and the grey ones of very many."""
        drawn = {one.arm for figure in [*self.curves[0], *self.curves[1]] for one in figure.chart.series}
        arms = [arm for arm in self.results.arms if arm in drawn]
        return [arm for arm in arms if not self.looks[arm].faint], [arm for arm in arms if self.looks[arm].faint]

    @cached_property
    def tuning(self) -> Figure | None:
        """Return the best score of each objective over the number of its trials; None without a search."""
        chart = charts.tuning(self.results)
        return self._figure(chart) if chart else None

    @cached_property
    def tuning_rows(self) -> list[Row]:
        """Return for each objective of a search its number of trials, the best one, and the values that it tried."""
        rows = []
        for series in self.tuning.chart.series if self.tuning else ():
            trials = [t for t in self.frames.record["tuning"] if arm_name(t.get("objective")) == series.arm]
            scored = {int(t["trial"]) + 1: t for t in trials if t.get("score") is not None}
            best = max(zip(series.x["trials"], series.y, strict=True), key=lambda pair: pair[1])
            values = scored[int(best[0])].get("values") or {}
            rows.append({
                "arm": series.arm, "trials": len(series.y), "best": best[1], "at": int(best[0]),
                "values": ", ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items()),
            })  # fmt: skip
        return rows

    def task_rows(self, measure: Measure) -> list[Row]:
        """Return a row for each task at the largest budget, with the estimate of every arm and the best one's name."""
        board = measure.board
        estimates = {(c.task, c.budget, c.arm): c for c in board.task_cells}
        rows = []
        for task, metric in board.metrics.items():
            by_arm = {cell.arm: c.estimate if (c := estimates.get((task, board.budget, cell.arm))) else None
                      for cell in measure.cells}  # fmt: skip
            known = {arm: e.mean for arm, e in by_arm.items() if e is not None}
            untrained = estimates.get((task, NO_BUDGET, UNTRAINED))
            rows.append({
                "task": task, "metric": metric, "counted": task in board.tasks, "by_arm": by_arm,
                "best": max(known, key=lambda arm: known[arm]) if known else "",
                "untrained": untrained.estimate if untrained else None,
                "baselines": {name: values.get(task) for name, values in board.baselines.items()},
            })  # fmt: skip
        return rows

    def spending(self, board: Leaderboard) -> list[Row]:
        """Return what each arm spent at each budget, and each convention's ratio to the arm that spent least."""
        rows = []
        for budget in reversed(board.budgets):
            by_convention = {c: spending_ratios(board, budget, c) for c in CONVENTIONS}
            for cell in board.at(budget):
                ratios = {c: by_convention[c].get(cell.arm) for c in CONVENTIONS}
                rows.append({"cell": cell, "budget": budget, "ratios": ratios})
        return rows

    def advice(self, board: Leaderboard) -> str:
        """Return the recommendation for the amount that the user named; "" if none was named."""
        budget = self.results.options.budget_under(board.convention())
        return recommendation.advise(board, self.frames, budget) if budget is not None else ""

    def bounds(self, board: Leaderboard) -> list[Row]:
        """Return the bounds on the score of each arm at ten times its largest budget, if three budgets allow them."""
        rows = []
        for arm, measured in recommendation.points_by_arm(board, f"flops_{board.convention()}").items():
            extended = recommendation.extend(measured)
            if extended is None:
                continue
            amount = recommendation.REACH * extended.amounts[-1]
            low, high = extended.band(amount) if not extended.refusal else (math.nan, math.nan)
            rows.append({"arm": arm, "amount": amount, "low": low, "high": high, "refusal": extended.refusal})
        return rows

    @cached_property
    def matrix(self) -> tuple[list[str], list[tuple[str, list[str]]], list[tuple[str, str]]]:
        """The arms, the settings that differ between arms with each arm's values, and the settings that all share."""
        runs = [r for r in self.frames.rows("runs") if r["role"] == "arm" and self.frames.settings.get(r["run_id"])]
        arms = [arm for arm in self.results.arms if any(run["arm"] == arm for run in runs)]
        keys = dict.fromkeys(key for run in runs for key in self.frames.settings[run["run_id"]])
        differ: list[tuple[str, list[str]]] = []
        same: list[tuple[str, str]] = []
        for key in keys:
            if key == "seed" or key.startswith(("tasks.", "budget.")):
                continue
            values: dict[str, dict[str, None]] = {arm: {} for arm in arms}
            for run in runs:
                values[run["arm"]][rendering.shown(self.frames.settings[run["run_id"]].get(key))] = None
            texts = [" or ".join(values[arm]) for arm in arms]
            if len(set(texts)) == 1 and " or " not in texts[0]:
                same += [(key, texts[0])] if texts[0] != "–" else []
            else:
                differ.append((key, texts))
        return arms, differ, same

    @property
    def sections(self) -> list[Row]:
        """Return what the section of each run shows; none for very many runs."""
        if len(self.runs) > MOST_SECTIONS:
            return []
        scores: dict[str, list[Row]] = {}
        for row in self.frames.rows("scores"):
            scores.setdefault(row["run_id"], []).append(row)
        return [self._section(run, scores.get(run["run_id"], [])) for run in self.runs]

    def _section(self, run: Row, scores: Sequence[Row]) -> Row:
        run_id = run["run_id"]
        own = self.frames.settings.get(run_id, {})
        logged = self.frames.logged(run_id)
        last = {key: logged[-1][key] for key in ("step", *charts.METRICS) if logged and key in logged[-1]}
        siblings = [
            other["run_id"] for other in self.runs
            if (other["arm"], other["budget"]) == (run["arm"], run["budget"]) and other["run_id"] != run_id
        ]  # fmt: skip
        differs = _differences(own, [self.frames.settings.get(one, {}) for one in siblings])
        machine = _differences(
            self.frames.environments.get(run_id, {}), [self.frames.environments.get(one, {}) for one in siblings]
        )
        return {
            "run": run, "spark": drawing.spark(charts.sparkline(self.results, run_id), self.look(run["arm"])),
            "last": last, "differs": [(k, v, o) for k, v, o in differs if k not in ("seed", "scale")] + machine,
            "values": [(key, rendering.shown(own.get(key))) for key, _ in self.matrix[1]],
            "scores": scores,
        }  # fmt: skip

    @property
    def written(self) -> dict[str, str]:
        """Return tags and notes of each run that has any; reports of earlier versions have none."""
        texts = {
            run["run_id"]: [run[key] for key in ("tags", "notes") if rendering.known(run[key])] for run in self.runs
        }
        return {run_id: ": ".join(filter(None, text)) for run_id, text in texts.items() if any(text)}

    @property
    def contents(self) -> list[tuple[str, str]]:
        """Return the fragment and the title of each part of the page."""
        parts = [("answer", "Answer", True), ("comparisons", "Comparisons", bool(self.boards)),
                 ("warnings", "Warnings", bool(self.cautions)), ("curves", "Curves", bool(self.curves[0])),
                 ("tuning", "Search", bool(self.tuning)), ("tasks", "Tasks", bool(self.boards)),
                 ("spending", "Spending", True), ("settings", "Settings", True),
                 ("runs", "Runs", True), ("method", "Method", True)]  # fmt: skip
        return [(name, title) for name, title, shown in parts if shown]

    def script_data(self) -> str:
        """Return what the script draws, as JSON without any character that could end its element."""
        shared: dict[str, int] = {}  # the values of an axis as JSON, and their number
        drawn = []
        for chart in self.charts.values():
            digits = 5 if chart.name.startswith("curve-") else 9  # curves are many, and read from their lines
            drawn.append({
                "id": chart.name, "kind": chart.kind, "title": clean(chart.label),
                "axes": list(chart.axes), "log": chart.log, "limits": _rounded(chart.limits, 6),
                "levels": [[one.title, *_rounded((one.value, one.half))] for one in chart.levels],
                "series": [{
                    "a": self.looks[one.arm].number if one.arm in self.looks else -1, "t": clean(one.title),
                    "x": {axis: shared.setdefault(json.dumps(_rounded(one.x[axis])), len(shared))
                          for axis in one.x if axis in chart.axes},
                    "y": _rounded(one.y, digits), "h": _rounded(one.half, digits - 2),
                    "s": {name: _rounded(row) for name, row in one.seeds.items()},
                    **({"m": [clean(mark) for mark in one.marks]} if any(one.marks) else {}),
                } for one in chart.series],
            })  # fmt: skip
        arms = {look.number: [self.title(arm), look.classes] for arm, look in self.looks.items()}
        data = {"x": list(map(json.loads, shared)), "charts": drawn, "labels": charts.LABELS, "short": charts.SHORT}
        text = json.dumps(data | {"arms": arms}, ensure_ascii=False, separators=(",", ":"))
        return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _rounded(values: Sequence[float | None], digits: int = 5) -> list[float | int | None]:
    """Return numbers with so many digits, short in JSON; the CSV files have all digits."""
    numbers = [None if value is None else float(f"{value:.{digits}g}") for value in values]
    return [int(n) if n is not None and n.is_integer() and abs(n) < 1e15 else n for n in numbers]


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a sentence with the first of the `names` that it begins with replaced, up to twice: measure, then arm."""
    for code, name in names.items():
        if text.startswith(code):
            return name + _renamed(text.removeprefix(code), names)
    return text


def _differences(own: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return key, own value and most frequent other value, where a run differs from most runs of its arm."""
    rows = []
    for key in dict.fromkeys([*own, *(key for one in others for key in one)]):
        if not others or key in rendering.PASSING:
            continue
        values = [rendering.shown(one.get(key)) for one in others]
        most = max(dict.fromkeys(values), key=values.count)
        if rendering.shown(own.get(key)) != most:
            rows.append((key, rendering.shown(own.get(key)), most))
    return rows
