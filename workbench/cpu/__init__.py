"""The matrix products of a training step on a CPU, each joined with the operations that follow it.

This takes fewer passes over memory. `portable.py` computes the operations between the products by torch, for any dtype,
and its docstrings define them; `compiled.py` computes the same in C, for fp32 and bf16. The functions below combine
both with the products. If the CPU multiplies numbers in bf16 (AMX, or AVX-512 BF16) and all sizes are multiples of 32,
one kernel computes a product and what follows it; otherwise torch computes the product.

B rows, L positions, D width, H heads, d = D / H, N = B * L, I inner width, V size of the vocabulary, E width of the
token table. Weights are (out, in). `grad` is the gradient of the loss with respect to the output of a function.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from workbench.cpu import compiled, portable
from workbench.tensors import Drop

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # from malloc.h of glibc
MOST = 1 << 25  # bytes, the largest M_MMAP_THRESHOLD that glibc accepts
MADV_HUGEPAGE, PAGE = 14, 1 << 21  # from mman.h of Linux, and the bytes of a huge page


def prepare(threads: int | None, plain: bool, device: str = "cpu") -> None:
    """Set up this process for training or fine-tuning: its threads and, unless `plain`, three settings that save time.

    Freed memory stays with the process, since every step needs as much again. Denormal numbers (below 1e-38) become 0:
    gradients in fine-tuning, which come from one position of each row, contain so many of them that a step would
    otherwise take five times as long. Waiting threads sleep while other processes need the cores (`share_cores`).
    """
    if threads:
        torch.set_num_threads(threads)
    torch.set_flush_denormal(not plain)  # in this thread, and in threads that it starts
    if device == "cpu" and (not plain or compiled.is_loaded()) and compiled.available(torch.float32):
        # Compute with tiny numbers as zeros, or stop doing so, in the threads that torch has already started.
        compiled.call("flush", torch.float32, int(not plain))
    if not plain:
        _keep_memory()
    if not plain and device == "cpu":
        share_cores()


@functools.cache
def _keep_memory() -> None:
    """Make glibc keep freed memory, and request huge pages for its first 2 GiB, which need fewer address look-ups.

    This alone uses no memory, since Linux provides a page when it is first written to. If the system has no huge pages,
    or not that much memory, nothing changes.
    """
    libc = ctypes.CDLL(None)
    if not (hasattr(libc, "mallopt") and hasattr(libc, "madvise")):
        return
    libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
    libc.mallopt(M_TRIM_THRESHOLD, -1)
    libc.mallopt(M_MMAP_THRESHOLD, MOST)  # freed blocks above this size return to the system
    start = libc.sbrk(0)
    libc.mallopt(M_TOP_PAD, 2**31 - 1)
    libc.free(ctypes.c_void_p(libc.malloc(ctypes.c_size_t(MOST - PAGE))))  # makes glibc request memory from the system
    libc.mallopt(M_TOP_PAD, PAGE)
    start, end = -(-start // PAGE) * PAGE, libc.sbrk(0) // PAGE * PAGE
    if end > start:
        libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_HUGEPAGE)


def kernels_for(x: Tensor) -> ModuleType:
    """Return the module that computes with tensors like x: `compiled` or `portable`, which have the same functions."""
    return compiled if x.device.type == "cpu" and compiled.available(x.dtype) else portable


def tiled(x: Tensor, *sizes: int) -> bool:
    """Return whether `tiles.c` can compute a product of x in which these sizes occur."""
    return kernels_for(x) is compiled and bool(compiled.products(x.dtype)) and not any(size % 32 for size in sizes)


def linear_split(x: Tensor, weight: Tensor, bias: Tensor, rows: int, heads: int) -> Tensor:
    """Return query, key and value of x (N, D) in one tensor (3, B * H, L, d)."""
    if tiled(x, *x.shape, len(weight) // 3 // heads):
        many, width = len(weight), len(weight) // 3 // heads
        out = x.new_empty(3, rows * heads, len(x) // rows, width)
        compiled.call("linear_split", x.dtype, x, weight, bias, out, *x.shape, many, rows, heads, out.shape[2])
        return out
    qkv: Tensor = kernels_for(x).split(x @ weight.t(), bias, 3, rows, heads)
    return qkv


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return x (N, D) @ weight.T, and GELU of this product plus the bias (I,): (N, I) each."""
    if tiled(x, *x.shape, len(weight)):
        inner, out = (x.new_empty(len(x), len(weight)) for _ in range(2))
        compiled.call("linear_gelu", x.dtype, x, weight, bias, inner, out, *x.shape, len(weight))
        return inner, out
    inner = x @ weight.t()
    return inner, kernels_for(x).gelu(inner, bias)


def linear_gelu_backward(x: Tensor, weight: Tensor, inner: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return `portable.gelu_backward` for the gradient x (N, D) @ weight: of inner (N, I) and bias (I,)."""
    if tiled(x, *x.shape, weight.shape[1]):
        out, sums = torch.empty_like(inner), compiled.thread_sums(inner.shape[1])
        compiled.call("linear_gelu_backward", x.dtype, x, weight, inner, bias, out, sums, *x.shape, inner.shape[1])
        return out, sums.sum(0)
    d_inner, d_bias = kernels_for(x).gelu_backward(x @ weight, inner, bias)
    return d_inner, d_bias


def linear_norm(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor, norm_weight: Tensor, norm_bias: Tensor, eps: float,
    drop: Drop,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return `portable.residual_norm` for the branch x (N, any width) @ weight.T."""
    if tiled(x, *x.shape, len(weight)):
        added, out = torch.empty_like(residual), torch.empty_like(residual)
        means, rstds = bias.new_empty(len(x)), bias.new_empty(len(x))
        compiled.call("linear_norm", x.dtype, x, weight, bias, residual, norm_weight, norm_bias, added, out, means,
                      rstds, *x.shape, len(weight), eps, drop)  # fmt: skip
        return out, added, means, rstds
    branch = x @ weight.t()
    out, added, means, rstds = kernels_for(x).residual_norm(branch, bias, residual, norm_weight, norm_bias, eps, drop)
    return out, added, means, rstds


def linear_norm_backward(
    x: Tensor, weight: Tensor, extra_grad: Tensor, added: Tensor, means: Tensor, rstds: Tensor, norm_weight: Tensor,
    drop: Drop,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return `portable.residual_norm_backward` for the gradient x (N, any width) @ weight."""
    if tiled(x, *x.shape, weight.shape[1]):
        d_added, sums = torch.empty_like(added), compiled.thread_sums(3, added.shape[1])
        d_branch = torch.empty_like(added) if drop.rate else d_added
        compiled.call("linear_norm_backward", x.dtype, x, weight, extra_grad, added, means, rstds, norm_weight, d_added,
                      d_branch, sums, *x.shape, added.shape[1], drop)  # fmt: skip
        return d_added, d_branch, sums.sum(0)
    backward = kernels_for(x).residual_norm_backward
    d_added, d_branch, sums = backward(x @ weight, extra_grad, added, means, rstds, norm_weight, drop)
    return d_added, d_branch, sums


def attention(qkv: Tensor, bias: Tensor | None, rows: int, scale: float, drop: Drop) -> tuple[Tensor, Tensor]:
    """Return the probabilities (B * H, L, L) of attention over qkv (3, B * H, L, d), and the context (N, D).

    bias (B or 1, L or 1, L), or None, is added to the scores (see `portable.softmax`). The probabilities are returned
    as they were before dropout.
    """
    if tiled(qkv, *qkv.shape[2:]):
        _, many, length, width = qkv.shape
        heads = many // rows
        probs, context = qkv.new_empty(many, length, length), qkv.new_empty(rows * length, heads * width)
        each, queries = compiled.spread(bias, many)
        compiled.call("attention", qkv.dtype, qkv, bias, probs, context, rows, heads, each, queries, length, width,
                      scale, drop)  # fmt: skip
        return probs, context
    probs, after_dropout = kernels_for(qkv).softmax(qkv[0] @ qkv[1].transpose(1, 2), bias, scale, drop)
    return probs, kernels_for(qkv).merge((after_dropout @ qkv[2])[None], rows)[0]


def attention_backward(
    d_context: Tensor, qkv: Tensor, probs: Tensor, rows: int, scale: float, drop: Drop
) -> tuple[Tensor, Tensor]:
    """Return the gradients with respect to query, key and value side by side, (N, 3 D), and their sums over N, (3 D,).

    d_context (N, D) is the gradient with respect to the context of `attention`, probs are its probabilities.
    """
    if tiled(qkv, *qkv.shape[2:]):
        _, many, length, width = qkv.shape
        heads = many // rows
        out, sums = qkv.new_empty(rows * length, 3 * heads * width), compiled.thread_sums(3 * heads * width)
        compiled.call("attention_backward", qkv.dtype, d_context, qkv, probs, out, sums, rows, heads, length, width,
                      scale, drop)  # fmt: skip
        return out, sums.sum(0)
    ops, heads = kernels_for(qkv), qkv.shape[1] // rows
    d_heads = ops.split(d_context, None, 1, rows, heads)[0]
    d_scores, after_dropout = ops.softmax_backward(d_heads @ qkv[2].transpose(1, 2), probs, scale, drop)
    d_qkv = torch.empty_like(qkv)
    torch.bmm(d_scores, qkv[1], out=d_qkv[0])
    torch.bmm(d_scores.transpose(1, 2), qkv[0], out=d_qkv[1])
    torch.bmm(after_dropout.transpose(1, 2), d_heads, out=d_qkv[2])
    d_merged, sums = ops.merge(d_qkv, rows, with_sums=True)
    return d_merged, sums


def outer(x: Tensor, y: Tensor) -> Tensor:
    """Return x.T @ y of x (N, M) and y (N, K), the gradient (M, K) of a weight, in fp32 or wider."""
    if tiled(x, *x.shape, y.shape[1]):
        out = torch.empty(x.shape[1], y.shape[1])
        compiled.call("outer", x.dtype, x, y, out, *x.shape, y.shape[1])
        return out
    return (x.t() @ y).to(torch.promote_types(x.dtype, torch.float32))


def linear_words(x: Tensor, table: Tensor) -> Tensor:
    """Return the logits x (n, E) @ table.T over a table (V, E): (n, V), or wider, with 0 in columns from V on."""
    if tiled(x, *x.shape):
        out = x.new_empty(len(x), -(-len(table) // 32) * 32)
        compiled.call("linear_words", x.dtype, x, table, out, *x.shape, len(table), out.shape[1])
        return out
    return x @ table.t()


def linear_words_backward(grad: Tensor, x: Tensor, table: Tensor, d_table: Tensor, accumulate: bool) -> Tensor:
    """Return the gradient with respect to x (n, E), and write the one with respect to the table into d_table (V, E).

    grad is the gradient with respect to the logits of `linear_words`. d_table is in fp32 or wider; if `accumulate`, the
    gradient is added to it instead.
    """
    if tiled(x, *x.shape):
        sums = compiled.thread_sums(*x.shape)
        compiled.call("linear_words_backward", x.dtype, grad, x, table, sums, d_table, *x.shape, len(table),
                      grad.shape[1], int(accumulate))  # fmt: skip
        return sums.sum(0).to(x.dtype)
    product = grad.t() @ x
    if accumulate:
        d_table += product
    else:
        d_table.copy_(product)
    return grad @ table


# ----------------------------------------
# Threads of OpenMP that spin while they wait on a quiet machine, and soon sleep where other processes need the cores.
#
# Between two parallel parts of a step, the threads of GNU's OpenMP wait in a loop. That is fastest as long as each has
# a core of its own. Beside other processes, most of the time that the scheduler gives to the run is spent in such
# loops: with two threads on two cores and four busy processes, a run reached a third of its fair share (docs/log.md).
#
# OpenMP spins for 300,000 turns, but for 1,000 if it manages more threads than there are cores. It reads its settings
# once, so the only way to change between the two while a program runs is to give it more threads to manage: a second
# team, which belongs to a thread of Python that computes once and then sleeps. The numbers that a run computes do not
# depend on any of this.

INTERVAL = 0.5  # seconds between two measurements
MOST_WAITING = 0.1  # share of the time in which threads could run but wait for a core; more is a busy machine
TASKS = Path("/proc/self/task")

_watched: int | None = None  # the process that is watched; a fork is another one and has no threads of its parent


def share_cores() -> None:
    """Watch from now on, in a thread, whether this process must wait for cores. Does nothing for a single thread."""
    global _watched
    if sys.platform != "linux" or torch.get_num_threads() == 1 or _watched == os.getpid():
        return
    _watched = os.getpid()
    threading.Thread(target=_watch, name="workbench-cores", daemon=True).start()


def _watch() -> None:
    release: threading.Event | None = None  # set to end the second team; None if there is none
    before = waited()
    while before is not None:
        time.sleep(INTERVAL)
        now = waited()
        if now is None:
            break
        running, waiting = now[0] - before[0], now[1] - before[1]
        before = now
        if running + waiting < INTERVAL / 10:  # nothing is computed at present
            continue
        busy = waiting > MOST_WAITING * (running + waiting)
        if busy and release is None:
            release = threading.Event()
            threading.Thread(target=_second_team, args=(release,), name="workbench-team", daemon=True).start()
        elif not busy and release is not None:
            release.set()
            release = None
    if release is not None:
        release.set()


def waited() -> tuple[float, float] | None:
    """Return the seconds that the threads of this process have run, and those that they have waited for a core.

    None if Linux does not report it. Threads that have ended are missing, so a difference can be negative.
    """
    rows = []
    for task in TASKS.iterdir():
        with suppress(OSError, ValueError):  # the thread has ended
            rows.append([int(field) for field in (task / "schedstat").read_text().split()[:2]])
    return (sum(row[0] for row in rows) / 1e9, sum(row[1] for row in rows) / 1e9) if rows else None


def _second_team(release: threading.Event) -> None:
    """Make OpenMP manage more threads than there are cores until `release` is set."""
    large = torch.ones(1 << 20)  # torch sets this thread's number of threads here
    ctypes.CDLL(None).omp_set_num_threads(len(os.sched_getaffinity(0)) - torch.get_num_threads() + 2)
    large.add_(1)
    release.wait()
