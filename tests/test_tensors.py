"""Operations on tensors of any device: sampling, dropout, the keys that queries attend to, copies to a device."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
import torch

from workbench.errors import InputError
from workbench.tensors import RESERVED, Drop, StepLoss, dropped, sample, to_device, visible_keys


@pytest.mark.parametrize("size", [1, 63, 64, 65, 200])
def test_every_possible_token_is_sampled_and_no_impossible_one(size: int) -> None:
    """This holds for any size of the vocabulary; every third token has a probability of 0."""
    probs = torch.rand(size, generator=torch.Generator().manual_seed(0)) + 0.2
    probs[1::3] = 0
    draws = (torch.arange(40_000) + 0.5) / 40_000
    samples = sample(probs.expand(40_000, -1), draws)
    observed = torch.bincount(samples, minlength=size).numpy()
    expected = (probs / probs.sum() * 40_000).numpy()
    assert np.abs(observed - expected).max() <= 2  # evenly spread draws select tokens in proportion
    assert (samples.diff() >= 0).all() and not observed[1::3].any()
    ends = sample(probs.expand(2, -1), torch.tensor([0.0, 1 - 2**-24]))
    assert ends[0] == 0 and probs[ends[1]] > 0


def test_dropout_is_a_function_of_its_key_and_returns_the_tensor_itself_at_a_rate_of_0() -> None:
    x = torch.rand(64, 33, dtype=torch.float64) + 1
    out = dropped(x, Drop(5, 0.25))
    assert torch.equal(out, dropped(x, Drop(5, 0.25))) and not torch.equal(out, dropped(x, Drop(6, 0.25)))
    kept = out != 0
    torch.testing.assert_close(out[kept], x[kept] / 0.75, rtol=1e-4, atol=0)
    assert dropped(x, Drop(5, 0.0)) is x


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [None, (4, 2, 0)])
def test_visible_keys_are_tokens_and_in_a_causal_encoder_none_after_the_query(
    lengths: tuple[int, ...] | None, causal: bool
) -> None:
    """Padding attends to itself in a causal encoder, so that every query has a key."""
    ids = torch.zeros(3, 4, dtype=torch.long)
    attention = None if lengths is None else torch.arange(4) < torch.tensor(lengths)[:, None]
    visible = visible_keys(ids, attention, causal)
    if lengths is None and not causal:
        assert visible is None
        return
    assert visible is not None
    for row, query, key in itertools.product(range(3), range(4), range(4)):
        is_token = lengths is None or key < lengths[row]
        expected = key <= query and (is_token or key == query) if causal else is_token
        assert visible.expand(3, 4, 4)[row, query, key] == expected


def test_a_tensor_for_the_cpu_is_not_copied() -> None:
    x = torch.arange(3)
    assert to_device(x, "cpu") is x and to_device(x, torch.device("cpu")) is x


@pytest.mark.gpu
def test_a_copy_to_a_gpu_does_not_wait_for_the_work_before_it() -> None:
    x = torch.arange(2**17)
    to_device(x, "cuda")
    torch.cuda.synchronize()
    torch.cuda._sleep(10**9)  # clock cycles, about half a second
    begun = time.perf_counter()
    there = to_device(x, "cuda")
    assert time.perf_counter() - begun < 0.1
    assert torch.equal(there.cpu(), x)


@pytest.mark.parametrize("name", [*sorted(RESERVED), "flops.paper", "flops_matmul", "", 3])
def test_a_name_that_every_row_has_is_none_of_a_loss_or_metric(name: object) -> None:
    zero, ratio = torch.zeros(()), (torch.zeros(()), torch.ones(()))
    fine = StepLoss(zero, {"token": zero, "loss_": zero}, {"flop": ratio, "Step": ratio})
    fine.check_names("x.py")
    for loss in (
        StepLoss(zero, {**fine.parts, name: zero}, fine.metrics),  # type: ignore[dict-item]
        StepLoss(zero, fine.parts, {**fine.metrics, name: ratio}),  # type: ignore[dict-item]
    ):
        with pytest.raises(InputError, match=r"^x\.py has a loss or metric named ") as caught:
            loss.check_names("x.py")
        assert repr(name) in str(caught.value) and "\n" not in str(caught.value)


def test_a_loss_and_a_metric_have_different_names() -> None:
    zero = torch.zeros(())
    with pytest.raises(InputError, match="has both a loss and a metric named 'b'"):
        StepLoss(zero, {"a": zero, "b": zero}, {"b": (zero, zero)}).check_names("x.py")
