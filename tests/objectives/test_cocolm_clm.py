"""The corrected LM of COCO-LM against a slow loop over rows and positions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from objective_oracle import (
    ROWS,
    binary_logits,
    counted,
    real_places,
    shaken,
    slow_bce,
    slow_nll,
    synthetic,
    tiny,
    word_logits,
)
from successor_oracle import SETTINGS, agree_in_scores, generators_loss, observed, scored


@ROWS
@SETTINGS
def test_cocolm_clm(keys: dict[str, str], lengths: tuple[int, ...] | None) -> None:
    objective, batch, seen, _ = observed("cocolm-clm", lengths, **keys)
    picked = set(counted(seen))
    gates = binary_logits(objective.encoder, objective.gate, seen.main_input, batch)
    words = word_logits(objective.encoder, objective.head, seen.main_input, batch)
    copying = []
    for at in real_places(batch):
        fake = at in picked and int(seen.main_input[at]) != int(batch.ids[at])
        copying.append(slow_bce(float(gates[at]), not fake))
    losses = [slow_nll(words[at], int(batch.ids[at])) / (1 + math.exp(gates[at])) for at in counted(seen)]
    parts = seen.loss.parts
    assert parts["copy_loss"].item() == pytest.approx(np.mean(copying), rel=1e-5)
    assert parts["mlm_loss"].item() == pytest.approx(np.mean(losses), rel=1e-4)
    generated = generators_loss(objective, batch, seen)
    assert seen.loss.total.item() == pytest.approx(generated + 50 * np.mean(copying) + np.mean(losses), rel=1e-4)
    right = sum(int(words[at].argmax()) == int(batch.ids[at]) for at in counted(seen))
    assert [int(part) for part in seen.loss.metrics["mlm_accuracy"]] == [right, len(losses)]


def test_a_score_of_cocolm_is_that_of_its_mixture() -> None:
    objective, batch = scored("cocolm-clm")
    ids = batch.ids.numpy()
    gates = 1 / (1 + np.exp(-binary_logits(objective.encoder, objective.gate, ids, batch)))
    words = word_logits(objective.encoder, objective.head, ids, batch)
    own = np.zeros(ids.shape)
    for at in np.ndindex(ids.shape):
        own[at] = math.exp(-slow_nll(words[at], int(ids[at])))
    agree_in_scores(objective, batch, np.log(gates + (1 - gates) * own))


def test_the_lm_loss_of_cocolm_does_not_train_the_gate() -> None:
    objective = shaken(tiny("cocolm-clm"))
    parts = objective(synthetic(objective.spec)).values()
    grads = torch.autograd.grad(parts["mlm_loss"], list(objective.gate.parameters()), allow_unused=True)
    assert grads == (None, None)
