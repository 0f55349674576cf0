"""Score over compute: interpolation, conventions that disagree, and recommendations."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from pathlib import Path

import made
import parsed
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.report import results, write
from workbench.report.comparison import compute
from workbench.report.load import frames
from workbench.report.page.document import Page
from workbench.report.report_options import ReportOptions
from workbench.store.run_store import RunStore

# -- reading off


def test_reading_off_by_hand() -> None:
    curve = ((10.0, 50.0), (100.0, 60.0), (1000.0, 64.0))
    assert compute.read_off(curve, 100.0) == 60.0
    assert compute.read_off(curve, 10**1.5) == pytest.approx(55.0)  # half way in the logarithm
    assert compute.read_off(curve, 10**2.25) == pytest.approx(61.0)
    assert compute.read_off(curve, 1005.0) == 64.0  # a step's worth too much
    assert compute.read_off(curve, 5.0) is None and compute.read_off(curve, 1100.0) is None
    assert compute.read_off(((7.0, 50.0),), 7.0) == 50.0


@given(st.lists(st.tuples(st.floats(1, 1e18), st.floats(0, 100)), min_size=1, max_size=6), st.floats(0, 1))
def test_what_is_read_off_lies_between_its_neighbours(points: list[tuple[float, float]], share: float) -> None:
    curve = tuple(sorted({x: y for x, y in points}.items()))
    amount = math.exp(math.log(curve[0][0]) + share * (math.log(curve[-1][0]) - math.log(curve[0][0])))
    found = compute.read_off(curve, amount)
    ys = [y for _, y in curve]
    assert found is not None and min(ys) - 1e-9 <= found <= max(ys) + 1e-9


# -- on the page


def test_page_holds_all_of_it(tmp_path: Path) -> None:
    levels = {"rtd": (60.0, 0.2), "bert-mlm": (50.0, 0.1)}

    def truth(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
        if not steps:
            return 40.0
        scale, exponent = levels[arm]
        return 100 - scale * steps**-exponent + random.Random(f"{arm}/{steps}/{seed}").gauss(0, 0.1)

    store, name = made.study(
        tmp_path / "runs", truth, arms=tuple(levels), tasks=("order",), tunings=1, budgets=(8, 16, 32)
    )
    path = store.root / "experiments" / f"{name}.json"
    trials = [
        {
            "objective": arm, "trial": i, "values": {"optim.lr": 1e-3 * (i + 1)}, "run_ids": [], "score": score,
            "seeds": [9],
        }
        for arm in levels for i, score in enumerate((61.0, 64.0, 63.0))
    ]  # fmt: skip
    trials += [{"objective": "rtd", "trial": 3, "values": {}, "run_ids": [], "score": None, "seeds": [9]}]
    made.edit(path, tuning=trials)
    found = frames.read(RunStore(store.root), name)
    content = Page(results.results_of(found, {}, ReportOptions()))
    assert [(r["arm"], r["trials"], r["best"], r["at"]) for r in content.tuning_rows] == [
        ("rtd", 3, 64.0, 2), ("bert-mlm", 3, 64.0, 2),
    ]  # fmt: skip
    tree = parsed.page(write(store, name, tmp_path / "out"))
    [table] = [t for t in tree.find("table") if t.attributes.get("data-name") == "beyond"]
    beyond = " ".join(table.text.split())
    assert "at ten times the largest budget, if no arm gains faster there" in beyond
    assert len(table.find("tr")) == 3  # a row for each arm
    assert (
        "The best of many trials overestimates" in tree.by_id("tuning").text
        and "optim.lr=0.002" in tree.by_id("tuning").text
    )
    words = " ".join(tree.text.split())
    warned = "The best of many trials overestimates: settings were chosen by scores on the same rows"
    assert warned in words  # this is no `tune`, which reports on rows that it did not choose by
    made.edit(path, experiment="tune")
    assert warned not in " ".join(parsed.page(write(store, name, tmp_path / "out")).text.split())
    assert "The arm rtd spent 1.32 times the FLOPs of bert-mlm (matmul" in words
    spent = [r for r in tree.by_id("spending").find("tr") if "1.32" in [cell.text for cell in r.find("td")]]
    assert spent and all(r.find("th")[0].text == "RTD" for r in spent)


def test_a_budget_of_ones_own_on_the_command_line(tmp_path: Path) -> None:
    store, _ = made.study(tmp_path / "runs", made.noisy(made.LEVELS), arms=("rtd", "bert-mlm"), tasks=("order",))
    words = [sys.executable, "-m", "workbench", "report", "ablation", "--runs", str(store.root), "--budget"]
    done = subprocess.run([*words, "flops=1e20", "--out", str(tmp_path / "out")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = " ".join(parsed.page(tmp_path / "out" / "index.html").text.split())
    assert "There is no recommendation for 1.00×10²⁰ FLOPs (matmul)" in said, "as the report counts"
    bad = subprocess.run([*words, "much"], capture_output=True, text=True)
    assert bad.returncode == 2 and bad.stderr.count("\n") == 1 and "--budget 'much'" in bad.stderr
