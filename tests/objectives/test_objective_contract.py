"""Properties that every objective in the registry must have; a new file in the folder is tested as well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from objective_oracle import build, observe, shaken, synthetic, tiny
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from workbench import objectives
from workbench.models import losses
from workbench.models.encoder import seeded
from workbench.models.heads import BinaryHead, MlmHead
from workbench.spec.parts import CONVENTIONS
from workbench.tensors import Batch, StepLoss
from workbench.training.loop import plainly

REGISTRY = objectives.names()
UNCORRUPTED = ("causal-lm", "permutation-lm")
CLOSED = {"options.copy_loss": 1.0, "options.stop_gradient": True}


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled_losses(objective: Any, batches: list[Batch]) -> list[StepLoss]:
    forward = torch.compile(objective, backend="eager", fullgraph=True)
    return [forward(batch) for batch in batches]


@pytest.mark.filterwarnings("ignore")  # warnings of torch's compiler
@pytest.mark.parametrize(
    ("name", "recipe", "tying"),
    [
        *((name, "paper", "embeddings") for name in REGISTRY),
        ("rtd", "released", "embeddings"),
        ("rtd", "paper", "gdes"),
    ],
)
def test_one_graph_without_breaks(name: str, recipe: str, tying: str, fresh_compiler: None) -> None:
    """The second batch has other keys, and must not reuse the random numbers of the first."""
    spec = tiny(name, {"encoder.layers": 1, "tying": tying}, recipe=recipe)
    objective = shaken(spec)
    batches = [synthetic(spec, seed=seed) for seed in (0, 1)]
    expected = [objective(batch) for batch in batches]
    with torch._dynamo.config.patch(error_on_recompile=True):
        found = compiled_losses(objective, batches)
    for one, other in zip(expected, found, strict=True):
        assert one.parts.keys() == other.parts.keys() and one.metrics.keys() == other.metrics.keys()
        torch.testing.assert_close(other.values(), one.values(), rtol=1e-5, atol=1e-5)
        assert torch.equal(other.denominators("cpu"), one.denominators("cpu"))
        torch.testing.assert_close(other.metrics, one.metrics, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_the_likelihood_in_pieces_is_one_graph_too(fresh_compiler: None, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny("all-tokens-mlm", {"encoder.layers": 1})
    objective, batch = shaken(spec), synthetic(spec)
    expected = objective(batch).values()
    monkeypatch.setattr(losses, "CHUNK", 40 * 100)
    (found,) = compiled_losses(objective, [batch])
    torch.testing.assert_close(found.values(), expected, rtol=1e-5, atol=1e-5)
    found.total.backward()


@pytest.mark.parametrize("tying", ["none", "tokens", "embeddings", "all", "gdes"])
@pytest.mark.parametrize("head", ["linear", "dense"])
@pytest.mark.parametrize("name", REGISTRY)
def test_every_weight_is_trained(name: str, head: str, tying: str) -> None:
    keys = {"head": head, "tying": tying, "generator.width": 1.0 if tying == "all" else 0.5}
    objective = shaken(tiny(name, keys))
    objective(synthetic(tiny(name))).total.backward()
    idle = [n for n, p in objective.named_parameters() if p.grad is None or not bool((p.grad != 0).any())]
    assert idle == []


SIZES = {
    "wide": {
        "encoder.hidden": 48, "encoder.layers": 3, "encoder.heads": 3, "encoder.ffn": 80, "encoder.embedding": None,
        "encoder.vocab": 70, "data.length": 17, "generator.width": 2 / 3, "generator.depth": 0.34,
    },
    "narrow": {
        "encoder.hidden": 32, "encoder.layers": 2, "encoder.heads": 4, "encoder.embedding": 8,
        "encoder.vocab": 50, "data.length": 12, "generator.width": 0.25, "corruption.rate": 0.4,
    },
}  # fmt: skip


@pytest.mark.parametrize("tying", ["none", "embeddings", "all", "gdes"])
@pytest.mark.parametrize("recipe", ["paper", "released"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("name", REGISTRY)
def test_matmul_cost_agrees_with_the_counter_of_torch(
    name: str, sizes: dict[str, Any], recipe: str, tying: str
) -> None:
    """The forward pass costs `matmul` once, and a step three times; the plain computation keeps the two passes apart.

    Attention is eager, since torch's counter does not count sdpa on CPUs.
    """
    keys = sizes | {"encoder.attention": "eager", "tying": tying}
    if tying == "all":
        keys |= {"generator.width": 1.0, "generator.depth": 1.0}
    spec = tiny(name, keys, recipe=recipe)
    batch, cost = synthetic(spec, rows=3), objectives.load(spec).cost(spec)
    for plain in (True, False):
        objective = plainly(build(spec)) if plain else build(spec)
        whole, forward = FlopCounterMode(display=False), FlopCounterMode(display=False)
        with whole:
            with forward:
                loss = objective(batch)
            loss.total.backward()
        assert whole.get_total_flops() == 3 * cost.train("matmul")
        assert forward.get_total_flops() == 3 * cost.matmul or not plain
    assert all(cost.train(convention) > 0 for convention in CONVENTIONS)


@pytest.mark.parametrize("recipe", ["paper", "released"])
@pytest.mark.parametrize("name", REGISTRY)
def test_padding_changes_nothing(name: str, recipe: str) -> None:
    """Rows of 16 with and without 8 positions of padding have the same picks, samples, losses, metrics and gradients.

    Longer rows have more picks; those beyond the number for 16 tokens have weight 0. At a mask rate of a quarter both
    ways of picking take four, and the limit of the released one, which depends on the longest row, has no effect.
    """
    short = tiny(name, {"data.length": 16, "corruption.rate": 0.25}, recipe=recipe)
    long = short.changed({"data.length": 24})
    batch = synthetic(short, rows=10)
    assert batch.attention is None
    attention = torch.zeros(10, 24, dtype=torch.bool)
    attention[:, :16] = True
    wide = {"ids": torch.nn.functional.pad(batch.ids, (0, 8), value=short.data.special.pad), "attention": attention}
    if batch.segments is not None:
        wide["segments"] = torch.nn.functional.pad(batch.segments, (0, 8))
    padded = replace(batch, **wide)
    one, other = shaken(short), shaken(long)
    seen, seen_padded = observe(one, batch), observe(other, padded)
    assert seen_padded.weights.shape[1] > seen.weights.shape[1] or name in UNCORRUPTED  # which pick nothing to change
    for ids, longer in zip(seen.inputs, seen_padded.inputs, strict=True):
        assert (ids == longer[:, :16]).all() and (longer[:, 16:] == short.data.special.pad).all()
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(seen.loss.values(), seen_padded.loss.values(), **close)
    torch.testing.assert_close(seen.loss.metrics, seen_padded.loss.metrics, **close)
    seen.loss.total.backward()
    seen_padded.loss.total.backward()
    for (_, mine), (_, theirs) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", REGISTRY)
def test_the_result_of_a_step(name: str) -> None:
    """The losses are finite scalars; metrics are detached ratios whose numerators do not exceed the denominators."""
    spec = tiny(name)
    loss = shaken(spec)(synthetic(spec))
    assert loss.parts and all(part.shape == () and torch.isfinite(part) for part in loss.values().values())
    assert loss.values()["loss"].requires_grad
    assert {"mask_rate", "replaced_rate"} <= loss.metrics.keys() or name in UNCORRUPTED
    for kind, (hits, among) in loss.metrics.items():
        assert hits.shape == among.shape == () and not hits.requires_grad
        assert hits >= 0 and (hits <= among or kind == "generator_entropy")  # an entropy is in nats


EXPECTED = {
    "rtd": {"generator_accuracy"} | {f"discriminator_{kind}" for kind in ("accuracy", "precision", "recall", "auc")},
    "electra-15": {"generator_accuracy"} | {f"discriminator_{k}" for k in ("accuracy", "precision", "recall", "auc")},
    "replace-mlm": {"generator_accuracy", "mlm_accuracy"},
    "all-tokens-mlm": {"generator_accuracy", "mlm_accuracy", "copy_accuracy"},
    "bert-mlm": {"mlm_accuracy"},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_metrics_have_the_common_names(name: str) -> None:
    spec = tiny(name)
    assert EXPECTED[name] <= shaken(spec)(synthetic(spec)).metrics.keys()


@pytest.mark.parametrize("name", REGISTRY)
def test_half_precision_agrees_roughly(name: str) -> None:
    spec = tiny(name)
    objective, batch = shaken(spec, size=0.1), synthetic(spec)
    exact = objective(batch).values()["loss"]
    with torch.autocast("cpu", torch.bfloat16):
        rough = objective(batch).values()["loss"]
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, rtol=0.1, atol=0.0)
    rough.backward()
    assert all(torch.isfinite(p.grad).all() for p in objective.parameters())


@pytest.mark.parametrize("name", REGISTRY)
def test_a_step_of_training_lowers_the_loss_of_its_batch(name: str) -> None:
    spec = tiny(name, CLOSED if name == "all-tokens-mlm" else None)
    objective, batch = build(spec), synthetic(spec)
    optimizer = torch.optim.AdamW(objective.parameters(), lr=3e-3)
    totals = []
    for _ in range(15):
        loss = objective(batch).total
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        totals.append(loss.item())
    assert totals[-1] < totals[0]


DETECTORS, WORDS = ("adversarial", "electra-15", "rtd"), ("all-tokens-mlm", "bert-mlm", "replace-mlm")


@pytest.mark.parametrize("recipe", ["paper", "released"])
@pytest.mark.parametrize("name", [*DETECTORS, *WORDS])
def test_initial_weights_depend_on_the_seed_and_the_name_of_their_part(name: str, recipe: str) -> None:
    """Equal seeds thus have equal initial weights whatever else an objective draws, and old runs can be repeated."""
    spec = tiny(name, {"seed": 3}, recipe=recipe)
    made = build(spec)
    fresh: dict[str, nn.Module] = {}
    with seeded(3, "init", "head"):
        fresh["head"] = (
            BinaryHead(made.encoder, spec.head) if name in DETECTORS else MlmHead(made.encoder, made.encoder.table)
        )
        if name == "all-tokens-mlm":
            fresh["gate"] = BinaryHead(made.encoder, "linear")
    if name == "adversarial":
        with seeded(3, "init", "baseline"):
            fresh["baseline"] = BinaryHead(made.generator.body, "linear")
    if name != "bert-mlm":
        with seeded(3, "init", "generator-head"):
            fresh["generator.head"] = MlmHead(made.generator.body, made.generator.body.table)
    for part, expected in fresh.items():
        found, weights = made.get_submodule(part).state_dict(), expected.state_dict()
        assert found.keys() == weights.keys()
        assert all(torch.equal(found[key], weight) for key, weight in weights.items()), part
