"""Sweeps: score along a numeric axis, what the paper says of it, collapses, and the grid of cells."""

from __future__ import annotations

import itertools
import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import made
import parsed
import pytest

from workbench.report import write
from workbench.report.comparison.boards import board, boards
from workbench.report.figures import along_axis
from workbench.report.load import frames
from workbench.report.page import checks
from workbench.report.page.answer import answer
from workbench.store.run_store import RunStore

WIDTHS = (0.125, 0.25, 0.5, 1.0)
LEVEL = {0.125: 66.0, 0.25: 70.0, 0.5: 69.0, 1.0: 67.0, "unigram": 63.0, "uniform": 61.0}


def sweep(root: Path, cells: list[dict[str, Any]], seeds: int = 3, axis: str = "generator.width") -> tuple[Any, str]:
    """A store of one run for each cell and seed, with scores around the level of the generator's size."""
    store = RunStore(root / "runs")
    specs = [made.spec_of("rtd", seed, {"steps": 8}, **cell) for seed, cell in itertools.product(range(seeds), cells)]
    for spec in specs:
        kind = spec.generator.kind
        level = LEVEL[spec.generator.width if kind == "transformer" else kind] + (spec.encoder.hidden - 64) / 16
        made.scored(
            made.trained(store, spec, 8),
            "order",
            0,
            level + 0.1 * spec.seed + 0.1 * random.Random(spec.name).random(),
        )
    return store, made.recorded(store, specs, axis=axis, experiment="generator-size")


def said(tree: parsed.Element) -> str:
    return " ".join(tree.text.split())


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


@pytest.mark.parametrize(
    ("metric", "value", "said"),
    [
        ("generator_entropy", 0.01, "entropy is below 0.05 nats"),
        ("discriminator_positive_rate", 0.0, "the same answer for at least 999 tokens in 1,000"),
        ("discriminator_positive_rate", 1.0, "the same answer for at least 999 tokens in 1,000"),
        ("discriminator_positive_rate", 0.06, ""),
        ("generator_entropy", 2.0, ""),
    ],
)
def test_collapses_are_flagged(tmp_path: Path, metric: str, value: float, said: str) -> None:
    """By the end of the log: a discriminator that begins at the majority class has not collapsed."""
    store, name = sweep(tmp_path, [{"generator.width": 0.25}, {"generator.width": 0.5}], seeds=1)
    run = store.runs()[0]
    path = run.path / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [row | {metric: (1.0 - value) if i < 4 else value} for i, row in enumerate(rows)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made.relist(run)
    told = [text for text in checks.collapsed(frames.read(store, name)) if run.run_id in text]
    assert [bool(re.search(said, text)) for text in told if "recall" not in text and "majority" not in text] == (
        [True] if said else []
    )
    made.unfinish(run)
    unfinished = checks.collapsed(frames.read(store, name))
    assert not [text for text in unfinished if run.run_id in text], "it has not come to the end of training"


def test_grid_of_cells_says_what_became_of_each(tmp_path: Path) -> None:
    store, name = sweep(tmp_path, [{"generator.width": w} for w in (0.25, 0.5)])
    runs = {(r.spec().generator.width, r.spec().seed): r for r in store.runs()}
    made.unfinish(runs[0.25, 1])
    runs[0.25, 1].fail("diverged", "loss is nan at step 3", step=3)
    made.unfinish(runs[0.5, 2])
    shutil.rmtree(runs[0.5, 0].path)
    seeds, rows = checks.cells(frames.read(store, name))
    table = {arm: states for arm, _, states in rows}
    assert seeds == [0, 1, 2]
    assert [table["0.25"].get(s, "") for s in seeds] == ["done", "diverged", "done"]
    assert [table["0.5"].get(s, "") for s in seeds] == ["", "done", "interrupted"]
    told = " ".join(parsed.page(write(store, name, tmp_path / "out")).by_id("absent").text.split())
    assert "diverged" in told and "interrupted" in told and "missing" in told


def test_many_comparisons_are_counted_not_listed() -> None:
    arms = tuple(f"arm-{i}" for i in range(9))
    levels = {arm: 60.0 + 2 * i for i, arm in enumerate(arms)} | {"untrained": 40.0}
    found = board(made.in_memory(made.noisy(levels, 0.1, 0.1), arms, 5), "probes")
    assert found is not None
    said = answer(found, "objective")
    assert "arm-8 is ahead of every other of the 9 objectives: of 8, from arm-7 down to arm-0, by" in said.sentence
    assert any("28 other pairs are told apart" in text or "of the 28 other pairs" in text for text in said.further)
    assert any("9 of 9 arms beat their own untrained encoders" in text for text in said.further)


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
