"""Scores of sentences: how plausible each one is to a model. The `score` of each objective is built from these.

B sentences, L positions, D width. Special tokens and padding are never scored, [UNK] is; sums run in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from workbench.models.encoder import Encoder
from workbench.models.heads import MlmHead
from workbench.spec.parts import Special
from workbench.tensors import ordinary

# Tokens, with padding, of the masked copies that are computed at once. A GPU takes as long for small batches as for
# large ones.
TOKENS = {"cpu": 1 << 13, "cuda": 1 << 17}


@dataclass(frozen=True)
class Sentences:
    """A batch of tokenised sentences.

    ids (B, L) int64; attention (B, L) bool, True on tokens, or None if no row is padded; words (B, L) int64, the index
    within the sentence of the word to which each token belongs.
    """

    ids: Tensor
    attention: Tensor | None
    words: Tensor
    kept: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def once(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        """Return a value of these sentences that several scorers use; it is computed on its first use."""
        if name not in self.kept:
            self.kept[name] = compute()
        return self.kept[name]


Scorer = Callable[[Sentences], Tensor]  # the log-plausibility of each sentence (B,), float64


def summed(values: Tensor, ids: Tensor, attention: Tensor | None, special: Special) -> Tensor:
    """Return the sum (B,) of values (B, L) over tokens that are neither special nor padding."""
    return values.double().masked_fill(~ordinary(ids, attention, special), 0.0).sum(1)


def pseudo_log_likelihood(
    encoder: Any, head: Any, ids: Tensor, attention: Tensor | None, special: Special, words: Tensor | None = None
) -> Tensor:
    """Return the sum (B,) of log p(token | all other tokens), with each token masked in its own copy of the sentence.

    Salazar et al. 2020, "Masked language model scoring". If words (B, L) are given, later tokens of the same word are
    masked too: Kauf and Ivanova 2023, "A better way to do masked language model scoring" (word-l2r), which corrects the
    inflated scores of words of several tokens. Logits are computed only at the position that is scored: the
    encoder has `Encoder.states_at`, and the head `MlmHead.log_likelihood`.
    """
    rows, places = ordinary(ids, attention, special).nonzero(as_tuple=True)  # one copy for each token
    columns = torch.arange(ids.shape[1], device=ids.device)
    log_likelihoods = torch.zeros(ids.shape, dtype=torch.float64, device=ids.device)
    size = max(1, TOKENS.get(ids.device.type, TOKENS["cpu"]) // ids.shape[1])
    for start in range(0, len(rows), size):
        row, place = rows[start : start + size], places[start : start + size, None]
        hide = columns == place
        if words is not None:
            hide |= (columns > place) & (words[row] == words[row].gather(1, place))
        copies = torch.where(hide, special.mask, ids[row])
        states = encoder.states_at(copies, None if attention is None else attention[row], place[:, 0])  # (n, D)
        log_likelihoods[row, place[:, 0]] = head.log_likelihood(states, ids[row].gather(1, place)[:, 0]).double()
    return log_likelihoods.sum(1)


def masked_scorers(encoder: Encoder, head: MlmHead, special: Special, prefix: str = "") -> dict[str, Scorer]:
    """Return the two ways of scoring by masks, token by token and word by word, of a masked language model."""
    return {
        f"{prefix}pll": lambda s: s.once(
            f"{prefix}pll", lambda: pseudo_log_likelihood(encoder, head, s.ids, s.attention, special)
        ),
        f"{prefix}pll-word-l2r": lambda s: pseudo_log_likelihood(encoder, head, s.ids, s.attention, special, s.words),
    }
