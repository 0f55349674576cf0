"""What stands on an encoder while it is pre-trained, and is thrown away after.

B rows, N positions, D width of the encoder, E of the embeddings, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from workbench.cpu import portable, vocabulary_loss
from workbench.models.encoder import Encoder, initialise
from workbench.models.losses import copy_mixture_loss, cross_entropy, token_log_likelihood, weighted_mean
from workbench.tensors import Guess


class MlmHead(nn.Module):
    """Dense to embedding width, GELU, layer norm; then the product with a token table, plus a bias of its own.

    The table is the one handed in, so a tied table is trained by this head too (docs/electra.md 1.2 and 2). Losses take
    the way of `cpu/vocabulary_loss.py`, unless `plain` or compiled.
    """

    plain = False

    def __init__(self, encoder: Encoder, table: nn.Embedding) -> None:
        super().__init__()
        self.dense = nn.Linear(encoder.spec.hidden, table.embedding_dim)
        self.norm = nn.LayerNorm(table.embedding_dim, eps=1e-12)
        initialise(self, encoder.spec.init)
        self.table = table
        self.bias = nn.Parameter(table.weight.new_zeros(table.num_embeddings))

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits (..., V) of hidden (..., D)."""
        return F.linear(self._transform(hidden), self.table.weight, self.bias)

    def likelihood(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """log q(target) (B, N) at hidden (B, N, D), and whether the target is the likeliest word, bool (B, N)."""
        return token_log_likelihood(self._transform(hidden), self.table.weight, self.bias, targets)

    @torch.no_grad()
    def log_likelihood(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """log q(target) (N,) at hidden (N, D), in fp32 or wider; no gradient."""
        if self._stepwise:
            return self.likelihood(hidden[None], targets[None])[0][0]
        return vocabulary_loss.log_likelihood(self._transform(hidden), self.table.weight, self.bias, targets)

    def loss(self, hidden: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Mean cross-entropy () at hidden (B, N, D) over weights (B, N), and whether the target is likeliest (B, N)."""
        if self._stepwise:
            likelihood, right = self.likelihood(hidden, targets)
            return -weighted_mean(likelihood, weights), right
        found = self._at_once(hidden, targets, weights)
        return found.loss, found.right

    def copy_loss(
        self, hidden: Tensor, targets: Tensor, weights: Tensor, gate: Tensor, untouched: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `loss`, of the mixture that copies by gate (B, N) where untouched (B, N) (`losses.copy_mixture_loss`)."""
        if self._stepwise:
            likelihood, right = self.likelihood(hidden, targets)
            return weighted_mean(copy_mixture_loss(gate, likelihood, untouched), weights), right
        found = self._at_once(hidden, targets, weights, gate=gate.flatten(), copied=untouched.flatten())
        return found.loss, found.right

    def guess(self, hidden: Tensor, targets: Tensor, weights: Tensor, draws: Tensor, temperature: float = 1.0) -> Guess:
        """As `loss`, with a word (B, N) from softmax(logits / temperature) at draws (B, N) in [0, 1); no gradient.

        Inverse of the cumulative distribution at one number a word: the distribution of Gumbel-max
        (docs/electra.md 1.2), at V times fewer draws.
        """
        if not self._stepwise:
            return self._at_once(hidden, targets, weights, draws=draws.flatten(), temperature=temperature)
        logits = self(hidden)  # (B, N, V)
        scaled = logits.detach().float() / temperature
        words = portable.sample(scaled.softmax(-1).flatten(0, 1), draws.flatten()).view_as(targets)
        loss = weighted_mean(cross_entropy(logits, targets), weights)
        return Guess(words, loss, logits.detach().argmax(-1) == targets, cross_entropy(scaled, words))

    @property
    def _stepwise(self) -> bool:
        return self.plain or torch.compiler.is_compiling()

    def _at_once(self, hidden: Tensor, targets: Tensor, weights: Tensor, **more: Any) -> Guess:
        """`more` is flat, (B * N,)."""
        features = self._transform(hidden).flatten(0, 1)
        found = vocabulary_loss.guess(
            features, self.table.weight, self.bias, targets.flatten(), weights.flatten(), **more
        )
        shaped = {name: getattr(found, name).view_as(targets) for name in ("samples", "right", "surprise")}
        return replace(found, **shaped)

    def _transform(self, hidden: Tensor) -> Tensor:
        """(..., D) to (..., E), ready for the product with the table."""
        out: Tensor = self.norm(F.gelu(self.dense(hidden)))
        return out


class BinaryHead(nn.Module):
    """One logit a position. `linear` is the paper's w.h, `dense` the released code's dense + GELU before it.

    Both start undecided, at ln 2, by last weights of init / sqrt(D). The released code's Glorot gives every token of an
    untrained model about the same logit, and as six in seven tokens are originals, a first RTD loss anywhere between
    41 and 49 at the width of Small.
    """

    def __init__(self, encoder: Encoder, kind: Literal["linear", "dense"]) -> None:
        super().__init__()
        width = encoder.spec.hidden
        self.dense = nn.Linear(width, width) if kind == "dense" else None
        self.out = nn.Linear(width, 1)
        initialise(self, encoder.spec.init)
        nn.init.normal_(self.out.weight, std=encoder.spec.init / math.sqrt(width))

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits (B, N) of hidden (B, N, D)."""
        if self.dense is not None:
            hidden = F.gelu(self.dense(hidden))
        out: Tensor = self.out(hidden).squeeze(-1)
        return out
