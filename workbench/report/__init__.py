"""From run directories to one HTML file that stands alone, and the tables beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.report.options_asked import Asked

if TYPE_CHECKING:
    from workbench.store.run_store import RunStore


def write(
    store: RunStore, record_name: str, out: Path, missing: Mapping[str, str] | None = None, asked: Asked | None = None
) -> Path:
    """The report on one experiment record: `out`/index.html (or `out` itself, if it ends in .html), CSVs beside it.

    `missing` names tasks that were asked for and could not be had, and why. Returns the path of the page.
    Raises InputError when there is no such record, OSError where the disk fails.
    """
    from workbench.report.page import document  # pandas and matplotlib are loaded only now

    return document.write(store, record_name, out, missing or {}, asked or Asked())


def write_bench(rows: Sequence[Mapping[str, Any]], out: Path) -> Path:
    """What `workbench bench` found as `out`/index.html, the numbers beside it. Raises OSError where the disk fails."""
    from workbench.report import speed

    return speed.write(rows, out)


def find_record(store: RunStore, word: str) -> str:
    """Return the name of the record that a name means: see `workbench.report.load.records.find_record`."""
    from workbench.report.load import records

    return records.find_record(store, word)
