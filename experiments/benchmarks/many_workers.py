"""How many runs a second can many workers take and finish, when training takes no time?

    python experiments/benchmarks/many_workers.py OUT.json [--runs 100000] [--workers 64] [--seconds 120]

Runs are planned in a new store as a command does it, and carried out by processes that share them through leases. In
the place of training, each writes the files of a run of one step. The rate is that of the seconds that are given, or
of all runs if they take less. `taken_twice` is the number of runs that were carried out more often than once.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from record import here

from workbench.execution import one_run
from workbench.spec.host import Host
from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import BoundRun, ResolvedSpec
from workbench.store.run_directory import now
from workbench.store.run_store import RunDir, RunStore
from workbench.tasks import Suite
from workbench.tasks.common import contract, fine_tuning

LOADED = (contract, fine_tuning)  # here once, and not by each process

SPEC = RunSpec.model_validate({"budget": {"steps": 1}})
ROW = '{"step": 1, "seconds": 0.1, "loss": 1.0}\n'


def planned(store: RunStore, runs: int) -> list[str]:
    """Open so many runs, which differ in their seeds, and return their ids."""
    bounds = [BoundRun(ResolvedSpec(SPEC.replace(seed=seed))) for seed in range(runs)]
    return [run.run_id for run in store.open_all(bounds)]


def work(store: RunStore, todo: list[str], log: int, end: float) -> None:
    """Take runs until all are done or the time has come, and write a line on each into a log."""

    def pretend(run: RunDir, *_: Any) -> None:
        if time.monotonic() > end:
            os._exit(0)
        run.write("metrics.jsonl", ROW.encode())
        run.write_json("plan.json", {"steps": 1, "tokens": 1.0, "flops": {"paper": 1.0}})
        run.finish({"steps": 1, "tokens": 1.0, "flops": {"paper": 1.0}})
        os.write(log, f"{run.run_id}\n".encode())

    one_run.carry_out = pretend  # type: ignore[assignment]
    wanted = one_run.Wanted(SPEC.tasks, Suite(()), None)
    one_run.carry_out_all(store, todo, wanted, Host(device="cpu"), now())


def carried_out(store: RunStore, todo: list[str], workers: int, seconds: float, log: Path) -> dict[str, Any]:
    """Let so many processes carry out the runs for some time; return how many were finished and how fast."""
    begun = time.monotonic()
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    children = []
    for _ in range(workers):
        pid = os.fork()
        if not pid:
            work(store, todo, file, begun + seconds)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    length = time.monotonic() - begun
    counts = Counter(log.read_text().split())
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"finished": len(counts), "taken_twice": sum(count > 1 for count in counts.values()),
            "seconds": round(length, 1), "runs_per_second": round(len(counts) / length, 1),
            "processor_seconds": round(used.ru_utime + used.ru_stime, 1)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120.0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.out.resolve().parent) as name:
        store = RunStore(Path(name) / "runs")
        begun, used = time.monotonic(), time.process_time()
        todo = planned(store, chosen.runs)
        planning = {"seconds": round(time.monotonic() - begun, 1),
                    "processor_seconds": round(time.process_time() - used, 1)}  # fmt: skip
        result = carried_out(store, todo, chosen.workers, chosen.seconds, Path(name) / "log")
    result = {**here(), "runs": chosen.runs, "workers": chosen.workers, "planning": planning, **result}
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
