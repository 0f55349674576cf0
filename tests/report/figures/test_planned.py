"""The figure of a plan has the published scores, and each arm at its compute."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from workbench.report import write_plan
from workbench.report.figures.planned import figure
from workbench.spec.published import POINTS


def titles(text: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(text).iter() if element.tag.endswith("title")]


def test_every_published_point_and_every_arm_is_drawn_with_its_flops() -> None:
    tips = titles(figure({"rtd-small": 1.29e18, "a <b>": 3.0e10}))
    assert len(tips) == len(POINTS) + 2
    assert (
        "rtd-small, planned: 1.29\u00d710\u00b9\u2078 FLOPs" in tips
        and "a <b>, planned: 3.00\u00d710\u00b9\u2070 FLOPs" in tips
    )
    assert any(tip.startswith("GPT: 78.8 at 4.00\u00d710\u00b9\u2079 FLOPs") for tip in tips)


def test_it_is_a_file_of_its_own(tmp_path: Path) -> None:
    path = write_plan({"rtd-small": 1.29e18}, tmp_path / "new" / "folder")
    text = path.read_text(encoding="utf-8")
    assert path.name == "plan.svg" and "<style>" in text and 'href="#run' not in text
    assert len(titles(text)) == len(POINTS) + 1
