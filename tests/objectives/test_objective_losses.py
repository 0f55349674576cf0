"""The losses and counts of the five objectives of the paper, against slow loops over rows and positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from objective_oracle import (
    LENGTHS,
    MAIN_PART,
    MASK,
    NAMES,
    WITH_GENERATOR,
    Seen,
    binary_logits,
    counted,
    counts_of,
    observe,
    real_places,
    shaken,
    slow_accuracy,
    slow_answers,
    slow_corrupted,
    slow_detection,
    slow_mlm,
    slow_replaced,
    synthetic,
    tiny,
    word_logits,
)

from workbench.errors import InputError
from workbench.models.encoder import Encoder
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch

EACH = pytest.mark.parametrize("name", NAMES)
RECIPES = pytest.mark.parametrize("recipe", ["paper", "released"])
PADDED = pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])


def slow_copy_mixture(gates: np.ndarray, logits: np.ndarray, batch: Batch, seen: Seen) -> float:
    """-log of D [v = the token shown] + (1 - D) softmax(v), at the original, over every real token."""
    losses = []
    for row, place in real_places(batch):
        original, shown = int(batch.ids[row, place]), int(seen.main_input[row, place])
        copying = 1 / (1 + math.exp(-gates[row, place]))
        softmax = np.exp(logits[row, place] - logits[row, place].max())
        p = (1 - copying) * softmax / softmax.sum()
        p[shown] += copying
        losses.append(-math.log(p[original]))
    return sum(losses) / len(losses)


def slow_step(objective: Any, batch: Batch, seen: Seen) -> tuple[dict[str, float], dict[str, tuple[int, int]]]:
    """The parts of the loss, and the metrics that are counts."""
    name, encoder, ids = objective.spec.objective, objective.encoder, seen.main_input
    picks, real, changed = list(counted(seen)), list(real_places(batch)), ids != batch.ids.numpy()
    parts: dict[str, float] = {}
    counts = {"replaced_rate": slow_replaced(batch, seen)}
    if name != "bert-mlm":
        words = word_logits(objective.generator.body, objective.generator.head, seen.inputs[0], batch)
        parts["generator_loss"] = slow_mlm(words, batch, seen)
        counts["generator_accuracy"] = slow_accuracy(words, batch, picks)
    if name in ("rtd", "electra-15"):
        logits, places = binary_logits(encoder, objective.head, ids, batch), real if name == "rtd" else picks
        parts["discriminator_loss"] = slow_detection(logits, batch, seen, places)
        return parts, counts | slow_answers("discriminator", logits, changed, places)
    words = word_logits(encoder, objective.head, ids, batch)
    if name == "all-tokens-mlm":
        gates = binary_logits(encoder, objective.gate, ids, batch)
        parts["mlm_loss"] = slow_copy_mixture(gates, words, batch, seen)
        parts["copy_loss"] = slow_detection(-gates, batch, seen, real)
        counts |= slow_answers("copy", gates, ~changed, real)
    else:
        parts["mlm_loss"] = slow_mlm(words, batch, seen)
    return parts, counts | {"mlm_accuracy": slow_accuracy(words, batch, real if name == "all-tokens-mlm" else picks)}


def agree(spec: RunSpec, batch: Batch) -> None:
    """Losses and counts are those of the slow loop; the inputs differ from the originals at the picks alone."""
    objective = shaken(spec)
    seen = observe(objective, batch)
    parts, counts = slow_step(objective, batch, seen)
    found = {part: float(value.detach()) for part, value in seen.loss.parts.items()}
    assert found == pytest.approx(parts, rel=2e-5)
    weight = 50 if "discriminator_loss" in parts else 1  # the copy loss has weight 0 unless an option sets another
    total = parts.get("generator_loss", 0.0) + weight * parts[MAIN_PART[spec.objective]]
    assert float(seen.loss.total.detach()) == pytest.approx(total, rel=2e-5)
    assert counts_of(seen.loss.metrics, counts) == counts

    originals, picked = batch.ids.numpy(), set(counted(seen))
    for row, place in np.ndindex(originals.shape):
        if (row, place) not in picked:
            assert all(ids[row, place] == originals[row, place] for ids in seen.inputs)
    if seen.samples is not None:
        np.testing.assert_array_equal(seen.main_input, slow_corrupted(batch, seen))
        shown = [seen.inputs[0][at] for at in picked]
        kept = [token == originals[at] for token, at in zip(shown, picked, strict=True)]
        assert all(token == MASK or same for token, same in zip(shown, kept, strict=True))
        assert any(kept) == (spec.recipe == "released")


@PADDED
@RECIPES
@EACH
def test_a_step_equals_a_slow_loop_on_synthetic_rows(name: str, recipe: str, padded: bool) -> None:
    spec = tiny(name, recipe=recipe)
    agree(spec, synthetic(spec, lengths=LENGTHS if padded else None))


@pytest.mark.parametrize("tying", ["none", "tokens", "all"])
@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_a_step_equals_a_slow_loop_under_every_tying(name: str, tying: str) -> None:
    spec = tiny(name, {"generator.width": 1.0 if tying == "all" else 0.5, "tying": tying})
    agree(spec, synthetic(spec))


@EACH
def test_a_step_with_two_segments_equals_the_slow_loop_and_trains_both(name: str) -> None:
    """The second segment has the second embedding, in the generator as well."""
    spec = tiny(name, {"data.pairs": "next"})
    agree(spec, synthetic(spec, lengths=LENGTHS))
    objective = shaken(spec)
    objective(synthetic(spec)).total.backward()
    for encoder in {id(part): part for part in objective.modules() if isinstance(part, Encoder)}.values():
        assert (encoder.model.embeddings.token_type_embeddings.weight.grad.abs().sum(1) > 0).all()


def test_the_batches_contain_right_and_wrong_samples_and_duplicates() -> None:
    """Without these cases, the tests above could not detect that one of them is treated wrongly."""
    spec = tiny("rtd", recipe="released")
    batch = synthetic(spec)
    seen = observe(shaken(spec), batch)
    places = list(counted(seen))
    same = [seen.main_input[at] == int(batch.ids[at]) for at in places]
    assert any(same) and not all(same)
    assert len(set(places)) < len(places) < len(list(real_places(batch)))


@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_the_weight_multiplies_the_main_loss(name: str) -> None:
    spec = tiny(name, {"options.weight": 7.5})
    loss = observe(shaken(spec), synthetic(spec)).loss
    expected = loss.parts["generator_loss"] + 7.5 * loss.parts[MAIN_PART[name]]
    assert loss.total.item() == pytest.approx(expected.item(), rel=1e-6)


@EACH
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


# The inputs of masked language models


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


# The gate of All-Tokens MLM


def test_the_gate_can_have_its_own_loss() -> None:
    plain, both = tiny("all-tokens-mlm"), tiny("all-tokens-mlm", {"options.copy_loss": 3.0})
    batch = synthetic(plain)
    one, other = shaken(plain)(batch), shaken(both)(batch)
    assert one.parts["copy_loss"].item() == other.parts["copy_loss"].item()
    assert (other.total - one.total).item() == pytest.approx(3 * one.parts["copy_loss"].item(), rel=1e-5)


def test_the_mixture_can_leave_the_gate_untrained() -> None:
    """The loss is the same; the mixture then trains softmax and encoder only, and the copy loss trains the gate."""
    specs = [
        tiny("all-tokens-mlm", {"options.copy_loss": 2.0, "options.stop_gradient": stop}) for stop in (False, True)
    ]
    batch = synthetic(specs[0])
    one, other = map(shaken, specs)
    losses = one(batch), other(batch)
    assert losses[0].total.item() == losses[1].total.item()
    for objective, loss in zip((one, other), losses, strict=True):
        loss.values()["mlm_loss"].backward(retain_graph=True)
        assert objective.head.dense.weight.grad.abs().sum() > 0
        assert objective.encoder.table.weight.grad.abs().sum() > 0
    assert one.gate.out.weight.grad.abs().sum() > 0
    assert other.gate.out.weight.grad is None
    other.zero_grad()
    losses[1].total.backward()
    assert other.gate.out.weight.grad.abs().sum() > 0


def test_an_untrained_gate_is_refused() -> None:
    with pytest.raises(InputError, match=r"options\.copy_loss"):
        shaken(tiny("all-tokens-mlm", {"options.stop_gradient": True}))
