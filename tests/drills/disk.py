"""Drills on checkpoints and the log of metrics: SIGKILL at any instant, and rot."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from workbench.store import checkpoint
from workbench.store.checkpoint import Metrics
from workbench.store.validation import rows

from .small import limit


def some(step: int, size: int = 40) -> dict[str, dict[str, torch.Tensor]]:
    """Tensors that say which step they are of."""
    weights = torch.arange(size, dtype=torch.float32) + step
    return {"model": {"w": weights, "b": weights[:3].clone()}, "optimizer": {"w.step": torch.tensor(float(step))}}


def killed(work: Callable[[Callable[[int], None]], None], seconds: float) -> int:
    """Fork, let the child `work`, and kill it so long after it began. The last number it acknowledged, 0 if none."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)

        def acknowledge(number: int) -> None:
            os.write(writer, number.to_bytes(4, "little"))

        acknowledge(0)  # which says that the child computes: on a busy machine it may have to wait for that
        work(acknowledge)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        begun = pipe.read(4)
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return int.from_bytes((begun + pipe.readall())[-4:], "little")


def killed_while_saving(folder: Path, count: int) -> str:
    """Goal 2: no acknowledged checkpoint is lost, and none is ever seen broken."""
    draw, place, last = random.Random(count), folder / "checkpoints", 0

    def save_for_ever(acknowledge: Callable[[int], None], step: int) -> None:
        while True:
            step += 1
            checkpoint.save(place, step, some(step, size=20_000), {"step": step})
            acknowledge(step)

    for _ in range(count):
        found = checkpoint.newest(place)
        begin = found.step if found else 0
        last = max(last, killed(lambda tell, begin=begin: save_for_ever(tell, begin), draw.uniform(0.005, 0.25)))  # type: ignore[misc]
        broken = [path for path in place.glob("step-*") if checkpoint.problem(path) is not None]
        assert not broken, broken
        found = checkpoint.newest(place) if place.exists() else None
        assert not last or (found and found.step >= last and not found.warnings), (found, last)
    assert last > count / 2, f"only {last} checkpoints were saved"
    checkpoint.save(place, 10**6, some(1), {})
    assert len(os.listdir(place)) == 2, "leftovers are not swept up"
    return f"{count} kills over {last} checkpoints: 0 lost, 0 broken"


def flipped_and_cut(folder: Path, count: int) -> str:
    """Goal 5: a flipped bit or a truncation is seen before use, and the checkpoint before is taken."""
    for step in (1, 2):
        checkpoint.save(folder, step, some(step, size=400), {"step": step})
    draw, path, slowest = random.Random(count), folder / "step-00000002", 0.0
    names = sorted(os.listdir(path))
    for number in range(count):
        file = path / names[number % len(names)]
        whole = file.read_bytes()
        place = (0, len(whole) - 1, draw.randrange(len(whole)))[min(number // len(names), 2)]
        flipped = bytearray(whole)
        flipped[place] ^= 1 << draw.randrange(8)
        for damaged in (bytes(flipped), whole[:place], whole + b"\n"):
            file.write_bytes(damaged)
            begun = time.monotonic()
            found = checkpoint.newest(folder)
            slowest = max(slowest, time.monotonic() - begun)
            assert found and found.step == 1, (file.name, place)
            assert len(found.warnings) == 1 and str(path) in found.warnings[0], found.warnings
        file.write_bytes(whole)
    found = checkpoint.newest(folder)
    assert found and found.step == 2 and torch.equal(found.tensors("model")["w"], some(2, size=400)["model"]["w"])
    assert slowest < limit(5), f"{slowest:.1f} s"
    return f"{count} flips, {count} truncations and {count} additions: all seen, {slowest * 1000:.0f} ms at most"


def killed_while_logging(folder: Path, count: int) -> str:
    """Goal 6: of rows logged at 100 Hz or faster at most the one in writing is lost, and a torn end is repaired."""
    draw, path, logged, kills = random.Random(count), folder / "metrics.jsonl", 0, 0

    def log_for_ever(acknowledge: Callable[[int], None]) -> None:
        metrics = Metrics(path)
        step = metrics.rewind(10**9)
        while True:
            step += 1
            row: dict[str, Any] = {"step": step, "filler": "x" * draw.randrange(300)}
            metrics.append([row])
            acknowledge(step)
            time.sleep(0.002)

    while kills < count or logged < count:  # on a busy machine few rows are logged between two kills
        kills += 1
        assert kills < 50 * count, f"only {logged} rows were logged"
        last = killed(log_for_ever, draw.uniform(0.01, 0.06)) or logged
        steps = [row["step"] for row in rows(path)]
        assert steps == list(range(1, len(steps) + 1)), "rows are missing or double"
        assert last <= len(steps) <= last + 1, (last, len(steps))
        logged = len(steps)
        if draw.random() < 0.3:  # what a power cut may leave
            with path.open("ab") as file:
                file.write(b'{"step": %d, "lo' % (logged + 1))
    return f"{kills} kills over {logged} rows: none that was acknowledged is lost"
