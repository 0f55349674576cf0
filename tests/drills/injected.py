"""Kills at the N-th rename, fsync, unlink or write of a command, which `strace --inject` brings about.

Random instants seldom fall between two system calls that belong together; these kills fall on each of them in turn.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .small import carry_out, curve, environment, preload, run_words, scores_of, weights, write_table, write_text

CALLS = {
    "rename": "rename,renameat,renameat2",
    "fsync": "fsync,fdatasync",
    "unlink": "unlink,unlinkat,rmdir",
    "write": "write,pwrite64,writev",
}
PHASES = ("preparing", "training", "scoring", "reporting")


@dataclass(frozen=True)
class Place:
    """The folders of one attempt."""

    folder: Path

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def words(self, phase: str, text: Path, table: Path) -> list[str]:
        """The command of a phase, or the one that comes after everything before it."""
        if phase == "preparing":
            return ["data", "prepare", "--corpus", str(text), "--set", "encoder.vocab=300", "--set", "data.length=32"]
        if phase == "reporting":
            return ["report", "ablation", "--runs", str(self.runs), "--out", str(self.folder / "report")]
        tasks = "none" if phase == "training" else table
        return [*run_words(text, "rtd", self.runs, steps=14, tasks=tasks), "--out", str(self.folder / "report")]


def killed_at_calls(folder: Path, count: int) -> str:
    """Kill each phase at `count` calls of each kind; the same commands then end as if nothing had happened."""
    if not shutil.which("strace"):
        raise PermissionError("strace, which brings the kills about, is not installed")
    preload()
    text, table, draw = write_text(folder / "small.txt"), write_table(folder / "animals.csv"), random.Random(count)
    whole = Place(folder / "whole")
    stages: dict[str, Place] = {}
    for phase in PHASES:  # what a phase begins with is what the one before it left
        stages[phase] = Place(folder / f"before-{phase}")
        shutil.copytree(whole.folder, stages[phase].folder) if whole.folder.exists() else whole.folder.mkdir()
        carry_out(whole.words(phase, text, table), whole.folder, whole.cache)  # a fork, with the libraries loaded
    kills = tries = 0
    for phase in PHASES:
        for kind, calls in CALLS.items():
            seen = counted(stages[phase], phase, calls, folder, text, table)
            for number in sorted(draw.sample(range(1, seen + 1), min(count, seen))):
                place = anew(stages[phase], folder / "attempt")
                command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}"]
                command += ["-e", f"inject={calls}:signal=SIGKILL:when={number}"]
                found = started(place, place.words(phase, text, table), command)
                for later in PHASES[PHASES.index(phase) :]:
                    carry_out(place.words(later, text, table), place.folder, place.cache)
                same(place, whole, f"{phase}, killed at {kind} {number} of {seen}")
                kills += found.returncode != 0  # with fewer such calls than last time the command came to its end
                tries += 1
    assert kills >= 0.75 * tries, f"only {kills} of {tries} commands were killed"
    rest = f", {tries - kills} others made fewer such calls and ended" if kills < tries else ""
    return f"{kills} kills at calls in {', '.join(PHASES)}{rest}: all ended as undisturbed"


def counted(stage: Place, phase: str, calls: str, folder: Path, text: Path, table: Path) -> int:
    """Return how many of these calls the thread of a phase that makes most of them makes: strace counts by thread."""
    place, log = anew(stage, folder / "counted"), folder / "calls"
    started(place, place.words(phase, text, table), ["strace", "-f", "-qq", "-o", str(log), "-e", f"trace={calls}"])
    threads = re.findall(r"^(\d+) +\w+\(", log.read_text(errors="replace"), flags=re.MULTILINE)
    return max(Counter(threads).values(), default=0)


def anew(stage: Place, folder: Path) -> Place:
    """A copy of what a phase begins with."""
    shutil.rmtree(folder, ignore_errors=True)
    if stage.folder.exists():
        shutil.copytree(stage.folder, folder)
    else:
        folder.mkdir()
    return Place(folder)


def started(place: Place, words: Sequence[str], before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, "-m", "workbench", *words], cwd=place.folder, env=environment(place.cache),
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


def same(place: Place, whole: Place, what: str) -> None:
    """Curve, weights and scores are those of the undisturbed command."""
    assert curve(place.runs) == curve(whole.runs), f"{what}: another curve"
    assert weights(place.runs) == weights(whole.runs), f"{what}: other weights"
    assert scores_of(place.runs) == scores_of(whole.runs), f"{what}: other scores"
