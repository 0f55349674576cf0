"""Specs of tiny runs that begin where another run ended."""

from __future__ import annotations

from typing import Any

from workbench.objectives import with_options
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec

TINY: dict[str, Any] = {
    "encoder.hidden": 16, "encoder.layers": 1, "encoder.heads": 2, "encoder.vocab": 200, "encoder.positions": 16,
    "data.length": 16, "batch.size": 4, "generator.width": 0.5, "encoder.dropout": 0.1, "tasks.names": "none",
}  # fmt: skip

TWO_STAGE: dict[str, Any] = {
    "generator.width": 1.0, "tying": "none", "start.freeze_generator": True, "start.take": "generator",
    "start.parent": {"objective": "bert-mlm", "corruption.mask": 1.0, "corruption.random": 0.0},
}  # fmt: skip


def spec_of(**keys: Any) -> RunSpec:
    given = {key.replace("__", "."): value for key, value in keys.items()}
    return with_options(resolve("nano", TINY | {"objective": "rtd"} | given))


def two_stage(**keys: Any) -> RunSpec:
    given = {key.replace("__", "."): value for key, value in keys.items()}
    return with_options(resolve("nano", TINY | {"objective": "rtd"} | TWO_STAGE | given))


def trunk(budget: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    return {"start.parent": {"schedule.kind": "constant", **keys}, "start.share": 0.8, **(budget or {})}


def branch(**keys: Any) -> RunSpec:
    given = {key.replace("__", "."): value for key, value in keys.items()}
    return with_options(
        resolve("nano", TINY | {"objective": "rtd", "schedule.kind": "wsd", "schedule.decay": 0.2} | trunk() | given)
    )
