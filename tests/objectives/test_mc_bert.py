"""MC-BERT against a slow loop over rows and positions."""

from __future__ import annotations

import numpy as np
import pytest
from objective_oracle import ROWS, real_places, slow_nll
from successor_oracle import SETTINGS, agree_in_scores, generators_loss, observed, scored, slow_selection


@ROWS
@SETTINGS
def test_mc_bert(keys: dict[str, str], lengths: tuple[int, ...] | None) -> None:
    objective, batch, seen, drawn = observed("mc-bert", lengths, **keys)
    features, table = slow_selection(objective, objective.head, seen.main_input, batch)
    neither = objective.head.neither.weight.detach().double().numpy()[0]
    losses, right, chosen = [], 0, 0
    for at in real_places(batch):
        words, fake = drawn[at].tolist(), int(seen.main_input[at]) != int(batch.ids[at])
        if fake:
            words[0] = int(batch.ids[at])
        scores = np.array([features[at] @ neither, *(features[at] @ table[word] for word in words)])
        losses.append(slow_nll(scores, int(fake)))
        right += bool(scores.argmax() == int(fake))
        chosen += bool(scores.argmax() == 0)
    assert drawn.shape == (12, 24, 9)
    generated = generators_loss(objective, batch, seen)
    assert seen.loss.parts["generator_loss"].item() == pytest.approx(generated, rel=1e-5)
    assert seen.loss.parts["selection_loss"].item() == pytest.approx(np.mean(losses), rel=1e-4)
    assert seen.loss.total.item() == pytest.approx(generated + 50 * np.mean(losses), rel=1e-4)
    assert [int(part) for part in seen.loss.metrics["selection_accuracy"]] == [right, len(losses)]
    assert [int(part) for part in seen.loss.metrics["neither_rate"]] == [chosen, len(losses)]


def test_a_score_of_mc_bert_is_the_probability_of_neither() -> None:
    objective, batch = scored("mc-bert")
    features, table = slow_selection(objective, objective.head, batch.ids.numpy(), batch)
    table = np.concatenate([table, objective.head.neither.weight.detach().double().numpy()])
    each = np.array([[-slow_nll(place @ table.T, len(table) - 1) for place in row] for row in features])
    agree_in_scores(objective, batch, each)
