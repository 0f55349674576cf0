"""BERT MLM: the picks are predicted from a masked input, against a slow loop."""

from __future__ import annotations

from typing import Any

import pytest
from objective_oracle import (
    MASK,
    RECIPES,
    ROWS,
    Expected,
    Seen,
    agree,
    counted,
    observe,
    of_real_text,
    of_synthetic_rows,
    of_two_segments,
    shaken,
    slow_accuracy,
    slow_mlm,
    slow_replaced,
    synthetic,
    tiny,
    word_logits,
)

from workbench.tensors import Batch


def slow(objective: Any, batch: Batch, seen: Seen) -> Expected:
    words = word_logits(objective.encoder, objective.head, seen.main_input, batch)
    predicted = slow_mlm(words, batch, seen)
    counts = {
        "replaced_rate": slow_replaced(batch, seen),
        "mlm_accuracy": slow_accuracy(words, batch, list(counted(seen))),
    }
    return Expected({"mlm_loss": predicted}, predicted, counts)


@ROWS
@RECIPES
def test_equals_a_slow_loop_on_synthetic_rows(recipe: str, lengths: tuple[int, ...] | None) -> None:
    agree(*of_synthetic_rows("bert-mlm", recipe, lengths), slow)


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@RECIPES
def test_equals_a_slow_loop_on_real_text(recipe: str, padded: bool, real_rows: Any) -> None:
    agree(*of_real_text("bert-mlm", recipe, padded, real_rows.words, real_rows.vocab), slow)


def test_losses_of_two_segments_equal_the_slow_loop() -> None:
    agree(*of_two_segments("bert-mlm"), slow)


@pytest.mark.parametrize(
    ("recipe", "shares", "expected"),
    [
        ("paper", {}, (0.8, 0.1)),
        ("released", {}, (0.85, 0.0)),
        ("paper", {"corruption.mask": 1.0, "corruption.random": 0.0}, (1.0, 0.0)),
    ],
    ids=["80/10/10", "85/15/0", "100/0/0"],
)
def test_the_input_of_bert_mlm(recipe: str, shares: dict[str, float], expected: tuple[float, float]) -> None:
    """BERT MLM uses its own shares of [MASK] and random tokens, not those of the generator."""
    spec = tiny("bert-mlm", {"corruption.generator_mask": 0.3, "corruption.picks": "distinct"} | shares, recipe=recipe)
    batch = synthetic(spec, rows=400)
    seen = observe(shaken(spec), batch)
    picks, vocab = list(counted(seen)), spec.encoder.vocab
    shown = [(int(seen.main_input[at]), int(batch.ids[at])) for at in picks]
    masked = sum(token == MASK for token, _ in shown) / len(picks)
    other = sum(token not in (MASK, original) for token, original in shown) / len(picks)
    mask, random = expected
    assert masked == pytest.approx(mask + random / vocab, abs=0.03)
    assert other == pytest.approx(random * (1 - 2 / vocab), abs=0.03)
    if not random:
        assert other == 0
    if mask == 1:
        assert masked == 1
