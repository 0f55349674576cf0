"""Which positions and weights each loss trains: tested by gradients, for every objective and way of tying."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from objective_oracle import (
    NAMES,
    build,
    shaken,
    synthetic,
    tiny,
)
from torch.nn.utils import parametrize

from workbench.models.encoder import plain_weights
from workbench.spec.presets import resolve
from workbench.training.optimizer import make_optimizer
from workbench.training.plan import count_parameters


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


@pytest.mark.parametrize("tying", ["none", "tokens", "embeddings", "all", "gdes"])
@pytest.mark.parametrize("part", ["generator_loss", "discriminator_loss"])
def test_a_loss_trains_its_own_and_shared_weights_only(part: str, tying: str) -> None:
    objective, batch = tied(tying, head="dense")
    generator, discriminator, both = split(objective)
    own, other = (generator, discriminator) if part == "generator_loss" else (discriminator, generator)
    objective(batch).parts[part].backward()
    assert got(own) == {True}
    assert {p.grad for p in other} == {None}
    assert got(both) == (set() if tying in ("none", "gdes") else {True})


def test_disentangled_tables_are_trained_by_one_loss_each() -> None:
    """The residual has the same gradient as a table that the discriminator would not share."""
    objective, batch = tied("gdes")
    shared, residual = objective.generator.body.table.weight, objective.encoder.table.parametrizations.weight.original
    loss = objective(batch)
    parts = [loss.values()["generator_loss"], loss.values()["discriminator_loss"]]
    at_shared, at_residual = (
        [torch.autograd.grad(part, table, retain_graph=True, allow_unused=True)[0] for part in parts]
        for table in (shared, residual)
    )
    assert at_shared[0].any() and at_shared[1] is None
    assert at_residual[0] is None and at_residual[1].any()

    table = objective.encoder.table.weight.detach()
    parametrize.remove_parametrizations(objective.encoder.table, "weight")
    torch.testing.assert_close(objective.encoder.table.weight, table, rtol=0, atol=0)
    (own,) = torch.autograd.grad(objective(batch).values()["discriminator_loss"], objective.encoder.table.weight)
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
