"""What stands on an encoder while it is pre-trained, and is thrown away after.

B rows, N positions, D width of the encoder, E of the embeddings, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from workbench.losses import token_log_likelihood
from workbench.models.encoder import Encoder, initialise


class MlmHead(nn.Module):
    """Dense to embedding width, GELU, layer norm; then the product with a token table, plus a bias of its own.

    The table is the one handed in, so a tied table is trained by this head too (docs/electra.md 1.2 and 2).
    """

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
