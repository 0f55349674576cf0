"""What a paper takes from a study: figures as PDF and SVG, booktabs tables, and an appendix for a checklist."""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workbench
from workbench.report import charts, drawing
from workbench.report.charts import Chart
from workbench.report.formatting import PLUS_MINUS, TIMES, clean, count, duration, interval, points, power, seeds
from workbench.report.load.run_files import FINISHED
from workbench.report.page.document import Measure, Page
from workbench.report.results import Leaderboard, Results
from workbench.report.statistics.intervals import Estimate
from workbench.spec.parts import CONVENTIONS
from workbench.store.atomic import sweep_old, write_together

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 3.3  # inches, a column of most two-column styles
MOST_ROWS = 40  # arms of a forest
RC: dict[Any, Any] = {
    "font.family": "serif", "font.serif": ["STIXGeneral"], "mathtext.fontset": "stix", "text.parse_math": False,
    "font.size": 8, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7, "legend.fontsize": 7,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6, "lines.linewidth": 1.1,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "pdf.fonttype": 42, "svg.fonttype": "none",
    "svg.hashsalt": "workbench",
}  # fmt: skip
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.2, 1.4)), (0, (5, 2, 1.2, 2)))
SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "{": r"\{", "}": r"\}",
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "\u2020": r"$^{\dagger}$", PLUS_MINUS: r"$\pm$",
    TIMES: r"$\times$", "\u2212": "$-$",
    "\u2013": "--", "\u2019": "'", "\u03bb": r"$\lambda$", "\u2026": r"\ldots{}", "\u201c": "``", "\u201d": "''",
}  # fmt: skip
SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
Rows = Sequence[Sequence[str]]
GREY = drawing.Look(-1, *drawing.GREY)  # of an arm without a look


def write(made: Results, folder: Path) -> Path:
    """Write figures, tables and the appendix into a folder. Returns the path of the appendix. Raises OSError."""
    page = Page(made)
    files: dict[str, bytes] = {}
    figures = [one for one in charts.curves(made) if one.name.removeprefix("curve-") in charts.FIRST]
    for number, measure in enumerate(page.measures, start=1):
        board = measure.board
        main = charts.main(made, board, f"main-{number}")
        figures += [main, charts.forest(made, board, f"forest-{number}")] if main.kind == "lines" else [main]
        files[f"table-{number}.tex"] = main_table(page, board).encode()
        files[f"tasks-{number}.tex"] = tasks_table(page, measure).encode()
    for chart in figures:
        files |= _drawn(chart, page)
    sections = appendix(page)
    files["appendix.tex"] = _latex(sections).encode()
    files["appendix.md"] = _markdown(sections).encode("utf-8", "replace")
    folder.mkdir(parents=True, exist_ok=True)
    sweep_old(folder)
    write_together({folder / name: content for name, content in files.items()})
    return folder / "appendix.tex"


def _drawn(chart: Chart, page: Page) -> dict[str, bytes]:
    """Return a chart as the files NAME.pdf and NAME.svg."""
    import matplotlib
    from matplotlib.figure import Figure

    series = chart.series[:MOST_ROWS]
    height = 2.4 if chart.kind == "lines" else 0.7 + 0.19 * len(series)
    files = {}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RC)
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots()
        (_lines if chart.kind == "lines" else _forest)(axes, chart, page)
        if chart.kind == "lines" and len(series) > 1:
            figure.legend(loc="outside upper left", ncols=2 if len(series) < 7 else 3, frameon=False, handlelength=1.6)
        for form, date in (("pdf", "CreationDate"), ("svg", "Date")):
            figure.savefig(out := io.BytesIO(), format=form, metadata={date: None})
            files[f"{chart.name}.{form}"] = out.getvalue()
    return files


def _lines(axes: Axes, chart: Chart, page: Page) -> None:
    axis = chart.axes[0]
    low, high = chart.limits
    for one in chart.series[:MOST_ROWS]:
        look = page.looks.get(one.arm, GREY)
        colour, dash = look.light, DASHES[look.dash]
        x = one.x[axis]
        banded = [(a, y, h) for a, y, h in zip(x, one.y, one.half, strict=True) if h is not None]
        if len(banded) > 1:
            bottom, top = [y - h for _, y, h in banded], [y + h for _, y, h in banded]
            axes.fill_between([a for a, _, _ in banded], bottom, top, color=colour, alpha=0.13, lw=0)
        axes.plot(x, one.y, color=colour, ls=dash, label=one.title, marker="o" if len(x) <= 16 else "", ms=2.2)
    for level in chart.levels:
        axes.axhline(level.value, color="0.45", lw=0.7, ls=(0, (4, 3)))
        axes.annotate(level.title, (0.99, level.value), xycoords=("axes fraction", "data"), ha="right", va="bottom",
                      fontsize=6, color="0.35")  # fmt: skip
    axes.set_ylim(low, high)
    if chart.log:
        axes.set_xscale("log")
    axes.set_xlabel(charts.LABELS[axis])
    axes.set_ylabel(chart.label)


def _forest(axes: Axes, chart: Chart, page: Page) -> None:
    series = chart.series[:MOST_ROWS]
    for place, one in enumerate(series):
        colour = page.looks.get(one.arm, GREY).light
        axes.errorbar(one.y[0], place, xerr=one.half[0] or 0.0, color=colour, lw=1.4, capsize=0)
        each = [v for row in one.seeds.values() for v in row if v is not None]
        axes.plot(each, [place - 0.28] * len(each), "|", color=colour, ms=4, alpha=0.7)
        axes.plot(one.y[0], place, "o", color=colour, ms=3.6)
    for level in chart.levels:
        axes.axvline(level.value, color="0.45", lw=0.7, ls=(0, (4, 3)))
    axes.set_yticks(range(len(series)), [one.title for one in series])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(series) - 0.5, -0.6)
    axes.set_xlim(*chart.limits)
    axes.set_xlabel(chart.label)


def escaped(text: object) -> str:
    """Return text for LaTeX; a number such as 6.5×10¹⁴ becomes mathematics."""
    parts = "".join(SPECIAL.get(character, character) for character in clean(text))
    parts = SUPERSCRIPT.sub(lambda match: f"$^{{{match[0].translate(DIGITS)}}}$", parts)
    return "".join(c if ord(c) < 0x250 else "?" for c in parts)


def _estimate(e: Estimate | None, best: bool = False, mark: str = "") -> str:
    if e is None or e.n == 0:
        return "--"
    text = interval(e.mean, e.half)
    mean = escaped(text.partition(" ")[0])
    bold = rf"\textbf{{{mean}}}" + escaped(text)[len(mean) :] if best else escaped(text)
    return f"{bold}{mark}"


def table(columns: str, head: Sequence[str], rows: Rows, caption: str, label: str, note: str) -> str:
    """Return a booktabs table; cells are LaTeX already, caption and note are escaped here."""
    body = " \\\\\n".join(" & ".join(row) for row in rows)
    return (
        f"\\begin{{table}}[t]\n\\centering\n\\caption{{{escaped(caption)}}}\n\\label{{{label}}}\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{' & '.join(head)} \\\\\n\\midrule\n{body} \\\\\n"
        f"\\bottomrule\n\\end{{tabular}}\n\\par\\smallskip\\footnotesize {escaped(note)}\n\\end{{table}}\n"
    )


def main_table(page: Page, board: Leaderboard) -> str:
    """Return the table of scores at the largest budget: means, intervals and marks, the best mean in bold."""
    cells = board.at(board.budget)
    behind = {p.b for p in board.pairs[board.budget] if p.compared.claimed and p.a == cells[0].arm}
    rows = []
    for place, cell in enumerate(cells):
        mark = r"$^{\dagger}$" if cell.arm in behind else ""
        gain = cell.gain.estimate if cell.gain else None
        rows.append([
            escaped(page.title(cell.arm)), _estimate(cell.estimate, place == 0, mark), str(cell.estimate.n),
            _estimate(gain) + (r"$^{*}$" if cell.gain is not None and cell.gain.claimed else ""),
        ])  # fmt: skip
    if board.untrained is not None:
        rows.append(["Untrained encoders", _estimate(board.untrained.estimate), str(board.untrained.estimate.n), "--"])
    for name in board.baselines:
        if (value := board.baseline(name)) is not None:
            rows.append([escaped(name.replace("-", " ")), escaped(points(value)), "--", "--"])
    alike = "" if board.alike() else " Each arm is scored by a scorer of its own objective."
    note = (
        f"Means over pre-training seeds with 95 % Student t intervals, at {board.budget}. \u2020 the first arm is "
        f"decided to be ahead of this one (both paired t tests corrected, p < 0.05); * ahead of its own untrained "
        f"encoder by the same rule.{alike}"
    )
    head = ["Arm", escaped(board.label), "Seeds", "Gain over untrained"]
    return table("lrrr", head, rows, page.results.question, f"tab:{board.suite}", note)


def tasks_table(page: Page, measure: Measure) -> str:
    """Return the table of every task by arm, the best arm of a task in bold."""
    board, tasks = measure.board, page.task_rows(measure)
    head = ["Arm", *(escaped(f"{row['task']} ({row['metric']})") for row in tasks)]
    rows = [
        [escaped(page.title(cell.arm)), *(_estimate(row["by_arm"][cell.arm], row["best"] == cell.arm) for row in tasks)]
        for cell in measure.cells
    ]
    if any(row["untrained"] for row in tasks):
        rows.append(["Untrained encoders", *(_estimate(row["untrained"]) for row in tasks)])
    note = f"Means over pre-training seeds with 95 % Student t intervals, at {board.budget}; the best mean is bold."
    return table("l" + "r" * len(tasks), head, rows, f"{board.label}, task by task", f"tab:{board.suite}-tasks", note)


@dataclass(frozen=True)
class Section:
    """A section of the appendix: sentences, and a table with a head (empty for a list of names and values)."""

    title: str
    texts: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Rows = ()


def appendix(page: Page) -> list[Section]:
    """Return what a reproducibility checklist asks for."""
    frames, made = page.frames, page.results
    arms, differ, same = page.matrix
    shared = dict(same)
    prints = sorted({str(run["data"]) for run in page.runs if run["state"] in FINISHED})
    facts = dict(page.facts)
    data = [(key, shared[key]) for key in shared if key.startswith("data.")]
    sizes = [(key, shared[key]) for key in shared if key.startswith(("encoder.", "generator.")) or key == "tying"]
    other = [(key, value) for key, value in same if (key, value) not in data and (key, value) not in sizes]
    titles = [page.title(arm) for arm in arms]
    return [
        Section("Question and answer", [f"{made.question}", page.answer]),
        Section("Data", rows=[["text", facts.get("Text", "unknown")], ["fingerprint", ", ".join(prints)],
                              ["words seen by a run", facts.get("Words seen by a run", "not counted")], *data]),
        Section("Sizes", rows=[["encoder", facts.get("Encoder", "unknown")], *sizes]),
        Section("Settings that differ, by arm", head=["setting", *titles],
                rows=[[key, *values] for key, values in differ]),
        Section("Settings that all arms share", rows=other),
        Section("Measures and fine-tuning", rows=page.tasks_settings),
        Section("Searches", _searches(page)),
        Section("Seeds", _seeds(page)),
        Section("Compute", head=["arm", "budget", "steps", "tokens", *(f"FLOPs ({c})" for c in CONVENTIONS), "time"],
                rows=_compute(page)),
        Section("Hardware and hours", [page.time_note],
                rows=[row for row in page.environments["same"] if row[0].startswith(("machine.", "device", "threads",
                      "precision", "kernels", "compile"))]),
        Section("Statistical rule", _rule(page)),
        Section("Comparisons", head=["higher", "lower", "measure", "gap", "p", "decided"], rows=_comparisons(page)),
        Section("Warnings", [caution.reason for caution in page.cautions]),
        Section("Versions", rows=[["workbench, of this appendix", workbench.__version__],
                                  *(row for row in page.environments["same"] if "version" in row[0]
                                    or row[0] in ("python", "workbench", "git.commit")),
                                  *([key, f"{value} ({len(ids)} runs)"]
                                    for key, value, ids in page.environments["different"])]),
        Section("Commands", [f"`{frames.record['command'] or 'not recorded'}`"]),
        *([Section("Not in the data files of this report", list(made.left_out))] if made.left_out else []),
    ]  # fmt: skip


def _searches(page: Page) -> list[str]:
    trials = list(page.frames.record.get("tuning") or ())
    if not trials:
        return ["No settings were searched for within this study."]
    arms = Counter(str(trial.get("objective")) for trial in trials)
    keys = sorted({key for trial in trials for key in (trial.get("values") or {})})
    other = page.frames.record.get("experiment") == "tune"
    rows = "other rows and seeds than" if other else "the same rows as"
    return [
        f"{', '.join(f'{page.title(arm)}: {n} trials' for arm, n in arms.items())}; over {', '.join(keys)}.",
        f"Trials were scored on {rows} the results{'' if other else ', which overestimates them'}.",
    ]


def _seeds(page: Page) -> list[str]:
    texts = [
        f"{board.label}: {seeds([len(cell.scores) for cell in board.at(board.budget)])} of pre-training "
        f"({', '.join(map(str, sorted({s for cell in board.at(board.budget) for s in cell.scores})))}); "
        f"{' to '.join(dict.fromkeys(map(str, (board.finetunings[0], board.finetunings[-1]))))} fine-tuning seed(s) "
        f"for each, of which the {board.statistic} is taken."
        for board in page.boards
    ]
    return texts or ["No run has a score."]


def _compute(page: Page) -> list[list[str]]:
    rows = []
    for row in page.spending(page.boards[0]) if page.boards else ():
        spent = row["cell"].spent
        flops = [power(spent[f"flops_{c}"]) for c in CONVENTIONS]
        rows.append([page.title(row["cell"].arm), row["budget"], count(spent["steps"]), count(spent["tokens"]), *flops,
                     duration(spent["seconds"])])  # fmt: skip
    return rows


def _rule(page: Page) -> list[str]:
    texts = [
        "Fine-tuning seeds are averaged within a pre-training seed; differences are paired by pre-training seed. One "
        "arm is ahead of another if two t tests have p below 5 %: one with the noise that all arms share, after Holm's "
        "correction over the family, and one with the noise of the two arms alone, multiplied by the comparisons of "
        "an arm. From six seeds on, a permutation test must agree. Intervals cover the seed, and not another text, "
        "vocabulary or set of test items."
    ]
    for board in page.boards:
        noise, family = board.noise[board.budget][0], board.families.get(board.budget)
        pairs = len(family.pairs) if family and family.pairs else len(board.pairs[board.budget])
        declared = "declared beforehand" if family and family.pairs else "none of them declared beforehand"
        shown = "unknown" if noise.gap is None or math.isnan(noise.gap) else f"{noise.gap:.1f} points"
        texts.append(
            f"{board.label}: {pairs} comparison(s), {declared}; standard deviation of paired differences "
            f"{points(noise.paired, 2)} points ({noise.df} degrees of freedom); smallest true gap shown four times in "
            f"five: {shown}."
        )
    return texts


def _comparisons(page: Page) -> list[list[str]]:
    rows = []
    for board in page.boards:
        declared = page.pairs(board, True)
        for row in declared or page.pairs(board, False)[:40]:
            e = row["estimate"]
            rows.append([
                page.title(row["pair"].a), page.title(row["pair"].b), board.label, interval(e.mean, e.half, True),
                "--" if row["p"] is None else f"{row['p']:.3f}", row["decided"],
            ])  # fmt: skip
    return rows


def _latex(sections: Sequence[Section]) -> str:
    parts = ["% needs \\usepackage{booktabs,longtable,array} and \\usepackage[T1]{fontenc}\n\\appendix\n"]
    for section in sections:
        parts.append(f"\\section*{{{escaped(section.title)}}}\n")
        for text in section.texts:
            code = text.startswith("`") and text.endswith("`")
            text = f"{{\\ttfamily\\raggedright {_breakable(text.strip('`'))}\\par}}" if code else escaped(text)
            parts.append(f"{text}\n\n")
        if section.rows:
            width = max(len(row) for row in section.rows)
            first = 0.3 if width == 2 else 0.9 / width
            rest = (0.94 - first) / max(1, width - 1)
            columns = f"p{{{first:.3f}\\linewidth}}" + f"p{{{rest - 0.02:.3f}\\linewidth}}" * (width - 1)
            head = f"{' & '.join(map(escaped, section.head))} \\\\\n\\midrule\n" if section.head else ""
            body = " \\\\\n".join(" & ".join(_breakable(cell) for cell in row) for row in section.rows)
            parts.append(
                f"{{\\footnotesize\\raggedright\n\\begin{{longtable}}{{{columns}}}\n\\toprule\n{head}{body} \\\\\n"
                f"\\bottomrule\n\\end{{longtable}}}}\n"
            )
    return "".join(parts)


def _breakable(cell: str) -> str:
    return re.sub(r"(\\_|[./,-])(?=\S)", r"\1\\allowbreak{}", escaped(cell))


def _markdown(sections: Sequence[Section]) -> str:
    parts = ["# Appendix: reproducibility\n"]
    for section in sections:
        parts.append(f"\n## {section.title}\n")
        parts += [f"\n{clean(text)}\n" for text in section.texts]
        if section.rows:
            head = list(section.head) or ["", ""]
            lines = [head, ["---"] * len(head), *section.rows]
            texts = (" | ".join(clean(cell).replace("|", "\\|") for cell in row) for row in lines)
            parts.append("\n" + "".join(f"| {text} |\n" for text in texts))
    return "".join(parts)
