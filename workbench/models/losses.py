"""Losses, and metrics that show whether a loss is meaningful, as pure functions of tensors.

B rows, L positions, N positions or picks, K picks, D width of the encoder, E width of the embeddings, V size of the
vocabulary. Sums are in fp32 for every dtype of the activations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

from workbench.tensors import BLOCK, Mean, Ratio, sample_of_blocks

CHUNK = 2**26  # logits that `token_log_likelihood` holds at once: 256 MiB in fp32


def gather(values: Tensor, positions: Tensor) -> Tensor:
    """Return values (B, L) or (B, L, D) at positions (B, K): (B, K) or (B, K, D)."""
    if values.dim() == 2:
        return values.gather(1, positions)
    return values.gather(1, positions[..., None].expand(-1, -1, values.shape[-1]))


def weighted_mean(values: Tensor, weights: Tensor) -> Mean:
    """Return sum(weights * values) / sum(weights) of equal shapes; 0 if no weight counts (docs/electra.md 1.8).

    Of a step in several parts, both sums are over the whole step (`Mean`).
    """
    weights = weights.float()
    whole = weights.sum()
    return Mean((values.float() * weights).sum() / whole.clamp(min=1e-6), whole)


def binary_loss(logits: Tensor, labels: Tensor, weights: Tensor) -> Mean:
    """Return the weighted mean binary cross-entropy of logits (B, N), given bool labels and weights (B, N)."""
    losses = F.binary_cross_entropy_with_logits(logits.float(), labels.float(), reduction="none")
    return weighted_mean(losses, weights)


def is_most_probable(logits: Tensor, targets: Tensor) -> Tensor:
    """Return whether no token has a larger logit than the target, (B, N) bool, for logits (B, N, V).

    A target that shares the largest logit counts, as in the compiled kernels; ties are frequent in bf16.
    """
    return logits.gather(-1, targets[..., None])[..., 0] == logits.amax(-1)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return -log softmax(logits)[target] (B, N) for logits (B, N, V), in fp32."""
    flat = F.cross_entropy(logits.float().flatten(0, -2), targets.flatten(), reduction="none")
    return flat.view_as(targets)


def guess_by_blocks(
    logits: Tensor, targets: Tensor, draws: Tensor, temperature: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return loss, `is_most_probable`, a sample and the sample's -log p, (N,) each, of logits (N, V) in one pass.

    The loss is `cross_entropy` with targets (N,). The sample is the one that `sample` takes at draws (N,) in [0, 1)
    from softmax(logits / temperature). Compiled for a GPU, one kernel reads all logits and writes sums over blocks of
    BLOCK tokens, from which the rest follows. Softmax, `cross_entropy` and `sample` also write and read all
    probabilities.
    """
    size, x = logits.shape[1], logits.detach()
    padded: Tensor = F.pad(x, (0, -size % BLOCK), value=-torch.inf)
    blocks = padded.float().unflatten(1, (-1, BLOCK))
    largest = blocks.amax(-1)  # (N, V / BLOCK)
    top = largest.amax(-1, keepdim=True)

    def sums(temperature: float) -> Tensor:
        """Return sum(exp((x - top) / temperature)) over each block, where no exponential overflows."""
        return torch.exp((blocks - largest[..., None]) / temperature).sum(-1) * torch.exp((largest - top) / temperature)

    def probs_at(places: Tensor) -> Tensor:
        return torch.exp((x.gather(1, places).float() - top) / temperature)

    places = torch.arange(blocks[0].numel(), device=x.device).view(-1, BLOCK)
    own = torch.where(places == targets[:, None, None], blocks, 0.0).sum((1, 2))
    apply: Any = _CrossEntropy.apply
    loss = apply(logits, targets, top[:, 0], own, sums(1.0).sum(-1).log())
    shares = sums(temperature)
    samples = sample_of_blocks(shares, draws, size, probs_at)
    return loss, own == top[:, 0], samples, shares.sum(-1).log() - probs_at(samples[:, None])[:, 0].log()


class _CrossEntropy(torch.autograd.Function):
    """`cross_entropy` of logits (N, V), given each target's logit, and the log of the sum of exp(logit - top), (N,)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, top: Tensor, own: Tensor, log_sum: Tensor) -> Tensor:
        ctx.save_for_backward(logits, targets, top, log_sum)
        return log_sum + (top - own)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits, targets, top, log_sum = ctx.saved_tensors
        probs = (logits.float() - top[:, None] - log_sum[:, None]).exp()
        is_target = torch.arange(logits.shape[1], device=logits.device) == targets[:, None]
        return (torch.where(is_target, probs - 1, probs) * grad[:, None]).to(logits.dtype), None, None, None, None


def token_log_likelihood(features: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-likelihood of each target, and whether it is the most probable token, (B, N) each.

    The likelihood is softmax(features @ table.T + bias)[target] for features (B, N, E), table (V, E), bias (V,). At
    most CHUNK logits, or twice as many in bf16, are held at once: longer inputs are computed in pieces, each again in
    the backward pass.
    """
    flat, words = features.flatten(0, 1), targets.flatten()
    rows = max(1, (2 * CHUNK if _compiled_in_bf16(features) else CHUNK) // len(table))
    if len(words) <= rows or flat.is_meta:  # a meta tensor takes no memory
        likelihood, right = _log_likelihood(flat, table, bias, words)
        return likelihood.view_as(targets), right.view_as(targets)
    pieces = [
        checkpoint(_log_likelihood, part, table, bias, target, use_reentrant=False)
        for part, target in zip(flat.split(rows), words.split(rows), strict=True)
    ]
    likelihood = torch.cat([piece[0] for piece in pieces])
    return likelihood.view_as(targets), torch.cat([piece[1] for piece in pieces]).view_as(targets)


def _compiled_in_bf16(x: Tensor) -> bool:
    """Return whether the logits of x take 2 bytes each, as in kernels compiled for a GPU under bf16 autocast."""
    return x.is_cuda and torch.compiler.is_compiling() and torch.is_autocast_enabled("cuda")


def _log_likelihood(features: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    logits = F.linear(features, table, bias)
    likelihood = -F.cross_entropy(logits.float(), targets, reduction="none")
    return likelihood, is_most_probable(logits.detach(), targets)


def copy_mixture_loss(gate: Tensor, likelihood: Tensor, untouched: Tensor) -> Tensor:
    """Return -log p(x_t) (B, L) of the copy mixture (section 3.4, All-Tokens MLM; docs/electra.md 1.6).

    gate (B, L) are the logits of copying, likelihood (B, L) is log q(x_t), untouched (B, L) bool is true where the
    token shown is the original. The mixture is computed in log space.
    """
    copy, write = F.logsigmoid(gate.float()), F.logsigmoid(-gate.float())
    return -torch.where(untouched, torch.logaddexp(copy, write + likelihood), write + likelihood)


def share(hits: Tensor, among: Tensor) -> Ratio:
    """Return the share of `among` that is in `hits`, as a ratio of counts; both are bool or weights, of one shape."""
    among = among.detach().float()
    return (hits.detach().float() * among).sum(), among.sum()


def binary_ratios(name: str, logits: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Ratio]:
    """Return accuracy, precision, recall, positive rate and ROC area of logits (B, N) as metrics under `name`.

    labels (B, N) are bool; positions of weight 0 do not count. A positive rate of 0 or 1 is a collapse: the same answer
    at every position (docs/electra.md 3, two-stage). Summed over micro-batches, all metrics but the ROC area are
    exactly those of the whole step. The area counts only pairs within a micro-batch: it is exact for a step in one
    piece, and an estimate for a step in several.
    """
    logits, counted = logits.detach().float(), weights > 0
    predicted = logits > 0
    return {
        f"{name}_accuracy": share(predicted == labels, counted),
        f"{name}_precision": share(labels, predicted & counted),
        f"{name}_recall": share(predicted, labels & counted),
        f"{name}_positive_rate": share(predicted, counted),
        f"{name}_auc": _auc(logits, labels, counted),
    }


def binary_loss_and_ratios(name: str, logits: Tensor, labels: Tensor, weights: Tensor) -> tuple[Mean, dict[str, Ratio]]:
    """Return `binary_loss` and `binary_ratios` of the same logits, labels and weights (B, N)."""
    return binary_loss(logits, labels, weights), binary_ratios(name, logits, labels, weights)


def _auc(scores: Tensor, labels: Tensor, counted: Tensor) -> Ratio:
    """Return the ROC area as the Mann-Whitney statistic, a ratio of counts.

    It is the share of pairs of a positive and a negative in which the positive scores higher; a tie counts half.
    """
    scores, positive, negative = scores.flatten(), (labels & counted).flatten(), (~labels & counted).flatten()
    infinity = torch.full_like(scores, torch.inf)
    below = torch.where(negative, scores, infinity).sort().values
    left, right = torch.searchsorted(below, scores), torch.searchsorted(below, scores, right=True)
    wins = torch.where(positive, (left + right).float() / 2, 0.0).sum()
    wins = wins + 0 * torch.where(positive | negative, scores, 0.0).sum()  # NaN if a score is NaN, which has no rank
    return wins, positive.float().sum() * negative.float().sum()
