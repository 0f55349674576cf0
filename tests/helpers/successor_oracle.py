"""What the slow loops of multi-word selection, of the corrected LM of COCO-LM and of MC-BERT have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from objective_oracle import Seen, observe, shaken, slow_corrupted, slow_mlm, spied, synthetic, tiny, word_logits

from workbench.models import corruption
from workbench.models.electra import hugging_face
from workbench.tensors import Batch

SENTENCES = (24, 9, 17)  # lengths of the rows that are scored
SPECIALS = (0, 2, 3, 4)  # tokens that do not count in a score
SETTINGS = pytest.mark.parametrize(
    "keys", [{"recipe": "paper"}, {"recipe": "released"}, {"data.pairs": "next"}], ids=["paper", "released", "pairs"]
)


def observed(name: str, lengths: tuple[int, ...] | None, **keys: Any) -> tuple[Any, Batch, Seen, Any]:
    """The objective, a batch, what was seen of its forward pass, and the candidates that the generator drew."""
    spec = tiny(name, keys)
    objective, batch, drawn = shaken(spec), synthetic(spec, lengths=lengths), []
    with spied(corruption.Generator, "candidates", drawn):
        seen = observe(objective, batch)
    assert (slow_corrupted(batch, seen) == seen.main_input).all()
    return objective, batch, seen, drawn[0].numpy() if drawn else None


def slow_selection(objective: Any, head: Any, ids: np.ndarray, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """The features (B, L, E) of a selection head, and the table (V, E), in float64."""
    encoder = hugging_face(objective.encoder.model).eval().double()
    with torch.no_grad():
        hidden = encoder(torch.tensor(ids), batch.attention, batch.segments).last_hidden_state
        features = torch.nn.functional.gelu(hidden @ head.dense.weight.double().T + head.dense.bias.double())
        centred = features - features.mean(-1, keepdim=True)
        scaled = centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-12).sqrt()
        features = scaled * head.norm.weight.double() + head.norm.bias.double()
    objective.encoder.model.float()
    return features.numpy(), objective.encoder.table.weight.detach().double().numpy()


def generators_loss(objective: Any, batch: Batch, seen: Seen) -> float:
    logits = word_logits(objective.generator.body, objective.generator.head, seen.inputs[0], batch)
    return slow_mlm(logits, batch, seen)


def agree_in_scores(objective: Any, batch: Batch, each: np.ndarray) -> None:
    """The score of a sentence is the sum of what each (B, L) of its tokens has that is neither special nor padding."""
    ids, found = batch.ids.numpy(), objective.score(batch.ids, batch.attention)
    for row, length in enumerate(SENTENCES):
        want = sum(each[row, i] for i in range(length) if ids[row, i] not in SPECIALS)
        assert float(found[row]) == pytest.approx(want, rel=1e-4)


def scored(name: str) -> tuple[Any, Batch]:
    """An objective, and sentences for it."""
    objective = shaken(tiny(name)).eval().requires_grad_(False)
    assert "generator-pll" in objective.scorers()
    return objective, synthetic(objective.spec, rows=len(SENTENCES), lengths=SENTENCES)
