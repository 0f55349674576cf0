"""The loss functions against naive formulas in float64, and the metrics against scikit-learn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk
from torch import Tensor

from workbench.cpu import functions
from workbench.models import losses
from workbench.models.losses import (
    binary_loss,
    binary_ratios,
    copy_mixture_loss,
    cross_entropy,
    guess_by_blocks,
    is_most_probable,
    token_log_likelihood,
    weighted_mean,
)
from workbench.tensors import StepLoss, sample

SCORES = st.integers(-3, 3)  # few values, so that many scores tie; 0 is a negative prediction


@st.composite
def scored(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    rows, width = draw(st.integers(1, 3)), draw(st.integers(1, 12))
    size = rows * width
    scores = draw(st.lists(SCORES, min_size=size, max_size=size))
    labels = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    weights = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    shape = (rows, width)
    return (
        torch.tensor(scores).float().view(shape),
        torch.tensor(labels).view(shape),
        torch.tensor(weights).view(shape),
    )


def value(ratio: tuple[Tensor, Tensor]) -> float | None:
    return float(ratio[0] / ratio[1]) if ratio[1] else None


@settings(max_examples=300, deadline=None)
@given(scored(), st.sampled_from([torch.bool, torch.float32]))
def test_binary_ratios_agree_with_scikit_learn(case: tuple[Tensor, Tensor, Tensor], kind: torch.dtype) -> None:
    scores, labels, weights = case
    ratios = binary_ratios("x", scores, labels, weights.to(kind))
    s, y = scores[weights].numpy(), labels[weights].numpy()
    said = s > 0
    assert value(ratios["x_accuracy"]) == (pytest.approx(sk.accuracy_score(y, said)) if len(y) else None)
    assert value(ratios["x_precision"]) == (pytest.approx(sk.precision_score(y, said)) if said.any() else None)
    assert value(ratios["x_recall"]) == (pytest.approx(sk.recall_score(y, said)) if y.any() else None)
    assert value(ratios["x_positive_rate"]) == (pytest.approx(said.mean()) if len(y) else None)
    both = y.any() and not y.all()
    assert value(ratios["x_auc"]) == (pytest.approx(sk.roc_auc_score(y, s)) if both else None)


def test_auc_of_many_tokens() -> None:
    """Sums in fp32 are exact enough for more than a million pairs, with ties among them."""
    numbers = np.random.default_rng(0)
    labels = numbers.random((64, 128)) < 0.07
    scores = np.round(numbers.normal(size=labels.shape) + labels, 2).astype(np.float32)
    found = value(binary_ratios("x", *map(torch.tensor, (scores, labels, np.ones_like(labels))))["x_auc"])
    assert found == pytest.approx(sk.roc_auc_score(labels.ravel(), scores.ravel()), rel=1e-6)


def test_ratios_of_micro_batches_sum_to_those_of_the_step() -> None:
    """Accuracy, precision and recall of a step are computed from the sums over its micro-batches."""
    numbers = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(6, 9, generator=numbers), torch.rand(6, 9, generator=numbers) < 0.3
    counted = torch.rand(6, 9, generator=numbers) < 0.8
    whole = binary_ratios("x", scores, labels, counted)
    halves = [binary_ratios("x", *(part[i : i + 3] for part in (scores, labels, counted))) for i in (0, 3)]
    for name in ("x_accuracy", "x_precision", "x_recall"):
        for i in (0, 1):
            assert halves[0][name][i] + halves[1][name][i] == whole[name][i]


@pytest.mark.parametrize("weight", [1e-3, 0.5, 4.0])
def test_a_weighted_mean_does_not_depend_on_the_scale_of_the_weights(weight: float) -> None:
    values, weights = torch.tensor([1.0, 4.0]), torch.tensor([weight, 2 * weight])
    mean = losses.weighted_mean(values, weights)
    assert mean.item() == pytest.approx(3.0)
    assert StepLoss(mean, {}).denominators(values.device).tolist() == pytest.approx([3 * weight])


def test_a_mean_without_weight_is_0_with_a_finite_gradient() -> None:
    values = torch.ones(2, 2, requires_grad=True)
    mean = weighted_mean(values, torch.zeros(2, 2))
    mean.backward()
    assert mean.item() == 0 and values.grad is not None and not values.grad.any()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1000))
def test_means_are_taken_over_positions_that_count(seed: int) -> None:
    numbers = np.random.default_rng(seed)
    logits, labels, weights = (
        numbers.normal(size=(3, 4)) * 5,
        numbers.random((3, 4)) < 0.5,
        numbers.random((3, 4)) < 0.6,
    )
    each = np.log1p(np.exp(np.where(labels, -logits, logits)))
    expected = each[weights].mean() if weights.any() else 0.0
    found = binary_loss(*(torch.tensor(x) for x in (logits, labels, weights)))
    assert float(found) == pytest.approx(expected, rel=1e-5, abs=2e-6)  # fp32 near a logit of 15


def test_cross_entropy_in_fp32_of_half_precision_logits() -> None:
    logits, targets = (
        torch.randn(2, 3, 11, generator=torch.Generator().manual_seed(0)),
        torch.tensor([[1, 2, 3], [0, 9, 10]]),
    )
    half = cross_entropy(logits.bfloat16(), targets)
    expected = -logits.bfloat16().double().log_softmax(-1).gather(-1, targets[..., None]).squeeze(-1)
    assert half.dtype == torch.float32 and half.shape == targets.shape
    torch.testing.assert_close(half.double(), expected, rtol=1e-5, atol=1e-5)


# The copy mixture


def naive_mixture(gate: Tensor, likelihood: Tensor, untouched: Tensor) -> Tensor:
    """Return -log(D [untouched] + (1 - D) q), computed from probabilities in float64."""
    copying = torch.sigmoid(gate.double())
    return -torch.log(copying * untouched + (1 - copying) * likelihood.double().exp())


GATES = st.floats(-12, 12, width=32)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(GATES, st.floats(-25, -0.015625, width=32), st.booleans()), min_size=1, max_size=6))
def test_the_mixture_in_log_space_agrees_with_probabilities(cells: list[tuple[float, float, bool]]) -> None:
    gate, likelihood, untouched = (torch.tensor([column]) for column in zip(*cells, strict=True))
    ours, theirs = ([x.clone().requires_grad_() for x in (gate, likelihood)] for _ in range(2))
    loss, expected = copy_mixture_loss(*ours, untouched), naive_mixture(*theirs, untouched)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-4, atol=1e-5)
    loss.sum().backward()
    expected.sum().backward()
    for mine, naive in zip(ours, theirs, strict=True):
        assert mine.grad is not None and naive.grad is not None
        torch.testing.assert_close(mine.grad, naive.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("gate", [-1e4, -80.0, 80.0, 1e4])
@pytest.mark.parametrize("likelihood", [-1e4, -80.0, 0.0])
@pytest.mark.parametrize("untouched", [False, True])
def test_extreme_gates_stay_finite(gate: float, likelihood: float, untouched: bool) -> None:
    """With probabilities these would be log 0; the exact result is known if only one term counts."""
    g, q = torch.tensor([[gate]], requires_grad=True), torch.tensor([[likelihood]], requires_grad=True)
    loss = copy_mixture_loss(g, q, torch.tensor([[untouched]]))
    loss.sum().backward()
    assert g.grad is not None and q.grad is not None
    assert torch.isfinite(loss).all() and torch.isfinite(g.grad).all() and torch.isfinite(q.grad).all()
    copying, writing = -max(0.0, -gate), -max(0.0, gate) + likelihood  # log D and log (1 - D) q, so far from 0
    expected = max(copying, writing) + (math.log(2) if copying == writing else 0.0) if untouched else writing
    assert loss.item() == pytest.approx(-expected, rel=1e-6, abs=1e-6)


# The likelihood in pieces


def likelihood_inputs(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    numbers = torch.Generator().manual_seed(0)
    sizes = ((3, 7, 5), (13, 5), (13,))  # features, table, bias
    return [torch.randn(size, generator=numbers, dtype=dtype).requires_grad_() for size in sizes]


@pytest.mark.parametrize("rows", [1, 2, 5, 20, 21, 1000])
def test_computing_in_pieces_changes_nothing(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = torch.randint(0, 13, (3, 7), generator=torch.Generator().manual_seed(1))
    weights = torch.randn(3, 7, generator=torch.Generator().manual_seed(2))
    results: list[Any] = []
    for chunk in (2**26, rows * 13 + 12):
        monkeypatch.setattr(losses, "CHUNK", chunk)
        inputs = likelihood_inputs()
        likelihood, right = token_log_likelihood(*inputs, targets)
        (likelihood * weights).sum().backward()
        results.append((likelihood.detach(), right, [x.grad for x in inputs]))
    (whole, hits, grads), (pieces, hits_too, grads_too) = results
    torch.testing.assert_close(pieces, whole, rtol=1e-6, atol=1e-6)
    assert torch.equal(hits, hits_too)
    for one, other in zip(grads, grads_too, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_the_likelihood_agrees_with_the_softmax() -> None:
    features, table, bias = likelihood_inputs()
    targets = torch.randint(0, 13, (3, 7), generator=torch.Generator().manual_seed(1))
    likelihood, right = token_log_likelihood(features, table, bias, targets)
    logits = (features @ table.T + bias).detach()
    expected = logits.log_softmax(-1).gather(-1, targets[..., None]).squeeze(-1)
    torch.testing.assert_close(likelihood.detach().double(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(right, logits.argmax(-1) == targets)


@pytest.mark.parametrize(
    ("chunk", "rows"),
    [(60, [4, 4, 4, 4, 4, 1]), (12, [1] * 21), (21 * 13, [21])],
    ids=["pieces", "a vocabulary larger than a chunk", "all at once"],
)
def test_pieces_hold_at_most_a_chunk_and_are_computed_again_in_the_backward_pass(
    chunk: int, rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = losses._log_likelihood
    monkeypatch.setattr(losses, "CHUNK", chunk)
    monkeypatch.setattr(losses, "_log_likelihood", lambda *given: (seen.append(len(given[0])), real(*given))[1])
    likelihood, _ = token_log_likelihood(*likelihood_inputs(), torch.zeros(3, 7, dtype=torch.int64))
    assert seen == rows
    likelihood.sum().backward()
    assert len(seen) == (1 if len(rows) == 1 else 2 * len(rows))  # what fits is computed once


def test_pieces_in_bf16_are_twice_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = losses._log_likelihood
    monkeypatch.setattr(losses, "CHUNK", 60)
    monkeypatch.setattr(losses, "_compiled_in_bf16", lambda _: True)  # as on a GPU
    monkeypatch.setattr(losses, "_log_likelihood", lambda *given: (seen.append(len(given[0])), real(*given))[1])
    token_log_likelihood(*likelihood_inputs(), torch.zeros(3, 7, dtype=torch.int64))
    assert seen == [9, 9, 3]


@pytest.mark.gpu
def test_pieces_compiled_in_bf16_equal_launched_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "CHUNK", 60)
    inputs = [x.detach().cuda().requires_grad_() for x in likelihood_inputs(torch.float32)]
    targets, results = torch.zeros(3, 7, dtype=torch.int64, device="cuda"), []
    for function in (token_log_likelihood, torch.compile(token_log_likelihood, fullgraph=True)):
        with torch.autocast("cuda", torch.bfloat16):
            likelihood = function(*inputs, targets)[0]
        results.append([likelihood, *torch.autograd.grad(likelihood.sum(), inputs)])
    torch.testing.assert_close(results[0], results[1], rtol=5e-2, atol=5e-2)


def test_pieces_work_without_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation has no gradient; torch's older checkpointing would warn of it, and warnings are errors here."""
    inputs = [x.detach() for x in likelihood_inputs()]
    targets = torch.randint(0, 13, (3, 7), generator=torch.Generator().manual_seed(1))
    whole, _ = token_log_likelihood(*inputs, targets)
    monkeypatch.setattr(losses, "CHUNK", 60)
    pieces, _ = token_log_likelihood(*inputs, targets)
    torch.testing.assert_close(pieces, whole, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_target_that_shares_the_largest_logit_counts_as_most_probable(compiled: bool) -> None:
    """With and without the compiled kernels alike, or accuracies would mean two things."""
    features, table, bias = torch.zeros(1, 3, 4), torch.zeros(5, 4), torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])
    targets = torch.tensor([[1, 4, 3]])
    if compiled:
        flat, weights = features.flatten(0, 1), torch.ones(3)
        right = functions.guess(flat, table, bias, targets.flatten(), weights).right
    else:
        right = token_log_likelihood(features, table, bias, targets)[1]
    assert right.flatten().tolist() == [True, True, False]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("size", [1, 64, 130])
def test_a_guess_from_sums_over_blocks_equals_one_from_all_probabilities(
    size: int, temperature: float, device: str
) -> None:
    random = torch.Generator().manual_seed(size)
    wide = torch.randn(500, size, generator=random) * torch.logspace(-1, 3, 500)[:, None]  # up to the range of fp32
    logits = wide.bfloat16().float().to(device).requires_grad_()  # of which several share the largest
    targets = torch.randint(size, (500,), generator=random).to(device)
    targets[::3] = logits[::3].argmax(-1)
    draws, weights = (torch.rand(500, generator=random).to(device) for _ in range(2))
    loss, right, samples, sample_nll = guess_by_blocks(logits, targets, draws, temperature)
    expected, tempered = cross_entropy(logits, targets), logits.detach() / temperature
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(right, is_most_probable(logits, targets)) and right[::3].all()
    assert (samples == sample(tempered.softmax(-1), draws)).float().mean() > 0.99, "rounding may turn a few"
    torch.testing.assert_close(sample_nll, cross_entropy(tempered, samples), rtol=1e-5, atol=1e-5)
    found, wanted = (torch.autograd.grad((x * weights).sum(), [logits])[0] for x in (loss, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_scores_that_are_not_numbers_have_no_roc_area() -> None:
    labels, weights = torch.tensor([[True, False, True, False]]), torch.ones(1, 4)
    for logits, known in (([0.3, math.nan, 1.0, 0.2], False), ([0.3, 0.1, 1.0, 0.2], True)):
        wins, pairs = binary_ratios("x", torch.tensor([logits]), labels, weights)["x_auc"]
        assert bool(torch.isfinite(wins / pairs)) == known
