"""BERT and ALBERT, which train on pairs of segments: losses against Hugging Face's models with both heads, and rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from objective_oracle import build, observe, score, shaken, slow_bce, synthetic, tiny
from transformers import AlbertConfig, AlbertForPreTraining, BertConfig, BertForPreTraining

from workbench import objectives
from workbench.errors import InputError
from workbench.models.heads import MlmHead


def theirs(objective: Any) -> Any:
    """Hugging Face's model of both losses with the weights of an objective, in float64."""
    config = objective.encoder.model.config
    if objective.spec.objective == "bert":
        model = BertForPreTraining(BertConfig(**config.to_diff_dict()))
        base, words, last = model.bert, model.cls.predictions, model.cls.seq_relationship
        pooler, dense, norm = base.pooler.dense, words.transform.dense, words.transform.LayerNorm
    else:
        settings = config.to_dict() | {"hidden_act": "gelu", "classifier_dropout_prob": 0.0}
        model = AlbertForPreTraining(AlbertConfig(**settings))
        base, words, last = model.albert, model.predictions, model.sop_classifier.classifier
        pooler, dense, norm = base.pooler, words.dense, words.LayerNorm
    head, pair_head = objective.head, objective.pair_head
    base.load_state_dict(objective.encoder.model.state_dict(), strict=False)
    for there, ours in ((pooler, pair_head.dense), (last, pair_head.out), (dense, head.dense), (norm, head.norm)):
        there.load_state_dict(ours.state_dict())
    with torch.no_grad():
        words.bias.copy_(head.bias)
        words.decoder.bias.copy_(head.bias)
    return model.eval().double()


@pytest.mark.parametrize("lengths", [None, (24, 24, 17, 9, 6, 24)], ids=["full", "padded"])
@pytest.mark.parametrize(("name", "embedding", "second"), [("bert", 32, "nsp"), ("albert", 16, "sop")])
def test_both_losses_are_those_of_hugging_face(
    name: str, embedding: int, second: str, lengths: tuple[int, ...] | None
) -> None:
    spec = tiny(name, {"encoder.family": name, "encoder.embedding": embedding})
    objective, batch = shaken(spec).eval(), synthetic(spec, rows=6, lengths=lengths)
    seen = observe(objective, batch)
    labels = torch.full_like(batch.ids, -100)
    for row, slot in torch.tensor(seen.weights).nonzero().tolist():
        place = seen.positions[row, slot]
        labels[row, place] = batch.ids[row, place]
    assert batch.broken is not None
    with torch.no_grad():
        output = theirs(objective)(
            torch.tensor(seen.main_input), attention_mask=batch.attention, token_type_ids=batch.segments, labels=labels,
            **{"next_sentence_label" if name == "bert" else "sentence_order_label": batch.broken.long()},
        )  # fmt: skip
    logits = output.seq_relationship_logits if name == "bert" else output.sop_logits

    found = objective(batch)
    assert found.total.item() == pytest.approx(output.loss.item(), rel=1e-5)
    assert found.total.item() == pytest.approx(sum(part.item() for part in found.parts.values()), rel=1e-6)
    margins = logits[:, 1] - logits[:, 0]
    losses = [slow_bce(float(margin), bool(label)) for margin, label in zip(margins, batch.broken, strict=True)]
    assert found.parts[f"{second}_loss"].item() == pytest.approx(sum(losses) / 6, rel=1e-5)
    right = sum(bool(margin > 0) == bool(label) for margin, label in zip(margins, batch.broken, strict=True))
    assert tuple(map(int, found.metrics[f"{second}_accuracy"])) == (right, 6)
    assert tuple(map(int, found.metrics[f"{second}_broken_rate"])) == (2, 6)
    assert tuple(map(int, found.metrics[f"{second}_positive_rate"])) == (int((margins > 0).sum()), 6)


def test_a_batch_without_pairs_is_a_fault_of_the_program() -> None:
    objective = build(tiny("bert"))
    batch = replace(synthetic(objective.spec, rows=2), broken=None)
    with pytest.raises(AssertionError, match="rows without pairs"):
        objective(batch)


def test_the_words_are_predicted_as_by_bert_mlm() -> None:
    """The same picks, initial weights and scores; only the pair loss is added."""
    spec = tiny("bert")
    batch = synthetic(spec, rows=6)
    one, other = build(spec).eval(), build(tiny("bert-mlm", {"data.pairs": "next"})).eval()
    assert one(batch).parts["mlm_loss"].item() == other(batch).total.item()
    assert torch.equal(score(one, batch.ids), score(other, batch.ids))
    assert isinstance(one.head, MlmHead) and list(one.scorers()) == ["pll", "pll-word-l2r"]


def test_an_objective_decides_which_pairs_its_rows_hold() -> None:
    assert (tiny("bert").data.pairs, tiny("albert").data.pairs) == ("next", "order")
    assert tiny("rtd").data.pairs is None
    assert tiny("rtd", {"data.pairs": "order"}).data.pairs == "order"
    with pytest.raises(InputError, match=r"data.pairs=order: bert needs data.pairs=next; leave it out"):
        tiny("bert", {"data.pairs": "order"})


@pytest.mark.parametrize(("child", "parent", "pairs"), [
    ("bert", "bert-mlm", ("next", None)), ("bert-mlm", "bert", (None, "next")), ("bert", "bert", ("next", "next")),
])  # fmt: skip
def test_a_parent_has_the_rows_of_its_own_objective(
    child: str, parent: str, pairs: tuple[str | None, str | None]
) -> None:
    spec = tiny(child, {"start.take": "encoder", "start.parent": {"objective": parent}})
    resolved = spec.parent()
    assert resolved is not None and (spec.data.pairs, resolved.data.pairs) == pairs
    again = objectives.with_options(spec)
    assert again == spec and again.name == spec.name


def test_pairs_and_copies_are_part_of_a_name_and_not_of_a_baseline() -> None:
    from workbench.execution.study_runner import untrained
    from workbench.spec.stages import BoundRun

    plain, copied = tiny("bert-mlm"), tiny("bert-mlm", {"data.copies": 10})
    assert not {"pairs", "copies"} & plain.identity()["data"].keys()
    specs = [plain, copied, tiny("bert-mlm", {"data.pairs": "next"}), tiny("bert"), tiny("bert", {"data.copies": 3})]
    assert len({spec.name for spec in specs}) == 5
    assert len({untrained(BoundRun(spec)).run_id for spec in specs}) == 1
