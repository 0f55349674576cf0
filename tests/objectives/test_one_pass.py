"""Losses over the whole vocabulary in one pass against the plain computation: values, gradients, samples, memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from objective_oracle import NAMES, shaken, synthetic, tiny
from scipy import stats
from torch import Tensor

from workbench.cpu import vocabulary_loss
from workbench.models.losses import copy_mixture_loss
from workbench.training.loop import plainly


def inputs(rows: int = 21, width: int = 5, vocab: int = 150) -> tuple[list[Tensor], Tensor, Tensor]:
    numbers = torch.Generator().manual_seed(0)
    sizes = ((rows, width), (vocab, width), (vocab,), (rows,))  # features, table, bias, gate
    learnt = [torch.randn(size, generator=numbers, dtype=torch.float64).requires_grad_() for size in sizes]
    return learnt, torch.randint(0, vocab, (rows,), generator=numbers), torch.rand(rows, generator=numbers).double()


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("copying", [False, True])
def test_loss_and_gradients_agree_with_the_softmax(copying: bool, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They agree with autograd through the formula, for several sizes of chunks and a gradient other than 1."""
    monkeypatch.setitem(vocabulary_loss.CHUNK, "cpu", chunk * 150 * 8)  # logits of 8 bytes
    (features, table, bias, gate), targets, weights = inputs()
    untouched = torch.arange(21) % 3 > 0
    likelihood = (features @ table.T + bias).log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    losses = copy_mixture_loss(gate, likelihood, untouched).double() if copying else -likelihood
    expected = (weights * losses).sum() / weights.sum()
    learnt = [features, table, bias, *([gate] if copying else [])]
    gradients = torch.autograd.grad(3 * expected, learnt)

    more: dict[str, Any] = {"gate": gate, "copied": untouched} if copying else {}
    found = vocabulary_loss.guess(features, table, bias, targets, weights, **more)
    torch.testing.assert_close(found.loss.double(), expected, rtol=1e-6, atol=1e-6)
    for one, other in zip(torch.autograd.grad(3 * found.loss, learnt), gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert torch.equal(found.right, (features @ table.T + bias).argmax(-1) == targets)


def test_rows_that_do_not_count_have_no_gradient() -> None:
    (features, table, bias, _), targets, weights = inputs()
    weights[::2] = 0
    (gradient,) = torch.autograd.grad(vocabulary_loss.guess(features, table, bias, targets, weights).loss, [features])
    assert not gradient[::2].any() and gradient[1::2].any(1).all()
    nothing = vocabulary_loss.guess(features, table, bias, targets, weights * 0).loss
    assert nothing == 0 and not torch.autograd.grad(nothing, [table])[0].any()


def test_samples_follow_a_skewed_distribution() -> None:
    """A chi-square test of 60,000 samples from a softmax over 5,000 tokens, drawn in one pass with the loss."""
    numbers = torch.Generator().manual_seed(0)
    logits = torch.randn(5000, generator=numbers) * 3
    rows, draws = torch.ones(60_000), torch.rand(60_000, generator=numbers)
    found = vocabulary_loss.guess(torch.zeros(60_000, 1), torch.zeros(5000, 1), logits, rows.long(), rows, draws=draws)
    order = np.argsort(-logits.numpy())
    expected = logits.double().softmax(-1).numpy()[order]
    observed = np.bincount(found.samples, minlength=5000)[order]
    edges = np.searchsorted(expected.cumsum(), np.linspace(0, 1, 65)[1:-1])
    pieces = [part.sum() for part in np.split(observed, edges)], [part.sum() for part in np.split(expected, edges)]
    full = [(o, e) for o, e in zip(*pieces, strict=True) if e > 0]
    assert stats.chisquare(*np.array([(o, e * 60_000) for o, e in full]).T, sum_check=False).pvalue > 1e-3


@pytest.mark.parametrize("lengths", [None, (24, 9, 17, 5) * 3], ids=["full", "padded"])
@pytest.mark.parametrize("tying", ["none", "embeddings"])
@pytest.mark.parametrize("name", NAMES)
def test_every_objective_agrees_with_the_plain_computation(
    name: str, tying: str, lengths: tuple[int, ...] | None
) -> None:
    """Without dropout, losses and metrics agree within 1e-5, and gradients within 1e-4 of their norm."""
    spec = tiny(name, {"tying": tying})
    batch = synthetic(spec, lengths=lengths)
    fast, plain = shaken(spec, size=0.15), plainly(shaken(spec, size=0.15))
    one, other = fast(batch), plain(batch)
    torch.testing.assert_close(one.parts, other.parts, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(one.metrics, other.metrics, rtol=1e-5, atol=1e-5)
    one.total.backward()
    other.total.backward()
    whole = torch.stack([p.grad.norm() for p in plain.parameters()]).norm()
    for (key, mine), theirs in zip(fast.named_parameters(), plain.parameters(), strict=True):
        assert mine.grad is not None and theirs.grad is not None
        bound = 1e-4 * theirs.grad.norm() + 1e-6 * whole
        assert (mine.grad - theirs.grad).norm() <= bound, key
