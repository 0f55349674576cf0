"""Initial weights of encoders and heads: random ones, and positions that can be told apart from the first step on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from workbench.rng import seed_of
from workbench.spec.parts import EncoderSpec

PROJECTIONS = ("embeddings_project", "embedding_hidden_mapping_in", "embed_proj")  # of embeddings, in all families


@contextmanager
def seeded(seed: int, *stream: str | int) -> Iterator[None]:
    """Seed torch's CPU random numbers from a stream inside the block, and restore their former state after it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, *stream))
        yield


def initialise(module: nn.Module, std: float) -> None:
    """Initialise the weights of a module in place (docs/electra.md 2).

    Matrices and tables are drawn from a normal distribution of standard deviation `std`, truncated at two of these, and
    projections of embeddings by Glorot uniform. Biases and the embedding of padding are 0.
    """
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear):
            if name.endswith(PROJECTIONS):
                nn.init.xavier_uniform_(part.weight)
            else:
                nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std)
            if part.padding_idx is not None:
                with torch.no_grad():
                    part.weight[part.padding_idx].zero_()
        elif isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


# ----------------------------------------
# Initial weights by which positions can be told from the first step on: sinusoids, and attention to neighbours.
#
# With normally distributed initial weights, an encoder first has to learn which tokens are neighbours. Below Small
# this takes millions of tokens in which all objectives only learn token frequencies (docs/log.md, 2026-11-25).


BASE = 10_000  # of the sinusoids' wavelengths (Vaswani et al. 2017, section 3.5)
# Of `local`, chosen by measurement (docs/log.md, 2026-11-25).
AMPLITUDE = 3.0  # standard deviation of the position table, as a multiple of that of the token table
PAIRS = 6  # pairs of a sine and a cosine, those of the highest frequencies, by which a head of the first layer attends
FACTOR = 1.125  # of the sum of the pairs' products, which is a head's attention logit where tokens add nothing to it


def initialise_positions(
    config: EncoderSpec, table: nn.Embedding, query: Tensor, key: Tensor, project: Tensor | None = None,
    causal: bool = False,
) -> None:  # fmt: skip
    """Initialise the position table, and for `local` the first layer's attention, in place.

    `query` and `key` (D, D) are the first layer's matrices, (out, in), and `project` (D, E) is the projection of the
    embeddings, if there is one. A family that tells positions by distances alone does not call this.
    """
    if config.position_init == "normal" or table.weight.is_meta:  # drawing sines would import torch's compiler
        return
    places, width = table.weight.shape
    local = config.position_init == "local"
    with torch.no_grad():
        table.weight.copy_(sines(places, width) * config.init * math.sqrt(2) * (AMPLITUDE if local else 1.0))
        if local:
            _attend_to_neighbours(config, width, query, key, project, causal or bool(config.causal))


def periods(width: int) -> Tensor:
    """Return the tokens (width / 2,) in which each sinusoid of a table of this width advances by one radian."""
    return BASE ** (torch.arange(0, width, 2) / width)


def sines(places: int, width: int) -> Tensor:
    """Return sines and cosines (places, width) in turn, the highest frequency first."""
    angles = torch.arange(places)[:, None] / periods(width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]


def offsets(heads: int, causal: bool) -> list[int]:
    """Return the distance to the token that each head attends to: 1, -1, 2, -2 ..., or -1, -2 ... if it is causal."""
    return [-1 - head if causal else (1 + head // 2) * (-1) ** head for head in range(heads)]


def _attend_to_neighbours(
    config: EncoderSpec, width: int, query: Tensor, key: Tensor, project: Tensor | None, causal: bool
) -> None:
    """Let the heads of the first layer attend to the tokens at `offsets`, through a table `width` wide.

    The query's matrix turns the sinusoids of a position, each a sine and a cosine, into those of the position `offset`
    further; the key's copies them. Their product is greatest where the key has that position, and depends on nothing
    but the distance. Other rows of both matrices stay as they were drawn. If embeddings are projected to the width of
    the layers, the first rows of the projection pass these sinusoids on.
    """
    size = config.hidden // config.head_count
    pairs = min(PAIRS, size // 2, width // 2)
    scale = math.sqrt(FACTOR * math.sqrt(size))
    copied = torch.eye(2 * pairs)
    for head, offset in enumerate(offsets(config.head_count, causal)):
        angles = offset / periods(width)[:pairs]
        turns = torch.stack([angles.cos(), angles.sin(), -angles.sin(), angles.cos()], dim=-1).view(pairs, 2, 2)
        rows = slice(head * size, head * size + 2 * pairs)
        for matrix, part in ((query, torch.block_diag(*turns)), (key, copied)):
            matrix[rows] = 0.0
            matrix[rows, : 2 * pairs] = scale * part
    if project is not None:
        project[: 2 * pairs] = 0.0
        project[: 2 * pairs, : 2 * pairs] = copied
