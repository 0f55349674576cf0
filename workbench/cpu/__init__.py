"""A training step on a CPU: its matrix products with what follows each, in as few passes over memory as can be had.

`portable.py` has what lies between products in torch's own operations, for any dtype, and says what it computes;
`compiled.py` has the same in C, for fp32 and bf16. The functions below join products and that. Where the CPU has tile
registers for bf16 (AMX) and all sizes are multiples of 32, both are one kernel; else the product is torch's.

B rows, L positions, D width, H heads, d = D / H, N = B * L, I inner width. Weights are (out, in).
"""

from __future__ import annotations

import ctypes
import functools
from types import ModuleType

import torch
from torch import Tensor

from workbench.cpu import compiled, portable
from workbench.cpu.portable import Drop

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, MOST = -1, -2, -3, 1 << 25  # glibc's malloc.h, and the largest threshold
MADV_HUGEPAGE, PAGE = 14, 1 << 21  # Linux's mman.h, and bytes of a large page


def prepare(threads: int | None, plain: bool, device: str = "cpu") -> None:
    """What training and fine-tuning want of this process: so many threads, and unless `plain` two things more.

    Memory is kept, since every step needs as much again; and numbers below 1e-38 are 0. Gradients of fine-tuning, which
    come from one position of a row, are full of them: it takes five times as long otherwise.
    """
    if threads:
        torch.set_num_threads(threads)
    torch.set_flush_denormal(not plain)  # in this thread, and in those that it starts
    if device == "cpu" and (not plain or compiled.is_loaded()) and compiled.available(torch.float32):
        compiled.flush(not plain)  # in those that there are
    if not plain:
        _keep_memory()


@functools.cache
def _keep_memory() -> None:
    """Have glibc keep what is freed, and take the first 2 GiB in large pages, of which there are fewer to look up.

    Nothing is used up by that: Linux gives pages when they are first written to. Where it gives no large ones, or not
    so much room, all is as before.
    """
    libc = ctypes.CDLL(None)
    if not (hasattr(libc, "mallopt") and hasattr(libc, "madvise")):
        return
    libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
    libc.mallopt(M_TRIM_THRESHOLD, -1)
    libc.mallopt(M_MMAP_THRESHOLD, MOST)  # larger blocks go back to the system
    start = libc.sbrk(0)
    libc.mallopt(M_TOP_PAD, 2**31 - 1)
    libc.free(ctypes.c_void_p(libc.malloc(ctypes.c_size_t(MOST - PAGE))))  # makes it ask for room
    libc.mallopt(M_TOP_PAD, PAGE)
    start, end = -(-start // PAGE) * PAGE, libc.sbrk(0) // PAGE * PAGE
    if end > start:
        libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_HUGEPAGE)


def of(x: Tensor) -> ModuleType:
    """What computes numbers like these: `compiled` or `portable`, which have the same functions."""
    return compiled if x.device.type == "cpu" and compiled.available(x.dtype) else portable


def tiled(x: Tensor, *sizes: int) -> bool:
    """Whether products of x, with these sizes, are those of `tiles.c`."""
    return of(x) is compiled and compiled.has_tiles(x.dtype) and not any(size % 32 for size in sizes)


def linear_split(x: Tensor, weight: Tensor, bias: Tensor, rows: int, heads: int) -> Tensor:
    """Query, key and value of x (N, D): (3, B * H, L, d)."""
    if tiled(x, *x.shape, len(weight) // 3 // heads):
        return compiled.linear_split(x, weight, bias, rows, heads)
    found: Tensor = of(x).split(x @ weight.t(), bias, 3, rows, heads)
    return found


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The product x (N, D) @ weight.T, without bias, and GELU with it: (N, I) each."""
    if tiled(x, *x.shape, len(weight)):
        return compiled.linear_gelu(x, weight, bias)
    inner = x @ weight.t()
    return inner, of(x).gelu(inner, bias)


def linear_gelu_backward(x: Tensor, weight: Tensor, inner: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """`portable.gelu_backward` of the slopes x (N, D) @ weight: by inner (N, I), and by the bias (I,)."""
    if tiled(x, *x.shape, weight.shape[1]):
        return compiled.linear_gelu_backward(x, weight, inner, bias)
    d_inner, d_bias = of(x).gelu_backward(x @ weight, inner, bias)
    return d_inner, d_bias


def linear_norm(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor, gain: Tensor, shift: Tensor, eps: float, drop: Drop
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`portable.residual_norm` of the branch x (N, any) @ weight.T."""
    if tiled(x, *x.shape, len(weight)):
        return compiled.linear_norm(x, weight, bias, residual, gain, shift, eps, drop)
    out, added, means, stretches = of(x).residual_norm(x @ weight.t(), bias, residual, gain, shift, eps, drop)
    return out, added, means, stretches


def linear_norm_backward(
    x: Tensor, weight: Tensor, more: Tensor, added: Tensor, means: Tensor, stretches: Tensor, gain: Tensor, drop: Drop
) -> tuple[Tensor, Tensor, Tensor]:
    """`portable.residual_norm_backward` of the slopes x (N, any) @ weight."""
    if tiled(x, *x.shape, weight.shape[1]):
        return compiled.linear_norm_backward(x, weight, more, added, means, stretches, gain, drop)
    d_added, d_branch, sums = of(x).residual_norm_backward(x @ weight, more, added, means, stretches, gain, drop)
    return d_added, d_branch, sums


def attention(qkv: Tensor, bias: Tensor | None, rows: int, scale: float, drop: Drop) -> tuple[Tensor, Tensor]:
    """Chances (B * H, L, L) of softmax attention over qkv (3, B * H, L, d), and the context (N, D) they give.

    bias (B, L) is added to the scores of a key; dropout leaves the chances that are returned alone.
    """
    if tiled(qkv, *qkv.shape[2:]):
        return compiled.attention(qkv, bias, rows, scale, drop)
    chances, kept = of(qkv).softmax(qkv[0] @ qkv[1].transpose(1, 2), bias, scale, drop)
    return chances, of(qkv).merge((kept @ qkv[2])[None], rows)[0]


def attention_backward(
    d_context: Tensor, qkv: Tensor, chances: Tensor, rows: int, scale: float, drop: Drop
) -> tuple[Tensor, Tensor]:
    """From slopes by the context (N, D) those by query, key and value side by side, (N, 3 D); and their sums over N."""
    if tiled(qkv, *qkv.shape[2:]):
        return compiled.attention_backward(d_context, qkv, chances, rows, scale, drop)
    ops, heads = of(qkv), qkv.shape[1] // rows
    given = ops.split(d_context, None, 1, rows, heads)[0]
    d_scores, kept = ops.softmax_backward(given @ qkv[2].transpose(1, 2), chances, scale, drop)
    d_qkv = torch.empty_like(qkv)
    torch.bmm(d_scores, qkv[1], out=d_qkv[0])
    torch.bmm(d_scores.transpose(1, 2), qkv[0], out=d_qkv[1])
    torch.bmm(kept.transpose(1, 2), given, out=d_qkv[2])
    found, sums = ops.merge(d_qkv, rows, added=True)
    return found, sums


def outer(x: Tensor, y: Tensor) -> Tensor:
    """x.T @ y of x (N, M) and y (N, K): a weight's gradient (M, K), in fp32 or wider."""
    if tiled(x, *x.shape, y.shape[1]):
        return compiled.outer(x, y)
    return (x.t() @ y).to(torch.promote_types(x.dtype, torch.float32))


def linear_words(x: Tensor, table: Tensor) -> Tensor:
    """Logits x (n, E) @ table.T of a table (V, E): (n, V), or wider, with zeros beyond V."""
    return compiled.linear_words(x, table) if tiled(x, *x.shape) else x @ table.t()


def linear_words_backward(slopes: Tensor, x: Tensor, table: Tensor, d_table: Tensor, more: bool) -> Tensor:
    """From slopes by these logits those by x (n, E); those by the table into d_table (V, E), in fp32 or wider, added to
    what is there if `more`."""
    if tiled(x, *x.shape):
        return compiled.linear_words_backward(slopes, x, table, d_table, more)
    found = slopes.t() @ x
    if more:
        d_table += found
    else:
        d_table.copy_(found)
    return slopes @ table
