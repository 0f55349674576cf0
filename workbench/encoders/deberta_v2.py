"""DeBERTa (He et al. 2021), as its version 2: attention also by distances, with a table of 2 x positions of these."""

from __future__ import annotations

from typing import Any

from workbench.models import encoder, flops
from workbench.models.encoder import initialise_positions
from workbench.models.flops import Flops
from workbench.spec.parts import EncoderSpec, Special

TABLE, EMBEDDINGS, LAYERS = "embeddings.word_embeddings", "embeddings", "encoder.layer"
OWN_WIDTH, PROJECTS_INSIDE = True, True
plain_states, states = encoder.plain_states, encoder.states
to_hub = encoder.save


def relative(config: EncoderSpec, special: Special, **own: Any) -> Any:
    """Return a `DebertaV2Model` with `own` settings, and initial weights but for positions."""
    own |= {"embedding_size": config.embedding_width, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
    return encoder.like_bert("deberta-v2", config, special, "eager", **own)


def build(config: EncoderSpec, special: Special) -> Any:
    """Return a `DebertaV2Model` with initial weights; its attention has no fused implementation."""
    model = relative(config, special)
    first, project = model.encoder.layer[0].attention.self, getattr(model.embeddings, "embed_proj", None)
    initialise_positions(
        config, model.embeddings.position_embeddings, first.query_proj.weight, first.key_proj.weight,
        None if project is None else project.weight,
    )  # fmt: skip
    return model


def cost(config: EncoderSpec, length: int) -> Flops:
    """Return the FLOPs of a row, with the products of queries and keys with relative positions."""
    return flops.transformer(config, length, relative=2 * config.positions)
