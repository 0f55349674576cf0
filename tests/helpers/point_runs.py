"""Tiny runs that keep their weights at points during training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench import objectives
from workbench.data.prepare import Prepared
from workbench.execution import one_run, study_runner
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import BoundRun
from workbench.store.run_directory import RunDir, now
from workbench.store.run_store import RunStore
from workbench.tasks import Suite

TINY: dict[str, Any] = {
    "encoder.hidden": 16, "encoder.layers": 1, "encoder.heads": 2, "encoder.vocab": 200, "encoder.positions": 16,
    "data.length": 16, "batch.size": 4, "generator.width": 0.5, "encoder.dropout": 0.1, "tasks.names": "pairs",
    "budget.steps": 20, "tasks.at": "log:3",
}  # fmt: skip

HOST = Host(device="cpu", threads=1, log_every=1, save_every=3)

WORDS = ["red", "green", "blue", "cat", "dog", "sees", "likes", "hill", "river", "house"]

STEPS = [1, 4]  # 4.6 % and 21.5 % of 20 steps; 1 % rounds to none


def spec_of(objective: str = "rtd", **keys: Any) -> RunSpec:
    given = {key.replace("__", "."): value for key, value in keys.items()}
    return objectives.with_options(resolve("nano", TINY | {"objective": objective} | given))


def carried_out(spec: RunSpec, prepared: Prepared, suite: Suite, root: Path, since: str = "") -> RunDir:
    run = RunStore(root).open(BoundRun(study_runner.bind(spec, prepared)))
    one_run.carry_out_all(
        RunStore(root), [run.run_id], one_run.Wanted(spec.tasks, suite, prepared), HOST, since or now()
    )
    return run


def weights(run: RunDir, place: str) -> dict[str, bytes]:
    folder = run.path / place
    return {f"{part}/{f.name}": f.read_bytes() for part in ("encoder", "heads") for f in (folder / part).iterdir()}


def values(run: RunDir) -> dict[str, float]:
    return {p: run.read_json(p)["value"] for p in (str(f.relative_to(run.path)) for f in run.path.rglob("scores/*"))}
