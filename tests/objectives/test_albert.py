"""ALBERT: its losses against Hugging Face's model with both heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from objective_oracle import shaken, synthetic, tiny
from pair_oracle import ROWS, agree_about_pairs, agree_in_gradients, labels_of
from transformers import AlbertConfig, AlbertForPreTraining

FAMILY = {"encoder.family": "albert"}


def their_albert(objective: Any) -> Any:
    """Hugging Face's model of both losses with the weights of an objective."""
    config = objective.encoder.model.config.to_dict() | {"hidden_act": "gelu", "classifier_dropout_prob": 0.0}
    model = AlbertForPreTraining(AlbertConfig(**config)).eval()
    model.albert.load_state_dict(objective.encoder.model.state_dict(), strict=False)
    model.albert.pooler.load_state_dict(objective.pair_head.dense.state_dict())
    model.predictions.dense.load_state_dict(objective.head.dense.state_dict())
    model.predictions.LayerNorm.load_state_dict(objective.head.norm.state_dict())
    with torch.no_grad():
        model.predictions.bias.copy_(objective.head.bias)
        model.predictions.decoder.bias.copy_(objective.head.bias)
    model.sop_classifier.classifier.load_state_dict(objective.pair_head.out.state_dict())
    return model


@ROWS
def test_both_losses_are_those_of_hugging_face(lengths: tuple[int, ...] | None) -> None:
    spec = tiny("albert", FAMILY)
    objective, batch = shaken(spec).eval(), synthetic(spec, rows=6, lengths=lengths)
    ids, labels, given = labels_of(objective, batch)
    assert batch.broken is not None
    with torch.no_grad():
        output = their_albert(objective).double()(ids, labels=labels, sentence_order_label=batch.broken.long(), **given)
    agree_about_pairs(objective(batch), output.loss.item(), output.sop_logits, batch.broken, "sop")


@pytest.mark.parametrize("family", [{}, FAMILY])
def test_gradients_are_those_of_the_written_out_loss(family: dict[str, Any]) -> None:
    agree_in_gradients("albert", family)
