"""BERT: its losses against Hugging Face's model with both heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from objective_oracle import build, shaken, synthetic, tiny
from pair_oracle import ROWS, agree_about_pairs, agree_in_gradients, labels_of
from transformers import BertConfig, BertForPreTraining

from workbench import objectives
from workbench.models.heads import MlmHead
from workbench.rng import row_keys
from workbench.spec.presets import resolve
from workbench.tensors import Batch


def their_bert(objective: Any) -> Any:
    """Hugging Face's model of both losses with the weights of an objective."""
    model = BertForPreTraining(BertConfig(**objective.encoder.model.config.to_diff_dict())).eval()
    model.bert.load_state_dict(objective.encoder.model.state_dict(), strict=False)
    model.bert.pooler.dense.load_state_dict(objective.pair_head.dense.state_dict())
    words = model.cls.predictions
    words.transform.dense.load_state_dict(objective.head.dense.state_dict())
    words.transform.LayerNorm.load_state_dict(objective.head.norm.state_dict())
    with torch.no_grad():
        words.bias.copy_(objective.head.bias)
        words.decoder.bias.copy_(objective.head.bias)
    model.cls.seq_relationship.load_state_dict(objective.pair_head.out.state_dict())
    return model


@ROWS
def test_both_losses_are_those_of_hugging_face(lengths: tuple[int, ...] | None) -> None:
    spec = tiny("bert", {"encoder.family": "bert", "encoder.embedding": 32})
    objective, batch = shaken(spec).eval(), synthetic(spec, rows=6, lengths=lengths)
    ids, labels, given = labels_of(objective, batch)
    assert batch.broken is not None
    with torch.no_grad():
        output = their_bert(objective).double()(ids, labels=labels, next_sentence_label=batch.broken.long(), **given)
    agree_about_pairs(objective(batch), output.loss.item(), output.seq_relationship_logits, batch.broken, "nsp")


def test_gradients_are_those_of_the_written_out_loss() -> None:
    agree_in_gradients("bert", {})


def test_the_words_are_predicted_as_by_bert_mlm() -> None:
    """The same picks, initial weights and scores; only the pair loss is added."""
    spec = tiny("bert")
    plain = tiny("bert-mlm", {"data.pairs": "next"})
    batch = synthetic(spec, rows=6)
    one, other = build(spec).eval(), build(plain).eval()
    assert one(batch).parts["mlm_loss"].item() == other(batch).total.item()
    assert torch.equal(one.score(batch.ids, None), other.score(batch.ids, None))
    assert isinstance(one.head, MlmHead) and list(one.scorers()) == ["pll", "pll-word-l2r"]


def test_the_first_pair_loss_is_that_of_a_coin() -> None:
    spec = objectives.with_options(resolve("small", {"objective": "bert"}))
    ids = torch.randint(1000, 30522, (16, 128), generator=torch.Generator().manual_seed(0))
    segments = (torch.arange(128) > 60).long().expand(16, 128)
    batch = Batch(ids, row_keys(0, torch.arange(16)), None, segments, torch.arange(16) % 2 == 0)
    with torch.no_grad():
        assert float(build(spec).eval()(batch).parts["nsp_loss"]) == pytest.approx(0.693, abs=0.03)
