"""Causal LM: its loss against Hugging Face's, and that no position sees a later one, wherever states are computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from objective_oracle import score, shaken, slow_nll, synthetic, tiny
from torch import Tensor
from transformers import AutoModel, ElectraConfig, ElectraForCausalLM, GPT2LMHeadModel

from workbench import objectives
from workbench.errors import InputError
from workbench.models.encoder import Encoder, build_encoder
from workbench.models.families import PLUGS
from workbench.spec.presets import resolve
from workbench.tasks.common.encoder_folders import load_encoder, reads_last
from workbench.tensors import Batch

LENGTHS = (24, 24, 17, 9, 3, 24)


GPT2 = {"encoder.family": "gpt2", "encoder.embedding": 32}
FAMILY = pytest.mark.parametrize("family", [{}, GPT2], ids=["electra", "gpt2"])


def theirs(objective: Any) -> Any:
    """Hugging Face's causal language model with the weights of an objective, in float64."""
    if objective.spec.encoder.family == "gpt2":
        whole = GPT2LMHeadModel(objective.encoder.model.config).eval()
        whole.transformer.load_state_dict(objective.encoder.model.state_dict())
        return whole.double()
    model = ElectraForCausalLM(ElectraConfig(**objective.encoder.model.config.facts())).eval()
    model.electra.load_state_dict(objective.encoder.model.state_dict())
    model.generator_predictions.dense.load_state_dict(objective.head.dense.state_dict())
    model.generator_predictions.LayerNorm.load_state_dict(objective.head.norm.state_dict())
    table = {"weight": objective.head.table.weight.detach(), "bias": objective.head.bias.detach()}
    model.generator_lm_head.load_state_dict(table)
    return model.double()


def logits_of(objective: Any, batch: Batch) -> Any:
    """(B, L, V) float64."""
    with torch.no_grad():
        return theirs(objective)(batch.ids, attention_mask=batch.attention).logits.numpy()


@FAMILY
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_the_loss_is_the_mean_over_the_words_that_follow(
    lengths: tuple[int, ...] | None, family: dict[str, Any]
) -> None:
    spec = tiny("causal-lm", family)
    objective, batch = shaken(spec).eval(), synthetic(spec, rows=6, lengths=lengths)
    logits, losses, right = logits_of(objective, batch), [], []
    for row, size in enumerate(lengths or [24] * 6):
        for place in range(size - 2):  # the word after the last one is [SEP], which is not predicted
            word = int(batch.ids[row, place + 1])
            losses.append(slow_nll(logits[row, place], word))
            right.append(logits[row, place].argmax() == word)
    for plain in (False, True):
        objective.encoder.plain = objective.head.plain = plain
        found = objective(batch)
        assert found.total.item() == pytest.approx(np.mean(losses), rel=1e-5)
        assert found.parts["lm_loss"] is found.total
        hits, among = found.metrics["lm_accuracy"]
        assert (int(hits), int(among)) == (sum(right), len(right))


def test_the_last_position_predicts_nothing() -> None:
    """Not even the first token of a row that begins with a word instead of [CLS]."""
    spec = tiny("causal-lm")
    objective, batch = shaken(spec).eval(), synthetic(spec, rows=6)
    before = objective(batch)
    batch.ids[:, 0] = 7
    assert objective(batch).metrics["lm_accuracy"][1] == before.metrics["lm_accuracy"][1] == 6 * 22


@FAMILY
def test_a_score_is_the_sum_of_log_probabilities(family: dict[str, Any]) -> None:
    spec = tiny("causal-lm", family)
    objective, batch = shaken(spec).eval(), synthetic(spec, rows=6, lengths=LENGTHS)
    found = score(objective, batch.ids, batch.attention)
    logits = logits_of(objective, batch)
    for row, size in enumerate(LENGTHS):
        want = -sum(slow_nll(logits[row, place], int(batch.ids[row, place + 1])) for place in range(size - 2))
        assert float(found[row]) == pytest.approx(want, rel=1e-5)
        with torch.no_grad():  # their own mean loss, over the words and [SEP]
            ids = batch.ids[row : row + 1, :size]
            own = theirs(objective)(ids, labels=ids).loss
        last = slow_nll(logits[row, size - 2], spec.data.special.sep)
        assert float(own) * (size - 1) == pytest.approx(last - float(found[row]), rel=1e-4)


def states(encoder: Encoder, ids: Tensor, way: str) -> Tensor:
    """The hidden states (B, L, D) by one of the ways in which they are computed."""
    encoder.plain = way == "plain"
    if way == "module":
        hidden: Tensor = encoder.model(ids).last_hidden_state
        return hidden
    if way == "one place":
        rows, length = ids.shape
        places = [encoder.states_at(ids, None, torch.full((rows,), place)) for place in range(length)]
        return torch.stack(places, 1)
    return encoder(ids)


@pytest.mark.parametrize("family", ["electra", "bert", "roberta", "gpt2"])
@pytest.mark.parametrize("way", ["kernels", "module", "one place", "plain"])
def test_what_follows_a_position_changes_nothing_there(way: str, family: str) -> None:
    keys = {} if family == "electra" else {"encoder.family": family, "encoder.embedding": 32}
    spec = tiny("causal-lm", keys)
    encoder, ids = shaken(spec).eval().encoder, synthetic(spec, rows=3).ids
    with torch.no_grad():
        before = states(encoder, ids, way)
        for place in (1, 11, 22):
            other = ids.clone()
            other[:, place + 1 :] = torch.randint(5, 40, other[:, place + 1 :].shape)
            after = states(encoder, other, way)
            torch.testing.assert_close(after[:, : place + 1], before[:, : place + 1], rtol=0, atol=1e-6)
            assert (after[:, place + 1 :] - before[:, place + 1 :]).abs().max() > 0.1
            other[:, 0] = 7
            assert (states(encoder, other, way)[:, place] - before[:, place]).abs().max() > 1e-3  # it sees the first


@FAMILY
def test_an_exported_encoder_is_causal_and_read_at_its_last_token(tmp_path: Path, family: dict[str, Any]) -> None:
    spec = tiny("causal-lm", family)
    encoder, batch = shaken(spec).eval().encoder, synthetic(spec, rows=6, lengths=LENGTHS)
    encoder.save(tmp_path)
    foreign, ours = AutoModel.from_pretrained(tmp_path).eval(), load_encoder(tmp_path, 0.0).eval()
    assert foreign.config.model_type == "gpt2" or foreign.config.is_decoder
    assert reads_last(ours.config)
    real = batch.attention
    assert real is not None
    with torch.no_grad():
        want = foreign(batch.ids, attention_mask=real).last_hidden_state[real]
        for found in (ours(batch.ids, attention_mask=real).last_hidden_state, encoder(batch.ids, real)):
            torch.testing.assert_close(found[real], want, rtol=1e-4, atol=1e-4)


def test_the_objective_decides_whether_the_encoder_is_causal() -> None:
    assert tiny("causal-lm").encoder.causal and tiny("bert-mlm").encoder.causal is None
    assert tiny("causal-lm").name != tiny("causal-lm").changed({"encoder.causal": None}).name
    named = resolve("nano", {"objective": "bert-mlm", "encoder.causal": False})
    assert named.name == resolve("nano", {"objective": "bert-mlm"}).name
    with pytest.raises(InputError, match=r"encoder.causal=false: causal-lm needs"):
        tiny("causal-lm", {"encoder.causal": False})
    for family in set(PLUGS.built_in) - {"electra", "bert", "roberta", "gpt2"}:
        with pytest.raises(InputError, match=rf"encoder.family={family} cannot be causal; there are bert, electra, "):
            shaken(tiny("causal-lm", {"encoder.family": family, "encoder.embedding": 32}))


@pytest.mark.parametrize("causal", [None, True])
def test_gpt2_is_refused_for_objectives_that_see_both_sides(causal: bool | None) -> None:
    for name in set(objectives.names()) - {"causal-lm"}:
        spec = tiny(name, GPT2 | {"encoder.causal": causal})
        with pytest.raises(InputError, match=rf"^encoder.family=gpt2 has no position .* {name} needs; choose --obj"):
            objectives.build(spec, build_encoder(spec))


def test_a_masked_model_may_start_from_a_causal_one_and_the_other_way_round() -> None:
    for child, parent in (("bert-mlm", "causal-lm"), ("causal-lm", "bert-mlm")):
        start = {"start": {"take": "encoder", "parent": {"objective": parent}}}
        spec = objectives.with_options(tiny(child).replace(**start))
        own = spec.parent()
        assert own is not None and own.objective == parent
        assert (bool(spec.encoder.causal), bool(own.encoder.causal)) == (child == "causal-lm", parent == "causal-lm")
        assert objectives.with_options(spec).name == spec.name  # resolved again, it is the same run
