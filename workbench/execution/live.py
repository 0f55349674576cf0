"""Who is at what, read from the run directories: any terminal sees the same, and nothing is asked of the workers."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

from workbench.errors import InputError
from workbench.progress import clock, say
from workbench.store import validation
from workbench.store.owner import read
from workbench.store.run_directory import RunDir

TAIL = 1 << 14  # bytes at the end of a log that surely hold its last row
REFRESH = 1.0  # seconds
SETTLED = ("done", "failed", "diverged", "damaged")


def facts(run: RunDir) -> dict[str, Any]:
    """State and note of a run; while somebody is at it also step, steps, tokens/s, loss and seconds left, or None."""
    found: dict[str, Any] = run.summary()
    found |= dict.fromkeys(("worker", "step", "steps", "tokens_per_second", "loss", "seconds_left"))
    if found["state"] != "running":
        return found
    with contextlib.suppress(OSError, ValueError):  # what is not there yet, or just being written
        holder = read(run.path)
        found["worker"] = holder.owner.get("pid") if holder else None
        if run.trained:
            found["note"] = f"measuring, {_scores(run)} scores so far, {found['note']}"
            return found
        plan = run.read_json("plan.json")
        found["steps"], row = plan["steps"], last_row(run)
        if row:
            pace = row["tokens_per_second"]
            left = (plan["steps"] - row["step"]) * plan["tokens"] / plan["steps"] / pace if pace else None
            found |= {"step": row["step"], "loss": row["loss"], "tokens_per_second": pace, "seconds_left": left}
    return found


def _scores(run: RunDir) -> int:
    """Return how many scores a run has, those of its points included."""
    return len(validation.score_names(run.path)) + len(validation.point_names(run.path, "scores"))


def last_row(run: RunDir) -> dict[str, Any] | None:
    """The newest row of metrics, found from the end; None before the first."""
    with open(run.file("metrics.jsonl"), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
        lines = file.read().split(b"\n")[:-1]  # what follows the last line end is no row yet
    return validation.row(lines[-1]) if lines else None


def line(found: dict[str, Any]) -> str:
    """One run in a few words, after its state and name."""
    if found["step"] is None:
        return str(found["note"])
    left = f", about {clock(found['seconds_left'])} left" if found["seconds_left"] is not None else ""
    loss = f", loss {found['loss']:.3f}" if found["loss"] is not None else ""
    pace = f", {found['tokens_per_second']:,.0f} tokens/s" if found["tokens_per_second"] else ""
    return f"step {found['step']:,} of {found['steps']:,}{loss}{pace}{left}, {found['note']}"


def tally(states: Sequence[str]) -> str:
    """`5 of 12 runs are done, 2 running, 1 failed`."""
    counts = Counter(states)
    others = [f"{counts[state]} {state}" for state in ("running", "failed", "diverged", "damaged") if counts[state]]
    return ", ".join([f"{counts['done']} of {len(states)} runs are done", *others])


def terminal() -> bool:
    return sys.stderr.isatty()


@contextmanager
def watching(runs: Sequence[RunDir], voices: Sequence[IO[str]]) -> Iterator[Callable[[], None]]:
    """A function to call while workers are at these runs: a live table on a terminal, a line a change elsewhere.

    `voices` are the workers' stderr; their warnings are shown above the table.
    """
    known: dict[str, dict[str, Any]] = {}

    def look() -> list[dict[str, Any]]:
        for run in runs:
            if known.get(run.run_id, {}).get("state") != "done":  # which stays so
                try:
                    known[run.run_id] = facts(run)
                except (InputError, OSError):  # a file came or went while we looked: what we knew is as good
                    known.setdefault(run.run_id, {"state": "new", "run_id": run.run_id})
        return list(known.values())

    if not terminal():
        said = [""]

        def tell() -> None:
            now = tally([row["state"] for row in look()]).partition(", ")[0]
            if now != said[0] and not now.startswith("0 "):
                say(f"workbench: {now}")
            said[0] = now

        yield tell
        return

    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    begun = time.monotonic()
    with Live(console=console, auto_refresh=False) as shown:
        for voice in voices:
            threading.Thread(target=_repeat, args=(voice, console), daemon=True).start()
        first = [row["state"] for row in look()].count("done")

        def show() -> None:
            shown.update(_table(look(), first, time.monotonic() - begun), refresh=True)

        show()
        yield show
        show()


def _repeat(voice: IO[str], console: Any) -> None:
    """Warnings of a worker; its own progress is in the table."""
    for text in voice:
        if text.startswith("workbench: "):
            console.print(text.rstrip(), markup=False, highlight=False)


def _table(rows: Sequence[dict[str, Any]], first: int, seconds: float) -> Any:
    """`first` runs were done at the start, `seconds` ago."""
    from rich.table import Table

    states = [row["state"] for row in rows]
    done = states.count("done") - first
    left = sum(state not in SETTLED for state in states)
    guess = f", about {clock(seconds / done * left)} left" if done and left else ""
    table = Table(caption=f"{tally(states)}{guess}", caption_justify="left", box=None, pad_edge=False)
    for name in ("run", "worker", "step", "loss", "tokens/s", "left", "state"):
        table.add_column(name, justify="left" if name in ("run", "state") else "right", no_wrap=name != "state")
    for row in rows:
        if row["state"] in ("running", "failed", "diverged", "damaged"):
            working = row["state"] == "running"
            table.add_row(
                row["run_id"], str(row["worker"] or ""), _share(row), _number(row["loss"], ".3f"),
                _number(row["tokens_per_second"], ",.0f"), clock(row["seconds_left"]) if row["seconds_left"] else "",
                "training" if working and row["step"] is not None else row["note"] if not working else _short(row),
                style=None if working else "red",
            )  # fmt: skip
    return table


def _share(row: dict[str, Any]) -> str:
    return f"{row['step']:,}/{row['steps']:,}" if row["step"] is not None else ""


def _short(row: dict[str, Any]) -> str:
    return str(row["note"]).partition(", by")[0] if "fine-tuning" in row["note"] else "starting"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
