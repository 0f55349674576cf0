"""What does a study of ten thousand runs cost to list and to report, and one of 24 runs?

    workbench run ablation --scale nano --budget steps=200 --tasks pairs --seeds 1 --runs small
    python experiments/benchmarks/study_size.py small OUT.json [--runs 24 10500] [--folder FOLDER]

The runs of one seed of a small store, which were really trained and scored, are copied under other seeds: with every
file and hash that a run has, and with scores that scatter. Weights are hard links, so that the copies take little disk,
and are read and hashed like any others. Commands are timed as processes, with their peak memory; of a report, the sizes
of its page and of all its files are recorded too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from record import here

from workbench.spec.stages import BoundRun
from workbench.store import manifest
from workbench.store.atomic import sealed
from workbench.store.run_store import RunDir, RunStore

SEALED = ("done.json", "env.json", "plan.json", "wanted.json")
SCATTER = 0.5  # points between seeds


def study(small: RunStore, root: Path, runs: int) -> int:
    """Make a store of about so many copies of the runs of the only record of a small store; return their number."""
    [record] = small.experiments()
    seeds = {run_id: small.get(run_id).spec().seed for run_id in (*record.runs, *record.untrained)}
    own = [run_id for run_id, seed in seeds.items() if seed == min(seeds.values())]
    big = RunStore(root)
    names = {run_id: [copied(small.get(run_id), big, seed) for seed in range(runs // len(own))] for run_id in own}
    trained = [name for run_id in record.runs for name in names.get(run_id, ())]
    untrained = [name for run_id in record.untrained for name in names.get(run_id, ())]
    contrasts = [{**each, "runs_a": [], "runs_b": []} for each in record.contrasts]
    big.extend_experiment(dataclasses.replace(record, runs=trained, untrained=untrained, contrasts=contrasts))
    return len(trained) + len(untrained)


def copied(run: RunDir, store: RunStore, seed: int) -> str:
    """Copy a finished run under another seed, and return its name."""
    spec = BoundRun(run.spec().model_copy(update={"seed": seed}))
    copy = store.root / spec.run_id
    copy.mkdir()
    listed = manifest.read(run.path) or {}
    raw = run.read_json("spec.json")
    files = {"spec.json": sealed({**raw, **identity(spec)})}
    for name in listed:
        if name in SEALED or name.startswith("scores/"):
            content = {**run.read_json(name), "run_id": spec.run_id}
            files[name] = sealed(scattered(content, seed) if "/" in name else content)
    for name, data in files.items():
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_bytes(data)
    for name in listed.keys() - files.keys():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        os.link(run.path / name, copy / name)
    entries = listed | {name: manifest.entry(data) for name, data in files.items()}
    (copy / manifest.NAME).write_bytes(sealed(manifest.content(spec.run_id, entries)))
    return spec.run_id


def identity(bound: BoundRun) -> dict[str, Any]:
    """Return the fields of spec.json that depend on the spec."""
    from workbench.spec.run_spec import digest

    spec = bound.spec.model_dump(mode="json")
    shas = {"identity_sha": digest(bound.spec.identity(), 64), "spec_sha": digest(spec, 64)}
    return {"run_id": bound.run_id, "spec": spec, **shas}


def scattered(score: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return a score with another value, in all places where it stands."""
    value = score["value"] + random.Random(f"{score['encoder']}/{seed}").gauss(0, SCATTER)
    values = {split: {m: value if v == score["value"] else v for m, v in part.items()}
              for split, part in score["values"].items()}  # fmt: skip
    return {**score, "value": value, "values": values}


def timed(words: list[str]) -> dict[str, Any]:
    """Run a command of workbench and return its time by the clock and of the processor, and its peak memory."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "workbench", *words], stdout=subprocess.DEVNULL)
    _, code, used = os.wait4(process.pid, 0)
    return {"command": words[0], "seconds": round(time.perf_counter() - start, 1), "exit_code": code,
            "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
            "peak_memory_bytes": 1024 * used.ru_maxrss}  # fmt: skip


def sizes(folder: Path) -> dict[str, int]:
    """Return the bytes of the page of a report, and of all its files."""
    return {"page_bytes": (folder / "index.html").stat().st_size,
            "all_bytes": sum(path.stat().st_size for path in folder.iterdir())}  # fmt: skip


def measured(small: RunStore, folder: Path, runs: int) -> dict[str, Any]:
    """Return what the commands on a study of so many runs cost; the store is made in the folder if it is not there."""
    root = folder / f"runs-{runs}"
    made = study(small, root, runs) if not root.exists() else len(RunStore.existing(root).runs())
    [record] = small.experiments()
    commands = [timed([*words, "--runs", str(root)]) for words in (["status"], ["status"], ["runs"], ["runs"])]
    for more in ([], ["--no-verify"]):
        out = folder / f"report-{runs}"
        cost = timed(["report", record.name, "--out", str(out), *more, "--runs", str(root)])
        commands.append({**cost, "verify": not more, **sizes(out)})
    return {"runs": made, "commands": commands}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("small", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, nargs="+", default=[24, 10_500])
    parser.add_argument("--folder", type=Path, help="where stores are made and kept, on the disk of the small one")
    chosen = parser.parse_args()
    small = RunStore.existing(chosen.small)
    with tempfile.TemporaryDirectory(dir=chosen.small.resolve().parent) as name:
        folder = chosen.folder or Path(name)
        folder.mkdir(exist_ok=True)
        studies = [measured(small, folder, runs) for runs in chosen.runs]
    result = {**here(), "studies": studies}
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
