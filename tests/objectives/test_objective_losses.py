"""Each loss equals a loop over rows and positions: both recipes, with and without padding, synthetic and real rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from objective_oracle import (
    MAIN_PART,
    MASK,
    NAMES,
    WITH_GENERATOR,
    counted,
    counts_of,
    framed,
    observe,
    real_places,
    shaken,
    slow_corrupted,
    slow_metrics,
    slow_parts,
    synthetic,
    tiny,
)

from workbench.errors import InputError
from workbench.models.encoder import Encoder
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch

LENGTHS = (24, 7, 2, 15, 3, 23, 24, 24, 12, 24, 19, 4)  # a row of two tokens has nothing to pick
WEIGHT = {"rtd": 50.0, "electra-15": 50.0, "replace-mlm": 1.0, "all-tokens-mlm": 1.0, "bert-mlm": 1.0}


def check(name: str, spec: RunSpec, batch: Batch) -> None:
    objective = shaken(spec)
    seen = observe(objective, batch)
    expected = slow_parts(name, objective, batch, seen)
    assert {part: float(value.detach()) for part, value in seen.loss.parts.items()} == pytest.approx(expected, rel=2e-5)
    total = expected.get("generator_loss", 0.0) + WEIGHT[name] * expected[MAIN_PART[name]]
    assert float(seen.loss.total.detach()) == pytest.approx(total, rel=2e-5)
    metrics = slow_metrics(name, objective, batch, seen)
    assert counts_of(seen.loss.metrics, metrics) == metrics

    originals, picked = batch.ids.numpy(), set(counted(seen))
    for row, place in np.ndindex(originals.shape):
        if (row, place) not in picked:
            assert all(ids[row, place] == originals[row, place] for ids in seen.inputs)
    if name in WITH_GENERATOR:
        np.testing.assert_array_equal(seen.main_input, slow_corrupted(batch, seen))
        shown = [seen.inputs[0][at] for at in picked]
        kept = [token == originals[at] for token, at in zip(shown, picked, strict=True)]
        assert all(token == MASK or same for token, same in zip(shown, kept, strict=True))
        assert any(kept) == (spec.recipe == "released")


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "padded"])
@pytest.mark.parametrize("recipe", ["paper", "released"])
@pytest.mark.parametrize("name", NAMES)
def test_equals_a_slow_loop_on_synthetic_rows(name: str, recipe: str, lengths: tuple[int, ...] | None) -> None:
    spec = tiny(name, recipe=recipe)
    check(name, spec, synthetic(spec, lengths=lengths))


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("recipe", ["paper", "released"])
@pytest.mark.parametrize("name", NAMES)
def test_equals_a_slow_loop_on_real_text(name: str, recipe: str, padded: bool, real_rows: Any) -> None:
    sizes = {"encoder.vocab": real_rows.vocab, "data.length": 48, "encoder.positions": 64, "encoder.hidden": 64}
    spec = tiny(name, sizes, recipe=recipe, corruption__rate=0.15)
    rows = [48, 11, 47, 30, 48, 5, 22, 36] if padded else [48] * 8
    check(name, spec, framed(real_rows.words, rows, spec))


@pytest.mark.parametrize("tying", ["none", "tokens", "all"])
@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_equals_a_slow_loop_under_every_tying(name: str, tying: str) -> None:
    spec = tiny(name, {"generator.width": 1.0 if tying == "all" else 0.5, "tying": tying})
    check(name, spec, synthetic(spec))


def test_the_batches_contain_right_and_wrong_samples_and_duplicates() -> None:
    """Without these cases, the tests above could not detect that one of them is treated wrongly."""
    spec = tiny("rtd", recipe="released")
    batch = synthetic(spec)
    seen = observe(shaken(spec), batch)
    places = list(counted(seen))
    same = [seen.main_input[at] == int(batch.ids[at]) for at in places]
    assert any(same) and not all(same)
    assert len(set(places)) < len(places)
    assert len(places) < len(list(real_places(batch)))


@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_the_weight_multiplies_the_main_loss(name: str) -> None:
    spec = tiny(name, {"options.weight": 7.5})
    loss = observe(shaken(spec), synthetic(spec)).loss
    assert loss.total.item() == pytest.approx(
        (loss.parts["generator_loss"] + 7.5 * loss.parts[MAIN_PART[name]]).item(), rel=1e-6
    )


@pytest.mark.parametrize("name", NAMES)
def test_losses_of_two_segments_equal_the_slow_loop(name: str) -> None:
    """The second segment has the second embedding, in the generator as well."""
    spec = tiny(name, {"data.pairs": "next"})
    check(name, spec, synthetic(spec, lengths=LENGTHS))
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


def test_the_gate_can_have_its_own_loss() -> None:
    plain, both = tiny("all-tokens-mlm"), tiny("all-tokens-mlm", {"options.copy_loss": 3.0})
    batch = synthetic(plain)
    one, other = shaken(plain)(batch), shaken(both)(batch)
    assert torch.equal(one.parts["copy_loss"], other.parts["copy_loss"])
    assert (other.total - one.total).item() == pytest.approx(3 * one.parts["copy_loss"].item(), rel=1e-5)


def test_the_mixture_can_leave_the_gate_untrained() -> None:
    """The loss is the same; the mixture then trains softmax and encoder only, and the copy loss trains the gate."""
    kept, cut = ({"options.copy_loss": 2.0, "options.stop_gradient": stop} for stop in (False, True))
    batch = synthetic(tiny("all-tokens-mlm"))
    one, other = shaken(tiny("all-tokens-mlm", kept)), shaken(tiny("all-tokens-mlm", cut))
    losses = one(batch), other(batch)
    assert torch.equal(losses[0].total, losses[1].total)
    for objective, loss in zip((one, other), losses, strict=True):
        loss.parts["mlm_loss"].backward(retain_graph=True)
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


@pytest.mark.parametrize("name", NAMES)
def test_rows_without_anything_to_pick_cost_nothing_and_break_nothing(name: str) -> None:
    spec = tiny(name)
    objective = shaken(spec)
    loss = objective(synthetic(spec, rows=3, lengths=(2, 2, 2)))
    assert torch.isfinite(loss.total)
    if "generator_loss" in loss.parts:
        assert loss.parts["generator_loss"] == 0
    if name not in ("rtd", "all-tokens-mlm"):
        assert loss.total == 0
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


@pytest.mark.parametrize(
    ("recipe", "shares", "expected"),
    [
        ("paper", {}, (0.8, 0.1)),
        ("released", {}, (0.85, 0.0)),
        ("paper", {"corruption.mask": 1.0, "corruption.random": 0.0}, (1.0, 0.0)),
    ],
    ids=["80/10/10", "85/15/0", "100/0/0"],
)
def test_the_input_of_bert_mlm(recipe: str, shares: dict[str, float], expected: tuple[float, float]) -> None:
    """BERT MLM uses its own shares of [MASK] and random tokens, not those of the generator."""
    spec = tiny("bert-mlm", {"corruption.generator_mask": 0.3, "corruption.picks": "distinct"} | shares, recipe=recipe)
    batch = synthetic(spec, rows=400)
    seen = observe(shaken(spec), batch)
    picks, vocab = list(counted(seen)), spec.encoder.vocab
    shown = [(int(seen.main_input[at]), int(batch.ids[at])) for at in picks]
    masked = sum(token == MASK for token, _ in shown) / len(picks)
    other = sum(token not in (MASK, original) for token, original in shown) / len(picks)
    mask, random = expected
    assert masked == pytest.approx(mask + random / vocab, abs=0.03)
    assert other == pytest.approx(random * (1 - 2 / vocab), abs=0.03)
    if not random:
        assert other == 0
    if mask == 1:
        assert masked == 1
