"""RoBERTa (Liu et al. 2019): BERT without segments, and with positions counted from the id of padding."""

from __future__ import annotations

from typing import Any

from workbench.models import encoder, flops
from workbench.models.encoder import initialise_positions
from workbench.spec.parts import EncoderSpec, Special

TABLE, EMBEDDINGS, LAYERS = "embeddings.word_embeddings", "embeddings", "encoder.layer"
CAUSAL = "optional"
RESERVED = 2  # rows of the position table before the row of the first position
cost = flops.transformer
states, plain_states, states_at = encoder.states, encoder.plain_states, encoder.states_at
to_hub = encoder.save


def build(config: EncoderSpec, special: Special) -> Any:
    """Return a `RobertaModel` with initial weights."""
    places = config.positions + RESERVED
    model = encoder.like_bert("roberta", config, special, max_position_embeddings=places, type_vocab_size=1)
    first = model.encoder.layer[0].attention.self
    initialise_positions(config, model.embeddings.position_embeddings, first.query.weight, first.key.weight)
    return model
