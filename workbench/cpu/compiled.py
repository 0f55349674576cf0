"""`kernels.c`, compiled where it runs, on first use: the functions of `portable.py` in one pass over memory each.

There is nothing to install: a machine without a C compiler computes with `portable.py`, in more time. With
WORKBENCH_CPU_KERNELS=required in the environment that is an error, and with "off" nothing is compiled. What was
compiled lies in the cache folder, for each kind of CPU apart, so that a cluster's nodes share a home without harm; its
hash is checked before it is loaded, since damaged machine code ends a process without a word. Threads are those of
torch's own OpenMP, whose symbols torch has loaded.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workbench.cpu.portable import Drop
from workbench.errors import InputError
from workbench.store.atomic import cache_root, read_bytes, write_all
from workbench.store.cache import is_whole, staged

log = logging.getLogger("workbench")
SOURCES = tuple(Path(__file__).parent / name for name in ("kernels.c", "tiles.c"))  # the first includes the second
FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fPIC", "-fopenmp", "-fno-math-errno", "-fno-trapping-math")
LIBRARY = "kernels.so"
SETTING = "WORKBENCH_CPU_KERNELS"  # environment variable
WIDE = "-mprefer-vector-width=512"
KINDS = {torch.float32: (), torch.bfloat16: ("-DHALF",)}


class _Drop(ctypes.Structure):
    _fields_ = (("key", ctypes.c_uint64), ("below", ctypes.c_uint32), ("up", ctypes.c_float))


# What each takes before the number of threads: pointers, sizes (int64), floats and a dropout.
KERNELS = {
    "flush": "n", "split": "pppnnnnn", "merge": "pppnnnnn", "softmax": "pppnnnfd", "softmax_backward": "pppnnfd",
    "residual_norm": "pppppppppnnfd", "residual_norm_backward": "pppppppppnnd", "dropped": "ppnnd", "gelu": "pppnn",
    "gelu_backward": "ppppnn", "vocabulary": "pppppppfppppppnnn",
}  # fmt: skip
TILED = {  # those of tiles.c
    "linear_split": "ppppnnnnnn", "linear_gelu": "pppppnnn", "linear_gelu_backward": "ppppppnnn",
    "linear_norm": "ppppppppppnnnfd", "linear_norm_backward": "ppppppppppnnnd",
    "attention": "ppppnnnnfd", "attention_backward": "pppppnnnnfd", "outer": "pppnnn", "linear_words": "pppnnnn",
    "linear_words_backward": "pppppnnnnn",
}  # fmt: skip
TYPES = {"p": ctypes.c_void_p, "n": ctypes.c_int64, "f": ctypes.c_float, "d": _Drop}


def available(dtype: torch.dtype) -> bool:
    """Whether numbers of this type can be computed with here. Compiles, the first time on a machine (1 s)."""
    return _library(dtype) is not None


def has_tiles(dtype: torch.dtype) -> bool:
    """Whether the kernels of `tiles.c` can be had for numbers of this type, for which `available` is true."""
    return "outer" in (_library(dtype) or ())


def setting() -> str:
    """Return WORKBENCH_CPU_KERNELS. Raises InputError for a value that is none of its three."""
    word = os.environ.get(SETTING) or "auto"
    if word not in ("auto", "off", "required"):
        raise InputError(f"{SETTING}={word[:80]!r} is not one of auto, off and required")
    return word


def is_loaded() -> bool:
    """Whether anything asked for kernels before."""
    return _library.cache_info().currsize > 0


@functools.cache
def _library(dtype: torch.dtype) -> dict[str, Any] | None:
    """The kernels by name, or None where there is no such thing as compiling them."""
    wanted = setting()
    if dtype not in KINDS or wanted == "off":
        return None
    if sys.platform != "linux":
        _without("they are made for Linux only", wanted, quiet=True)
        return None
    key = hashlib.sha256(
        "\0".join([*(path.read_text() for path in SOURCES), *FLAGS, *KINDS[dtype], _cpu()]).encode()
    ).hexdigest()[:16]
    try:
        library = _loaded(_compiled(cache_root() / "kernels" / key, KINDS[dtype]))
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:  # no home is a RuntimeError
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        _without(next((line for line in said if "error" in line), said[-1] if said else str(error)), wanted)
        return None
    found = {}
    for kernel, arguments in (KERNELS | (TILED if library.tiles() else {})).items():
        found[kernel] = getattr(library, kernel)
        found[kernel].argtypes = [*(TYPES[kind] for kind in arguments), ctypes.c_int]
        found[kernel].restype = None
    return found


def _without(why: str, wanted: str, quiet: bool = False) -> None:
    """Go on without kernels, and log why unless `quiet`. Raises InputError where they are required."""
    if wanted == "required":
        raise InputError(f"there are no compiled kernels, which {SETTING}=required asks for: {why}")
    if not quiet:
        _warn(why)


@functools.cache
def _warn(why: str) -> None:
    """Log it once, though kernels are looked for once for each type of number."""
    log.warning("no compiled kernels, so steps take longer, up to twice as long: %s", why)


def _cpu() -> str:
    """What `-march=native` depends on, as far as it shows."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {flags}"


def _compiled(folder: Path, more: tuple[str, ...]) -> bytes:
    """The shared library: what was compiled before, if it is intact, else compiled. Raises OSError, SubprocessError."""
    if not is_whole(folder):
        with staged(folder) as stage:
            _compile(stage, more)
    return read_bytes(folder / LIBRARY)


def _loaded(content: bytes) -> ctypes.CDLL:
    """The library, out of memory: nothing that happens to the file from now on can reach this process.

    The descriptor stays open, because the loader takes two libraries of one path for the same.
    """
    fd = os.memfd_create(LIBRARY, os.MFD_CLOEXEC)
    write_all(fd, content)
    return ctypes.CDLL(f"/proc/self/fd/{fd}")


def _compile(folder: Path, more: tuple[str, ...]) -> None:
    """Compiled without linking OpenMP, since torch has its own. Raises OSError, SubprocessError."""
    compiled = folder / "kernels.o"
    compiler = shlex.split(os.environ.get("CC") or "cc")
    wide = (WIDE,) if platform.machine() in ("x86_64", "AMD64") else ()
    _run(*compiler, *FLAGS, *wide, *more, "-c", str(SOURCES[0]), "-o", str(compiled))
    _run(*compiler, "-shared", str(compiled), "-o", str(folder / LIBRARY), "-lm")
    compiled.unlink()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)


def _call(name: str, dtype: torch.dtype, *arguments: Any) -> None:
    """A kernel with tensors (None is NULL), integers, floats and Drops, and the number of threads after them."""
    library = _library(dtype)
    assert library is not None  # `available` was asked
    library[name](*map(_passed, arguments), torch.get_num_threads())


def _passed(value: Any) -> Any:
    if isinstance(value, Tensor):
        assert value.is_contiguous()
        return value.data_ptr()
    if isinstance(value, Drop):
        return _Drop(value.key & (2**64 - 1), max(bool(value.rate), round(value.rate * 2**31)), 1 / (1 - value.rate))
    return value


def _sums(*columns: int) -> Tensor:
    """Zeros (threads, columns...)."""
    return torch.zeros(torch.get_num_threads(), *columns)


def flush(yes: bool) -> None:
    """Whether numbers too small for full precision are 0, in all of torch's threads that there are."""
    _call("flush", torch.float32, int(yes))


def split(x: Tensor, bias: Tensor | None, parts: int, rows: int, heads: int) -> Tensor:
    """As `portable.split`."""
    length, width = len(x) // rows, x.shape[1] // parts // heads
    out = x.new_empty(parts, rows * heads, length, width)
    _call("split", x.dtype, x, bias, out, parts, rows, heads, length, width)
    return out


def merge(x: Tensor, rows: int, added: bool = False) -> tuple[Tensor, Tensor | None]:
    """As `portable.merge`."""
    parts, many, length, width = x.shape
    heads = many // rows
    out = x.new_empty(rows * length, parts * heads * width)
    sums = _sums(out.shape[1]) if added else None
    _call("merge", x.dtype, x, out, sums, parts, rows, heads, length, width)
    return out, None if sums is None else sums.sum(0)


def softmax(scores: Tensor, bias: Tensor | None, scale: float, drop: Drop) -> tuple[Tensor, Tensor]:
    """As `portable.softmax`."""
    many, length, _ = scores.shape
    kept = torch.empty_like(scores) if drop.rate else scores
    each = many * length // len(bias) if bias is not None else 1
    _call("softmax", scores.dtype, scores, bias, kept, many * length, each, length, scale, drop)
    return scores, kept


def softmax_backward(slopes: Tensor, chances: Tensor, scale: float, drop: Drop) -> tuple[Tensor, Tensor]:
    """As `portable.softmax_backward`."""
    many, length, _ = slopes.shape
    kept = torch.empty_like(chances) if drop.rate else chances
    _call("softmax_backward", slopes.dtype, slopes, chances, kept, many * length, length, scale, drop)
    return slopes, kept


def residual_norm(
    branch: Tensor, bias: Tensor, residual: Tensor, gain: Tensor, shift: Tensor, eps: float, drop: Drop
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `portable.residual_norm`."""
    rows, width = branch.shape
    added, out = torch.empty_like(branch), torch.empty_like(branch)
    means, stretches = bias.new_empty(rows), bias.new_empty(rows)
    _call("residual_norm", branch.dtype, branch, bias, residual, gain, shift, added, out, means, stretches,
          rows, width, eps, drop)  # fmt: skip
    return out, added, means, stretches


def residual_norm_backward(
    slopes: Tensor, more: Tensor | None, added: Tensor, means: Tensor, stretches: Tensor, gain: Tensor, drop: Drop
) -> tuple[Tensor, Tensor, Tensor]:
    """As `portable.residual_norm_backward`."""
    rows, width = slopes.shape
    d_added, sums = torch.empty_like(slopes), _sums(3, width)
    d_branch = torch.empty_like(slopes) if drop.rate else d_added
    _call("residual_norm_backward", slopes.dtype, slopes, more, added, means, stretches, gain, d_added, d_branch, sums,
          rows, width, drop)  # fmt: skip
    return d_added, d_branch, sums.sum(0)


def gelu(x: Tensor, bias: Tensor) -> Tensor:
    """As `portable.gelu`."""
    out = torch.empty_like(x)
    _call("gelu", x.dtype, x, bias, out, *x.shape)
    return out


def gelu_backward(slopes: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """As `portable.gelu_backward`."""
    sums = _sums(x.shape[1])
    _call("gelu_backward", x.dtype, x, bias, slopes, sums, *x.shape)
    return slopes, sums.sum(0)


def dropped(x: Tensor, drop: Drop) -> Tensor:
    """As `portable.dropped`, of x (N, D)."""
    out = torch.empty_like(x)
    _call("dropped", x.dtype, x, out, *x.shape, drop)
    return out


def vocabulary(
    logits: Tensor, shift: Tensor, targets: Tensor, write: Tensor, copy: Tensor | None, share: Tensor,
    draws: Tensor | None, temperature: float, learns: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """As `portable.vocabulary`."""
    (rows, width), words = logits.shape, len(shift)
    if rows and not 0 <= int(targets.min()) <= int(targets.max()) < words:
        raise IndexError(f"a target is no word of {words}")
    kept, losses, surprise = (torch.zeros(rows) for _ in range(3))
    right, samples = torch.empty(rows, dtype=torch.bool), torch.zeros(rows, dtype=torch.int64)
    sums = _sums(words) if learns else None
    _call("vocabulary", logits.dtype, logits, shift, targets, write, copy, share, draws, float(temperature), kept,
          losses, right, samples, surprise, sums, rows, width, words)  # fmt: skip
    return kept, losses, right, samples, surprise, None if sums is None else sums.sum(0)


def linear_split(x: Tensor, weight: Tensor, bias: Tensor, rows: int, heads: int) -> Tensor:
    """As in `workbench/cpu/__init__.py`, like all that follow."""
    many, width = len(weight), len(weight) // 3 // heads
    out = x.new_empty(3, rows * heads, len(x) // rows, width)
    _call("linear_split", x.dtype, x, weight, bias, out, *x.shape, many, rows, heads, out.shape[2])
    return out


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    inner, out = (x.new_empty(len(x), len(weight)) for _ in range(2))
    _call("linear_gelu", x.dtype, x, weight, bias, inner, out, *x.shape, len(weight))
    return inner, out


def linear_gelu_backward(x: Tensor, weight: Tensor, inner: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    out, sums = torch.empty_like(inner), _sums(inner.shape[1])
    _call("linear_gelu_backward", x.dtype, x, weight, inner, bias, out, sums, *x.shape, inner.shape[1])
    return out, sums.sum(0)


def linear_norm(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor, gain: Tensor, shift: Tensor, eps: float, drop: Drop
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    added, out = torch.empty_like(residual), torch.empty_like(residual)
    means, stretches = bias.new_empty(len(x)), bias.new_empty(len(x))
    _call("linear_norm", x.dtype, x, weight, bias, residual, gain, shift, added, out, means, stretches,
          *x.shape, len(weight), eps, drop)  # fmt: skip
    return out, added, means, stretches


def linear_norm_backward(
    x: Tensor, weight: Tensor, more: Tensor, added: Tensor, means: Tensor, stretches: Tensor, gain: Tensor, drop: Drop
) -> tuple[Tensor, Tensor, Tensor]:
    d_added, sums = torch.empty_like(added), _sums(3, added.shape[1])
    d_branch = torch.empty_like(added) if drop.rate else d_added
    _call("linear_norm_backward", x.dtype, x, weight, more, added, means, stretches, gain, d_added, d_branch, sums,
          *x.shape, added.shape[1], drop)  # fmt: skip
    return d_added, d_branch, sums.sum(0)


def attention(qkv: Tensor, bias: Tensor | None, rows: int, scale: float, drop: Drop) -> tuple[Tensor, Tensor]:
    _, many, length, width = qkv.shape
    heads = many // rows
    chances, context = qkv.new_empty(many, length, length), qkv.new_empty(rows * length, heads * width)
    _call("attention", qkv.dtype, qkv, bias, chances, context, rows, heads, length, width, scale, drop)
    return chances, context


def attention_backward(
    d_context: Tensor, qkv: Tensor, chances: Tensor, rows: int, scale: float, drop: Drop
) -> tuple[Tensor, Tensor]:
    _, many, length, width = qkv.shape
    heads = many // rows
    out, sums = qkv.new_empty(rows * length, 3 * heads * width), _sums(3 * heads * width)
    _call("attention_backward", qkv.dtype, d_context, qkv, chances, out, sums, rows, heads, length, width, scale, drop)
    return out, sums.sum(0)


def outer(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty(x.shape[1], y.shape[1])
    _call("outer", x.dtype, x, y, out, *x.shape, y.shape[1])
    return out


def linear_words(x: Tensor, table: Tensor) -> Tensor:
    out = x.new_empty(len(x), -(-len(table) // 32) * 32)
    _call("linear_words", x.dtype, x, table, out, *x.shape, len(table), out.shape[1])
    return out


def linear_words_backward(slopes: Tensor, x: Tensor, table: Tensor, d_table: Tensor, more: bool) -> Tensor:
    sums = _sums(*x.shape)
    _call("linear_words_backward", x.dtype, slopes, x, table, sums, d_table, *x.shape, len(table), slopes.shape[1],
          int(more))  # fmt: skip
    return sums.sum(0).to(x.dtype)
