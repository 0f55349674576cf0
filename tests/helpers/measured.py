"""A run that is small enough to be measured in a test."""

from __future__ import annotations

from workbench import objectives
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec

SMALL = {
    "encoder.hidden": 32, "encoder.layers": 1, "encoder.heads": 2, "encoder.vocab": 300, "encoder.positions": 32,
    "data.length": 32, "batch.size": 4, "generator.width": 0.5, "budget.steps": 10**6,
}  # fmt: skip
CPU = Host(device="cpu", precision="fp32", threads=1)


def small(objective: str = "rtd") -> RunSpec:
    return objectives.with_options(resolve("nano", SMALL).replace(objective=objective))
