"""Heads: their choice among candidates, and the table that they share."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
from objective_oracle import PAD, build, shaken, synthetic, tiny
from scipy import stats

from workbench.models import heads
from workbench.rng import uniform
from workbench.tensors import sample

GPT2 = {"encoder.family": "gpt2", "encoder.embedding": 32}

XLNET: dict[str, Any] = {"encoder.family": "xlnet", "encoder.embedding": 32}


def test_every_candidate_has_a_gradient() -> None:
    """Also the token of padding, which has none where it is an input."""
    head = shaken(tiny("mc-bert")).head
    hidden = torch.randn(1, 1, 32, generator=torch.Generator().manual_seed(0))
    head(hidden, torch.tensor([[[PAD, 7]]])).pow(2).sum().backward()
    assert head.table.weight.grad[[PAD, 7]].any(1).all()


def test_candidates_follow_the_softmax_without_the_original() -> None:
    """Pairs of distinct samples against the probabilities of drawing one after the other, of 60,000 positions."""
    probs = torch.tensor([0.4, 0.3, 0.2, 0.1])
    draws = torch.rand(60_000, 2, generator=torch.Generator().manual_seed(0))
    found = heads._several(probs.expand(60_000, 4), draws, torch.full((60_000,), 1))
    share = {0: 0.4 / 0.7, 2: 0.2 / 0.7, 3: 0.1 / 0.7}
    pairs = [(a, b) for a in share for b in share if a != b]
    expected = [60_000 * share[a] * share[b] / (1 - share[a]) for a, b in pairs]
    observed = [int(((found[:, 0] == a) & (found[:, 1] == b)).sum()) for a, b in pairs]
    assert sum(observed) == 60_000
    assert stats.chisquare(observed, expected).pvalue > 1e-3
    again = heads._several(probs.expand(60_000, 4), draws, None)  # with replacement
    counts = [int(((again[:, 0] == a) & (again[:, 1] == b)).sum()) for a in range(4) for b in range(4)]
    both = [60_000 * float(probs[a] * probs[b]) for a in range(4) for b in range(4)]
    assert stats.chisquare(counts, both, sum_check=False).pvalue > 1e-3


def test_a_certain_original_leaves_other_candidates() -> None:
    probs = torch.zeros(3, 70)
    probs[:, 6] = 1.0
    found = heads._several(probs, torch.tensor([[0.0, 0.5, 0.99, 0.2]] * 3), torch.full((3,), 6))
    assert all(len({6, *row}) == 5 for row in found.tolist())


@pytest.mark.parametrize("without", [False, True])
def test_logits_in_pieces_give_the_same_candidates(without: bool) -> None:
    spec = tiny("mc-bert", {"generator.temperature": 0.7})
    generator = shaken(spec).generator
    hidden = torch.randn(3, 5, generator.body.spec.hidden, generator=torch.Generator().manual_seed(0))
    originals = torch.arange(15).view(3, 5) if without else None
    keys = synthetic(spec, rows=3).keys
    whole = generator.candidates(hidden, keys, 4, originals)
    with mock.patch.object(heads, "CHUNK", 2 * spec.encoder.vocab):
        assert torch.equal(generator.candidates(hidden, keys, 4, originals), whole)
    part = generator.candidates(hidden[1:, :3], keys[1:], 4, None if originals is None else originals[1:, :3])
    assert torch.equal(part, whole[1:, :3])  # neither the other rows nor the number of positions matter
    if not without:
        likely = (generator.head(hidden) / 0.7).softmax(-1).flatten(0, 1)
        draws = uniform(keys, "candidates", 20).view(3, 5, 4)
        for column in range(4):
            assert torch.equal(sample(likely, draws[..., column].flatten()).view(3, 5), whole[..., column])


def test_gpt2_has_no_head_of_its_own() -> None:
    objective = build(tiny("causal-lm", GPT2))
    assert [name for name, _ in objective.named_parameters() if not name.startswith("encoder.")] == []


def test_the_head_of_xlnet_is_its_table_and_a_bias() -> None:
    objective = build(tiny("permutation-lm", XLNET))
    own = [name for name, _ in objective.named_parameters() if not name.startswith("encoder.")]
    assert own == ["head.bias"] and not objective.head.bias.any()
