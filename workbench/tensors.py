"""The values that data, objectives and trainer exchange, and operations on tensors that models and kernels share.

B rows, L positions in a row, K picked positions in a row, D width of the encoder, V size of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.errors import InputError
from workbench.spec.parts import Special

Ratio = tuple[Tensor, Tensor]  # numerator and denominator, () each: summed separately, means over steps are exact
BLOCK = 64  # tokens whose probabilities are summed before a sample is searched among them
_INTEGERS = {torch.bfloat16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64}  # of the same size


@dataclass(frozen=True)
class Batch:
    """A batch of token ids.

    ids (B, L) int64; keys (B,) int64, a random key for each row, computed from the seed and the place of the row in
    training (`rng.py`); attention (B, L) bool, True on tokens, or None if no row is padded. For rows of two segments:
    segments (B, L) int64, 1 on the second and its [SEP], else 0; broken (B,) bool, whether the second segment does not
    follow the first in the text.
    """

    ids: Tensor
    keys: Tensor
    attention: Tensor | None = None
    segments: Tensor | None = None
    broken: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        """Return the values of the fields that are not None, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(eq=False)
class Mean:
    """A loss: a mean over tokens or rows of a batch, or a sum of such means, each times a constant.

    `value` () is over the batch. Each of `terms` is a constant, a mean () and its denominator (), by which the means of
    micro-batches and devices are weighted, so that together they are the mean over the whole step. Means are added to
    each other and multiplied by numbers. Anything else, such as the product of two means, or a tensor, has no known
    denominator: it can be a loss of steps that are computed in one piece, and of no others. So can a mean whose
    denominator has a gradient.

    Args:
        value: the mean ().
        denominator: the sum () of the weights of what `value` is a mean of, such as a number of tokens. It may be a
            number: 1 for a value that does not depend on the batch, such as a penalty on large weights.
        terms: those of a sum, which has no denominator of its own.
    """

    value: Tensor
    denominator: Tensor | float | None = None
    terms: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        among = self.denominator
        if isinstance(among, Tensor) and among.requires_grad:
            among = None
        self.terms = self.terms or ((1.0, self.value, among),)

    def __add__(self, other: Mean | Tensor | float) -> Mean:
        if isinstance(other, Mean):
            return Mean(self.value + other.value, terms=self.terms + other.terms)
        if isinstance(other, Tensor):
            return self + Mean(other)
        return self + Mean(torch.full_like(self.value.detach(), other), 1)

    def __mul__(self, factor: Mean | Tensor | float) -> Mean:
        if isinstance(factor, Mean):
            return Mean(self.value * factor.value)
        if isinstance(factor, Tensor):
            return Mean(self.value * factor)
        return Mean(self.value * factor, terms=tuple((factor * each, mean, among) for each, mean, among in self.terms))

    def __truediv__(self, divisor: Mean | Tensor | float) -> Mean:
        if isinstance(divisor, (Mean, Tensor)):
            return Mean(self.value / (divisor.value if isinstance(divisor, Mean) else divisor))
        return Mean(self.value / divisor, terms=(self * (1 / divisor)).terms)

    def __neg__(self) -> Mean:
        return self * -1.0

    def __sub__(self, other: Mean | Tensor | float) -> Mean:
        return self + -other

    def __rsub__(self, other: Tensor | float) -> Mean:
        return -self + other

    __radd__, __rmul__ = __add__, __mul__

    def __float__(self) -> float:
        return self.value.item()

    def item(self) -> float:
        """Return the value as a number."""
        return self.value.item()

    def detach(self) -> Tensor:
        """Return the value () without its gradient."""
        return self.value.detach()

    def backward(self) -> None:
        """Backpropagate from the value; gradients accumulate in the weights."""
        self.value.backward()


Term = tuple[float, Tensor, Tensor | float | None]  # of a `Mean`: a constant, a mean () and its denominator ()


@dataclass(frozen=True)
class Corruption:
    """A batch in which tokens at the picked positions are masked or replaced.

    ids (B, L) int64, the input of the model; positions (B, K) int64, the picks; weights (B, K) float, 0 for picks that
    do not count; targets (B, K) int64, the original tokens; loss, the generator's own, 0 without a generator.
    """

    ids: Tensor
    positions: Tensor
    weights: Tensor
    targets: Tensor
    loss: Mean
    metrics: dict[str, Ratio] = field(default_factory=dict)


@dataclass(frozen=True)
class Guess:
    """The predictions of a generator at the picked positions.

    samples (B, K) int64, the tokens it samples; loss, the mean of -log p(target) over the picks that count;
    right (B, K) bool, whether the target is its most probable token; sample_nll (B, K) float, -log p(sample), whose
    mean estimates the entropy of its distribution in nats.
    """

    samples: Tensor
    loss: Mean
    right: Tensor
    sample_nll: Tensor


# Columns of every row of metrics.jsonl, and columns that tables of these rows have besides.
ROW_COLUMNS = (
    "step", "tokens", "flops", "seconds", "learning_rate", "generator_learning_rate", "loss", "gradient_norm",
    "tokens_per_second", "device_memory_bytes", "micro_batch", "saving_share",
)  # fmt: skip
TABLE_COLUMNS = ("run_id", "arm", "seed", "first_step", "last_step", "rows", "role", "spec", "data", "code")
RESERVED = frozenset((*ROW_COLUMNS, *TABLE_COLUMNS))


@dataclass(frozen=True)
class StepLoss:
    """The result of an objective: the total loss and its parts by name, and metrics as ratios.

    Losses are means, so that those of micro-batches and devices can be combined exactly. A tensor () in place of a mean
    is a loss of a step that is computed in one piece (`Mean`). The names become columns of the logged rows beside their
    own, so that none of RESERVED can be among them.
    """

    total: Mean | Tensor
    parts: Mapping[str, Mean | Tensor]
    metrics: dict[str, Ratio] = field(default_factory=dict)

    def check_names(self, objective: str) -> None:
        """Raise InputError if a part or metric has no name of its own; `objective` is what the message calls it."""
        for name in (*self.parts, *self.metrics):
            if not isinstance(name, str) or not name:
                raise InputError(f"{objective} has a loss or metric named {name!r:.80}, which is not a word; rename it")
            if name in RESERVED or name.startswith(("flops.", "flops_")):
                raise InputError(
                    f"{objective} has a loss or metric named {name!r:.80}, which is a column of every row that is "
                    f"logged; rename it"
                )
        if both := self.parts.keys() & self.metrics.keys():
            raise InputError(f"{objective} has both a loss and a metric named {min(both)!r:.80}; rename one of them")

    def means(self) -> dict[str, Mean]:
        """Return the total, under the name "loss", and its parts."""
        named = {"loss": self.total, **self.parts}
        return {name: each if isinstance(each, Mean) else Mean(each) for name, each in named.items()}

    def values(self) -> dict[str, Tensor]:
        """Return the values () of the total, under the name "loss", and of its parts, over the batch."""
        return {name: mean.value for name, mean in self.means().items()}

    def denominators(self, device: Any, objective: str = "this objective") -> Tensor:
        """Return the denominator of each term of the total and of the parts, (n,) fp32, on a device.

        Raises InputError if one is not known; `objective` is what the message calls the objective.
        """
        denominators = []
        for name, mean in self.means().items():
            for _, _, among in mean.terms:
                if among is None:
                    raise InputError(
                        f"the loss {name!r} of {objective} is no sum of means with known denominators, so it cannot "
                        "be added up from micro-batches or devices; make it of "
                        "workbench.models.losses.weighted_mean(values, weights) times numbers, or compute each step "
                        "in one piece on one device, without --micro-batch"
                    )
                denominators.append(
                    among.float() if isinstance(among, Tensor) else torch.full((), float(among), device=device)
                )
        return torch.stack(denominators)

    def of_step(self, denominators: Tensor) -> dict[str, Tensor]:
        """Return what this micro-batch adds to the losses of a step: the total, as "loss", and the parts, () each.

        denominators (n,) are summed over the micro-batches and devices of the whole step.
        """
        shares = iter((self.denominators(denominators.device) / denominators.clamp(min=1e-6)).unbind())
        return {
            name: torch.stack([factor * mean * next(shares) for factor, mean, _ in each.terms]).sum()
            for name, each in self.means().items()
        }


def to_device(tensor: Tensor, device: Any) -> Tensor:
    """Return a tensor of main memory on a device; one of the CPU itself is not copied.

    A GPU copies from pinned memory. From any other, the copy would wait for all work that the GPU has not done yet.
    """
    if torch.device(device).type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def ordinary(ids: Tensor, attention: Tensor | None, special: Special) -> Tensor:
    """Return which of the tokens ids (B, L) are text, bool (B, L): not [PAD], [CLS], [SEP] or [MASK], and not padding.

    [UNK] counts as text. attention (B, L) is True on tokens, or None if no row is padded.
    """
    is_text = torch.ones_like(ids, dtype=torch.bool) if attention is None else attention.bool()
    for token in (special.pad, special.cls, special.sep, special.mask):
        is_text = is_text & (ids != token)
    return is_text


def visible_keys(ids: Tensor, attention: Tensor | None, causal: bool) -> Tensor | None:
    """Return which keys each query of ids (B, L) attends to, as bool (B or 1, L or 1, L); None if it is all of them.

    These are the tokens, where attention (B, L) is not 0; if `causal`, those up to the query, and the query itself even
    if it is padding, so that every query has a key. A dimension of 1 stands for all rows, or for all queries.
    """
    tokens = None if attention is None else attention.bool()[:, None]
    if not causal:
        return tokens
    length = ids.shape[1]
    before = torch.ones(1, length, length, dtype=torch.bool, device=ids.device).tril()
    own = torch.eye(length, dtype=torch.bool, device=ids.device)
    return before if tokens is None else before & (tokens | own)


def sample(probs: Tensor, draws: Tensor) -> Tensor:
    """Return a token (N,) int64 for each row, sampled in proportion to probs (N, V) >= 0 at draws (N,) in [0, 1).

    The cumulative distribution is inverted in two steps, first over sums of BLOCK tokens and then within one block, so
    that only V / BLOCK numbers are summed one after the other. A token of probability 0 is never sampled.
    """
    size = probs.shape[1]
    whole = size - size % BLOCK
    sums = probs[:, :whole].unflatten(1, (-1, BLOCK)).sum(-1)
    if whole < size:
        sums = torch.cat([sums, probs[:, whole:].sum(-1, keepdim=True)], 1)
    return sample_of_blocks(sums, draws, size, lambda places: probs.gather(1, places))


def sample_of_blocks(sums: Tensor, draws: Tensor, size: int, probs_at: Callable[[Tensor], Tensor]) -> Tensor:
    """Return what `sample` does, from the sums (N, V / BLOCK) of blocks and the probabilities at places (N, BLOCK)."""
    before = sums.cumsum(-1)
    target = draws[:, None].to(before.dtype) * before[:, -1:]
    block = torch.searchsorted(before, target, right=True).clamp(max=sums.shape[1] - 1)
    places = block * BLOCK + torch.arange(BLOCK, device=sums.device)
    inside = probs_at(places.clamp(max=size - 1)).masked_fill(places >= size, 0.0).cumsum(-1)
    rest = target - (before.gather(1, block) - sums.gather(1, block))
    token = torch.searchsorted(inside, rest.clamp(min=0), right=True)
    last = torch.searchsorted(inside, inside[:, -1:].contiguous())  # rounding must not lead past the last token
    return (block * BLOCK + torch.minimum(token, last))[:, 0]


class Drop(NamedTuple):
    """The rate of dropout, and the key from which its random numbers follow. A rate of 0 means no dropout."""

    key: int
    rate: float


def dropped(x: Tensor, drop: Drop) -> Tensor:
    """Return a copy of x after dropout: zeros at the rate, other numbers scaled up; x itself if the rate is 0."""
    if not drop.rate:
        return x
    random = np.random.Generator(np.random.SFC64(drop.key)).integers(0, 2**64, -(-x.numel() // 4), dtype=np.uint64)
    threshold = min(round((1 - drop.rate) * 2**15), 2**15 - 1)
    draws = torch.from_numpy(random.view(np.int16)[: x.numel()])
    # All bits are 1 for a draw below the threshold, and 0 for any other.
    bits = draws.bitwise_and_(0x7FFF).sub_(threshold).bitwise_right_shift_(15)
    integer = _INTEGERS[x.dtype]
    out = torch.bitwise_and(x.view(integer), bits.to(integer).view(x.shape)).view(x.dtype)
    return out.mul_(2**15 / threshold)


def real_tokens(batch: Batch) -> Tensor:
    """Return which positions are not padding, bool (B, L)."""
    return torch.ones_like(batch.ids, dtype=torch.bool) if batch.attention is None else batch.attention.bool()
