"""How fast does a run train beside other busy processes, next to its fair share of the processor?

    python experiments/benchmarks/busy.py OUT.json [--loops 4] [--seconds 8] [--repeats 3] [--precision fp32]

Contenders are the same run (BERT MLM, 4 layers of 128, 64 rows of 64 tokens) in processes of their own: `ours`,
`spinning` threads, which is the same without `cpu.share_cores`, `sleeping` ones (OMP_WAIT_POLICY=passive), and
`one` thread. They take turns, on the quiet machine first and then beside processes that do nothing but compute. Beside
l such loops each of t threads is due 1 / (t + l) of the cores, and the fair share of the speed is that part of what
`spinning`, or `one`, reached on the quiet machine; `share` is the median speed over it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peers import spec_of
from record import here

from workbench.bench.turns import Worker
from workbench.cli.terminal import table
from workbench.spec.host import Host, cores

CONTENDERS = ("ours", "spinning", "sleeping", "one")
UNSHARED = (
    "import runpy; from workbench import cpu; cpu.share_cores = lambda: None; "
    "runpy.run_module('workbench.bench.turns', run_name='__main__')"
)


@contextmanager
def beside(loops: int) -> Iterator[None]:
    """So many processes that compute without end run inside the block."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def contender(name: str, precision: str, seconds: float) -> Worker:
    """Return a process that trains with this kind of waiting; OpenMP reads its setting as torch loads."""
    os.environ.pop("OMP_WAIT_POLICY", None)
    if name == "sleeping":
        os.environ["OMP_WAIT_POLICY"] = "passive"
    threads = 1 if name == "one" else cores()
    host = Host(device="cpu", precision=precision, threads=threads)  # type: ignore[arg-type]
    hello = {
        "name": name, "host": asdict(host), "spec": spec_of("T", "bert-mlm").model_dump(mode="json"), "files": {},
        "seconds": seconds, "steps": None,
    }  # fmt: skip
    return Worker(hello, *(() if name == "ours" else ("-c", UNSHARED)))


def measured(workers: dict[str, Worker], repeats: int, loops: int) -> dict[str, list[int]]:
    """Tokens per second of each contender in every turn."""
    speeds: dict[str, list[int]] = {name: [] for name in workers}
    with beside(loops):
        for _ in range(repeats):
            for name, worker in workers.items():
                speeds[name].append(round(worker.turn("time")["tokens_per_second"]))
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--loops", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    chosen = parser.parse_args()
    machine = here(threads=cores())
    workers = {name: contender(name, chosen.precision, chosen.seconds) for name in CONTENDERS}
    quiet = measured(workers, chosen.repeats, 0)
    busy = measured(workers, chosen.repeats, chosen.loops)
    for worker in workers.values():
        worker.close()
    found: dict[str, Any] = {}
    for name in CONTENDERS:
        threads = 1 if name == "one" else cores()
        fair = min(1.0, cores() / (threads + chosen.loops))
        alone = statistics.median(quiet["one" if name == "one" else "spinning"])
        found[name] = {
            "quiet_tokens_per_second": quiet[name], "busy_tokens_per_second": busy[name],
            "quiet_ratio": round(statistics.median(quiet[name]) / alone, 3), "fair_share": round(fair, 3),
            "share": round(statistics.median(busy[name]) / alone / fair, 2),
        }  # fmt: skip
    result = machine | {
        "loops": chosen.loops, "precision": chosen.precision, "cores": cores(), "contenders": found,
    }  # fmt: skip
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table([{
        "threads": name, "tokens/s, quiet": round(statistics.median(quiet[name])),
        "of spinning": found[name]["quiet_ratio"], f"beside {chosen.loops}": round(statistics.median(busy[name])),
        "of the fair share": found[name]["share"],
    } for name in CONTENDERS]))  # fmt: skip


if __name__ == "__main__":
    main()
