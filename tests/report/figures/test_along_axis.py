"""Sweeps: score along a numeric axis, what the paper says of it, collapses, and the grid of cells."""

from __future__ import annotations

from pathlib import Path

import made
import parsed
from swept_runs import said, sweep

from workbench.report import write
from workbench.report.comparison.boards import boards
from workbench.report.figures import along_axis
from workbench.report.load import frames
from workbench.store.run_store import RunStore

WIDTHS = (0.125, 0.25, 0.5, 1.0)


def test_one_line_for_each_encoder_and_a_place_of_its_own_for_what_has_no_size(tmp_path: Path) -> None:
    cells = [{"generator.width": w, "encoder.hidden": h} for h in (64, 128) for w in WIDTHS]
    store, name = sweep(tmp_path, [*cells, {"generator.kind": "unigram"}, {"generator.kind": "uniform"}])
    found = frames.read(store, name)
    [results] = boards(found)
    drawn = {line.name: line for line in along_axis.lines(results, found)}
    assert set(drawn) == {"discriminator of 64", "discriminator of 128", "without a size"}
    for hidden in (64, 128):
        places = drawn[f"discriminator of {hidden}"].places
        assert list(places) == list(WIDTHS)
        for width, cell in places.items():
            specs = [store.get(r).spec() for r in cell.runs]
            assert {(s.generator.width, s.encoder.hidden) for s in specs} == {(width, hidden)}
            assert len(cell.scores) == 3
    assert set(drawn["without a size"].words) == {"unigram", "uniform"}


def test_page_of_a_sweep_has_the_figure_and_what_the_paper_says(tmp_path: Path) -> None:
    store, name = sweep(tmp_path, [{"generator.width": w} for w in WIDTHS] + [{"generator.kind": "unigram"}])
    tree = parsed.page(write(store, name, tmp_path / "out"))
    section = tree.by_id("along-1")
    words = " ".join(section.text.split())
    assert "1/8" in words and "(8)" in words and "(64)" in words  # shares, and hidden units of the generator
    assert "best range, 1/4 to 1/2" in words and "no curve of it is drawn" in words
    assert "unigram: a generator without weights" in words
    links = {a.attributes["href"] for svg in section.find("svg") for a in svg.find("a")}
    assert len(links) == 15  # every run, and nothing but runs
    assert "generator width 0.25 is ahead of every other of the 5 settings of generator width" in said(tree)
    assert "a unigram generator" in said(tree)


def test_axis_that_is_no_number_has_no_figure(tmp_path: Path) -> None:
    store, name = sweep(tmp_path, [{"tying": t, "generator.width": 1.0} for t in ("none", "all")], axis="tying")
    found = frames.read(store, name)
    [results] = boards(found)
    assert along_axis.lines(results, found) == []
    tree = parsed.page(write(store, name, tmp_path / "out"))
    rows = {r.find("th")[0].text: r.text for r in tree.by_id("table-1").find("table")[0].find("tr")}
    assert "83.6" in rows["none"] and "84.4" in rows["all"] and "+0.8" in rows["all"]
    assert "The encoder here has 1 layer of 64" in tree.text


def test_training_algorithms_stand_beside_what_the_paper_says_of_them() -> None:
    from workbench.spec.published import finding

    told = finding("objective", ("rtd", "rtd, two-stage"))
    assert told is not None and "58 %" in told.text and "figure 3" in told.text
    assert finding("objective", ("rtd", "bert-mlm")) is None and finding("tying") is None


def test_runs_that_go_on_from_others_are_arms_of_their_own(tmp_path: Path) -> None:
    """Two-stage beside joint training, and branches of a trunk, which are one arm at every budget."""
    frozen = {"start.take": "generator", "start.freeze_generator": True, "generator.width": 1.0, "tying": "none"}
    frozen |= {"start.parent": {"objective": "bert-mlm", "corruption.mask": 1.0, "corruption.random": 0.0}}
    trunk = {"schedule.kind": "constant"}
    longer = trunk | {"start.take": "all", "start.share": 0.5, "start.parent": trunk}
    branch = {"start.take": "all", "start.share": 0.8, "schedule.kind": "wsd"}
    store = RunStore(tmp_path / "runs")
    specs = [
        made.spec_of("rtd", 0, {"steps": 20}, **{"generator.width": 1.0, "tying": "none"}),
        made.spec_of("rtd", 0, {"steps": 20}, **frozen),
        made.spec_of("rtd", 0, {"steps": 20}, **branch | {"start.parent": trunk}),
        made.spec_of("rtd", 0, {"steps": 40}, **branch | {"start.parent": longer}),
    ]
    for spec in specs:
        made.scored(made.trained(store, spec, spec.budget.steps or 0), "order", 0, 60.0)
    found = frames.read(store, made.recorded(store, specs, experiment="training-algorithm"))
    joint, staged, short, long = (found.by_id()[spec.name]["arm"] for spec in specs)
    assert len({joint, staged, short}) == 3 and short == long
    assert "two-stage" in staged and "branch of a trunk" in short and joint.startswith("rtd")
