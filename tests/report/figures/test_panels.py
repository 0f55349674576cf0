"""Training curves: a panel for each metric, a line for each run, every point where it was logged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import made
import pandas as pd
import pytest

from workbench.report.figures import panels as panel_module
from workbench.report.figures.arm_styles import styles
from workbench.report.figures.panels import HEALTH_NOTE, LOSS_NOTE, METRICS, Panel, Training, training
from workbench.report.load.frames import Frames

Rows = Sequence[Mapping[str, float]]
BOTH = made.in_memory(lambda *_: 0.0, ("rtd", "bert-mlm"), 1, 1, (60, 120))
LOOKS = styles(("rtd", "bert-mlm"))


def frames(logged: Mapping[str, Rows], bins: Mapping[str, int] | None = None) -> Frames:
    curves = pd.DataFrame([{"run_id": run, **row} for run, rows in logged.items() for row in rows])
    return replace(
        BOTH, logged={run: list(map(dict, rows)) for run, rows in logged.items()}, curves=curves, bins=bins or {}
    )


def rows(steps: int = 5, **metrics: Any) -> Rows:
    """Rows of these steps, of 100 tokens each; a metric is a number or has one for each step, None where it lacks."""
    made_rows = []
    for i in range(steps):
        values = {name: value[i] if isinstance(value, list) else value for name, value in metrics.items()}
        made_rows.append(
            {"step": i + 1.0, "tokens": 100.0 * (i + 1)} | {k: v for k, v in values.items() if v is not None}
        )
    return made_rows


def found(logged: Mapping[str, Rows], budget: str | None = "60 steps", **more: Any) -> Training:
    return training(frames(logged, **more), budget, LOOKS)


def panels(logged: Mapping[str, Rows], **more: Any) -> dict[str, Panel]:
    return {panel.title: panel for group in found(logged, **more).groups for panel in group.panels}


def lines(panel: Panel, arm: str) -> list[list[tuple[float, float]]]:
    """The corners of the lines of an arm, in pixels."""
    kind = f"k-{LOOKS[arm].name}"
    paths = [p.attrib["d"] for p in ElementTree.fromstring(panel.svg).iter("path") if p.attrib.get("class") == kind]
    numbers = [[float(n) for n in re.findall(r"-?\d+\.?\d*", d)] for d in paths]
    return [list(zip(each[::2], each[1::2], strict=True)) for each in numbers]


def test_without_logged_steps_there_are_no_panels() -> None:
    assert found({}) == Training() == found({"untrained-0-s0": rows(loss=1.0)})


def test_panels_are_the_loss_of_each_arm_and_every_other_metric_of_all() -> None:
    logged = {"rtd-60-s0": rows(loss=9.0, generator_loss=4.0, mask_rate=0.15, mine=3.0),
              "bert-mlm-60-s0": rows(loss=8.0, mlm_loss=8.0, mask_rate=0.15)}  # fmt: skip
    losses, others = found(logged).groups
    assert [panel.title for panel in losses.panels] == ["rtd", "bert-mlm"] and losses.note == LOSS_NOTE
    order = [METRICS["generator_loss"], METRICS["mlm_loss"], METRICS["mask_rate"], ("mine", "")]
    assert [(panel.title, panel.unit) for panel in others.panels] == order
    assert others.note == HEALTH_NOTE and others.legend == ("rtd", "bert-mlm") and losses.legend == ()


def test_metrics_of_our_own_keep_their_words_in_alphabetical_order() -> None:
    aside = dict.fromkeys(("seconds", "first_step", "last_step", "rows", "flops.paper"), 1.0)
    logged = rows(zeta_rate=1.0, my_own_metric=1.0, learning_rate=1.0, **aside)
    assert list(panels({"rtd-60-s0": logged})) == [METRICS["learning_rate"][0], "my own metric", "zeta rate"]


@pytest.mark.parametrize("metric", ["saving_share", "micro_batch"])
@pytest.mark.parametrize(("values", "shown"), [([32.0] * 5, False), ([32.0, 32.0, 16.0, 16.0, 16.0], True)])
def test_what_stays_steady_is_not_shown(metric: str, values: list[float], shown: bool) -> None:
    titles = panels({"rtd-60-s0": rows(**{metric: values}, loss=1.0), "bert-mlm-60-s0": rows(loss=1.0)})
    assert (METRICS[metric][0] in titles) is shown
    apart = panels({"rtd-60-s0": rows(**{metric: 32.0}), "bert-mlm-60-s0": rows(**{metric: 16.0})})
    assert METRICS[metric][0] in apart


def test_points_stand_at_their_tokens_and_values() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    panel = panels({"rtd-60-s0": rows(mlm_loss=values)})[METRICS["mlm_loss"][0]]
    [line] = lines(panel, "rtd")
    step = (line[4][0] - line[0][0]) / 4
    assert [x for x, _ in line] == pytest.approx([line[0][0] + step * i for i in range(5)], abs=0.15)
    assert 5 * step == pytest.approx(240 / 1.02, abs=0.5)  # the width of the axes, which begin with no tokens
    high, low = line[0][1], line[1][1]
    assert [y for _, y in line] == pytest.approx([high + (5 - v) / 4 * (low - high) for v in values], abs=0.15)


def test_panels_share_their_axis_along_x_up_to_the_longest_run() -> None:
    made_panels = panels({"rtd-60-s0": rows(2, loss=[1.0, 2.0]), "bert-mlm-60-s0": rows(4, loss=[1.0, 2.0, 1.0, 2.0])})
    [short], [long] = lines(made_panels["rtd"], "rtd"), lines(made_panels["bert-mlm"], "bert-mlm")
    assert [x for x, _ in short] == [x for x, _ in long[:2]] and len(long) == 4


def test_a_line_for_each_run_that_has_the_metric_over_the_rows_that_have_it() -> None:
    logged = {"rtd-60-s0": rows(mlm_loss=[1.0, None, 2.0, None, 3.0]), "bert-mlm-60-s0": rows(loss=1.0)}
    panel = panels(logged)[METRICS["mlm_loss"][0]]
    [line] = lines(panel, "rtd")
    assert len(line) == 3 and lines(panel, "bert-mlm") == []


def test_one_logged_step_and_constant_values_are_drawn() -> None:
    marks = ElementTree.fromstring(panels({"rtd-60-s0": rows(1, loss=2.0)})["rtd"].svg).iter("use")
    assert sum(mark.attrib.get("class") == f"f-{LOOKS['rtd'].name}" for mark in marks) == 1
    [line] = lines(panels({"rtd-60-s0": rows(loss=2.0)})["rtd"], "rtd")
    assert len({y for _, y in line}) == 1 and 0 < line[0][1] < 190


@pytest.mark.parametrize(
    ("metric", "times"),
    [("mlm_accuracy", 100), ("mask_rate", 100), ("copy_positive_rate", 100), ("mlm_loss", 1), ("discriminator_auc", 1)],
)
def test_shares_are_in_per_cent(metric: str, times: int) -> None:
    panel = panels({"rtd-60-s0": rows(**{metric: [0.2, 0.25, 0.3, 0.35, 0.4]})})[METRICS[metric][0]]
    left = [t for t in ElementTree.fromstring(panel.svg).iter("text") if t.get("text-anchor") == "end"]
    ticks = [(float(t.attrib["y"]), float(t.text or "")) for t in left]
    assert max(value for _, value in ticks) == pytest.approx(0.4 * times)


def test_runs_of_one_budget_are_drawn_and_others_are_said() -> None:
    logged = {"rtd-60-s0": rows(loss=1.0), "rtd-120-s0": rows(8, loss=1.0), "bert-mlm-120-s0": rows(8, loss=1.0)}
    few, many, last = found(logged, "60 steps"), found(logged, "120 steps"), found(logged, None)
    assert [len(one.groups[0].panels) for one in (few, many, last)] == [1, 2, 2]
    assert "60 steps" in few.note and "120 steps" in many.note and many == last
    alone = found({"rtd-60-s0": rows(loss=1.0)}, "60 steps")
    assert len(few.note) > len(alone.note) and few.note.startswith(alone.note)
    assert found({"rtd-60-s0": rows(loss=1.0)}, "a budget that logged nothing") == alone


@pytest.mark.parametrize(
    ("bins", "steps"), [({}, None), ({"rtd-60-s0": 1}, None), ({"rtd-60-s0": 8, "rtd-120-s0": 64}, 8)]
)
def test_what_a_point_is_the_mean_of_is_said(bins: dict[str, int], steps: int | None) -> None:
    note = found({"rtd-60-s0": rows(loss=1.0), "rtd-120-s0": rows(loss=1.0)}, bins=bins).note
    assert ("mean over up to 8 steps" in note) == (steps == 8) and "64" not in note


def test_logs_without_tokens_are_drawn_over_steps() -> None:
    bare = [
        {key: value for key, value in row.items() if key != "tokens"} for row in rows(loss=[1.0, 2.0, 3.0, 4.0, 5.0])
    ]
    [line] = lines(panels({"rtd-60-s0": bare})["rtd"], "rtd")
    [usual] = lines(panels({"rtd-60-s0": rows(loss=[1.0, 2.0, 3.0, 4.0, 5.0])})["rtd"], "rtd")
    assert line == usual


@pytest.mark.parametrize(("most", "drawn"), [(12, 6), (11, 3), (4, 2), (1, 1)])
def test_of_many_runs_equally_many_of_each_arm_are_drawn(
    monkeypatch: pytest.MonkeyPatch, most: int, drawn: int
) -> None:
    monkeypatch.setattr(panel_module, "MOST_LINES", most)
    many = made.in_memory(lambda *_: 0.0, ("rtd", "bert-mlm"), 6)
    logged = {f"{arm}-60-s{seed}": list(map(dict, rows(mask_rate=0.15 + seed / 100)))
              for arm in ("rtd", "bert-mlm") for seed in range(6)}  # fmt: skip
    result = training(replace(many, logged=logged), "60 steps", LOOKS)
    [panel] = [panel for group in result.groups for panel in group.panels]
    assert [len(lines(panel, arm)) for arm in ("rtd", "bert-mlm")] == [drawn, drawn]
    assert ("are drawn" in result.note) == (drawn < 6) and (f"Of 12 runs, {2 * drawn} " in result.note) == (drawn < 6)
