"""Between which amounts of compute two arms change places, where both orders are shown."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from workbench.report.comparison import declared
from workbench.report.comparison.boards import Board, Pair
from workbench.report.comparison.declared import NOTHING
from workbench.report.comparison.spending import TOLERANCE
from workbench.report.comparison.training_points import Place
from workbench.report.figures.marks import Axis
from workbench.report.load.run_files import END
from workbench.report.statistics.paired_comparison import ALPHA, Difference
from workbench.report.words import interval, listing

Compared = tuple[float, Sequence[Pair]]  # an amount that some arms have spent, and the pairs of them
Claims = Mapping[frozenset[str], Sequence[tuple[float, Pair]]]  # two arms -> where one of them is ahead, in order


@dataclass(frozen=True)
class Crossing:
    """`before` is ahead at the amount `low` and `after` at `high`, so their curves cross between the two.

    No curve is assumed. The bracket is wrong only if one of the two claims is, and all claims are corrected together.
    """

    before: str
    after: str
    low: float
    high: float
    at_low: Difference
    at_high: Difference


def crossings(board: Board, column: str) -> list[Crossing]:
    """Return every change of places between arms that spent the same of a column of the runs."""
    return between(claims(compared(board, column)))


def compared(board: Board, column: str) -> list[Compared]:
    """Return the amounts at which arms are compared: the end of each budget, and the points of training before.

    Where seeds are added by a plan, only the ends count, as its looks are at these alone.
    """
    found: list[Compared] = []
    for budget in board.budgets:
        spent = {cell.arm: cell.spent[column] for cell in board.at(budget)}
        found.append((next(iter(spent.values())), _equal(board.pairs[budget], spent)))
        family = board.families.get(budget, NOTHING)
        if family.plan is None:
            found += [_compare(board, places, column) for places in _before_the_end(board, budget)]
    return sorted(found, key=lambda one: one[0])


def _before_the_end(board: Board, budget: str) -> list[list[Place]]:
    """Return the places of each point of a budget that several arms have."""
    marks: dict[str, list[Place]] = {}
    for place in board.places:
        if place.budget == budget and place.mark != END:
            marks.setdefault(place.mark, []).append(place)
    return [places for places in marks.values() if len(places) > 1]


def _compare(board: Board, places: Sequence[Place], column: str) -> Compared:
    """Compare the arms of one point by the rule of every comparison."""
    family = board.families.get(places[0].budget, NOTHING)
    found = declared.compare({place.arm: place.scores for place in places}, replace(family, plan=None))
    pairs = [Pair(a, b, one) for (a, b), one in found.items()]
    spent = {place.arm: place.spent[column] for place in places}
    return next(iter(spent.values())), _equal(pairs, spent)


def _equal(pairs: Iterable[Pair], spent: Mapping[str, float]) -> list[Pair]:
    """Return the pairs of arms that spent the same."""
    return [pair for pair in pairs if _alike(spent[pair.a], spent[pair.b])]


def _alike(a: float, b: float) -> bool:
    low, high = sorted((a, b))
    return 0 < high <= low * (1 + TOLERANCE)


def between(shown: Claims) -> list[Crossing]:
    """Return the closest two amounts that show each change of places."""
    made = [
        Crossing(one.a, two.a, low, high, one.difference, two.difference)
        for of_pair in shown.values()
        for (low, one), (high, two) in itertools.pairwise(of_pair)
        if one.a != two.a
    ]
    return sorted(made, key=lambda crossing: crossing.low)


def claims(found: Sequence[Compared]) -> Claims:
    """Return where one arm of a pair is shown ahead of the other, corrected for every pair and every amount (Holm)."""
    every = [(amount, pair) for amount, pairs in found for pair in pairs if pair.compared.declared]
    every.sort(key=lambda one: 1.0 if one[1].difference.p is None else one[1].difference.p)
    shown: dict[frozenset[str], list[tuple[float, Pair]]] = {}
    for place, (amount, pair) in enumerate(every):
        p = pair.difference.p
        if p is None or p * (len(every) - place) >= ALPHA:
            break
        if pair.compared.claimed:
            shown.setdefault(frozenset((pair.a, pair.b)), []).append((amount, pair))
    return {pair: sorted(of_pair, key=lambda one: one[0]) for pair, of_pair in shown.items()}


def sentence(crossing: Crossing, axis: Axis) -> str:
    """Return between which amounts two arms change places, and by how much each was ahead."""
    before, after = crossing.at_low.estimate, crossing.at_high.estimate
    return (
        f"{crossing.after} overtakes {crossing.before} between {axis.say(crossing.low)}, where {crossing.before} is "
        f"ahead by {interval(before.mean, before.half)} points, and {axis.say(crossing.high)}, where {crossing.after} "
        f"is ahead by {interval(after.mean, after.half)}."
    )


def sentences(board: Board, axis: Axis) -> list[str]:
    """Return each change of places, and for every other pair by which amount there is none."""
    found = compared(board, axis.column)
    shown = claims(found)
    crossings = between(shown)
    told = [sentence(crossing, axis) for crossing in crossings]
    if not board.places:
        return told
    if any(family.plan is not None for family in board.families.values()):
        return [
            *told,
            "Points before the end are not compared: seeds were added by a plan, whose looks are at ends alone.",
        ]
    crossed = {frozenset((one.before, one.after)) for one in crossings}
    amounts: dict[frozenset[str], list[float]] = {}
    for amount, pairs in found:
        for pair in (pair for pair in pairs if pair.compared.declared):
            amounts.setdefault(frozenset((pair.a, pair.b)), []).append(amount)
    ahead = [_ahead(of_pair, amounts[key], axis) for key, of_pair in shown.items() if key not in crossed]
    level = [" and ".join(sorted(key)) for key in amounts if key not in shown]
    if level:
        most = max(max(amounts[key]) for key in amounts if key not in shown)
        ahead.append(f"Neither arm is shown ahead at any point, up to {axis.say(most)}: {listing(level)}.")
    return [*told, *ahead]


def _ahead(of_pair: Sequence[tuple[float, Pair]], amounts: Sequence[float], axis: Axis) -> str:
    """Return from where to where one arm is ahead of another that has not overtaken it."""
    (low, first), (high, _) = of_pair[0], of_pair[-1]
    end = max(amounts)
    at = f"at {axis.say(low)}" if low == high else f"from {axis.say(low)} to {axis.say(high)}"
    often = f"{len(of_pair)} of {len(amounts)} points show it" if len(amounts) > 1 else "the one point shows it"
    last = f"by {axis.say(end)} it has not been overtaken"
    if high < end:
        last = f"from there to {axis.say(end)} neither is shown ahead"
    return f"{first.a} is ahead of {first.b} {at} ({often}); {last}."
