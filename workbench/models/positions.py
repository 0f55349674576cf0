"""Initial weights by which positions can be told from the first step on: sinusoids, and attention to neighbours.

With normally distributed initial weights, an encoder first has to learn which tokens are neighbours. Below Small this
takes millions of tokens in which all objectives only learn token frequencies (docs/log.md, 2026-11-25).
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from workbench.errors import InputError
from workbench.models.families import family_of
from workbench.spec.parts import EncoderSpec

BASE = 10_000  # of the sinusoids' wavelengths (Vaswani et al. 2017, section 3.5)
# Of `local`, chosen by measurement (docs/log.md, 2026-11-25).
AMPLITUDE = 3.0  # standard deviation of the position table, as a multiple of that of the token table
PAIRS = 6  # pairs of a sine and a cosine, those of the highest frequencies, by which a head of the first layer attends
FACTOR = 1.125  # of the sum of the pairs' products, which is a head's attention logit where tokens add nothing to it
PROJECTIONS = ("embeddings_project", "embedding_hidden_mapping_in", "embed_proj")  # of embeddings, in all families


def initialise_positions(model: Any, spec: EncoderSpec) -> None:
    """Initialise the position table, and for `local` the first layer's attention, in place.

    A family that tells positions by distances alone is left as it is. Raises InputError for one without a table.
    """
    path = family_of(spec).positions
    if spec.position_init == "normal" or path is None:
        return
    table = attrgetter(path)(model)
    if table is None:
        raise InputError(
            f"encoder.position_init={spec.position_init}: encoder.family={spec.family} has no position table"
        )
    if table.weight.is_meta:  # a meta tensor holds no numbers, and the sines would import torch's compiler
        return
    places, width = table.weight.shape
    local = spec.position_init == "local"
    with torch.no_grad():
        table.weight.copy_(sines(places, width) * spec.init * math.sqrt(2) * (AMPLITUDE if local else 1.0))
        if local:
            _attend_to_neighbours(model, spec, width)


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


def _attend_to_neighbours(model: Any, spec: EncoderSpec, width: int) -> None:
    """Let the heads of the first layer attend to the tokens at `offsets`, through a table `width` wide.

    The query's matrix turns the sinusoids of a position, each a sine and a cosine, into those of the position `offset`
    further; the key's copies them. Their product is greatest where the key has that position, and depends on nothing
    but the distance. Other rows of both matrices stay as they were drawn. If embeddings are projected to the width of
    the layers, the first rows of the projection pass these sinusoids on.
    """
    size = spec.hidden // spec.head_count
    pairs = min(PAIRS, size // 2, width // 2)
    query, key = _query_and_key(model, spec.hidden)
    scale = math.sqrt(FACTOR * math.sqrt(size))
    copied = torch.eye(2 * pairs)
    causal = bool(spec.causal) or family_of(spec).always_causal
    for head, offset in enumerate(offsets(spec.head_count, causal)):
        angles = offset / periods(width)[:pairs]
        turns = torch.stack([angles.cos(), angles.sin(), -angles.sin(), angles.cos()], dim=-1).view(pairs, 2, 2)
        rows = slice(head * size, head * size + 2 * pairs)
        for matrix, part in ((query, torch.block_diag(*turns)), (key, copied)):
            matrix[rows] = 0.0
            matrix[rows, : 2 * pairs] = scale * part
    for name, part in model.named_modules():
        if name.endswith(PROJECTIONS):
            part.weight[: 2 * pairs] = 0.0
            part.weight[: 2 * pairs, : 2 * pairs] = copied


def _query_and_key(model: Any, width: int) -> tuple[Tensor, Tensor]:
    """Return the first layer's matrices (width, width) of queries and keys, as views that can be written to."""
    for part in model.modules():
        for query, key in (("query", "key"), ("query_proj", "key_proj")):
            if hasattr(part, query) and hasattr(part, key):
                return getattr(part, query).weight, getattr(part, key).weight
        if hasattr(part, "c_attn"):  # GPT-2's, transposed and side by side
            both = part.c_attn.weight.T
            return both[:width], both[width : 2 * width]
    raise AssertionError("a family with a position table has queries and keys")
