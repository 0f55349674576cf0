"""Writes the fixture of a format: `python tests/make_old_store.py`. Run once a format, and keep what it wrote.

The store under tests/fixtures/store-N holds a run that is done and scored, one that was killed past its first
checkpoint, and their record, as the command of that day left them; only the exported
weights and all but the last checkpoint are left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from drills.small import environment, write_table, write_text

from workbench.store import manifest
from workbench.store.atomic import sealed

HERE = Path(__file__).parent
FORMAT = 2
SIZES = (
    "encoder.hidden=8", "encoder.layers=1", "encoder.heads=1", "encoder.vocab=120", "encoder.positions=16",
    "data.length=16", "batch.size=4", "generator.width=0.5", "optim.lr=1e-3", "tasks.seeds=1", "tasks.epochs=1",
    # What nano was when the fixture was made; a scale may change, old runs may not.
    "encoder.init=0.12", "encoder.position_init=sinusoidal", "encoder.dropout=0", "encoder.attention_dropout=0",
    "corruption.rate=0.3", "corruption.generator_mask=1", "corruption.generator_random=0", "tasks.lr=2e-3",
    "tasks.layer_decay=0.9", "tasks.length=64", "tasks.dropout=0.1",
    "budget.convention=paper",
)  # fmt: skip


def words(text: Path, table: Path, runs: Path, objective: str) -> list[str]:
    """The command whose runs the fixture holds."""
    given = ["run", "ablation", "--objective", objective, "--corpus", text, "--tasks", table, "--budget", "steps=6"]
    given += ["--set", "options.weight=50"] if objective == "rtd" else []  # nano's own may change too
    given += ["--save-every", 2, "--threads", 1, "--runs", runs, "--out", runs.parent / "report"]
    return [str(word) for word in [*given, *(part for each in SIZES for part in ("--set", each))]]


def resealed(path: Path, **changes: Any) -> bytes:
    """The content of a file of JSON with these keys changed, and its hash of itself."""
    content = {key: value for key, value in json.loads(path.read_text()).items() if key != "content_sha256"}
    return sealed(content | changes)


def main() -> None:
    target = HERE / "fixtures" / f"store-{FORMAT}"
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)  # so that the record names its files without their folder
        folder = Path()
        text, table, runs = write_text(folder / "small.txt"), write_table(folder / "animals.csv"), folder / "runs"
        for objective in ("bert-mlm", "rtd"):
            command = [sys.executable, "-m", "workbench", *words(text, table, runs, objective)]
            process = subprocess.Popen(command, env=environment(Path("cache").absolute()))
            while process.poll() is None:
                if objective == "rtd" and list(runs.glob("rtd-*/checkpoints/step-00000004")):
                    process.kill()
                time.sleep(0.0005)
        killed = next(runs.glob("rtd-*"))
        assert not (killed / "done.json").exists(), "the command was faster; once more"
        for path in [
            *runs.glob("*/encoder"),
            *runs.glob("*/heads"),
            *runs.glob("*/predictions"),
            *runs.glob("bert*/checkpoints"),
            *killed.glob("lease"),
            *runs.glob("*/.*"),
        ]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in runs.glob("*/env.json"):  # the machine is nobody's business
            private = {"machine": {}, "git": None, "command": ["workbench", "run"]}
            path.write_bytes(content := resealed(path, **private))
            if (listed := path.with_name("manifest.json")).exists():
                files = json.loads(listed.read_text())["files"] | {path.name: manifest.entry(content)}
                listed.write_bytes(resealed(listed, files=files))
        shutil.copytree(runs, target)


if __name__ == "__main__":
    main()
