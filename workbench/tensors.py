"""The values that data, objectives and trainer exchange, and the letters that name the shapes of tensors.

B rows, L positions in a row, K picked positions in a row, D width of the encoder, V size of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from workbench.spec.parts import Special

Ratio = tuple[Tensor, Tensor]  # numerator and denominator, () each: summed separately, means over steps are exact


@dataclass(frozen=True)
class Batch:
    """A batch of token ids.

    ids (B, L) int64; keys (B,) int64, a random key for each row, computed from the seed and the place of the row in
    training (`rng.py`); attention (B, L) bool, True on tokens, or None if no row is padded.
    """

    ids: Tensor
    keys: Tensor
    attention: Tensor | None = None


@dataclass(frozen=True)
class Corruption:
    """A batch in which tokens at the picked positions are masked or replaced.

    ids (B, L) int64, the input of the model; positions (B, K) int64, the picks; weights (B, K) float, 0 for picks that
    do not count; targets (B, K) int64, the original tokens; loss (), the generator's own, 0 without a generator.
    """

    ids: Tensor
    positions: Tensor
    weights: Tensor
    targets: Tensor
    loss: Tensor
    metrics: dict[str, Ratio] = field(default_factory=dict)


@dataclass(frozen=True)
class Guess:
    """The predictions of a generator at the picked positions.

    samples (B, K) int64, the tokens it samples; loss (), the mean of -log p(target) over the picks that count;
    right (B, K) bool, whether the target is its most probable token; sample_nll (B, K) float, -log p(sample), whose
    mean estimates the entropy of its distribution in nats.
    """

    samples: Tensor
    loss: Tensor
    right: Tensor
    sample_nll: Tensor


@dataclass(frozen=True)
class StepLoss:
    """The result of an objective: the total loss and its parts by name, () each, and metrics as ratios."""

    total: Tensor
    parts: dict[str, Tensor]
    metrics: dict[str, Ratio] = field(default_factory=dict)


def ordinary(ids: Tensor, attention: Tensor | None, special: Special) -> Tensor:
    """Return which of the tokens ids (B, L) are text, bool (B, L): not [PAD], [CLS], [SEP] or [MASK], and not padding.

    [UNK] counts as text. attention (B, L) is True on tokens, or None if no row is padded.
    """
    is_text = torch.ones_like(ids, dtype=torch.bool) if attention is None else attention.bool()
    for token in (special.pad, special.cls, special.sep, special.mask):
        is_text = is_text & (ids != token)
    return is_text
