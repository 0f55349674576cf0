"""Random numbers as pure functions of seed, stream and place in training, so that no generator state has to be saved.

Each row has a 64-bit key, made from the seed and the row's place in training; a random number is a hash of key, stream
and index. The same numbers result on every device, for every micro-batch size and every number of ranks.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


def seed_of(seed: int, *names: str | int) -> int:
    """Return a 63-bit seed for a named stream, by SHA-256, so that no two streams share a sequence of numbers."""
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:8], "big") >> 1


def _salt(stream: str) -> int:
    """Return an int64 that makes the numbers of this stream different from those of other streams."""
    return seed_of(0, stream)


# The same as the decorator `torch.compiler.assume_constant_result`, without importing torch: a compiled objective uses
# the hash of a stream's name as a constant, since SHA-256 cannot be traced and would break the graph.
_salt._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _signed(value: int) -> int:
    """Return the int64 with the same 64 bits as `value`."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SIGNED_FACTORS = (_signed(_FACTORS[0]), _signed(_FACTORS[1]))
_UNSIGNED_STEP = 0x9E3779B97F4A7C15
_STEP = _signed(_UNSIGNED_STEP)


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble each 64-bit integer of an array of any shape, bijectively.

    This is the finaliser of SplitMix64 (Steele et al. 2014). `_mix` is the same for torch, which computes with signed
    64-bit integers only, and so needs more operations. `cpu/kernels.c` has it in C.
    """
    x: Any = values
    x = (x ^ (x >> 30)) * _FACTORS[0]
    x = (x ^ (x >> 27)) * _FACTORS[1]
    scrambled: NDArray[np.uint64] = x ^ (x >> 31)
    return scrambled


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift x right by `bits` and fill with zeros; torch's own shift copies the sign bit."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """Scramble each int64 of a tensor of any shape, as `mixed` does."""
    x = (x ^ _shift(x, 30)) * _SIGNED_FACTORS[0]
    x = (x ^ _shift(x, 27)) * _SIGNED_FACTORS[1]
    return x ^ _shift(x, 31)


def row_keys(seed: int, positions: Tensor) -> Tensor:
    """Return the keys (B,) int64 of the rows at `positions` (B,) int64 of the training stream."""
    import numpy as np
    import torch

    numbers = positions.cpu().numpy().view(np.uint64) * np.uint64(_UNSIGNED_STEP)
    keys = mixed(mixed(numbers) ^ np.uint64(seed_of(seed, "rows")))
    return torch.from_numpy(keys.view(np.int64)).to(positions.device)


def uniform(keys: Tensor, stream: str, count: int) -> Tensor:
    """Return random numbers (B, count) float32, uniform on [0, 1) in steps of 2^-24, from keys (B,) int64."""
    import torch

    # Without `^ 0`, torch.compile computes the product as an index into memory, for which 32 bits are enough, and the
    # numbers of later columns are others.
    index = (torch.arange(1, count + 1, device=keys.device, dtype=torch.int64) ^ 0) * _STEP
    bits = _mix(_mix(keys ^ _salt(stream))[:, None] + index)
    return _shift(bits, 40).to(torch.float32) * 2.0**-24
