"""Notes under tables: how sentences or tagged words were scored, ties, and published scores."""

from __future__ import annotations

from typing import Any

from workbench.errors import plural
from workbench.report.comparison.boards import Board
from workbench.report.formatting import listing
from workbench.report.load.frames import Frames
from workbench.spec.published import BABYLM, BABYLM_NOTE
from workbench.spec.scoring import ZERO_SHOT


def notes(board: Board, frames: Frames) -> list[str]:
    """Return the notes under the tables of a board; none if its scores are neither zero-shot scores nor of tagging."""
    rows = [row for row in frames.rows("scores") if row["suite"] == board.suite and row.get("scorer")]
    if board.suite == "tagging":
        ways = dict.fromkeys((row["task"], row["scorer"]) for row in rows)
        return [f"{task}: {scorer}." for task, scorer in ways]
    if board.suite not in ZERO_SHOT:
        return []
    return [*_scorers(board, rows), *_ties(rows), *_published(board)]


def _scorers(board: Board, rows: list[dict[str, Any]]) -> list[str]:
    """Return a sentence on the scorer of each arm, with a caution if scorers differ."""
    cells = [*board.cells, *([board.untrained] if board.untrained else [])]
    arms = {run: cell.arm for cell in cells for run in cell.runs}
    arms_of: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["run_id"] in arms:
            arms_of.setdefault(str(row["scorer"]), {})[arms[row["run_id"]]] = None
    if not arms_of:
        return []
    each = [f"{scorer} ({listing(list(scored))})" for scorer, scored in arms_of.items()]
    if len(each) == 1:
        return [f"Sentences are scored by {each[0]}."]
    return [
        f"Sentences are scored by {listing(each)}. Scorers differ between objectives, so a difference here may be due "
        f"to the scorer and not to the encoder; linear probes and fine-tuning treat all encoders alike."
    ]


def _ties(rows: list[dict[str, Any]]) -> list[str]:
    """Return a sentence on the number of pairs with tied scores."""
    pairs, ties = sum(int(row["test_rows"]) for row in rows), sum(int(row["ties"]) for row in rows)
    if not ties:
        return ["In no pair do both sentences have the same score."] if pairs else []
    some = f"{ties:,} of {plural(pairs, 'pair')}, over all runs, {'has' if ties == 1 else 'have'}"
    return [f"{some} the same score for both sentences; each counts half."]


def _published(board: Board) -> list[str]:
    """Return the published scores on the filtered BLiMP pairs, if they are among the tasks."""
    if "blimp-filtered" not in board.tasks:
        return []
    sizes = dict.fromkeys(point.data for point in BABYLM)
    scores = [
        f"from {size} words {listing([f'{p.name} {p.blimp:.1f} ({p.year})' for p in BABYLM if p.data == size])}"
        for size in sizes
    ]
    sources = listing(list(dict.fromkeys(point.source for point in BABYLM)))
    return [f"Published on the filtered pairs by BabyLM's organisers: {'; '.join(scores)}. {BABYLM_NOTE} ({sources})."]
