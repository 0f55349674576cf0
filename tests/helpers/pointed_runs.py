"""Runs with scores at points of their training."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import made

from workbench.report.comparison import leaderboards
from workbench.report.load.study_tables import read_study
from workbench.report.results import Leaderboard
from workbench.store import manifest, validation
from workbench.store.atomic import sealed
from workbench.store.run_store import RunDir, RunStore

STEPS = 200

SHARES = {"1 %": 0.01, "4.64 %": 0.0464, "10 %": 0.1, "21.5 %": 0.215, "46.4 %": 0.464}

Truth = Callable[[str, float, int], float]  # arm, share of its budget, seed


def pointed(run: RunDir, mark: str, step: int, value: float) -> None:
    """Add a point with one score to a finished run, as its training would have left it."""
    place = run.path / "points" / f"{step:08d}"
    for part in ("encoder", "heads"):
        (place / part).mkdir(parents=True)
        (place / part / "model.safetensors").write_text(f"{part} {mark}")
    done = run.read_json("done.json")
    facts = {"step": step, "mark": mark, "tokens": step * 4096, "seconds": 0.1 * step}
    facts["flops"] = {name: total * step / done["steps"] for name, total in done["flops"].items()}
    facts |= {part: validation.hashes(place / part) for part in ("encoder", "heads")}
    (place / "point.json").write_bytes(sealed({"format": 1, **facts, "run_id": run.run_id}))
    end = made.scored(run, "pairs", 0, value, suite="pairs", baselines={"chance": 50.0})
    (place / "scores").mkdir()
    sealing = {"encoder": validation.weights_digest(facts, "encoder"), "run_id": run.run_id}
    score = {key: raw for key, raw in run.read_json(f"scores/{end.name}").items() if key != "encoder"}
    (place / "scores" / end.name).write_bytes(sealed(score | sealing))


def store_of(
    root: Path, truth: Truth, seeds: int = 4, arms: Sequence[str] = ("rtd", "bert-mlm"), **changes: Any
) -> tuple[RunStore, str]:
    store, specs = RunStore(root / "runs"), []
    for seed in range(seeds):
        for arm in arms:
            spec = made.spec_of(arm, seed, {"steps": STEPS}, **{"tasks.names": "pairs"}, **changes)
            run = made.trained(store, spec, STEPS, cost=1.0)
            for mark, share in SHARES.items():
                pointed(run, mark, round(share * STEPS), truth(arm, share, seed))
            made.scored(run, "pairs", 0, truth(arm, 1.0, seed), suite="pairs", baselines={"chance": 50.0})
            files = manifest.entries(run.path)
            (run.path / manifest.NAME).write_bytes(sealed(manifest.content(run.run_id, files)))
            specs.append(spec)
    return store, made.recorded(store, specs)


def overtaking(arm: str, share: float, seed: int) -> float:
    """Return a score: BERT MLM leads early and RTD late; they cross at a share of 0.15, between 10 % and 21.5 %."""
    rise = {"rtd": 24.0, "bert-mlm": 8.0}[arm]
    noise = random.Random(f"{arm}/{seed}/{share}").gauss(0, 0.4) + random.Random(f"{seed}").gauss(0, 1.0)
    return 70 + rise * math.log10(share / 0.15) + noise


def board_with_points(store: RunStore, name: str) -> Leaderboard:
    (found,) = leaderboards(read_study(store, name))
    return found
