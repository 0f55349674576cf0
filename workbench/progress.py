"""How far things are: a live bar on a terminal, plain lines elsewhere, always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

QUIET_SECONDS = 15.0  # between plain lines
T = TypeVar("T")


@dataclass(frozen=True)
class Measuring:
    """`step(task, step, steps)` while one score is taken, `scored(task, value)` when it is there.

    A score of a point before the end of training has no `value` here: only those of the end are averaged.
    """

    step: Callable[[str, int, int], None]
    scored: Callable[[str, float | None], None]


def _terminal() -> bool:
    return sys.stderr.isatty()


def say(line: str) -> None:
    """One line on stderr."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def counted(items: Sequence[T], what: str) -> Iterator[T]:
    """Each of the items in turn; every 15 seconds a line says how many are done."""
    said = time.monotonic()
    for done, item in enumerate(items):
        if time.monotonic() - said >= QUIET_SECONDS:
            said = time.monotonic()
            say(f"{what}: {done:,} of {len(items):,}")
        yield item


@contextmanager
def training(name: str) -> Iterator[Callable[[int, int, dict[str, Any]], None]]:
    """A callback (step, steps, row of metrics) that shows loss, throughput and the time left."""
    if _terminal():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} steps"),
            TextColumn("loss {task.fields[loss]:.3f}"), TextColumn("{task.fields[rate]:,.0f} tokens/s"),
            TimeRemainingColumn(),
        )  # fmt: skip
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(name, total=None, loss=float("nan"), rate=0.0)
            yield lambda step, steps, row: bar.update(
                task, completed=step, total=steps, loss=row["loss"], rate=row["tokens_per_second"]
            )
        return

    said = begun = time.monotonic()
    first: list[int] = []

    def line(step: int, steps: int, row: dict[str, Any]) -> None:
        nonlocal said
        first.append(step) if not first else None
        if time.monotonic() - said < QUIET_SECONDS and step < steps:
            return
        said = time.monotonic()
        pace = (said - begun) / max(1, step - first[0] + 1)
        say(
            f"{name}: step {step:,} of {steps:,}, loss {row['loss']:.3f}, {row['tokens_per_second']:,.0f} tokens/s, "
            f"about {clock(pace * (steps - step))} left"
        )

    yield line


@contextmanager
def measuring(name: str, total: int) -> Iterator[Measuring]:
    """Yield two callbacks for the scores of a run; those of a task are said together at the end."""
    scores: dict[str, list[float]] = {}
    begun = said = time.monotonic()
    done = 0

    def step(task: str, at: int, steps: int) -> None:
        nonlocal said
        if time.monotonic() - said >= QUIET_SECONDS:
            said = time.monotonic()
            say(f"{name}: score {done + 1} of {total}, {task}, step {at:,} of {steps:,}")

    def scored(task: str, value: float | None) -> None:
        nonlocal done
        done += 1
        if value is not None:
            scores.setdefault(task, []).append(value)

    yield Measuring(step, scored)
    if total:
        means = ", ".join(f"{task} {sum(values) / len(values):.1f}" for task, values in scores.items())
        say(f"{name}: {total} scores in {clock(time.monotonic() - begun)}{f': {means}' if means else ''}")


def clock(seconds: float) -> str:
    """Seconds as a person says them: 42 s, 3 min 5 s, 2 h 10 min."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
