"""What holds for the losses of several objectives; the slow loop of each is in the file of its name."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from objective_oracle import MAIN_PART, MASK, NAMES, WITH_GENERATOR, observe, shaken, synthetic, tiny

from workbench.models.encoder import Encoder


@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_the_weight_multiplies_the_main_loss(name: str) -> None:
    spec = tiny(name, {"options.weight": 7.5})
    loss = observe(shaken(spec), synthetic(spec)).loss
    assert loss.total.item() == pytest.approx(
        (loss.parts["generator_loss"] + 7.5 * loss.parts[MAIN_PART[name]]).item(), rel=1e-6
    )


@pytest.mark.parametrize("name", NAMES)
def test_both_segments_train_their_embedding(name: str) -> None:
    """The second segment has the second embedding, in the generator as well."""
    spec = tiny(name, {"data.pairs": "next"})
    objective = shaken(spec)
    objective(synthetic(spec)).total.backward()
    for encoder in {id(part): part for part in objective.modules() if isinstance(part, Encoder)}.values():
        assert (encoder.model.embeddings.token_type_embeddings.weight.grad.abs().sum(1) > 0).all()


@pytest.mark.parametrize("name", ["rtd", "electra-15"])
def test_a_generator_that_is_always_right_leaves_nothing_to_detect(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample that equals the original counts as original."""
    spec = tiny(name)
    batch, objective = synthetic(spec), shaken(spec)
    positions = torch.tensor(observe(objective, batch).positions)
    originals = batch.ids.gather(1, positions)
    guess = objective.generator.guess
    monkeypatch.setattr(objective.generator, "guess", lambda *args: replace(guess(*args), samples=originals))
    loss = objective(batch)
    assert loss.metrics["replaced_rate"][0] == 0
    assert loss.metrics["discriminator_recall"][1] == 0  # nothing is replaced, so that nothing can be detected
    logits = objective.head(objective.encoder(batch.ids))
    losses = torch.nn.functional.softplus(logits)
    expected = (
        losses.mean() if name == "rtd" else losses.gather(1, torch.tensor(observe(objective, batch).positions)).mean()
    )
    assert loss.parts["discriminator_loss"].item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_rows_without_anything_to_pick_cost_nothing_and_break_nothing(name: str) -> None:
    spec = tiny(name)
    objective = shaken(spec)
    loss = objective(synthetic(spec, rows=3, lengths=(2, 2, 2)))
    assert math.isfinite(loss.total)
    if "generator_loss" in loss.parts:
        assert loss.parts["generator_loss"].item() == 0
    if name not in ("rtd", "all-tokens-mlm"):
        assert loss.total.item() == 0
    loss.total.backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in objective.parameters())


@pytest.mark.parametrize("picks", ["distinct", "released"])
@pytest.mark.parametrize("name", [*WITH_GENERATOR, "adversarial"])
def test_every_generator_can_have_the_input_of_bert_mlm(name: str, picks: str) -> None:
    """With shares of 80 % [MASK] and 10 % random tokens, and the same keys, the input equals that of BERT MLM."""
    own = {"corruption.generator_mask": 0.8, "corruption.generator_random": 0.1}
    others = {"corruption.mask": 0.5, "corruption.random": 0.5, "corruption.picks": picks}
    generator = tiny(name, own | others)
    bert = tiny("bert-mlm", {"corruption.picks": picks})
    batch = synthetic(generator, rows=200)
    shown = observe(shaken(generator), batch).inputs[0]
    np.testing.assert_array_equal(shown, observe(shaken(bert), batch).main_input)
    assert 0.05 < ((shown != batch.ids.numpy()) & (shown != MASK)).mean() / generator.corruption.rate < 0.15
