"""The price of encoders, heads and generators in floating point operations, under three conventions.

`paper`: the official script of Clark et al. 2020 (google-research/electra, `flops_computation.py`), exactly, its quirks
included: one operation for each multiplication and each addition, embedding look-ups as dense products with the whole
table, a dense RTD head, the output layer at 5/32 of the positions whatever the mask rate, backward as dear as forward.
`paper-sparse`: the same with the look-up of tokens free, as it is in every implementation.
`matmul`: what the hardware multiplies, as torch's own counter sees it: 2mnk a product, nothing else, and a backward
pass that costs two forward passes. The output layer is counted at the positions where it is computed.

`Flops` is always the price of one forward pass over one full row; every amount is exact, so that sums over 10^21 agree.
Plain arithmetic, so that planning needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from workbench.spec.parts import Convention, EncoderSpec
from workbench.spec.run_spec import RunSpec

Exact = int | Fraction
Positions = int | Literal["all"]  # of one row

# The script's prices of one element, and the share of positions that reach its output layer (20 of 128, 80 of 512).
DROPOUT, LAYER_NORM, GELU, SOFTMAX = 4, 5, 8, 5
OUTPUT_SHARE = Fraction(5, 32)


@dataclass(frozen=True)
class Flops:
    """One forward pass over one full row, under each convention.

    `still` is how much of these three goes without its backward pass, because what it computes learns nothing.
    """

    paper: Exact
    sparse: Exact
    matmul: int
    still: tuple[Exact, Exact, int] = (0, 0, 0)

    def __add__(self, other: Flops) -> Flops:
        still = tuple(mine + others for mine, others in zip(self.still, other.still, strict=True))
        return Flops(
            _whole(self.paper + other.paper), _whole(self.sparse + other.sparse), self.matmul + other.matmul,
            (_whole(still[0]), _whole(still[1]), int(still[2])),
        )  # fmt: skip

    @classmethod
    def zero(cls) -> Flops:
        return cls(0, 0, 0)

    def frozen(self) -> Flops:
        """The same work, from which nothing is learnt."""
        return replace(self, still=(self.paper, self.sparse, self.matmul))

    def train(self, convention: Convention) -> Exact:
        """Forward and backward over one row: 2 forward passes in the paper's conventions, 3 under `matmul`."""
        if convention == "matmul":
            return 3 * self.matmul - 2 * self.still[2]
        if convention == "paper":
            return _whole(2 * self.paper - self.still[0])
        return _whole(2 * self.sparse - self.still[1])


def number(amount: Exact) -> int | float:
    """For JSON and for reading: an integer if it is one."""
    amount = _whole(amount)
    return amount if isinstance(amount, int) else float(amount)


def encoder(enc: EncoderSpec, length: int) -> Flops:
    """Token ids to hidden states (length, hidden): input embedding and every block.

    Blocks are those of BERT, to which `deberta-v2` adds products of queries and keys with the relative positions. The
    projection of these positions is left out: it is computed once a batch, whatever the rows.
    """
    total = embedding(enc, length)
    relative = 2 * enc.positions if enc.family == "deberta-v2" else 0
    one = block(enc.hidden, enc.ffn_width, enc.head_count, length, relative=relative)
    return total + Flops(enc.layers * one.paper, enc.layers * one.sparse, enc.layers * one.matmul)


def embedding(enc: EncoderSpec, length: int) -> Flops:
    """Look-ups of token, position and segment, their sum, norm and dropout, and the projection to another width."""
    e, h = enc.embedding_width, enc.hidden
    tokens = 2 * e * enc.vocab
    rest = 2 * e * (length + 2) + 2 * e + LAYER_NORM * e + DROPOUT * e
    project = 2 * h * e if e != h or enc.family == "albert" else 0
    sparse = rest + project + (h if project else 0)
    return Flops(length * (tokens + sparse), length * sparse, length * project)


def block(
    h: int,
    ffn: int,
    heads: int,
    length: int,
    attention_width: int | None = None,
    attentions: int = 1,
    relative: int = 0,
) -> Flops:
    """One transformer block of width `h`, whose attention also looks at `relative` positions from both sides.

    The script prices the first layer norm at 5 instead of 5h, and the values' average and the output projection by `h`
    where the width of attention would be right; `attentions` is 2 where a decoder also looks at an encoder (T5).
    """
    kqv = attention_width or h
    scores = length * heads
    attention = 6 * h * kqv + 3 * kqv + 2 * kqv * length + (SOFTMAX + DROPOUT + 1) * scores
    attention += 2 * h * length + 2 * h * h + h + DROPOUT * h + h + LAYER_NORM
    looks = 4 * h * relative
    feed_forward = 4 * h * ffn + GELU * ffn + ffn + h + DROPOUT * h + h + LAYER_NORM * h
    paper = length * (attentions * attention + looks + feed_forward)
    matmul = length * (attentions * (8 * h * kqv + 4 * kqv * length) + looks + 4 * h * ffn)
    return Flops(paper, paper, matmul)


def lm_head(enc: EncoderSpec, length: int, positions: Positions) -> Flops:
    """Dense layer from hidden to embedding width, GELU, norm, and the softmax over the vocabulary at `positions`."""
    e, h, v = enc.embedding_width, enc.hidden, enc.vocab
    products = 2 * h * e + 2 * e * v
    each = products + e + GELU * e + LAYER_NORM * e + SOFTMAX * v + 2 * v
    return _at(each, products, length, positions)


def binary_head(spec: RunSpec, positions: Positions) -> Flops:
    """Original or replaced, at every position (RTD) or at the picks (ELECTRA 15%).

    The paper's conventions price the dense layer of the official code also where `spec.head` is "linear".
    """
    h = spec.encoder.hidden
    each = 2 * h * h + h + GELU * h + 2 * h
    products = 2 * h + (2 * h * h if spec.head == "dense" else 0)
    return _at(each, products, spec.data.length, positions)


def gate(spec: RunSpec) -> Flops:
    """The copy gate of All-Tokens MLM: one product of hidden width at every position."""
    return _at(2 * spec.encoder.hidden, 2 * spec.encoder.hidden, spec.data.length, "all")


def baseline(spec: RunSpec) -> Flops:
    """The adversarial generator's baseline: one product of its width at the picks (docs/electra.md 3).

    Half of its backward pass is not computed, for its gradient stops there.
    """
    each = 2 * spec.generator_encoder.hidden
    price = _at(each, each, spec.data.length, spec.picks)
    return replace(price, still=(0, 0, price.matmul // 2))


def generator(spec: RunSpec) -> Flops:
    """The generator over the whole row, its output layer at the picks. Under `tying` "all" it is the encoder again.

    Drawing from a fixed distribution is free, as all sampling is in the official script.
    """
    if spec.generator.kind != "transformer":
        return Flops.zero()
    enc, length = spec.generator_encoder, spec.data.length
    price = encoder(enc, length) + lm_head(enc, length, spec.picks)
    return price.frozen() if spec.generator_frozen else price


def _at(each: int, products: int, length: int, positions: Positions) -> Flops:
    """A head that costs `each` (paper) and `products` (matmul) a position."""
    if positions == "all":
        return Flops(length * each, length * each, length * products)
    paper = _whole(OUTPUT_SHARE * length * each)
    return Flops(paper, paper, positions * products)


def _whole(amount: Exact) -> Exact:
    """The same number, as an int if it is one."""
    return amount.numerator if isinstance(amount, Fraction) and amount.denominator == 1 else amount
