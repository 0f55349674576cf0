"""Settings for fine-tuning an encoder when none are given follow from its size, its positions and its tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.spec.presets import scale_of_encoder
from workbench.tasks.common.encoder_folders import EncoderFacts, encoder_facts

ENCODERS = {  # layers, width -> whose settings
    "nano": (1, 64, "nano"), "smaller than nano": (2, 16, "nano"), "just above nano": (2, 64, "micro"),
    "micro": (2, 128, "micro"), "4 x 128": (4, 128, "mini"), "6 x 256": (6, 256, "small"),
    "ELECTRA-Small": (12, 256, "small"), "MiniLM": (12, 384, "small"), "generator of ELECTRA-Large": (24, 256, "small"),
    "DistilBERT": (6, 768, "base"), "BERT-Base": (12, 768, "base"), "BERT-Large": (24, 1024, "large"),
    "a billion": (48, 1536, "large"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENCODERS)
def test_settings_follow_the_size(name: str) -> None:
    layers, hidden, scale = ENCODERS[name]
    assert scale_of_encoder(layers, hidden) == scale


def test_facts_come_from_the_folder(electra: Callable[..., Path]) -> None:
    folder = electra(num_hidden_layers=3)
    assert encoder_facts(folder) == EncoderFacts(3, 32, 48, False)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {"model_max_length": 20}))
    assert encoder_facts(folder).longest == 20
    path.write_text(json.dumps(settings | {"model_max_length": 1e30}))  # as transformers writes that there is no limit
    assert encoder_facts(folder).longest == 48


@pytest.mark.parametrize(("kind", "pad", "longest"), [("roberta", 1, 46), ("camembert", 1, 46), ("roberta", 0, 46),
                                                      ("bert", 0, 48)])  # fmt: skip
def test_positions_that_a_family_keeps_are_not_counted(
    electra: Callable[..., Path], kind: str, pad: int, longest: int
) -> None:
    folder = electra()
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": kind, "pad_token_id": pad}))
    assert encoder_facts(folder).longest == longest
