"""Objectives whose losses over the vocabulary take one pass agree with the plain computation."""

from __future__ import annotations

import pytest
import torch
from objective_oracle import NAMES, shaken, synthetic, tiny

from workbench.training.loop import plainly


@pytest.mark.parametrize("lengths", [None, (24, 9, 17, 5) * 3], ids=["full", "padded"])
@pytest.mark.parametrize("tying", ["none", "embeddings"])
@pytest.mark.parametrize("name", NAMES)
def test_every_objective_agrees_with_the_plain_computation(
    name: str, tying: str, lengths: tuple[int, ...] | None
) -> None:
    """Without dropout, losses and metrics agree within 1e-5, and gradients within 1e-4 of their norm."""
    spec = tiny(name, {"tying": tying})
    batch = synthetic(spec, lengths=lengths)
    fast, plain = shaken(spec, size=0.15), plainly(shaken(spec, size=0.15))
    one, other = fast(batch), plain(batch)
    torch.testing.assert_close(one.values(), other.values(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(one.metrics, other.metrics, rtol=1e-5, atol=1e-5)
    one.total.backward()
    other.total.backward()
    whole = torch.stack([p.grad.norm() for p in plain.parameters()]).norm()
    for (key, mine), theirs in zip(fast.named_parameters(), plain.parameters(), strict=True):
        assert mine.grad is not None and theirs.grad is not None
        bound = 1e-4 * theirs.grad.norm() + 1e-6 * whole
        assert (mine.grad - theirs.grad).norm() <= bound, key
