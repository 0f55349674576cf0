"""BERT and ALBERT: their losses against Hugging Face's models with both heads, and the rows that they train on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from objective_oracle import both_ways, build, observe, shaken, slow_bce, synthetic, tiny
from transformers import AlbertConfig, AlbertForPreTraining, BertConfig, BertForPreTraining

from workbench import objectives
from workbench.errors import InputError
from workbench.models.heads import MlmHead
from workbench.rng import row_keys
from workbench.spec.presets import resolve
from workbench.tensors import Batch

LENGTHS = (24, 24, 17, 9, 6, 24)
BERT = {"encoder.family": "bert", "encoder.embedding": 32}
ALBERT = {"encoder.family": "albert"}


def theirs(objective: Any) -> Any:
    """Hugging Face's model of both losses with the weights of an objective, in float64."""
    return (their_albert if objective.spec.encoder.family == "albert" else their_bert)(objective).double()


def their_albert(objective: Any) -> Any:
    config = objective.encoder.model.config.to_dict() | {"hidden_act": "gelu", "classifier_dropout_prob": 0.0}
    model = AlbertForPreTraining(AlbertConfig(**config)).eval()
    model.albert.load_state_dict(objective.encoder.model.state_dict(), strict=False)
    model.albert.pooler.load_state_dict(objective.pair_head.dense.state_dict())
    model.predictions.dense.load_state_dict(objective.head.dense.state_dict())
    model.predictions.LayerNorm.load_state_dict(objective.head.norm.state_dict())
    with torch.no_grad():
        model.predictions.bias.copy_(objective.head.bias)
        model.predictions.decoder.bias.copy_(objective.head.bias)
    model.sop_classifier.classifier.load_state_dict(objective.pair_head.out.state_dict())
    return model


def their_bert(objective: Any) -> Any:
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


def their_output(objective: Any, batch: Batch) -> Any:
    """Hugging Face's loss and logits for the masked input of one step."""
    seen = observe(objective, batch)
    labels = torch.full_like(batch.ids, -100)
    for row, slot in torch.tensor(seen.weights).nonzero().tolist():
        place = seen.positions[row, slot]
        labels[row, place] = batch.ids[row, place]
    assert batch.broken is not None
    given = {"attention_mask": batch.attention, "token_type_ids": batch.segments}
    with torch.no_grad():
        given["sentence_order_label" if objective.spec.objective == "albert" else "next_sentence_label"] = (
            batch.broken.long()
        )
        return theirs(objective)(torch.tensor(seen.main_input), labels=labels, **given)


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "padded"])
@pytest.mark.parametrize(("name", "family", "second"), [("bert", BERT, "nsp"), ("albert", ALBERT, "sop")])
def test_both_losses_are_those_of_hugging_face(
    name: str, family: dict[str, Any], second: str, lengths: tuple[int, ...] | None
) -> None:
    spec = tiny(name, family)
    objective, batch = shaken(spec).eval(), synthetic(spec, rows=6, lengths=lengths)
    output = their_output(objective, batch)
    found = objective(batch)
    assert found.total.item() == pytest.approx(output.loss.item(), rel=1e-5)
    assert found.total.item() == pytest.approx(sum(part.item() for part in found.parts.values()), rel=1e-6)
    logits = output.sop_logits if name == "albert" else output.seq_relationship_logits
    margins = logits[:, 1] - logits[:, 0]
    broken = batch.broken
    assert broken is not None
    losses = [slow_bce(float(margin), bool(label)) for margin, label in zip(margins, broken, strict=True)]
    assert found.parts[f"{second}_loss"].item() == pytest.approx(sum(losses) / 6, rel=1e-5)
    right = sum(bool(margin > 0) == bool(label) for margin, label in zip(margins, broken, strict=True))
    assert tuple(map(int, found.metrics[f"{second}_accuracy"])) == (right, 6)
    assert tuple(map(int, found.metrics[f"{second}_broken_rate"])) == (2, 6)
    assert tuple(map(int, found.metrics[f"{second}_positive_rate"])) == (int((margins > 0).sum()), 6)


@pytest.mark.parametrize(("name", "family"), [("bert", {}), ("albert", {}), ("albert", ALBERT)])
def test_gradients_are_those_of_the_written_out_loss(name: str, family: dict[str, Any]) -> None:
    spec = tiny(name, family | {"encoder.dropout": 0.0, "encoder.attention_dropout": 0.0})
    objective, batch = shaken(spec), synthetic(spec, rows=6, lengths=LENGTHS)
    for name, mine, other in both_ways(objective, batch):
        assert mine.grad is not None and mine.grad.abs().sum() > 0, name
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-3, atol=1e-5, msg=name)


def test_the_words_are_predicted_as_by_bert_mlm() -> None:
    """The same picks, initial weights and scores; only the pair loss is added."""
    spec = tiny("bert")
    plain = tiny("bert-mlm", {"data.pairs": "next"})
    batch = synthetic(spec, rows=6)
    one, other = build(spec).eval(), build(plain).eval()
    assert torch.equal(one(batch).parts["mlm_loss"], other(batch).total)
    assert torch.equal(one.score(batch.ids, None), other.score(batch.ids, None))
    assert isinstance(one.head, MlmHead) and list(one.scorers()) == ["pll", "pll-word-l2r"]


def test_the_first_pair_loss_is_that_of_a_coin() -> None:
    spec = objectives.with_options(resolve("small", {"objective": "bert"}))
    ids = torch.randint(1000, 30522, (16, 128), generator=torch.Generator().manual_seed(0))
    segments = (torch.arange(128) > 60).long().expand(16, 128)
    batch = Batch(ids, row_keys(0, torch.arange(16)), None, segments, torch.arange(16) % 2 == 0)
    with torch.no_grad():
        assert float(build(spec).eval()(batch).parts["nsp_loss"]) == pytest.approx(0.693, abs=0.03)


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
    start = {"start.take": "encoder", "start.parent": {"objective": parent}}
    spec = tiny(child, start)
    resolved = spec.parent()
    assert resolved is not None and (spec.data.pairs, resolved.data.pairs) == pairs
    again = objectives.with_options(spec)
    assert again == spec and again.name == spec.name


def test_runs_without_pairs_keep_their_names() -> None:
    plain = tiny("bert-mlm")
    assert not {"pairs", "copies"} & plain.identity()["data"].keys()
    others = [tiny("bert-mlm", {"data.pairs": "next"}), tiny("bert-mlm", {"data.copies": 10}), tiny("bert")]
    assert len({spec.name for spec in (plain, *others)}) == 4


def test_baselines_are_shared_with_runs_without_pairs() -> None:
    from workbench.execution.experiment_runner import untrained
    from workbench.spec.stages import BoundRun

    specs = [tiny("bert-mlm"), tiny("bert"), tiny("bert", {"data.copies": 3})]
    assert len({untrained(BoundRun(spec)).run_id for spec in specs}) == 1
