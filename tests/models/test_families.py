"""Built-in families against Hugging Face's own classes of settings and models."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import pytest
import torch
from objective_oracle import tiny
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from workbench.models.encoder import build_encoder
from workbench.models.families import PLUGS, Family, family_of
from workbench.spec.parts import EncoderSpec, Special

EACH = pytest.mark.parametrize("name", PLUGS.built_in)
POSITIONS = {"embeddings.position_embeddings": ("electra", "bert", "roberta", "albert", "deberta-v2"), "wpe": ("gpt2",)}


def family_named(name: str) -> Family:
    return family_of(EncoderSpec(family=name))


@EACH
def test_every_setting_is_one_that_hugging_face_knows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that its class does not have would be kept and never used."""
    given: dict[str, Any] = {}
    real = AutoConfig.for_model
    monkeypatch.setattr(AutoConfig, "for_model", lambda kind, **each: given.update(each) or real(kind, **each))
    family_named(name).build(tiny("bert-mlm", {"encoder.embedding": None}).encoder, Special(pad=1, unk=0))
    kind = "deberta-v2" if name.startswith("deberta") else name
    read_if_present = {"cls_token_id", "sep_token_id", "is_decoder"}
    read_if_present |= {"embedding_size"} if kind == "deberta-v2" else set()
    read_if_present |= {"position_buckets", "share_att_key", "norm_rel_ebd"} if name == "deberta-v3" else set()
    assert given.keys() <= real(kind).to_dict().keys() | read_if_present  # what these do is tested below
    assert given or name == "electra"  # which `test_electra.py` compares


@EACH
def test_tables_are_where_the_family_says(name: str) -> None:
    """The position table, and a projection between embeddings and layers where their widths may differ."""
    family = family_named(name)
    special = {"data.special.pad": 1, "data.special.unk": 0}  # RoBERTa counts positions from that of padding
    objective = "causal-lm" if family.CAUSAL == "always" else "bert-mlm"
    spec = tiny(objective, special | {"encoder.family": name, "encoder.embedding": 16 if family.OWN_WIDTH else None})
    encoder = build_encoder(spec)
    assert encoder.table.embedding_dim == (16 if family.OWN_WIDTH else 32)
    assert encoder.table is encoder.model.get_input_embeddings()
    for path, names in POSITIONS.items():
        if name in names:
            assert attrgetter(path)(encoder.model).embedding_dim in (16, 32)
    ids = torch.full((1, 32), 7)  # as long as a row may be: a table of fewer positions has none for its last token
    assert encoder(ids, torch.ones_like(ids).bool()).shape == (1, 32, 32)
    layers = attrgetter(family.LAYERS)(encoder.model)
    assert isinstance(layers, torch.nn.ModuleList) and len(layers) == (1 if name == "albert" else spec.encoder.layers)


@EACH
def test_a_family_can_be_causal_where_hugging_face_has_a_causal_model_with_its_mask(name: str) -> None:
    kind = "deberta-v2" if name.startswith("deberta") else name
    has_one = type(AutoConfig.for_model(kind)) in MODEL_FOR_CAUSAL_LM_MAPPING
    assert (family_named(name).CAUSAL != "never") == (has_one and name != "xlnet")  # whose orders are given as masks


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
