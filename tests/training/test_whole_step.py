"""A step has the same loss and gradients whatever its micro-batches, for every objective and for a user's own.

Rows are padded to different lengths, so that they differ in how many tokens they score.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from objective_oracle import LENGTHS, build, shaken, synthetic, tiny
from torch import Tensor, nn

from workbench import objectives
from workbench.data.corpus import Corpus
from workbench.errors import InputError
from workbench.models import losses
from workbench.models.encoder import Encoder
from workbench.models.losses import weighted_mean
from workbench.spec.host import Host
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, Mean, StepLoss
from workbench.training.optimizer import make_optimizer
from workbench.training.steps import Hollow, Steps, gradients

OWN = str(Path(__file__).parents[1] / "helpers" / "users_means.py")
EVERY = pytest.mark.parametrize("name", [*objectives.names(), OWN], ids=lambda name: Path(name).stem)
CPU = torch.device("cpu")


class Rows:
    """A corpus of the rows of one step."""

    def __init__(self, batch: Batch) -> None:
        self.whole = batch

    def batch(self, position: int, rows: int, device: Any = "cpu") -> Batch:
        kept = slice(position, position + rows)
        return Batch(**{name: tensor[kept] for name, tensor in self.whole.tensors().items()})


def made(name: str, padded: bool = True, **more: Any) -> tuple[RunSpec, Any, Corpus]:
    """A spec, its objective, and the twelve rows of a step."""
    overrides = {"batch.size": 12, "encoder.layers": 1, **more}
    if name == OWN:
        own, source = objectives.find(OWN)
        spec = objectives.with_options(tiny("rtd", overrides).replace(objective=own, source=source, options={}))
    else:
        spec = tiny(name, overrides)
    batch = synthetic(spec, rows=12, lengths=LENGTHS if padded else None)
    return spec, shaken(spec, size=0.05), cast(Corpus, Rows(batch))


def taken(spec: RunSpec, model: nn.Module, corpus: Corpus, micro: int, **more: Any) -> tuple[dict[str, float], Tensor]:
    """The losses of a step, and its gradients as one vector (n,) in fp64."""
    model.zero_grad()
    sums = gradients(model, corpus, spec, 1, micro, CPU, contextlib.nullcontext(), **more)
    return {name: float(value) for name, value in sums.values.items()}, gradient(model)


def gradient(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten().double() for p in model.parameters() if p.grad is not None])


def agree(found: tuple[dict[str, float], Tensor], expected: tuple[dict[str, float], Tensor]) -> None:
    assert found[0] == pytest.approx(expected[0], rel=1e-6)
    assert (found[1] - expected[1]).norm() < 1e-6 * expected[1].norm()


@pytest.mark.parametrize("padded", [True, False], ids=["padded", "full"])
@EVERY
def test_micro_batches_add_up_to_the_whole_step(name: str, padded: bool) -> None:
    spec, model, corpus = made(name, padded)
    hollow = Hollow(model)
    whole = taken(spec, model, corpus, 12)
    for micro in (1, 2, 4):
        agree(taken(spec, model, corpus, micro, hollow=hollow), whole)
    agree(taken(spec, model, corpus, 4), whole)  # with denominators from forward passes
    alone = model(corpus.batch(0, 12))
    alone.total.backward()
    assert whole[0] == {name: value.item() for name, value in alone.values().items()}, "bit for bit"


@pytest.mark.parametrize("pieces", [True, False])
@EVERY
def test_denominators_that_follow_from_the_rows_take_no_encoder(
    name: str, pieces: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are those of a forward pass; what depends on samples is left to one, with a warning."""
    _, model, corpus = made(name)
    if pieces:
        monkeypatch.setattr(losses, "CHUNK", 40)
    expected = model(corpus.batch(0, 12)).denominators("cpu")
    hollow = Hollow(model)
    with without_encoders(model), caplog.at_level(logging.WARNING):
        found = hollow.denominators(corpus.batch(0, 12))
    if name == OWN:
        assert found is None and hollow.objective is None
        assert "do not follow from the rows alone" in caplog.text and "they depend on weights" in caplog.text
    else:
        assert found is not None and torch.equal(found, expected) and not caplog.records
    assert not any(weight.is_meta for weight in model.parameters())


@contextlib.contextmanager
def without_encoders(model: nn.Module) -> Iterator[None]:
    """Let the encoders of a model, and all matrix products of numbers, fail in the block."""

    def fail(*_: Any) -> None:
        raise AssertionError("an encoder is computed")

    hooks = [part.register_forward_pre_hook(fail) for part in model.modules() if isinstance(part, Encoder)]
    yield
    for hook in hooks:
        hook.remove()


class Hungry(nn.Module):
    """An objective with memory for five rows."""

    def __init__(self, objective: nn.Module) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, batch: Batch) -> StepLoss:
        if len(batch.ids) > 5:
            raise RuntimeError("CUDA error: out of memory")
        return cast(StepLoss, self.objective(batch))


@pytest.mark.parametrize("name", ["bert", "albert", "causal-lm", OWN], ids=lambda name: Path(name).stem)
def test_a_step_for_which_memory_runs_out_is_the_same_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, model, corpus = made(name)
    whole = taken(spec, model, corpus, 12)
    model.zero_grad()
    optimizer = make_optimizer(model, spec.optim)
    steps = Steps(spec, corpus, Host(device="cpu"), CPU, contextlib.nullcontext(), model, optimizer)
    steps.forward = Hungry(model)
    monkeypatch.setattr(steps, "_update", lambda: torch.zeros(()))  # which keeps the gradients
    sums, _ = steps.take(1)
    assert sums.micro == steps.micro == 3
    agree(({name: float(value) for name, value in sums.values.items()}, gradient(model)), whole)


class Odd(nn.Module):
    """A weight, and losses of it that have no known denominator."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.weight = kind, nn.Parameter(torch.ones(()))

    def forward(self, batch: Batch) -> StepLoss:
        real = batch.attention
        assert real is not None
        values = self.weight * batch.keys[:, None].sign() * torch.ones(real.shape)
        mean = weighted_mean(values, real)
        loss: Any = {
            "tensor": (values * real).sum() / real.sum(),
            "product": mean * mean,
            "quotient": mean / weighted_mean(values.square(), real),
            "times a tensor": mean * real.float().mean(),
            "plus a tensor": real.float().mean() + mean,
            "a part": mean,
            "trained weights": weighted_mean(values, real * self.weight.sigmoid()),
        }[self.kind]
        return StepLoss(loss, {"odd": mean.value if self.kind == "a part" else loss})


@pytest.mark.parametrize(
    "kind", ["tensor", "product", "quotient", "times a tensor", "plus a tensor", "a part", "trained weights"]
)
def test_a_loss_without_a_denominator_is_refused_for_a_step_in_several_parts(kind: str) -> None:
    spec, _, corpus = made("bert-mlm")
    model = Odd(kind)
    values, _ = taken(spec, model, corpus, 12)
    assert values["loss"] == model(corpus.batch(0, 12)).total.item()
    which = "odd" if kind == "a part" else "loss"
    with pytest.raises(InputError, match=rf"^the loss '{which}' .*\.weighted_mean\(values, weights\)"):
        taken(spec, model, corpus, 4, hollow=Hollow(model))


class Drawing(nn.Module):
    """A mean over tokens that are drawn by torch, or that depend on how often they were drawn before."""

    def __init__(self, by_torch: bool) -> None:
        super().__init__()
        self.by_torch, self.calls, self.weight = by_torch, 0, nn.Parameter(torch.ones(()))

    def forward(self, batch: Batch) -> StepLoss:
        self.calls += 1
        positions = torch.arange(batch.ids.shape[1]).expand_as(batch.ids)
        picked = torch.rand(batch.ids.shape) < 0.3 if self.by_torch else positions < self.calls
        return StepLoss(weighted_mean(self.weight * batch.ids, picked), {})


def test_tokens_that_torch_draws_are_counted_in_the_micro_batches_that_draw_them() -> None:
    spec, _, corpus = made("bert-mlm")
    model = Drawing(by_torch=True)
    agree(taken(spec, model, corpus, 4, hollow=Hollow(model)), taken(spec, model, corpus, 4))


@pytest.mark.parametrize("hollow", [True, False])
def test_a_loss_over_other_tokens_in_each_call_is_refused_for_a_step_in_several_parts(hollow: bool) -> None:
    spec, _, corpus = made("bert-mlm")
    model = Drawing(by_torch=False)
    with pytest.raises(InputError, match=r"means over other tokens when the same rows are computed again"):
        taken(spec, model, corpus, 4, hollow=Hollow(model) if hollow else None)
    taken(spec, model, corpus, 12)


def test_a_sum_of_means_has_the_value_of_the_expression() -> None:
    one, other = (Mean(torch.tensor(value), torch.tensor(3.0)) for value in (0.3, 1.7))
    total = sum([2 * one, other / 4]) - one + 1.0 - 0.25 * other
    assert float(total) == pytest.approx(2 * 0.3 + 1.7 / 4 - 0.3 + 1 - 0.25 * 1.7)
    halves = [StepLoss(each, {"negative": 1 - each}) for each in (total, 3 * total)]
    whole = 2 * halves[0].denominators("cpu")
    together = [half.of_step(whole) for half in halves]
    assert float(sum(each["loss"] for each in together)) == pytest.approx(2 * float(total))
    assert float(sum(each["negative"] for each in together)) == pytest.approx(1 - 2 * float(total))


def test_the_copy_without_values_shares_the_buffers_and_leaves_the_model_as_it_was() -> None:
    model = build(tiny("albert"))
    hollow = Hollow(model)
    assert hollow.objective is not None
    model.pick.table[7] = False
    assert not hollow.objective.pick.table[7] and not model.encoder.hollow and not model.head.plain
    assert all(weight.is_meta for weight in hollow.objective.parameters())
