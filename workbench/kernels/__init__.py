"""What lies between the matrix products of a training step on a CPU, in one pass over memory each where that can be.

`portable.py` has every function in torch's own operations, for any dtype, and says what it computes; `compiled.py` has
the same in C, for fp32 and bf16.
"""

from __future__ import annotations

from types import ModuleType

from torch import Tensor

from workbench.kernels import compiled, portable


def of(x: Tensor) -> ModuleType:
    """What computes numbers like these: `compiled` or `portable`, which have the same functions."""
    return compiled if x.device.type == "cpu" and compiled.available(x.dtype) else portable
