"""Several runs of RTD in one process (--streams), beside the same runs one after the other. Part of `gpu_job.py`.

    make gpu-job NAME=streams [GPU_ARGS="--device cpu --tiny"]

writes streams.json: for each scale, and for recorded and compiled steps, eight seeds one after the other, then four and
eight of them together. Each command is a process of its own. A row has

seconds            of the whole command, with its start, and its compiling
tokens_per_second  of all runs at a time: the median of each run over the second half of its steps, summed where runs
                   train together, averaged where they train one after the other, which is the speed of a run alone
gain               this speed over that of a run alone, which is 1 if runs together are no faster
same_bits          whether every encoder is, bit for bit, the one that was trained alone
"""

from __future__ import annotations

import hashlib
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from record import here

SCALES, SEEDS, TOGETHER, STEPS = ("micro", "mini"), 8, (4, 8), 2000


def measure(out: Path, work: Path, device: str, tiny: bool, corpus: Path | None) -> int:
    """Carry out the commands, write streams.json after each, and return the exit code of the last that failed, or 0."""
    found: dict[str, Any] = here(device) | {"rows": []}
    scales, seeds, counts = (("nano",), 3, (2, 3)) if tiny else (SCALES, SEEDS, TOGETHER)
    failed = 0
    for compiled in (False,) if tiny else (False, True):
        for scale in scales:
            alone: dict[str, Any] = {}
            for count in (1, *counts):
                store = work / f"{scale}-{'compiled' if compiled else 'recorded'}-{count}"
                words = ["run", "ablation", "--objective", "rtd", "--scale", scale, "--tasks", "none"]
                words += [
                    "--budget",
                    "steps=8" if tiny else f"steps={STEPS}",
                    "--seeds",
                    str(count if count > 1 else seeds),
                ]
                words += ["--streams", str(count), "--device", device, "--runs", str(store), "--out", f"{store}-report"]
                words += ["--compile"] if compiled else []
                words += ["--corpus", str(corpus)] if corpus else []
                words += ["--set", "batch.size=8"] if tiny else []
                begun = time.monotonic()
                code = subprocess.run([sys.executable, "-m", "workbench", *words], check=False).returncode
                row = {"scale": scale, "compiled": compiled, "together": count, "seconds": time.monotonic() - begun}
                row |= {"words": words, "code": code}
                if code:
                    failed = code
                else:
                    row |= compared(store, count, alone)
                found["rows"].append(row)
                (out / "streams.json").write_text(json.dumps(found, indent=1) + "\n")
    return failed


def compared(store: Path, count: int, alone: dict[str, Any]) -> dict[str, Any]:
    """Return the speed of a store's runs and, if they trained together, what it is beside those that trained `alone`.

    `alone` holds the speed and the hashes of the latter, by the names of runs.
    """
    speeds, hashes = [], {}
    for run in sorted(path.parent for path in store.glob("rtd-*/done.json")):
        rows = [json.loads(line)["tokens_per_second"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        speeds.append(statistics.median(rows[len(rows) // 2 :]))
        hashes[run.name] = hashlib.sha256((run / "encoder/model.safetensors").read_bytes()).hexdigest()
    if count == 1:
        alone |= {"speed": statistics.mean(speeds), "hashes": hashes}
        return {"tokens_per_second": alone["speed"]}
    same = all(alone.get("hashes", {}).get(name) == each for name, each in hashes.items())
    gain = sum(speeds) / alone["speed"] if alone else None
    return {"tokens_per_second": sum(speeds), "gain": gain, "same_bits": same}
