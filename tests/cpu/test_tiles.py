"""Kernels with matrix products against float64 and, under dropout, against the separate kernels with the same draws."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from workbench import cpu
from workbench.cpu import compiled
from workbench.cpu.layers import Layers, LayersTogether, Rates
from workbench.tensors import Drop

BF16 = torch.bfloat16
EMULATED = Path(__file__).parent / "emulated_tiles.h"
many = st.sampled_from([32, 64, 96])
rates = st.sampled_from([0.0, 0.1])
seeds = st.integers(0, 1000)


@pytest.fixture(autouse=True, scope="module", params=["tiles", "avx512"])
def way(request: pytest.FixtureRequest, workbench_cache: Path) -> Iterator[str]:
    """The instructions that multiply: tile registers, emulated by AVX-512 if this CPU has none, and AVX-512 itself."""
    wanted: str = request.param
    emulated = f"-mamx-tile -mamx-bf16 -include {shlex.quote(str(EMULATED))}"
    own = compiled.products(BF16) if compiled.available(BF16) else ""
    more = "" if own == wanted else "-mno-amx-bf16" if wanted == "avx512" else emulated
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", f"{os.environ.get('CC') or 'cc'} {more}")
        compiled._library.cache_clear()
        try:
            if not compiled.available(BF16) or compiled.products(BF16) != wanted:
                pytest.skip(f"this CPU has no instructions for {wanted}, or there is no C compiler")
            yield wanted
        finally:
            compiled._library.cache_clear()


def numbers(seed: int, *shape: int, scale: float = 1.0) -> Tensor:
    """Return normal random numbers in bf16."""
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(BF16)


def check(way: Callable[..., Any], *arguments: Any, rate: float = 0.0) -> None:
    """Assert that a tiled kernel agrees with float64 or, under dropout, with the same draws computed without tiles."""

    def computed(values: tuple[Any, ...]) -> list[Tensor]:
        fresh = [value.clone() if isinstance(value, Tensor) else value for value in values]
        found = way(*fresh)
        return list(found) if isinstance(found, tuple) else [found]

    tiled = computed(arguments)
    if rate:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cpu, "tiled", lambda *_: False)
            expected = computed(arguments)
    else:
        expected = computed(tuple(v.double() if isinstance(v, Tensor) else v for v in arguments))
    assert len(tiled) == len(expected)
    for one, other in zip(tiled, expected, strict=True):
        assert one.shape == other.reshape(one.shape).shape
        error = (one.double() - other.double().view(one.shape)).norm() / other.double().norm().clamp(min=1e-3)
        assert error < 6e-3, error  # rounding to bf16 has a mean relative error of 1.6e-3


@settings(deadline=None, max_examples=15)
@given(rows=st.integers(1, 3), length=many, width=many, heads=st.integers(1, 3), seed=seeds)
def test_linear_split(rows: int, length: int, width: int, heads: int, seed: int) -> None:
    x, weight = numbers(seed, rows * length, heads * width), numbers(seed + 1, 3 * heads * width, heads * width)
    bias = torch.randn(3 * heads * width, generator=torch.Generator().manual_seed(seed))
    assert cpu.tiled(x, *x.shape, width)
    check(lambda x, weight, bias: cpu.linear_split(x, weight, bias, rows, heads), x, weight, bias)


@settings(deadline=None, max_examples=15)
@given(rows=many, width=many, inner=many, seed=seeds)
def test_linear_gelu_and_its_backward(rows: int, width: int, inner: int, seed: int) -> None:
    x, weight, bias = numbers(seed, rows, width), numbers(seed + 1, inner, width, scale=0.1), torch.ones(inner) / 3
    check(cpu.linear_gelu, x, weight, bias)
    check(cpu.linear_gelu_backward, x, weight.t().contiguous(), numbers(seed + 2, rows, inner, scale=2), bias)


@settings(deadline=None, max_examples=15)
@given(rows=many, k=many, width=many, rate=rates, seed=seeds)
def test_linear_norm_and_its_backward(rows: int, k: int, width: int, rate: float, seed: int) -> None:
    drop, wide = Drop(seed, rate), torch.Generator().manual_seed(seed)
    x, weight, residual = numbers(seed, rows, k), numbers(seed + 1, width, k, scale=0.2), numbers(seed + 2, rows, width)
    bias, norm_weight, norm_bias = (torch.randn(width, generator=wide) for _ in range(3))
    check(
        lambda *given: cpu.linear_norm(*given, 1e-6, drop), x, weight, bias, residual, norm_weight, norm_bias, rate=rate
    )
    _, added, means, rstds = cpu.linear_norm(x, weight, bias, residual, norm_weight, norm_bias, 1e-6, drop)
    check(
        lambda *given: cpu.linear_norm_backward(*given, drop),
        x, weight.t().contiguous(), residual, added, means[:, None], rstds[:, None], norm_weight, rate=rate,
    )  # fmt: skip


@settings(deadline=None, max_examples=20)
@given(
    rows=st.integers(1, 3), heads=st.integers(1, 3), length=many, width=many, rate=rates,
    seen=st.sampled_from(["all", "tokens", "before", "tokens before"]), seed=seeds,
)  # fmt: skip
def test_attention_and_its_backward(
    rows: int, heads: int, length: int, width: int, rate: float, seen: str, seed: int
) -> None:
    drop, scale = Drop(seed, rate), width**-0.5
    qkv = numbers(seed, 3, rows * heads, length, width)
    tokens = torch.ones(rows, 1, length, dtype=torch.bool)
    tokens[0, 0, length - 7 :] = False
    before = torch.ones(1, length, length, dtype=torch.bool).tril()
    visible = {"all": None, "tokens": tokens, "before": before, "tokens before": tokens & before}[seen]
    bias = None if visible is None else torch.zeros(visible.shape).masked_fill_(~visible, -torch.inf)
    check(lambda *given: cpu.attention(*given, rows, scale, drop), qkv, bias, rate=rate)
    probs, _ = cpu.attention(qkv, bias, rows, scale, drop)
    given = numbers(seed + 1, rows * length, heads * width)
    check(lambda *given: cpu.attention_backward(*given, rows, scale, drop), given, qkv, probs, rate=rate)


@settings(deadline=None, max_examples=15)
@given(rows=st.sampled_from([32, 512, 544, 1056]), m=many, n=many, seed=seeds)
def test_outer(rows: int, m: int, n: int, seed: int) -> None:
    x, y = numbers(seed, rows, m), numbers(seed + 1, rows, n)
    found = cpu.outer(x, y)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), x.double().t() @ y.double(), rtol=1e-5, atol=1e-3)  # sums in fp32


@settings(deadline=None, max_examples=20)
@given(rows=many, k=many, words=st.sampled_from([1, 31, 32, 33, 500, 1056, 1100]), seed=seeds)
def test_linear_words_and_its_backward(rows: int, k: int, words: int, seed: int) -> None:
    """Vocabularies of any size work; the gradient of the table is written at first, and then added to."""
    x, table = numbers(seed, rows, k), numbers(seed + 1, words, k)
    logits = cpu.linear_words(x, table)
    assert not logits[:, words:].any()
    check(lambda x, table: cpu.linear_words(x, table)[:, :words], x, table)
    grad = torch.zeros_like(logits)
    grad[:, :words] = numbers(seed + 2, rows, words)
    d_table = torch.full((words, k), torch.nan)
    found = cpu.linear_words_backward(grad, x, table, d_table, False)
    exact = grad[:, :words].double()
    assert (found.double() - exact @ table.double()).norm() < 6e-3 * found.double().norm()
    torch.testing.assert_close(d_table.double(), exact.t() @ x.double(), rtol=1e-5, atol=1e-3)
    cpu.linear_words_backward(grad, x, table, d_table, True)
    torch.testing.assert_close(d_table.double(), 2 * exact.t() @ x.double(), rtol=1e-5, atol=2e-3)


def test_other_sizes_use_torch() -> None:
    x = numbers(0, 64, 32)
    assert cpu.tiled(x, 64, 32) and not cpu.tiled(x, 64, 48) and not cpu.tiled(x.float(), 64, 32)


@settings(deadline=None, max_examples=20)
@given(
    rows=st.integers(1, 5), layers=st.integers(1, 3), length=many, heads=st.integers(1, 2),
    width=st.sampled_from([32, 64]), wide=many, rates=st.tuples(rates, rates, rates), threads=st.integers(1, 4),
    seen=st.sampled_from(["all", "tokens", "before"]), seed=seeds,
)  # fmt: skip
def test_layers_together_are_the_layers_one_by_one(
    rows: int, layers: int, length: int, heads: int, width: int, wide: int, rates: tuple[float, float, float],
    threads: int, seed: int, seen: str,
) -> None:  # fmt: skip
    """One kernel for all layers rounds every state as the separate kernels do, and sums gradients in another order."""
    width *= heads
    draws = torch.Generator().manual_seed(seed)
    shapes = [(width, width), (width,)] * 4 + [(width,)] * 2 + [(wide, width), (wide,), (width, wide)] + [(width,)] * 3
    parameters = [
        (torch.randn(shape, generator=draws) / shape[-1] ** 0.5).requires_grad_() for shape in shapes * layers
    ]
    hidden = numbers(seed, rows, length, width).requires_grad_()
    aim = numbers(seed + 1, rows, length, width)
    tokens = torch.ones(rows, 1, length, dtype=torch.bool)
    tokens[0, 0, length - 7 :] = False
    visible = {"all": None, "tokens": tokens, "before": torch.ones(1, length, length, dtype=torch.bool).tril()}[seen]
    bias = None if visible is None else torch.zeros(visible.shape).masked_fill_(~visible, -torch.inf)
    config = SimpleNamespace(num_attention_heads=heads, layer_norm_eps=1e-6)
    before = torch.get_num_threads()

    def computed(way: Any, with_grad: bool) -> tuple[Tensor, ...]:
        out = way.apply(hidden, bias, config, Rates(0.0, *rates), seed, with_grad, *parameters)
        return (out, *torch.autograd.grad(out, [hidden, *parameters], aim)) if with_grad else (out,)

    try:
        torch.set_num_threads(threads)
        found, expected = computed(LayersTogether, True), computed(Layers, True)
        with torch.no_grad():
            (alone,) = computed(LayersTogether, False)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], expected[0]) and torch.equal(alone, expected[0])
    for number, (one, other) in enumerate(zip(found[1:], expected[1:], strict=True)):
        assert one.shape == other.shape and one.dtype == other.dtype
        # The gradient of the bias of keys is 0 except for rounding.
        largest = 1.0 if number % 16 == 4 else float(other.float().norm())
        assert float((one.float() - other.float()).norm()) < 5e-3 * largest, number


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_threads_without_work_do_no_harm(threads: int) -> None:
    before = torch.get_num_threads()
    qkv, given = numbers(0, 3, 2, 32, 32), numbers(1, 64, 32)

    def words_backward() -> tuple[Tensor, Tensor]:
        torch.empty(threads, 64, 32).fill_(torch.nan)  # newly allocated memory may hold any numbers
        d_table = torch.empty(40, 32)
        grad = cpu.linear_words(given, numbers(2, 40, 32))
        return cpu.linear_words_backward(grad, given, numbers(2, 40, 32), d_table, False), d_table

    try:
        torch.set_num_threads(threads)
        probs, _ = cpu.attention(qkv, None, 2, 0.2, Drop(0, 0.1))
        grad, sums = cpu.attention_backward(given, qkv, probs, 2, 0.2, Drop(0, 0.1))
        outer, words = cpu.outer(given, given), words_backward()
        torch.set_num_threads(1)
        alone, its = cpu.attention_backward(given, qkv, probs, 2, 0.2, Drop(0, 0.1))
        assert torch.equal(grad, alone) and torch.equal(outer, cpu.outer(given, given))
        torch.testing.assert_close(sums, its)
        d_x, d_table = words_backward()
        assert torch.equal(words[1], d_table)
        torch.testing.assert_close(words[0], d_x)
    finally:
        torch.set_num_threads(before)
