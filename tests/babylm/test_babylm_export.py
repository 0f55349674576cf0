"""Predictions score by the arithmetic of BabyLM's pipeline."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from babylm_made import keep, pairs_of, run_of, whole

from workbench import objectives
from workbench.errors import InputError
from workbench.execution import babylm_export
from workbench.execution.babylm_export import SMALL, export, missing, of_labels, of_pairs, revisions, track, undamaged
from workbench.spec import presets
from workbench.spec.stages import BoundRun
from workbench.store.run_store import ExperimentRecord, RunStore
from workbench.tasks.common.contract import as_signs
from workbench.tasks.minimal_pairs import PairSet
from workbench.training import loop


def by_the_pipeline(content: dict[str, Any], data: dict[str, list[str]]) -> float:
    """Return the mean over sub-tasks of the share of predictions that are right, in the order of the file."""
    scores = []
    for uid, good in data.items():
        rows = content[uid]["predictions"]
        assert [row["id"] for row in rows] == [f"{uid}_{place}" for place in range(len(good))]
        scores.append(sum(row["pred"] == text for row, text in zip(rows, good, strict=True)) / len(good) * 100)
    return sum(scores) / len(scores)


def test_predictions_score_by_the_pipeline_s_arithmetic_and_ties_by_ours() -> None:
    pairs = pairs_of(["b", "a", "a", "b", "a", "b", "a"])
    signs = as_signs(np.array([1, 0, 0.5, 0, 1, 0.5, 0]))
    assert signs == "+-=-+=-"
    found = of_pairs(pairs, "pll", signs, ours=43.75)
    assert found.file == "zero_shot/mlm/blimp/blimp_filtered/predictions.json"
    data = {"b": ["good 0", "good 3", "good 5"], "a": ["good 1", "good 2", "good 4", "good 6"]}
    assert found.value == pytest.approx(by_the_pipeline(found.predictions, data))
    assert found.value == pytest.approx((100 * 2 / 3 + 100 * 2 / 4) / 2)  # both ties count as right there
    assert (found.ours, found.ties) == (43.75, 2)
    assert found.counts == "blimp-filtered has 7 rows in 2 where BabyLM expects 59,875 in 67"
    assert found.predictions["a"]["predictions"][0] == {"id": "a_0", "pred": "bad 1"}


def test_scorers_have_backends_of_their_own() -> None:
    files = [of_pairs(pairs_of(["a"]), name, "+", 100.0).file for name in ("pll", "generator-pll", "originality")]
    assert [file.split("/")[1] for file in files] == ["mlm", "mlm", "originality"]


def test_identical_sentences_are_right_whatever_was_chosen() -> None:
    pairs = PairSet("blimp-filtered", "blimp", ["same", "x"], ["same", "y"], {"paradigm": ["a", "a"]})
    assert of_pairs(pairs, "pll", "--", 0.0).value == 50.0


# ---- The one file of all predictions, and the table of their scores ----


def test_collated_files_have_every_key_and_fast_scores_in_the_order_of_revisions() -> None:
    labels = of_labels("babylm:wsc", [0, 1] * 26, {"value": 50.0, "values": {"valid": {"accuracy": 50.0}}})
    short = of_labels("babylm:rte", [0], {"value": 50.0, "values": {"valid": {"accuracy": 50.0}}})
    names = tuple(f"chck_{count}M" for count in SMALL)
    content = babylm_export.collated(
        {"main": [whole("supplement_filtered"), labels, short], "chck_2M": [whole("supplement_fast")]}, names
    )
    assert len(content["blimp_supplement"]) == 5 and content["blimp"] is None and content["ewok"] is None
    assert list(content["glue"]) == ["wsc"]  # RTE has too few rows
    assert content["glue"]["wsc"]["predictions"][51] == {"id": "wsc_51", "pred": 1}
    fast = content["fast_eval_results"]["blimp_supplement"]
    assert len(fast) == len(names) == 19 and fast[1] == {f"u{place}": 1 / 50 for place in range(5)}
    assert [each is None for each in fast].count(False) == 1 and content["fast_eval_results"]["reading"] == [None] * 19


def test_means_are_over_tasks_whatever_their_size() -> None:
    f1 = {"value": 80.0, "values": {"valid": {"accuracy": 80.0, "f1": 60.0}}}
    labels = of_labels("babylm:mrpc", [1] * 204, f1)
    rows = babylm_export.rows("r", {"main": [whole("supplement_filtered"), labels, whole("supplement_fast")]}, "mlm")
    assert [row["task"] for row in rows] == ["supplement_filtered", "mrpc", "supplement_fast", "mean of 2 tasks"]
    share = rows[0]["pipeline"]
    assert rows[3]["pipeline"] == (share + 80) / 2 and rows[3]["with_f1"] == (share + 60) / 2
    assert not any(row["missing"] for row in rows)


# ---- The export as a whole: runs that are left out, and folders that cannot be written ----


def test_damaged_and_unfinished_runs_are_named_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good, bad = run_of(tmp_path, 1e6), run_of(tmp_path, 1e6, seed=1)
    begun = RunStore(tmp_path / "runs").open(BoundRun(presets.resolve("nano", {"seed": 2})))
    (bad.path / "encoder" / "model.safetensors").write_bytes(b"weighty")  # as many bytes
    assert undamaged([good, bad, begun], verify=True) == [good]
    assert f"{bad.path} is damaged and is left out: encoder/model.safetensors has changed" in caplog.text
    assert f"{begun.run_id} is not trained to its end" in caplog.text
    assert undamaged([good, bad, begun], verify=False) == [good]
    time.sleep(0.02)
    os.utime(bad.path / "done.json")  # as if the bytes had changed on the disk by themselves, before the run ended
    assert undamaged([good, bad, begun], verify=False) == [good, bad]
    assert undamaged([good, bad, begun], verify=True) == [good]


def test_an_experiment_without_trained_runs_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    begun = store.open(BoundRun(presets.resolve("nano")))
    store.extend_experiment(ExperimentRecord("x-1", runs=[begun.run_id]))
    with pytest.raises(InputError, match="x-1 has no trained run to export; run its command again"):
        export(store, "x-1", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---- Models in BabyLM's layout ----

SIZES = {
    "encoder.hidden": 16, "encoder.embedding": 12, "encoder.layers": 1, "encoder.heads": 2, "encoder.vocab": 40,
    "encoder.positions": 16, "data.length": 16, "data.special": {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4},
}  # fmt: skip


@pytest.mark.parametrize(("name", "tying"), [("bert-mlm", "embeddings"), ("rtd", "embeddings"), ("rtd", "gdes")])
def test_hugging_face_fills_masks_with_the_logits_of_the_objective(tmp_path: Path, name: str, tying: str) -> None:
    from transformers import AutoModelForMaskedLM

    spec = objectives.with_options(presets.resolve("nano", SIZES | {"tying": tying}).replace(objective=name))
    model = loop.build(spec).eval()
    with torch.no_grad():  # what training leaves: no bias is 0
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())) / 10)
    found = babylm_export.masked_lm(model)
    assert found is not None
    encoder, head = found
    assert (encoder is model.encoder) == (name == "bert-mlm")
    babylm_export.export_with_head(encoder, head, tmp_path)
    loaded, info = AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = torch.tensor([[2, 7, 4, 9, 3]])
    with torch.no_grad():
        torch.testing.assert_close(loaded.eval()(input_ids=ids).logits, head(encoder(ids)), rtol=1e-5, atol=1e-5)


def test_a_causal_model_fills_no_masks() -> None:
    for name, keys in (("causal-lm", {}), ("bert-mlm", {"encoder.causal": True})):
        spec = objectives.with_options(presets.resolve("nano", SIZES | keys).replace(objective=name))
        model = loop.build(spec)
        assert babylm_export.masked_lm(model) is None
        assert "adds a random head" in babylm_export.card(spec, model, "main")


def test_cards_say_which_part_fills_masks() -> None:
    def card(name: str, **changes: Any) -> str:
        spec = presets.resolve("nano", SIZES | changes).replace(objective=name)
        spec = objectives.with_options(spec)
        return babylm_export.card(spec, loop.build(spec), "chck_2M")

    assert "revision chck_2M" in card("bert-mlm") and "in one, for `AutoModelForMaskedLM`" in card("bert-mlm")
    assert "the **generator**, for `AutoModelForMaskedLM`" in card("rtd") and "detection_head" in card("rtd")
    unigram = card("rtd", **{"generator.kind": "unigram", "tying": "none"})
    assert "adds a random head" in unigram and "pipeline_tag: feature-extraction" in unigram


# ---- BabyLM's revisions of a run: those with weights, and those that lack ----


def test_revisions_are_points_by_words_and_the_end_where_it_is_one(tmp_path: Path) -> None:
    run = run_of(tmp_path, 3e6)
    keep(run, 3, "1 M words")
    keep(run, 6, "2 M words")
    keep(run, 5, "50 %")  # of another schedule
    found = {revision.name: revision.place for revision in revisions(run)}
    assert found == {"main": "", "chck_1M": "points/00000003/", "chck_2M": "points/00000006/", "chck_3M": ""}
    assert missing(run) == [] and len(track(run)) == 19


def test_revisions_that_a_run_lacks_are_named(tmp_path: Path) -> None:
    run = run_of(tmp_path, 2.4e6)  # ends between two of them
    keep(run, 3, "1 M words")
    assert [revision.name for revision in revisions(run)] == ["main", "chck_1M"] and missing(run) == ["chck_2M"]
    large = run_of(tmp_path, 2.2e8, **{"seed": 5, "batch.size": 1_000_000})
    assert len(track(large)) == 28 and track(large)[-1] == "chck_1000M" and missing(large)[-1] == "chck_200M"
