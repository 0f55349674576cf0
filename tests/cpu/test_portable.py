"""Compiled and portable kernels against formulas in float64 and their autograd gradients; the randomness of dropout."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from workbench import cpu
from workbench.cpu import compiled, portable
from workbench.tensors import Drop

WAYS = [
    pytest.param(portable, torch.float64, id="portable-fp64"),
    pytest.param(portable, torch.float32, id="portable-fp32"),
    pytest.param(portable, torch.bfloat16, id="portable-bf16"),
    pytest.param(compiled, torch.float32, id="compiled-fp32"),
    pytest.param(compiled, torch.bfloat16, id="compiled-bf16"),
]
each_way = pytest.mark.parametrize(("ops", "dtype"), WAYS)
sizes = st.tuples(st.integers(1, 9), st.sampled_from([1, 2, 5, 16, 31, 64, 100]))
rates = st.sampled_from([0.0, 0.1, 0.5])
TOLERANCE = {torch.float64: 1e-9, torch.float32: 3e-6, torch.bfloat16: 1.2e-2}


def needs(ops: ModuleType, dtype: torch.dtype) -> None:
    if ops is compiled and not compiled.available(dtype):
        pytest.skip("no C compiler on this machine, or not Linux")


def numbers(dtype: torch.dtype, *shape: int, seed: int = 0, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return normal random numbers in a dtype, and the same numbers in float64."""
    made = (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)
    return made, made.double().clone()


def wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def mask(ops: ModuleType, drop: Drop, rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """Return the factors (rows, width) by which dropout multiplies."""
    return ops.dropped(torch.ones(rows, width, dtype=dtype), drop).double()


def near(found: Tensor, expected: Tensor, dtype: torch.dtype, factor: float = 1.0) -> None:
    """Assert that tensors agree within the tolerance of the dtype.

    It is relative to the largest number, except in bf16, where three times the tolerance is relative to the norm.
    """
    if dtype == torch.bfloat16:
        error, size = (found.double().view_as(expected) - expected).norm(), expected.norm()
        assert error <= 3 * TOLERANCE[dtype] * size + 1e-3, (float(error), float(size))
        return
    size = expected.abs().max().clamp(min=1)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=float(factor * TOLERANCE[dtype] * size))


@each_way
@settings(deadline=None, max_examples=30)
@given(size=sizes, rate=rates, more=st.booleans())
def test_residual_norm(ops: ModuleType, dtype: torch.dtype, size: tuple[int, int], rate: float, more: bool) -> None:
    needs(ops, dtype)
    rows, width = size
    assume(dtype != torch.bfloat16 or width >= 16)  # else the gradient is a difference of nearly equal numbers
    drop = Drop(12345, rate)
    (branch, branch64), (residual, residual64) = numbers(dtype, rows, width), numbers(dtype, rows, width, seed=1)
    (bias, bias64), (norm_weight, norm_weight64), (norm_bias, norm_bias64) = (
        numbers(wide(dtype), width, seed=seed) for seed in (2, 3, 4)
    )
    learnt = [residual64, branch64, norm_weight64, norm_bias64, bias64]
    for one in learnt:
        one.requires_grad_()
    added64 = residual64 + mask(ops, drop, rows, width, dtype) * (branch64 + bias64)
    expected = F.layer_norm(added64, [width], norm_weight64, norm_bias64, 1e-3)

    out, added, means, rstds = ops.residual_norm(branch, bias, residual, norm_weight, norm_bias, 1e-3, drop)
    near(added, added64.detach(), dtype)
    near(out, expected.detach(), dtype, 40 if dtype == torch.bfloat16 else 30)  # the norm enlarges rounding errors
    near(means.flatten(), added64.detach().mean(1), dtype)
    (grad, grad64), (extra, extra64) = numbers(dtype, rows, width, seed=5), numbers(dtype, rows, width, seed=6)
    total = grad64 + extra64 if more else grad64
    want = torch.autograd.grad((expected * total).sum(), learnt)
    d_added, d_branch, columns = ops.residual_norm_backward(
        grad, extra if more else None, added, means, rstds, norm_weight, drop
    )
    for found, wanted in zip((d_added, d_branch, *columns), want, strict=True):
        near(found, wanted, dtype, 100)
    dropped = mask(ops, drop, rows, width, dtype) == 0
    assert not d_branch[dropped].any()


SEEN = ("all", "tokens", "before", "tokens before")


def bias_of(seen: str, rows: int, length: int) -> tuple[Tensor | None, Tensor]:
    """The bias of scores that leaves these keys, and the same for each query of each row, (rows, L, L) float64.

    The second key and those after it are padding in the first row; with `before`, no query sees a later key.
    """
    tokens = torch.ones(rows, 1, length, dtype=torch.bool)
    tokens[0, 0, 1:] = False
    before = torch.ones(1, length, length, dtype=torch.bool).tril()
    both = tokens & before
    each = {"all": torch.ones_like(both), "tokens": tokens, "before": before, "tokens before": both}[seen]
    full = torch.zeros(each.shape, dtype=torch.float64).masked_fill_(~each, -torch.inf)
    return None if seen == "all" else full, full.expand(rows, length, length)


@each_way
@settings(deadline=None, max_examples=30)
@given(
    heads=st.integers(1, 3), length=st.sampled_from([1, 3, 16, 33, 64]), rate=rates, seen=st.sampled_from(SEEN),
)  # fmt: skip
def test_softmax(ops: ModuleType, dtype: torch.dtype, heads: int, length: int, rate: float, seen: str) -> None:
    needs(ops, dtype)
    rows, drop, scale = 2, Drop(7, rate), 0.3
    shape = (rows * heads, length, length)
    scores, scores64 = numbers(dtype, *shape, scale=4)
    bias, each = bias_of(seen, rows, length)
    bias = bias if bias is None else bias.to(wide(dtype))
    scores64.requires_grad_()
    shifted = scale * scores64 + each.repeat_interleave(heads, 0)
    probs64 = shifted.softmax(-1)
    after_dropout64 = probs64 * mask(ops, drop, rows * heads * length, length, dtype).view(shape)

    probs, after_dropout = ops.softmax(scores, bias, scale, drop)
    near(probs, probs64.detach(), dtype)
    near(after_dropout, after_dropout64.detach(), dtype, 2)
    grad, grad64 = numbers(dtype, *shape, seed=1)
    (want,) = torch.autograd.grad((after_dropout64 * grad64).sum(), [scores64])
    d_scores, again = ops.softmax_backward(grad, probs, scale, drop)
    near(d_scores, want, dtype, 3)
    near(again, after_dropout64.detach(), dtype, 2)


@each_way
@settings(deadline=None, max_examples=20)
@given(size=sizes)
def test_gelu(ops: ModuleType, dtype: torch.dtype, size: tuple[int, int]) -> None:
    needs(ops, dtype)
    (x, x64), (bias, bias64) = numbers(dtype, *size, scale=3), numbers(wide(dtype), size[1], seed=1)
    grad, grad64 = numbers(dtype, *size, seed=2)
    x64.requires_grad_(), bias64.requires_grad_()
    expected = F.gelu(x64 + bias64)
    near(ops.gelu(x, bias), expected.detach(), dtype)
    want, want_bias = torch.autograd.grad((expected * grad64).sum(), [x64, bias64])
    d_x, d_bias = ops.gelu_backward(grad, x, bias)
    near(d_x, want, dtype)
    near(d_bias, want_bias, dtype, size[0])


def test_gelu_is_exact_to_a_millionth_over_all_numbers_it_meets() -> None:
    needs(compiled, torch.float32)
    x = torch.cat([torch.linspace(-9, 9, 200_001), torch.tensor([-1e30, -80.0, -0.0, 80.0, 1e30])])[None]
    none = torch.zeros(x.shape[1])
    assert (compiled.gelu(x, none).double() - F.gelu(x.double())).abs()[:, :-5].max() < 1.5e-6
    assert compiled.gelu(x, none)[0, -5:].tolist() == pytest.approx([0, 0, 0, 80, 1e30], abs=1e24)
    x64 = x.double().requires_grad_()
    F.gelu(x64).sum().backward()
    grad, _ = compiled.gelu_backward(torch.ones_like(x), x, none)
    assert x64.grad is not None and (grad.double() - x64.grad).abs().max() < 1.5e-6


@each_way
@settings(deadline=None, max_examples=20)
@given(rows=st.integers(1, 3), heads=st.integers(1, 3), length=st.integers(1, 5), width=st.sampled_from([1, 8, 24]))
def test_split_and_merge(ops: ModuleType, dtype: torch.dtype, rows: int, heads: int, length: int, width: int) -> None:
    needs(ops, dtype)
    (x, _), (bias, _) = (
        numbers(dtype, rows * length, 3 * heads * width),
        numbers(wide(dtype), 3 * heads * width, seed=1),
    )
    found = ops.split(x, bias, 3, rows, heads)
    expected = (x.double() + bias.double()).view(rows, length, 3, heads, width).permute(2, 0, 3, 1, 4)
    near(found, expected.reshape(found.shape), dtype)
    assert torch.equal(ops.merge(ops.split(x, None, 3, rows, heads), rows)[0], x)
    _, sums = ops.merge(ops.split(x, None, 3, rows, heads), rows, with_sums=True)
    near(sums, x.double().sum(0), dtype)


@each_way
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("copying", [False, True])
@pytest.mark.parametrize("vocab", [3, 64, 150])
def test_vocabulary(ops: ModuleType, dtype: torch.dtype, vocab: int, copying: bool, temperature: float) -> None:
    needs(ops, dtype)
    rows = 40
    (logits, logits64), (bias, bias64) = numbers(dtype, rows, vocab, scale=2), numbers(wide(dtype), vocab, seed=1)
    write = -torch.rand(rows, generator=torch.Generator().manual_seed(2))
    copy = torch.where(torch.arange(rows) % 3 > 0, (1 - write.exp()).log(), -torch.inf) if copying else None
    targets, share = torch.arange(rows) % vocab, torch.rand(rows, generator=torch.Generator().manual_seed(3)) / rows
    draws = (torch.arange(rows) + 0.5) / rows
    for one in (logits64, bias64):
        one.requires_grad_()
    both = logits64 + bias64
    likely = both.log_softmax(-1).gather(1, targets[:, None])[:, 0]
    losses = write.double() + likely
    losses = losses if copy is None else torch.logaddexp(copy.double(), losses)
    want, want_bias = torch.autograd.grad(-(share.double() * losses).sum(), [logits64, bias64])

    grad_nll, found, correct, samples, sample_nll, d_bias = ops.vocabulary(
        logits, bias, targets, write, copy, share, draws, temperature, True
    )
    near(found, losses.detach(), torch.float32, 3)
    near(grad_nll, (share * (write + likely - losses).exp()).detach(), torch.float32)
    assert torch.equal(correct, both.argmax(-1) == targets)
    near(logits, want, dtype, 0.1)
    near(d_bias, want_bias, torch.float32)
    probs = (both.detach() / temperature).softmax(-1)
    before = probs.cumsum(-1).gather(1, samples[:, None])[:, 0]
    its = probs.gather(1, samples[:, None])[:, 0]
    assert (before > draws - 1e-5).all() and (before - its < draws + 1e-5).all()  # the draw falls on this token
    near(sample_nll, -its.log(), torch.float32, 3)
    assert ops.vocabulary(logits, bias, targets, write, copy, share, None, 1.0, False)[5] is None


@each_way
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_numbers_are_dropped_independently_at_their_rate(ops: ModuleType, dtype: torch.dtype, rate: float) -> None:
    """The rate and independence hold in total, between neighbours, within each row and column, and between keys."""
    needs(ops, dtype)
    found = mask(ops, Drop(0, rate), 400, 250, dtype)
    assert found.unique().tolist() == pytest.approx([0, 1 / (1 - rate)], rel=4e-3 if dtype == torch.bfloat16 else 1e-4)
    dropped = (found == 0).numpy()
    assert stats.binomtest(int(dropped.sum()), dropped.size, rate).pvalue > 1e-3
    other = (mask(ops, Drop(1, rate), 400, 250, dtype) == 0).numpy()
    chance = np.outer([1 - rate, rate], [1 - rate, rate]).ravel()
    columns, rows = (dropped[:, 0::2], dropped[:, 1::2]), (dropped[0::2], dropped[1::2])
    for one, two in (columns, rows, (dropped, other), (dropped[1:], other[:-1])):
        pairs = np.bincount((one * 2 + two).ravel(), minlength=4)
        assert stats.chisquare(pairs, chance * pairs.sum()).pvalue > 1e-3
    for many, axis in ((250, 1), (400, 0)):
        counts = dropped.sum(axis)
        middle = stats.binom.cdf(counts, many, rate) - stats.binom.pmf(counts, many, rate) / 2
        assert stats.kstest(middle, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nan_stays_nan(dtype: torch.dtype) -> None:
    """A run that diverges must be recognised by its NaN."""
    needs(compiled, dtype)
    bad = torch.tensor([[1.0, float("nan"), 2.0], [1.0, 2.0, 3.0]], dtype=dtype)
    ones, drop = torch.ones(3), Drop(0, 0.0)
    out = compiled.residual_norm(bad, ones, torch.zeros_like(bad), ones, ones, 1e-3, drop)[0]
    assert out[0].isnan().all() and not out[1].isnan().any()
    assert compiled.gelu(bad, ones)[0].isnan().tolist() == [False, True, False]
    scores = bad.clone()[None, :, :].expand(1, 2, 3)[:, :1].repeat(1, 3, 1)
    assert compiled.softmax(scores.contiguous(), None, 1.0, drop)[0].isnan().all()
    rows = [torch.zeros(2), None, torch.full((2,), 0.5), torch.tensor([0.5, 0.5]), 1.0, True]
    _, losses, *_ = compiled.vocabulary(bad.clone(), torch.zeros(3), torch.tensor([0, 0]), *rows)
    assert losses.isnan().tolist() == [True, False]


def test_the_number_of_threads_changes_only_rounding() -> None:
    needs(compiled, torch.float32)
    (x, _), (bias, _) = numbers(torch.float32, 37, 50), numbers(torch.float32, 50, seed=1)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3, 64):
            torch.set_num_threads(threads)
            grad, sums = compiled.gelu_backward(torch.ones_like(x), x, bias)
            assert torch.equal(compiled.gelu_backward(torch.ones_like(x), x, bias)[1], sums)
            found.append((compiled.dropped(x, Drop(3, 0.5)), grad, sums))
        for same, grad, sums in found[1:]:
            assert torch.equal(same, found[0][0]) and torch.equal(grad, found[0][1])
            torch.testing.assert_close(sums, found[0][2])
    finally:
        torch.set_num_threads(before)


def test_denormal_numbers_are_zero_unless_plain() -> None:
    """This holds in every thread, also in those that were started before, and it can be reverted."""
    needs(compiled, torch.float32)
    code = """
import torch
torch.set_num_threads(3)
tiny = torch.full((3, 200_000), 1e-30)
assert (tiny * 1e-10).ne(0).all()  # by all threads
from workbench import cpu
for plain in (False, True):
    cpu.prepare(None, plain)
    print((tiny * 1e-10).ne(0).sum(1).tolist(), (tiny[:, :1] * 1e-10).ne(0).tolist(), torch.get_num_threads())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = [f"{[200_000 * plain] * 3} {[[plain]] * 3} 3" for plain in (False, True)]
    assert done.stdout.splitlines() == expected


def test_a_target_outside_the_vocabulary_is_refused() -> None:
    needs(compiled, torch.float32)
    one = torch.ones(1)
    for target in (-100, 3):
        with pytest.raises(IndexError, match="outside the vocabulary of 3 tokens"):
            compiled.vocabulary(
                torch.zeros(1, 3), torch.zeros(3), torch.tensor([target]), one, None, one, None, 1.0, True
            )


def test_other_dtypes_and_devices_use_torch() -> None:
    assert cpu.kernels_for(torch.zeros(1, dtype=torch.float64)) is portable
    assert cpu.kernels_for(torch.zeros(1, device="meta")) is portable
    assert {"flush", *(name for name in vars(portable) if name in compiled.KERNELS)} == set(compiled.KERNELS)
