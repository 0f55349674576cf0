"""How near to twice as fast do two processes prepare a large text?

    python experiments/benchmarks/prepare_scaling.py OUT.json FILE [--slice 8] [--near-duplicates 0.8]

The file is prepared by one process on one core, and by a command with two workers on two cores, in slices of `--slice`
MB. `efficiency_by_the_clock` is the time of the first over twice that of the second, for a machine that does nothing
else. Other work on the machine changes `efficiency` less: there `alone` is the processor time of one process for
everything, `serial` that of the command beside its two workers, and `shared` that of both workers; by processor time
two workers would take `serial` + `shared` / 2, and `efficiency` is `alone` over twice that. Waiting for memory or the
disk is part of it only if it costs processor time, and training of the vocabulary counts as if it had one core.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from record import here

from workbench.data import preprocessing
from workbench.data.prepare import Prepared, prepare
from workbench.progress import silent
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec

T = TypeVar("T")


def used(who: int) -> float:
    """Return processor time in seconds of this process, or of its children that have ended."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def measured(spec: RunSpec, cache: Path, workers: int, size: int) -> tuple[dict[str, Any], Prepared]:
    """Prepare a text in an empty cache on as many cores as workers; return the times in seconds and the text."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:workers]))
    preprocessing.SLICE = size << 20
    begun, own, others = time.perf_counter(), used(resource.RUSAGE_SELF), used(resource.RUSAGE_CHILDREN)
    prepared = prepare(spec, silent, cache, workers)
    times = {"workers": workers, "own": used(resource.RUSAGE_SELF) - own,
             "others": used(resource.RUSAGE_CHILDREN) - others, "clock": time.perf_counter() - begun,
             "workers_peak_memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}  # fmt: skip
    return times, prepared


def alone(way: Callable[..., T], *arguments: Any) -> T:
    """Return what a function returns in a new process, which counts its own time and has its own threads."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(way, *arguments).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("file")
    parser.add_argument("--slice", type=int, default=8)
    parser.add_argument("--near-duplicates", type=float)
    chosen = parser.parse_args()
    settings = {"data.corpus": chosen.file, "encoder.vocab": 4096, "data.near_duplicates": chosen.near_duplicates}
    spec = resolve("nano", {key: value for key, value in settings.items() if value is not None})
    with tempfile.TemporaryDirectory() as folder:
        (one, text), (two, same) = (alone(measured, spec, Path(folder) / str(n), n, chosen.slice) for n in (1, 2))
    assert text.fingerprint == same.fingerprint
    serial, shared = two["own"], two["others"]
    result = {**here(), "bytes": text.bytes, "documents": text.documents, "removed": dict(text.removed), "one": one,
              "two": two, "alone": one["own"], "serial": serial, "shared": shared,
              "efficiency": round(one["own"] / (2 * (serial + shared / 2)), 3),
              "efficiency_by_the_clock": round(one["clock"] / (2 * two["clock"]), 3)}  # fmt: skip
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
