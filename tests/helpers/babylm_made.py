"""Runs, minimal pairs and predictions for tests of BabyLM's layout."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workbench.execution.babylm_export import SETS, Predicted, of_pairs
from workbench.spec import presets
from workbench.spec.stages import BoundRun
from workbench.store.atomic import sealed as sealed_file
from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore
from workbench.tasks.minimal_pairs import PairSet
from workbench.training import plan


def pairs_of(uids: list[str]) -> PairSet:
    good, bad = ([f"{side} {place}" for place in range(len(uids))] for side in ("good", "bad"))
    return PairSet("blimp-filtered", "blimp", good, bad, {"paradigm": uids})


def whole(name: str) -> Predicted:
    """Return all rows of a set that BabyLM's checks expect, with the first of each paradigm right."""
    found = SETS[name]
    uids = [f"u{place % found.parts}" for place in range(found.rows)]
    pairs = PairSet(name, "blimp", ["g"] * len(uids), ["b"] * len(uids), {"paradigm": uids})
    return of_pairs(pairs, "pll", "+" * found.parts + "-" * (found.rows - found.parts), 1.0)


def run_of(tmp_path: Path, words: float, **changes: Any) -> RunDir:
    """Return a finished run with 10,000 rows a step, in text whose tokens are all words: a step is 300,000 words."""
    counts = {"data.words": 1000, "data.tokens": 1000, "batch.size": 10_000, "budget.words": words}
    spec = presets.resolve("nano", counts | changes)
    run = RunStore(tmp_path / "runs").open(BoundRun(spec))
    made = plan.plan(spec)
    run.write_json("plan.json", asdict(made))
    row = {"step": 1, "seconds": 1.0}
    (run.path / "metrics.jsonl").write_text(
        "".join(json.dumps(row | {"step": n + 1}) + "\n" for n in range(made.steps))
    )
    (run.path / "encoder").mkdir()
    (run.path / "encoder" / "model.safetensors").write_bytes(b"weights")
    run.finish({"steps": made.steps, "tokens": made.tokens, "flops": made.flops})
    return run


def keep(run: RunDir, step: int, mark: str) -> None:
    folder = run.path / "points" / f"{step:08d}"
    folder.mkdir(parents=True)
    facts = {"step": step, "mark": mark, "tokens": 1, "flops": {}, "encoder": {}, "heads": {}}
    (folder / "point.json").write_bytes(sealed_file({"format": 1, **facts, "run_id": run.run_id}))
