"""The values that pass between data, objectives and trainer, and the one legend of shapes.

B rows, L positions in a row, K picked positions in a row, D width of the encoder, V size of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from workbench.spec.parts import Special

Ratio = tuple[Tensor, Tensor]  # numerator and denominator, both (): summed apart, so that means over steps are exact


@dataclass(frozen=True)
class Batch:
    """Some rows of token ids.

    ids (B, L) int64; keys (B,) int64, one random key a row, from (seed, place of the row in training), see `rng.py`;
    attention (B, L) bool, True on real tokens, or None when every row is full.
    """

    ids: Tensor
    keys: Tensor
    attention: Tensor | None = None


@dataclass(frozen=True)
class Corruption:
    """A batch with something written over its picked positions.

    ids (B, L) int64, what the model sees; positions (B, K) int64; weights (B, K) float, 0 on unused slots;
    targets (B, K) int64, the original tokens; loss (), the generator's own, 0 where there is no generator.
    """

    ids: Tensor
    positions: Tensor
    weights: Tensor
    targets: Tensor
    loss: Tensor
    metrics: dict[str, Ratio] = field(default_factory=dict)


@dataclass(frozen=True)
class Guess:
    """What a generator says of the picked positions.

    samples (B, K) int64, the words it writes; loss (), the mean of -log p(target) over the picks that count;
    right (B, K) bool, whether the target is its likeliest word; surprise (B, K) float, -log p(sample), whose mean
    estimates the entropy of its words in nats.
    """

    samples: Tensor
    loss: Tensor
    right: Tensor
    surprise: Tensor


@dataclass(frozen=True)
class StepLoss:
    """What an objective returns: total (), its parts under their names (each ()), and metrics as ratios."""

    total: Tensor
    parts: dict[str, Tensor]
    metrics: dict[str, Ratio] = field(default_factory=dict)


def ordinary(ids: Tensor, attention: Tensor | None, special: Special) -> Tensor:
    """Return which of the tokens ids (B, L) are text, (B, L) bool: not [PAD], [CLS], [SEP] or [MASK], and not padding.

    [UNK] is text. `attention` (B, L) is true on tokens, None where every row is full.
    """
    found = torch.ones_like(ids, dtype=torch.bool) if attention is None else attention.bool()
    for token in (special.pad, special.cls, special.sep, special.mask):
        found = found & (ids != token)
    return found
