"""Multi-word selection against a slow loop over rows and positions."""

from __future__ import annotations

import numpy as np
import pytest
from objective_oracle import ROWS, binary_logits, real_places, slow_bce, slow_detection, slow_nll
from successor_oracle import SETTINGS, agree_in_scores, generators_loss, observed, scored, slow_selection


@ROWS
@SETTINGS
def test_multi_word_selection(keys: dict[str, str], lengths: tuple[int, ...] | None) -> None:
    objective, batch, seen, drawn = observed("multi-word-selection", lengths, **keys)
    real = list(real_places(batch))
    detection = slow_detection(
        binary_logits(objective.encoder, objective.head, seen.main_input, batch), batch, seen, real
    )
    generated = generators_loss(objective, batch, seen)
    features, table = slow_selection(objective, objective.selection, seen.main_input, batch)
    losses, right = [], 0
    for row in range(len(batch.ids)):
        for slot in np.flatnonzero(seen.weights[row] > 0):
            place = seen.positions[row, slot]
            words = drawn[row, slot].tolist()
            assert words[0] == int(batch.ids[row, place]) and len(set(words)) == len(words) == 5
            scores = np.array([features[row, place] @ table[word] for word in words])
            losses.append(slow_nll(scores, 0))
            right += bool(scores.argmax() == 0)
    parts = seen.loss.parts
    assert parts["generator_loss"].item() == pytest.approx(generated, rel=1e-5)
    assert parts["discriminator_loss"].item() == pytest.approx(detection, rel=1e-5)
    assert parts["selection_loss"].item() == pytest.approx(np.mean(losses), rel=1e-4)
    assert seen.loss.total.item() == pytest.approx(generated + 5 * detection + 2 * np.mean(losses), rel=1e-4)
    assert [int(part) for part in seen.loss.metrics["selection_accuracy"]] == [right, len(losses)]


def test_a_score_of_multi_word_selection_is_that_of_its_detector() -> None:
    objective, batch = scored("multi-word-selection")
    logits = binary_logits(objective.encoder, objective.head, batch.ids.numpy(), batch)
    agree_in_scores(objective, batch, np.vectorize(lambda logit: -slow_bce(logit, False))(logits))
