"""Encoders: initial weights, settings, files, padding, and the body of a generator that shares weights with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from objective_oracle import build, shaken, synthetic, tiny
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModel

from workbench.errors import InputError
from workbench.models.encoder import build_encoder
from workbench.models.families import PLUGS
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec


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


def inputs(padded: bool) -> tuple[Tensor, Tensor | None]:
    ids = torch.randint(5, 120, (4, 20), generator=torch.Generator().manual_seed(1))
    if not padded:
        return ids, None
    attention = torch.arange(20) < torch.tensor([[20], [3], [11], [19]])
    return ids * attention, attention


class Waits(TorchDispatchMode):
    """Counts the numbers that are read from tensors, for each of which a GPU is waited for."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += function is torch.ops.aten._local_scalar_dense.default
        return function(*args, **(kwargs or {}))


EMBEDDINGS = {
    "embeddings.word_embeddings.weight",
    "embeddings.position_embeddings.weight",
    "embeddings.token_type_embeddings.weight",
    "embeddings.LayerNorm.weight",
    "embeddings.LayerNorm.bias",
}

SHARED = {"none": set(), "tokens": {"embeddings.word_embeddings.weight"}, "embeddings": EMBEDDINGS}


@pytest.mark.parametrize("family", PLUGS.built_in)
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


@pytest.mark.parametrize("family", PLUGS.built_in)
def test_full_rows_are_not_searched_for_padding(family: str) -> None:
    """GPT-2 reads one number, by which transformers looks for several texts in a row."""
    encoder = build_encoder(spec_of(encoder__family=family))
    with Waits() as waits:
        encoder(inputs(padded=False)[0])
    assert waits.count == (family == "gpt2")


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


def test_initial_weights_of_modernbert_are_those_of_its_class() -> None:
    """Truncated at two standard deviations; the ends of the two branches of L layers divided by sqrt(2 L)."""
    keys = {"encoder__family": "modernbert", "encoder__vocab": 4000, "encoder__layers": 8, "encoder__hidden": 96}
    encoder = build_encoder(spec_of(**keys, encoder__init=0.02, encoder__position_init="sinusoidal"))
    plain = AutoModel.from_config(encoder.model.config)
    assert plain.config.initializer_range == 0.02 and plain.config.initializer_cutoff_factor == 2.0
    theirs = dict(plain.named_parameters())
    assert theirs.keys() == dict(encoder.model.named_parameters()).keys()
    for name, weight in encoder.model.named_parameters():
        if weight.ndim == 1:
            assert bool((weight == 1).all()), name
            continue
        expected = 0.02 / 4 if name.endswith("Wo.weight") else 0.02
        assert weight.std().item() == pytest.approx(expected * 0.8796, rel=0.05), name
        assert weight.std().item() == pytest.approx(theirs[name].std().item(), rel=0.05), name
        assert weight.abs().max() <= 2 * expected * 1.0001, name


def test_the_settings_of_modernbert_have_its_names() -> None:
    keys = {"encoder__family": "modernbert", "encoder__ffn": 100, "encoder__dropout": 0.2}
    config = build_encoder(spec_of(**keys, encoder__attention_dropout=0.3)).model.config
    assert (config.intermediate_size, config.embedding_dropout, config.mlp_dropout) == (100, 0.2, 0.2)
    assert (config.attention_dropout, config.hidden_activation, config.norm_eps) == (0.3, "gelu", 1e-5)
    special = spec_of().data.special
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (special.cls, special.sep, special.pad)


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


@pytest.mark.parametrize("family", ["electra", "albert", "bert"])
def test_a_disentangled_encoder_is_saved_as_one_table(family: str, tmp_path: Path) -> None:
    from transformers import AutoModel

    embedding = {"encoder.embedding": None, "generator.width": 1.0} if family == "bert" else {}
    spec = tiny("rtd", {"tying": "gdes", "encoder.family": family, **embedding})
    objective = shaken(spec).eval()
    batch = synthetic(spec)
    objective.encoder.save(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path).eval()
    assert not [name for name in loaded.state_dict() if "parametrizations" in name]
    torch.testing.assert_close(loaded(batch.ids).last_hidden_state, objective.encoder(batch.ids), rtol=1e-5, atol=1e-5)
    assert torch.equal(loaded.get_input_embeddings().weight, objective.encoder.table.weight)
    assert objective.encoder.table.parametrizations.weight.original.requires_grad  # it can still be trained


@pytest.mark.parametrize("family", ["electra", "albert"])
@pytest.mark.parametrize("tying", ["none", "tokens", "embeddings"])
def test_which_weights_are_shared(tying: str, family: str) -> None:
    objective = build(tiny("rtd", {"tying": tying, "encoder.family": family}))
    main = dict(objective.encoder.model.named_parameters())
    small = dict(objective.generator.body.model.named_parameters())
    assert {name for name in main if name in small and main[name] is small[name]} == SHARED[tying]
    assert len(set(main.values()) & set(small.values())) == len(SHARED[tying])  # nothing else is shared
    assert objective.generator.head.table is objective.generator.body.table
    own = set(objective.generator.head.parameters()) - {objective.generator.head.table.weight}
    assert len(own) == 5  # dense and norm with their biases, and the output bias
    assert own.isdisjoint(main.values())
    width = 16 if tying == "none" else objective.encoder.spec.embedding_width
    assert objective.generator.body.table.weight.shape == (40, width)


def test_untied_embeddings_have_the_generators_own_width_and_no_projection() -> None:
    own = build(tiny("rtd", {"tying": "none", "encoder.hidden": 64})).generator.body
    shared = build(tiny("rtd", {"encoder.hidden": 64})).generator.body
    assert own.table.embedding_dim == 32 and not hasattr(own.model, "embeddings_project")
    assert shared.table.embedding_dim == 16 and shared.model.embeddings_project.weight.shape == (32, 16)


def test_all_tied_is_one_encoder_with_two_heads() -> None:
    objective = build(tiny("rtd", {"tying": "all", "generator.width": 1.0}))
    assert objective.generator.body is objective.encoder
    assert set(objective.generator.head.parameters()) & set(objective.head.parameters()) == set()


def test_building_keeps_the_random_state_of_torch() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    build(tiny("rtd"))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("family", "keys", "problem"),
    [
        ("bert", {"tying": "tokens"}, "no projection"),
        ("bert", {"encoder.embedding": 8}, r"encoder\.embedding=8 must equal"),
        ("deberta-v2", {"tying": "embeddings"}, "set tying=tokens"),
        ("berd", {}, "did you mean 'bert'"),
    ],
)
def test_families_that_cannot_share_these_tables_are_refused(family: str, keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        build(tiny("rtd", {"encoder.family": family, "encoder.embedding": None} | keys))
