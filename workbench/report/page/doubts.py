"""What must be said of an arm before it may be called ahead: that it is no better than words, or than no training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workbench.report.comparison.boards import Board, Cell
from workbench.report.words import interval, listing, points

BAG = "bag-of-words"


def doubted(board: Board, budget: str) -> list[Cell]:
    """The arms at a budget that a bag of words beats, or that are not shown ahead of their own untrained encoder."""
    bag = board.baseline(BAG)
    return [c for c in board.at(budget) if beaten(c, bag) or c.gain is None or not c.gain.claimed]


def caveat(board: Board, budget: str, arms: Iterable[str], names: Mapping[str, str], plural: str) -> str:
    """Sentences that must stand before any claim for these arms; "" where there are no doubts about them."""
    wanted = set(arms)
    cells = [c for c in doubted(board, budget) if c.arm in wanted]
    every = len(board.at(budget))
    bag = board.baseline(BAG)
    worse = [c for c in cells if beaten(c, bag)]
    unshown = [c for c in cells if c.gain is not None and not c.gain.claimed]
    alone = [names[c.arm] for c in cells if c.gain is None]
    said = []
    if worse:
        best = points(max(c.estimate.mean for c in worse))
        told = listing([f"{names[c.arm]} ({points(c.estimate.mean)})" for c in worse])
        all_of = f"each of the {every} {plural}, the best of which has {best}"
        said.append(
            f"A bag of words, without any encoder, has {points(bag)} on {board.label}: more than "
            f"{all_of if len(worse) == every > 1 else told}."
        )
    if len(unshown) == every > 1:
        said.append(f"None of the {every} {plural} is shown ahead of its own untrained encoder on {board.label}.")
    elif unshown:
        told = listing([f"{names[c.arm]} ({_gain(c)})" for c in unshown])
        own = "its own untrained encoder" if len(unshown) == 1 else "their own untrained encoders"
        counted = f", once all {every} {plural} are counted" if any(_larger(c) for c in unshown) and every > 1 else ""
        said.append(f"Not shown ahead of {own} on {board.label}{counted}: {told}.")
    if alone:
        said.append(f"No untrained encoder was measured beside {listing(alone)}, so nothing shows what training gave.")
    return " ".join(said)


def beaten(cell: Cell, bag: float | None) -> bool:
    """Whether a bag of words has the higher mean; `bag` is None where it was not measured on every task."""
    return bag is not None and cell.estimate.mean < bag


def _gain(cell: Cell) -> str:
    assert cell.gain is not None
    return interval(cell.gain.estimate.mean, cell.gain.estimate.half, True)


def _larger(cell: Cell) -> bool:
    """Whether a gain that is not claimed is still larger than its own interval."""
    e = cell.gain.estimate if cell.gain is not None else None
    return e is not None and e.half is not None and e.mean > e.half
