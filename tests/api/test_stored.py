"""Stores and runs from Python: tables of their settings, states and scores, and encoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import written_runs

import workbench as wb
from workbench.store.run_store import RunStore


@pytest.fixture
def store(tmp_path: Path) -> wb.Store:
    """A run that is done, and one that was interrupted."""
    inner = RunStore(tmp_path / "runs")
    written_runs.finished(inner, 0)
    written_runs.begun(inner, 1)
    return wb.Store(inner.root)


def test_an_encoder_is_one_of_transformers(carried_out: tuple[wb.Study, dict[str, Any]]) -> None:
    study, words = carried_out
    run = wb.Store(words["store"]).run(study.runs().query("arm == 'rtd'")["run_id"].iloc[0])
    encoder, tokenizer = run.encoder()
    inputs = tokenizer("the cat sees a dog", return_tensors="pt")
    with torch.no_grad():
        states = encoder(**inputs).last_hidden_state
    assert states.shape == (1, inputs["input_ids"].shape[1], run.spec.encoder.hidden) and states.isfinite().all()
    scores = wb.evaluate(run.path / "encoder", words["tasks"], settings=words["settings"], device="cpu")
    assert len(scores) == 1 and 0 <= scores["value"].item() <= 100


def test_a_store_is_read_and_never_made(store: wb.Store, tmp_path: Path) -> None:
    assert repr(store) == f"<Store {tmp_path / 'runs'}: 2 runs>" and store.root == tmp_path / "runs"
    with pytest.raises(wb.InputError, match="nowhere"):
        wb.Store(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_runs_are_chosen_and_sorted_by_their_settings(store: wb.Store) -> None:
    everything = store.runs(sort="-seed")
    assert list(everything["seed"]) == [1, 0] and list(everything["state"]) == ["interrupted", "done"]
    assert list(store.runs(["seed<1"])["run_id"]) == [everything["run_id"].iloc[1]]
    with pytest.raises(wb.InputError, match="sed"):
        store.runs(["sed=1"])


def test_a_run_is_found_by_a_part_of_its_name(store: wb.Store) -> None:
    run = store.run("-s1-")
    assert (run.spec.seed, run.state) == (1, "interrupted") and repr(run) == f"<Run {run.run_id}: interrupted>"
    assert list(run.metrics()["step"]) == [1, 2, 3, 4]
    assert run.scores().empty and list(run.scores().columns) == ["task", "suite", "metric", "fine_tuning_seed", "value"]
    with pytest.raises(wb.InputError, match="is interrupted and has no encoder; train it to its end first"):
        run.encoder()
    with pytest.raises(wb.InputError, match="nano"):
        store.run("nano")  # a part of both names


def test_scores_have_a_row_for_each_task_and_seed(store: wb.Store) -> None:
    scores = store.run("-s0-").scores()
    assert sorted(zip(scores["task"], scores["fine_tuning_seed"], strict=True)) == [
        (task, seed) for task in ("next", "order") for seed in (0, 1)
    ]


def test_changed_weights_are_refused(store: wb.Store) -> None:
    run = store.run("-s0-")
    weights = run.path / "encoder" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[::-1])
    with pytest.raises(wb.InputError, match=r"model\.safetensors"):
        run.encoder()
