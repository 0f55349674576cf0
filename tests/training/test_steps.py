"""Training steps against a loop of their own: averaged, clipped, none left out, the same in any micro-batches."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from objective_oracle import LENGTHS, shaken, synthetic, tiny
from tiny_runs import Begun, begun
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from workbench import objectives
from workbench.data.corpus import Corpus
from workbench.errors import InputError
from workbench.models import losses
from workbench.models.encoder import Encoder
from workbench.models.losses import weighted_mean
from workbench.rng import row_keys
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, Mean, StepLoss
from workbench.training.loop import build
from workbench.training.optimizer import make_optimizer
from workbench.training.plan import Plan
from workbench.training.steps import Hollow, Steps

TINY = {
    "objective": "bert-mlm", "encoder.hidden": 32, "encoder.layers": 1, "encoder.heads": 2, "encoder.vocab": 60,
    "encoder.init": 0.05, "data.length": 16, "batch.size": 8, "budget.steps": 6, "optim.lr": 1e-2,
}  # fmt: skip
CPU = torch.device("cpu")


def trained(
    job: Begun, micro: int | None = None, save_every: int = 2
) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Weights and rows of metrics after training goes on to the end of its plan."""
    model = job.train(precision="fp32", micro_batch=micro, save_every=save_every)
    return {name: p.detach().clone() for name, p in model.named_parameters()}, job.rows()


def by_hand(spec: RunSpec, planned: Plan, corpus: Corpus, clip: float) -> dict[str, Tensor]:
    """The same steps on whole batches: torch's own clipping and AdamW, its rate written out."""
    model = build(spec)
    decayed = [p for name, p in model.named_parameters() if not name.endswith("bias") and "norm" not in name.lower()]
    chosen = {id(p) for p in decayed}
    plain = [p for p in model.parameters() if id(p) not in chosen]
    groups = [{"params": decayed, "weight_decay": spec.optim.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=spec.optim.eps, fused=False)
    assert planned.warmup_steps == 0
    for step in range(planned.steps):
        for group in optimizer.param_groups:
            group["lr"] = spec.optim.lr * (planned.steps - step) / planned.steps
        model(corpus.batch(step * spec.batch.size, spec.batch.size)).total.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip or float("inf"))
        optimizer.step()
        optimizer.zero_grad()
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def largest_gap(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize("clip", [0.05, 1e6, 0.0])
def test_gradients_are_averaged_over_micro_batches_and_clipped(tmp_path: Path, clip: float) -> None:
    """A large epsilon makes Adam's step depend on the size of gradients, which is otherwise divided out."""
    given = begun(tmp_path, TINY | {"optim.eps": 0.1, "optim.clip": clip})
    _, spec, planned, corpus = given
    weights, rows = trained(given, micro=2)
    assert largest_gap(weights, by_hand(spec, planned, corpus, clip)) < 2e-6
    other = by_hand(spec, planned, corpus, 1e6 if clip == 0.05 else 0.05)
    assert largest_gap(weights, other) > 1e-4, "what is compared here depends on the clip"
    assert all(row["gradient_norm"] > 0.05 for row in rows), "the norm is told as it was before"


class Dropped(nn.Module):
    """Keeps what dropout does to a row of ones in passes with gradients.

    Its loss is linear, with a gradient of 1 in each micro-batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.seen: list[Tensor] = []

    def forward(self, batch: Batch) -> StepLoss:
        mask = F.dropout(torch.ones(200), 0.5)
        if torch.is_grad_enabled():  # a pass that only counts tokens may come before
            self.seen.append(mask)
        return StepLoss(Mean(self.weight + 1.0, len(batch.ids)), {}, {})


class Same:
    """A corpus that has the same rows everywhere, so that only the step can make a difference."""

    def batch(self, position: int, rows: int, device: Any = "cpu") -> Batch:
        return Batch(torch.zeros(rows, 4, dtype=torch.int64), row_keys(0, torch.arange(rows)))


def steps_of(spec: RunSpec, corpus: Corpus, model: nn.Module, micro: int | None = None) -> Steps:
    optimizer, host = make_optimizer(model, spec.optim), Host(device="cpu", micro_batch=micro)
    return Steps(spec, corpus, host, CPU, contextlib.nullcontext(), model, optimizer)


def dropped(spec: RunSpec, step: int, micro: int) -> tuple[list[Tensor], float]:
    """What dropout kept in each micro-batch of a step, and the gradient of the whole step."""
    model = Dropped()
    steps_of(spec, cast(Corpus, Same()), model, micro).gradients(step)
    assert model.weight.grad is not None
    return model.seen, float(model.weight.grad)


def test_dropout_is_drawn_anew_for_every_step_micro_batch_and_seed() -> None:
    spec = resolve("nano", TINY)
    masks = [mask for step in (1, 2, 3) for mask in dropped(spec, step, 4)[0]]
    masks += dropped(spec.replace(seed=1), 1, 4)[0]
    assert len(masks) == 8 and len({tuple(mask.tolist()) for mask in masks}) == 8
    torch.manual_seed(5)  # whatever was drawn before, a step draws the same again
    again = dropped(spec, 2, 4)[0]
    assert torch.equal(again[0], masks[2]) and torch.equal(again[1], masks[3])


@pytest.mark.parametrize("micro", [1, 2, 8])
def test_micro_batches_count_by_their_share_of_the_step(micro: int) -> None:
    seen, gradient = dropped(resolve("nano", TINY), 1, micro)
    assert len(seen) == 8 // micro and gradient == pytest.approx(1.0)


XLNET = {"objective": "permutation-lm", "encoder.family": "xlnet", "encoder.attention_dropout": 0.1}


@pytest.mark.parametrize(("kept", "more"), [
    (3, {}), (5, {"objective": "bert", "data.copies": 2}), (3, {"objective": "rtd", "tying": "gdes"}),
    (5, {"objective": "rtd", "tying": "all", "generator.width": 1.0}),
    (3, {"objective": "permutation-lm"}), (3, XLNET),
], ids=str)  # fmt: skip
def test_a_resumed_run_carries_out_every_step_once(tmp_path: Path, kept: int, more: dict[str, Any]) -> None:
    """Killed after the checkpoint of step `kept`: the same rows of metrics and the same weights, bit for bit."""
    given = begun(tmp_path, TINY | {"encoder.dropout": 0.1} | more)
    whole, rows = trained(given, save_every=kept)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    shutil.rmtree(given.run.path / "checkpoints" / "step-00000006")
    assert (given.run.path / "checkpoints" / f"step-{kept:08d}").is_dir()
    weights, again = trained(given)
    assert largest_gap(whole, weights) == 0
    computed = ("step", "tokens", "loss", "gradient_norm", "learning_rate")
    assert [[row[key] for key in computed] for row in again] == [[row[key] for key in computed] for row in rows]


def test_a_resumed_run_keeps_the_generators_own_rate(tmp_path: Path) -> None:
    """It follows the same schedule, is logged at every step, and is back after a stop."""
    given = begun(tmp_path, TINY | {"objective": "rtd", "optim.generator_lr": 4e-2, "schedule.warmup": 2})
    whole, rows = trained(given, save_every=3)
    assert [row["generator_learning_rate"] for row in rows] == pytest.approx([4 * row["learning_rate"] for row in rows])
    assert max(row["generator_learning_rate"] for row in rows) == pytest.approx(4e-2)
    shutil.rmtree(given.run.path / "checkpoints" / "step-00000006")
    weights, again = trained(given)
    assert largest_gap(whole, weights) == 0
    assert [row["generator_learning_rate"] for row in again] == [row["generator_learning_rate"] for row in rows]


OWN = str(Path(__file__).parents[1] / "helpers" / "users_means.py")
EVERY = pytest.mark.parametrize("name", [*objectives.names(), OWN], ids=lambda name: Path(name).stem)


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


def taken(
    spec: RunSpec, model: nn.Module, corpus: Corpus, micro: int, hollow: bool = False
) -> tuple[dict[str, float], Tensor]:
    """The losses of a step, and its gradients as one vector (n,) in fp64."""
    model.zero_grad()
    steps = steps_of(spec, corpus, model, micro)
    steps.hollow = steps.hollow if hollow else None
    sums = steps.gradients(1)
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
    whole = taken(spec, model, corpus, 12)
    for micro in (1, 4):
        agree(taken(spec, model, corpus, micro, hollow=True), whole)
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
    steps = steps_of(spec, corpus, model)
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
        taken(spec, model, corpus, 4, hollow=True)


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
    agree(taken(spec, model, corpus, 4, hollow=True), taken(spec, model, corpus, 4))


@pytest.mark.parametrize("hollow", [True, False])
def test_a_loss_over_other_tokens_in_each_call_is_refused_for_a_step_in_several_parts(hollow: bool) -> None:
    spec, _, corpus = made("bert-mlm")
    model = Drawing(by_torch=False)
    with pytest.raises(InputError, match=r"means over other tokens when the same rows are computed again"):
        taken(spec, model, corpus, 4, hollow=hollow)
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
