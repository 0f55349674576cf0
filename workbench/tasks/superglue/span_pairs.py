"""The classifier of two marked spans in a text, such as a pronoun and a name in the Winograd schema challenge."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from workbench.tasks.finetuning.classifier import has_segments, states


class SpanPairClassifier(nn.Module):
    """One linear layer on the states of two spans, each a mean weighted by a softmax of one linear layer.

    This is how SuperGLUE's baseline reads WSC (Wang et al. 2019, section 4.1; the pooling is that of Lee et al. 2017).
    In a causal encoder the states of a span depend only on the text before them.
    """

    def __init__(self, encoder: nn.Module, outputs: int, dropout: float) -> None:
        super().__init__()
        self.encoder: Any = encoder
        self.segments = has_segments(encoder)
        self.language: nn.Module | None = None  # predicts the next token, if that is trained too (`language_loss`)
        self.dropout = nn.Dropout(dropout)
        width = int(encoder.config.hidden_size)  # type: ignore[union-attr, arg-type]
        self.attention = nn.Linear(width, 1)
        self.head = nn.Linear(2 * width, outputs)
        for layer in (self.attention, self.head):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return outputs (B, labels) of input tensors (B, L) with `spans` (B, 2, 2)."""
        return self.classify(self.states(inputs), inputs)

    def states(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the last hidden states (B, L, D) of input tensors (B, L)."""
        return states(self.encoder, self.segments, inputs)

    def classify(self, hidden: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        """Return outputs (B, labels) of the states (B, L, D), at `spans` (B, 2, 2) of the inputs."""
        outputs: Tensor = self.head(self.dropout(self.pooled(hidden, inputs["spans"]).flatten(1)))
        return outputs

    def pooled(self, hidden: Tensor, spans: Tensor) -> Tensor:
        """Return the state of each span (B, 2, D) of the states (B, L, D); a span is its first position and its end."""
        positions = torch.arange(hidden.shape[1], device=hidden.device)
        inside = (positions >= spans[..., :1]) & (positions < spans[..., 1:])  # (B, 2, L)
        scores = self.attention(hidden).transpose(1, 2).float()  # (B, 1, L)
        weights = torch.softmax(scores.masked_fill(~inside, -torch.inf), dim=-1)
        return weights.to(hidden.dtype) @ hidden
