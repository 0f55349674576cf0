"""Stores with a known truth: run directories written through the store, as a real run writes them."""

from __future__ import annotations

import itertools
import json
import math
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.spec.parts import PublishedSpec
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec
from workbench.spec.scoring import score_file
from workbench.spec.stages import BoundRun
from workbench.store import manifest, validation
from workbench.store.atomic import read_object, sealed
from workbench.store.run_store import ExperimentRecord, RunDir, RunStore

if TYPE_CHECKING:
    from workbench.report.load.study_tables import Frames

ARMS = ("rtd", "electra-15", "replace-mlm", "all-tokens-mlm", "bert-mlm")
PROBES = {"package": "accuracy", "order": "matthews", "next": "accuracy", "signature": "accuracy"}
GLUE = {
    "CoLA": "matthews", "SST-2": "accuracy", "MRPC": "accuracy", "STS-B": "spearman", "QQP": "accuracy",
    "MNLI": "accuracy", "QNLI": "accuracy", "RTE": "accuracy",
}  # fmt: skip
COST = {"rtd": 1.0, "electra-15": 1.0, "replace-mlm": 1.03, "all-tokens-mlm": 1.2, "bert-mlm": 0.76}
ENV = {
    "python": "3.11.7", "workbench": "0.1.0", "versions": {"torch": "2.13.0", "transformers": "5.23.0"},
    "git": {"commit": "0123456789abcdef", "dirty": False},
    "machine": {"system": "Linux", "cpu": "Some CPU", "cores": 2, "gpu": None}, "threads": 2, "device": "cpu",
    "precision": "fp32", "command": "workbench run ablation", "started": "2026-11-21T08:00:00+00:00",
}  # fmt: skip


def spec_of(objective: str, seed: int, budget: Mapping[str, Any], **changes: Any) -> RunSpec:
    key = next(iter(budget))
    overrides = {"objective": objective, "seed": seed, f"budget.{key}": budget[key], "data.fingerprint": "fp" * 8}
    return resolve("nano", overrides | changes)


def trained(store: RunStore, spec: RunSpec, steps: int = 60, cost: float | None = None) -> RunDir:
    """A run whose training is over, with a log of every step."""
    run = store.open(BoundRun(spec))
    price = 1e9 * (COST.get(spec.objective, 1.0) if cost is None else cost)
    per_step = {"paper": price, "paper-sparse": 0.8 * price, "matmul": 1.1 * price}
    rows = [row_at(spec, step, steps, per_step) for step in range(1, steps + 1)]
    run.write_json("plan.json", {"steps": steps, "tokens": steps * 4096, "flops": {}})
    run.write_json("env.json", ENV)
    if rows:
        (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flops = {name: value * steps for name, value in per_step.items()}
    run.finish({"steps": steps, "tokens": steps * 4096, "flops": flops})
    return run


def row_at(spec: RunSpec, step: int, steps: int, per_step: Mapping[str, float]) -> dict[str, Any]:
    noise = random.Random(f"{spec.name}/{step}")
    fall = math.exp(-3 * step / steps)
    row: dict[str, Any] = {
        "step": step, "tokens": step * 4096, "flops": {k: v * step for k, v in per_step.items()},
        "seconds": 0.1 * step, "learning_rate": 2e-3 * (1 - (step - 1) / steps), "gradient_norm": 1 + noise.random(),
        "tokens_per_second": 40_000 + 2_000 * noise.random(), "device_memory_bytes": None, "mask_rate": 0.15,
    }  # fmt: skip
    generator = spec.objective != "bert-mlm"
    detector = spec.objective in ("rtd", "electra-15")
    if generator:
        row |= {
            "generator_loss": 4 + 4.3 * fall + 0.2 * noise.gauss(0, 1), "generator_accuracy": 0.35 * (1 - fall),
            "replaced_rate": 0.15 - 0.05 * (1 - fall), "generator_entropy": 3 + 4 * fall,
        }  # fmt: skip
    if detector:
        row |= {
            "discriminator_loss": 0.3 + 0.4 * fall, "discriminator_accuracy": 0.93 - 0.2 * fall,
            "discriminator_precision": None if step < 5 else 0.7 - 0.3 * fall, "discriminator_recall": 0.4 * (1 - fall),
            "discriminator_auc": 0.9 - 0.4 * fall,
        }  # fmt: skip
    else:
        row |= {"mlm_loss": 5 + 3.3 * fall + 0.2 * noise.gauss(0, 1), "mlm_accuracy": 0.3 * (1 - fall)}
    if spec.objective == "all-tokens-mlm":
        row |= {"copy_accuracy": 0.95 - 0.3 * fall}
    row["loss"] = row.get("generator_loss", 0) + 50 * row.get("discriminator_loss", 0) + row.get("mlm_loss", 0)
    return row


def scored(run: RunDir, task: str, seed: int, value: float | None, **changes: Any) -> Path:
    """One score file."""
    glue = task in GLUE or task in ("WNLI", "QNLI-devsplit")
    metric = (GLUE if glue else PROBES).get(task, "accuracy")
    asked = run.spec().tasks
    score = {
        "format": 1, "task": task, "suite": "glue" if glue else "probes", "metric": metric, "seed": seed,
        "value": value, "values": {"dev" if glue else "test": {metric: value, "f1": 50.0}},
        "baselines": {} if glue else {"majority": 40.0, "bag-of-words": 55.0}, "train_rows": 1000, "test_rows": 500,
        "steps": 90, "seconds": 1.5, "finetune": {"lr": asked.lr, "epochs": 3.0, "length": asked.length},
        "data": "d" * 16, "digest": "ab12cd34", "code": "0.1.0",
    } | changes  # fmt: skip
    path = run.path / "scores" / score_file(score["task"], score["digest"], score["seed"])
    path.parent.mkdir(exist_ok=True)
    sealing = {"encoder": run.weight_digests()["encoder"], "run_id": run.run_id}
    path.write_bytes(sealed(score | sealing))  # not through the store, whose care for power cuts takes its time
    return path


def edit(path: Path, **changes: Any) -> None:
    """Change fields of a file of a store as its writer could have."""
    path.write_bytes(sealed(read_object(path) | changes))


def relist(run: RunDir) -> None:
    """Let the manifest of a finished run say what its files are now, as if they had been written so."""
    edit(run.path / "done.json", metrics_bytes=(run.path / "metrics.jsonl").stat().st_size)
    (run.path / manifest.NAME).write_bytes(sealed(manifest.content(run.run_id, manifest.entries(run.path))))


def unfinish(run: RunDir) -> None:
    """Leave a run as it is shortly before its end."""
    for name in ("done.json", manifest.NAME):
        (run.path / name).unlink()
    shutil.rmtree(run.path / "scores", ignore_errors=True)


def recorded(store: RunStore, runs: Sequence[RunSpec], untrained: Sequence[RunSpec] = (), **changes: Any) -> str:
    """The experiment record that lists them."""
    base = runs[0]
    fields = {
        "name": "ablation-nano-1a2b3c4d", "experiment": "ablation",
        "question": "At equal compute, what does each step from BERT to ELECTRA buy?", "axis": "objective",
        "base": base.model_dump(mode="json"), "tasks": base.tasks.model_dump(mode="json"),
        "runs": [s.name for s in runs], "untrained": [s.name for s in untrained],
        "command": "workbench run ablation --seeds 3",
    } | changes  # fmt: skip
    fields |= {key: tuple(fields[key]) if key in ("runs", "untrained") else fields[key] for key in fields}
    store.extend_experiment(ExperimentRecord(**fields))
    return str(fields["name"])


def study(
    root: Path,
    truth: Callable[[str, int, str, int, int], float],
    arms: Sequence[str] = ARMS,
    seeds: int = 3,
    tunings: int = 2,
    tasks: Sequence[str] = tuple(PROBES),
    budgets: Sequence[int] = (60,),
    record: Mapping[str, Any] | None = None,
) -> tuple[RunStore, str]:
    """A whole store. `truth(arm, steps, task, seed, tuning)` is the score; the untrained arm has 0 steps."""
    store = RunStore(root)
    bare = [spec_of("bert-mlm", seed, {"steps": 0}) for seed in range(seeds)]
    specs = [spec_of(arm, seed, {"steps": steps}) for steps in budgets for seed in range(seeds) for arm in arms]
    for spec in [*bare, *specs]:
        steps = spec.budget.steps or 0
        run = trained(store, spec, steps)
        for task in tasks:
            for tuning in range(tunings):
                scored(
                    run, task, tuning, truth(spec.objective if steps else "untrained", steps, task, spec.seed, tuning)
                )
    return store, recorded(store, specs, bare, **(record or {}))


def noisy(levels: Mapping[str, float], seed_sd: float = 0.5, tuning_sd: float = 0.4) -> Callable[..., float]:
    """Scores around a level for each arm, with noise shared by a seed, of a run, and of a fine-tuning."""

    def truth(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
        shared = random.Random(f"{seed}/{task}").gauss(0, seed_sd)
        own = random.Random(f"{arm}/{steps}/{seed}/{task}").gauss(0, seed_sd)
        fine = random.Random(f"{arm}/{steps}/{seed}/{task}/{tuning}").gauss(0, tuning_sd)
        growth = 2.5 * math.log2(steps / 60) if steps else 0.0
        return levels[arm] + growth + shared + own + fine

    return truth


def in_memory(
    truth: Callable[..., float],
    arms: Sequence[str],
    seeds: int,
    tunings: int = 3,
    budgets: Sequence[int] = (60,),
    price: Callable[[str], Mapping[str, float]] = lambda arm: dict.fromkeys(("paper", "paper-sparse", "matmul"), 1e9),
) -> Frames:
    """What `frames.read` would find in such a study, without the disk. `price(arm)` is the FLOPs of a step."""
    import pandas as pd

    from workbench.report.load import study_tables

    keys = [("untrained", s, 0) for s in range(seeds)]
    keys += [(arm, s, steps) for steps in budgets for s in range(seeds) for arm in arms]
    runs: list[dict[str, Any]] = [
        {
            "run_id": f"{arm}-{steps}-s{seed}", "role": "untrained" if arm == "untrained" else "arm", "arm": arm,
            "seed": seed, "budget": f"{steps} steps", "state": "done", "finetune_seconds": 1.0, "data": "fp" * 8,
            "convention": "paper",
            "steps": steps, "tokens": 4096 * steps, "seconds": 0.1 * steps,
            **{f"flops_{c}": value * steps for c, value in price(arm).items()},
        }
        for arm, seed, steps in keys
    ]  # fmt: skip
    scores = [
        {"run_id": r["run_id"], "suite": "probes", "task": task, "metric": metric, "seed": tuning, "test_rows": 500,
         "value": truth(r["arm"], r["steps"], task, r["seed"], tuning)}
        for r in runs for task, metric in PROBES.items() for tuning in range(tunings)
    ]  # fmt: skip
    empty = pd.DataFrame(columns=["run_id", "task", "baseline", "value"])
    settings = {r["run_id"]: {"encoder.hidden": 64} for r in runs}
    return study_tables.Frames(
        {"axis": "objective"}, pd.DataFrame(runs), pd.DataFrame(scores), empty, empty, empty, settings, {}, ()
    )


LEVELS = {
    "rtd": 70.0, "electra-15": 66.0, "replace-mlm": 66.2, "all-tokens-mlm": 69.0, "bert-mlm": 65.0, "untrained": 60.0,
}  # fmt: skip


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
    end = scored(run, "pairs", 0, value, suite="pairs", baselines={"chance": 50.0})
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
            spec = spec_of(arm, seed, {"steps": STEPS}, **{"tasks.names": "pairs"}, **changes)
            run = trained(store, spec, STEPS, cost=1.0)
            for mark, share in SHARES.items():
                pointed(run, mark, round(share * STEPS), truth(arm, share, seed))
            scored(run, "pairs", 0, truth(arm, 1.0, seed), suite="pairs", baselines={"chance": 50.0})
            relist(run)
            specs.append(spec)
    return store, recorded(store, specs)


def overtaking(arm: str, share: float, seed: int) -> float:
    """Return a score: BERT MLM leads early and RTD late; they cross at a share of 0.15, between 10 % and 21.5 %."""
    rise = {"rtd": 24.0, "bert-mlm": 8.0}[arm]
    noise = random.Random(f"{arm}/{seed}/{share}").gauss(0, 0.4) + random.Random(f"{seed}").gauss(0, 1.0)
    return 70 + rise * math.log10(share / 0.15) + noise


LEVEL = {0.125: 66.0, 0.25: 70.0, 0.5: 69.0, 1.0: 67.0, "unigram": 63.0, "uniform": 61.0}


def sweep(root: Path, cells: list[dict[str, Any]], seeds: int = 3, axis: str = "generator.width") -> tuple[Any, str]:
    """A store of one run for each cell and seed, with scores around the level of the generator's size."""
    store = RunStore(root / "runs")
    specs = [spec_of("rtd", seed, {"steps": 8}, **cell) for seed, cell in itertools.product(range(seeds), cells)]
    for spec in specs:
        kind = spec.generator.kind
        level = LEVEL[spec.generator.width if kind == "transformer" else kind] + (spec.encoder.hidden - 64) / 16
        scored(trained(store, spec, 8), "order", 0, level + 0.1 * spec.seed + 0.1 * random.Random(spec.name).random())
    return store, recorded(store, specs, axis=axis, experiment="generator-size")


TASKS = ("package", "order")


def published(store: RunStore, name: str, flops: float | None, source: str = "a paper") -> RunDir:
    """Write a published run as `workbench evaluate` leaves it, without scores."""
    from workbench.execution.published_runs import _bound

    run = store.open(_bound(PublishedSpec(name=name, files=name * 3)))
    stated = {"flops": {} if flops is None else {"paper": flops}, "flops_source": source}
    run.finish({"steps": 0, "tokens": 0, "encoder": {"model.safetensors": "a" * 64}, **stated})
    return run
