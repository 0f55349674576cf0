"""Muon and LAMB against their definitions, and the contract that they share with torch's fused AdamW."""

from __future__ import annotations

import importlib.util
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from objective_oracle import build, tiny
from tiny_runs import Begun, begun
from torch import Tensor, nn

from workbench.errors import Diverged
from workbench.models.families import PLUGS, family_of
from workbench.spec.parts import EncoderSpec, OptimSpec
from workbench.tensors import Batch, StepLoss
from workbench.training import loop
from workbench.training.optimizer import make_optimizer, matrices, set_rate

INSTALLED = importlib.util.find_spec("pytorch_optimizer") is not None
LAMB = pytest.param("lamb", marks=pytest.mark.skipif(not INSTALLED, reason="pytorch-optimizer is not installed"))
EACH = pytest.mark.parametrize("kind", ["adamw", "muon", LAMB])


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.dense = nn.Linear(4, 2)  # two rows are enough for Muon, one is not
        self.norm = nn.LayerNorm(2)
        self.out = nn.Linear(2, 1)


def stepped(spec: OptimSpec, steps: int = 6, clip: float | None = None, size: float = 1.0) -> dict[str, Tensor]:
    """The weights after some steps with gradients drawn at random, times `size`."""
    torch.manual_seed(0)
    model = Small()
    optimizer: Any = make_optimizer(model, spec)
    for step in range(1, steps + 1):
        for weight, gradient in zip(model.parameters(), gradients(step), strict=True):
            weight.grad = gradient * size
        set_rate(optimizer, spec, rate(step), step)
        optimizer.found_inf = torch.tensor(float(math.isnan(size)))
        optimizer.grad_scale = None if clip is None else torch.tensor(clip)
        optimizer.step()
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def gradients(step: int) -> list[Tensor]:
    numbers = torch.Generator().manual_seed(step)
    return [torch.randn(weight.shape, generator=numbers) for weight in Small().parameters()]


def rate(step: int) -> float:
    return 0.01 / step


@EACH
def test_settings_reach_every_group_of_every_rule(kind: str) -> None:
    spec = OptimSpec(kind=kind, lr=0.5, beta1=0.8, beta2=0.95, eps=1e-3, weight_decay=0.3)
    groups = make_optimizer(Small(), spec).param_groups
    assert {(group["lr"], group["weight_decay"], group["decayed"]) for group in groups} == {
        (0.5, 0.3, True), (0.5, 0.0, False),
    }  # fmt: skip
    assert {(group["betas"], group["eps"]) for group in groups if group["rule"] != "muon"} == {((0.8, 0.95), 1e-3)}


def test_muon_updates_matrices_and_adamw_all_else() -> None:
    """As torch's two optimizers do by themselves."""
    spec = OptimSpec(kind="muon", weight_decay=0.1, beta2=0.95)
    torch.manual_seed(0)
    model = Small()
    muon = torch.optim.Muon([model.dense.weight], weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    decayed = {"params": [model.table.weight, model.out.weight], "weight_decay": 0.1}
    plain = {"params": [model.dense.bias, *model.norm.parameters(), model.out.bias], "weight_decay": 0.0}
    adamw = torch.optim.AdamW([decayed, plain], betas=(0.9, 0.95), eps=1e-6)
    for step in range(1, 7):
        for weight, gradient in zip(model.parameters(), gradients(step), strict=True):
            weight.grad = gradient
        for optimizer in (muon, adamw):
            for group in optimizer.param_groups:
                group["lr"] = rate(step)
            optimizer.step()
    torch.testing.assert_close(stepped(spec), dict(model.named_parameters()), rtol=1e-5, atol=1e-6)


def lamb_by_hand(spec: OptimSpec) -> dict[str, Tensor]:
    """Algorithm 2 of You et al. 2020 in float64, in which the norm of the weights is not bounded."""
    torch.manual_seed(0)
    weights = {name: weight.detach().double() for name, weight in Small().named_parameters()}
    first, second = ({name: torch.zeros_like(weight) for name, weight in weights.items()} for _ in range(2))
    for step in range(1, 7):
        for (name, weight), gradient in zip(weights.items(), gradients(step), strict=True):
            spared = "norm" in name or name.endswith("bias")
            first[name] = spec.beta1 * first[name] + (1 - spec.beta1) * gradient.double()
            second[name] = spec.beta2 * second[name] + (1 - spec.beta2) * gradient.double() ** 2
            m, v = first[name], second[name]
            if spec.bias_correction:
                m, v = m / (1 - spec.beta1**step), v / (1 - spec.beta2**step)
            update = m / (v.sqrt() + spec.eps) + (0 if spared else spec.weight_decay) * weight
            trust = 1.0 if spared else float(weight.norm() / update.norm())
            weights[name] = weight - rate(step) * trust * update
    return weights


@pytest.mark.skipif(not INSTALLED, reason="pytorch-optimizer is not installed")
@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_lamb_by_hand(corrected: bool, decay: float) -> None:
    spec = OptimSpec(kind="lamb", bias_correction=corrected, weight_decay=decay, eps=1e-3, beta1=0.8, beta2=0.95)
    for name, expected in lamb_by_hand(spec).items():
        torch.testing.assert_close(stepped(spec)[name].double(), expected, rtol=2e-3, atol=1e-5)


@pytest.mark.skipif(not INSTALLED, reason="pytorch-optimizer is not installed")
def test_the_norm_of_large_weights_is_not_bounded() -> None:
    model = Small()
    with torch.no_grad():
        model.dense.weight.mul_(1000)
    before = model.dense.weight.detach().clone()
    spec = OptimSpec(kind="lamb", weight_decay=0.0)
    optimizer = make_optimizer(model, spec)
    model.dense.weight.grad = torch.ones_like(before)
    set_rate(optimizer, spec, 0.1, 1)
    optimizer.step()
    assert float((model.dense.weight - before).norm().detach()) == pytest.approx(0.1 * float(before.norm()), rel=1e-3)


@EACH
def test_gradients_are_divided_by_the_scale(kind: str) -> None:
    """Muon's and LAMB's updates of matrices do not depend on the size of gradients, but epsilon does."""
    spec = OptimSpec(kind=kind, eps=0.1)
    halved = stepped(spec, clip=2.0)
    torch.testing.assert_close(halved, stepped(spec, size=0.5))
    assert any((halved[name] - weight).abs().max() > 1e-4 for name, weight in stepped(spec).items())


@EACH
def test_gradients_that_are_not_finite_change_no_weight(kind: str) -> None:
    torch.manual_seed(0)
    before = dict(Small().named_parameters())
    after = stepped(OptimSpec(kind=kind), size=math.nan)
    assert all(torch.equal(after[name], weight) for name, weight in before.items())


@pytest.mark.parametrize("family", PLUGS.built_in)
def test_muon_has_the_matrices_of_layers_and_heads(family: str) -> None:
    name = "causal-lm" if family_of(EncoderSpec(family=family)).CAUSAL == "always" else "bert-mlm"
    model = build(tiny(name, {"encoder.family": family, "encoder.embedding": None}))
    chosen = matrices(model)
    for path, module in model.named_modules():
        for kind, weight in module.named_parameters(recurse=False):
            table = isinstance(module, nn.Embedding)
            is_matrix = weight.ndim == 2 and not table and not kind.endswith("_bias")  # XLNet's biases
            assert (id(weight) in chosen) == is_matrix, (path, kind)


def test_tables_that_are_sums_and_single_rows_are_left_to_adamw() -> None:
    model = build(tiny("rtd", tying="gdes"))
    chosen = [name for name, weight in model.named_parameters() if id(weight) in matrices(model)]
    assert chosen and not [name for name in chosen if "word_embeddings" in name or name == "head.out.weight"]


def test_the_generators_own_rate_holds_for_all_rules() -> None:
    spec = tiny("rtd", optim__kind="muon", optim__generator_lr=1e-4, optim__lr=1e-3)
    optimizer = make_optimizer(build(spec), spec.optim)
    told = set_rate(optimizer, spec.optim, 5e-4, 3)
    assert told == {"learning_rate": 5e-4, "generator_learning_rate": pytest.approx(5e-5)}
    rates = {(group["rule"], group["generator"], round(group["lr"], 9)) for group in optimizer.param_groups}
    assert rates == {(rule, own, 5e-5 if own else 5e-4) for rule in ("adamw", "muon") for own in (False, True)}


def test_the_rule_is_part_of_a_runs_name_unless_it_is_adamw() -> None:
    names = [tiny("rtd", optim__kind=kind).name for kind in ("adamw", "muon", "lamb")]
    assert names[0] == tiny("rtd").name and len(set(names)) == 3
    assert "kind" not in tiny("rtd").identity()["optim"]


# ---- in the loop ----

TINY = {
    "objective": "bert-mlm", "encoder.hidden": 32, "encoder.layers": 1, "encoder.heads": 2, "encoder.vocab": 60,
    "data.length": 16, "batch.size": 8, "budget.steps": 6, "optim.lr": 1e-2, "encoder.dropout": 0.1,
}  # fmt: skip


def trained(job: Begun) -> dict[str, Tensor]:
    model = job.train(precision="fp32", save_every=2)
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


@EACH
def test_a_resumed_run_ends_with_the_same_bits(kind: str, tmp_path: Path) -> None:
    job = begun(tmp_path, TINY | {"optim.kind": kind})
    whole = trained(job)
    checkpoints = job.run.path / "checkpoints"
    for late in checkpoints.glob("step-*6"):
        shutil.rmtree(late)
    assert [path.name for path in checkpoints.glob("step-*")] == ["step-00000004"]
    again = trained(job)
    assert all(torch.equal(again[name], weight) for name, weight in whole.items())
    assert [row["step"] for row in job.rows()] == [1, 2, 3, 4, 5, 6]


@EACH
def test_training_stops_at_nan_with_the_weights_of_before(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradients of the third step are NaN, and those of the next ones are finite again."""
    job = begun(tmp_path, TINY | {"optim.kind": kind})
    models, own = [], loop.build
    seen: list[dict[str, Tensor]] = []

    class Broken(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner
            models.append(inner)

        def forward(self, batch: Batch) -> StepLoss:
            seen.append({name: weight.detach().clone() for name, weight in self.inner.named_parameters()})
            loss = self.inner(batch)
            factor = math.nan if len(seen) == 3 else 1.0
            return StepLoss(loss.total * factor, loss.parts, loss.metrics)

    monkeypatch.setattr(loop, "build", lambda *given: Broken(own(*given)))
    with pytest.raises(Diverged, match="at step 3"):
        job.train(precision="fp32", save_every=100, log_every=5)
    assert len(seen) == 5
    after = dict(models[0].named_parameters())
    for name, weight in seen[2].items():
        assert torch.equal(after[name], weight) and torch.equal(seen[4][name], weight), name
    assert any(not torch.equal(seen[1][name], weight) for name, weight in seen[2].items())
