"""Scores of sentences by a detector whose logits are known: a table by token, in place of encoder and head.

With real encoders, heads and generators they are tested in `tests/models/test_sentence_scores.py`.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from workbench.models.detection import Detector
from workbench.models.sentence_scores import Sentences
from workbench.spec.parts import Special

S = Special(pad=0, unk=1, cls=2, sep=3, mask=4)
TEXT = (S.unk, 5, 6, 7)  # ids that count; the others are special


class Known:
    """A detector over ids 0 to 7, and what its encoder was given."""

    def __init__(self, logits: list[float], dtype: torch.dtype = torch.float32) -> None:
        self.logits = logits
        self.masks: list[Tensor | None] = []
        table = torch.tensor(logits, dtype=dtype)
        generator: Any = SimpleNamespace(
            spec=SimpleNamespace(data=SimpleNamespace(special=S)), score=self.own,
            scorers=lambda: {"generator-pll": lambda s: self.own(s.ids, s.attention)},
        )  # fmt: skip
        encoder: Any = self.read
        head: Any = lambda ids: table[ids]  # noqa: E731
        self.detector = Detector(encoder, head, generator)

    def read(self, ids: Tensor, attention: Tensor | None) -> Tensor:
        self.masks.append(attention)
        return ids

    def own(self, ids: Tensor, attention: Tensor | None) -> Tensor:
        return -ids.double().sum(1)

    def text(self, row: list[int], length: int) -> list[float]:
        """Return the logits of the tokens that count."""
        return [self.logits[token] for token in row[:length] if token in TEXT]


LOGITS = st.lists(st.floats(-30, 30, width=32), min_size=8, max_size=8)
ROWS = st.lists(st.lists(st.integers(0, 7), min_size=5, max_size=5), max_size=3)


@settings(max_examples=40, deadline=None)
@given(LOGITS, ROWS, st.integers(0, 5))
def test_both_scores_are_sums_over_text_alone(logits: list[float], rows: list[list[int]], length: int) -> None:
    """log P(original) = -log(1 + exp(logit)) of each token; the other score subtracts the logits themselves."""
    known = Known(logits)
    ids = torch.tensor(rows, dtype=torch.long).reshape(len(rows), 5)
    attention = torch.arange(5).expand(len(rows), -1) < length
    texts = [known.text(row, length) for row in rows]
    expected = [sum(-math.log1p(math.exp(logit)) for logit in text) for text in texts]
    found = known.detector.originality(ids, attention)
    assert found.dtype == torch.float64 and found.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)
    expected = [-sum(row) - sum(text) for row, text in zip(rows, texts, strict=True)]
    assert known.detector.electric(ids, attention).tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert [mask is attention for mask in known.masks] == [True, True]


def test_without_padding_every_token_that_is_not_special_counts() -> None:
    known = Known([100.0, 1.0, 100.0, 100.0, 100.0, 0.0, 0.0, 2.0])
    ids = torch.tensor([[S.cls, S.unk, 7, S.mask, S.sep], [S.cls, S.sep, S.pad, S.pad, S.pad]])
    assert known.detector.electric(ids, None).tolist() == [-17 - 3, -5]
    assert known.detector.originality(ids, None).tolist() == pytest.approx([-1.3132617 - 2.1269280, 0], abs=1e-6)


def test_logits_of_any_size_and_width_keep_their_order() -> None:
    """Of a detector that is sure, 1 - sigmoid(logit) would be 0 and its logarithm infinite; bf16 sums would round."""
    known = Known([0.0] * 5 + [1e4, -1e4, 90.0], torch.bfloat16)
    scores = known.detector.originality(torch.tensor([[5], [6], [7]]), None)
    assert scores.tolist() == [pytest.approx(-1e4, rel=4e-3), 0.0, -90.0]
    long = Known([0.0] * 5 + [0.0, 0.0, 1.0], torch.bfloat16)
    assert float(long.detector.electric(torch.full((1, 3000), 7), None)) == -7 * 3000 - 3000


def test_its_own_ways_to_score_come_before_those_of_the_generator() -> None:
    known = Known([0.5] * 8)
    ids = torch.tensor([[5, 6, S.sep]])
    given_to_it = Sentences(ids, torch.tensor([[True, False, False]]), ids)
    found = {name: float(scorer(given_to_it)) for name, scorer in known.detector.scorers().items()}
    assert list(found) == ["originality", "electric", "generator-pll"]
    assert found == pytest.approx({"originality": -math.log1p(math.exp(0.5)), "electric": -14.5, "generator-pll": -14})
