"""Sentences on comparisons that were declared beforehand: which are decided, and how many seeds the others need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.report.comparison.boards import Board, Pair
from workbench.report.formatting import interval, listing, seeds
from workbench.report.page.phrases import gap_text, how, mean_label, relation
from workbench.report.statistics.group_sequential import Look
from workbench.report.statistics.noise import own_noises
from workbench.report.statistics.paired_comparison import ALPHA, Compared
from workbench.report.statistics.power import family_of, needed_seeds

Names = Mapping[str, str]


def declared_pairs(board: Board) -> list[Pair]:
    """Return the comparisons at the largest budget that were declared beforehand, in the order of their declaration."""
    place = {frozenset(pair): i for i, pair in enumerate(board.family.pairs)}
    pairs = [pair for pair in board.pairs[board.budget] if frozenset((pair.a, pair.b)) in place]
    return sorted(pairs, key=lambda pair: place[frozenset((pair.a, pair.b))])


def sentence(board: Board, names: Names) -> str:
    """Return the sentence on the declared comparisons: those that are decided, and then the others."""
    pairs = declared_pairs(board)
    sure = [pair for pair in pairs if pair.compared.claimed]
    unsure = [pair for pair in pairs if not pair.compared.claimed]
    paired = how([pair.compared for pair in pairs])
    undecided = "; ".join(_undecided(board, pair, names) for pair in unsure)
    several = f"{len(pairs):,} comparisons that were declared beforehand"
    if not sure and len(pairs) == 1:
        return f"The comparison that was declared beforehand is not decided ({paired}): {undecided}."
    if not sure:
        return f"None of the {several} is decided ({paired}): {undecided}."
    decided = f"{ahead(board, sure, names)} points of {board.label} ({paired})"
    if not unsure:
        if len(pairs) == 1:
            return f"{decided}, the comparison that was declared beforehand."
        return f"All {several} are decided: {decided}."
    verb = "is" if len(sure) == 1 else "are"
    return f"{len(sure)} of the {several} {verb} decided: {decided}. Not decided: {undecided}."


def ahead(board: Board, pairs: Sequence[Pair], names: Names) -> str:
    """Return `a is ahead of b by 1.3 ± 0.4; c is ahead of b by 2.0 ± 0.6 and of d by 3.1 ± 0.5`."""
    by_first: dict[tuple[str, str], list[str]] = {}
    for pair in pairs:
        verb, than = relation(board, [pair])
        by_first.setdefault((pair.a, verb), []).append(f"{than} {names[pair.b]} by {gap_text(pair.compared)}")
    return "; ".join(f"{names[a]} {verb} {listing(behind)}" for (a, verb), behind in by_first.items())


def _undecided(board: Board, pair: Pair, names: Names) -> str:
    """Return `a and b (0.4 ± 0.7, about 30 seeds would show a gap of this size)`."""
    arms = {cell.arm: cell.scores for cell in board.at(board.budget)}
    if board.family.plan is not None:
        return f"{names[pair.a]} and {names[pair.b]} ({gap_text(pair.compared)}{_status_clause(board, pair)})"
    e, noise = pair.difference.estimate, pair.compared.noise
    known = e.n >= 2 and e.half is not None and noise is not None and noise > 0
    family, own = family_of(list(arms), board.family.pairs), own_noises(arms).get(frozenset((pair.a, pair.b)))
    needed = needed_seeds(e.mean, noise or 0.0, len(arms), family, own) if known else None
    would = f", about {seeds([needed])} would show a gap of this size" if needed is not None and needed > e.n else ""
    return f"{names[pair.a]} and {names[pair.b]} ({gap_text(pair.compared)}{would})"


def _status_clause(board: Board, pair: Pair) -> str:
    """Return a clause on the status, after the last look, of a comparison that is not decided now."""
    status = status_at(board.looks[-1], pair.a, pair.b) if board.looks else "open"
    most = board.family.plan.most if board.family.plan else 0
    tails = {
        "open": "", "out of reach": f", out of reach: even {most} seeds would hardly decide it", "not decided": "",
        "decided": ", decided at an earlier look, but not confirmed by later seeds",
    }  # fmt: skip
    return tails[status]


def status_at(look: Look, a: str, b: str) -> str:
    """Return the status of the comparison of two arms after a look."""
    return look.status[(a, b) if (a, b) in look.status else (b, a)]


def planned(board: Board) -> list[str]:
    """Return how seeds are added, and how p values and intervals account for that; nothing if there is no plan."""
    plan = board.family.plan
    if plan is None:
        return []
    counts = listing([str(count) for count in plan.seeds])
    taken = f"{plan.taken} of these looks {'has' if plan.taken == 1 else 'have'} been taken"
    schedule = (
        f"Seeds are added in blocks until every declared comparison is decided or out of reach: looks are planned at "
        f"{counts} seeds, and {taken if plan.taken else 'none has been taken'}. By a look at n of {plan.most} seeds, "
        f"the share (n/{plan.most})² of the error rate of 5 % may have been spent."
    )
    if not plan.taken:
        return [schedule]
    return [
        f"{schedule} p values of declared comparisons are divided by the share of their look, and their intervals are "
        f"of {plan.level:.3g} %, so that the intervals of all looks are right at once in 95 of 100 experiments."
    ]


@dataclass(frozen=True)
class LookRow:
    """One look: its number of seeds, the error rate `level` that it may spend in %, and the status of comparisons."""

    seeds: int
    level: float
    statuses: tuple[tuple[str, str, Compared, str], ...]


def look_rows(board: Board) -> list[LookRow]:
    """Return a row for each look that was taken."""
    return [
        LookRow(
            look.seeds,
            100 * ALPHA * look.share,
            tuple((a, b, one, look.status[a, b]) for (a, b), one in look.compared.items()),
        )
        for look in board.looks
    ]


def exploratory(board: Board, names: Names) -> str:
    """Return the sentence on the arm with the highest mean, and on pairs that were not declared."""
    rest = [pair for pair in board.pairs[board.budget] if not pair.compared.declared]
    tail = "; pairs that were not declared are exploratory, and nothing is claimed of them" if rest else ""
    return f"{highest(board, names)}{tail}."


def highest(board: Board, names: Names) -> str:
    """Return a sentence, without a full stop, on the arm with the highest mean."""
    best, *others = board.at(board.budget)
    mean = interval(best.estimate.mean, best.estimate.half)
    level = [other.arm for other in others if other.estimate.mean == best.estimate.mean]
    shared = f", as {'has' if len(level) == 1 else 'have'} {listing([names[arm] for arm in level])}" if level else ""
    return f"{names[best.arm]} has the highest {mean_label(board)}, {mean}{shared}"
