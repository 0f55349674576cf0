"""Models in BabyLM's layout: they compute what the objective computes, and cards say which part fills masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from workbench import objectives
from workbench.execution import babylm_export
from workbench.spec import presets
from workbench.training import loop

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
    babylm_export.export_masked_lm(encoder, head, tmp_path)
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
