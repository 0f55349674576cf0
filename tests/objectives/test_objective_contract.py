"""Properties that every objective in the registry must have; a new file in the folder is tested as well."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from objective_oracle import NAMES, build, observe, shaken, synthetic, tiny
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from workbench import objectives
from workbench.models import losses
from workbench.models.encoder import seeded
from workbench.models.generators import count_text
from workbench.models.heads import BinaryHead, MlmHead
from workbench.rng import row_keys
from workbench.spec.parts import CONVENTIONS
from workbench.spec.presets import resolve
from workbench.tensors import Batch, StepLoss
from workbench.training.loop import plainly

REGISTRY = objectives.names()
UNCORRUPTED = ("causal-lm", "permutation-lm")


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
    ("name", "keys"),
    [
        *((name, {}) for name in REGISTRY), ("rtd", {"recipe": "released"}), ("rtd", {"tying": "gdes"}),
        *(("rtd", {"generator.kind": kind}) for kind in ("unigram", "ngram")),
    ],
    ids=str,
)  # fmt: skip
def test_one_graph_without_breaks(name: str, keys: dict[str, Any], fresh_compiler: None) -> None:
    """The second batch has other keys, and must not reuse the random numbers of the first."""
    spec = tiny(name, {"encoder.layers": 1}, **keys)
    objective = shaken(spec)
    count_text(objective, lambda: np.arange(40), lambda: (np.arange(1600), np.arange(1600) % 7))
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


WITHOUT_GENERATOR = ("albert", "bert", "bert-mlm", "causal-lm", "permutation-lm")  # nothing to tie
TYINGS = ("none", "tokens", "embeddings", "all", "gdes")


@pytest.mark.parametrize(
    ("name", "tying"),
    [(name, tying) for name in REGISTRY for tying in TYINGS if tying == "none" or name not in WITHOUT_GENERATOR],
)
def test_every_weight_is_trained(name: str, tying: str) -> None:
    keys = {"head": "dense", "tying": tying, "generator.width": 1.0 if tying == "all" else 0.5}
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


COSTS = [  # sizes, recipe and tying; every two values of sizes and recipe occur together
    ("wide", "paper", "none"), ("narrow", "released", "none"), ("narrow", "paper", "embeddings"),
    ("wide", "released", "all"), ("wide", "paper", "gdes"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "sizes", "recipe", "tying"),
    [(name, *case) for name in REGISTRY for case in COSTS if case[2] == "none" or name not in WITHOUT_GENERATOR],
)
def test_matmul_cost_agrees_with_the_counter_of_torch(name: str, sizes: str, recipe: str, tying: str) -> None:
    """The forward pass costs `matmul` once, and a step three times; the plain computation keeps the two passes apart.

    Attention is eager, since torch's counter does not count sdpa on CPUs.
    """
    keys = SIZES[sizes] | {"encoder.attention": "eager", "tying": tying}
    if tying == "all":
        keys |= {"generator.width": 1.0, "generator.depth": 1.0}
    spec = tiny(name, keys, recipe=recipe)
    batch, cost = synthetic(spec, rows=3), objectives.load(spec).cost(spec)
    for plain in (True, False) if sizes == "narrow" else (True,):
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


ALBERT = {"encoder.family": "albert"}
GPT2, XLNET = ({"encoder.family": family, "encoder.embedding": 32} for family in ("gpt2", "xlnet"))
SUCCESSORS = ("multi-word-selection", "cocolm-clm", "mc-bert")
WAYS: list[tuple[str, dict[str, Any]]] = [
    *((name, {"tying": tying}) for name in (*NAMES, *SUCCESSORS) for tying in ("none", "embeddings")),
    *((name, {"tying": "gdes"}) for name in SUCCESSORS),
    ("bert", {}), ("albert", {}), ("albert", ALBERT), ("causal-lm", {}), ("causal-lm", GPT2), ("permutation-lm", {}),
    ("permutation-lm", {"data.pairs": "next"}), ("permutation-lm", XLNET | {"encoder.dropout": 0.0}),
    ("permutation-lm", XLNET | {"encoder.dropout": 0.0, "data.pairs": "next"}),
]  # fmt: skip


@pytest.mark.parametrize("lengths", [None, (24, 9, 17, 5) * 3], ids=["full", "padded"])
@pytest.mark.parametrize(("name", "keys"), WAYS, ids=str)
def test_the_fast_computation_agrees_with_the_plain_one(
    name: str, keys: dict[str, Any], lengths: tuple[int, ...] | None
) -> None:
    """Without dropout, losses and metrics agree within 1e-5, and gradients within 1e-4 of their norm."""
    spec = tiny(name, keys)
    batch = synthetic(spec, lengths=lengths)
    fast, plain = shaken(spec, size=0.15), plainly(shaken(spec, size=0.15))
    one, other = fast(batch), plain(batch)
    torch.testing.assert_close(one.values(), other.values(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(one.metrics, other.metrics, rtol=1e-5, atol=1e-5)
    one.total.backward()
    other.total.backward()
    found, expected = (
        {key: p.grad for key, p in model.named_parameters() if p.requires_grad} for model in (fast, plain)
    )
    assert all(grad is not None and grad.any() for grad in found.values())
    whole = torch.stack([grad.norm() for grad in expected.values()]).norm()
    for key, grad in expected.items():
        assert (found[key] - grad).norm() <= 1e-4 * grad.norm() + 1e-6 * whole, key


@pytest.mark.parametrize(
    ("name", "recipe", "seed"),
    [
        ("rtd", "paper", 0), ("rtd", "released", 2), ("electra-15", "released", 0),
        ("bert-mlm", "paper", 0), ("replace-mlm", "paper", 0), ("all-tokens-mlm", "paper", 0),
    ],
)  # fmt: skip
def test_an_untrained_model_of_the_papers_size_begins_at_ln_v_for_a_token_and_ln_2_for_a_label(
    name: str, recipe: str, seed: int
) -> None:
    """For every seed; a binary head with the same bias everywhere would differ, since most tokens are originals."""
    tokens, coin = math.log(30522), math.log(2)
    spec = objectives.with_options(resolve("small", {"objective": name, "recipe": recipe, "seed": seed}))
    ids = np.random.default_rng(0).integers(1000, 30522, (4, 128))
    ids[:, 0], ids[:, -1] = spec.data.special.cls, spec.data.special.sep
    objective = build(spec).train()
    torch.manual_seed(0)
    with torch.no_grad():
        loss = objective(Batch(torch.tensor(ids), row_keys(0, torch.arange(4))))
    expected = {"mlm_loss": tokens, "discriminator_loss": coin, "generator_loss": tokens, "copy_loss": coin}
    if name == "all-tokens-mlm":  # the gate copies with probability 1/2: ln 2 on originals, ln 2 + ln V on others
        hits, among = loss.metrics["replaced_rate"]
        expected["mlm_loss"] = coin + float(hits / among) * tokens
    found = {part: float(value) for part, value in loss.parts.items()}
    assert found == pytest.approx({part: expected[part] for part in found}, rel=0.02)
    if name in ("rtd", "electra-15"):
        assert float(loss.total) == pytest.approx(44.98, rel=0.02)
