"""Picked spans, orders and masks against plain loops over rows and positions, and their frequencies."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_oracle import CLS, MASK, PAD, SEP, UNK, ragged, synthetic, tiny

from workbench.models.corruption import pick_spans, slots, visible_before, visible_except, visible_in_order
from workbench.rng import row_keys, uniform
from workbench.spec.parts import Special
from workbench.tensors import Batch

SPECIAL = Special(pad=PAD, unk=UNK, cls=CLS, sep=SEP, mask=MASK)
FUNCTIONAL = (PAD, CLS, SEP, MASK)


@st.composite
def rows(draw: st.DrawFn) -> Batch:
    """Draw rows of any length with special tokens anywhere; without an attention mask where all are full."""
    batch = draw(ragged(2, 40, 12))
    return Batch(batch.ids, batch.keys, None if batch.attention is None or batch.attention.all() else batch.attention)


def slow_picks(batch: Batch, row: int, alpha: int, longest: int) -> list[int]:
    """The predicted positions of a row: spans from left to right, then single tokens by falling noise."""
    length = batch.ids.shape[1]
    size = length if batch.attention is None else int(batch.attention[row].sum())
    usable = [place for place in range(size) if int(batch.ids[row, place]) not in FUNCTIONAL]
    key, due, many = batch.keys[row : row + 1], max(1, size // alpha), length // (alpha + 1) + 1
    draws, places = uniform(key, "span-sizes", many)[0].tolist(), uniform(key, "span-places", many)[0].tolist()
    shares = np.cumsum([1 / n for n in range(1, longest + 1)])
    picked: list[int] = []
    at = 0
    for draw, place in zip(draws, places, strict=True):
        n = 1 + int((draw * np.float32(shares[-1]) >= shares[:-1].astype(np.float32)).sum())
        start = at + int(np.float32(place) * np.float32(alpha * n))
        picked += [each for each in range(start, start + n) if each in usable]
        at += n + alpha * n
    noise = uniform(key, "singles", length)[0].tolist()
    picked += sorted(set(usable) - set(picked), key=lambda each: -noise[each])
    return picked[: min(due, slots(length, alpha))]


@settings(max_examples=80, deadline=None)
@given(rows(), st.sampled_from([1, 2, 3, 6, 9]), st.integers(1, 6))
def test_picks_agree_with_a_loop(batch: Batch, alpha: int, longest: int) -> None:
    positions, weights = pick_spans(batch, SPECIAL, alpha, longest)
    assert positions.shape == weights.shape == (len(batch.ids), max(1, batch.ids.shape[1] // alpha))
    assert set(weights.unique().tolist()) <= {0.0, 1.0}
    for row in range(len(batch.ids)):
        found = [int(p) for p, w in zip(positions[row], weights[row], strict=True) if w > 0]
        assert found == slow_picks(batch, row, alpha, longest)


def test_a_row_of_512_has_85_predictions_as_in_the_released_code() -> None:
    assert slots(512, 6) == 85


def spans_of(positions: list[int]) -> list[int]:
    """The lengths of runs of neighbouring positions."""
    runs = np.split(np.sort(positions), np.flatnonzero(np.diff(np.sort(positions)) > 1) + 1)
    return [len(run) for run in runs]


def test_predictions_are_spread_over_the_row_and_come_in_spans() -> None:
    ids = torch.full((4000, 128), 9)
    positions, weights = pick_spans(Batch(ids, row_keys(0, torch.arange(4000))), SPECIAL, 6, 5)
    assert bool(weights.all()) and int(weights.sum(1)[0]) == 21
    share = np.bincount(positions.flatten().numpy(), minlength=128) / 4000
    assert (share[:120] > 0.1).all() and (share < 0.25).all()
    lengths = [length for row in positions[:300].tolist() for length in spans_of(row)]
    assert 1.4 < np.mean(lengths) < 2.2  # of single tokens it would be 1.2
    alone, _ = pick_spans(Batch(ids, row_keys(0, torch.arange(4000))), SPECIAL, 6, 1)
    assert np.mean([length for row in alone[:300].tolist() for length in spans_of(row)]) < 1.3


def slow_visible(batch: Batch, row: int, predicted: set[int]) -> np.ndarray:
    """The masks of the released code's `_local_perm`, written out over pairs; [i, j] says that i sees j."""
    length = batch.ids.shape[1]
    size = length if batch.attention is None else int(batch.attention[row].sum())
    noise = uniform(batch.keys[row : row + 1], "order", length)[0].tolist()
    ranks = {place: rank for rank, place in enumerate(sorted(range(length), key=lambda place: noise[place]))}
    functional = {place for place in range(size) if int(batch.ids[row, place]) in FUNCTIONAL}
    placed = predicted | functional
    rank = [ranks[place] if place in placed else -1 for place in range(length)]
    own = [rank[place] if place in predicted else rank[place] + 1 for place in range(length)]
    seen = np.zeros((length, length), bool)
    for i in range(length):
        for j in range(size):
            seen[i, j] = not (j in placed and own[i] <= rank[j])
    return seen


@settings(max_examples=60, deadline=None)
@given(rows())
def test_masks_agree_with_the_rule_of_the_released_code(batch: Batch) -> None:
    positions, weights = pick_spans(batch, SPECIAL, 3, 5)
    found = visible_in_order(batch, SPECIAL, positions, weights)
    for row in range(len(batch.ids)):
        predicted = {int(p) for p, w in zip(positions[row], weights[row], strict=True) if w > 0}
        expected = slow_visible(batch, row, predicted)
        assert (found[row].numpy() == expected).all()
        assert not any(found[row, place, place] for place in predicted)


def test_nothing_leads_from_a_predicted_token_to_its_own_prediction() -> None:
    """What a position may see through the states of others, in any number of layers, never has its own token."""
    spec = tiny("permutation-lm")
    batch = synthetic(spec, rows=40)
    positions, weights = pick_spans(batch, SPECIAL, 3, 5)
    seen = visible_in_order(batch, SPECIAL, positions, weights)
    content = seen | torch.eye(24, dtype=torch.bool)
    reached = seen.float()
    for _ in range(24):
        reached = ((reached @ content.float()) > 0).float()
    own = reached.diagonal(dim1=1, dim2=2).gather(1, positions)
    assert not bool((own * weights).any())


def test_masks_for_scores() -> None:
    ids, attention = torch.tensor([[CLS, 9, 8, SEP, PAD]]), torch.tensor([[1, 1, 1, 1, 0]]).bool()
    for padding in (attention, None):
        real = 5 if padding is None else 4
        before, others = visible_before(ids, padding), visible_except(ids, padding, torch.tensor([2]))
        for i in range(5):
            assert before[0, i].tolist() == [j < i and j < real for j in range(5)]
            assert others[0, i].tolist() == [j != 2 and j < real for j in range(5)]
