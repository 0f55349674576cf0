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
from workbench.data import tokenizer
from workbench.models.encoder import build_encoder
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.spec.presets import resolve

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"encoder.hidden": 128, "encoder.layers": 4, "encoder.embedding": 128, "encoder.init": 0.05},
    "small": {},  # ELECTRA-Small: 12 layers of 256
}


@dataclass(frozen=True)
class Turns:
    """What one side took, medians of seconds by the clock and of the processor, and its score for each seed."""

    seconds: float
    processor: float
    scores: list[float]


def measured(
    task: str, sides: Mapping[str, Callable[[int], float]], chosen: argparse.Namespace, score: str,
    facts: Mapping[str, Any],
) -> list[dict[str, Any]]:  # fmt: skip
    """Return a row for each side after turns A B C A B C, of those that the options choose, with `facts` in each.

    A side is a function that fine-tunes with a seed and returns its score, which has the name `score` in the rows.
    Ours is the first, and the others are compared with the second.
    """
    timed = chosen_sides(sides, chosen.peer)
    found, notes = turns(task, timed, chosen.repeats)
    rows = compared(found, list(timed)[1], score)
    return [{"peer": name, "task": task, **facts, "noise": notes, **row} for name, row in rows.items()]


def rates(rows: list[dict[str, Any]], what: str, count: float) -> list[dict[str, Any]]:
    """Return the rows with the number of `what` that each side gets through in a second, of `count` in all."""
    return [row | {f"{what}_per_second": round(count / row["seconds"], 1)} for row in rows]


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


def untrained(folder: Path, texts: list[str], positions: int, size: str) -> Path:
    """Write an encoder of a size with its initial weights and a vocabulary of these texts, and return its folder."""
    trained = tokenizer.train(texts, 4096)
    tokenizer.save(trained, folder, True)
    sizes = SIZES[size] | {"encoder.positions": positions, "encoder.vocab": tokenizer.size(trained)}
    build_encoder(resolve("small", sizes)).save(folder)
    return folder


def trainer_arguments(folder: str, spec: TasksSpec, host: Host, seed: int, epochs: float) -> Any:
    """Return the Trainer's arguments with our settings, and its defaults for all else, as the examples have them."""
    from transformers import TrainingArguments

    return TrainingArguments(
        output_dir=folder, num_train_epochs=epochs, per_device_train_batch_size=spec.batch,
        per_device_eval_batch_size=spec.batch, learning_rate=spec.lr, warmup_steps=spec.warmup, report_to=[],
        save_strategy="no", disable_tqdm=True, bf16=host.resolved_precision() == "bf16", log_level="error",
        use_cpu=host.resolved_device() == "cpu", logging_strategy="no", seed=seed,
    )  # fmt: skip


def encoder_name(chosen: argparse.Namespace) -> str:
    """Return the name of the encoder of these options, for the result."""
    return chosen.encoder.name if chosen.encoder else f"untrained, {chosen.size}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all of these benchmarks have."""
    parser.add_argument("--encoder", type=Path, help="folder of an encoder in the Hugging Face layout")
    parser.add_argument("--size", choices=list(SIZES), default="tiny", help="of the encoder without --encoder")
    parser.add_argument("--peer", action="append", help="time these sides beside ours alone; the first is compared to")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3, help="turns of each side, each with another seed")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="fp32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)


def chosen_sides(
    sides: Mapping[str, Callable[[int], float]], peers: list[str] | None
) -> dict[str, Callable[[int], float]]:
    """Return the first of `sides`, ours, and those of `peers`, all by default. Exits if one is unknown."""
    ours, *others = sides
    if unknown := set(peers or ()) - set(others):
        raise SystemExit(f"--peer {min(unknown)} is none of {', '.join(others)}")
    return {name: sides[name] for name in (ours, *(peers or others))}


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
