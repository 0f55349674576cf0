"""Where encoders of BERT's design keep what our kernels compute with, against Hugging Face's modules."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from workbench.cpu import layers
from workbench.cpu.layers import Rates
from workbench.models.encoder import Encoder, build_encoder
from workbench.spec.presets import resolve

ROWS, LENGTH, WIDTH = 5, 32, 48
IDS = torch.randint(0, 60, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))  # 0 is padding


def encoder_of(family: str, **keys: object) -> Encoder:
    tiny = {
        "encoder.family": family, "encoder.hidden": WIDTH, "encoder.layers": 3, "encoder.heads": 3,
        "encoder.embedding": None, "encoder.vocab": 60, "encoder.positions": 40, "data.length": 32,
    }  # fmt: skip
    return build_encoder(resolve("nano", tiny | {f"encoder.{key}": value for key, value in keys.items()}))


@pytest.mark.parametrize(("family", "embedding"), [("roberta", None), ("bert", None), ("albert", 24), ("electra", 24)])
def test_states_are_those_of_the_module(family: str, embedding: int | None) -> None:
    """RoBERTa counts positions from the padding's id; ALBERT and ELECTRA project narrower embeddings."""
    model = encoder_of(family, embedding=embedding).model.eval()
    real = model.embeddings.word_embeddings.padding_idx != IDS
    with torch.no_grad():
        expected = model(IDS, real.long()).last_hidden_state
        found = layers.hidden_states(model, IDS, real)
    torch.testing.assert_close(found[real], expected[real], rtol=1e-5, atol=1e-5)


def test_rates_are_of_the_places_that_have_dropout_and_none_in_evaluation() -> None:
    rates = {"dropout": 0.2, "attention_dropout": 0.3}
    assert layers.rates_of(encoder_of("bert", **rates).model.train()) == Rates(0.2, 0.3, 0.2, 0.2)
    assert layers.rates_of(encoder_of("albert", **rates).model.train()) == Rates(0.2, 0.3, 0.2, 0.0)
    assert layers.rates_of(encoder_of("albert", **rates).model.eval()) == Rates()


def test_groups_of_layers_share_their_weights_as_in_hugging_face() -> None:
    """An ALBERT may have several groups of several layers; published ones have one group of one layer."""
    from transformers import AlbertConfig, AlbertModel

    sizes = {"vocab_size": 60, "embedding_size": 24, "hidden_size": WIDTH, "num_attention_heads": 3}
    torch.manual_seed(0)
    model = AlbertModel(AlbertConfig(
        **sizes, intermediate_size=64, num_hidden_layers=5, num_hidden_groups=2, inner_group_num=2, hidden_act="gelu",
        initializer_range=0.3,
    )).eval()  # fmt: skip
    attention: Tensor = torch.arange(LENGTH) < torch.tensor([[32], [3], [18], [1], [31]])
    assert len(layers.layers_of(model)) == 10
    with torch.no_grad():
        expected = model(IDS, attention.long()).last_hidden_state
        found = layers.hidden_states(model, IDS, attention)
    torch.testing.assert_close(found[attention], expected[attention], rtol=1e-5, atol=1e-5)


def test_encoders_of_another_design_or_activation_are_left_to_their_module() -> None:
    encoder = encoder_of("albert")
    encoder.model.config.hidden_act = "gelu_new"
    assert not layers.can(encoder.model, IDS)
    decoder = encoder_of("bert", causal=True)
    assert layers.can(decoder.model, IDS)
    decoder.model.config.add_cross_attention = True
    assert not layers.can(decoder.model, IDS)
    for family in ("deberta-v2", "modernbert", "gpt2", "xlnet"):
        assert not layers.can(encoder_of(family).model, IDS)
