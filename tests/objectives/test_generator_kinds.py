"""Generators without weights, and the metrics that show whether a generator or discriminator has collapsed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from objective_oracle import WITH_GENERATOR, build, observe, shaken, synthetic, tiny
from torch.utils.flop_counter import FlopCounterMode

from workbench import objectives
from workbench.errors import InputError
from workbench.models.corruption import Generator
from workbench.models.encoder import build_encoder
from workbench.models.ngram_generators import count_pairs, count_words
from workbench.rng import uniform
from workbench.tensors import Batch, StepLoss
from workbench.training.loop import plainly
from workbench.training.optimizer import make_optimizer
from workbench.training.plan import plan

VOCAB = 40
COUNTS = np.random.default_rng(0).integers(0, 60, VOCAB)
KINDS = ("unigram", "uniform")


def fixed(objective: str, kind: str, keys: dict[str, Any] | None = None) -> tuple[Any, Batch]:
    spec = tiny(objective, {"generator.kind": kind, **(keys or {})})
    model = shaken(spec)
    count_words(model, lambda: COUNTS)
    count_pairs(model, lambda: (np.arange(VOCAB**2, dtype=np.int64), np.arange(VOCAB**2, dtype=np.int64) % 7))
    return model, synthetic(spec)


@pytest.mark.parametrize("kind", [*KINDS, "ngram"])
@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_they_work_with_every_objective_at_no_cost(name: str, kind: str) -> None:
    """Samples occur only at the picks, the generator is not trained, and the cost is that of the main model."""
    model, batch = fixed(name, kind, {"encoder.attention": "eager"})
    spec = tiny(name, {"generator.kind": kind, "encoder.attention": "eager"})
    with FlopCounterMode(display=False) as counter:
        loss = plainly(model)(batch)  # otherwise the forward pass contains part of the backward pass
    assert counter.get_total_flops() == len(batch.ids) * objectives.load(spec).cost(spec).matmul
    assert plan(spec).parameters["generator"] == 0 == sum(p.numel() for p in model.generator.parameters())
    assert loss.metrics.keys() == shaken(tiny(name))(batch).metrics.keys()
    assert loss.parts.keys() == shaken(tiny(name))(batch).parts.keys()
    loss.total.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_replaced_tokens_are_the_samples() -> None:
    model, batch = fixed("rtd", "unigram")
    seen = observe(model, batch)
    targets = batch.ids.gather(1, torch.tensor(seen.positions))
    draws = uniform(batch.keys, "sample", targets.shape[1])
    drawn = model.generator.words(draws, targets, torch.tensor(seen.weights)).samples
    at_picks = np.take_along_axis(seen.main_input, seen.positions, 1)
    assert (at_picks == drawn.numpy()).all()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [*KINDS, "ngram"])
def test_one_graph_without_breaks(kind: str) -> None:
    torch._dynamo.reset()
    model, batch = fixed("rtd", kind)
    found: StepLoss = torch.compile(model, backend="eager", fullgraph=True)(batch)
    torch.testing.assert_close(found.values(), model(batch).values(), rtol=1e-5, atol=1e-5)
    torch._dynamo.reset()


def test_earlier_runs_without_a_kind_keep_their_ids() -> None:
    spec = tiny("rtd")
    assert "kind" not in spec.identity()["generator"]
    cheap = spec.changed({"generator.kind": "unigram"})
    assert cheap.name != spec.name
    assert cheap.name == cheap.changed({"generator.width": 1.0}).name  # such a generator has no width
    assert cheap.name != cheap.changed({"generator.kind": "uniform"}).name


def test_tying_to_a_generator_without_weights_is_refused() -> None:
    with pytest.raises(InputError, match="which has no weights"):
        tiny("rtd", {"generator.kind": "unigram", "tying": "all"})


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_entropy_is_estimated_from_samples(temperature: float) -> None:
    """The mean of -log p over many samples agrees with the sum over the vocabulary, for the same logits."""
    spec = tiny("rtd", {"generator.temperature": temperature, "encoder.dropout": 0.0})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        generator = Generator(build_encoder(spec), spec)
        logits = torch.randn(VOCAB) * 2
    with torch.no_grad():
        generator.head.table.weight.zero_()
        generator.head.bias.copy_(logits)
    share = (logits / temperature).softmax(-1)
    exact = -(share * share.log()).sum(-1).mean().item()
    hits, among = generator(synthetic(spec, rows=3000)).metrics["generator_entropy"]
    assert (hits / among).item() == pytest.approx(exact, abs=0.05)


def test_a_generator_with_one_certain_token_has_no_entropy() -> None:
    spec = tiny("rtd")
    generator = Generator(build_encoder(spec), spec)
    with torch.no_grad():
        generator.head.bias[11] = 1e4
    hits, among = generator(synthetic(spec)).metrics["generator_entropy"]
    assert among > 0 and hits == 0


@pytest.mark.parametrize(("bias", "rate"), [(-1e4, 0.0), (1e4, 1.0)])
def test_a_discriminator_with_one_constant_answer_is_recognised(bias: float, rate: float) -> None:
    spec = tiny("rtd")
    objective = build(spec)
    with torch.no_grad():
        objective.head.out.bias.fill_(bias)
    hits, among = objective(synthetic(spec)).metrics["discriminator_positive_rate"]
    assert (hits / among).item() == rate


def test_an_optimizer_takes_a_model_without_a_generator() -> None:
    model, batch = fixed("rtd", "unigram")
    before = model.generator.words.log_share.clone()
    optimizer = make_optimizer(model, tiny("rtd").optim)
    model(batch).total.backward()
    optimizer.step()
    assert torch.equal(before, model.generator.words.log_share)
