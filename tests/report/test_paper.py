"""What a paper takes from a study: figures, tables that LaTeX compiles, and an appendix with every setting."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import made
import parsed
import pytest

from workbench.report import write, write_again, write_paper
from workbench.store.run_store import RunStore

KEPT = Path(__file__).parents[2] / "reports/kept"
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
