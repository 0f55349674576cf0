"""The table of published checkpoints: complete, sourced, and consistent with our own count of FLOPs."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench import objectives
from workbench.data.hugging_face.hub import PUBLISHED, known_model
from workbench.spec.presets import resolve

SIZES = {
    "small": {"encoder.layers": 12, "encoder.hidden": 256, "encoder.embedding": 128, "encoder.heads": 4},
    "base": {"encoder.layers": 12, "encoder.hidden": 768, "encoder.embedding": 768, "encoder.heads": 12},
    "large": {"encoder.layers": 24, "encoder.hidden": 1024, "encoder.embedding": 1024, "encoder.heads": 16},
}
TRAINED = {  # objective, size, vocabulary, generator, length and batch, from the models' pages and table 6
    "Maltehb/aelaectra-danish-electra-small-cased": ("rtd", "small", 32_000, 0.25, 128, 128),
    "izumi-lab/electra-base-japanese-discriminator": ("rtd", "base", 32_768, 1 / 3, 512, 256),
    "izumi-lab/bert-small-japanese": ("bert-mlm", "small", 32_768, None, 128, 128),
    "google/electra-large-discriminator": ("rtd", "large", 30_522, 0.25, 512, 2048),
}


@pytest.mark.parametrize("name", TRAINED)
def test_stated_flops_follow_from_the_stated_training(name: str) -> None:
    model = known_model(name)
    assert model is not None and model.steps is not None and model.flops is not None
    objective, size, vocab, generator, length, batch = TRAINED[name]
    changes = SIZES[size] | {"encoder.vocab": vocab, "data.length": length, "encoder.positions": 512}
    changes |= {"objective": objective, "budget.steps": 1, "generator.width": generator or 1.0}
    if name == "izumi-lab/bert-small-japanese":
        changes["encoder.embedding"] = 256
    spec = objectives.with_options(resolve("small", changes))
    flops = float(objectives.load(spec).cost(spec).train("paper")) * batch * model.steps
    assert flops == pytest.approx(model.flops, rel=0.02)
    assert (model.batch or batch, model.length or length) == (batch, length)


def test_every_row_has_a_source_and_flops_have_their_own() -> None:
    names = [model.name for model in PUBLISHED]
    assert len(names) == len({name.lower() for name in names}) == 16
    for model in PUBLISHED:
        assert model.source and model.tokenizer and model.parameters, model.name
        assert (model.flops is None) <= (model.steps is None or model.length is None), model.name
        assert model.flops is None or model.flops_source, model.name


def test_names_are_found_whatever_their_case() -> None:
    found = known_model("seznam/Small-E-Czech")
    assert found is not None and found.name == "Seznam/small-e-czech"
    assert known_model("seznam/other") is None and known_model(str(Path("a/b"))) is None
