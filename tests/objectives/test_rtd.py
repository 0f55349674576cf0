"""RTD: a detector at every token but padding, against a slow loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from objective_oracle import (
    LENGTHS,
    RECIPES,
    ROWS,
    Expected,
    Seen,
    agree,
    binary_logits,
    build,
    counted,
    observe,
    of_real_text,
    of_synthetic_rows,
    of_tied_weights,
    of_two_segments,
    real_places,
    shaken,
    slow_answers,
    slow_detection,
    slow_generator,
    slow_replaced,
    synthetic,
    tiny,
)

from workbench.tensors import Batch


def slow(objective: Any, batch: Batch, seen: Seen) -> Expected:
    real, changed = list(real_places(batch)), seen.main_input != batch.ids.numpy()
    generated, hits = slow_generator(objective, batch, seen)
    logits = binary_logits(objective.encoder, objective.head, seen.main_input, batch)
    detection = slow_detection(logits, batch, seen, real)
    counts = {"replaced_rate": slow_replaced(batch, seen), "generator_accuracy": hits}
    return Expected(
        {"generator_loss": generated, "discriminator_loss": detection},
        generated + 50 * detection,
        counts | slow_answers("discriminator", logits, changed, real),
    )


@ROWS
@RECIPES
def test_equals_a_slow_loop_on_synthetic_rows(recipe: str, lengths: tuple[int, ...] | None) -> None:
    agree(*of_synthetic_rows("rtd", recipe, lengths), slow)


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@RECIPES
def test_equals_a_slow_loop_on_real_text(recipe: str, padded: bool, real_rows: Any) -> None:
    agree(*of_real_text("rtd", recipe, padded, real_rows.words, real_rows.vocab), slow)


@pytest.mark.parametrize("tying", ["none", "tokens", "all"])
def test_equals_a_slow_loop_under_every_tying(tying: str) -> None:
    agree(*of_tied_weights("rtd", tying), slow)


def test_losses_of_two_segments_equal_the_slow_loop() -> None:
    agree(*of_two_segments("rtd"), slow)


def test_the_batches_contain_right_and_wrong_samples_and_duplicates() -> None:
    """Without these cases, the tests above could not detect that one of them is treated wrongly."""
    spec = tiny("rtd", recipe="released")
    batch = synthetic(spec)
    seen = observe(shaken(spec), batch)
    places = list(counted(seen))
    same = [seen.main_input[at] == int(batch.ids[at]) for at in places]
    assert any(same) and not all(same)
    assert len(set(places)) < len(places)
    assert len(places) < len(list(real_places(batch)))


@pytest.mark.parametrize("recipe", ["paper", "released"])
def test_the_weight_of_a_position(recipe: str) -> None:
    """Every token, or every pick, has the same weight in the mean, as the gradient of a bias shows."""
    spec = tiny("rtd", recipe=recipe)
    batch, objective = synthetic(spec, lengths=LENGTHS), build(spec)
    with torch.no_grad():
        objective.head.out.weight.zero_()
        objective.generator.head.norm.weight.zero_()
    seen = observe(objective, batch)
    grads = torch.autograd.grad(seen.loss.values()["discriminator_loss"], [objective.head.out.bias], retain_graph=True)
    real = list(real_places(batch))
    fakes = sum(seen.main_input[at] != int(batch.ids[at]) for at in real)
    assert grads[0].item() == pytest.approx(0.5 - fakes / len(real), abs=1e-6)

    (grad,) = torch.autograd.grad(seen.loss.values()["generator_loss"], [objective.generator.head.bias])
    picks, vocab = list(counted(seen)), spec.encoder.vocab
    targets = np.bincount([int(batch.ids[at]) for at in picks], minlength=vocab) / len(picks)
    np.testing.assert_allclose(grad.numpy(), 1 / vocab - targets, atol=1e-6)
