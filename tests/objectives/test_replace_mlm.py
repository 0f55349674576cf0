"""Replace MLM: the picks are predicted from samples in the place of [MASK], against a slow loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from objective_oracle import (
    RECIPES,
    ROWS,
    Expected,
    Seen,
    agree,
    counted,
    of_real_text,
    of_synthetic_rows,
    of_tied_weights,
    of_two_segments,
    slow_accuracy,
    slow_generator,
    slow_mlm,
    slow_replaced,
    word_logits,
)
from sentence_oracle import LENGTH, made, sentence

from workbench.tensors import Batch


def slow(objective: Any, batch: Batch, seen: Seen) -> Expected:
    generated, hits = slow_generator(objective, batch, seen)
    words = word_logits(objective.encoder, objective.head, seen.main_input, batch)
    predicted = slow_mlm(words, batch, seen)
    counts = {
        "replaced_rate": slow_replaced(batch, seen),
        "generator_accuracy": hits,
        "mlm_accuracy": slow_accuracy(words, batch, list(counted(seen))),
    }
    return Expected({"generator_loss": generated, "mlm_loss": predicted}, generated + predicted, counts)


@ROWS
@RECIPES
def test_equals_a_slow_loop_on_synthetic_rows(recipe: str, lengths: tuple[int, ...] | None) -> None:
    agree(*of_synthetic_rows("replace-mlm", recipe, lengths), slow)


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@RECIPES
def test_equals_a_slow_loop_on_real_text(recipe: str, padded: bool, real_rows: Any) -> None:
    agree(*of_real_text("replace-mlm", recipe, padded, real_rows.words, real_rows.vocab), slow)


@pytest.mark.parametrize("tying", ["none", "tokens", "all"])
def test_equals_a_slow_loop_under_every_tying(tying: str) -> None:
    agree(*of_tied_weights("replace-mlm", tying), slow)


def test_losses_of_two_segments_equal_the_slow_loop() -> None:
    agree(*of_two_segments("replace-mlm"), slow)


def test_replace_mlm_predicts_every_token_in_one_pass() -> None:
    spec, model = made("replace-mlm")
    row = sentence(spec, 2)
    with torch.no_grad():
        logs = model.head(model.encoder(row[None]))[0].log_softmax(-1)
        expected = sum(float(logs[place, row[place]]) for place in range(1, LENGTH - 1))
        assert float(model.score(row[None], None)) == pytest.approx(expected, rel=1e-6)
