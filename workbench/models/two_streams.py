"""Two-stream attention: the states of a text, and beside them states that predict tokens which they do not see.

Yang et al. 2019, "XLNet", section 2.3. The content stream begins with the tokens, and a position attends to those that
it may see and to itself. The query stream begins with the same vector everywhere, at M positions of a row; it attends
to the content stream at those positions that it may see, so that its state depends on where it is, but not on the token
there. Both streams have the same weights. The content stream of the last layer has keys and values alone, because
nothing reads its states.

The layers are those of BERT, or XLNet's, whose attention also depends on the distance between two positions
(`Relative`, Dai et al. 2019, "Transformer-XL", section 3.3).

B rows, L positions, M queries, D width, H heads, d = D / H.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from workbench.cpu.functions import attention_probabilities, dropout, gelu, residual_norm
from workbench.models.losses import gather
from workbench.tensors import Drop

HIDDEN = -1e30  # is added to the scores of keys that a query may not see; with infinity, one without keys gets NaN


class Queries(NamedTuple):
    """A query stream at the positions places (B, M), int64, and which keys each query may see, visible (B, L, L) bool.

    The state of a query that may see no key has no meaning.
    """

    visible: Tensor
    places: Tensor


@dataclass(frozen=True)
class Relative:
    """The weights by which attention scores depend on distances and on segments.

    keys (H, 2L, d) are the keys of distances: keys[:, k] belongs to positions that are L - k before the query.
    `content`, `position` and `segment` (H, d) are added to queries before these meet the keys of tokens, the keys of
    distances, and `other` (H, d): the key of the other segment minus the key of the same segment.
    """

    keys: Tensor
    content: Tensor
    position: Tensor
    segment: Tensor
    other: Tensor


@dataclass(frozen=True)
class Layer:
    """The weights of a layer. Matrices are (out, in), and each has a bias (out,), or None.

    `inner_rate` is the rate of dropout after GELU, which only XLNet has.
    """

    query: tuple[Tensor, Tensor | None]
    key: tuple[Tensor, Tensor | None]
    value: tuple[Tensor, Tensor | None]
    out: tuple[Tensor, Tensor]
    norm: nn.LayerNorm
    inner: tuple[Tensor, Tensor]
    outer: tuple[Tensor, Tensor]
    last_norm: nn.LayerNorm
    relative: Relative | None = None
    inner_rate: float = 0.0


@dataclass(frozen=True)
class Stream:
    """One attention stream of XLNet: hidden states as queries, and the bias of their attention logits.

    states (B, Q, D); bias (B or 1, Q or 1, L); places (B, Q), the position of each state in its row, None if Q is L
    and positions are in order; apart (B, Q, L) bool, True where query and key are in different segments, None if rows
    have one segment.
    """

    states: Tensor
    bias: Tensor
    places: Tensor | None = None
    apart: Tensor | None = None

    @property
    def total(self) -> int:
        """B * Q, the number of states."""
        return self.states.shape[0] * self.states.shape[1]


def content_stream(states: Tensor, visible: Tensor, segments: Tensor | None = None) -> Stream:
    """Return the content stream of states (B, L, D): each attends to itself and visible (B or 1, L or 1, L) positions.

    segments (B, L) holds the segment of each position; None if rows have one segment.
    """
    own = torch.eye(states.shape[1], dtype=torch.bool, device=states.device)
    apart = None if segments is None else segments[:, :, None] != segments[:, None]
    return Stream(states, _bias(visible | own, states.dtype), apart=apart)


def query_stream(states: Tensor, queries: Queries, segments: Tensor | None = None) -> Stream:
    """Return the query stream of states (B, M, D); segments (B, L) has the segment of every position."""
    bias = _bias(gather(queries.visible, queries.places), states.dtype)
    apart = None if segments is None else gather(segments, queries.places)[..., None] != segments[:, None]
    return Stream(states, bias, queries.places, apart)


def _bias(visible: Tensor, dtype: torch.dtype) -> Tensor:
    wide = torch.promote_types(dtype, torch.float32)
    return torch.zeros(visible.shape, dtype=wide, device=visible.device).masked_fill(~visible, HIDDEN)


def last_states(
    streams: Sequence[Stream], layers: Sequence[Layer], heads: int, rates: tuple[float, float], fast: bool
) -> Tensor:
    """Return the last states (B, Q, D) of the last stream. The first one has the keys and values of all.

    `rates` are the dropout rates of states and of attention probabilities. With `fast`, what lies between matrix
    products takes one pass over memory each (`cpu/functions.py`).
    """
    key = int(torch.randint(2**62, ())) if fast and any(rates) else 0
    states = torch.cat([stream.states.flatten(0, 1) for stream in streams])
    for number, layer in enumerate(layers):
        asking = streams if number + 1 < len(layers) else streams[-1:]
        drops = [Drop(key + 8 * number + part, rate) for part, rate in enumerate((*rates, rates[0], layer.inner_rate))]
        states = _layer(states, streams[0].total, asking, layer, heads, drops, fast)
    return states.view_as(streams[-1].states)


def _layer(
    states: Tensor, tokens: int, streams: Sequence[Stream], layer: Layer, heads: int, drops: Sequence[Drop], fast: bool
) -> Tensor:
    """Return the states after one layer of the rows (N, D) of `streams`, the last rows of states.

    The first `tokens` rows of states belong to the content stream.
    """
    sizes, rows = [stream.total for stream in streams], len(streams[0].states)
    asking = states[-sum(sizes) :]
    keys, values = (_divided(F.linear(states[:tokens], *part), rows, heads) for part in (layer.key, layer.value))
    queries = F.linear(asking, *layer.query).split(sizes)
    contexts = []
    for each, (stream, query) in enumerate(zip(streams, queries, strict=True)):
        scores = _scores(_divided(query, rows, heads), keys, layer.relative, stream)
        drop = drops[1]._replace(key=drops[1].key + 4 * each)
        probabilities = attention_probabilities(scores, stream.bias, keys.shape[-1] ** -0.5, drop, fast)
        contexts.append((probabilities @ values).unflatten(0, (rows, -1)).transpose(1, 2).flatten(2).flatten(0, 1))
    branch = F.linear(torch.cat(contexts), layer.out[0])
    middle = residual_norm(branch, layer.out[1], asking, layer.norm, drops[0], fast)
    inner = dropout(gelu(F.linear(middle, layer.inner[0]), layer.inner[1], fast), drops[3], fast)
    return residual_norm(F.linear(inner, layer.outer[0]), layer.outer[1], middle, layer.last_norm, drops[2], fast)


def _divided(states: Tensor, rows: int, heads: int) -> Tensor:
    """Return states (B * Q, D) divided into heads, (B * H, Q, d)."""
    return states.view(rows, -1, heads, states.shape[1] // heads).transpose(1, 2).flatten(0, 1)


def _scores(queries: Tensor, keys: Tensor, relative: Relative | None, stream: Stream) -> Tensor:
    """Return the attention scores (B * H, Q, L) of queries (B * H, Q, d) and keys (B * H, L, d), not yet scaled."""
    if relative is None:
        return torch.bmm(queries, keys.transpose(1, 2))
    heads = len(relative.keys)
    queries = queries.unflatten(0, (-1, heads))  # (B, H, Q, d)
    scores = (queries + relative.content[:, None]).flatten(0, 1) @ keys.transpose(1, 2)
    by_head = (queries + relative.position[:, None]).transpose(0, 1).flatten(1, 2)  # (H, B * Q, d)
    by_distance = (by_head @ relative.keys.transpose(1, 2)).unflatten(1, (len(queries), -1))  # (H, B, Q, 2L)
    scores.unflatten(0, (-1, heads)).add_(_at_keys(by_distance, stream.places))
    if stream.apart is not None:
        # What all keys of a query have in common changes no attention, so that one product for each query is enough.
        by_segment = ((queries + relative.segment[:, None]) * relative.other[:, None]).sum(-1)  # (B, H, Q)
        scores = scores + (by_segment[..., None] * stream.apart[:, None]).flatten(0, 1)
    return scores


def _at_keys(by_distance: Tensor, places: Tensor | None) -> Tensor:
    """Return scores by key, (B, H, Q, L), from scores by distance (H, B, Q, 2L), whose column k is distance L - k.

    Key j is i - j positions before the query at i, so that its column is L - i + j. If the queries are all positions in
    order, these columns begin one further to the left in each row, which is a view.
    """
    heads, rows, queries, distances = by_distance.shape
    length = distances // 2
    if places is None:
        strides = (queries * distances, rows * queries * distances, distances - 1, 1)
        return by_distance.as_strided((rows, heads, queries, length), strides, length)
    columns = length - places[..., None] + torch.arange(length, device=places.device)  # (B, Q, L)
    return by_distance.gather(-1, columns.expand(heads, -1, -1, -1)).transpose(0, 1)


@contextmanager
def without_autocast(fast: bool) -> Iterator[torch.dtype | None]:
    """Disable autocast inside the block if `fast`, and return the dtype that it has set; None if it has set none.

    Our own kernels take bf16 and fp32 where autocast would convert.
    """
    half = fast and torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", enabled=False) if fast else nullcontext():
        yield torch.bfloat16 if half else None
