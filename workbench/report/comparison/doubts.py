"""Doubts about an arm that are stated before it is called ahead: a baseline or no training may do as well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workbench.report.comparison.boards import Board, Cell
from workbench.report.formatting import interval, listing, points

# Baselines that know words and have no encoder, and what they are in a sentence.
BAG = "bag-of-words"
LEARNED = {
    BAG: "A bag of words",
    "word-lookup": "A look-up of each word's most frequent tag",
    "tf-idf": "Tf-idf of words",
    "nearest-overlap": "The sentence with most words of the question",
}


def doubted(board: Board, budget: str) -> list[Cell]:
    """Return the arms at a budget that score below words alone or are not shown ahead of their untrained encoder."""
    word_score = learned(board)
    return [c for c in board.at(budget) if beaten(c, word_score) or c.gain is None or not c.gain.claimed]


def caveat(board: Board, budget: str, arms: Iterable[str], names: Mapping[str, str], noun: str) -> str:
    """Return the sentences that must stand before any claim for these arms; "" if there are no doubts about them."""
    wanted = set(arms)
    cells = [c for c in doubted(board, budget) if c.arm in wanted]
    every = len(board.at(budget))
    word_score = learned(board)
    worse = [c for c in cells if beaten(c, word_score)]
    unshown = [c for c in cells if c.gain is not None and not c.gain.claimed]
    alone = [names[c.arm] for c in cells if c.gain is None]
    sentences = []
    if worse:
        best = points(max(c.estimate.mean for c in worse))
        scores = listing([f"{names[c.arm]} ({points(c.estimate.mean)})" for c in worse])
        all_of = f"each of the {every} {noun}, the best of which has {best}"
        sentences.append(
            f"{_what(board)}, without any encoder, has {points(word_score)} on {board.label}: more than "
            f"{all_of if len(worse) == every > 1 else scores}."
        )
    if len(unshown) == every > 1:
        sentences.append(f"None of the {every} {noun} is shown ahead of its own untrained encoder on {board.label}.")
    elif unshown:
        gains = listing([f"{names[c.arm]} ({_gain(c)})" for c in unshown])
        own = "its own untrained encoder" if len(unshown) == 1 else "their own untrained encoders"
        after = f", after correction for all {every} {noun}" if any(_larger(c) for c in unshown) and every > 1 else ""
        sentences.append(f"Not shown ahead of {own} on {board.label}{after}: {gains}.")
    if alone:
        sentences.append(f"No untrained encoder was measured for {listing(alone)}, so the gain by training is unknown.")
    return " ".join(sentences)


def learned(board: Board) -> float | None:
    """Return the score of the baseline that learns from words alone; None if it was not measured on every task."""
    return next((value for name in LEARNED if (value := board.baseline(name)) is not None), None)


def _what(board: Board) -> str:
    """Return what that baseline is, in words."""
    return next(text for name, text in LEARNED.items() if board.baseline(name) is not None)


def beaten(cell: Cell, word_score: float | None) -> bool:
    """Return whether the baseline on words alone has the higher mean, which is None if there is none."""
    return word_score is not None and cell.estimate.mean < word_score


def _gain(cell: Cell) -> str:
    assert cell.gain is not None
    return interval(cell.gain.estimate.mean, cell.gain.estimate.half, True)


def _larger(cell: Cell) -> bool:
    """Return whether the gain of an arm is larger than its own interval."""
    e = cell.gain.estimate if cell.gain is not None else None
    return e is not None and e.half is not None and e.mean > e.half
