"""One step of an objective of pairs of segments against Hugging Face's model with both heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from objective_oracle import both_ways, observe, shaken, slow_bce, synthetic, tiny

from workbench.tensors import Batch, StepLoss

LENGTHS = (24, 24, 17, 9, 6, 24)
ROWS = pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "padded"])


def labels_of(objective: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """The masked input of one step, its labels in Hugging Face's form, and the other inputs of a model."""
    seen = observe(objective, batch)
    labels = torch.full_like(batch.ids, -100)
    for row, slot in torch.tensor(seen.weights).nonzero().tolist():
        place = seen.positions[row, slot]
        labels[row, place] = batch.ids[row, place]
    assert batch.broken is not None
    return torch.tensor(seen.main_input), labels, {"attention_mask": batch.attention, "token_type_ids": batch.segments}


def agree_about_pairs(found: StepLoss, total: float, logits: torch.Tensor, broken: torch.Tensor, second: str) -> None:
    """The whole loss is `total`; the pair loss and its counts follow from the logits (B, 2) of Hugging Face."""
    assert found.total.item() == pytest.approx(total, rel=1e-5)
    assert found.total.item() == pytest.approx(sum(part.item() for part in found.parts.values()), rel=1e-6)
    margins = logits[:, 1] - logits[:, 0]
    losses = [slow_bce(float(margin), bool(label)) for margin, label in zip(margins, broken, strict=True)]
    assert found.parts[f"{second}_loss"].item() == pytest.approx(sum(losses) / 6, rel=1e-5)
    right = sum(bool(margin > 0) == bool(label) for margin, label in zip(margins, broken, strict=True))
    assert tuple(map(int, found.metrics[f"{second}_accuracy"])) == (right, 6)
    assert tuple(map(int, found.metrics[f"{second}_broken_rate"])) == (2, 6)
    assert tuple(map(int, found.metrics[f"{second}_positive_rate"])) == (int((margins > 0).sum()), 6)


def agree_in_gradients(name: str, family: dict[str, Any]) -> None:
    """Every weight has the gradient of the written-out loss, and one that is not 0."""
    spec = tiny(name, family | {"encoder.dropout": 0.0, "encoder.attention_dropout": 0.0})
    objective, batch = shaken(spec), synthetic(spec, rows=6, lengths=LENGTHS)
    for weight, mine, other in both_ways(objective, batch):
        assert mine.grad is not None and mine.grad.abs().sum() > 0, weight
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-3, atol=1e-5, msg=weight)
