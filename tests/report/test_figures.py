"""Charts as data, as SVG and as files for a paper."""

from __future__ import annotations

import itertools
import math
import re
import shutil
import statistics
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import made
import parsed
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.report import charts, data_files, drawing, results, write, write_again, write_paper, write_plan
from workbench.report.results import Results
from workbench.spec.scoring import POINTS
from workbench.store.run_store import RunStore

KEPT = Path(__file__).parents[2] / "reports/kept"


@pytest.fixture(scope="module")
def mini() -> Results:
    return data_files.from_folder(KEPT / "ablation-mini-h100")


def test_score_against_compute_has_the_means_of_points_csv(mini: Results) -> None:
    chart = charts.main(mini, mini.by_verdict[0], "main")
    assert chart.kind == "lines" and chart.log and chart.axes[0] == "flops_matmul"
    for one in chart.series:
        rows = [row for row in parsed.sheet(KEPT / "ablation-mini-h100/points.csv") if row["arm"] == one.arm]
        for place, mark in enumerate(dict.fromkeys(row["mark"] for row in rows)):
            values = [float(row["value"]) for row in rows if row["mark"] == mark]
            spent = [float(row["flops_matmul"]) for row in rows if row["mark"] == mark]
            assert one.y[place] == pytest.approx(statistics.fmean(values))
            assert one.x["flops_matmul"][place] == pytest.approx(statistics.fmean(spent))
            half = one.half[place]
            assert half == pytest.approx(3.182446 * statistics.stdev(values) / 2, rel=1e-5)  # t of 3 df, 4 seeds


def test_a_training_curve_is_the_mean_over_seeds_between_logged_rows(mini: Results) -> None:
    [chart] = [chart for chart in charts.curves(mini) if chart.name == "curve-generator_loss"]
    [one] = [one for one in chart.series if one.arm == "rtd"]
    rows = parsed.sheet(KEPT / "ablation-mini-h100/curves.csv")
    runs = dict.fromkeys(row["run_id"] for row in rows if row["run_id"].startswith("rtd-"))
    ends = []
    for run in runs:
        own = [(float(row["step"]), float(row["generator_loss"])) for row in rows if row["run_id"] == run]
        place = one.x["steps"][10]
        (a, y), (b, z) = next(pair for pair in itertools.pairwise(own) if pair[0][0] <= place <= pair[1][0])
        ends.append(y + (z - y) * (place - a) / (b - a))
    assert one.y[10] == pytest.approx(statistics.fmean(ends)) and len(one.seeds) == len(runs) == 4


def test_a_curve_ends_at_the_last_loss_of_a_run_that_diverged(mini: Results) -> None:
    table = mini.frames.curves.copy()
    late = table["run_id"].str.startswith("rtd-") & (table["step"] > table["step"].median())
    table.loc[late, [name for name in table.columns if "loss" in name]] = math.nan
    last = table[table["run_id"].str.startswith("rtd-") & table["loss"].notna()]["step"].max()
    made = charts.curves(replace(mini, frames=replace(mini.frames, curves=table)))
    ends = {one.arm: one.x["steps"][-1] for chart in made if chart.name == "curve-loss" for one in chart.series}
    assert ends["rtd"] == last and min(end for arm, end in ends.items() if arm != "rtd") > last


def test_one_amount_gives_a_forest_in_the_order_of_an_ordered_axis() -> None:
    made = data_files.from_folder(KEPT / "generator-size-micro")
    [pairs] = [board for board in made.boards if board.suite == "pairs"]
    chart = charts.main(made, pairs, "main")
    assert chart.kind == "forest" and [one.title for one in chart.series][:4] == [
        "Generator 1/8", "Generator 1/4", "Generator 1/2", "Generator 3/4",
    ]  # fmt: skip
    table = {
        row["arm"]: row for row in parsed.sheet(KEPT / "generator-size-micro/table.csv") if row["suite"] == "pairs"
    }
    for one in chart.series:
        assert one.y[0] == pytest.approx(float(table[one.arm]["score"]))
        assert one.y[0] + (one.half[0] or 0) == pytest.approx(float(table[one.arm]["high"]))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("name", ["generator-size-micro", "ablation-mini-h100"])
def test_colours_are_readable_in_both_schemes_and_ordered_along_an_ordered_axis(name: str) -> None:
    made = data_files.from_folder(KEPT / name)
    looks = drawing.looks(made)
    for look in looks.values():
        assert 1.05 / (luminance(look.light) + 0.05) >= 4 and (luminance(look.dark) + 0.05) / 0.058 >= 4.5
    assert len({(look.light, look.dash) for look in looks.values()}) == len(looks)
    if made.ordered:
        sizes = [look for arm, look in looks.items() if results.axis_value(arm) is not None and look.dash == 0]
        light = [luminance(look.light) for look in sizes]
        assert light == sorted(light, reverse=True)


@given(st.lists(st.floats(0, 300), max_size=15))
def test_labels_are_kept_apart_in_their_order(places: list[float]) -> None:
    moved = drawing.spread(places, 0, 300, 15)
    ordered = [moved[i] for i in sorted(range(len(places)), key=lambda i: places[i])]
    assert all(b - a >= 15 - 1e-9 for a, b in itertools.pairwise(ordered))
    assert not moved or max(moved) <= 300


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(2, 8))
def test_ticks_are_round_numbers_within_the_range(low: float, span: float, most: int) -> None:
    ticks = drawing.nice_ticks(low, low + span, most)
    assert len(ticks) <= most + 1
    assert all(low - 1e-6 * span <= tick <= low + 1.000001 * span + 1e-9 * abs(low) for tick in ticks)


def test_hidden_characters_and_markup_in_names_are_text(mini: Results) -> None:
    chart = charts.forest(mini, mini.by_verdict[0], "f")
    hostile = charts.Series("rtd", "<script>\x00&\u202e", {}, (60.0,), (1.0,), {"seed 0": (60.0,)})
    made = charts.Chart("f", "forest", "<b>", "%", (hostile, *chart.series))
    for width in (360, 900):
        root = ElementTree.fromstring(drawing.draw(made, drawing.looks(mini), width))
        assert {element.tag for element in root.iter()} <= {"svg", "g", "path", "text", "circle", "title"}
        texts = [element.text or "" for element in root.iter("text")]
        assert any(text.startswith("<script>\ufffd&") for text in texts)


def titles(text: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(text).iter() if element.tag.endswith("title")]


def test_every_published_point_and_every_arm_is_drawn_with_its_flops(tmp_path: Path) -> None:
    path = write_plan({"rtd-small": 1.29e18, "a <b>": 3.0e10}, tmp_path / "new" / "folder")
    text = path.read_text(encoding="utf-8")
    assert path.name == "plan.svg" and "<style>" in text and 'href="#run' not in text
    tips = titles(text)
    assert len(tips) == len(POINTS) + 2
    assert (
        "rtd-small, planned: 1.29\u00d710\u00b9\u2078 FLOPs" in tips
        and "a <b>, planned: 3.00\u00d710\u00b9\u2070 FLOPs" in tips
    )
    assert any(tip.startswith("GPT: 78.8 at 4.00\u00d710\u00b9\u2079 FLOPs") for tip in tips)


DOCUMENT = r"""\documentclass{article}
\usepackage[T1]{fontenc}\usepackage[utf8]{inputenc}\usepackage{booktabs,longtable,array,graphicx}
\begin{document}
%s
\end{document}
"""
HOSTILE = r"a_b & 50% of $x^{2}$ #1 \input{secret} ~ {"


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("paper")
    write_paper(write_again(KEPT / "ablation-micro-danish", root / "report"), root / "paper")
    return root / "paper"


def test_the_table_has_the_numbers_of_the_csv_file_and_the_best_in_bold(paper: Path) -> None:
    rows = [row for row in parsed.sheet(KEPT / "ablation-micro-danish/table.csv") if row["suite"] == "linear"]
    table = (paper / "table-1.tex").read_text()
    assert [word in table for word in (r"\toprule", r"\midrule", r"\bottomrule")] == [True] * 3
    best = max(rows, key=lambda row: float(row["score"]))
    assert best["arm"] == "bert-mlm" and rf"BERT MLM & \textbf{{{float(best['score']):.1f}}} $\pm$" in table
    for row in rows:
        assert f"{float(row['score']):.1f}" in table
    decided = [row for row in parsed.sheet(KEPT / "ablation-micro-danish/pairs.csv")
               if row["suite"] == "linear" and row["a"] == "bert-mlm" and row["verdict"] == "ahead"]  # fmt: skip
    assert table.count(r"$^{\dagger}$") == len(decided) + 1  # and once in the note


def test_every_figure_is_there_as_pdf_and_svg(paper: Path) -> None:
    names = {path.stem for path in paper.glob("*.pdf")}
    assert names == {path.stem for path in paper.glob("*.svg")} >= {"main-1", "forest-1", "main-2"}
    for path in paper.glob("*.pdf"):
        width = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", path.read_bytes())
        assert width is not None and float(width[1]) == pytest.approx(3.3 * 72, abs=1), path.name


def test_the_appendix_has_what_a_checklist_asks_for(paper: Path) -> None:
    text = (paper / "appendix.md").read_text()
    for title in ("Data", "Sizes", "Settings that differ, by arm", "Searches", "Seeds", "Compute", "Hardware and hours",
                  "Statistical rule", "Versions", "Commands"):  # fmt: skip
        assert f"\n## {title}\n" in text, title
    assert "36c2768a908f2139" in text and "| optim.lr | 0.00189 |" in text and "FLOPs (paper-sparse)" in text
    assert "smallest true gap shown four times in five: 4.0 points" in text and "versions.torch" in text


def test_latex_compiles_all_of_it_whatever_the_names(tmp_path: Path, paper: Path) -> None:
    """A study whose objective, task and question are full of LaTeX's own characters."""
    latex = shutil.which("pdflatex")
    if latex is None:
        pytest.skip("no pdflatex here to compile the tables with")
    store = RunStore(tmp_path / "runs")
    specs = [made.spec_of(arm, seed, {"steps": 8}) for arm in (f"{HOSTILE}.py", "rtd") for seed in range(3)]
    for spec in specs:
        made.scored(
            made.trained(store, spec, 8), HOSTILE, 0, 60.0 + spec.seed + 3 * len(spec.objective), suite="probes"
        )
    name = made.recorded(store, specs, question=HOSTILE, command=HOSTILE)
    write_paper(write(store, name, tmp_path / "report"), tmp_path / "paper")
    for folder in (tmp_path / "paper", paper):
        tables = [path.stem for path in sorted(folder.glob("*.tex"))]
        figures = [path.stem for path in sorted(folder.glob("*.pdf"))]
        body = [f"\\input{{{stem}}}" for stem in tables] + [f"\\includegraphics{{{stem}}}" for stem in figures]
        build = tmp_path / f"build-{folder.parent.name}"
        shutil.copytree(folder, build)
        (build / "doc.tex").write_text(DOCUMENT % "\n".join(body))
        command = [latex, "-interaction=nonstopmode", "-halt-on-error", "doc.tex"]
        done = subprocess.run(command, cwd=build, capture_output=True, text=True, errors="replace", check=False)
        assert done.returncode == 0 and (build / "doc.pdf").is_file(), done.stdout[-2000:]
