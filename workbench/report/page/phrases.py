"""Phrases that the sentences of a report share: names of arms, and differences with their intervals."""

from __future__ import annotations

from collections.abc import Iterable

from workbench.report.comparison.boards import Board, Pair
from workbench.report.comparison.item_intervals import FEW
from workbench.report.formatting import freedom, interval, points, seeds
from workbench.report.load.naming import spoken
from workbench.report.statistics.paired_comparison import Compared


def several(axis: str) -> str:
    """Return the noun for all arms together: `objectives`, `settings of generator width`."""
    return "objectives" if axis == "objective" else f"settings of {spoken(axis)}"


def named(axis: str, arm: str) -> str:
    """Return the name of an arm in a sentence: `rtd`, `generator width 0.25`, `a unigram generator`."""
    if axis == "objective":
        return arm
    sizeless = arm.split(",")[0] in ("ngram", "unigram", "uniform") and axis.startswith("generator.")
    return f"{'an' if arm.startswith('ngram') else 'a'} {arm} generator" if sizeless else f"{spoken(axis)} {arm}"


def how(compared: list[Compared]) -> str:
    """Return how the differences were measured: `paired, 3 seeds, 8 degrees of freedom`."""
    freedoms = [c.estimate.df for c in compared if c.estimate.df is not None]
    tail = f", {freedom(freedoms)}" if freedoms else ""
    return f"paired, {seeds([c.estimate.n for c in compared])}{tail}"


def relation(board: Board, pairs: Iterable[Pair]) -> tuple[str, str]:
    """Return the verb and the preposition of a claim about these pairs: `is ahead`, `of`.

    Where arms of a pair were scored in different ways, the claim is about their own scores and not about encoders.
    """
    if all(board.alike(pair.a, pair.b) for pair in pairs):
        return "is ahead", "of"
    return "scores higher, each arm by its own scorer,", "than"


def covers(board: Board) -> str:
    """Return what the intervals of a board cover, with the interval for new test items too where these are few."""
    text = "Intervals are for new pre-training seeds on the same text, with the same vocabulary and the same test items"
    again = [(p, board.items.get(board.budget, {}).get(frozenset((p.a, p.b)))) for p in board.pairs[board.budget]]
    few = [(p, one) for p, one in again if one is not None and one.items < FEW]
    if not few:
        return f"{text}."
    pair, one = few[0]
    e = pair.difference.estimate
    return (
        f"{text}. With the {one.items:,} test items drawn again as well, the difference of {pair.a} and {pair.b} is "
        f"{interval(e.mean, one.high - e.mean)}; pairs.csv has the others."
    )


def mean_label(board: Board) -> str:
    """Return the label of a board's score with the word mean: `mean GLUE`, `mean of CoLA, RTE`."""
    return board.label if board.label.startswith("mean of ") else f"mean {board.label}"


def gap_text(compared: Compared, unit: str = "") -> str:
    """Return `1.3 ± 0.4` and the unit, such as " points", or the difference and why it has no interval."""
    e = compared.estimate
    if e.n >= 2 and e.half is None:
        why = f"{freedom([compared.df])} {'is' if compared.df == 1 else 'are'} too few for an interval"
        why = "the same in every seed, so without an interval" if not compared.noise else why
        return f"{points(e.mean)}{unit} ({why})"
    return interval(e.mean, e.half) + unit if e.n else "unknown, as they have no seed in common"
