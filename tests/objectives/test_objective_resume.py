"""A run of every objective that was stopped ends with the same bits as one that was not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from workbench import objectives
from workbench.bench.turns import made_up
from workbench.data.corpus import corpus_of
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunStore
from workbench.training import loop
from workbench.training.plan import plan

TINY = {
    "encoder.hidden": 32, "encoder.layers": 1, "encoder.heads": 2, "encoder.vocab": 60, "encoder.dropout": 0.1,
    "data.length": 16, "batch.size": 4, "budget.steps": 4, "optim.lr": 1e-2,
}  # fmt: skip


def trained(job: Any) -> dict[str, Tensor]:
    run, spec, corpus = job
    with run.lease():
        host = Host(device="cpu", threads=1, precision="fp32", save_every=2)
        model = loop.train(run, spec, plan(spec), corpus, host)
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize(
    ("name", "keys"), [*((name, {}) for name in objectives.names()), ("rtd", {"generator.kind": "ngram"})]
)
def test_a_resumed_run_ends_with_the_same_bits(name: str, keys: dict[str, str], tmp_path: Path) -> None:
    spec = objectives.with_options(resolve("nano", {"objective": name} | TINY | keys))
    prepared = made_up(tmp_path / "data", spec, tokens=2000)
    spec = spec.changed({"data.special": prepared.special.model_dump()})
    run = RunStore(tmp_path / "runs").open(BoundRun(spec))
    job = run, spec, corpus_of(prepared, spec)
    whole = trained(job)
    shutil.rmtree(run.path / "checkpoints" / "step-00000004")
    again = trained(job)
    assert all(torch.equal(again[key], weight) for key, weight in whole.items())
    rows = (run.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [1, 2, 3, 4]
