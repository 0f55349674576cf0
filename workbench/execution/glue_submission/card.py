"""The card beside a submission: which task, run, seed and data each of its files comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from workbench.store.atomic import plain
from workbench.store.redact import code_in_markdown, for_markdown

FORMAT = 1


@dataclass(frozen=True)
class Dev:
    """A fine-tuning that a file comes from: its seed, and its headline metric on dev, recorded and repeated here."""

    seed: int
    recorded: float
    repeated: float


@dataclass(frozen=True)
class Entry:
    """One file of a submission.

    `chosen` says how its seeds were chosen, and `how` how its predictions were made. `data` and `test` are the
    fingerprints of the labelled rows and of the texts of the test set; `code` is the version that took the score.
    """

    file: str
    task: str
    run: str
    rows: int
    how: str
    chosen: str = ""
    metric: str = ""
    dev: tuple[Dev, ...] = ()
    data: str = ""
    test: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""


@dataclass(frozen=True)
class Card:
    """What a submission holds: its files, those that are missing and why, its run, and the code that made it."""

    zip: str
    sha256: str
    run: str
    run_chosen: str
    encoder: str
    entries: Sequence[Entry]
    missing: Mapping[str, str]
    code: str
    commit: str

    def to_json(self) -> dict[str, Any]:
        """Return the card as plain data."""
        content: dict[str, Any] = plain({"format": FORMAT, **asdict(self), "complete": not self.missing})
        return content

    def to_markdown(self) -> str:
        """Return the card as a page."""
        commit = f", commit {self.commit[:10]}" if self.commit else ""
        lines = [
            f"# {for_markdown(self.zip)}", "",
            f"Predictions on the test sets of GLUE, SHA-256 `{self.sha256}`.", "",
            f"- run: {code_in_markdown(self.run)} ({for_markdown(self.run_chosen)})",
            f"- encoder: {code_in_markdown(self.encoder)}",
            f"- code: workbench {self.code}{commit}", "",
            "| file | rows | task | seeds | dev, recorded | dev, fine-tuned again | predictions |",
            "|---|---:|---|---|---|---|---|",
            *map(_row, self.entries),
        ]  # fmt: skip
        if self.missing:
            lines += ["", "This submission is partial. Missing:", ""]
            lines += [f"- {for_markdown(file)}: {for_markdown(why)}" for file, why in self.missing.items()]
        return "\n".join(lines) + "\n"


def _row(entry: Entry) -> str:
    """Return the row of a file in the table of the page."""
    seeds = ", ".join(str(each.seed) for each in entry.dev) or "-"
    recorded, repeated = (
        ", ".join(f"{getattr(each, name):.2f}" for each in entry.dev) for name in ("recorded", "repeated")
    )
    recorded = f"{entry.metric} {recorded}" if entry.dev else "-"
    how = entry.how + (f"; {entry.chosen}" if entry.chosen else "")
    words = [entry.file, f"{entry.rows:,}", entry.task, seeds, recorded, repeated or "-", how]
    return f"| {' | '.join(map(for_markdown, words))} |"
