"""The state of a store for `workbench status`: each study with its progress first, then the runs that need a look.

With --watch it is a live table on a terminal, and elsewhere the same text after each change.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workbench.cli.command import emit
from workbench.errors import InputError, Interrupted, plural
from workbench.execution import workers
from workbench.execution.workers import StudyProgress
from workbench.progress import console, terminal
from workbench.report import verdict_line
from workbench.store import owner
from workbench.store.run_directory import RunDir
from workbench.store.run_store import ExperimentRecord, RunStore

Row = Mapping[str, Any]
QUIET = ("done", "trained", "new", "reading")  # states of runs that need no look, if they have no note
STYLES = {
    "running": "cyan", "done": "green", "interrupted": "yellow", "failed": "red", "diverged": "red", "damaged": "red",
}  # fmt: skip


def stale_lease(run: RunDir, row: Row) -> str:
    """Return a sentence on a lease whose process has ended, "" if there is none."""
    if row["state"] == "running":
        return ""
    with contextlib.suppress(OSError):
        if holder := owner.read(run.path):
            return f"its lease is stale, left by {holder}; the same command goes on with this run"
    return ""


def shown(row: Row, everything: bool) -> bool:
    """Return whether the run of a row trains or needs a look; with `everything`, every run is shown."""
    return bool(everything or row["state"] not in QUIET or row["note"])


def studies(records: Sequence[ExperimentRecord], rows: Mapping[str, Row]) -> list[StudyProgress]:
    """Return the progress of each study, the last updated first, and of the runs that are in no study."""
    found = [workers.study_progress(record, rows) for record in records]
    found.sort(key=lambda each: each.record.updated, reverse=True)
    others = sorted(rows.keys() - {run_id for record in records for run_id in record.run_ids})
    if others:
        found.append(workers.study_progress(ExperimentRecord("no study", runs=others), rows))
    return found


def text(progress: Sequence[StudyProgress], rows: Iterable[Row], everything: bool, steps: bool = True) -> list[str]:
    """Return a line for each study, its verdict, and then a line for each run that needs a look or trains.

    With `everything` there is a line for each run; without `steps` there is none for runs that train.
    """
    lines = []
    for each in progress:
        record = each.record
        if record.damage:
            lines.append(f"{record.name}  damaged: the record {record.damage}")
            continue
        lines.append(f"{record.name}  {each.state}: {each.text}")
        if record.verdict:
            lines.append(
                f"verdict      {record.name}, {str(record.verdict.get('at'))[:16]}: {verdict_line(record.verdict)}"
            )
    for row in rows:
        if shown(row, everything) and (steps or everything or row["state"] != "running"):
            note = workers.line(dict.fromkeys(workers.OF_TRAINING) | dict(row))
            tags = "".join(f" #{tag}" for tag in row["tags"])
            lines.append(f"{row['state']:<12} {row['run_id']}{tags}" + (f"  {note}" if note else ""))
    return lines


def hidden(count: int) -> list[str]:
    """Return a line on runs that are archived and not shown."""
    return [f"{plural(count, 'archived run')} not shown (--archived shows all)"] if count else []


def follow(store: RunStore, archived: bool, everything: bool) -> None:
    """Show the state of a store until Ctrl-C: a live table on a terminal, elsewhere the text after each change."""
    from workbench.view.watched import Watched

    watched = Watched(store)

    def look() -> tuple[list[StudyProgress], list[Row], int]:
        with contextlib.suppress(OSError, InputError):  # the store cannot be read at the moment
            watched.look()
        rows: list[Row] = []
        for run_id, row in sorted(watched.rows.items()):
            if archived or not row.get("archived"):
                stale = stale_lease(RunDir(store.root / run_id), row)
                tags = [tag for tag in str(row.get("tags") or "").split(", ") if tag]
                rows.append({**row, "tags": tags, "note": "; ".join(filter(None, (row["note"], stale)))})
        return studies(watched.records, watched.rows), rows, len(watched.rows) - len(rows)

    with contextlib.suppress(KeyboardInterrupt, Interrupted):
        while not watched.complete:  # a store that cannot be read at the start ends the command
            watched.look()
        if not terminal():
            last: list[str] = []
            while True:
                progress, rows, left_out = look()
                now = [*text(progress, rows, everything, steps=False), *hidden(left_out)]
                if [line.partition(", about ")[0] for line in now] != last:
                    emit("\n" * bool(last) + "\n".join(now), False)
                last = [line.partition(", about ")[0] for line in now]
                time.sleep(workers.REFRESH)
        from rich.live import Live

        with Live(console=console(), auto_refresh=False) as live:
            while True:
                progress, rows, left_out = look()
                live.update(_table(progress, rows, everything, left_out), refresh=True)
                time.sleep(workers.REFRESH)


def _table(progress: Sequence[StudyProgress], rows: Sequence[Row], everything: bool, left_out: int) -> Any:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    studies_table = workers.grid(("study", "state", "", "runs"))
    for each in progress:
        bar = ProgressBar(total=max(1, each.total), completed=each.trained, width=20)
        state = Text(each.state, STYLES.get(each.state, ""))
        studies_table.add_row(Text(each.record.name), state, bar, Text(each.record.damage or each.text))
    runs_table = workers.grid(("run", "state", *workers.NUMBERS, "note"))
    for row in rows:
        if shown(row, everything):
            numbers = workers.cells(row)
            state = Text(str(row["state"]), STYLES.get(str(row["state"]), ""))
            note = Text("" if numbers[0] else str(row["note"]))
            runs_table.add_row(Text(str(row["run_id"])), state, *numbers, note)
    parts: list[Any] = [studies_table, *([Text(""), runs_table] if runs_table.row_count else [])]
    return Group(*parts, *map(Text, hidden(left_out)))
