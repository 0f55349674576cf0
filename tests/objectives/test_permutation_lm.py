"""Permutation LM: its loss against XLNet's own with true masks, and its likelihoods against brute force."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from objective_oracle import build, score, shaken, slow_nll, synthetic, tiny
from torch import Tensor
from transformers import XLNetLMHeadModel

from workbench import objectives
from workbench.errors import InputError
from workbench.execution.babylm_export import masked_lm
from workbench.models.corruption import pick_spans, visible_in_order
from workbench.models.encoder import build_encoder
from workbench.models.families import PLUGS
from workbench.models.heads import Sentences
from workbench.models.two_streams import Queries

XLNET: dict[str, Any] = {"encoder.family": "xlnet", "encoder.embedding": 32}
FAMILY = pytest.mark.parametrize("family", [{}, XLNET], ids=["electra", "xlnet"])
STILL = {"encoder.dropout": 0.0, "encoder.attention_dropout": 0.0}
LENGTHS = (24, 24, 17, 9, 3, 24)


def theirs(objective: Any) -> Any:
    """Hugging Face's XLNet with its head, with the weights of an objective; it computes nothing in float64."""
    whole = XLNetLMHeadModel(objective.encoder.model.config).eval()
    whole.transformer.load_state_dict(objective.encoder.model.state_dict())
    head = {"weight": objective.head.table.weight.detach(), "bias": objective.head.bias.detach()}
    whole.lm_loss.load_state_dict(head)
    return whole


def their_nll(objective: Any, ids: Tensor, seen: np.ndarray, place: int) -> float:
    """-log p(token at a place) of one row (L,), by their masks: 1 at [i, j] forbids i to see j."""
    mapping = torch.zeros(1, 1, len(ids))
    mapping[0, 0, place] = 1
    with torch.no_grad():
        hidden = torch.tensor(~seen)[None].float()
        logits = theirs(objective)(input_ids=ids[None], perm_mask=hidden, target_mapping=mapping).logits
    return slow_nll(logits[0, 0].double().numpy(), int(ids[place]))


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_the_loss_is_that_of_xlnet_with_true_masks(lengths: tuple[int, ...] | None) -> None:
    spec = tiny("permutation-lm", XLNET)
    objective, batch = shaken(spec).eval(), synthetic(spec, rows=6, lengths=lengths)
    positions, weights = pick_spans(batch, spec.data.special, 6, 5)
    seen = visible_in_order(batch, spec.data.special, positions, weights)
    losses = []
    for row, slot in itertools.product(range(6), range(4)):
        place = int(positions[row, slot])
        if weights[row, slot] > 0 and seen[row, place].any():
            losses.append(their_nll(objective, batch.ids[row], seen[row].numpy(), place))
    for plain in (False, True):
        objective.encoder.plain = objective.head.plain = plain
        found = objective(batch)
        assert found.total.item() == pytest.approx(np.mean(losses), rel=2e-6)
        assert found.parts["lm_loss"] is found.total
        assert int(found.metrics["lm_accuracy"][1]) == int(found.metrics["mask_rate"][0]) == len(losses)
        assert int(found.metrics["mask_rate"][1]) == (144 if lengths is None else sum(LENGTHS))


@FAMILY
def test_rows_of_two_segments_train_what_tells_them_apart(family: dict[str, Any]) -> None:
    """Else fine-tuning on pairs of texts would begin with the initial vector of the second segment."""
    spec = tiny("permutation-lm", family | STILL | {"data.pairs": "next"})
    objective, batch = shaken(spec), synthetic(spec, rows=6, lengths=LENGTHS)
    loss = objective(batch).total
    assert loss.item() != objective(replace(batch, segments=None)).total.item()
    loss.backward()
    of_segments = ("token_type_embeddings.weight", "seg_embed", "r_s_bias")
    grads = [p.grad for name, p in objective.named_parameters() if name.endswith(of_segments)]
    assert grads and all(grad is not None and grad[-1].any() for grad in grads)


def test_the_options_reach_the_picks() -> None:
    batch = synthetic(tiny("permutation-lm"), rows=6)
    for options, predicted in ({}, 24), ({"options.alpha": 3}, 48), ({"options.longest": 1}, 24):
        spec = tiny("permutation-lm", options)
        objective = shaken(spec).eval()
        rate = objective(batch).metrics["mask_rate"]
        assert int(rate[0]) == predicted
        assert spec.name == tiny("permutation-lm").name or options
    one, other = (shaken(tiny("permutation-lm", {"options.longest": n})).eval()(batch).total.item() for n in (1, 5))
    assert one != other


def test_a_score_is_the_chain_rule_from_left_to_right() -> None:
    """Each token from its own forward pass of Hugging Face's module, over what is before it and nothing else."""
    spec = tiny("permutation-lm", XLNET)
    objective, batch = shaken(spec).eval(), synthetic(spec, rows=6, lengths=LENGTHS)
    found = score(objective, batch.ids, batch.attention)
    for row, size in ((3, 9), (4, 3)):
        total = 0.0
        for place in range(1, size - 1):  # neither [CLS] nor [SEP]
            ids = batch.ids[row, : place + 1].clone()
            seen = np.tril(np.ones((place + 1, place + 1), bool), -1)
            total -= their_nll(objective, ids, seen, place)
        assert float(found[row]) == pytest.approx(total, rel=1e-4)


def test_pll_is_the_likelihood_of_each_token_from_all_others() -> None:
    spec = tiny("permutation-lm", XLNET)
    objective, batch = shaken(spec).eval(), synthetic(spec, rows=6, lengths=LENGTHS)
    words = torch.arange(24).expand(6, -1)
    assert list(objective.scorers()) == ["left-to-right", "pll"]
    found = objective.scorers()["pll"](Sentences(batch.ids, batch.attention, words))
    first = objective.scorers()["left-to-right"](Sentences(batch.ids, batch.attention, words))
    assert torch.equal(first, score(objective, batch.ids, batch.attention))
    row, size = 3, 9
    total = 0.0
    for place in range(1, size - 1):
        seen = np.ones((size, size), bool)
        seen[:, place] = False
        total -= their_nll(objective, batch.ids[row, :size], seen, place)
    assert float(found[row]) == pytest.approx(total, rel=1e-4)


def test_inputs_are_not_corrupted() -> None:
    """No [MASK] is shown, so that a later token sees the earlier targets: their tokens change its prediction."""
    spec = tiny("permutation-lm", STILL)
    objective, batch = shaken(spec).eval(), synthetic(spec, rows=6)
    positions, weights = pick_spans(batch, spec.data.special, 6, 5)
    seen = visible_in_order(batch, spec.data.special, positions, weights)
    before = objective.encoder(batch.ids, queries=Queries(seen, positions))
    ids = batch.ids.clone()
    first = positions[:, :1]
    ids.scatter_(1, first, 39)
    change = (objective.encoder(ids, queries=Queries(seen, positions)) - before).abs().amax(-1) > 1e-5
    sees = seen.gather(1, positions[..., None].expand(-1, -1, 24)).gather(2, first[:, None].expand(-1, 4, -1))[..., 0]
    unlike = (batch.ids.gather(1, first) != 39).expand(-1, 4)
    assert bool((change == (sees & unlike)).all()) and bool((sees & unlike).any())


def test_families_without_a_second_stream_are_refused() -> None:
    for family in set(PLUGS.built_in) - {"electra", "xlnet", "gpt2"}:
        spec = tiny("permutation-lm", {"encoder.family": family, "encoder.embedding": 32})
        with pytest.raises(InputError, match=rf"encoder.family={family} has no second stream.*of electra and xlnet$"):
            objectives.build(spec, build_encoder(spec))


def test_its_encoder_stays_as_it_was_for_others_and_its_head_fills_no_masks() -> None:
    assert tiny("permutation-lm").encoder == tiny("bert-mlm").encoder
    made, other = build(tiny("permutation-lm")), build(tiny("bert-mlm"))
    assert all(
        torch.equal(one, two) for one, two in zip(made.encoder.parameters(), other.encoder.parameters(), strict=True)
    )
    assert masked_lm(made) is None and masked_lm(other) is not None


def test_a_causal_encoder_is_refused() -> None:
    spec = tiny("permutation-lm", {"encoder.causal": True})
    with pytest.raises(InputError, match=r"encoder.causal=true: a query stream predicts tokens in any order"):
        objectives.build(spec, build_encoder(spec))
