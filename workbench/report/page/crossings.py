"""Crossings: the amounts of compute between which two arms change places, if both orders are shown."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from workbench.report.comparison import declared
from workbench.report.comparison.boards import Board, Pair
from workbench.report.comparison.declared import NOTHING
from workbench.report.comparison.spending import TOLERANCE
from workbench.report.comparison.training_points import Place
from workbench.report.figures.arm_styles import Axis
from workbench.report.formatting import interval, listing
from workbench.report.load.run_files import END
from workbench.report.statistics.paired_comparison import ALPHA, Difference

Compared = tuple[float, Sequence[Pair]]  # an amount that some arms have spent, and the comparisons of these arms
Claims = Mapping[frozenset[str], Sequence[tuple[float, Pair]]]  # two arms -> amounts at which one of them is ahead


@dataclass(frozen=True)
class Crossing:
    """The crossing of two arms: `before` is ahead at the amount `low`, and `after` at the larger amount `high`.

    No form of the curves is assumed. The statement is wrong only if one of its two claims is wrong, and all claims are
    corrected together.
    """

    before: str
    after: str
    low: float
    high: float
    at_low: Difference
    at_high: Difference


def crossings(board: Board, column: str) -> list[Crossing]:
    """Return every crossing of two arms that spent the same amount of a column of the runs."""
    return between(claims(compared(board, column)))


def compared(board: Board, column: str) -> list[Compared]:
    """Return the comparisons at every amount: at the end of each budget, and at the points of training before it.

    If seeds are added by a plan, arms are compared at the ends only, because the plan has no looks elsewhere.
    """
    comparisons: list[Compared] = []
    for budget in board.budgets:
        spent = {cell.arm: cell.spent[column] for cell in board.at(budget)}
        comparisons.append((next(iter(spent.values())), _equal(board.pairs[budget], spent)))
        family = board.families.get(budget, NOTHING)
        if family.plan is None:
            comparisons += [_compare(board, places, column) for places in _before_the_end(board, budget)]
    return sorted(comparisons, key=lambda one: one[0])


def _before_the_end(board: Board, budget: str) -> list[list[Place]]:
    """Return the scores of the arms at each point of a budget that several arms have, without the end of training."""
    marks: dict[str, list[Place]] = {}
    for place in board.places:
        if place.budget == budget and place.mark != END:
            marks.setdefault(place.mark, []).append(place)
    return [places for places in marks.values() if len(places) > 1]


def _compare(board: Board, places: Sequence[Place], column: str) -> Compared:
    """Return the comparisons of the arms at one point, by the same rule as at the end of training."""
    family = board.families.get(places[0].budget, NOTHING)
    results = declared.compare({place.arm: place.scores for place in places}, replace(family, plan=None))
    pairs = [Pair(a, b, one) for (a, b), one in results.items()]
    spent = {place.arm: place.spent[column] for place in places}
    return next(iter(spent.values())), _equal(pairs, spent)


def _equal(pairs: Iterable[Pair], spent: Mapping[str, float]) -> list[Pair]:
    """Return the pairs of arms that spent the same amount, within the tolerance for equal compute."""
    return [pair for pair in pairs if _alike(spent[pair.a], spent[pair.b])]


def _alike(a: float, b: float) -> bool:
    low, high = sorted((a, b))
    return 0 < high <= low * (1 + TOLERANCE)


def between(shown: Claims) -> list[Crossing]:
    """Return each crossing with the two closest amounts that show it."""
    crossed = [
        Crossing(one.a, two.a, low, high, one.difference, two.difference)
        for of_pair in shown.values()
        for (low, one), (high, two) in itertools.pairwise(of_pair)
        if one.a != two.a
    ]
    return sorted(crossed, key=lambda crossing: crossing.low)


def claims(comparisons: Sequence[Compared]) -> Claims:
    """Return the amounts at which one arm of a pair is shown ahead, corrected for all pairs at all amounts (Holm)."""
    every = [(amount, pair) for amount, pairs in comparisons for pair in pairs if pair.compared.declared]
    every.sort(key=lambda one: 1.0 if one[1].difference.p is None else one[1].difference.p)
    shown: dict[frozenset[str], list[tuple[float, Pair]]] = {}
    for place, (amount, pair) in enumerate(every):
        p = pair.difference.p
        if p is None or p * (len(every) - place) >= ALPHA:
            break
        if pair.compared.claimed:
            shown.setdefault(frozenset((pair.a, pair.b)), []).append((amount, pair))
    return {pair: sorted(of_pair, key=lambda one: one[0]) for pair, of_pair in shown.items()}


def sentence(crossing: Crossing, axis: Axis, ahead: str = "ahead") -> str:
    """Return the sentence on a crossing: both amounts, and by how many points which arm is ahead there."""
    before, after = crossing.at_low.estimate, crossing.at_high.estimate
    return (
        f"{crossing.after} overtakes {crossing.before} between {axis.say(crossing.low)}, where {crossing.before} is "
        f"{ahead} by {interval(before.mean, before.half)} points, and {axis.say(crossing.high)}, where "
        f"{crossing.after} is {ahead} by {interval(after.mean, after.half)}."
    )


def sentences(board: Board, axis: Axis) -> list[str]:
    """Return a sentence for each crossing, and sentences on the pairs for which none is shown up to some amount."""
    comparisons = compared(board, axis.column)
    shown = claims(comparisons)
    crossings = between(shown)
    crossed_sentences = [sentence(one, axis, _relation(board, one.before, one.after)[0]) for one in crossings]
    if not board.places:
        return crossed_sentences
    if any(family.plan is not None for family in board.families.values()):
        return [
            *crossed_sentences,
            "Arms are not compared before the end of training: seeds were added by a plan with looks at the end only.",
        ]
    crossed = {frozenset((one.before, one.after)) for one in crossings}
    amounts: dict[frozenset[str], list[float]] = {}
    for amount, pairs in comparisons:
        for pair in (pair for pair in pairs if pair.compared.declared):
            amounts.setdefault(frozenset((pair.a, pair.b)), []).append(amount)
    ahead = [
        _ahead(of_pair, amounts[key], axis, _relation(board, *key))
        for key, of_pair in shown.items()
        if key not in crossed
    ]
    level = [" and ".join(sorted(key)) for key in amounts if key not in shown]
    if level:
        most = max(max(amounts[key]) for key in amounts if key not in shown)
        ahead.append(f"At no point up to {axis.say(most)} is either arm shown ahead: {listing(level)}.")
    return [*crossed_sentences, *ahead]


def _relation(board: Board, one: str, two: str) -> tuple[str, str]:
    """Return the predicate and the preposition of a claim: `ahead`, `of`, unless the arms have their own scorers."""
    return ("ahead", "of") if board.alike(one, two) else ("higher by its own scores", "than")


def _ahead(
    of_pair: Sequence[tuple[float, Pair]], amounts: Sequence[float], axis: Axis, relation: tuple[str, str]
) -> str:
    """Return the sentence on an arm that is ahead of another at some amounts and not shown to be overtaken by it."""
    (low, first), (high, _) = of_pair[0], of_pair[-1]
    end = max(amounts)
    at = f"at {axis.say(low)}" if low == high else f"from {axis.say(low)} to {axis.say(high)}"
    often = f"shown at {len(of_pair)} of {len(amounts)} points" if len(amounts) > 1 else "shown at the only point"
    last = f"up to {axis.say(end)} it is not overtaken"
    if high < end:
        last = f"from there to {axis.say(end)} neither is shown ahead"
    return f"{first.a} is {' '.join(relation)} {first.b} {at} ({often}); {last}."
