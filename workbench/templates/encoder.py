"""NAME: a pre-norm transformer with learned positions. This line is the summary in `workbench list encoders`.

A family of encoders is a file with two functions, `build` and `cost`. Commands with --set run it:

    workbench check FILE
    workbench run ablation --objective rtd --set encoder.family=FILE --tasks pairs:replace

The hash of the file is part of a run's name, so an edited file makes other runs. All names that a family may define are
in `workbench/models/families.py`; the ones that are left out here have defaults.

B rows, L positions, D = config.hidden, E = config.embedding_width, which is D unless OWN_WIDTH is true.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from workbench.models import flops
from workbench.models.encoder import initialise, initialise_positions
from workbench.models.flops import Flops
from workbench.spec.parts import EncoderSpec, Part, Special

CAUSAL = "optional"  # "optional": config.causal is obeyed; "never" and "always" are the other two
SEGMENTS = True  # whether a second text of a row is told from the first
TABLE = "tokens"  # the attribute of the module that holds the token table
LAYERS = "layers"  # the attribute that holds the layers, whose states linear probes read


class Options(Part):
    """Settings of this family alone, as in `--set encoder.options.gated=true`."""

    gated: bool = False  #: whether feed-forward layers multiply two projections of their input


def build(config: EncoderSpec, special: Special) -> Model:
    """Return the module with its initial weights; torch is seeded before. `special` has the ids of special tokens."""
    model = Model(config, Options(**config.options))
    initialise(model, config.init)  # matrices and tables from a truncated normal distribution, as in BERT
    # Below Small, runs learn sooner if positions can be told apart from the first step on (encoder.position_init).
    first: Any = model.layers[0]
    initialise_positions(config, model.positions, first.query.weight, first.key.weight)
    return model


def cost(config: EncoderSpec, length: int) -> Flops:
    """Return the FLOPs of one forward pass over one row; `workbench check` compares them with torch's counter.

    For other layers, add up `Flops(paper, sparse, matmul)`, or change what `flops.block` returns.
    """
    return flops.transformer(config, length, gated=Options(**config.options).gated)


class Model(nn.Module):
    """Embeddings, layers and a last norm."""

    def __init__(self, config: EncoderSpec, options: Options) -> None:
        super().__init__()
        self.rate = config.dropout
        self.tokens = nn.Embedding(config.vocab, config.embedding_width)
        self.positions = nn.Embedding(config.positions, config.hidden)
        self.segments = nn.Embedding(2, config.hidden)
        self.layers = nn.ModuleList(Layer(config, options) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden)

    def forward(self, ids: Tensor, attention: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Return the states (B, L, D) for ids (B, L).

        attention (B, L) is false at padding, None if no row is padded; segments (B, L) are None if all are 0.
        """
        hidden = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        hidden = hidden + (self.segments.weight[0] if segments is None else self.segments(segments))
        hidden = F.dropout(hidden, self.rate, self.training)
        for layer in self.layers:
            hidden = layer(hidden, attention)
        states: Tensor = self.norm(hidden)
        return states


class Layer(nn.Module):
    """Attention and feed-forward, each after a norm and added to its input."""

    def __init__(self, config: EncoderSpec, options: Options) -> None:
        super().__init__()
        width, inner = config.hidden, config.ffn_width
        self.heads, self.causal = config.head_count, bool(config.causal)
        self.rates = (config.dropout, config.attention_dropout)
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out, self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, inner), nn.Linear(inner, width)
        self.gate = nn.Linear(width, inner) if options.gated else None

    def forward(self, hidden: Tensor, attention: Tensor | None) -> Tensor:
        """Return the output (B, L, D) for hidden (B, L, D)."""
        hidden = hidden + F.dropout(self.attend(self.first_norm(hidden), attention), self.rates[0], self.training)
        normed = self.second_norm(hidden)
        inner = F.gelu(self.inner(normed))
        if self.gate is not None:
            inner = inner * self.gate(normed)
        return hidden + F.dropout(self.outer(inner), self.rates[0], self.training)

    def attend(self, normed: Tensor, attention: Tensor | None) -> Tensor:
        """Return the attention's output (B, L, D) for normed (B, L, D)."""
        query, key, value = (
            part(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )  # (B, heads, L, D / heads)
        mask = None if attention is None else attention[:, None, None].bool()  # (B, 1, 1, L), true at visible keys
        if self.causal:
            length = normed.shape[1]
            earlier = torch.ones(length, length, dtype=torch.bool, device=normed.device).tril()
            mask = earlier if mask is None else mask & earlier
        rate = self.rates[1] if self.training else 0.0
        context = F.scaled_dot_product_attention(query, key, value, mask, rate)
        out: Tensor = self.out(context.transpose(1, 2).flatten(2))
        return out


# Optional: if a Hugging Face class computes the same, `to_hub` writes its config.json and model.safetensors, so that
# AutoModel can load a run's encoder; `from_hub` loads such a folder as this module. Without them, only `workbench
# evaluate` can read the encoder.
#
# def to_hub(model: Model, weights: dict[str, Tensor], folder: Path) -> None: ...
# def from_hub(folder: Path, dropout: float) -> Model: ...
