"""The n-gram generator against counts in dictionaries and a loop over positions, and how it is kept."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from objective_oracle import CLS, MASK, PAD, SEP, build, shaken, synthetic, tiny
from safetensors.torch import load_file, save_file

from workbench.errors import InputError
from workbench.models.corruption import mask_for_generator
from workbench.models.export import WEIGHTS, export_heads
from workbench.models.ngram_generators import Ngrams, count_pairs, count_words
from workbench.rng import row_keys, uniform
from workbench.tasks.common.sentence_scorers import _fill
from workbench.tensors import Batch, Corruption

VOCAB = 40
NEVER = (PAD, CLS, SEP, MASK)
TEXT = np.random.default_rng(1).zipf(1.3, 3000) % (VOCAB - 5) + 5
TEXT[::50] = SEP
UNSEEN = 12  # neither a context nor a token of the text
TEXT[TEXT == UNSEEN] = 13


def pairs() -> tuple[Any, Any]:
    found = np.unique(TEXT[:-1] * VOCAB + TEXT[1:], return_counts=True)
    return found[0].astype(np.int64), found[1].astype(np.int64)


def counted(model: Any) -> Any:
    count_words(model, lambda: np.bincount(TEXT, minlength=VOCAB))
    count_pairs(model, pairs)
    return model


def ngrams(objective: str = "rtd", **keys: Any) -> Any:
    return counted(shaken(tiny(objective, {"generator.kind": "ngram", **keys})))


def slow_side(left: bool) -> dict[int, Counter[int]]:
    """How often each token stands to the right of a context (`left`), or to the left of it."""
    seen: dict[int, Counter[int]] = {}
    for before, after in zip(TEXT[:-1].tolist(), TEXT[1:].tolist(), strict=True):
        context, token = (before, after) if left else (after, before)
        if token not in NEVER:
            seen.setdefault(context, Counter())[token] += 1
    return seen


def slow_unigram() -> list[float]:
    counts = [0 if token in NEVER else 1 + int((token == TEXT).sum()) for token in range(VOCAB)]
    return [count / sum(counts) for count in counts]


SIDES, UNIGRAM = {left: slow_side(left) for left in (True, False)}, slow_unigram()


def slow_share(context: int, left: bool) -> list[float]:
    """p(token | context) for all tokens."""
    counts = SIDES[left].get(context, Counter())
    below = counts.total() + len(counts)
    if not below:
        return UNIGRAM
    return [(counts[token] + len(counts) * UNIGRAM[token]) / below for token in range(VOCAB)]


def slow_mixture(left: int, right: int) -> list[float]:
    sides = [slow_share(word, side) for word, side in ((left, True), (right, False)) if word in SIDES[side]]
    sides = sides or [UNIGRAM]
    return [sum(share) / len(sides) for share in zip(*sides, strict=True)]


def at(model: Any, left: int, right: int, rows: int, target: int = 7) -> Any:
    """The guess at one pick of each of `rows` rows, between the same two neighbours."""
    ids = torch.tensor([[left, MASK, right]]).repeat(rows, 1)
    ones = torch.ones(rows, 1)
    picked = Corruption(ids, ones.long(), ones, torch.full((rows, 1), target), torch.zeros(()))
    return model.generator.words.guess(row_keys(3, torch.arange(rows)), picked)


@pytest.mark.parametrize(("left", "right"), [(6, 9), (SEP, 6), (MASK, 9), (9, MASK), (UNSEEN, MASK), (39, 39)])
def test_samples_follow_the_mean_of_both_sides(left: int, right: int) -> None:
    """A chi-square test of 40,000 samples; a neighbour that was never counted leaves the choice to the other."""
    from scipy.stats import chisquare

    guess, share = at(ngrams(), left, right, 40_000), np.array(slow_mixture(left, right))
    drawn, possible = np.bincount(guess.samples.flatten().numpy(), minlength=VOCAB), share > 0
    assert not drawn[~possible].any()
    common = share * 40_000 > 5
    assert common.sum() > 10
    assert chisquare(drawn[common], share[common] * 40_000, sum_check=False).pvalue > 1e-3


@pytest.mark.parametrize("lengths", [None, (24, 9, 3, 17, 24, 2)])
def test_losses_and_accuracy_are_those_of_the_chosen_neighbour(lengths: tuple[int, ...] | None) -> None:
    model = ngrams()
    batch = synthetic(model.spec, rows=6, lengths=lengths)
    batch.ids[:, 4:7] = torch.tensor([6, 9, 6])
    masked = mask_for_generator(batch, model.spec)
    guess = model.generator.words.guess(batch.keys, masked)
    side = uniform(batch.keys, "side", masked.positions.shape[1])
    losses = []
    for row, slot in (masked.weights > 0).nonzero().tolist():
        place, target = int(masked.positions[row, slot]), int(masked.targets[row, slot])
        left, right = int(masked.ids[row, place - 1]), int(masked.ids[row, min(place + 1, 23)])
        known = left in SIDES[True], right in SIDES[False]
        from_left = known[0] > known[1] or (known[0] == known[1] and float(side[row, slot]) < 0.5)
        share = slow_share(left, True) if from_left else slow_share(right, False)
        losses.append(-math.log(share[target]))
        assert bool(guess.right[row, slot]) == (share[target] >= max(share) - 1e-12)
        assert float(guess.sample_nll[row, slot]) == pytest.approx(-math.log(share[int(guess.samples[row, slot])]))
    assert float(guess.loss) == pytest.approx(np.mean(losses), rel=1e-5)
    assert guess.right.any() and not guess.right.all()


def test_scores_use_both_neighbours_of_every_token() -> None:
    model = ngrams()
    batch = synthetic(model.spec, rows=3, lengths=(24, 9, 24))
    found = model.generator.score(batch.ids, batch.attention)
    for row, ids in enumerate(batch.ids.tolist()):
        words = [i for i, token in enumerate(ids) if token not in NEVER]
        want = sum(math.log(slow_mixture(ids[i - 1], ids[i + 1])[ids[i]]) for i in words)
        assert float(found[row]) == pytest.approx(want, rel=1e-6)


def test_the_same_keys_give_the_same_samples_in_any_batch() -> None:
    model = ngrams()
    batch = synthetic(model.spec, rows=6)
    whole = model.generator(batch).ids
    for part in (slice(0, 2), slice(2, 6)):
        assert torch.equal(model.generator(Batch(batch.ids[part], batch.keys[part])).ids, whole[part])
    other = Batch(batch.ids, row_keys(9, torch.arange(6)))
    assert not torch.equal(model.generator(other).ids, whole)


def test_no_table_is_a_weight_or_in_a_checkpoint() -> None:
    model = ngrams()
    assert list(model.generator.parameters()) == [] == list(model.generator.state_dict())


def test_text_without_a_single_pair_leaves_the_unigram() -> None:
    model = shaken(tiny("rtd", {"generator.kind": "ngram"}))
    count_words(model, lambda: np.bincount(TEXT, minlength=VOCAB))
    count_pairs(model, lambda: (np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)))
    guess = at(model, 6, 9, 50)
    assert float(guess.loss) == pytest.approx(-math.log(UNIGRAM[7]), rel=1e-5)


def test_exported_tables_give_the_same_scores(tmp_path: Path) -> None:
    model = ngrams()
    batch, fresh = synthetic(model.spec), build(model.spec)
    export_heads(model, tmp_path)
    (tmp_path / "encoder").mkdir()
    model.encoder.save(tmp_path / "encoder")
    _fill(fresh, tmp_path / "encoder", tmp_path, model.spec)
    assert torch.equal(fresh.generator.score(batch.ids, None), model.generator.score(batch.ids, None))


def test_a_missing_table_is_one_sentence(tmp_path: Path) -> None:
    model = ngrams()
    export_heads(model, tmp_path)
    (tmp_path / "encoder").mkdir()
    model.encoder.save(tmp_path / "encoder")
    kept = load_file(tmp_path / WEIGHTS)
    save_file({name: weight for name, weight in kept.items() if name != "generator.words.counts"}, tmp_path / WEIGHTS)
    with pytest.raises(InputError, match=r"weights lack generator\.words\.counts, so sentences cannot be scored"):
        _fill(model, tmp_path / "encoder", tmp_path, model.spec)


def test_pairs_are_counted_before_they_are_used_and_after_tokens() -> None:
    spec = tiny("rtd", {"generator.kind": "ngram"})
    with pytest.raises(AssertionError, match="before `count` was called"):
        build(spec)(synthetic(spec))
    with pytest.raises(AssertionError, match="pairs are counted before tokens"):
        count_pairs(build(spec), pairs)
    count_pairs(build(tiny("rtd")), lambda: pytest.fail("a transformer needs no counts"))
    assert isinstance(build(spec).generator.words, Ngrams)


def test_a_temperature_is_refused() -> None:
    with pytest.raises(InputError, match=r"generator.temperature=2 cannot be combined with generator.kind=ngram"):
        tiny("rtd", {"generator.kind": "ngram", "generator.temperature": 2.0})
