"""Runs of four steps in a store, finished and scored without any training."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import BoundRun
from workbench.store.atomic import dumps
from workbench.store.run_store import RunDir, RunStore

SPEC = RunSpec.model_validate({"budget": {"steps": 4}})


def rows(steps: int) -> str:
    return "".join(dumps({"step": n, "seconds": n / 2, "loss": 1 / n, "auc": None}) + "\n" for n in range(1, steps + 1))


def finish(run: RunDir, steps: int = 4) -> RunDir:
    (run.path / "metrics.jsonl").write_text(rows(steps))
    run.finish({"steps": steps, "tokens": 512.0, "flops": {"paper": 1e9}})
    return run


SCORE = {"format": 1, "task": "package", "suite": "probes", "metric": "accuracy", "seed": 0, "value": 61.5}


def score(run: RunDir, name: str = "package-0.json") -> dict[str, Any]:
    """Give a finished run a score as fine-tuning does, and return what was written."""
    told = SCORE | {"encoder": run.weight_digests()["encoder"]}
    run.write_json(f"scores/{name}", told)
    return told


def one_line(error: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(error.value)
    assert "\n" not in text and len(text) < 500
    return text


def whole(store: RunStore, seed: int) -> RunDir:
    run = finish(store.open(BoundRun(SPEC.replace(seed=seed))))
    run.want(["package-0.json"])
    score(run)
    run.write_json("env.json", {"python": "3", "versions": {}, "machine": {}})
    return run
