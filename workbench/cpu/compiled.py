"""The functions of `portable.py` in one pass over memory each, written in C and compiled on first use (`kernels.c`).

On CPUs that multiply numbers in bf16 there are also kernels that compute products, which `workbench.cpu` calls, and all
layers of an encoder.

Nothing needs to be installed: a machine without a C compiler computes with `portable.py`, which takes longer and rounds
differently; a warning says so, and `fault` has the reason for records. A full or failing disk is an error. If the
environment variable WORKBENCH_CPU_KERNELS is "required", kernels that cannot be compiled are an error; if it is "off",
nothing is compiled. The compiled library is kept in the cache folder, separately for each kind of CPU, so that the
nodes of a cluster can share a home folder; where that takes no files, each process compiles its own. Its hash is
checked before it is loaded, since damaged machine code would end the process without a message. The kernels use the
threads of torch's own OpenMP library, which torch has loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import hashlib
import logging
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workbench.errors import InputError
from workbench.store.atomic import FAILING, FULL, cache_path, disk_errors, read_bytes, write_all
from workbench.store.cache import is_whole, staged
from workbench.tensors import Drop

log = logging.getLogger("workbench")
HERE = Path(__file__).parent
SOURCES = (HERE / "kernels.c", HERE / "tiles.c", HERE / "products.c", HERE / "layers.c")  # the first includes all
HEADERS = (HERE / "kernels.h", HERE / "tiles.h")
FLAGS: tuple[str, ...] = (
    "-std=gnu11", "-O3", "-march=native", "-fPIC", "-fopenmp", "-fno-math-errno", "-fno-trapping-math",
)  # fmt: skip
if platform.machine() in ("x86_64", "AMD64"):
    FLAGS = (*FLAGS, "-mprefer-vector-width=512")
PRODUCTS = ("", "tiles", "avx512")  # by the value of `products` in products.c
LIBRARY = "kernels.so"
SETTING = "WORKBENCH_CPU_KERNELS"  # environment variable
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)  # errors of a cache in which this user cannot write
# What compilers and linkers print, with LC_ALL=C, if a file of theirs cannot be written.
UNWRITTEN = dict(zip(map(os.strerror, (*FULL, *FAILING)), (*FULL, *FAILING), strict=True)) | {
    "File size limit exceeded": errno.EFBIG, "Bus error": errno.ENOSPC,
}  # fmt: skip
KINDS = {torch.float32: (), torch.bfloat16: ("-DHALF",)}


_FIELD = re.compile(r"^ +(uint64_t|uint32_t|float) (\w+);", re.MULTILINE)  # of the struct in kernels.h
_DECLARATION = re.compile(r"\bint (\w+)\(([^)]*),\s+int threads\);")
_TYPES: dict[str, Any] = {
    "uint64_t": ctypes.c_uint64, "uint32_t": ctypes.c_uint32, "float": ctypes.c_float, "size": ctypes.c_int64,
}  # fmt: skip


_kinds, _names = zip(*_FIELD.findall(HEADERS[0].read_text()), strict=True)


class _Drop(ctypes.Structure):
    _fields_ = list(zip(_names, map(_TYPES.__getitem__, _kinds), strict=True))


def declared(header: Path) -> dict[str, list[Any]]:
    """Return the functions of a header, with the ctypes of their arguments before the number of threads."""
    types, functions = _TYPES | {"dropout": _Drop}, dict[str, list[Any]]()
    for name, arguments in _DECLARATION.findall(header.read_text(encoding="utf-8")):
        functions[name] = []
        for one in arguments.split(","):
            functions[name].append(ctypes.c_void_p if "*" in one else types[one.split()[0]])
    return functions


KERNELS, TILED = map(declared, HEADERS)


def available(dtype: torch.dtype) -> bool:
    """Return whether there are kernels for this dtype. The first call on a machine compiles them, in about a second."""
    return _library(dtype) is not None


def products(dtype: torch.dtype) -> str:
    """Return how the kernels of `tiles.c` multiply numbers of this dtype: "tiles" (AMX), "avx512", or "" without them.

    `available` must be true for the dtype.
    """
    library = _library(dtype)
    return "" if library is None else str(library["products"])


def setting() -> str:
    """Return WORKBENCH_CPU_KERNELS: auto, off or required. Raises InputError for any other value."""
    value = os.environ.get(SETTING) or "auto"
    if value not in ("auto", "off", "required"):
        raise InputError(f"{SETTING}={value[:80]!r} is not one of auto, off and required")
    return value


def is_loaded() -> bool:
    """Return whether kernels have been loaded, or looked for, in this process."""
    return _library.cache_info().currsize > 0


@functools.cache
def _library(dtype: torch.dtype) -> dict[str, Any] | None:
    """Return the kernels for a dtype by name, and `products`, or None if there are none.

    Raises InputError if they are required, and OSError if the disk is full or fails, as other kernels round differently
    and the same command is to give the same numbers.
    """
    mode = setting()
    if dtype not in KINDS or mode == "off":
        return None
    if sys.platform != "linux":
        _without("they are for Linux only", mode, quiet=True)
        return None
    try:
        library = _loaded(_compiled(_folder(KINDS[dtype]), KINDS[dtype]))
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:  # RuntimeError: no home folder
        if isinstance(error, OSError) and error.errno in (*FULL, *FAILING):
            raise
        lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        _without(next((line for line in lines if "error" in line), lines[-1] if lines else str(error)), mode)
        return None
    kernels: dict[str, Any] = {"products": PRODUCTS[library.products()]}
    for kernel, arguments in (KERNELS | (TILED if kernels["products"] else {})).items():
        kernels[kernel] = getattr(library, kernel)
        kernels[kernel].argtypes = [*arguments, ctypes.c_int]
    return kernels


def _without(why: str, mode: str, quiet: bool = False) -> None:
    """Continue without kernels, and log the reason unless `quiet`. Raises InputError if they are required."""
    if mode == "required":
        raise InputError(
            f"{SETTING}=required, but the CPU kernels cannot be compiled: {why}; correct that, or set {SETTING}=auto "
            f"to compute without kernels"
        )
    if not quiet and why not in _faults:  # once, though kernels are compiled separately for each dtype
        _faults.append(why)
        log.warning(
            "the CPU kernels cannot be compiled, so that a training step takes up to twice as long, and losses and "
            "scores differ from those with kernels: %s", why,
        )  # fmt: skip


_faults: list[str] = []  # why kernels could not be compiled in this process


def fault() -> str:
    """Return why compiling the kernels failed in this process; "" if it did not fail or was not tried."""
    return _faults[0] if _faults else ""


def _folder(flags: tuple[str, ...]) -> Path:
    """Return the folder in the cache for the library that these flags make here, with the compiler that there is.

    Its name is a hash of everything that the machine code depends on: sources, flags and CPU, then the compiler and its
    version. A machine without a compiler takes the newest library of the same sources, flags and CPU. Raises OSError or
    SubprocessError if there is none.
    """
    cpu = f"{platform.machine()} "  # and its flags, on which the result of `-march=native` depends
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("flags", "Features")):
                cpu += line
                break
    texts = map(Path.read_text, SOURCES + HEADERS)
    base = hashlib.sha256("\0".join([*texts, *FLAGS, *flags, cpu]).encode()).hexdigest()[:16]
    root = cache_path() / "kernels"
    try:
        version = _run(*_compiler(), "--version")
    except (OSError, subprocess.SubprocessError):
        whole = [folder for folder in root.glob(f"{base}-*") if is_whole(folder)]
        if not whole:
            raise
        return max(whole, key=lambda folder: folder.stat().st_mtime)
    return root / f"{base}-{hashlib.sha256(chr(0).join([*_compiler(), version]).encode()).hexdigest()[:8]}"


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC") or "cc")


def _compiled(folder: Path, flags: tuple[str, ...]) -> bytes:
    """Return the shared library in a cache folder, compiled again if it is missing or damaged.

    If the cache takes no files, it is compiled in a temporary folder. Raises OSError and SubprocessError if it cannot
    be compiled.
    """
    if is_whole(folder):
        return read_bytes(folder / LIBRARY)
    try:
        with staged(folder) as stage:
            _compile(stage, flags)
        return read_bytes(folder / LIBRARY)
    except (InputError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in CLOSED:
            raise
    with tempfile.TemporaryDirectory(prefix="workbench-") as own, disk_errors(Path(own)):
        _compile(Path(own), flags)
        return read_bytes(Path(own) / LIBRARY)


def _loaded(content: bytes) -> ctypes.CDLL:
    """Return the library loaded from a copy in memory, so that later changes of its file have no effect.

    The file descriptor stays open, because the loader takes two libraries with the same path for one.
    """
    fd = os.memfd_create(LIBRARY, os.MFD_CLOEXEC)
    write_all(fd, content)
    return ctypes.CDLL(f"/proc/self/fd/{fd}")


def _compile(folder: Path, flags: tuple[str, ...]) -> None:
    """Compile the library into a folder, without OpenMP, since torch has its own. Raises OSError, SubprocessError.

    The compiler's temporary files are written there, too, so that all of them need one disk.
    """
    compiled = folder / "kernels.o"
    own = {"LC_ALL": "C", "TMPDIR": str(folder)}
    try:
        _run(*_compiler(), *FLAGS, *flags, "-c", str(SOURCES[0]), "-o", str(compiled), **own)
        _run(*_compiler(), "-shared", str(compiled), "-o", str(folder / LIBRARY), "-lm", **own)
    except subprocess.CalledProcessError as error:
        code = next((code for text, code in UNWRITTEN.items() if text in error.stderr), None)
        if code is None:
            raise
        raise OSError(code, os.strerror(code), str(folder)) from None
    compiled.unlink()


def _run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, errors="replace", timeout=120,
        env=os.environ | environment,
    )  # fmt: skip
    return done.stdout


def call(name: str, dtype: torch.dtype, *arguments: Any) -> None:
    """Call a kernel with tensors (None for NULL), integers, floats and `Drop`s, and then the number of threads.

    Raises MemoryError if the kernel could not allocate memory; its results are then untouched.
    """
    library = _library(dtype)
    assert library is not None  # callers have checked `available`
    passed: list[Any] = []
    for value in arguments:
        if isinstance(value, Tensor):
            assert value.is_contiguous()
            passed.append(value.data_ptr())
        elif isinstance(value, Drop):
            rate, scale = max(bool(value.rate), round(value.rate * 2**31)), 1 / (1 - value.rate)
            passed.append(_Drop(value.key & (2**64 - 1), rate, scale))
        else:
            passed.append(value)
    if library[name](*passed, torch.get_num_threads()):
        raise MemoryError(f"the CPU kernel {name} could not allocate memory")


def thread_sums(*columns: int) -> Tensor:
    """Return zeros (threads, *columns), into which each thread adds its own sums."""
    return torch.zeros(torch.get_num_threads(), *columns)


def spread(bias: Tensor | None, many: int) -> tuple[int, int]:
    """Return how many of `many` items share an entry of bias (B or 1, L or 1, L), and how many queries it has."""
    return (1, 1) if bias is None else (many // len(bias), bias.shape[1])


# ---- each function of `portable.py` in one pass over memory; `portable.py` has the docstrings ----


def split(x: Tensor, bias: Tensor | None, parts: int, rows: int, heads: int) -> Tensor:
    length, width = len(x) // rows, x.shape[1] // parts // heads
    out = x.new_empty(parts, rows * heads, length, width)
    call("split", x.dtype, x, bias, out, parts, rows, heads, length, width)
    return out


def merge(x: Tensor, rows: int, with_sums: bool = False) -> tuple[Tensor, Tensor | None]:
    parts, many, length, width = x.shape
    heads = many // rows
    out = x.new_empty(rows * length, parts * heads * width)
    sums = thread_sums(out.shape[1]) if with_sums else None
    call("merge", x.dtype, x, out, sums, parts, rows, heads, length, width)
    return out, None if sums is None else sums.sum(0)


def softmax(scores: Tensor, bias: Tensor | None, scale: float, drop: Drop) -> tuple[Tensor, Tensor]:
    many, rows, length = scores.shape
    after_dropout = torch.empty_like(scores) if drop.rate else scores
    each, queries = spread(bias, many * rows)
    call("softmax", scores.dtype, scores, bias, after_dropout, many * rows, each, queries, length, scale, drop)
    return scores, after_dropout


def softmax_backward(grad: Tensor, probs: Tensor, scale: float, drop: Drop) -> tuple[Tensor, Tensor]:
    many, rows, length = grad.shape
    after_dropout = torch.empty_like(probs) if drop.rate else probs
    call("softmax_backward", grad.dtype, grad, probs, after_dropout, many * rows, length, scale, drop)
    return grad, after_dropout


def residual_norm(
    branch: Tensor, bias: Tensor, residual: Tensor, norm_weight: Tensor, norm_bias: Tensor, eps: float, drop: Drop
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows, width = branch.shape
    added, out = torch.empty_like(branch), torch.empty_like(branch)
    means, rstds = bias.new_empty(rows), bias.new_empty(rows)
    call("residual_norm", branch.dtype, branch, bias, residual, norm_weight, norm_bias, added, out, means, rstds,
          rows, width, eps, drop)  # fmt: skip
    return out, added, means, rstds


def residual_norm_backward(
    grad: Tensor, extra_grad: Tensor | None, added: Tensor, means: Tensor, rstds: Tensor, norm_weight: Tensor,
    drop: Drop,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    rows, width = grad.shape
    d_added, sums = torch.empty_like(grad), thread_sums(3, width)
    d_branch = torch.empty_like(grad) if drop.rate else d_added
    call("residual_norm_backward", grad.dtype, grad, extra_grad, added, means, rstds, norm_weight, d_added, d_branch,
          sums, rows, width, drop)  # fmt: skip
    return d_added, d_branch, sums.sum(0)


def gelu(x: Tensor, bias: Tensor) -> Tensor:
    out = torch.empty_like(x)
    call("gelu", x.dtype, x, bias, out, *x.shape)
    return out


def gelu_backward(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    sums = thread_sums(x.shape[1])
    call("gelu_backward", x.dtype, x, bias, grad, sums, *x.shape)
    return grad, sums.sum(0)


def dropped(x: Tensor, drop: Drop) -> Tensor:
    """Compute `tensors.dropped` for x (N, D), in one pass over memory."""
    out = torch.empty_like(x)
    call("dropped", x.dtype, x, out, *x.shape, drop)
    return out


def vocabulary(
    logits: Tensor, bias: Tensor, targets: Tensor, write: Tensor, copy: Tensor | None, share: Tensor,
    draws: Tensor | None, temperature: float, with_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    (rows, width), vocab = logits.shape, len(bias)
    if rows and not 0 <= int(targets.min()) <= int(targets.max()) < vocab:
        raise IndexError(f"a target token lies outside the vocabulary of {vocab} tokens")
    grad_nll, log_likelihoods, sample_nll = (torch.zeros(rows) for _ in range(3))
    correct, samples = torch.empty(rows, dtype=torch.bool), torch.zeros(rows, dtype=torch.int64)
    sums = thread_sums(vocab) if with_grad else None
    call("vocabulary", logits.dtype, logits, bias, targets, write, copy, share, draws, float(temperature), grad_nll,
          log_likelihoods, correct, samples, sample_nll, sums, rows, width, vocab)  # fmt: skip
    return grad_nll, log_likelihoods, correct, samples, sample_nll, None if sums is None else sums.sum(0)


def layers(
    hidden: Tensor, bias: Tensor | None, parameters: Sequence[Tensor], heads: int, eps: float, scale: float,
    drops: Sequence[Drop], with_grad: bool,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """Return the output of all layers for hidden, (B, L, D) each, and the tensors that `layers_backward` needs.

    parameters are the sixteen of each layer in fp32 (`layers.layers_of`); drops are those of the first layer. Unless
    `with_grad`, the tensors that are returned for the gradient are of no use: every layer has overwritten them.
    """
    (rows, length, width), wide, many = hidden.shape, len(parameters[10]), len(parameters) // 16
    kept, places, units = many if with_grad else 1, rows * length, rows * heads
    saved = [
        hidden.new_empty(shape)
        for shape in (
            (max(1, kept - 1), places, width), (kept, 3, units, length, width // heads), (kept, units, length, length),
            (kept, places, width), (kept, places, width), (kept, places, width), (kept, places, wide),
            (kept, places, wide), (kept, places, width),
        )
    ]  # fmt: skip
    saved.append(torch.empty(kept, 4, places))
    out = torch.empty_like(hidden)
    each, queries = spread(bias, units)
    call("layers_forward", hidden.dtype, _pointers(parameters), bias, hidden, *saved, out, many, int(with_grad), rows,
          heads, length, width, wide, each, queries, scale, eps, *drops)  # fmt: skip
    return out, saved


def layers_backward(
    grad: Tensor, hidden: Tensor, saved: Sequence[Tensor], parameters: Sequence[Tensor], heads: int, scale: float,
    drops: Sequence[Drop],
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """Return the gradients with respect to hidden (B, L, D) and to the parameters of `layers`."""
    (rows, length, width), wide, many = hidden.shape, len(parameters[10]), len(parameters) // 16
    d_hidden, sums = torch.empty_like(hidden), thread_sums(many, 9 * width + wide)
    d_weights = torch.empty(many, width * (4 * width + 2 * wide))
    call("layers_backward", hidden.dtype, _pointers(parameters), hidden, *saved, grad, d_hidden, sums, d_weights, many,
          rows, heads, length, width, wide, scale, *drops)  # fmt: skip
    square, outer = width * width, width * wide
    grads: list[Tensor] = []
    for d_matrices, d_vectors in zip(d_weights, sums.sum(0), strict=True):
        wq, wk, wv, wo, w1, w2 = d_matrices.split([square, square, square, square, outer, outer])
        g1, c1, bo, b1, bq, bk, bv, g2, c2, b2 = d_vectors.split([*[width] * 3, wide, *[width] * 6])
        flat = (wq, bq, wk, bk, wv, bv, wo, bo, g1, c1, w1, b1, w2, b2, g2, c2)
        grads += [grad.view_as(each) for grad, each in zip(flat, parameters[len(grads) :], strict=False)]
    return d_hidden, grads


def _pointers(tensors: Sequence[Tensor]) -> Tensor:
    """Return the addresses of contiguous tensors in fp32, as a kernel reads an array of pointers."""
    assert all(tensor.is_contiguous() and tensor.dtype == torch.float32 for tensor in tensors)
    return torch.tensor([tensor.data_ptr() for tensor in tensors])
