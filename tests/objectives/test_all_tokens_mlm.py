"""All-Tokens MLM: every token is copied or predicted, against a slow loop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from objective_oracle import (
    RECIPES,
    ROWS,
    Expected,
    Seen,
    agree,
    binary_logits,
    of_real_text,
    of_synthetic_rows,
    of_tied_weights,
    of_two_segments,
    real_places,
    shaken,
    slow_accuracy,
    slow_answers,
    slow_detection,
    slow_generator,
    slow_replaced,
    synthetic,
    tiny,
    word_logits,
)
from sentence_oracle import LENGTH, made, sentence

from workbench.errors import InputError
from workbench.tensors import Batch


def slow_copy_mixture(gates: np.ndarray, logits: np.ndarray, batch: Batch, seen: Seen) -> float:
    """-log of D [v = the token seen] + (1 - D) softmax(v), at the original, over every real token."""
    losses = []
    for row, place in real_places(batch):
        original, shown = int(batch.ids[row, place]), int(seen.main_input[row, place])
        copying = 1 / (1 + math.exp(-gates[row, place]))
        softmax = np.exp(logits[row, place] - logits[row, place].max())
        p = (1 - copying) * softmax / softmax.sum()
        p[shown] += copying
        losses.append(-math.log(p[original]))
    return sum(losses) / len(losses)


def slow(objective: Any, batch: Batch, seen: Seen) -> Expected:
    real, changed = list(real_places(batch)), seen.main_input != batch.ids.numpy()
    generated, hits = slow_generator(objective, batch, seen)
    gates = binary_logits(objective.encoder, objective.gate, seen.main_input, batch)
    words = word_logits(objective.encoder, objective.head, seen.main_input, batch)
    mixed = slow_copy_mixture(gates, words, batch, seen)
    counts = {
        "replaced_rate": slow_replaced(batch, seen),
        "generator_accuracy": hits,
        "mlm_accuracy": slow_accuracy(words, batch, real),
    }
    return Expected(
        {"generator_loss": generated, "mlm_loss": mixed, "copy_loss": slow_detection(-gates, batch, seen, real)},
        generated + mixed,  # the copy loss has weight 0 unless an option sets another
        counts | slow_answers("copy", gates, ~changed, real),
    )


@ROWS
@RECIPES
def test_equals_a_slow_loop_on_synthetic_rows(recipe: str, lengths: tuple[int, ...] | None) -> None:
    agree(*of_synthetic_rows("all-tokens-mlm", recipe, lengths), slow)


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@RECIPES
def test_equals_a_slow_loop_on_real_text(recipe: str, padded: bool, real_rows: Any) -> None:
    agree(*of_real_text("all-tokens-mlm", recipe, padded, real_rows.words, real_rows.vocab), slow)


@pytest.mark.parametrize("tying", ["none", "tokens", "all"])
def test_equals_a_slow_loop_under_every_tying(tying: str) -> None:
    agree(*of_tied_weights("all-tokens-mlm", tying), slow)


def test_losses_of_two_segments_equal_the_slow_loop() -> None:
    agree(*of_two_segments("all-tokens-mlm"), slow)


def test_the_gate_can_have_its_own_loss() -> None:
    plain, both = tiny("all-tokens-mlm"), tiny("all-tokens-mlm", {"options.copy_loss": 3.0})
    batch = synthetic(plain)
    one, other = shaken(plain)(batch), shaken(both)(batch)
    assert one.parts["copy_loss"].item() == other.parts["copy_loss"].item()
    assert (other.total - one.total).item() == pytest.approx(3 * one.parts["copy_loss"].item(), rel=1e-5)


def test_the_mixture_can_leave_the_gate_untrained() -> None:
    """The loss is the same; the mixture then trains softmax and encoder only, and the copy loss trains the gate."""
    kept, cut = ({"options.copy_loss": 2.0, "options.stop_gradient": stop} for stop in (False, True))
    batch = synthetic(tiny("all-tokens-mlm"))
    one, other = shaken(tiny("all-tokens-mlm", kept)), shaken(tiny("all-tokens-mlm", cut))
    losses = one(batch), other(batch)
    assert losses[0].total.item() == losses[1].total.item()
    for objective, loss in zip((one, other), losses, strict=True):
        loss.values()["mlm_loss"].backward(retain_graph=True)
        assert objective.head.dense.weight.grad.abs().sum() > 0
        assert objective.encoder.table.weight.grad.abs().sum() > 0
    assert one.gate.out.weight.grad.abs().sum() > 0
    assert other.gate.out.weight.grad is None
    other.zero_grad()
    losses[1].total.backward()
    assert other.gate.out.weight.grad.abs().sum() > 0


def test_an_untrained_gate_is_refused() -> None:
    with pytest.raises(InputError, match=r"options\.copy_loss"):
        shaken(tiny("all-tokens-mlm", {"options.stop_gradient": True}))


def test_all_tokens_mlm_uses_its_mixture() -> None:
    """The probability is D + (1 - D) q at every token, since the input contains the token itself."""
    spec, model = made("all-tokens-mlm")
    row = sentence(spec, 3)
    with torch.no_grad():
        hidden = model.encoder(row[None])
        copy, q = model.gate(hidden)[0].sigmoid(), model.head(hidden)[0].softmax(-1)
        inner = range(1, LENGTH - 1)
        expected = sum(float((copy[t] + (1 - copy[t]) * q[t, row[t]]).log()) for t in inner)
        assert float(model.score(row[None], None)) == pytest.approx(expected, rel=1e-6)
