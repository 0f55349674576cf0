"""Both streams of attention against a recursion over single positions, and what each position depends on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from objective_oracle import shaken, synthetic, tiny
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from workbench.models.corruption import pick_spans, visible_in_order
from workbench.models.two_streams import Queries
from workbench.tensors import Batch

XLNET = {"encoder.family": "xlnet", "encoder.embedding": 32}
FAMILY = pytest.mark.parametrize("family", [{}, XLNET], ids=["electra", "xlnet"])
STILL = {"encoder.dropout": 0.0, "encoder.attention_dropout": 0.0}
LENGTHS = (24, 24, 17, 9)


def made(family: dict[str, Any], lengths: tuple[int, ...] | None = LENGTHS) -> tuple[Any, Batch, Queries]:
    """An objective with weights far from the initial ones, a batch, and its predictions."""
    spec = tiny("permutation-lm", family | STILL)
    batch = synthetic(spec, rows=4, lengths=lengths)
    positions, weights = pick_spans(batch, spec.data.special, 6, 5)
    return (
        shaken(spec).eval(),
        batch,
        Queries(visible_in_order(batch, spec.data.special, positions, weights), positions),
    )


def slow_states(
    encoder: Any, ids: list[int], seen: np.ndarray, mask: int, segments: list[int] | None = None
) -> dict[int, Tensor]:
    """The last query state of each position of a row, for ELECTRA, in float64, one position after the other.

    Nothing is computed for a row as a whole: the attention of a position runs over a list of those that it sees.
    """
    model = encoder.model.double()
    tables, heads = model.embeddings, model.config.num_attention_heads

    def embedded(token: int, place: int) -> Tensor:
        total = tables.word_embeddings.weight[token] + tables.position_embeddings.weight[place]
        out = tables.LayerNorm(total + tables.token_type_embeddings.weight[segments[place] if segments else 0])
        return model.embeddings_project(out) if hasattr(model, "embeddings_project") else out

    def attended(layer: Any, asking: Tensor, keys: list[Tensor]) -> Tensor:
        own, after = layer.attention.self, layer.attention.output
        parts = []
        for head in range(heads):
            at = slice(head * len(asking) // heads, (head + 1) * len(asking) // heads)
            query = own.query(asking)[at]
            scores = torch.stack([query @ own.key(each)[at] for each in keys]) / len(query) ** 0.5
            values = torch.stack([own.value(each)[at] for each in keys])
            parts.append(scores.softmax(0) @ values)
        middle = after.LayerNorm(after.dense(torch.cat(parts)) + asking)
        return layer.output.LayerNorm(layer.output.dense(F.gelu(layer.intermediate.dense(middle))) + middle)

    content = [embedded(token, place) for place, token in enumerate(ids)]
    query = {place: embedded(mask, place) for place in range(len(ids)) if seen[place].any()}
    for layer in model.encoder.layer:
        query = {i: attended(layer, g, [content[j] for j in np.flatnonzero(seen[i])]) for i, g in query.items()}
        content = [attended(layer, h, [content[j] for j in np.flatnonzero(seen[i]) if j != i] + [h])
                   for i, h in enumerate(content)]  # fmt: skip
    encoder.model.float()
    return query


@pytest.mark.parametrize("pairs", [None, "next"])
@pytest.mark.parametrize("plain", [False, True])
def test_states_of_electra_agree_with_a_recursion_over_positions(plain: bool, pairs: str | None) -> None:
    objective, batch, queries = made({"data.pairs": pairs})
    encoder, mask = objective.encoder, objective.spec.data.special.mask
    with torch.no_grad():
        encoder.plain = plain
        found = encoder(batch.ids, segments=batch.segments, queries=queries)
        for row in range(4):
            kinds = None if batch.segments is None else batch.segments[row].tolist()
            states = slow_states(encoder, batch.ids[row].tolist(), queries.visible[row].numpy(), mask, kinds)
            for slot, place in enumerate(queries.places[row].tolist()):
                if place in states:
                    torch.testing.assert_close(found[row, slot].double(), states[place], rtol=1e-4, atol=1e-5)


@FAMILY
@pytest.mark.parametrize("plain", [False, True])
def test_a_state_depends_on_what_its_position_sees_and_on_nothing_else(family: dict[str, Any], plain: bool) -> None:
    """Two layers: the tokens that are seen see others only if these come before the position as well."""
    objective, batch, queries = made(family, None)
    encoder = objective.encoder
    encoder.plain = plain
    with torch.no_grad():
        before = encoder(batch.ids, queries=queries)
        for place in range(24):
            ids = batch.ids.clone()
            ids[:, place] = (ids[:, place] - 5 + 11) % 35 + 5
            change = (encoder(ids, queries=queries) - before).abs().amax(-1)  # (B, K)
            seen = queries.visible[:, :, place].gather(1, queries.places)
            assert bool((change[~seen] < 1e-6).all()) and bool((change[seen] > 1e-4).all())


@FAMILY
def test_half_precision_agrees_roughly(family: dict[str, Any]) -> None:
    objective, batch, queries = made(family)
    exact = objective.encoder(batch.ids, queries=queries)
    for plain in (False, True):
        objective.encoder.plain = plain
        with torch.autocast("cpu", torch.bfloat16):
            rough = objective.encoder(batch.ids, queries=queries)
        real = queries.visible.gather(1, queries.places[..., None].expand(-1, -1, 24)).any(-1)
        assert (rough.float() - exact)[real].abs().mean() < 0.05


@FAMILY
def test_dropout_is_drawn_anew_from_torchs_numbers(family: dict[str, Any]) -> None:
    given = family | {"encoder.dropout": 0.2, "encoder.attention_dropout": 0.2}
    spec = tiny("permutation-lm", given)
    objective, batch = shaken(spec), synthetic(spec, rows=4)
    losses = []
    for seed in (0, 1, 0):
        torch.manual_seed(seed)
        losses.append(objective(batch).total.item())
    assert losses[0] == losses[2] != losses[1] != objective.eval()(batch).total.item()
