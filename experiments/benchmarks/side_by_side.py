"""Ways to fine-tune on the same task, measured in turns A B C A B C, and the options that these benchmarks share."""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from workbench.bench.machine import Quiet
from workbench.spec.host import Host


def turns(
    task: str, sides: Mapping[str, Callable[[], float]], repeats: int
) -> tuple[dict[str, tuple[float, float, float]], list[str]]:
    """Return the medians of each side: seconds, seconds of the processor, and the score; and notes on a busy machine.

    A side is a function that fine-tunes and returns its score.
    """
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in sides}
    quiet = Quiet()
    for _ in range(repeats):
        for name, work in sides.items():
            with quiet.watching(os.getpid()):
                start, used = time.perf_counter(), time.process_time()
                score = work()
                found[name].append((time.perf_counter() - start, time.process_time() - used, score))
            print(task, name, *(f"{value:.2f}" for value in found[name][-1]), file=sys.stderr, flush=True)
    columns = {name: zip(*rows, strict=True) for name, rows in found.items()}
    medians = {name: tuple(map(statistics.median, each)) for name, each in columns.items()}
    return medians, quiet.notes()


def compared(medians: Mapping[str, tuple[float, float, float]], peer: str, score: str) -> dict[str, dict[str, float]]:
    """Return the columns of each side: times, its score under the name `score`, and how much faster than `peer`."""
    of_peer = medians[peer]
    return {
        name: {
            "seconds": round(seconds, 2), "processor_seconds": round(used, 2), score: round(value, 2),
            "ratio": round(of_peer[0] / seconds, 2), "processor_ratio": round(of_peer[1] / used, 2),
        }
        for name, (seconds, used, value) in medians.items()
    }  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all of these benchmarks have."""
    parser.add_argument("--encoder", type=Path, help="folder of an ELECTRA encoder in the Hugging Face layout")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="fp32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)


def host_of(chosen: argparse.Namespace) -> Host:
    """Return the host of these options, and prepare this process."""
    logging.disable(logging.WARNING)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    return Host(device=chosen.device, precision=chosen.precision, threads=chosen.threads)


def write(out: Path, result: Mapping[str, Any]) -> None:
    """Write a result, and print its rows."""
    out.write_text(json.dumps(result, indent=1) + "\n")
    for row in result["rows"]:
        print({key: row[key] for key in row if key != "noise"})
