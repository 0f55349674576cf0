"""ModernBERT (Warner et al. 2024): rotary positions, gated feed-forward, local attention in two of three layers."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from workbench.models import encoder, flops
from workbench.models.encoder import initialise
from workbench.spec.parts import EncoderSpec, Special

TABLE, EMBEDDINGS, LAYERS = "embeddings.tok_embeddings", "embeddings", "layers"
# Local attention costs what attention to the whole row costs, since its scores are computed and masked.
cost = functools.partial(flops.transformer, gated=True)
plain_states, states = encoder.plain_states, encoder.states
to_hub = encoder.save


def build(config: EncoderSpec, special: Special) -> Any:
    """Return a `ModernBertModel` with initial weights, as that class draws them.

    They are BERT's, except that the projection at the end of each of the two residual branches of a layer is drawn from
    a standard deviation of init / sqrt(2 layers) (Warner et al. 2024, appendix A, "Megatron" initialisation).
    """
    settings = {
        "vocab_size": config.vocab, "hidden_size": config.hidden, "num_hidden_layers": config.layers,
        "num_attention_heads": config.head_count, "intermediate_size": config.ffn_width,
        "max_position_embeddings": config.positions, "embedding_dropout": config.dropout,
        "mlp_dropout": config.dropout, "attention_dropout": config.attention_dropout, "hidden_activation": "gelu",
        "initializer_range": config.init, "pad_token_id": special.pad, "cls_token_id": special.cls,
        "bos_token_id": special.cls, "sep_token_id": special.sep, "eos_token_id": special.sep,
    }  # fmt: skip
    model = encoder.hugging_face_module("modernbert", settings, config.attention)
    initialise(model, config.init)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(".Wo.weight"):
                weight.div_(math.sqrt(2 * config.layers))
    return model
