"""The report page in a browser: nothing overlaps or is cut at three widths in both schemes, and the script works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made
import pytest
from browser import BROWSER, measured

from workbench.report import write, write_again

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here to lay the page out with")
KEPT = Path(__file__).parents[2] / "reports/kept"
WIDTHS = (390, 768, 1440)
LAYOUT, SCRIPT = (Path(__file__).with_name(f"page_{name}.js").read_text() for name in ("layout", "script"))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on 40 arms with long names."""
    root = tmp_path_factory.mktemp("many")
    arms = tuple(f"my_objective_number_{number:02}.py" for number in range(40))
    store, name = made.study(root / "runs", made.noisy({"untrained": 50.0} | {a: 60.0 for a in arms}), arms, seeds=2)
    return write(store, name, root / "out")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["ablation-mini-h100", "generator-size-micro", "ablation-micro-danish", "many"])
def test_nothing_overlaps_or_is_cut(name: str, dark: bool, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    page = request.getfixturevalue("many") if name == "many" else write_again(KEPT / name, tmp_path / "out")
    for width, found in measured(page, LAYOUT, tmp_path, WIDTHS, dark).items():
        assert found["faults"] == [], (width, found["faults"][:20])
        assert found["wide"] <= int(width), f"the page is wider than {width} pixels"
        assert found["dark"] == dark
        first_screen = 880 if name == "many" else 844
        assert width == "768" or (found["figure"] < 300 and found["sure"] < first_screen)


def test_the_script_switches_sorts_filters_and_copies(tmp_path: Path) -> None:
    page = write_again(KEPT / "ablation-mini-h100", tmp_path / "out")
    found = measured(page, SCRIPT, tmp_path, (1440,))["1440"]
    assert found["lines"] == 5 and found["off"] == [4, 2, True]
    assert found["axes"][:4] == ["flops_matmul", "tokens", "steps", "seconds"]
    assert (found["label"], found["linear"]) == ("tokens, log scale", "tokens")
    assert found["seeds"] == [20, 0] and "BERT MLM" in found["said"] and "±" in found["said"] and found["zoomed"]
    assert found["best"].startswith("BERT MLM") and found["worst"].startswith("chance") and found["rows"] == 4
    csv, markdown, latex = found["copied"]
    _check_tables(csv, markdown, latex)


def _check_tables(csv: str, markdown: str, latex: str) -> None:
    line: Any = next(line for line in csv.splitlines() if line.startswith("BERT MLM"))
    assert csv.splitlines()[0].startswith("arm,score,score half width,seeds,gain over untrained")
    assert line.split(",")[1].startswith("94.377008211") and "| BERT MLM bert-mlm | 94.4 ± 0.3 | 4 |" in markdown
    assert "\\toprule" in latex and "BERT MLM bert-mlm & 94.4 $\\pm$ 0.3 & 4" in latex
