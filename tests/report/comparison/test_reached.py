"""Runs that are no better than token frequencies alone: the sentences of the page on such runs."""

from __future__ import annotations

import json
from pathlib import Path

import made
import parsed

from workbench.report import write
from workbench.report.comparison.reached import reached
from workbench.report.load import frames
from workbench.report.page.warnings import collapsed
from workbench.store.run_store import RunDir, RunStore

FLOORS = {"generator_loss": 6.2, "discriminator_loss": 0.33, "discriminator_auc": 0.53}


def plant(run: RunDir, floors: dict[str, float], **means: float) -> None:
    """Overwrite the run's log with metrics of these means, and its record of what token frequencies alone reach."""
    path = run.path / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for place, row in enumerate(rows):
        row |= {metric: mean + 0.002 * (-1) ** place for metric, mean in means.items()}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made.edit(run.path / "done.json", floors=floors)
    made.relist(run)


def study(root: Path) -> tuple[RunStore, str, list[RunDir]]:
    store, name = made.study(root, made.noisy(made.LEVELS), ("rtd", "bert-mlm"), seeds=2, tunings=1, tasks=("order",))
    runs = [store.get(made.spec_of("rtd", seed, {"steps": 60}).name) for seed in (0, 1)]
    return store, name, runs


def test_a_collapsed_arm_is_named_before_anything_is_relied_on(tmp_path: Path) -> None:
    store, name, runs = study(tmp_path / "runs")
    for run in runs:
        plant(run, FLOORS, discriminator_auc=0.52, discriminator_loss=0.329, generator_loss=5.0)
    [told] = collapsed(frames.read(store, name))
    assert "rtd at 60 steps is no better than token frequencies alone: " in told
    assert (
        "the discriminator\u2019s ROC area is 0.520 ± 0.000 over 2 seeds, and token frequencies alone give 0.530"
        in told
    )
    assert "the discriminator\u2019s loss is 0.329" in told and "generator" not in told
    page = parsed.page(write(store, name, tmp_path / "out"))
    assert any(told in item.text for item in page.by_id("warnings").find("li"))


def test_a_healthy_arm_is_not_flagged(tmp_path: Path) -> None:
    store, name, runs = study(tmp_path / "runs")
    for run in runs:
        plant(run, FLOORS, discriminator_auc=0.75, discriminator_loss=0.28, generator_loss=5.0)
    found = frames.read(store, name)
    assert collapsed(found) == []
    assert {each.metric for each in reached(found)} == set(FLOORS)


def test_one_collapsed_seed_of_two_is_counted(tmp_path: Path) -> None:
    store, name, runs = study(tmp_path / "runs")
    plant(runs[0], FLOORS, discriminator_auc=0.75, discriminator_loss=0.28, generator_loss=5.0)
    plant(runs[1], FLOORS, discriminator_auc=0.75, discriminator_loss=0.28, generator_loss=6.19)
    [told] = collapsed(frames.read(store, name))
    assert told.startswith("rtd at 60 steps is in some seeds hardly better than token frequencies alone: ")
    assert "the generator\u2019s loss is 5.595 ± 7.560 over 2 seeds" in told and "in 1 of 2 seeds" in told


def test_runs_of_older_stores_are_held_against_a_coin(tmp_path: Path) -> None:
    """Older versions recorded no floors, so the ROC area is compared with 0.5."""
    store, name, runs = study(tmp_path / "runs")
    plant(runs[0], {}, discriminator_auc=0.51)
    [told] = collapsed(frames.read(store, name))
    assert told.startswith("rtd at 60 steps is in some seeds hardly better than")
    assert "and token frequencies alone give 0.500" in told
    assert "(hardly better in 1 of 2 seeds; a gain below 0.030 does not count)" in told


def test_a_gain_below_the_margin_is_not_called_none(tmp_path: Path) -> None:
    """An area of 0.55 is larger than the 0.53 of token frequencies, but by less than the 0.03 from which it counts."""
    store, name, runs = study(tmp_path / "runs")
    for run in runs:
        plant(run, FLOORS, discriminator_auc=0.55, discriminator_loss=0.28, generator_loss=5.0)
    found = frames.read(store, name)
    [told] = collapsed(found)
    assert told == (
        "rtd at 60 steps is hardly better than token frequencies alone: the discriminator\u2019s ROC area is "
        "0.550 ± 0.000 over 2 seeds, and token frequencies alone give 0.530 (a gain below 0.030 does not count)."
    )
    assert [each.verdict for each in reached(found) if each.flagged] == ["hardly better"]
    plant(runs[1], FLOORS, discriminator_auc=0.52, discriminator_loss=0.28, generator_loss=5.0)
    [told] = collapsed(frames.read(store, name))
    assert told.startswith("rtd at 60 steps is no better than") and "count" not in told
