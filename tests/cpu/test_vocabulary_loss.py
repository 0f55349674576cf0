"""The loss over the whole vocabulary in one pass against the plain computation: values, gradients and samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from workbench import cpu
from workbench.cpu import functions
from workbench.models.losses import copy_mixture_loss


def inputs(rows: int = 21, width: int = 5, vocab: int = 150) -> tuple[list[Tensor], Tensor, Tensor]:
    numbers = torch.Generator().manual_seed(0)
    sizes = ((rows, width), (vocab, width), (vocab,), (rows,))  # features, table, bias, gate
    learnt = [torch.randn(size, generator=numbers, dtype=torch.float64).requires_grad_() for size in sizes]
    return learnt, torch.randint(0, vocab, (rows,), generator=numbers), torch.rand(rows, generator=numbers).double()


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("copying", [False, True])
def test_loss_and_gradients_agree_with_the_softmax(copying: bool, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They agree with autograd through the formula, for several sizes of chunks and a gradient other than 1."""
    monkeypatch.setitem(functions.CHUNK, "cpu", chunk * 150 * 8)  # logits of 8 bytes
    (features, table, bias, gate), targets, weights = inputs()
    untouched = torch.arange(21) % 3 > 0
    likelihood = (features @ table.T + bias).log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    losses = copy_mixture_loss(gate, likelihood, untouched).double() if copying else -likelihood
    expected = (weights * losses).sum() / weights.sum()
    learnt = [features, table, bias, *([gate] if copying else [])]
    gradients = torch.autograd.grad(3 * expected, learnt)

    more: dict[str, Any] = {"gate": gate, "copied": untouched} if copying else {}
    found = functions.guess(features, table, bias, targets, weights, **more)
    torch.testing.assert_close(found.loss.value.double(), expected, rtol=1e-6, atol=1e-6)
    for one, other in zip(torch.autograd.grad(3 * found.loss.value, learnt), gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert torch.equal(found.right, (features @ table.T + bias).argmax(-1) == targets)


def test_rows_that_do_not_count_have_no_gradient() -> None:
    (features, table, bias, _), targets, weights = inputs()
    weights[::2] = 0
    (gradient,) = torch.autograd.grad(functions.guess(features, table, bias, targets, weights).loss.value, [features])
    assert not gradient[::2].any() and gradient[1::2].any(1).all()
    nothing = functions.guess(features, table, bias, targets, weights * 0).loss.value
    assert nothing == 0 and not torch.autograd.grad(nothing, [table])[0].any()


def test_samples_follow_a_skewed_distribution() -> None:
    """A chi-square test of 60,000 samples from a softmax over 5,000 tokens, drawn in one pass with the loss."""
    numbers = torch.Generator().manual_seed(0)
    logits = torch.randn(5000, generator=numbers) * 3
    rows, draws = torch.ones(60_000), torch.rand(60_000, generator=numbers)
    found = functions.guess(torch.zeros(60_000, 1), torch.zeros(5000, 1), logits, rows.long(), rows, draws=draws)
    order = np.argsort(-logits.numpy())
    expected = logits.double().softmax(-1).numpy()[order]
    observed = np.bincount(found.samples, minlength=5000)[order]
    edges = np.searchsorted(expected.cumsum(), np.linspace(0, 1, 65)[1:-1])
    pieces = [part.sum() for part in np.split(observed, edges)], [part.sum() for part in np.split(expected, edges)]
    full = [(o, e) for o, e in zip(*pieces, strict=True) if e > 0]
    assert stats.chisquare(*np.array([(o, e * 60_000) for o, e in full]).T, sum_check=False).pvalue > 1e-3


@pytest.mark.parametrize("rows", [64, 96, 100])
def test_loss_over_a_vocabulary_in_tiles_agrees_with_torch(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss, gradients and samples agree in chunks of 64 rows, of which the last may not fill its tiles."""
    words, width = 200, 32
    monkeypatch.setitem(functions.CHUNK, "cpu", 2 * 64 * words)
    draw = torch.Generator().manual_seed(0)
    learnt = [
        (torch.randn(size, generator=draw) * 0.3).requires_grad_() for size in ((rows, width), (words, width), (words,))
    ]
    targets, draws = torch.randint(0, words, (rows,), generator=draw), torch.rand(rows, generator=draw)

    def found() -> tuple[Any, ...]:
        with torch.autocast("cpu", torch.bfloat16):
            guess = functions.guess(*learnt, targets, torch.ones(rows), draws=draws)
        return guess, *torch.autograd.grad(guess.loss.value, learnt)

    guess, *gradients = found()
    monkeypatch.setattr(cpu, "tiled", lambda *_: False)
    theirs, *expected = found()
    assert (
        abs(guess.loss.item() - theirs.loss.item()) < 1e-3 and (guess.samples == theirs.samples).float().mean() > 0.95
    )
    for one, other in zip(gradients, expected, strict=True):
        assert (one - other).norm() < 6e-3 * other.norm()
