"""Which positions and weights each loss trains: tested by gradients, for every objective and way of tying."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from objective_oracle import (
    MAIN_PART,
    NAMES,
    WITH_GENERATOR,
    build,
    counted,
    observe,
    real_places,
    shaken,
    synthetic,
    tiny,
)
from torch.nn.utils import parametrize

from workbench.errors import InputError
from workbench.models.encoder import plain_weights
from workbench.spec.presets import resolve
from workbench.training.optimizer import make_optimizer
from workbench.training.plan import count_parameters

LENGTHS = (24, 7, 2, 15, 3, 23, 24, 24, 12, 24, 19, 4)
PICKED_ONLY = ("bert-mlm", "replace-mlm", "electra-15")
EMBEDDINGS = {
    "embeddings.word_embeddings.weight",
    "embeddings.position_embeddings.weight",
    "embeddings.token_type_embeddings.weight",
    "embeddings.LayerNorm.weight",
    "embeddings.LayerNorm.bias",
}
SHARED = {"none": set(), "tokens": {"embeddings.word_embeddings.weight"}, "embeddings": EMBEDDINGS}


def positions_with_gradient(hidden: torch.Tensor) -> set[tuple[int, int]]:
    """Return the (row, position) pairs of hidden states with a gradient other than 0."""
    assert hidden.grad is not None
    return {(int(row), int(place)) for row, place in (hidden.grad != 0).any(-1).nonzero()}


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "padded"])
@pytest.mark.parametrize("recipe", ["paper", "released"])
@pytest.mark.parametrize("name", NAMES)
def test_which_positions_enter_the_main_loss(name: str, recipe: str, lengths: tuple[int, ...] | None) -> None:
    """The loss covers the picks or all tokens, but never padding or picks of weight 0."""
    spec = tiny(name, recipe=recipe)
    batch, objective = synthetic(spec, lengths=lengths), shaken(spec)
    seen = observe(objective, batch)
    if lengths is not None:
        assert (seen.weights == 0).any()
    seen.loss.parts[MAIN_PART[name]].backward()
    expected = set(counted(seen)) if name in PICKED_ONLY else set(real_places(batch))
    assert positions_with_gradient(seen.hidden[-1]) == expected
    if name in WITH_GENERATOR:
        assert seen.hidden[0].grad is None


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "padded"])
@pytest.mark.parametrize("recipe", ["paper", "released"])
@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_the_generator_is_trained_at_the_picks_only(name: str, recipe: str, lengths: tuple[int, ...] | None) -> None:
    spec = tiny(name, recipe=recipe)
    batch, objective = synthetic(spec, lengths=lengths), shaken(spec)
    seen = observe(objective, batch)
    seen.loss.parts["generator_loss"].backward()
    assert positions_with_gradient(seen.hidden[0]) == set(counted(seen))
    assert seen.hidden[1].grad is None


@pytest.mark.parametrize("recipe", ["paper", "released"])
def test_the_weight_of_a_position(recipe: str) -> None:
    """Every token, or every pick, has the same weight in the mean, as the gradient of a bias shows."""
    spec = tiny("rtd", recipe=recipe)
    batch, objective = synthetic(spec, lengths=LENGTHS), build(spec)
    with torch.no_grad():
        objective.head.out.weight.zero_()
        objective.generator.head.norm.weight.zero_()
    seen = observe(objective, batch)
    grads = torch.autograd.grad(seen.loss.parts["discriminator_loss"], [objective.head.out.bias], retain_graph=True)
    real = list(real_places(batch))
    fakes = sum(seen.main_input[at] != int(batch.ids[at]) for at in real)
    assert grads[0].item() == pytest.approx(0.5 - fakes / len(real), abs=1e-6)

    (grad,) = torch.autograd.grad(seen.loss.parts["generator_loss"], [objective.generator.head.bias])
    picks, vocab = list(counted(seen)), spec.encoder.vocab
    targets = np.bincount([int(batch.ids[at]) for at in picks], minlength=vocab) / len(picks)
    np.testing.assert_allclose(grad.numpy(), 1 / vocab - targets, atol=1e-6)


def tied(tying: str, **keys: Any) -> Any:
    spec = tiny("rtd", {"tying": tying, "generator.width": 1.0 if tying == "all" else 0.5, **keys})
    return shaken(spec), synthetic(spec)


def split(objective: Any) -> tuple[set[Any], set[Any], set[Any]]:
    """Return the parameters of the generator only, of the discriminator only, and of both."""
    fooling = set(objective.generator.parameters())
    telling = set(objective.encoder.parameters()) | set(objective.head.parameters())
    assert fooling | telling == set(objective.parameters())
    return fooling - telling, telling - fooling, fooling & telling


def got(parameters: set[Any]) -> set[bool]:
    return {p.grad is not None and bool((p.grad != 0).any()) for p in parameters}


@pytest.mark.parametrize("head", ["linear", "dense"])
@pytest.mark.parametrize("tying", ["none", "tokens", "embeddings", "all", "gdes"])
def test_the_discriminators_loss_trains_its_own_and_shared_weights_only(tying: str, head: str) -> None:
    objective, batch = tied(tying, head=head)
    generator, discriminator, both = split(objective)
    objective(batch).parts["discriminator_loss"].backward()
    assert {p.grad for p in generator} == {None}
    assert got(discriminator) == {True}
    assert got(both) == (set() if tying in ("none", "gdes") else {True})


@pytest.mark.parametrize("tying", ["none", "tokens", "embeddings", "all", "gdes"])
def test_the_generators_loss_trains_its_own_and_shared_weights_only(tying: str) -> None:
    objective, batch = tied(tying)
    generator, discriminator, both = split(objective)
    objective(batch).parts["generator_loss"].backward()
    assert got(generator) == {True}
    assert {p.grad for p in discriminator} == {None}
    assert got(both) == (set() if tying in ("none", "gdes") else {True})


def test_disentangled_tables_are_trained_by_one_loss_each() -> None:
    """The residual has the same gradient as a table that the discriminator would not share."""
    objective, batch = tied("gdes")
    shared, residual = objective.generator.body.table.weight, objective.encoder.table.parametrizations.weight.original
    loss = objective(batch)
    parts = [loss.parts["generator_loss"], loss.parts["discriminator_loss"]]
    at_shared, at_residual = (
        [torch.autograd.grad(part, table, retain_graph=True, allow_unused=True)[0] for part in parts]
        for table in (shared, residual)
    )
    assert at_shared[0].any() and at_shared[1] is None
    assert at_residual[0] is None and at_residual[1].any()

    table = objective.encoder.table.weight.detach()
    parametrize.remove_parametrizations(objective.encoder.table, "weight")
    torch.testing.assert_close(objective.encoder.table.weight, table, rtol=0, atol=0)
    (own,) = torch.autograd.grad(objective(batch).parts["discriminator_loss"], objective.encoder.table.weight)
    torch.testing.assert_close(at_residual[1], own)


@pytest.mark.parametrize("name", ["rtd", "all-tokens-mlm"])
def test_a_step_moves_the_disentangled_sum(name: str) -> None:
    """A step moves E_D by the steps of both tables; before the first step, E_D is the table of an untied encoder."""
    spec = tiny(name, {"tying": "gdes"})
    objective, plain = build(spec), build(tiny(name, {"tying": "none"}))
    start = objective.encoder.table.weight.detach().clone()
    assert torch.equal(start, plain.encoder.table.weight)
    shared, residual = objective.generator.body.table.weight, objective.encoder.table.parametrizations.weight.original
    assert torch.equal(shared, start) and not residual.any()
    optimizer = make_optimizer(objective, spec.optim)
    objective(synthetic(spec)).total.backward()
    optimizer.step()
    moved = objective.encoder.table.weight - start
    assert (shared != start).any() and residual.any()
    torch.testing.assert_close(moved, (shared - start) + residual, rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", ["electra", "albert", "bert"])
def test_a_disentangled_encoder_is_saved_as_one_table(family: str, tmp_path: Path) -> None:
    from transformers import AutoModel

    embedding = {"encoder.embedding": None, "generator.width": 1.0} if family == "bert" else {}
    spec = tiny("rtd", {"tying": "gdes", "encoder.family": family, **embedding})
    objective = shaken(spec).eval()
    batch = synthetic(spec)
    objective.encoder.save(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path).eval()
    assert not [name for name in loaded.state_dict() if "parametrizations" in name]
    torch.testing.assert_close(loaded(batch.ids).last_hidden_state, objective.encoder(batch.ids), rtol=1e-5, atol=1e-5)
    assert torch.equal(loaded.get_input_embeddings().weight, objective.encoder.table.weight)
    assert objective.encoder.table.parametrizations.weight.original.requires_grad  # it can still be trained


def test_a_residual_is_decayed_like_any_table_and_counted_once() -> None:
    spec = tiny("rtd", {"tying": "gdes"})
    objective = build(spec)
    decayed, plain = (group["params"] for group in make_optimizer(objective, spec.optim).param_groups)
    residual = objective.encoder.table.parametrizations.weight.original
    assert any(p is residual for p in decayed) and not any(p is residual for p in plain)
    tokens, parts = count_parameters(tiny("rtd", {"tying": "tokens"})), count_parameters(spec)
    assert parts["encoder"] == tokens["encoder"]
    assert parts["generator"] == tokens["generator"] + 40 * 16
    assert parts["total"] == tokens["total"] + 40 * 16 == sum(p.numel() for p in objective.parameters())


@pytest.mark.parametrize("tying", ["tokens", "embeddings", "all"])
def test_shared_tables_get_the_sum_of_both_gradients(tying: str) -> None:
    objective, batch = tied(tying)
    table, loss = objective.encoder.table.weight, objective(batch)
    one, other, total = (
        torch.autograd.grad(part, table, retain_graph=True)[0]
        for part in (loss.parts["generator_loss"], loss.parts["discriminator_loss"], loss.total)
    )
    torch.testing.assert_close(total, one + 50 * other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["electra", "albert"])
@pytest.mark.parametrize("tying", ["none", "tokens", "embeddings"])
def test_which_weights_are_shared(tying: str, family: str) -> None:
    objective = build(tiny("rtd", {"tying": tying, "encoder.family": family}))
    main = dict(objective.encoder.model.named_parameters())
    small = dict(objective.generator.body.model.named_parameters())
    assert {name for name in main if name in small and main[name] is small[name]} == SHARED[tying]
    assert len(set(main.values()) & set(small.values())) == len(SHARED[tying])  # nothing else is shared
    assert objective.generator.head.table is objective.generator.body.table
    own = set(objective.generator.head.parameters()) - {objective.generator.head.table.weight}
    assert len(own) == 5  # dense and norm with their biases, and the output bias
    assert own.isdisjoint(main.values())
    width = 16 if tying == "none" else objective.encoder.spec.embedding_width
    assert objective.generator.body.table.weight.shape == (40, width)


def test_untied_embeddings_have_the_generators_own_width_and_no_projection() -> None:
    own = build(tiny("rtd", {"tying": "none", "encoder.hidden": 64})).generator.body
    shared = build(tiny("rtd", {"encoder.hidden": 64})).generator.body
    assert own.table.embedding_dim == 32 and not hasattr(own.model, "embeddings_project")
    assert shared.table.embedding_dim == 16 and shared.model.embeddings_project.weight.shape == (32, 16)


def test_all_tied_is_one_encoder_with_two_heads() -> None:
    objective = build(tiny("rtd", {"tying": "all", "generator.width": 1.0}))
    assert objective.generator.body is objective.encoder
    assert set(objective.generator.head.parameters()) & set(objective.head.parameters()) == set()


@pytest.mark.parametrize("name", ["replace-mlm", "all-tokens-mlm"])
def test_both_mlm_heads_share_the_table_alone(name: str) -> None:
    objective = build(tiny(name))
    common = set(objective.head.parameters()) & set(objective.generator.head.parameters())
    assert common == {objective.encoder.table.weight}


def test_equal_seeds_start_from_equal_encoders_whatever_the_objective_and_the_tying() -> None:
    first = build(tiny("bert-mlm")).encoder.state_dict()
    for name in NAMES:
        for tying in ("none", "embeddings", "gdes"):
            encoder = build(tiny(name, {"tying": tying})).encoder
            weights = plain_weights(encoder)
            assert all(torch.equal(weights[key], first[key]) for key in first)
    other = build(tiny("bert-mlm", seed=1)).encoder.state_dict()
    assert not torch.equal(
        other["model.embeddings.word_embeddings.weight"], first["model.embeddings.word_embeddings.weight"]
    )


def test_building_keeps_the_random_state_of_torch() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    build(tiny("rtd"))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("scale", "main", "head", "generator"),
    [
        ("small", 13_483_008, 66_049, 647_162),
        ("base", 108_891_648, 591_361, 9_903_418),
        ("large", 334_092_288, 1_050_625, 19_512_378),
    ],
)
def test_parameters_of_the_papers_sizes(scale: str, main: int, head: int, generator: int) -> None:
    spec = resolve(scale, {"recipe": "released"})
    parts = count_parameters(spec)
    assert (parts["encoder"], parts["head"], parts["generator"]) == (main, head, generator)
    assert parts["total"] == main + head + generator
    linear = count_parameters(spec.changed({"head": "linear"}))
    assert linear["head"] == spec.encoder.hidden + 1


@pytest.mark.parametrize(
    ("family", "keys", "problem"),
    [
        ("bert", {"tying": "tokens"}, "no projection"),
        ("bert", {"encoder.embedding": 8}, r"encoder\.embedding=8 must equal"),
        ("deberta-v2", {"tying": "embeddings"}, "set tying=tokens"),
        ("berd", {}, "did you mean 'bert'"),
    ],
)
def test_families_that_cannot_share_these_tables_are_refused(family: str, keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        build(tiny("rtd", {"encoder.family": family, "encoder.embedding": None} | keys))
