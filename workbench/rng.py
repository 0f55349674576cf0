"""Every random draw as a pure function of (seed, stream, place): exact resume with no generator state to save.

Rows carry a 64-bit key made from the seed and their place in training; a draw hashes key, stream and index. The same
numbers come out on every device, with every micro-batch size and number of ranks.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


def seed_of(seed: int, *names: str | int) -> int:
    """A 63-bit seed for a named stream, by SHA-256: streams never share a sequence."""
    text = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _salt(stream: str) -> int:
    """What tells a stream of row draws from the others, as an int64."""
    return _signed(seed_of(0, stream))


# What `torch.compiler.assume_constant_result` sets, without importing torch here: a compiled objective takes the hash
# of a stream's name as a constant, since SHA-256 cannot be traced and would break the graph.
_salt._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SIGNED_FACTORS = (_signed(_FACTORS[0]), _signed(_FACTORS[1]))
_STEP = _signed(0x9E3779B97F4A7C15)


def _finalise(x: Any, shift: Callable[[Any, int], Any], factors: tuple[int, int]) -> Any:
    """Scramble 64 bits bijectively (the finaliser of SplitMix64, Steele et al. 2014).

    `shift` is a logical right shift, and `factors` fit the type of `x`: torch computes with signed words alone, and
    numpy with unsigned ones in fewer steps. `cpu/kernels.c` has the same in C.
    """
    x = (x ^ shift(x, 30)) * factors[0]
    x = (x ^ shift(x, 27)) * factors[1]
    return x ^ shift(x, 31)


def mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble each of these words, of any shape."""
    found: NDArray[np.uint64] = _finalise(words, operator.rshift, _FACTORS)
    return found


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift; torch's own keeps the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """Scramble each int64 of a tensor of any shape."""
    found: Tensor = _finalise(x, _shift, _SIGNED_FACTORS)
    return found


def row_keys(seed: int, positions: Tensor) -> Tensor:
    """Keys (B,) int64 of the rows at `positions` (B,) int64 of the training stream."""
    return _mix(_mix(positions * _STEP) ^ _signed(seed_of(seed, "rows")))


def uniform(keys: Tensor, stream: str, count: int) -> Tensor:
    """Numbers (B, count) float32, evenly spread over [0, 1) in steps of 2^-24, from keys (B,)."""
    import torch

    index = torch.arange(1, count + 1, device=keys.device, dtype=torch.int64) * _STEP
    bits = _mix(_mix(keys ^ _salt(stream))[:, None] + index)
    return _shift(bits, 40).to(torch.float32) * 2.0**-24
