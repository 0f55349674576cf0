"""Encoder and heads against Hugging Face's ELECTRA models, into which the same weights are copied by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModel, ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from workbench.models.corruption import Generator
from workbench.models.encoder import Encoder, build_encoder
from workbench.models.families import FAMILIES
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


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_saved_encoder_loads_anywhere_with_the_same_hidden_states(family: str, tmp_path: Path) -> None:
    encoder = build_encoder(spec_of(encoder__family=family)).eval()
    shake(encoder)
    encoder.save(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path).eval()
    for padded in (False, True):
        ids, attention = inputs(padded)
        with torch.no_grad():
            numbers = None if attention is None else attention.long()  # XLNet's module subtracts it from 1
            expected = loaded(input_ids=ids, attention_mask=numbers).last_hidden_state
            found = encoder(ids, attention)
        kept = torch.ones_like(ids, dtype=torch.bool) if attention is None else attention
        torch.testing.assert_close(found[kept], expected[kept], rtol=1e-4, atol=1e-5)


class Waits(TorchDispatchMode):
    """Counts the numbers that are read from tensors, for each of which a GPU is waited for."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += function is torch.ops.aten._local_scalar_dense.default
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_full_rows_are_not_searched_for_padding(family: str) -> None:
    """GPT-2 reads one number, by which transformers looks for several texts in a row."""
    encoder = build_encoder(spec_of(encoder__family=family))
    with Waits() as waits:
        encoder(inputs(padded=False)[0])
    assert waits.count == (family == "gpt2")


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_ids_in_the_padding_do_not_matter(family: str) -> None:
    encoder = build_encoder(spec_of(encoder__family=family)).eval()
    ids, attention = inputs(padded=True)
    assert attention is not None
    with torch.no_grad():
        hidden = encoder(ids, attention)
        alone = encoder(ids[1:2, :3])
    torch.testing.assert_close(hidden[1, :3], alone[0], rtol=1e-4, atol=1e-5)


def test_initial_weights_of_gpt2_are_those_of_its_code() -> None:
    """Normal, positions half as wide, and the ends of the two residual branches of L layers divided by sqrt(2 L)."""
    keys = {"encoder__family": "gpt2", "encoder__vocab": 4000, "encoder__positions": 512, "encoder__layers": 8}
    encoder = build_encoder(spec_of(**keys, encoder__init=0.02, encoder__position_init="normal"))
    for name, weight in encoder.model.named_parameters():
        if weight.ndim == 1:
            assert bool((weight == float(".ln_" in f".{name}" and name.endswith("weight"))).all()), name
            continue
        expected = 0.01 if name == "wpe.weight" else 0.02 / 4 if "c_proj" in name else 0.02
        assert weight.std().item() == pytest.approx(expected, rel=0.05), name
        assert 3 * expected < weight.abs().max() < 6 * expected, name  # not truncated at two


def test_the_settings_of_gpt2_have_its_names() -> None:
    keys = {"encoder__family": "gpt2", "encoder__ffn": 100, "encoder__dropout": 0.2, "encoder__attention_dropout": 0.3}
    config = build_encoder(spec_of(**keys)).model.config
    assert (config.n_embd, config.n_layer, config.n_head, config.n_inner, config.n_positions) == (48, 3, 3, 100, 40)
    assert (config.resid_pdrop, config.embd_pdrop, config.attn_pdrop) == (0.2, 0.2, 0.3)
    assert (config.activation_function, config.layer_norm_epsilon) == ("gelu_new", 1e-5)
    special = spec_of().data.special
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (special.pad, special.cls, special.sep)
    assert not {"hidden_act", "is_decoder", "hidden_dropout_prob"} & config.to_diff_dict().keys()


def test_sines_start_the_position_table_of_every_family_that_has_one() -> None:
    for family, place in (("gpt2", "wpe"), ("bert", "embeddings.position_embeddings")):
        encoder = build_encoder(spec_of(encoder__family=family, encoder__position_init="sinusoidal"))
        table = encoder.model.get_submodule(place).weight
        first = torch.tensor([0.0, 1.0] * 24) * encoder.spec.init * 2**0.5
        torch.testing.assert_close(table[0].detach(), first)


def test_initial_weights_are_those_of_the_paper() -> None:
    """Matrices and tables lie within two standard deviations of 0.02; embedding projections are Glorot uniform."""
    paper = {
        "encoder__init": 0.02,
        "encoder__position_init": "normal",
    }  # nano, which the test sizes come from, has its own
    encoder = build_encoder(spec_of(encoder__embedding=16, encoder__vocab=4000, **paper))
    for name, weight in encoder.model.named_parameters():
        if "LayerNorm" in name or name.endswith("bias"):
            assert bool((weight == float(name.endswith("LayerNorm.weight"))).all()), name
        elif "embeddings_project" in name:
            limit = (6 / (16 + 48)) ** 0.5
            assert 0.9 * limit < weight.abs().max() < limit
        else:
            assert weight.abs().max() <= 0.04, name
            if weight.numel() > 1000:
                assert weight.std().item() == pytest.approx(0.02 * 0.8796, rel=0.05), name  # truncation at two
