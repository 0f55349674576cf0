"""The table of families against Hugging Face's own classes of settings and models."""

from __future__ import annotations

from operator import attrgetter

import pytest
import torch
from objective_oracle import tiny
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from workbench.errors import InputError
from workbench.models.encoder import build_encoder
from workbench.models.families import FAMILIES, family_of

EACH = pytest.mark.parametrize("name", sorted(FAMILIES))
BERTS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings",
         "hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps", "hidden_act")  # fmt: skip


@EACH
def test_each_setting_has_a_name_that_hugging_face_knows(name: str) -> None:
    """A name that its class does not have would be kept and never used."""
    family, known = FAMILIES[name], AutoConfig.for_model(FAMILIES[name].model_type).to_dict()
    for setting in BERTS:
        assert set(family.names.get(setting, (setting,))) <= known.keys(), setting
    read_if_present = {"position_buckets", "share_att_key", "norm_rel_ebd"} if name == "deberta-v3" else set()
    assert family.extra.keys() <= known.keys() | read_if_present  # what these do is tested below


@EACH
def test_tables_are_where_the_family_says(name: str) -> None:
    """The position table, and a projection between embeddings and layers where their widths may differ."""
    family = FAMILIES[name]
    special = {"data.special.pad": 1, "data.special.unk": 0}  # RoBERTa counts positions from that of padding
    spec = tiny("bert-mlm", special | {"encoder.family": name, "encoder.embedding": 16 if family.embedding else None})
    if family.always_causal:
        spec = tiny("causal-lm", {"encoder.family": name, "encoder.embedding": None})
    encoder = build_encoder(spec)
    assert encoder.table.embedding_dim == (16 if family.embedding else 32)
    if family.positions:
        assert attrgetter(family.positions)(encoder.model).embedding_dim in (16, 32)
    ids = torch.full((1, 32), 7)  # as long as a row may be: a table of fewer positions has none for its last token
    assert encoder(ids, torch.ones_like(ids).bool()).shape == (1, 32, 32)


@EACH
def test_a_family_can_be_causal_where_hugging_face_has_a_causal_model_with_its_mask(name: str) -> None:
    family = FAMILIES[name]
    has_one = type(AutoConfig.for_model(family.model_type)) in MODEL_FOR_CAUSAL_LM_MAPPING
    assert family.can_be_causal == (has_one and not family.distances)  # XLNet's orders are given to it as masks
    assert family.can_be_causal or not family.always_causal


def test_deberta_v3_has_buckets_of_distances_and_shared_projections() -> None:
    """Beside DeBERTa's: 2 x 256 normed vectors of distances, no table of positions, no projections of distances."""
    keys = {"encoder.layers": 1, "encoder.embedding": None}
    old, new = (
        dict(build_encoder(tiny("bert-mlm", keys | {"encoder.family": name})).model.named_parameters())
        for name in ("deberta-v2", "deberta-v3")
    )
    distances = "encoder.rel_embeddings.weight"
    assert (old[distances].shape, new[distances].shape) == ((2 * 32, 32), (2 * 256, 32))
    assert new.keys() - old.keys() == {"encoder.LayerNorm.weight", "encoder.LayerNorm.bias"}
    projections = {f"pos_{part}_proj.{kind}" for part in ("key", "query") for kind in ("weight", "bias")}
    gone = {f"encoder.layer.0.attention.self.{name}" for name in projections}
    assert old.keys() - new.keys() == gone | {"embeddings.position_embeddings.weight"}


def test_an_unknown_family_is_refused_with_the_nearest_name() -> None:
    spec = tiny("rtd").encoder.model_copy(update={"family": "robertta"})
    with pytest.raises(InputError, match=r"unknown encoder.family 'robertta'; did you mean 'roberta'"):
        family_of(spec)
