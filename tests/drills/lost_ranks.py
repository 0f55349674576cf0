"""Drill on one run that two processes compute: one of them is killed, stopped, or runs out of memory."""

from __future__ import annotations

import json
import math
import os
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

from .small import Forked, carry_out, curve, fork, limit, run_words, write_text

SILENCE = 40  # seconds after which a process that does not answer, or has not started, counts as ended
BETWEEN = 36  # steps between two losses, at most
SENTENCES = r"another process of this run ended or did not answer|can't allocate memory"
OBJECTIVE = '''"""BERT MLM, whose processes run out of memory when a file with their number is there."""
import os
from pathlib import Path

import torch

from workbench.objectives import bert_mlm
from workbench.objectives.bert_mlm import Options, cost


class Objective(bert_mlm.Objective):
    def forward(self, batch):
        if Path(r"{folder}", "exhausted-" + os.environ.get("RANK", "0")).exists():
            torch.empty(1 << 50)
        return super().forward(batch)
'''


def words(text: Path, runs: Path, devices: int, steps: int) -> list[str]:
    """A run with dropout, whose micro-batches have the same random numbers on one device and on two."""
    given = run_words(text, text.parent / "exhausted.py", runs, steps)
    given[given.index("--save-every") + 1] = "5"
    return [*given, "--precision", "fp32", "--devices", str(devices)]


def last_step(runs: Path) -> int:
    names = [path.name.removeprefix("step-") for path in runs.glob("*/checkpoints/step-*")]
    return max((int(name) for name in names), default=0)


def others(parent: int) -> list[int]:
    """The processes that a command started for its other devices."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in children if b"rank" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")]


def kill(victim: int, _: Forked) -> None:
    os.kill(victim, signal.SIGKILL)


def stop(victim: int, command: Forked) -> None:
    """The first process, once the other one has given it up, goes on: it alone can say what happened."""
    other = others(command.pid)
    os.kill(victim, signal.SIGSTOP)
    if victim == command.pid:
        until = time.monotonic() + limit(120)
        while any(running(process) for process in other):
            assert time.monotonic() < until, "the other process waits for one that is stopped"
            time.sleep(0.1)
        os.kill(victim, signal.SIGCONT)


def running(process: int) -> bool:
    """Whether a process has not ended; one that nobody has waited for yet is a zombie, Z."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def exhaust(victim: int, command: Forked) -> None:
    """In its next step the process asks for more memory than there is."""
    (command.said.parent / f"exhausted-{0 if victim == command.pid else 1}").touch()


LOSSES: tuple[Callable[[int, Forked], None], ...] = (kill, stop, exhaust)


def lost(folder: Path, count: int) -> str:
    """Each loss ends the run on both processes with one sentence, and the next command goes on from its checkpoint."""
    text, cache, draw = write_text(folder / "small.txt"), folder / "cache", random.Random(count)
    runs, steps = folder / "runs", BETWEEN * (count + 2)
    (folder / "exhausted.py").write_text(OBJECTIVE.format(folder=folder))
    slowest, hit = 0.0, 0
    for turn in range(count):
        command = fork(words(text, runs, 2, steps), folder, cache, WORKBENCH_RANK_TIMEOUT=str(SILENCE))
        aim = last_step(runs) + draw.randint(5, BETWEEN - 10)
        while not (last_step(runs) >= aim and others(command.pid)):
            assert not command.ended(), command.text
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.1))
        group = others(command.pid)
        first = draw.random() < 0.5
        victim, lose, before = command.pid if first else group[0], LOSSES[turn % len(LOSSES)], last_step(runs)
        begun = time.monotonic()
        lose(victim, command)
        code = command.wait(limit(120))
        slowest, hit = max(slowest, time.monotonic() - begun), hit + 1
        while any(running(process) for process in group):
            assert time.monotonic() - begun < limit(120), f"process {group} outlived the command"
            time.sleep(0.05)
        for file in folder.glob("exhausted-*"):
            file.unlink()
        assert "Traceback" not in command.text, command.text
        if first and lose is kill:
            assert code == -signal.SIGKILL
        else:
            assert code == 1 and re.search(SENTENCES, command.text), (lose.__name__, first, code, command.text)
        assert last_step(runs) >= before, "an acknowledged checkpoint is gone"
    carry_out(words(text, runs, 1, steps), folder, cache)
    carry_out(words(text, folder / "alone", 1, steps), folder, cache)
    for one, other in zip(curve(runs), curve(folder / "alone"), strict=True):
        assert one["mask_rate"] == other["mask_rate"] and math.isclose(one["loss"], other["loss"], rel_tol=1e-3), one
    finished = [json.loads(path.read_text())["steps"] for path in runs.glob("*/done.json")]
    assert finished == [steps]
    return (
        f"{hit} losses of one of two processes: all ended in a sentence, the slowest after {slowest:.1f} s, and resumed"
    )
