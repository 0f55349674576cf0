"""ELECTRA 15%: a detector at the picks alone, against a slow loop."""

from __future__ import annotations

from typing import Any

import pytest
from objective_oracle import (
    RECIPES,
    ROWS,
    Expected,
    Seen,
    agree,
    binary_logits,
    counted,
    of_real_text,
    of_synthetic_rows,
    of_tied_weights,
    of_two_segments,
    slow_answers,
    slow_detection,
    slow_generator,
    slow_replaced,
)

from workbench.tensors import Batch


def slow(objective: Any, batch: Batch, seen: Seen) -> Expected:
    picks, changed = list(counted(seen)), seen.main_input != batch.ids.numpy()
    generated, hits = slow_generator(objective, batch, seen)
    logits = binary_logits(objective.encoder, objective.head, seen.main_input, batch)
    detection = slow_detection(logits, batch, seen, picks)
    counts = {"replaced_rate": slow_replaced(batch, seen), "generator_accuracy": hits}
    return Expected(
        {"generator_loss": generated, "discriminator_loss": detection},
        generated + 50 * detection,
        counts | slow_answers("discriminator", logits, changed, picks),
    )


@ROWS
@RECIPES
def test_equals_a_slow_loop_on_synthetic_rows(recipe: str, lengths: tuple[int, ...] | None) -> None:
    agree(*of_synthetic_rows("electra-15", recipe, lengths), slow)


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@RECIPES
def test_equals_a_slow_loop_on_real_text(recipe: str, padded: bool, real_rows: Any) -> None:
    agree(*of_real_text("electra-15", recipe, padded, real_rows.words, real_rows.vocab), slow)


@pytest.mark.parametrize("tying", ["none", "tokens", "all"])
def test_equals_a_slow_loop_under_every_tying(tying: str) -> None:
    agree(*of_tied_weights("electra-15", tying), slow)


def test_losses_of_two_segments_equal_the_slow_loop() -> None:
    agree(*of_two_segments("electra-15"), slow)
