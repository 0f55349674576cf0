"""Scores that fall late in training, as those of a detector whose generator has become good may do."""

from __future__ import annotations

from workbench.report.comparison.boards import Board
from workbench.report.comparison.training_points import Place, lines
from workbench.report.formatting import seeds
from workbench.report.load.run_files import END

FALL = 5.0  # points by which the mean must fall; without a cause that was found, kept studies have falls of up to 3
FEWEST = 2  # seeds, each of which must fall


def sentences(board: Board) -> list[str]:
    """Return a sentence on each arm of the largest budget whose score fell, in every seed, before the end."""
    arms = dict.fromkeys(place.arm for place in board.places)
    told = [fall(line) for arm in arms for line in lines(board.places, arm) if line[0].budget == board.budget]
    return [f"{board.label}: {text}" for text in told if text]


def fall(line: list[Place]) -> str:
    """Return what is said of the places of one arm, in the order of training; "" if its score did not fall."""
    end = line[-1]
    if end.mark != END or len(line) == 1:
        return ""
    best = max(line, key=lambda place: place.estimate.mean)
    drops = [best.scores[seed] - score for seed, score in end.scores.items() if seed in best.scores]
    if len(drops) < FEWEST or min(drops) <= 0 or best.estimate.mean - end.estimate.mean < FALL:
        return ""
    return (
        f"{end.arm} had {best.estimate.mean:.1f} after {best.mark} of its training and has {end.estimate.mean:.1f} at "
        f"its end; it fell in each of {seeds([len(drops)])}. A way to score may stop telling what an encoder knows, so "
        f"compare {end.arm} by fine-tuning or linear probes as well."
    )
