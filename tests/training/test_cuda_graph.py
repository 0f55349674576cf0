"""Steps that are recorded on a GPU and launched as a whole: the same numbers as steps launched kernel by kernel."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from workbench import objectives
from workbench.bench.turns import made_up
from workbench.data.corpus import corpus_of
from workbench.data.prepare import bind
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, StepLoss
from workbench.training import steps
from workbench.training.concurrent_runs import own_stream
from workbench.training.loop import _on_device
from workbench.training.optimizer import make_optimizer, set_rate
from workbench.training.steps import RECORDED_AFTER, Steps, record

pytestmark = pytest.mark.gpu
DROPOUT = {"encoder.dropout": 0.1, "encoder.attention_dropout": 0.1}


def taken(folder: Path, spec: RunSpec, host: Host, count: int) -> tuple[Steps, list[torch.Tensor], list[torch.Tensor]]:
    """The values of each step at rates that differ, and the weights after the last."""
    prepared = made_up(folder, spec, 100_000)
    spec = bind(spec, prepared)
    corpus = corpus_of(prepared, spec)
    device, model, autocast = _on_device(spec, corpus, host)
    optimizer = make_optimizer(model, spec.optim)
    made = Steps(spec, corpus, host, device, autocast, model, optimizer)
    values = []
    with own_stream(device):
        for step in range(1, count + 1):
            set_rate(optimizer, spec.optim, 1e-3 / step, step)
            values.append(made.take(step)[1].cpu())
    return made, values, [weight.detach().cpu() for weight in model.parameters()]


def spec_of(objective: str, **keys: Any) -> RunSpec:
    given = {"budget.steps": 100, "batch.size": 8} | DROPOUT | keys
    return objectives.with_options(resolve("nano", given).replace(objective=objective))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("objective", objectives.names())
def test_recorded_steps_equal_launched_ones(
    objective: str, compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, host = spec_of(objective), Host(device="cuda", compile=compiled)
    made, values, weights = taken(tmp_path / "recorded", spec, host, 3 * RECORDED_AFTER)
    assert made.recorded is not None
    monkeypatch.setattr(steps, "record", lambda *_: None)
    other, launched, same = taken(tmp_path / "launched", spec, host, 3 * RECORDED_AFTER)
    assert other.recorded is None
    assert len({tuple(row.tolist()) for row in values}) == len(values), "each step has rows of its own"
    for recorded, plain in zip([*values, *weights], [*launched, *same], strict=True):
        assert torch.equal(recorded, plain)


def test_rows_that_do_not_fit_at_once_and_released_updates_are_launched(tmp_path: Path) -> None:
    micro, _, _ = taken(tmp_path / "micro", spec_of("rtd"), Host(device="cuda", micro_batch=4), 6)
    released, _, _ = taken(tmp_path / "released", spec_of("rtd", recipe="released"), Host(device="cuda"), 6)
    plain, _, _ = taken(tmp_path / "plain", spec_of("rtd"), Host(device="cuda", plain=True), 6)
    assert micro.recorded is released.recorded is plain.recorded is None


class Waits(nn.Module):
    """An objective that reads a number back from the device in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, device="cuda"))

    def forward(self, batch: Batch) -> StepLoss:
        return StepLoss((self.weight * batch.ids[0, :4].float()).sum() * self.weight.sum().item(), {})


def test_a_step_that_waits_for_the_device_is_launched_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    model, ids = Waits(), torch.ones(2, 8, dtype=torch.int64, device="cuda")

    def compute(batch: Batch) -> tuple[None, torch.Tensor]:
        loss = model(batch).total
        loss.backward()
        return None, loss.detach()[None]

    with caplog.at_level(logging.WARNING), own_stream(torch.device("cuda")):
        batch = Batch(ids, torch.arange(2, device="cuda"))
        compute(batch)
        assert record(compute, batch) is None
        assert compute(batch)[1].item() == 16.0, "the device still computes"
        torch.manual_seed(1)
        assert torch.rand(3, device="cuda").isfinite().all(), "and still draws"
    assert "launched kernel by kernel" in caplog.text
