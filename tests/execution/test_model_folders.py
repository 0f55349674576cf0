"""Models of a run for others: runs and folders that are refused, and the table of scores on a card."""

from __future__ import annotations

from pathlib import Path

import pytest
import written_runs

from workbench.errors import InputError
from workbench.execution import model_folders
from workbench.store.run_store import RunStore


def test_a_run_that_is_not_trained_has_no_model(tmp_path: Path) -> None:
    run = written_runs.begun(RunStore(tmp_path / "runs"), 0)
    with pytest.raises(InputError, match=r"is not trained \(interrupted\), so there is no model to export"):
        model_folders.write(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_run_is_called_damaged_and_not_untrained(tmp_path: Path) -> None:
    run = written_runs.finished(RunStore(tmp_path / "runs"), 0)
    (run.path / "env.json").unlink()
    with pytest.raises(InputError) as caught:
        model_folders.write(run, tmp_path / "out")
    assert str(caught.value).startswith(f"{run.path} is damaged: env.json is missing; move that folder away")
    assert not (tmp_path / "out").exists()


def test_a_place_that_holds_something_is_refused(tmp_path: Path) -> None:
    run = written_runs.finished(RunStore(tmp_path / "runs"), 0)
    (tmp_path / "file").write_text("x")
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(InputError, match="exists and is not an empty folder; name a new one"):
            model_folders.write(run, place)


@pytest.mark.parametrize("name", ["no-owner", "a/b/c", "owner/na me", "../x"])
def test_a_name_that_the_hub_does_not_take_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    run = written_runs.finished(RunStore(tmp_path / "runs"), 0)
    with pytest.raises(InputError):
        model_folders.push(run, name, private=False)


def test_a_card_has_the_mean_of_the_seeds_of_each_task() -> None:
    scores = {
        str(number): {"task": task, "metric": "accuracy", "value": value}
        for number, (task, value) in enumerate([("order", 60.0), ("next", 70.0), ("order", 61.02), ("order", None)])
    }
    assert model_folders._scores(scores).splitlines()[-2:] == [
        "| next | accuracy | 70.00 | 1 |", "| order | accuracy | 60.51 | 2 |",
    ]  # fmt: skip
    assert model_folders._scores({}) == "Its run has no scores."


def test_a_card_states_text_compute_and_use(tmp_path: Path) -> None:
    run = written_runs.finished(RunStore(tmp_path / "runs"), 3)
    card = model_folders.card(run, run.spec(), model_folders.GENERATOR)
    assert f"# {run.run_id}, generator" in card and "An `ElectraForMaskedLM` with its head" in card
    assert "pipeline_tag: fill-mask" in card and "4 steps, 512 tokens, seed 3" in card
    assert "1e+09 (matmul)" in card and "| order | accuracy |" in card and "before:" not in card
