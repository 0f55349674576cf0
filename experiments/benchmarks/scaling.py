"""How much faster is one run on several devices? Writes one JSON file and prints a table.

    python experiments/benchmarks/scaling.py OUT.json [--devices 1 --devices 2 ...] [--scale small] [--steps 60]

Each row is `workbench run` with so many devices, whole and with --shard: the median speed of the second half of its
steps, the efficiency, which is this speed over that of one device times their number, and the memory of the first
device: the peak that was measured, on a GPU, and the plan's estimate. The batch is the scale's, so that each of more
devices has fewer rows. By default all powers of two up to the number of GPUs. `--tiny` tries the script out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from record import here

from workbench import objectives
from workbench.cli.terminal import table
from workbench.spec.host import Host
from workbench.spec.presets import resolve
from workbench.training.plan import count_parameters, memory

TINY = (
    "encoder.hidden=64", "encoder.layers=2", "encoder.heads=2", "encoder.embedding=64", "encoder.vocab=1000",
    "data.length=32", "batch.size=8",
)  # fmt: skip


def speed(folder: Path, devices: int, shard: bool, chosen: argparse.Namespace, sets: list[str]) -> dict[str, Any]:
    """Return speed and peak memory of a run; in place of these what it said last if it failed."""
    runs = folder / f"{devices}-{shard}"
    words = ["run", "ablation", "--objective", "rtd", "--scale", chosen.scale, "--budget", f"steps={chosen.steps}"]
    words += ["--tasks", "none", "--evaluate-at", "none", "--device", chosen.device, "--devices", devices]
    words += ["--runs", runs, "--out", folder / "report", *(part for each in sets for part in ("--set", each))]
    words += ["--shard"] if shard else []
    done = subprocess.run(
        [sys.executable, "-m", "workbench", *map(str, words)], cwd=folder, capture_output=True, text=True, check=False
    )
    paths = list(runs.glob("rtd-*/metrics.jsonl"))
    if done.returncode or not paths:
        return {"left_out": (done.stderr.strip().splitlines() or ["no metrics"])[-1]}
    rows = [json.loads(line) for line in paths[0].read_text().splitlines()]
    late = [row["tokens_per_second"] for row in rows[len(rows) // 2 :]]
    return {"tokens_per_second": round(statistics.median(late)), "memory_bytes": rows[-1]["device_memory_bytes"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--devices", type=int, action="append")
    parser.add_argument("--scale", default="small")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tiny", action="store_true", help="a tiny model instead, to try this script out")
    chosen = parser.parse_args()
    chosen.device = Host(device=chosen.device).resolved_device()
    most = torch.cuda.device_count() if chosen.device == "cuda" else 2
    counts = chosen.devices or [2**power for power in range(most.bit_length())]
    sets = list(TINY) if chosen.tiny else []
    spec = objectives.with_options(resolve(chosen.scale, dict(each.split("=") for each in sets) | {"objective": "rtd"}))
    found: dict[str, Any] = here(chosen.device) | {"scale": chosen.scale, "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        for devices, shard in [
            (count, shard) for count in counts for shard in ((False, True) if count > 1 else (False,))
        ]:
            row: dict[str, Any] = {"devices": devices, "shard": shard}
            row["planned_bytes"] = memory(spec, count_parameters(spec), devices, shard)
            row |= speed(Path(folder), devices, shard, chosen, sets)
            first = found["rows"][0] if found["rows"] else row
            if "tokens_per_second" in row and first.get("devices") == 1 and "tokens_per_second" in first:
                row["efficiency"] = round(row["tokens_per_second"] / first["tokens_per_second"] / devices, 3)
            found["rows"].append(row)
            chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found["rows"]))


if __name__ == "__main__":
    main()
