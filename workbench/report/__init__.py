"""From run directories to one HTML file that stands alone, and the tables beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import InputError, suggest
from workbench.report.asked import Asked

if TYPE_CHECKING:
    from workbench.store import RunStore


def write(
    store: RunStore, record_name: str, out: Path, missing: Mapping[str, str] | None = None, asked: Asked | None = None
) -> Path:
    """The report on one experiment record: `out`/index.html (or `out` itself, if it ends in .html), CSVs beside it.

    `missing` names tasks that were asked for and could not be had, and why. Returns the path of the page.
    Raises InputError when there is no such record, OSError where the disk fails.
    """
    from workbench.report import page  # pandas and matplotlib are loaded only now

    return page.write(store, record_name, out, missing or {}, asked or Asked())


def write_bench(rows: Sequence[Mapping[str, Any]], out: Path) -> Path:
    """What `workbench bench` found as `out`/index.html, the numbers beside it. Raises OSError where the disk fails."""
    from workbench.report import speed

    return speed.write(rows, out)


def find_record(store: RunStore, word: str) -> str:
    """The name of a record, from its own name or that of its experiment: then the one updated last.

    Raises InputError when there is none, naming those that there are.
    """
    everything = store.experiments()
    for record in everything:
        if record.damage and (record.name == word or record.name.startswith(f"{word}-")):
            raise InputError(
                f"{store.root / 'experiments' / record.name}.json is damaged: {record.damage}; move it away"
            )
    records = [record for record in everything if not record.damage]
    if any(record.name == word for record in records):
        return word
    of_experiment = [record for record in records if record.experiment == word]
    if of_experiment:
        return max(of_experiment, key=lambda record: (record.updated, record.name)).name
    known = {name for record in records for name in (record.name, record.experiment)}
    raise InputError(f"{store.root} holds no experiment {word!r}{suggest(word, known) if known else ''}")
