"""ALBERT (Lan et al. 2020): all layers share the weights of one, and narrow embeddings are projected to their width."""

from __future__ import annotations

import functools
from typing import Any

from workbench.models import encoder, flops
from workbench.models.encoder import initialise_positions
from workbench.spec.parts import EncoderSpec, Special

TABLE, EMBEDDINGS, LAYERS = "embeddings.word_embeddings", "embeddings", "encoder.albert_layer_groups"
OWN_WIDTH, SEGMENTS = True, True
cost = functools.partial(flops.transformer, always_projects=True)  # also if embeddings are as wide as the layers
states, plain_states, states_at = encoder.states, encoder.plain_states, encoder.states_at
to_hub = encoder.save


def build(config: EncoderSpec, special: Special) -> Any:
    """Return an `AlbertModel` with initial weights."""
    model = encoder.like_bert("albert", config, special, embedding_size=config.embedding_width)
    first = model.encoder.albert_layer_groups[0].albert_layers[0].attention
    initialise_positions(
        config, model.embeddings.position_embeddings, first.query.weight, first.key.weight,
        model.encoder.embedding_hidden_mapping_in.weight,
    )  # fmt: skip
    return model
