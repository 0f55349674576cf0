"""What does growth cost? Rows of ever larger corpora, a log of ever more rows, and stores of a thousand runs.

    python experiments/benchmarks/growth.py OUT.json [--runs 1000]

Corpora are sparse files, so ten billion tokens take no disk. The store is made up, as tests make theirs: it needs the
`tests` folder of a checkout. Commands are timed as processes, with their peak memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from workbench.bench.machine import peak_memory
from workbench.bench.turns import made_up
from workbench.data.corpus import Corpus
from workbench.environment import environment
from workbench.presets import resolve
from workbench.tracking import Metrics

ROOT = Path(__file__).parents[2]
BUDGETS = (100, 200, 400, 800)  # steps, which are rows in metrics.jsonl


def corpora(folder: Path) -> list[dict[str, Any]]:
    """Seconds of 2,000 batches of 32 rows from 10^6 to 10^10 tokens, and the memory that this process came to."""
    found = []
    for power in (6, 7, 8, 9, 10):
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
    """Seconds and peak memory of the commands that read a whole store."""
    sys.path.insert(0, str(ROOT / "tests" / "report"))
    from made import ARMS, LEVELS, noisy, study

    root = folder / "runs"
    study(root, noisy(LEVELS), seeds=max(1, runs // len(ARMS) // len(BUDGETS)), budgets=BUDGETS)
    found = []
    for words in (["status"], ["runs"], ["report", "ablation", "--out", str(folder / "report")]):
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
    facts = environment(["growth.py", *(Path(word).name if "/" in word else word for word in sys.argv[1:])])
    result: dict[str, Any] = {name: facts[name] for name in ("command", "machine", "versions", "git", "started")}
    result["load"] = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result |= {"corpora": corpora(folder), "logging": logging(folder), "runs": chosen.runs,
                   "store": store(folder, chosen.runs)}  # fmt: skip
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: result[key] for key in ("corpora", "logging", "store")}, indent=1))


if __name__ == "__main__":
    main()
