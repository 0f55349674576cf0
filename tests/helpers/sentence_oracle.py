"""Objectives and sentences for tests of scores, in float64."""

from __future__ import annotations

from typing import Any

import torch
from objective_oracle import shaken, tiny
from torch import Tensor

from workbench.training.loop import plainly

LENGTH = 9


def made(name: str, **changes: Any) -> tuple[Any, Any]:
    """Return an objective in float64 without dropout, whose weights differ from their initial values."""
    spec = tiny(name, changes)
    model = plainly(shaken(spec).double().eval())
    return spec, model


def sentence(spec: Any, seed: int, length: int = LENGTH) -> Tensor:
    """Return one row of ids: [CLS], the tokens, [SEP]."""
    special = spec.data.special
    words = torch.randint(8, spec.encoder.vocab, (length - 2,), generator=torch.Generator().manual_seed(seed))
    return torch.cat([torch.tensor([special.cls]), words, torch.tensor([special.sep])])
