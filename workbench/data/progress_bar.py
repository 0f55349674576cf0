"""Progress of preparing a corpus, on standard error: a bar on a terminal, elsewhere a plain line every ten seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from workbench.progress import console, say, terminal

Progress = Callable[[str, int, int], None]  # name of the stage, bytes done, bytes in all (0 if unknown)
EVERY = 10.0  # seconds between plain lines


def silent(stage: str, done: int, total: int) -> None:
    """Show no progress."""


@contextmanager
def shown() -> Iterator[Progress]:
    """Yield a function that shows progress, as a bar or as lines, while the block runs."""
    if not terminal():
        yield _lines()
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console(), transient=True) as bars:
        tasks: dict[str, object] = {}

        def update(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total or None)
            bars.update(tasks[stage], completed=done)  # type: ignore[arg-type]

        yield update


def _lines() -> Progress:
    last: dict[str, float] = {}

    def update(stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if stage in last and now - last[stage] < EVERY:
            return
        share = f" {100 * done / total:.0f} %" if total else f" {done / 1e6:.0f} MB"
        share = share if stage in last else ""
        last[stage] = now
        say(f"{stage}{share}")

    return update
