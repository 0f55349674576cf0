"""Does the fast path learn what the plain one learns? Lays the loss curves of both over each other.

    python experiments/benchmarks/curves.py OUT.json [--steps 500] [--scale nano] [--set key=value] [--objective X] ...

Both train the same spec on the same rows and draws, from the same initial weights; one as a user gets it, the other
with `--plain` in fp32. Where the spec has dropout, the two drop other numbers. A third run, plain and of another seed,
says how far apart two runs of the same thing are. `apart` is the mean over ten stretches of steps of the difference of
the mean losses there, relative to the plain one's; so is `seeds_apart`, of the other seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from record import here

from workbench import objectives
from workbench.cli.terminal import table
from workbench.data.corpus import Corpus
from workbench.data.prepare import bind, prepare
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.spec.run_spec import overrides_of, split_settings
from workbench.spec.stages import BoundRun, ResolvedSpec
from workbench.store.run_store import RunStore
from workbench.training.loop import train
from workbench.training.plan import plan

STRETCHES = 10
WAYS = ("fast", "plain", "other seed")


def curve(spec: ResolvedSpec, corpus: Corpus, host: Host) -> list[float]:
    """Mean losses of the stretches."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunStore(Path(folder)).open(BoundRun(spec))
        with run.lease():
            train(run, spec, plan(spec), corpus, host, run.check)
        losses = [json.loads(line)["loss"] for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    each = len(losses) // STRETCHES
    return [statistics.fmean(losses[i * each : (i + 1) * each]) for i in range(STRETCHES)]


def apart(one: list[float], other: list[float]) -> float:
    return statistics.fmean(abs(a - b) / b for a, b in zip(one, other, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--scale", default="nano")
    parser.add_argument("--set", action="append", default=[], metavar="key=value")
    parser.add_argument("--objective", action="append")
    chosen = parser.parse_args()
    keys: dict[str, Any] = {"budget.steps": chosen.steps, **overrides_of(split_settings(chosen.set))}
    result = here() | {"rows": []}
    for name in chosen.objective or objectives.names():
        found = {}
        for way in WAYS:
            seed = {"seed": 1} if way == "other seed" else {}
            spec = objectives.with_options(resolve(chosen.scale, keys | seed).replace(objective=name))
            prepared = prepare(spec)
            spec = bind(spec, prepared)
            corpus = Corpus(prepared, spec.data.length, spec.seed)
            host = Host(plain=way != "fast", save_seconds=float("inf"))
            found[way] = curve(spec, corpus, host)
        result["rows"].append({
            "objective": name, "precision": Host().resolved_precision(spec.encoder.hidden), "steps": chosen.steps,
            "apart": round(apart(found["fast"], found["plain"]), 5),
            "seeds_apart": round(apart(found["other seed"], found["plain"]), 5), **found,
        })  # fmt: skip
        chosen.out.write_text(json.dumps(result, indent=1) + "\n")
        print(name, {way: [round(x, 3) for x in found[way]] for way in WAYS}, file=sys.stderr, flush=True)
    print(table([{k: v for k, v in row.items() if k not in WAYS} for row in result["rows"]]))


if __name__ == "__main__":
    main()
