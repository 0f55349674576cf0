"""Training steps against a loop of their own: averaged, clipped, with dropout of their own, and none left out."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from workbench import objectives
from workbench.bench.turns import made_up
from workbench.data.corpus import Corpus, corpus_of
from workbench.rng import row_keys
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunDir, RunStore
from workbench.tensors import Batch, Mean, StepLoss
from workbench.training.loop import build, train
from workbench.training.plan import Plan, plan
from workbench.training.steps import Hollow, gradients

TINY = {
    "objective": "bert-mlm", "encoder.hidden": 32, "encoder.layers": 1, "encoder.heads": 2, "encoder.vocab": 60,
    "encoder.init": 0.05, "data.length": 16, "batch.size": 8, "budget.steps": 6, "optim.lr": 1e-2,
}  # fmt: skip


def begun(folder: Path, **keys: Any) -> tuple[RunDir, RunSpec, Plan, Corpus]:
    """A run of six steps on made-up text that has not been trained yet."""
    given = {name.replace("__", "."): value for name, value in keys.items()}
    spec = objectives.with_options(resolve("nano", TINY | given))
    prepared = made_up(folder / "data", spec, tokens=5000)
    spec = spec.changed({"data.special": prepared.special.model_dump()})
    run = RunStore(folder / "runs").open(BoundRun(spec))
    return run, spec, plan(spec), corpus_of(prepared, spec)


def trained(
    folder: tuple[RunDir, RunSpec, Plan, Corpus], micro: int | None = None, save_every: int = 2
) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Weights and rows of metrics after training goes on to the end of its plan."""
    run, spec, planned, corpus = folder
    host = Host(device="cpu", threads=1, precision="fp32", micro_batch=micro, save_every=save_every)
    with run.lease():
        model = train(run, spec, planned, corpus, host)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    return weights, [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


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
    given = begun(tmp_path, optim__eps=0.1, optim__clip=clip)
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


def dropped(spec: RunSpec, step: int, micro: int) -> tuple[list[Tensor], float]:
    """What dropout kept in each micro-batch of a step, and the gradient of the whole step."""
    model = Dropped()
    hollow, corpus = Hollow(model), cast(Corpus, Same())
    gradients(model, corpus, spec, step, micro, torch.device("cpu"), contextlib.nullcontext(), hollow=hollow)
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


XLNET = {"objective": "permutation-lm", "encoder__family": "xlnet", "encoder__attention_dropout": 0.1}


@pytest.mark.parametrize(("kept", "more"), [
    (3, {}), (5, {}), (3, {"objective": "bert"}), (5, {"objective": "bert", "data__copies": 2}),
    (3, {"objective": "permutation-lm"}), (3, XLNET),
], ids=str)  # fmt: skip
def test_a_resumed_run_carries_out_every_step_once(tmp_path: Path, kept: int, more: dict[str, Any]) -> None:
    """Killed after the checkpoint of step `kept`: the same rows of metrics and the same weights, bit for bit."""
    given = begun(tmp_path, encoder__dropout=0.1, **more)
    whole, rows = trained(given, save_every=kept)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    shutil.rmtree(given[0].path / "checkpoints" / "step-00000006")
    assert (given[0].path / "checkpoints" / f"step-{kept:08d}").is_dir()
    weights, again = trained(given)
    assert largest_gap(whole, weights) == 0
    computed = ("step", "tokens", "loss", "gradient_norm", "learning_rate")
    assert [[row[key] for key in computed] for row in again] == [[row[key] for key in computed] for row in rows]


def test_a_resumed_run_keeps_the_generators_own_rate(tmp_path: Path) -> None:
    """It follows the same schedule, is logged at every step, and is back after a stop."""
    given = begun(tmp_path, objective="rtd", optim__generator_lr=4e-2, schedule__warmup=2)
    whole, rows = trained(given, save_every=3)
    assert [row["generator_learning_rate"] for row in rows] == pytest.approx([4 * row["learning_rate"] for row in rows])
    assert max(row["generator_learning_rate"] for row in rows) == pytest.approx(4e-2)
    shutil.rmtree(given[0].path / "checkpoints" / "step-00000006")
    weights, again = trained(given)
    assert largest_gap(whole, weights) == 0
    assert [row["generator_learning_rate"] for row in again] == [row["generator_learning_rate"] for row in rows]
