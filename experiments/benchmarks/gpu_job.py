"""A study that takes at most 13 minutes on one GPU, and what comes back of it in a few small files.

    python experiments/benchmarks/gpu_job.py NAME OUT [--corpus FILE] [--seed 0] [--device cpu --tiny]
    python experiments/benchmarks/gpu_job.py --unpack OUT

OUT gets job.json (command, machine, versions), study.tar.xz (the run store without weights) and encoders in bf16, in
parts of at most 16 MiB each; the store itself is in build/gpu-job/NAME, from where the same command goes on. `--unpack`
makes folders of models of what came back, OUT/encoders/RUN, which `workbench evaluate` fine-tunes on a CPU. `--tiny`
rehearses a job: the same command at scale nano, for a few steps. The job `streams` is several commands, and brings
their speeds back (`streams.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import streams
from record import here

LARGEST = 16 << 20  # bytes of one file that comes back
FINE_TUNED = "CoLA,SST-2,MRPC,STS-B,RTE"
JOBS: dict[str, list[str]] = {  # workbench's words; amounts of text are those of one GPU in 13 minutes
    # equal FLOPs by what the products take (`matmul`): 3.5e8 tokens of RTD, 3.75e8 of BERT MLM; one seed a job
    "small-pair": [
        "run", "ablation", "--objective", "rtd", "--objective", "bert-mlm", "--scale", "small",
        "--budget", "tokens=3.5e8", "--set", "generator.width=0.25", "--set", "budget.convention=matmul",
        "--tasks", "none",
    ],
    "generator-width": [
        "sweep", "--objective", "rtd", "--over", "generator.width=0.0625,0.125,0.25,0.5,0.75,1", "--scale", "mini",
        "--budget", "tokens=4.5e7", "--seeds", "4", "--workers", "4", "--tasks", FINE_TUNED,
    ],
    "five-objectives": [
        "run", "ablation", "--scale", "mini", "--budget", "tokens=2.2e7", "--seeds", "8", "--workers", "8",
        "--tasks", FINE_TUNED,
    ],
    "small-rtd": [
        "run", "ablation", "--objective", "rtd", "--scale", "small", "--budget", "tokens=1e9",
        "--set", "generator.width=0.25", "--tasks", "none",
    ],
}  # fmt: skip
TINY = {"--scale": "nano", "--budget": "steps=4", "--seeds": "1", "--workers": "1", "--tasks": "none"}


def words_of(name: str, chosen: argparse.Namespace) -> list[str]:
    """Return the words of a job's command, for its rehearsal with values of TINY in place of the job's."""
    words = list(JOBS[name])
    if chosen.tiny:
        words = [TINY.get(before, word) for before, word in zip(["", *words[:-1]], words, strict=True)]
        words += ["--set", "batch.size=8"]
    words += ["--device", chosen.device, "--runs", str(store_of(name, chosen)), "--out", f"build/gpu-job/{name}/report"]
    words += ["--corpus", str(chosen.corpus)] if chosen.corpus else []
    words += ["--set", f"tasks.glue={chosen.glue}"] if chosen.glue and not chosen.tiny else []
    return words if "--seeds" in words else [*words, "--set", f"seed={chosen.seed}"]


def store_of(name: str, chosen: argparse.Namespace) -> Path:
    """Return the folder of a job's runs, which stays on the machine, since it is too large to come back."""
    return Path("build/gpu-job") / name / ("rehearsal" if chosen.tiny else "runs")


def pack(runs: Path, out: Path, encoders: bool) -> None:
    """Write what comes back: the store without weights and, with `encoders`, those of all trained runs."""

    def without_weights(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        heavy = entry.name.endswith((".safetensors", ".pt")) or "/checkpoints" in entry.name
        return None if heavy else entry

    with tarfile.open(out / "study.tar.xz", "w:xz") as archive:
        archive.add(runs, "runs", filter=without_weights)
    for path in sorted(runs.glob("*/encoder/model.safetensors")) if encoders else []:
        run = path.parents[1].name
        if not run.startswith("untrained"):
            halve(path, out / run)


def halve(weights: Path, target: Path) -> None:
    """Write weights in bf16 to files TARGET-1.safetensors and so on, each below LARGEST."""
    import torch
    from safetensors.torch import load_file, save_file

    parts: list[dict[str, torch.Tensor]] = [{}]
    room = LARGEST - (1 << 16)  # without the header
    for name, tensor in load_file(weights).items():
        part = tensor.to(torch.bfloat16)
        if parts[-1] and sum(each.nbytes for each in parts[-1].values()) + part.nbytes > room:
            parts.append({})
        parts[-1][name] = part
    for number, each in enumerate(parts, start=1):
        save_file(each, f"{target}-{number}.safetensors")


def unpack(out: Path) -> list[Path]:
    """Make the folders of models OUT/encoders/RUN of what came back, in fp32, and return them."""
    from safetensors.torch import load_file, save_file

    with tarfile.open(out / "study.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
        archive.extractall(out / "unpacked")
    folders = []
    for first in sorted(out.glob("*-1.safetensors")):
        run = first.name.removesuffix("-1.safetensors")
        folder = out / "encoders" / run
        shutil.copytree(out / "unpacked/runs" / run / "encoder", folder, dirs_exist_ok=True)
        parts = sorted(out.glob(f"{run}-*.safetensors"))
        whole = {name: tensor.float() for part in parts for name, tensor in load_file(part).items()}
        save_file(whole, folder / "model.safetensors", {"format": "pt"})
        folders.append(folder)
    return folders


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=[*JOBS, "streams"], nargs="?")
    parser.add_argument("out", type=Path)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--glue", type=Path, help="folder of GLUE, for jobs that are scored on the device")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--unpack", action="store_true")
    chosen = parser.parse_args()
    if chosen.unpack == (chosen.name is not None):
        parser.error("give the name of a job and a folder, or --unpack and a folder")
    if chosen.unpack:
        print(*unpack(chosen.out), sep="\n")
        return
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.name == "streams":
        work = Path("build/gpu-job/streams") / ("rehearsal" if chosen.tiny else "runs")
        sys.exit(streams.measure(chosen.out, work, chosen.device, chosen.tiny, chosen.corpus))
    words, begun = words_of(chosen.name, chosen), time.monotonic()
    code = subprocess.run([sys.executable, "-m", "workbench", *words], check=False, env=os.environ).returncode
    facts = here(chosen.device) | {"job": chosen.name, "words": words, "code": code}
    (chosen.out / "job.json").write_text(json.dumps(facts | {"seconds": time.monotonic() - begun}, indent=1) + "\n")
    if (runs := store_of(chosen.name, chosen)).is_dir():
        pack(runs, chosen.out, encoders=FINE_TUNED not in JOBS[chosen.name])  # the others are scored there
    sys.exit(code)


if __name__ == "__main__":
    main()
