"""What does growth cost? Training on ever larger corpora, a log of ever more rows, and stores of a thousand runs.

    python experiments/benchmarks/growth.py OUT.json [--runs 1000]

Corpora are sparse files, so ten billion tokens take no disk. The store is made up, as tests make theirs: it needs the
`tests` folder of a checkout. Commands are timed as processes, with their peak memory.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from peers import spec_of
from record import here

from workbench.bench.turns import made_up
from workbench.data.corpus import Corpus
from workbench.data.prepare import bind
from workbench.process import peak_memory
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.spec.stages import BoundRun
from workbench.store.checkpoint import Metrics
from workbench.store.run_store import RunStore
from workbench.training.loop import train
from workbench.training.plan import plan

ROOT = Path(__file__).parents[2]
POWERS = (6, 7, 8, 9, 10)  # of ten: tokens
TURNS, STEPS = 3, 80
BUDGETS = (100, 200, 400, 800)  # steps, which are rows in metrics.jsonl


def corpora(folder: Path) -> list[dict[str, Any]]:
    """Cutting rows alone: tokens per second of processor time from 10^6 to 10^10 tokens, and the memory it came to."""
    found = []
    for power in POWERS:
        spec = resolve("small", {"batch.size": 32})
        corpus = Corpus(made_up(folder / f"data{power}", spec, 10**power, sparse=True), spec.data.length, 0)
        times = []
        for repeat in range(3):
            start = time.process_time()
            for batch in range(500):
                corpus.batch((repeat * 500 + batch) * 32, 32)
            times.append(time.process_time() - start)
        tokens = 500 * 32 * spec.data.length
        found.append({"tokens": 10**power, "tokens_per_second": round(tokens / min(times)),
                      "peak_memory_bytes": peak_memory("cpu")})  # fmt: skip
    return found


def training(folder: Path) -> list[dict[str, Any]]:
    """Whole steps (RTD, workload T of peers.py) on 10^6 to 10^10 tokens in turns; tokens/s is the turns' median."""
    turns: dict[int, list[float]] = {power: [] for power in POWERS}
    memory: dict[int, int] = {}
    for turn in range(TURNS):
        for power in POWERS:
            turns[power].append(speed(folder / f"turn{turn}-{power}", power))
            memory[power] = peak_memory("cpu")
    return [{"tokens": 10**power, "tokens_per_second": round(statistics.median(found)),
             "turns": [round(value) for value in found], "peak_memory_bytes": memory[power]}
            for power, found in turns.items()]  # fmt: skip


def speed(folder: Path, power: int) -> float:
    """Tokens per second of training on 10^power tokens; the first quarter of the steps warms up."""
    steps: dict[str, Any] = {"budget.steps": STEPS}
    spec = spec_of("T", **steps)
    prepared = made_up(folder / "data", spec, 10**power, sparse=True)
    spec = bind(spec, prepared)
    run, corpus, times = (
        RunStore(folder / "runs").open(BoundRun(spec)),
        Corpus(prepared, spec.data.length, spec.seed),
        [],
    )
    host = Host(log_every=STEPS // 4, save_seconds=float("inf"))
    with run.lease():
        train(run, spec, plan(spec), corpus, host, run.check, lambda *_: times.append(time.perf_counter()))
    return spec.batch.size * spec.data.length * (STEPS - STEPS // 4) / (times[-1] - times[0])


def logging(folder: Path) -> list[dict[str, Any]]:
    """Microseconds of appending 20 rows, after 0, 10,000 and 100,000 of them."""
    row = {f"metric_{i}": 0.123456789 * i for i in range(20)}
    metrics = Metrics(folder / "metrics.jsonl")
    found, step = [], 0
    for already in (0, 10_000, 100_000):
        while step < already:
            metrics.append([{"step": step + i + 1, **row} for i in range(100)])
            step += 100
        start = time.perf_counter()
        for _ in range(100):
            metrics.append([{"step": step + i + 1, **row} for i in range(20)])
            step += 20
        found.append({"rows": already, "microseconds": round(1e4 * (time.perf_counter() - start), 1)})
    start = time.perf_counter()
    metrics.rewind(step)
    return [*found, {"rows": step, "rewind_microseconds": round(1e6 * (time.perf_counter() - start))}]


def store(folder: Path, runs: int) -> list[dict[str, Any]]:
    """Seconds and peak memory of the commands that read a whole store; the first of each kind makes its index."""
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    from made import ARMS, LEVELS, noisy, study

    root = folder / "runs"
    study(root, noisy(LEVELS), seeds=max(1, runs // len(ARMS) // len(BUDGETS)), budgets=BUDGETS)
    found = []
    for words in (["status"], ["status"], ["runs"], ["runs"], ["report", "ablation", "--out", str(folder / "report")]):
        command = [sys.executable, "-m", "workbench", *words, "--runs", str(root)]
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, code, used = os.wait4(process.pid, 0)
        found.append({"command": words[0], "seconds": round(time.perf_counter() - start, 2), "exit_code": code,
                      "processor_seconds": round(used.ru_utime + used.ru_stime, 2),
                      "peak_memory_bytes": 1024 * used.ru_maxrss})  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, default=1000)
    chosen = parser.parse_args()
    result = here()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # The store first: Linux counts the memory of the process that starts a command as the command's own.
        result |= {"runs": chosen.runs, "store": store(folder, chosen.runs)}
        result |= {"training": training(folder), "corpora": corpora(folder), "logging": logging(folder)}
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: result[key] for key in ("training", "corpora", "logging", "store")}, indent=1))


if __name__ == "__main__":
    main()
