"""Run directories as runs leave them, written without any training."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from workbench.spec.run_spec import RunSpec
from workbench.spec.scoring import score_file
from workbench.spec.stages import BoundRun
from workbench.store import checkpoint
from workbench.store.atomic import dumps
from workbench.store.checkpoint import Metrics
from workbench.store.run_store import RunDir, RunStore

SPEC = RunSpec.model_validate({"budget": {"steps": 4}})


def begun(store: RunStore, seed: int) -> RunDir:
    """A run that was stopped after its second checkpoint."""
    draw = random.Random(seed)
    run = store.open(BoundRun(SPEC.replace(seed=seed)))
    run.write_json("plan.json", {"steps": 4, "tokens": 512 + seed, "flops": {}})
    run.write_json("env.json", {"python": "3.11", "versions": {}, "machine": {"cores": 2 + seed}})
    run.write("objective.py", f"# an objective of seed {seed}\n".encode())
    log = Metrics(run.path / "metrics.jsonl")
    for first in (1, 3):
        log.append([{"step": n, "seconds": n / 2, "loss": round(draw.random(), 6)} for n in (first, first + 1)])
        state = {"step": first + 1, "seconds": 1.0, "run_id": run.run_id, "log": log.content()}
        tensors = {"model": {"w": torch.full((3,), draw.random())}, "optimizer": {"m": torch.full((3,), draw.random())}}
        checkpoint.save(run.path / "checkpoints", first + 1, tensors, state)
    return run


def finished(store: RunStore, seed: int, tuning: int = 2) -> RunDir:
    """A run with an encoder and scores on two tasks."""
    draw, run = random.Random(seed + 100), begun(store, seed)
    with run.staged("encoder") as folder:
        (folder / "config.json").write_text(dumps({"model_type": "electra", "seed": seed}))
        (folder / "model.safetensors").write_bytes(draw.randbytes(400))
    run.finish({"steps": 4, "tokens": 512, "flops": dict.fromkeys(("paper", "paper-sparse", "matmul"), 1e9)})
    names = {(task, n): score_file(task, "ab12cd34", n) for task in ("order", "next") for n in range(tuning)}
    run.want(names.values())
    for (task, n), name in names.items():
        value = round(50 + 20 * draw.random(), 4)
        score = {
            "format": 1, "task": task, "suite": "probes", "metric": "accuracy", "seed": n, "value": value,
            "values": {"test": {"accuracy": value}}, "baselines": {"majority": 50.0 + seed}, "digest": "ab12cd34",
            "encoder": run.weight_digests()["encoder"],
        }  # fmt: skip
        run.write_json(f"scores/{name}", score)
    return run


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
