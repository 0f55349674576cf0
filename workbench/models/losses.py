"""Losses and the ratios that tell whether they mean anything. Pure functions over tensors.

B rows, L positions, K picks, E embedding width, V vocabulary. Sums run in fp32 whatever the activations are.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

from workbench.tensors import Ratio

CHUNK = 2**26  # logits held at once by `token_log_likelihood`: 256 MiB in fp32


def gather(values: Tensor, positions: Tensor) -> Tensor:
    """values (B, L) or (B, L, D) at positions (B, K): (B, K) or (B, K, D)."""
    if values.dim() == 2:
        return values.gather(1, positions)
    return values.gather(1, positions[..., None].expand(-1, -1, values.shape[-1]))


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """sum(weights * values) / sum(weights), both of one shape, (); 0 where nothing counts (docs/electra.md 1.8)."""
    weights = weights.float()
    return (values.float() * weights).sum() / weights.sum().clamp(min=1e-6)


def binary_loss(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Mean binary cross-entropy of logits (B, N) against bool labels over the positions that count, ()."""
    losses = F.binary_cross_entropy_with_logits(logits.float(), labels.float(), reduction="none")
    return weighted_mean(losses, weights)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """-log softmax(logits)[target] (B, N) of logits (B, N, V), in fp32."""
    flat = F.cross_entropy(logits.float().flatten(0, -2), targets.flatten(), reduction="none")
    return flat.view_as(targets)


def token_log_likelihood(features: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """log softmax(features @ table.T + bias)[target] (B, N), and whether the target was the likeliest word (B, N).

    features (B, N, E), table (V, E), bias (V,). Never holds more than CHUNK logits: longer inputs go piece by piece,
    and backward computes each piece again.
    """
    flat, words = features.flatten(0, 1), targets.flatten()
    rows = max(1, CHUNK // len(table))
    if len(words) <= rows:
        likelihood, right = _log_likelihood(flat, table, bias, words)
        return likelihood.view_as(targets), right.view_as(targets)
    pieces = [
        checkpoint(_log_likelihood, part, table, bias, target, use_reentrant=False)
        for part, target in zip(flat.split(rows), words.split(rows), strict=True)
    ]
    likelihood = torch.cat([piece[0] for piece in pieces])
    return likelihood.view_as(targets), torch.cat([piece[1] for piece in pieces]).view_as(targets)


def _log_likelihood(features: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    logits = F.linear(features, table, bias)
    likelihood = -F.cross_entropy(logits.float(), targets, reduction="none")
    return likelihood, logits.detach().argmax(-1) == targets


def copy_mixture_loss(gate: Tensor, likelihood: Tensor, untouched: Tensor) -> Tensor:
    """-log p(x_t) of the copy mixture, in log space (section 3.4, All-Tokens MLM; docs/electra.md 1.6), (B, L).

    gate (B, L) logits of copying, likelihood (B, L) log q(x_t), untouched (B, L) bool: the token seen is the original.
    """
    copy, write = F.logsigmoid(gate.float()), F.logsigmoid(-gate.float())
    return -torch.where(untouched, torch.logaddexp(copy, write + likelihood), write + likelihood)


def share(hits: Tensor, among: Tensor) -> Ratio:
    """How many of `among` are `hits`, as a ratio of counts; both of one shape, bool or weights."""
    among = among.detach().float()
    return (hits.detach().float() * among).sum(), among.sum()


def binary_ratios(name: str, logits: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Ratio]:
    """How logits (B, N) tell bool labels where weights > 0: accuracy, precision, recall, ROC area, share of "yes".

    A share of 0 or 1 is a collapse: the same answer everywhere (docs/electra.md 3, two-stage). Added up over
    micro-batches, all but the area are exactly those of the whole step. The area counts the pairs within
    each micro-batch, none across, and adds these up: exact for a step in one piece, an estimate for one in several.
    """
    logits, counted = logits.detach().float(), weights > 0
    said = logits > 0
    return {
        f"{name}_accuracy": share(said == labels, counted),
        f"{name}_precision": share(labels, said & counted),
        f"{name}_recall": share(said, labels & counted),
        f"{name}_positive_rate": share(said, counted),
        f"{name}_auc": _auc(logits, labels, counted),
    }


def _auc(scores: Tensor, labels: Tensor, counted: Tensor) -> Ratio:
    """Pairs of a positive above a negative (ties count half), over all such pairs: the Mann-Whitney statistic."""
    scores, positive, negative = scores.flatten(), (labels & counted).flatten(), (~labels & counted).flatten()
    infinity = torch.full_like(scores, torch.inf)
    below = torch.where(negative, scores, infinity).sort().values
    left, right = torch.searchsorted(below, scores), torch.searchsorted(below, scores, right=True)
    wins = torch.where(positive, (left + right).float() / 2, 0.0).sum()
    return wins, positive.float().sum() * negative.float().sum()
