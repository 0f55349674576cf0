"""How long until something happens? Seconds from a command to its answer, or to the first step of training.

    python experiments/benchmarks/start.py OUT.json [--repeats 5]

Each is a process of its own, timed from its start. The first step is that of `workbench run ablation` on data that is
prepared already, seen by its row in metrics.jsonl, with a checkpoint due after it; the two imports are for comparison.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from record import here

WORKBENCH = [sys.executable, "-m", "workbench"]
RUN = [*WORKBENCH, "run", "ablation", "--objective", "rtd", "--tasks", "none", "--save-every", "1"]


def ended(command: list[str]) -> Callable[[], float]:
    """Times a command from its start to its end."""

    def seconds() -> float:
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.perf_counter() - start

    return seconds


def first_step(words: list[str]) -> float:
    """Seconds from the start of the command to the first row of metrics in a new store."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        process = subprocess.Popen([*RUN, *words, "--runs", folder], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while not any(path.stat().st_size for path in Path(folder).glob("*/metrics.jsonl")):
            if process.poll() is not None:
                raise SystemExit(f"no step was made: {process.communicate()[1].decode()}")
            time.sleep(0.002)
        took = time.perf_counter() - start
        process.terminate()
        process.communicate()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    result = here()
    with tempfile.TemporaryDirectory() as store:
        ended([*RUN, "--budget", "steps=1", "--runs", store])()
        things: dict[str, Callable[[], float]] = {
            "workbench --help": ended([*WORKBENCH, "--help"]),
            "workbench status": ended([*WORKBENCH, "status", "--runs", store]),
            "first step, nano": lambda: first_step(["--scale", "nano", "--budget", "steps=1000"]),
            "first step, small": lambda: first_step(["--scale", "small", "--budget", "steps=1000"]),
            "import torch": ended([sys.executable, "-c", "import torch"]),
            "import torch, transformers.ElectraModel": ended(
                [sys.executable, "-c", "import torch; from transformers import ElectraModel"]
            ),
        }
        first = {name: work() for name, work in things.items()}  # prepares data and compiles, where that is to do
        turns: dict[str, list[float]] = {name: [] for name in things}
        for _ in range(chosen.repeats):
            for name, work in things.items():
                turns[name].append(work())
    result["rows"] = [
        {"what": name, "seconds": round(statistics.median(found), 3), "first": round(first[name], 3),
         "turns": [round(value, 3) for value in found]}
        for name, found in turns.items()
    ]  # fmt: skip
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    for row in result["rows"]:
        print(row)


if __name__ == "__main__":
    main()
