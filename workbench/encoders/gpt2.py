"""GPT-2 (Radford et al. 2019): no position sees a later one, and tokens are predicted by their table."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from workbench.models import encoder, flops
from workbench.models.encoder import initialise_positions
from workbench.spec.parts import EncoderSpec, Special

TABLE, LAYERS = "wte", "h"
CAUSAL, TIED_HEAD = "always", True
NORMS = ("ln_1", "ln_2", "ln_f")
cost = flops.transformer  # the products of its layers are those of BERT's
plain_states, states = encoder.plain_states, encoder.states
to_hub = encoder.save


def build(config: EncoderSpec, special: Special) -> Any:
    """Return a `GPT2Model` with initial weights."""
    settings = {
        "vocab_size": config.vocab, "n_embd": config.hidden, "n_layer": config.layers, "n_head": config.head_count,
        "n_inner": config.ffn_width, "n_positions": config.positions, "embd_pdrop": config.dropout,
        "resid_pdrop": config.dropout, "attn_pdrop": config.attention_dropout, "initializer_range": config.init,
        "pad_token_id": special.pad, "bos_token_id": special.cls, "eos_token_id": special.sep,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
    }  # fmt: skip
    model = encoder.hugging_face_module("gpt2", settings, config.attention)
    initialise(model, config.init, config.layers)
    query, key, _ = model.h[0].attn.c_attn.weight.detach().T.split(config.hidden)
    initialise_positions(config, model.wpe, query, key, causal=True)
    return model


def initialise(model: Any, std: float, layers: int) -> None:
    """Initialise the weights of Hugging Face's `GPT2Model` in place, as the first GPT-2 was.

    Weights are drawn from a normal distribution of standard deviation `std`, except positions, of half of that (the
    released code, openai/gpt-2, `src/model.py`), and the projections at the end of each of the two residual branches of
    a layer, of std / sqrt(2 layers) (Radford et al. 2019, "Language models are unsupervised multitask learners",
    section 2.3, where N is the number of residual layers). Biases are 0, and the weights of layer norms 1.
    """
    for part in model.modules():
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
    for name, weight in model.named_parameters():
        if name.endswith(".c_proj.weight"):
            nn.init.normal_(weight, std=std / math.sqrt(2 * layers))
        elif weight.ndim == 2:
            nn.init.normal_(weight, std=std / 2 if name == "wpe.weight" else std)
        elif name.endswith("bias"):
            nn.init.zeros_(weight)


def decays(name: str, weight: Any) -> bool:
    """Return whether weight decay applies: to everything but biases and norms."""
    parent, last = name.split(".")[-2:]
    return last != "bias" and parent not in NORMS
