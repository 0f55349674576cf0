"""The cost of encoders, heads and generators in floating-point operations (FLOPs), under three conventions.

`paper`: exactly as the official script of Clark et al. 2020 counts (google-research/electra, `flops_computation.py`):
one operation for each multiplication and each addition, embedding look-ups as dense products with the whole table, a
dense RTD head, the output layer at 5/32 of the positions for any mask rate, a backward pass that costs a forward pass.
`paper-sparse`: the same, except that looking up tokens costs nothing, as in every implementation.
`matmul`: the products that the hardware computes, as torch's own counter counts them: 2mnk for each product and nothing
else, with a backward pass that costs two forward passes. The output layer is counted where it is computed.

`Flops` is always the cost of one forward pass over one row without padding. All amounts are exact, so that sums beyond
10^21 are exact too. This module does plain arithmetic, so that planning a run does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from workbench.errors import InputError
from workbench.models.families import family_of
from workbench.spec.parts import Convention, EncoderSpec
from workbench.spec.run_spec import RunSpec

Exact = int | Fraction
Positions = int | Literal["all"]  # of one row

# The script's costs of one element, and the share of positions in its output layer (20 of 128, 80 of 512).
DROPOUT, LAYER_NORM, GELU, SOFTMAX = 4, 5, 8, 5
OUTPUT_SHARE = Fraction(5, 32)


@dataclass(frozen=True)
class Flops:
    """The cost of one forward pass over one row without padding, under each convention.

    `still` is the part of these three costs that has no backward pass, because it trains no weights.
    """

    paper: Exact
    sparse: Exact
    matmul: int
    still: tuple[Exact, Exact, int] = (0, 0, 0)

    def __add__(self, other: Flops) -> Flops:
        (paper, sparse, matmul), others = self.still, other.still
        still = (paper + others[0], sparse + others[1], matmul + others[2])
        return Flops(self.paper + other.paper, self.sparse + other.sparse, self.matmul + other.matmul, still)

    def frozen(self) -> Flops:
        """Return the same cost without a backward pass, for weights that are not trained."""
        return replace(self, still=(self.paper, self.sparse, self.matmul))

    def train(self, convention: Convention) -> Exact:
        """Return the cost of forward and backward pass over one row.

        Together they cost 2 forward passes in the paper's conventions, and 3 under `matmul`.
        """
        if convention == "matmul":
            return 3 * self.matmul - 2 * self.still[2]
        if convention == "paper":
            return 2 * self.paper - self.still[0]
        return 2 * self.sparse - self.still[1]


def number(amount: Exact) -> int | float:
    """Return an exact amount as a number for JSON: an int if it is whole, else a float."""
    return float(amount) if isinstance(amount, float) or amount.denominator != 1 else amount.numerator


def encoder(enc: EncoderSpec, length: int) -> Flops:
    """Return the cost of an encoder from token ids to hidden states (length, hidden), by its family's `cost`.

    Raises InputError if that returns anything but a cost.
    """
    family = family_of(enc)
    cost = family.cost(enc, length)
    if not isinstance(cost, Flops):
        raise InputError(
            f"{family.file}: cost(config, length) returns {cost!r:.40}, not a workbench.models.flops.Flops"
        )
    return cost


def two_streams(enc: EncoderSpec, length: int, queries: int) -> Flops:
    """Return the cost of an encoder whose query stream (Yang et al. 2019) has `queries` positions of a row."""
    family = family_of(enc)
    if family.query_cost is None:
        return encoder(enc, length)  # it cannot be built, which is said then
    cost: Flops = family.query_cost(enc, length, queries)
    return cost


def transformer(
    enc: EncoderSpec, length: int, relative: int = 0, gated: bool = False, always_projects: bool = False
) -> Flops:
    """Return the cost of embeddings and layers of BERT's design.

    `block` explains `relative` and `gated`, and `embedding` explains `always_projects`.
    """
    return embedding(enc, length, always_projects) + _layers(enc, enc.layers, length, None, relative, gated)


def two_stream_transformer(enc: EncoderSpec, length: int, queries: int, relative: int = 0) -> Flops:
    """Return the cost of embeddings and layers with a query stream at `queries` positions of a row.

    A layer of that stream has queries, but neither keys nor values of its own. The content stream of the last layer
    has keys and values and nothing else.
    """
    rows, h = embedding(enc, length), enc.hidden
    start, project = rows.sparse // length, rows.matmul // length  # of one position
    begin = Flops(queries * start, queries * start, queries * project)
    keys = Flops(length * (4 * h * h + 2 * h), length * (4 * h * h + 2 * h), length * 4 * h * h)
    content = rows + _layers(enc, enc.layers - 1, length, None, relative) + keys
    return content + begin + _layers(enc, enc.layers, length, queries, relative)


def _layers(
    enc: EncoderSpec, layers: int, length: int, queries: int | None, relative: int, gated: bool = False
) -> Flops:
    one = block(enc.hidden, enc.ffn_width, enc.head_count, length, relative=relative, queries=queries, gated=gated)
    return Flops(layers * one.paper, layers * one.sparse, layers * one.matmul)


def embedding(enc: EncoderSpec, length: int, always_projects: bool = False) -> Flops:
    """Return the cost of the embeddings: look-ups of three tables, their sum, norm and dropout, and the projection.

    It is projected to the width of the layers if it has another width, or if the family `always_projects`.
    """
    e, h = enc.embedding_width, enc.hidden
    tokens = 2 * e * enc.vocab  # the dense look-up of one token
    project = 2 * h * e if e != h or always_projects else 0
    sparse = 2 * e * (length + 2) + 2 * e + LAYER_NORM * e + DROPOUT * e + project + (h if project else 0)
    return Flops(length * (tokens + sparse), length * sparse, length * project)


def block(
    h: int, ffn: int, heads: int, length: int, relative: int = 0, queries: int | None = None, gated: bool = False
) -> Flops:
    """Return the cost of one transformer layer of width `h`, whose attention multiplies `relative` positions as well.

    If `queries` are given, these are its rows, which attend to `length` keys and values that are computed elsewhere.
    A `gated` feed-forward layer has a second projection to its inner width, by which the first is multiplied.

    As in the script, the first layer norm costs 5 instead of 5h.
    """
    parts, rows = (3, length) if queries is None else (1, queries)
    gate = 2 * h * ffn if gated else 0
    products = 2 * (parts + 1) * h * h + 4 * h * length + 4 * h * relative + 4 * h * ffn + gate
    attention = parts * h + (SOFTMAX + DROPOUT + 1) * length * heads + h + DROPOUT * h + h + LAYER_NORM
    feed_forward = GELU * ffn + ffn + h + DROPOUT * h + h + LAYER_NORM * h + (ffn if gated else 0)
    paper = rows * (products + attention + feed_forward)
    return Flops(paper, paper, rows * products)


def lm_head(
    enc: EncoderSpec, length: int, positions: Positions, candidates: int | None = None, dense: bool = True
) -> Flops:
    """Return the cost of an MLM head at `positions`: dense layer, GELU, norm and softmax over the vocabulary.

    With `candidates`, the softmax is over so many tokens. The paper's conventions include all of these for every family
    and without `dense`, as the script does for GPT, whose head has only the product with the table.
    """
    e, h, v = enc.embedding_width, enc.hidden, candidates or enc.vocab
    table = 2 * e * v
    products = 2 * h * e + table if dense and not family_of(enc).TIED_HEAD else table
    each = 2 * h * e + table + e + GELU * e + LAYER_NORM * e + SOFTMAX * v + 2 * v
    return _at(each, products, length, positions)


def binary_head(spec: RunSpec, positions: Positions) -> Flops:
    """Return the cost of the head that detects replaced tokens, everywhere (RTD) or at the picks (ELECTRA 15%).

    The paper's conventions include the dense layer of the official code even if `spec.head` is "linear".
    """
    h = spec.encoder.hidden
    each = 2 * h * h + h + GELU * h + 2 * h
    products = 2 * h + (2 * h * h if spec.head == "dense" else 0)
    return _at(each, products, spec.data.length, positions)


def pair_head(enc: EncoderSpec) -> Flops:
    """Return the cost of the head that reads [CLS]: a dense layer of the encoder's width, and one with two outputs.

    The official script has no such head; a hyperbolic tangent is counted as one operation.
    """
    h = enc.hidden
    products = 2 * h * h + 2 * h * 2
    return Flops(products + 2 * h + 2, products + 2 * h + 2, products)


def gate(spec: RunSpec) -> Flops:
    """Return the cost of the copy gate of All-Tokens MLM: one dot product of hidden width at every position."""
    return _at(2 * spec.encoder.hidden, 2 * spec.encoder.hidden, spec.data.length, "all")


def baseline(spec: RunSpec) -> Flops:
    """Return the cost of the adversarial generator's baseline: one dot product of its width at each pick.

    Half of its backward pass is not computed, since no gradient passes on to the generator (docs/electra.md 3).
    """
    each = 2 * spec.generator_encoder.hidden
    total = _at(each, each, spec.data.length, spec.picks)
    return replace(total, still=(0, 0, total.matmul // 2))


def generator(spec: RunSpec) -> Flops:
    """Return the cost of the generator: its encoder over the whole row, and its output layer at the picks.

    If `tying` is "all", this is a second pass of the main encoder. Sampling from a fixed distribution costs nothing,
    like all sampling in the official script.
    """
    if spec.generator.kind != "transformer":
        return Flops(0, 0, 0)
    enc, length = spec.generator_encoder, spec.data.length
    total = encoder(enc, length) + lm_head(enc, length, spec.picks)
    return total.frozen() if spec.generator_frozen else total


def _at(each: int, products: int, length: int, positions: Positions) -> Flops:
    """Return the cost of a head that takes `each` (paper) or `products` (matmul) operations at a position."""
    if positions == "all":
        return Flops(length * each, length * each, length * products)
    paper = OUTPUT_SHARE * length * each
    return Flops(paper, paper, positions * products)
