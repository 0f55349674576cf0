"""Estimates of training time: a straight line through shallow copies, and a cache that is valid for ten minutes."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench import objectives
from workbench.bench import estimate
from workbench.bench.estimate import Timed, step_seconds, training_seconds
from workbench.spec import presets
from workbench.spec.host import Host
from workbench.spec.run_spec import RunSpec
from workbench.training import loop
from workbench.training.plan import Plan, plan

CPU = Host(device="cpu", precision="fp32", threads=1)


def priced(objective: str = "rtd", scale: str = "small", **overrides: Any) -> tuple[RunSpec, Plan]:
    spec = presets.resolve(scale, {"budget.steps": 100} | {k.replace("__", "."): v for k, v in overrides.items()})
    spec = objectives.with_options(spec.replace(objective=objective))
    return spec, plan(spec)


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))


@pytest.fixture
def asked(fresh: None, monkeypatch: pytest.MonkeyPatch) -> list[RunSpec]:
    """Return the list of measured specs, to which each measurement adds; a step takes 2 seconds per 1e12 products."""
    seen: list[RunSpec] = []

    def measured(spec: RunSpec, planned: Plan, host: Host) -> float:
        seen.append(spec)
        return 2e-12 * float(planned.flops_per_step["matmul"])

    monkeypatch.setattr(estimate, "_measured", measured)
    return seen


@pytest.mark.parametrize("objective", ["rtd", "bert-mlm", "electra-15"])
@pytest.mark.parametrize("overrides", [{}, {"generator__depth": 0.5, "generator__width": 1.0}, {"encoder__layers": 3}])
def test_the_line_through_two_copies_meets_the_whole_run(
    objective: str, overrides: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulated machine has a cost per product, per row (for any number of layers), and per weight."""
    each, row, weight = 3e-12, 2e-3, 4e-10

    def timed(copy: RunSpec, host: Host) -> Timed:
        p = plan(copy)
        work, weights = float(p.flops_per_step["matmul"]), p.parameters["total"]
        return Timed(work, each * work + row * copy.batch.size, weights, weight * weights)

    monkeypatch.setattr(estimate, "_timed", timed)
    spec, planned = priced(objective, **overrides)
    expected = each * float(planned.flops_per_step["matmul"]) + row * 128 + weight * planned.parameters["total"]
    assert estimate._measured(spec, planned, CPU) == pytest.approx(expected, rel=1e-6)


def test_copies_are_small_enough_to_be_timed_at_any_scale() -> None:
    for scale in presets.SCALES:
        spec, planned = priced(scale=scale)
        rows = estimate._rows(spec, CPU)
        work = plan(estimate._copy(spec, min(4, spec.encoder.layers), rows)).flops_per_step["matmul"]
        assert 1 <= rows <= spec.batch.size and (work <= estimate.WORK["cpu"] or rows == 1), scale
        assert float(work) <= float(planned.flops_per_step["matmul"])


@pytest.mark.parametrize(("objective", "precision"), [("rtd", "fp32"), ("bert-mlm", "bf16")])
def test_a_copy_is_trained_for_real_and_leaves_no_trace(objective: str, precision: Any) -> None:
    spec, planned = priced(objective, "nano", batch__size=4)
    before = torch.random.get_rng_state()
    seconds = step_seconds(spec, planned, Host(device="cpu", precision=precision, threads=1))
    assert 0 < seconds < math.inf
    assert torch.equal(before, torch.random.get_rng_state())


def test_kernels_that_the_first_step_compiles_are_not_in_the_time(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a new machine the first step takes seconds; multiplied by thousands of steps that would be hours."""
    compiled, real, original = [0.0], time.perf_counter, loop.build

    def build(spec: RunSpec, host: Host) -> torch.nn.Module:
        model = original(spec, host)
        model.register_forward_pre_hook(lambda *_: compiled.__setitem__(0, 10.0))
        return model

    monkeypatch.setattr(loop, "build", build)
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: real() + compiled[0])
    spec, planned = priced("bert-mlm", "nano", batch__size=4)
    assert step_seconds(spec, planned, CPU) < 5


def test_a_timing_is_kept_for_what_decides_it(asked: list[RunSpec]) -> None:
    spec, planned = priced()
    first = step_seconds(spec, planned, CPU)
    same = [{"seed": 5}, {"optim.lr": 1e-3}, {"budget.steps": 7}, {"tasks.lr": 1e-3}, {"data.corpus": "x.txt"}]
    for changes in same:
        assert step_seconds(spec.changed(changes), planned, CPU) == first
    assert len(asked) == 1
    others = [{"batch.size": 64}, {"encoder.layers": 11}, {"generator.width": 0.5}, {"corruption.rate": 0.2}]
    for changes in others:
        step_seconds(spec.changed(changes), planned, CPU)
    assert len(asked) == 5
    one = Host(device="cpu", precision="fp32", threads=1)
    for host in (replace(one, precision="bf16"), replace(one, threads=2), replace(one, plain=True)):
        step_seconds(spec, planned, host)
    assert len(asked) == 8


@pytest.mark.parametrize("content", ["", "[]", '{"format": 1, "at": 5, "seconds": 1}', '{"format": 1, "seconds": "x"}'])
def test_a_kept_timing_that_is_old_or_damaged_is_measured_again(
    content: str, asked: list[RunSpec], tmp_path: Path
) -> None:
    spec, planned = priced()
    first = step_seconds(spec, planned, CPU)
    (path,) = (tmp_path / "timings").iterdir()
    path.write_text(content)
    assert step_seconds(spec, planned, CPU) == first and len(asked) == 2


@pytest.mark.parametrize(("age", "measured"), [(500.0, 1), (700.0, 2)])
def test_a_timing_of_another_hour_is_measured_again(
    age: float, measured: int, asked: list[RunSpec], tmp_path: Path
) -> None:
    """A timing taken beside other work would otherwise be told all day: 21 s for a run of 6 s was seen."""
    spec, planned = priced()
    step_seconds(spec, planned, CPU)
    (path,) = (tmp_path / "timings").iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"at": time.time() - age}))
    step_seconds(spec, planned, CPU)
    assert len(asked) == measured


def test_without_patience_the_rest_is_judged_by_the_nearest(
    asked: list[RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "PATIENCE", -1.0)
    runs = [priced(), priced("bert-mlm"), priced(scale="base")]
    found = training_seconds(runs, CPU)
    assert len(asked) == 1
    assert found == pytest.approx([2e-12 * 100 * float(p.flops_per_step["matmul"]) for _, p in runs])


def test_what_cannot_be_timed_is_judged_by_a_matrix_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies that need too much memory or time are not built.

    An objective that fails does not end the plan.
    """
    monkeypatch.setattr(estimate, "ceiling", lambda host, seconds: 1e12)

    built: list[tuple[int, int]] = []

    def broken(copy: RunSpec, host: Host) -> Timed:
        built.append((copy.encoder.hidden, copy.data.length))
        raise SystemExit(0)

    monkeypatch.setattr(estimate, "_timed", broken)
    for overrides in ({}, {"encoder__hidden": 1 << 17}, {"data__length": 1 << 17, "encoder__positions": 1 << 17}):
        spec, planned = priced(**overrides)
        expected = float(planned.flops_per_step["matmul"]) / (1e12 * estimate.EFFICIENCY)
        assert estimate._measured(spec, planned, CPU) == pytest.approx(expected)
    assert built == [(256, 128)]


def test_a_budget_of_seconds_is_taken_at_its_word(asked: list[RunSpec]) -> None:
    spec = presets.resolve("nano", {"budget.seconds": 90})
    assert training_seconds([(spec, plan(objectives.with_options(spec)))], CPU) == [90] and not asked
