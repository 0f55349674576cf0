"""BERT (Devlin et al. 2019): embeddings as wide as the layers, computed by `BertModel` of Hugging Face."""

from __future__ import annotations

from typing import Any

from workbench.models import encoder, flops
from workbench.models.encoder import initialise_positions
from workbench.spec.parts import EncoderSpec, Special

TABLE, EMBEDDINGS, LAYERS = "embeddings.word_embeddings", "embeddings", "encoder.layer"
CAUSAL, SEGMENTS = "optional", True
cost = flops.transformer
states, plain_states, states_at = encoder.states, encoder.plain_states, encoder.states_at
to_hub = encoder.save


def build(config: EncoderSpec, special: Special) -> Any:
    """Return a `BertModel` with initial weights."""
    model = encoder.like_bert("bert", config, special)
    first = model.encoder.layer[0].attention.self
    initialise_positions(config, model.embeddings.position_embeddings, first.query.weight, first.key.weight)
    return model
