"""Models of a run for others: runs and folders that are refused, and the table of scores on a card."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
import written_runs
from huggingface_hub import ModelCard

from workbench.errors import InputError
from workbench.execution import model_folders
from workbench.models.export import Terms
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
    given = [("order", 60.0), ("next", 70.0), ("order", 61.02), ("order", None)]
    scores = {
        str(number): {
            "task": task,
            "suite": "probes",
            "metric": "matthews",
            "value": value,
            "data": "d0",
            "digest": "ab",
        }
        for number, (task, value) in enumerate(given)
    } | {"other": {"task": "order", "suite": "tagging", "metric": "f1", "value": 5.0, "digest": "cd"}}
    measured = model_folders._by_measure(scores)
    assert model_folders._table(measured).splitlines()[-3:] == [
        "| next | matthews | 70.00 | 1 |", "| order | f1 | 5.00 | 1 |", "| order | matthews | 60.51 | 2 |",
    ]  # fmt: skip
    results = model_folders._results(measured)
    assert [(each.dataset_name, each.metric_type, each.metric_value, each.task_type) for each in results] == [
        ("next", "matthews_correlation", 70.0, "text-classification"), ("order", "f1", 5.0, "token-classification"),
        ("order", "matthews_correlation", 60.51, "text-classification"),
    ]  # fmt: skip
    assert results[2].metric_args == {"settings": "ab", "scores": 2} and results[2].dataset_revision == "d0"
    assert model_folders._table([]) == "Its run has no scores."


def test_a_card_states_text_compute_and_use(tmp_path: Path) -> None:
    run = written_runs.finished(RunStore(tmp_path / "runs"), 3)
    card = model_folders.card(run, run.spec(), model_folders.GENERATOR)
    assert f"# {run.run_id}, generator" in card and "An `ElectraForMaskedLM` with its head" in card
    assert "pipeline_tag: fill-mask" in card and "4 steps, 512 tokens, seed 3" in card
    assert "1e+09 (matmul)" in card and "| order | accuracy |" in card and "before:" not in card
    assert ModelCard(card).data.get("eval_results") is None  # they are of the encoder, which is another model


def test_a_card_read_by_the_hubs_client_has_the_scores_terms_and_origin(tmp_path: Path) -> None:
    run = written_runs.finished(RunStore(tmp_path / "runs"), 3)
    env = {
        "python": "3.11.2", "workbench": "9.9", "versions": {"torch": "2.13.0"}, "precision": "fp32",
        "git": {"commit": "0123456789abcdef", "dirty": True}, "machine": {"cpu": "A <CPU>", "gpu": None},
        "command": ["workbench", "run", "a b", "--corpus", "https://u:Pl4nted@h/x"],
    }  # fmt: skip
    run.write_json("env.json", env)
    run.write_json("done.json", run.read_json("done.json") | {"warnings": ["no better than `frequencies`"]})
    terms = Terms("cc-by-4.0", ("da", "en"))
    text = model_folders.card(run, run.spec(), model_folders.DISCRIMINATOR, terms, "owner/mine")
    card = ModelCard(text)
    assert card.data.get("license") == "cc-by-4.0" and card.data.get("language") == ["da", "en"]
    values: dict[str, list[float]] = {}
    for score in run.scores().values():
        values.setdefault(score["task"], []).append(score["value"])
    results = {each.dataset_name: each for each in card.data.get("eval_results")}
    assert {name: each.metric_value for name, each in results.items()} == {
        name: pytest.approx(statistics.fmean(each), abs=1e-4) for name, each in values.items()
    }
    assert card.data.get("model_name") == "mine"
    assert 'ElectraForPreTraining.from_pretrained("owner/mine")' in card.text
    assert "- command: `workbench run 'a b' --corpus https://***@h/x`" in card.text
    assert "workbench 9.9 (commit 0123456789, changed), Python 3.11.2, torch 2.13.0" in card.text
    assert "- computed on: A &lt;CPU&gt;, fp32" in card.text and "no better than \\`frequencies\\`" in card.text
    assert "languages: da, en" in card.text and "licence: cc-by-4.0, as its publisher states" in card.text
