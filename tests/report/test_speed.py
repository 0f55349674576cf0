"""The page of the benchmark: bars as long as the speeds, parts as long as their shares, every remark once."""

from __future__ import annotations

import json
import re
import resource
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import parsed
import pytest

from workbench.report.page import rendering

PARTS = {"generator": 0.25, "discriminator": 0.5, "rest": 0.25}


def row(objective: str = "rtd", scale: str = "nano", tokens: float = 40_000.0, **changes: Any) -> dict[str, Any]:
    """A measured row of steps of 1,024 tokens."""
    seconds = 1024 / tokens
    return {
        "objective": objective, "scale": scale, "precision": "fp32", "device": "cpu", "compile": False, "rows": 32,
        "length": 32, "tokens_per_second": tokens, "seconds_per_step": seconds, "skipped": None, "notes": [],
        "seconds_spread": [0.9 * seconds, 1.2 * seconds], "model_flops_utilisation": 0.4, "shares": PARTS,
        "ceiling_flops_per_second": 2e11, "peak_memory_bytes": 1 << 28,
        "machine": {"cpu": "C", "cores": 2, "gpu": None},
        "versions": {"torch": "2"}, "threads": 2, "started": "2026",
    } | changes  # fmt: skip


def skipped(objective: str, why: str) -> dict[str, Any]:
    return row(objective, skipped=why) | dict.fromkeys(("tokens_per_second", "seconds_spread", "shares"))


def figures(folder: Path, rows: list[dict[str, Any]]) -> list[str]:
    """The figures of the page: the speeds at each scale, and then the parts."""
    return re.findall(r"<svg.*?</svg>", rendering.write_bench(rows, folder).read_text(encoding="utf-8"))


def bars(text: str, kind: str) -> list[tuple[float, float, float]]:
    """Left, right and middle of the bars (m) or lines (x), in pixels."""
    found = []
    for path in ElementTree.fromstring(text).iter("path"):
        if path.attrib.get("class") == kind:
            left, top, right, *bottom = (float(n) for n in re.findall(r"-?\d+\.?\d*", path.attrib["d"]))
            found.append((left, right, (top + (bottom or [top])[0]) / 2))
    return found


def test_every_remark_is_told_once_with_the_rows_that_it_is_about() -> None:
    rows = [row("rtd", notes=["a", "b"]), row("bert-mlm", notes=["a"]), skipped("electra-15", "no memory")]
    told = rendering.bench_notes(rows)
    assert told[0].startswith("a (rtd at nano, bert-mlm at nano") and told[1].startswith("b (rtd at nano)")
    assert len(told) == 3 and "no memory" in told[2] and "electra-15 at nano" in told[2]
    [of_all] = rendering.bench_notes([row("rtd", notes=["a"]), row("bert-mlm", notes=["a"])])
    assert of_all.startswith("a (") and "rtd" not in of_all and rendering.bench_notes([row()]) == []


@pytest.mark.parametrize("tokens", [(40_000.0,), (40_000.0, 10_000.0, 25_000.0), (5.0, 5.0)])
def test_bars_are_as_long_as_the_speeds_with_a_line_over_the_turns(tokens: tuple[float, ...], tmp_path: Path) -> None:
    names = ("rtd", "bert-mlm", "<mine>")[: len(tokens)]
    text, _ = figures(tmp_path, [row(name, tokens=speed_) for name, speed_ in zip(names, tokens, strict=True)])
    middles = []
    lines, drawn = bars(text, "x"), bars(text, "m")
    for (left, right, middle), (slow, fast, height), value in zip(drawn, lines, tokens, strict=True):
        per = (right - left) / value
        assert (slow, fast) == pytest.approx((left + per * value / 1.2, left + per * value / 0.9), abs=0.2)
        assert height == pytest.approx(middle, abs=0.2)
        middles.append((per, middle, left))
    assert [m for _, m, _ in middles] == sorted(m for _, m, _ in middles)  # in the order of the rows, downwards
    assert all(per == pytest.approx(middles[0][0], rel=0.02) and left == middles[0][2] for per, _, left in middles)
    texts = [t.text or "" for t in ElementTree.fromstring(text).iter("text")]
    assert set(names) <= set(texts) and sum("40%" in t for t in texts) == len(tokens)


@pytest.mark.parametrize("parts", [PARTS, {"one": 1.0}, {f"part {i}": 0.1 for i in range(10)}, {"a": 1.0, "b": 0.0}])
def test_parts_of_a_step_follow_each_other_up_to_the_whole(parts: dict[str, float], tmp_path: Path) -> None:
    """Ten parts take the eight colours in turn."""
    _, text = figures(tmp_path, [row(shares=parts), row("bert-mlm", shares=parts)])
    titles = [title.text or "" for title in ElementTree.fromstring(text).iter("title")]
    assert [title.partition(":")[0] for title in titles] == [*parts, *parts]
    found = bars(text, "m")
    for mine in (found[: len(parts)], found[len(parts) :]):
        assert len({middle for _, _, middle in mine}) == 1
        whole = mine[-1][1] - mine[0][0]
        assert [right - left for left, right, _ in mine] == pytest.approx([s * whole for s in parts.values()], abs=0.25)
        assert [right for _, right, _ in mine[:-1]] == pytest.approx([left for left, _, _ in mine[1:]], abs=0.11)


def test_a_page_has_a_pair_of_figures_for_each_scale_that_was_measured(tmp_path: Path) -> None:
    rows = [row(), row("bert-mlm"), row("rtd", "mini", precision="bf16"), skipped("electra-15", "no memory")]
    page = parsed.page(rendering.write_bench(rows, tmp_path / "deep" / "out"))
    captions = [caption.text.partition(",")[0] for caption in page.find("figcaption")]
    assert captions == ["nano", "mini", "nano", "mini"] and len(page.find("svg")) == 4
    arms = [{"rtd", "bert-mlm"} & {text.text for text in figure.find("text")} for figure in page.find("svg")]
    assert arms == [{"rtd", "bert-mlm"}, {"rtd"}] * 2
    assert {"fp32", "bf16"} <= {term.text.split()[-1] for term in page.find("dt")}
    body = page.find("tbody")[0].find("tr")
    rows_shown = [f"{r.find('th')[0].text} {r.find('td')[0].text}" for r in body]
    assert rows_shown == ["nano rtd", "nano bert-mlm", "mini rtd"]
    assert "no memory" in page.text and "bf16" in page.text
    ids = [e.attributes["id"] for e in page.everything() if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    text = (tmp_path / "deep" / "out" / "index.html").read_text(encoding="utf-8")
    assert "http" not in text.replace("http://www.w3.org", "").replace("http-equiv", "") and "style=" not in text
    assert json.loads((tmp_path / "deep" / "out" / "bench.json").read_text()) == rows


def test_a_page_on_rows_that_were_all_left_out_has_no_figures(tmp_path: Path) -> None:
    page = parsed.page(rendering.write_bench([skipped("rtd", "no <memory>")], tmp_path))
    assert not page.find("svg") and not page.find("tbody")[0].find("tr") and "no <memory>" in page.text


def test_a_page_is_not_written_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(OSError):
        rendering.write_bench([row()], tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_the_page_and_its_numbers_are_replaced_together_or_not_at_all(tmp_path: Path) -> None:
    """The page is larger, so that a limit between the two sizes stops it after the numbers were written."""
    page = rendering.write_bench([row("rtd")], tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before["bench.json"]) * 2, limits[1]))
    try:
        with pytest.raises(OSError, match="bytes are needed"):
            rendering.write_bench([row("bert-mlm")], tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert rendering.write_bench([row("bert-mlm")], tmp_path) == page and b"bert-mlm" in page.read_bytes()
