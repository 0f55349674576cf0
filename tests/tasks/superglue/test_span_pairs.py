"""The head that sees two spans."""

from __future__ import annotations

from pathlib import Path

import torch

from workbench.tasks.common.classification import SpanPairClassifier
from workbench.tasks.common.encoder_folders import load_encoder


def test_the_span_head_sees_its_spans_alone(encoder: Path) -> None:
    model = SpanPairClassifier(load_encoder(encoder, 0.0), 2, 0.0).eval()
    hidden, spans = torch.randn(2, 7, 32), torch.tensor([[[1, 3], [4, 5]], [[0, 1], [2, 7]]])
    pooled = model.pooled(hidden, spans)
    for row, place, (start, end) in ((0, 0, (1, 3)), (0, 1, (4, 5)), (1, 1, (2, 7))):
        weights = torch.softmax(model.attention(hidden[row, start:end])[:, 0], 0)
        assert torch.allclose(pooled[row, place], weights @ hidden[row, start:end], atol=1e-6)
    other = hidden.clone()
    other[0, [0, 3, 5, 6]] = 99.0
    assert torch.equal(model.pooled(other, spans)[0], pooled[0])
