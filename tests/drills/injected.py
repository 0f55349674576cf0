"""Kills at the N-th rename, fsync, unlink or write of a command, which `strace --inject` brings about.

Random instants seldom fall between two system calls that belong together; these kills fall on each of them in turn.
"""

from __future__ import annotations

import ctypes
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

from .small import carry_out, curve, fork, preload, run_words, scores_of, weights, write_table, write_text

CALLS = {
    "rename": "rename,renameat,renameat2",
    "fsync": "fsync,fdatasync",
    "unlink": "unlink,unlinkat,rmdir",
    "write": "write,pwrite64,writev",
}


def killed_at_calls(folder: Path, count: int) -> str:
    """Kill each phase at `count` calls of each kind; the same commands then end as if nothing had happened."""
    if not shutil.which("strace"):
        raise PermissionError("strace, which brings the kills about, is not installed")
    preload()
    text, table, draw = write_text(folder / "small.txt"), write_table(folder / "animals.csv"), random.Random(count)
    sizes = ["--set", "encoder.vocab=300", "--set", "data.length=32"]
    commands = {
        "preparing": ["data", "prepare", "--corpus", str(text), *sizes],
        "training": run_words(text, "rtd", Path("runs"), steps=14),
        "scoring": run_words(text, "rtd", Path("runs"), steps=14, tasks=table),
        "reporting": ["report", "ablation", "--runs", "runs", "--out", "report"],
    }
    whole, attempt = folder / "whole", folder / "attempt"
    whole.mkdir()
    for phase, command in commands.items():  # what a phase begins with is what the one before it left
        shutil.copytree(whole, folder / phase)
        carry_out(command, whole, whole / "cache")
    kills = tries = 0
    for phase, command in commands.items():
        shutil.copytree(folder / phase, attempt)
        log = folder / "calls"
        traced(command, attempt, "-o", str(log), "-e", f"trace={','.join(CALLS.values())}")
        made = Counter(re.findall(r"^(\d+) +(\w+)\(", log.read_text(errors="replace"), flags=re.MULTILINE))
        for kind, calls in CALLS.items():
            by_thread: Counter[str] = Counter()
            for (thread, call), number in made.items():
                by_thread[thread] += number if call in calls.split(",") else 0
            seen = max(by_thread.values())  # strace counts by thread
            for number in sorted(draw.sample(range(1, seen + 1), min(count, seen))):
                shutil.rmtree(attempt)
                shutil.copytree(folder / phase, attempt)
                inject = f"inject={calls}:signal=SIGKILL:when={number}"
                kills += traced(command, attempt, "-o", "/dev/null", "-e", f"trace={calls}", "-e", inject) != 0
                tries += 1
                for later in dict.fromkeys((phase, phase if phase == "reporting" else "scoring")):
                    carry_out(commands[later], attempt, attempt / "cache")
                what = f"{phase}, killed at {kind} {number} of {seen}"
                for part in (curve, weights, scores_of):
                    assert part(attempt / "runs") == part(whole / "runs"), f"{what}: {part.__name__} differs"
        shutil.rmtree(attempt)
    assert kills >= 0.75 * tries, f"only {kills} of {tries} commands were killed"
    rest = f", {tries - kills} others made fewer such calls and ended" if kills < tries else ""
    return f"{kills} kills at calls in {', '.join(commands)}{rest}: all ended as undisturbed"


def traced(command: list[str], folder: Path, *options: str) -> int:
    """Carry out a command in a fork, which strace follows from its first step on, and return its exit code."""
    child = fork(command, folder, folder / "cache", before=stopped_until_traced)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    with subprocess.Popen(["strace", "-f", "-qq", *options, "-p", str(child.pid)], stderr=subprocess.DEVNULL) as tracer:
        while "TracerPid:\t0\n" in Path(f"/proc/{child.pid}/status").read_text():
            assert tracer.poll() is None, "strace cannot follow a command"
            time.sleep(0.01)
        child.kill(signal.SIGCONT)
        return child.wait()


def stopped_until_traced() -> None:
    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER: any process may trace this one
    os.kill(os.getpid(), signal.SIGSTOP)
