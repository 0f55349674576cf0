"""Heads: their choice among candidates, and the table that they share."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest import mock

import pytest
import torch
from objective_oracle import PAD, build, shaken, synthetic, tiny
from scipy import stats
from torch import Tensor

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


def drawn(probs: list[float], draws: Tensor, without: Tensor | None) -> list[list[int]]:
    """The candidates (N, C) that a head with this distribution over its first tokens draws at draws (N, C)."""
    head = build(tiny("bert-mlm")).head
    with torch.no_grad():
        head.table.weight.zero_()
        head.bias.fill_(-1e4)[: len(probs)].copy_(torch.tensor(probs).log())
    hidden = torch.zeros(1, len(draws), 32)
    return head.draw(hidden, draws[None], without=None if without is None else without[None])[0].tolist()


def test_candidates_follow_the_softmax_without_the_original() -> None:
    """Pairs of distinct samples against the probabilities of drawing one after the other, of 60,000 positions."""
    probs, count = [0.4, 0.3, 0.2, 0.1], 60_000
    draws = torch.rand(count, 2, generator=torch.Generator().manual_seed(0))
    found = Counter(map(tuple, drawn(probs, draws, torch.full((count,), 1))))
    rest = {0: 0.4 / 0.7, 2: 0.2 / 0.7, 3: 0.1 / 0.7}
    expected = {(a, b): count * rest[a] * rest[b] / (1 - rest[a]) for a in rest for b in rest if a != b}
    assert found.keys() == expected.keys()
    assert stats.chisquare([found[pair] for pair in expected], list(expected.values())).pvalue > 1e-3
    again = Counter(map(tuple, drawn(probs, draws, None)))  # with replacement
    expected = {(a, b): count * probs[a] * probs[b] for a in range(4) for b in range(4)}
    assert stats.chisquare([again[pair] for pair in expected], list(expected.values())).pvalue > 1e-3


def test_a_certain_original_leaves_other_candidates() -> None:
    certain = [1e-30] * 6 + [1.0]
    for row in drawn(certain, torch.tensor([[0.0, 0.5, 0.99, 0.2]] * 3), torch.full((3,), 6)):
        assert len({6, *row}) == 5


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


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_guess_compiled_for_a_gpu_equals_the_plain_one(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, torch's compiler computes it in bf16; a CPU computes the same operations one by one, in fp32."""
    head = shaken(tiny("rtd")).generator.head.to(device)
    head.plain, random = True, torch.Generator().manual_seed(0)
    hidden = torch.randn(4, 50, head.dense.in_features, generator=random).to(device)
    targets = torch.randint(len(head.bias), (4, 50), generator=random).to(device)
    weights, draws = (torch.rand(4, 50, generator=random).to(device) for _ in range(2))
    results = []
    for as_on_gpu in (False, True):
        guess = head.guess
        if as_on_gpu and device == "cuda":
            guess = torch.compile(guess, fullgraph=True)
        elif as_on_gpu:
            monkeypatch.setattr(heads, "_compiled_for_gpu", lambda _: True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            found = guess(hidden, targets, weights, draws, 0.7)
        results.append([found, *torch.autograd.grad(found.loss.value, list(head.parameters()))])
    (plain, *expected), (blocks, *gradients) = results
    near = {"rtol": 1e-4, "atol": 1e-6} if device == "cpu" else {"rtol": 5e-2, "atol": 1e-3}
    torch.testing.assert_close([blocks.loss.value, *gradients], [plain.loss.value, *expected], **near)
    assert blocks.samples.shape == blocks.right.shape == blocks.sample_nll.shape == targets.shape
    assert (blocks.samples == plain.samples).float().mean() > (0.99 if device == "cpu" else 0.9)
    assert (blocks.right == plain.right).float().mean() > 0.95


def test_gpt2_has_no_head_of_its_own() -> None:
    objective = build(tiny("causal-lm", GPT2))
    assert [name for name, _ in objective.named_parameters() if not name.startswith("encoder.")] == []


def test_the_head_of_xlnet_is_its_table_and_a_bias() -> None:
    objective = build(tiny("permutation-lm", XLNET))
    own = [name for name, _ in objective.named_parameters() if not name.startswith("encoder.")]
    assert own == ["head.bias"] and not objective.head.bias.any()
