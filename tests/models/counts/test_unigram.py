"""Generators without weights: their samples and losses are those of the token frequencies, or uniform."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from objective_oracle import CLS, MASK, PAD, SEP, build, shaken, synthetic, tiny
from scipy.stats import chisquare

from workbench.models.corruption import mask_tokens
from workbench.models.ngram_generators import WordFrequencies, count_words
from workbench.rng import row_keys, uniform
from workbench.tensors import Batch

VOCAB = 40

COUNTS = np.random.default_rng(0).integers(0, 60, VOCAB)

KINDS = pytest.mark.parametrize("kind", ["unigram", "uniform"])


def fixed(kind: str, keys: dict[str, Any] | None = None) -> tuple[Any, Batch]:
    """RTD with a generator whose tokens are counted, and a batch for it."""
    spec = tiny("rtd", {"generator.kind": kind, **(keys or {})})
    model = shaken(spec)
    count_words(model, lambda: COUNTS)
    return model, synthetic(spec)


def expected_share(kind: str, temperature: float = 1.0) -> np.ndarray:
    if kind == "uniform":
        return np.full(VOCAB, 1 / VOCAB)
    share = (COUNTS + 1.0) ** (1 / temperature)
    share[[PAD, CLS, SEP, MASK]] = 0
    return share / share.sum()


@KINDS
def test_a_generator_of_token_frequencies_samples_and_scores_by_them(kind: str) -> None:
    spec = tiny("rtd", {"generator.kind": kind})
    batch, generator = synthetic(spec, rows=4, lengths=[24, 12, 2, 9]), shaken(spec).generator
    generator.words.count(torch.arange(spec.encoder.vocab))
    masked = mask_tokens(batch, spec, 1.0)
    guess, share = generator.guess(batch, masked), generator.words.log_share
    draws = uniform(batch.keys, "sample", spec.picks)
    assert torch.equal(guess.samples, generator.words(draws, masked.targets, masked.weights).samples)
    assert float(guess.loss) == pytest.approx(float(-share[masked.targets[masked.weights > 0]].mean()), rel=1e-5)
    assert generator.scorers() == {}

    found = generator.score(batch.ids, batch.attention)
    for row, ids in enumerate(batch.ids.tolist()):
        words = [share[word] for word in ids if word not in (PAD, CLS, SEP, MASK)]
        assert float(found[row]) == pytest.approx(float(sum(words)), rel=1e-5)
    batch.ids[1, 20] = 9  # a token in the padding
    assert torch.equal(generator.score(batch.ids, batch.attention), found)


def test_the_uniform_generators_loss_is_ln_v() -> None:
    model, batch = fixed("uniform")
    loss = model(batch)
    assert loss.parts["generator_loss"].item() == pytest.approx(math.log(VOCAB), rel=1e-6)
    hits, among = loss.metrics["generator_entropy"]
    assert (hits / among).item() == pytest.approx(math.log(VOCAB), rel=1e-6)


def test_tokens_must_be_counted_before_they_are_sampled() -> None:
    spec = tiny("rtd", {"generator.kind": "unigram"})
    with pytest.raises(AssertionError, match="before `count` was called"):
        build(spec)(synthetic(spec))


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@KINDS
def test_samples_follow_the_token_frequencies(kind: str, temperature: float) -> None:
    """A chi-square test of 60,000 samples against the distribution; tokens of probability 0 are never sampled."""
    model, _ = fixed(kind, {"generator.temperature": temperature})
    share, draws = expected_share(kind, temperature), uniform(row_keys(3, torch.arange(6000)), "sample", 10)
    guess = model.generator.words(draws, torch.full((6000, 10), 7), torch.ones(6000, 10))
    drawn = np.bincount(guess.samples.flatten().numpy(), minlength=VOCAB)
    possible = share > 0
    assert not drawn[~possible].any()
    assert chisquare(drawn[possible], share[possible] * drawn.sum()).pvalue > 1e-3
    assert guess.loss.item() == pytest.approx(-math.log(share[7]), rel=1e-5)
    np.testing.assert_allclose(guess.sample_nll.numpy(), -np.log(share[guess.samples.numpy()]), rtol=1e-5)


@given(st.lists(st.integers(0, 10**9), min_size=VOCAB, max_size=VOCAB))
def test_probabilities_are_those_of_counts_raised_by_one(counts: list[int]) -> None:
    words = WordFrequencies(tiny("rtd", {"generator.kind": "unigram"}))
    words.count(torch.tensor(counts))
    never = (PAD, CLS, SEP, MASK)
    raised = np.array([0 if token in never else count + 1 for token, count in enumerate(counts)], dtype=float)
    np.testing.assert_allclose(words.log_share.exp().numpy(), raised / raised.sum(), rtol=1e-4, atol=1e-7)
    ends = words.sample(torch.tensor([0.0, 1 - 2**-24]))
    assert all(raised[token] > 0 for token in ends.tolist())  # also where a draw falls on an edge
