"""Ways to fine-tune on the same task, measured in turns A B C A B C, and the options that these benchmarks share.

Each turn has a seed of its own, so that scores are compared beside the noise between seeds.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from workbench.bench.machine import Quiet
from workbench.spec.host import Host


@dataclass(frozen=True)
class Turns:
    """What one side took, medians of seconds by the clock and of the processor, and its score for each seed."""

    seconds: float
    processor: float
    scores: list[float]


def turns(task: str, sides: Mapping[str, Callable[[int], float]], repeats: int) -> tuple[dict[str, Turns], list[str]]:
    """Return the turns of each side, and notes on a busy machine.

    A side is a function that fine-tunes with a seed, the number of the turn, and returns its score.
    """
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in sides}
    quiet = Quiet()
    for seed in range(repeats):
        for name, work in sides.items():
            with quiet.watching(os.getpid()):
                start, used = time.perf_counter(), time.process_time()
                score = work(seed)
                found[name].append((time.perf_counter() - start, time.process_time() - used, score))
            print(task, name, *(f"{value:.2f}" for value in found[name][-1]), file=sys.stderr, flush=True)
    columns = {name: list(zip(*rows, strict=True)) for name, rows in found.items()}
    return {
        name: Turns(statistics.median(clock), statistics.median(used), list(scores))
        for name, (clock, used, scores) in columns.items()
    }, quiet.notes()


def compared(found: Mapping[str, Turns], peer: str, score: str) -> dict[str, dict[str, Any]]:
    """Return the columns of each side: times, how much faster than `peer`, and under the name `score` its mean score.

    `by_seed` are the scores of the turns. `beyond` is the mean score less that of the peer, and `beyond_error` the
    standard error of this difference, None after a single turn.
    """
    of_peer = found[peer]
    return {
        name: {
            "seconds": round(side.seconds, 2), "processor_seconds": round(side.processor, 2),
            score: round(statistics.mean(side.scores), 2), "by_seed": [round(each, 2) for each in side.scores],
            "beyond": round(statistics.mean(side.scores) - statistics.mean(of_peer.scores), 2),
            "beyond_error": _error(side.scores, of_peer.scores),
            "ratio": round(of_peer.seconds / side.seconds, 2),
            "processor_ratio": round(of_peer.processor / side.processor, 2),
        }
        for name, side in found.items()
    }  # fmt: skip


def _error(one: list[float], other: list[float]) -> float | None:
    """Return the standard error of the difference of two means of independent scores."""
    if len(one) < 2:
        return None
    return round(math.sqrt(sum(statistics.variance(scores) / len(scores) for scores in (one, other))), 2)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all of these benchmarks have."""
    parser.add_argument("--encoder", type=Path, help="folder of an ELECTRA encoder in the Hugging Face layout")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each side, each with another seed")
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
