"""Encoder and heads against Hugging Face's ELECTRA models, into which the same weights are copied by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from workbench.models.corruption import Generator
from workbench.models.encoder import Encoder, build_encoder
from workbench.models.heads import BinaryHead, MlmHead
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec

# Our names and Hugging Face's. The names in the encoder are not listed, since they are the same.
MLM_NAMES = {
    "dense": "generator_predictions.dense",
    "norm": "generator_predictions.LayerNorm",
    "table": "generator_lm_head",
}
BINARY_NAMES = {"dense": "discriminator_predictions.dense", "out": "discriminator_predictions.dense_prediction"}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def spec_of(**keys: Any) -> RunSpec:
    tiny = {
        "encoder.hidden": 48, "encoder.layers": 3, "encoder.heads": 3, "encoder.vocab": 120, "encoder.positions": 40,
        "data.length": 20, "generator.width": 0.5,
    }  # fmt: skip
    return resolve("nano", tiny | {key.replace("__", "."): value for key, value in keys.items()})


def shake(module: nn.Module) -> None:
    """Change all weights and biases randomly, so that none has its initial value."""
    numbers = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=numbers) * 0.2)


def renamed(encoder: Encoder, head: nn.Module, names: dict[str, str]) -> dict[str, Tensor]:
    weights = {f"electra.{name}": value for name, value in encoder.model.state_dict().items()}
    for name, value in head.state_dict().items():
        part, dot, rest = name.partition(".")
        weights[f"{names[part]}.{rest}" if dot else "generator_lm_head.bias"] = value
    return weights


def same(ours: nn.Module, model: nn.Module, weights: dict[str, Tensor], ids: Tensor, attention: Tensor | None) -> None:
    """Assert that every weight has a counterpart, and that the logits are equal."""
    places = model.load_state_dict(weights, strict=False)
    assert not places.unexpected_keys
    assert set(places.missing_keys) <= {"electra.embeddings.position_ids", "electra.embeddings.token_type_ids"}
    with torch.no_grad():
        expected = model.eval()(input_ids=ids, attention_mask=attention).logits
        found = ours.eval()(ids, attention)
    assert expected.std() > 0.1
    kept = torch.ones_like(ids, dtype=torch.bool) if attention is None else attention
    torch.testing.assert_close(found[kept], expected[kept], rtol=1e-4, atol=2e-5)


class Whole(nn.Module):
    """An encoder together with a head."""

    def __init__(self, encoder: Encoder, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, ids: Tensor, attention: Tensor | None) -> Tensor:
        logits: Tensor = self.head(self.encoder(ids, attention))
        return logits


def inputs(padded: bool) -> tuple[Tensor, Tensor | None]:
    ids = torch.randint(5, 120, (4, 20), generator=torch.Generator().manual_seed(1))
    if not padded:
        return ids, None
    attention = torch.arange(20) < torch.tensor([[20], [3], [11], [19]])
    return ids * attention, attention


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("embedding", [48, 16, 64])
def test_the_discriminator(embedding: int, attention: str, padded: bool) -> None:
    spec = spec_of(encoder__embedding=embedding, encoder__attention=attention, encoder__dropout=0.1)
    encoder = build_encoder(spec)
    head = BinaryHead(encoder, "dense")
    whole = Whole(encoder, head)
    shake(whole)
    model = ElectraForPreTraining(ElectraConfig(**encoder.model.config.facts()))
    same(whole, model, renamed(encoder, head, BINARY_NAMES), *inputs(padded))
    assert hasattr(encoder.model, "embeddings_project") == (embedding != 48)


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("embedding", [48, 16])
def test_the_encoder_as_a_masked_language_model(embedding: int, padded: bool) -> None:
    encoder = build_encoder(spec_of(encoder__embedding=embedding))
    head = MlmHead(encoder, encoder.table)
    whole = Whole(encoder, head)
    shake(whole)
    model = ElectraForMaskedLM(ElectraConfig(**encoder.model.config.facts()))
    same(whole, model, renamed(encoder, head, MLM_NAMES), *inputs(padded))


@pytest.mark.parametrize("tying", ["none", "tokens", "embeddings", "all"])
@pytest.mark.parametrize("embedding", [48, 16])
def test_the_generator_under_every_tying(embedding: int, tying: str) -> None:
    width = 1.0 if tying == "all" else 0.5
    spec = spec_of(encoder__embedding=embedding, tying=tying, generator__width=width)
    generator = Generator(build_encoder(spec), spec)
    shake(generator)
    model = ElectraForMaskedLM(ElectraConfig(**generator.body.model.config.facts()))
    weights = renamed(generator.body, generator.head, MLM_NAMES)
    same(Whole(generator.body, generator.head), model, weights, *inputs(padded=False))
    config = generator.body.model.config
    assert config.hidden_size == spec.generator_encoder.hidden
    assert config.embedding_size == (24 if tying == "none" else embedding)


def test_the_likelihood_agrees_with_the_logits() -> None:
    encoder = build_encoder(spec_of(encoder__embedding=16))
    head = MlmHead(encoder, encoder.table)
    shake(head)
    ids, _ = inputs(padded=False)
    hidden = encoder(ids)
    likelihood, right = head.likelihood(hidden, ids)
    logits = head(hidden)
    expected = logits.log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1)
    torch.testing.assert_close(likelihood, expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(right, logits.argmax(-1) == ids)
