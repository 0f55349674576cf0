"""What a reader must know beside scores that need no training: how sentences were scored, ties, published points."""

from __future__ import annotations

from typing import Any

from workbench.report.comparison.boards import Board
from workbench.report.load.frames import Frames
from workbench.report.words import listing
from workbench.spec.published import BABYLM, BABYLM_NOTE
from workbench.spec.scoring import ZERO_SHOT


def notes(board: Board, frames: Frames) -> list[str]:
    """Return the sentences that stand under a table of zero-shot scores; none under any other."""
    if board.suite not in ZERO_SHOT:
        return []
    rows = [row for row in frames.rows("scores") if row["suite"] == board.suite and row.get("scorer")]
    return [*_scorers(board, rows), *_ties(rows), *_published(board)]


def _scorers(board: Board, rows: list[dict[str, Any]]) -> list[str]:
    """Say which scorer each arm has, and that they differ."""
    cells = [*board.cells, *([board.untrained] if board.untrained else [])]
    arms = {run: cell.arm for cell in cells for run in cell.runs}
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["run_id"] in arms:
            found.setdefault(str(row["scorer"]), {})[arms[row["run_id"]]] = None
    if not found:
        return []
    each = [f"{scorer} ({listing(list(those))})" for scorer, those in found.items()]
    if len(each) == 1:
        return [f"Sentences are scored by {each[0]}."]
    return [
        f"Sentences are scored by {listing(each)}. Scorers differ between objectives, so a difference here may be one "
        f"of the scorer and not of the encoder; linear probes and fine-tuning read all encoders alike."
    ]


def _ties(rows: list[dict[str, Any]]) -> list[str]:
    pairs, ties = sum(int(row["test_rows"]) for row in rows), sum(int(row["ties"]) for row in rows)
    if not ties:
        return ["No pair of sentences has the same score twice."] if pairs else []
    return [f"{ties:,} of {pairs:,} pairs, over all runs, have the same score for both sentences; each counts half."]


def _published(board: Board) -> list[str]:
    """Quote what others have measured on these very pairs."""
    if "blimp-filtered" not in board.tasks:
        return []
    sizes = dict.fromkeys(point.data for point in BABYLM)
    told = [
        f"from {size} words {listing([f'{p.name} {p.blimp:.1f} ({p.year})' for p in BABYLM if p.data == size])}"
        for size in sizes
    ]
    sources = listing(list(dict.fromkeys(point.source for point in BABYLM)))
    return [f"Published on the filtered pairs by BabyLM's organisers: {'; '.join(told)}. {BABYLM_NOTE} ({sources})."]
