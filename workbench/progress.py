"""Progress of long work on stderr: a progress bar on a terminal, plain lines elsewhere; and warnings that come once.

Everything that is shown on a terminal passes `visible`, so that no name in a text can steer it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from workbench.errors import plural

if TYPE_CHECKING:
    from rich.console import Console


log = logging.getLogger("workbench")
QUIET_SECONDS = 15.0  # the interval between two plain lines
T = TypeVar("T")
# Control characters except for line ends and tabs, separators of lines, and marks that reverse the order of letters.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Measuring:
    """Two callbacks for the scores of a run: `step(task, step, steps)` during one, `scored(task, value)` after it.

    `value` is None for a score before the end of training, since only scores at the end are averaged.
    """

    step: Callable[[str, int, int], None]
    scored: Callable[[str, float | None], None]


def visible(text: str, lines: bool = True) -> str:
    """Return the text with control characters as escapes, such as `\\x1b`; without `lines`, line ends and tabs too."""
    text = _INVISIBLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return text if lines else text.replace("\n", "\\n").replace("\t", "\\t")


def terminal() -> bool:
    """Return whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def console() -> Console:
    """Return a `rich` console on standard error that escapes control characters in the texts it prints."""
    import rich.console

    class Cleaned(rich.console.Console):
        def render(self, *args: Any, **options: Any) -> Iterator[Any]:
            for segment in super().render(*args, **options):
                yield segment if segment.control else segment._replace(text=visible(segment.text))

    stream = sys.stderr  # which `rich` replaces while it shows something

    class Verbatim:
        def __getattr__(self, name: str) -> Any:
            return getattr(stream, name)

        def write(self, text: str) -> int:
            count: int = getattr(stream, "write_verbatim", stream.write)(text)
            return count

    return Cleaned(file=cast(IO[str], Verbatim()), markup=False)


def say(line: str) -> None:
    """Write one line to stderr, if it can be written."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(visible(line, lines=False) + "\n")
            sys.stderr.flush()


@functools.cache
def warn_once(sentence: str) -> None:
    """Log a warning, only once in each process even if this is called several times with the same sentence."""
    log.warning("%s", sentence)


def counted(items: Sequence[T], what: str) -> Iterator[T]:
    """Yield each of the items, and write a line with the number done every 15 seconds."""
    last = time.monotonic()
    for done, item in enumerate(items):
        if time.monotonic() - last >= QUIET_SECONDS:
            last = time.monotonic()
            say(f"{what}: {done:,} of {len(items):,}")
        yield item


@contextmanager
def training(name: str) -> Iterator[Callable[[int, int, dict[str, Any]], None]]:
    """Yield a callback (step, steps, row of metrics) that shows loss, throughput and the time left."""
    if terminal():
        if threading.current_thread() is not threading.main_thread():  # which shows a table of all runs
            yield lambda *_: None
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False), BarColumn(),
            TextColumn("{task.fields[facts]}", markup=False), TimeRemainingColumn(),
        )  # fmt: skip
        with Progress(*columns, console=console()) as bar:
            task = bar.add_task(name, total=None, facts="starting")

            def show(step: int, steps: int, row: dict[str, Any]) -> None:
                facts = f"step {step:,} of {steps:,}, loss {row['loss']:.3f}, {row['tokens_per_second']:,.0f} tokens/s"
                bar.update(task, completed=step, total=steps, facts=facts)

            yield show
        return

    last = start = time.monotonic()
    first: list[int] = []

    def line(step: int, steps: int, row: dict[str, Any]) -> None:
        nonlocal last
        first.append(step) if not first else None
        if time.monotonic() - last < QUIET_SECONDS and step < steps:
            return
        last = time.monotonic()
        seconds_per_step = (last - start) / max(1, step - first[0] + 1)
        left = f", about {clock(seconds_per_step * (steps - step))} left" if step < steps else ""
        rate = f"{row['tokens_per_second']:,.0f} tokens/s"
        say(f"{name}: step {step:,} of {steps:,}, loss {row['loss']:.3f}, {rate}{left}")

    yield line


@contextmanager
def measuring(name: str, total: int) -> Iterator[Measuring]:
    """Yield two callbacks for `total` scores of a run; their means by task are written at the end."""
    scores: dict[str, list[float]] = {}
    start = last = time.monotonic()
    done = 0

    def step(task: str, at: int, steps: int) -> None:
        nonlocal last
        if time.monotonic() - last >= QUIET_SECONDS:
            last = time.monotonic()
            say(f"{name}: score {done + 1} of {total}, {task}, step {at:,} of {steps:,}")

    def scored(task: str, value: float | None) -> None:
        nonlocal done
        done += 1
        if value is not None:
            scores.setdefault(task, []).append(value)

    yield Measuring(step, scored)
    if total:
        means = ", ".join(f"{task} {sum(values) / len(values):.1f}" for task, values in scores.items())
        count = plural(total, "score") if done == total else f"{done:,} of {plural(total, 'score')}"
        say(f"{name}: {count} in {clock(time.monotonic() - start)}{f': {means}' if means else ''}")


def clock(seconds: float) -> str:
    """Return a duration in seconds as text: 42 s, 3 min 5 s, 2 h 10 min, 3 d 4 h, 1,200 d."""
    total = max(0, round(seconds))
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60} s"
    if total < 48 * 3600:
        return f"{total // 3600} h {total % 3600 // 60} min"
    hours = round(total / 3600)
    return f"{hours // 24} d {hours % 24} h" if hours < 2400 else f"{round(hours / 24):,} d"


# ----------------------------------------
# Progress of preparing a corpus, on standard error: a bar on a terminal, elsewhere a plain line every ten seconds.


Progress = Callable[[str, int, int], None]  # name of the stage, bytes done, bytes in all (0 if unknown)
EVERY = 10.0  # seconds between plain lines


def silent(stage: str, done: int, total: int) -> None:
    """Show no progress."""


@contextmanager
def shown() -> Iterator[Progress]:
    """Yield a function that shows progress, as a bar or as lines, while the block runs."""
    if not terminal():
        yield functools.partial(_line, {})
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Bars(*columns, console=console(), transient=True) as bars:
        tasks: dict[str, object] = {}

        def update(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total or None)
            bars.update(tasks[stage], completed=done)  # type: ignore[arg-type]

        yield update


def _line(last: dict[str, float], stage: str, done: int, total: int) -> None:
    """Write a line unless it is too early for another one; `last` has the time of the last line of each stage."""
    now = time.monotonic()
    if stage in last and now - last[stage] < EVERY:
        return
    share = f" {100 * done / total:.0f} %" if total else f" {done / 1e6:.0f} MB"
    share = share if stage in last else ""
    last[stage] = now
    say(f"{stage}{share}")
