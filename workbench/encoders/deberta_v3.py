"""DeBERTaV3 (He et al. 2023): DeBERTa with 256 buckets of distances on each side, and no table of positions."""

from __future__ import annotations

from typing import Any

from workbench.models import backbones, flops
from workbench.models.flops import Flops
from workbench.models.initial_weights import initialise
from workbench.spec.parts import EncoderSpec, Special

TABLE, EMBEDDINGS, LAYERS = "embeddings.word_embeddings", "embeddings", "encoder.layer"
OWN_WIDTH, PROJECTS_INSIDE = True, True
BUCKETS = 256  # of distances on each side
plain_states, states = backbones.plain_states, backbones.states
to_hub = backbones.save


def build(config: EncoderSpec, special: Special) -> Any:
    """Return a `DebertaV2Model` with the settings of version 3 and initial weights."""
    own = {
        "embedding_size": config.embedding_width, "relative_attention": True, "pos_att_type": ["c2p", "p2c"],
        "position_buckets": BUCKETS, "share_att_key": True, "norm_rel_ebd": "layer_norm",
        "position_biased_input": False,
    }  # fmt: skip
    settings = backbones.bert_settings(config, special) | own
    model = backbones.hugging_face_module("deberta-v2", settings, "eager")
    initialise(model, config.init)
    return model


def cost(config: EncoderSpec, length: int) -> Flops:
    """Return the FLOPs of a row, with the products of queries and keys with the buckets of distances."""
    return flops.transformer(config, length, relative=2 * BUCKETS)
