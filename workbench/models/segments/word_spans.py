"""Picks of whole words in spans of one to three, for masked language models such as ALBERT.

Joshi et al. 2020 mask spans; Lan et al. 2020, section 3.1, give a span of n words a probability proportional to 1 / n.
B rows, L positions, K picks, V size of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from workbench.models.corruption import pick_counts
from workbench.rng import uniform
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, ordinary

LONGEST = 3  # words of a span
_SHARES = [1 / words for words in range(1, LONGEST + 1)]
UP_TO = [below / sum(_SHARES) for below in accumulate(_SHARES)]  # the probability of a span of at most n words


class WordStarts(nn.Module):
    """Which tokens of the vocabulary begin a word, (V,); all of them until `mark_words` is called."""

    table: Tensor

    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        self.spec = spec
        self.register_buffer("table", torch.ones(spec.encoder.vocab, dtype=torch.bool), persistent=False)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return picked positions (B, K) of whole words, and which of them count, as `corruption.pick_positions` does.

        The words of a row are divided into spans of 1 to 3 words. Spans are picked in random order until no word fits
        into the number of picks; of the last span the words that fit are picked. So a row may have fewer picks than K.
        Unlike in google-research/albert, `create_pretraining_data.py`, spans are drawn side by side over the whole row,
        so that no two of them meet at the same words.
        """
        length, slots = batch.ids.shape[1], torch.arange(batch.ids.shape[1] + 1, device=batch.ids.device)
        candidates = ordinary(batch.ids, batch.attention, self.spec.data.special)
        before = nn.functional.pad(candidates, (1, 0))[:, :-1]
        begins = candidates & (self.table[batch.ids] | ~before)  # the first token after [CLS] or [SEP] begins a word
        words = (begins.cumsum(1) - 1).clamp(min=0)
        draws = uniform(batch.keys, "spans", length)
        sizes = 1 + (draws[..., None] >= torch.tensor(UP_TO[:-1], device=draws.device)).sum(-1)
        spans = torch.searchsorted(sizes.cumsum(1), words, right=True)  # (B, L), the span of each token
        rank = uniform(batch.keys, "picks", length).gather(1, spans).masked_fill(~candidates, 2.0)
        order = rank.argsort(dim=1, stable=True)  # the tokens of a span stay together, and in their order
        # A word ends where another one begins, or where the candidates end.
        ends = nn.functional.pad(begins.gather(1, order) | ~candidates.gather(1, order), (0, 1), value=True)
        fits = ends & (slots <= pick_counts(batch, self.spec)[:, None])
        counted = torch.where(fits, slots, 0).amax(1).clamp(max=candidates.sum(1))
        return order[:, : self.spec.picks], (slots[: self.spec.picks] < counted[:, None]).float()


def mark_words(model: nn.Module, starts: Callable[[], NDArray[np.bool_]]) -> None:
    """Pass the tokens (V,) that begin a word to each `WordStarts` in `model`; only then is `starts` called."""
    for part in model.modules():
        if isinstance(part, WordStarts):
            part.table.copy_(torch.from_numpy(starts()))
