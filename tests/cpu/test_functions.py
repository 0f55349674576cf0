"""The functions between matrix products and their gradients agree with torch, also with fewer queries than keys."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from workbench.cpu import functions
from workbench.tensors import Drop

NONE, SOME = Drop(7, 0.0), Drop(7, 0.3)


def both(compute: Callable[[bool, list[Tensor]], Tensor], inputs: list[Tensor]) -> list[list[Tensor]]:
    """Output and gradients of the fast computation, and of torch's."""
    results = []
    for fast in (True, False):
        own = [each.clone().requires_grad_(each.is_floating_point()) for each in inputs]
        out = compute(fast, own)
        (out * torch.linspace(-1, 2, out.numel()).view_as(out)).sum().backward()
        results.append([out.detach(), *(each.grad for each in own if each.grad is not None)])
    return results


def close(results: list[list[Tensor]]) -> None:
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 5, 7), (3, 1, 7), (1, 1, 7)])
def test_probabilities_of_fewer_queries_than_keys(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    scores, bias = torch.randn(6, 5, 7, dtype=dtype), torch.randn(shape, dtype=dtype)

    def compute(fast: bool, inputs: list[Tensor]) -> Tensor:
        return functions.attention_probabilities(inputs[0] * 1, bias, 0.5, NONE, fast)

    results = both(compute, [scores])
    close(results)
    wide = bias.expand(3, 5, 7).repeat_interleave(2, 0)  # two heads
    torch.testing.assert_close(results[0][0], (scores * 0.5 + wide).softmax(-1), rtol=1e-5, atol=1e-6)


def test_the_rest_agrees_with_torch() -> None:
    torch.manual_seed(0)
    x, bias, residual, norm = torch.randn(9, 6), torch.randn(6), torch.randn(9, 6), nn.LayerNorm(6)
    nn.init.normal_(norm.weight)
    close(both(lambda fast, given: functions.gelu(given[0] * 1, given[1], fast), [x, bias]))
    close(both(lambda fast, given: functions.residual_norm(*given, norm, NONE, fast), [x, bias, residual]))
    assert functions.dropout(x, NONE, True) is x


def test_dropout_has_its_rate_and_the_gradient_of_what_is_kept() -> None:
    x = torch.ones(400, 50, requires_grad=True)
    for fast in (True, False):
        x.grad = None
        out = functions.dropout(x, SOME, fast)
        out.sum().backward()
        assert x.grad is not None
        torch.testing.assert_close(x.grad, out.detach())
        assert (out == 0).float().mean().item() == pytest.approx(0.3, abs=0.02)
        torch.testing.assert_close(out.max(), torch.tensor(1 / 0.7), rtol=1e-3, atol=0)
        kept = functions.attention_probabilities(torch.zeros(4, 100, 50), torch.zeros(1, 1, 50), 1.0, SOME, fast)
        assert (kept == 0).float().mean().item() == pytest.approx(0.3, abs=0.02)
        assert kept.mean().item() == pytest.approx(1 / 50, rel=0.05)
        normed = functions.residual_norm(
            torch.ones(400, 50), torch.zeros(50), torch.zeros(400, 50), nn.LayerNorm(50), SOME, fast
        )
        assert (normed < 0).float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert torch.equal(functions.dropout(x, SOME, True), functions.dropout(x, SOME, True))


def test_they_are_fast_on_a_cpu_outside_of_compilers() -> None:
    assert functions.can(torch.ones(1)) and not functions.can(torch.ones(1, device="meta"))
