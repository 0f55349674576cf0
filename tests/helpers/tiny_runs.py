"""Specs of tiny runs: some keep their weights at points of training, and some begin where another run ended."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from workbench.bench.turns import made_up
from workbench.data.corpus import Corpus, corpus_of
from workbench.data.prepare import Prepared
from workbench.execution import one_run, study_runner
from workbench.objectives import with_options
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import BoundRun
from workbench.store.run_directory import RunDir, now
from workbench.store.run_store import RunStore
from workbench.tasks import Suite
from workbench.training import loop
from workbench.training.plan import Plan, plan

TINY: dict[str, Any] = {
    "encoder.hidden": 16, "encoder.layers": 1, "encoder.heads": 2, "encoder.vocab": 200, "encoder.positions": 16,
    "data.length": 16, "batch.size": 4, "generator.width": 0.5, "encoder.dropout": 0.1, "tasks.names": "none",
}  # fmt: skip
TWO_STAGE: dict[str, Any] = {
    "generator.width": 1.0, "tying": "none", "start.freeze_generator": True, "start.take": "generator",
    "start.parent": {"objective": "bert-mlm", "corruption.mask": 1.0, "corruption.random": 0.0},
}  # fmt: skip
BRANCH: dict[str, Any] = {
    "schedule.kind": "wsd", "schedule.decay": 0.2, "start.parent": {"schedule.kind": "constant"}, "start.share": 0.8,
}  # fmt: skip
WITH_POINTS: dict[str, Any] = {"tasks.names": "pairs", "budget.steps": 20, "tasks.at": "log:3"}
STEPS = [1, 4]  # of these points: 4.6 % and 21.5 % of 20 steps; 1 % rounds to none

SMALL = {
    "encoder.hidden": 32, "encoder.layers": 1, "encoder.heads": 2, "encoder.vocab": 300, "encoder.positions": 32,
    "data.length": 32, "batch.size": 4, "generator.width": 0.5, "budget.steps": 10**6,
}  # fmt: skip
CPU = Host(device="cpu", precision="fp32", threads=1)
HOST = Host(device="cpu", threads=1, log_every=1, save_every=3)
WORDS = ["red", "green", "blue", "cat", "dog", "sees", "likes", "hill", "river", "house"]


def small(objective: str = "rtd") -> RunSpec:
    """A run that is small enough to be measured in a test."""
    return with_options(resolve("nano", SMALL).replace(objective=objective))


def spec_of(objective: str = "rtd", **keys: Any) -> RunSpec:
    given = {key.replace("__", "."): value for key, value in keys.items()}
    return with_options(resolve("nano", TINY | {"objective": objective} | given))


def two_stage(**keys: Any) -> RunSpec:
    return spec_of(**TWO_STAGE | keys)


def branch(**keys: Any) -> RunSpec:
    return spec_of(**BRANCH | keys)


def with_points(objective: str = "rtd", **keys: Any) -> RunSpec:
    return spec_of(objective, **WITH_POINTS | keys)


def carried_out(
    spec: RunSpec, prepared: Prepared, suite: Suite, root: Path, since: str = "", host: Host = HOST
) -> RunDir:
    run = RunStore(root).open(BoundRun(study_runner.bind(spec, prepared)))
    wanted = one_run.Wanted(spec.tasks, suite, prepared)
    one_run.carry_out_all(RunStore(root), [run.run_id], wanted, host, since or now())
    return run


def weights(run: RunDir, place: str) -> dict[str, bytes]:
    folder = run.path / place
    return {f"{part}/{f.name}": f.read_bytes() for part in ("encoder", "heads") for f in (folder / part).iterdir()}


def values(run: RunDir) -> dict[str, float]:
    return {p: run.read_json(p)["value"] for p in (str(f.relative_to(run.path)) for f in run.path.rglob("scores/*"))}


class Begun(NamedTuple):
    """A run on made-up text, which training begins or goes on with."""

    run: RunDir
    spec: RunSpec
    plan: Plan
    corpus: Corpus

    def train(self, **more: Any) -> nn.Module:
        """Train to the end; arguments are those of `Host`, and `guard` and `progress` those of training."""
        words = {key: more.pop(key) for key in ("guard", "progress") if key in more}
        with self.run.lease():
            return loop.train(*self, Host(**{"device": "cpu", "threads": 1} | more), **words)

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.run.path / "metrics.jsonl").read_text().splitlines()]


def begun(folder: Path, settings: dict[str, Any], tokens: int = 5000) -> Begun:
    spec = with_options(resolve("nano", {key.replace("__", "."): value for key, value in settings.items()}))
    shutil.rmtree(folder / "data", ignore_errors=True)
    prepared = made_up(folder / "data", spec, tokens=tokens)
    spec = spec.changed({"data.special": prepared.special.model_dump()})
    return Begun(RunStore(folder / "runs").open(BoundRun(spec)), spec, plan(spec), corpus_of(prepared, spec))
