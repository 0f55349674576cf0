"""What may be said: sentences that claim no more than their intervals carry.

"A is ahead of B" is said where `statistics.Compared.claimed` allows it, and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.report.naming import spoken
from workbench.report.spending import TOLERANCE, main_convention, ratios
from workbench.report.statistics import LEVEL, Difference, needed_seeds
from workbench.report.tables import Board, Cell, Pair
from workbench.report.words import interval, listing, points, seeds

MOST = 5  # comparisons that a sentence can hold and still be read


@dataclass(frozen=True)
class Answer:
    """`sentence` answers the question as far as it goes; `further` says what else holds and what can't be said."""

    sentence: str
    further: tuple[str, ...]


def answer(board: Board, axis: str) -> Answer:
    """For the largest budget of a board."""
    cells = board.at(board.budget)
    names = {c.arm: named(axis, c.arm) for c in cells}
    plural = "objectives" if axis == "objective" else f"settings of {spoken(axis)}"
    pairs = board.pairs[board.budget]
    lead = [p for p in pairs if p.a == cells[0].arm]
    if len(cells) == 1:
        sentence = _alone(board, cells[0], names)
    elif all(p.difference.estimate.n < 2 for p in lead):
        sentence = _one_seed(board, cells, lead, names)
    else:
        sentence = _compared(board, cells, lead, names, plural)
    rest = [p for p in pairs if p not in lead and p.compared.claimed]
    further = [f"Further down, {_further(rest, names, len(pairs) - len(lead))}."] if rest else []
    return Answer(sentence, (*_unequal(board, names), *further, *_against_untrained(cells, names), *_reach(board)))


def _unequal(board: Board, names: dict[str, str]) -> list[str]:
    """That the first did not spend the same as another, where that is so."""
    convention, found = main_convention(board.budget), ratios(board, board.budget)
    first = next(iter(found), "")
    other = max(found, key=lambda arm: max(found[first] / found[arm], found[arm] / found[first]), default="")
    if not found or max(found[first] / found[other], found[other] / found[first]) <= 1 + TOLERANCE:
        return []
    ratio = found[first] / found[other]
    more = f"{ratio:.2f} times the" if ratio > 1 else f"only {ratio:.2f} of the"
    return [
        f"This is not at equal compute: {names[first]} spent {more} FLOPs of {names[other]} ({convention} convention)."
    ]


def named(axis: str, arm: str) -> str:
    """An arm in a sentence: `rtd`, `generator width 0.25`, `a unigram generator`."""
    if axis == "objective":
        return arm
    words = arm.split(",")[0] in ("unigram", "uniform") and axis.startswith("generator.")
    return f"a {arm} generator" if words else f"{spoken(axis)} {arm}"


def _alone(board: Board, cell: Cell, names: dict[str, str]) -> str:
    e = cell.estimate
    tail = "one seed, so no interval" if e.half is None else f"95 % interval over {seeds([e.n])}"
    return (
        f"{names[cell.arm]} scores {interval(e.mean, e.half)} on {board.label} ({tail}); "
        f"there is nothing else at this budget to compare it with."
    )


def _one_seed(board: Board, cells: list[Cell], lead: list[Pair], names: dict[str, str]) -> str:
    first, gap = cells[0], lead[0].difference.estimate
    if gap.n == 0:
        return (
            f"{names[first.arm]} has the highest {board.label} ({points(first.estimate.mean)}), but it shares no seed "
            f"with {names[lead[0].b]}, so nothing here says whether that is more than noise."
        )
    more = f"{points(gap.mean)} more than" if points(gap.mean) != points(0.0) else "level with"
    return (
        f"One seed can't rank them: {names[first.arm]} has the highest {board.label} ({points(first.estimate.mean)}), "
        f"{more} {names[lead[0].b]}, and without a second seed there is no interval to say "
        f"whether that is more than noise."
    )


def _compared(board: Board, cells: list[Cell], lead: list[Pair], names: dict[str, str], plural: str) -> str:
    first = names[cells[0].arm]
    sure, unsure = [p for p in lead if p.compared.claimed], [p for p in lead if not p.compared.claimed]
    n = seeds([p.difference.estimate.n for p in lead])
    if not unsure:
        gaps = _gaps(sure, names)
        every = f"every other of the {len(cells)} {plural}: " if len(sure) > 1 else ""
        return f"{first} is ahead {'of ' + every if every else ''}{gaps} points of {board.label} (paired, {n})."
    if sure:
        gaps = _gaps(sure, names)
        others = _open(unsure, names, board)
        return (
            f"{first} has the highest {_mean(board)} and is ahead {gaps} points (paired, {n}), "
            f"but {n} can't tell it from {others}."
        )
    near, far = unsure[0], unsure[-1]
    if len(lead) == 1:
        gap = _gap(near.difference, f" points of {board.label}")
        return f"{n} can't tell {first} from {names[near.b]}: the gap is {gap} (paired){_enough(near.difference)}."
    return (
        f"{n} can't tell which of the {len(cells)} {plural} is best: {first} has the highest {_mean(board)}, "
        f"{_gap(near.difference, ' points more')} than the next, {names[near.b]}, and "
        f"{_gap(far.difference, ' more')} than the last, {names[far.b]} (paired{_but(far, board)})"
        f"{'' if _but(near, board) and _but(far, board) else _enough(near.difference)}."
    )


def _mean(board: Board) -> str:
    return board.label if board.label.startswith("mean of ") else f"mean {board.label}"


def _open(pairs: list[Pair], names: dict[str, str], board: Board) -> str:
    """`b (0.4 ± 0.7)`; what is larger than its interval and still not claimed comes last, with the reason once."""
    said: dict[str, list[str]] = {}
    for p in sorted(pairs, key=lambda p: _but(p, board)):
        said.setdefault(_but(p, board), []).append(f"{names[p.b]} ({_gap(p.difference)})")
    plain, *others = [said.pop("", []), *said.items()]
    return listing([*plain, *(listing(told) + why for why, told in others)])


def _gaps(pairs: list[Pair], names: dict[str, str]) -> str:
    """`of b by 1.3 ± 0.4 and of c by 2.0 ± 0.6`; nearest and farthest where there are many."""
    if len(pairs) <= MOST:
        return listing([f"of {names[p.b]} by {_gap(p.difference)}" for p in pairs])
    near, far = pairs[0], pairs[-1]
    return (
        f"of {len(pairs)}, from {names[near.b]} down to {names[far.b]}, by {_gap(near.difference)} "
        f"to {_gap(far.difference)}"
    )


def _gap(difference: Difference, unit: str = "") -> str:
    """`1.3 ± 0.4` and the unit, such as " points"."""
    e = difference.estimate
    if e.n >= 2 and difference.p is None:
        return f"{points(e.mean)}{unit} (the same in every seed, so without an interval)"
    return interval(e.mean, e.half) + unit if e.n else "unknown for want of a common seed"


def _but(pair: Pair, board: Board) -> str:
    """Why a gap that is larger than its own interval is still not claimed."""
    if pair.difference.verdict != "ahead":
        return ""
    if pair.compared.holm is not None and pair.compared.holm < 1 - LEVEL:
        return ", more than its own interval, but the permutation test doesn\u2019t bear it out"
    return f", more than its own interval but not once all {len(board.pairs[board.budget])} comparisons are counted"


def _enough(difference: Difference) -> str:
    """How many seeds would do, if the gap is what it seems to be."""
    e = difference.estimate
    if e.sd is None or difference.p is None:
        return ""
    needed = needed_seeds(e.mean, e.sd)
    if needed is None:
        return "; no practical number of seeds would, for a gap of this size"
    if needed <= e.n:
        return ", once every comparison in the table is counted"
    return f"; about {needed} would, for a gap of this size"


def _further(pairs: list[Pair], names: dict[str, str], among: int) -> str:
    if len(pairs) > MOST:
        return f"{len(pairs)} of the {among} other pairs are told apart; the table of pairs names them"
    by_first: dict[str, list[str]] = {}
    for p in pairs:
        by_first.setdefault(p.a, []).append(f"of {names[p.b]} by {_gap(p.difference)}")
    return "; ".join(f"{names[a]} is ahead {listing(behind)}" for a, behind in by_first.items())


_UNTRAINED = {
    "ahead": (
        "beats its own untrained encoder by more than the interval",
        "beat their own untrained encoders by more than the interval",
    ),
    "open": (
        "can't be told from its own untrained encoder",
        "can't be told from their own untrained encoders",
    ),
    "behind": (
        "is worse than its own untrained encoder by more than the interval",
        "are worse than their own untrained encoders by more than the interval",
    ),
}


def _against_untrained(cells: list[Cell], names: dict[str, str]) -> list[str]:
    """Which arms beat the untrained encoder of the same seed by more than the interval; one sentence, or none."""
    gains = [(names[c.arm], c.gain) for c in cells if c.gain is not None]
    if not gains:
        return []
    parts = []
    for verdict, (one, many) in _UNTRAINED.items():
        mine = [(name, g.estimate) for name, g in gains if g.p is not None and g.verdict == verdict]
        told = [f"{name} ({interval(e.mean, e.half, True)})" for name, e in mine]
        if len(told) > MOST:
            least, most = min(mine, key=lambda m: m[1].mean), max(mine, key=lambda m: m[1].mean)
            ends = " to ".join(f"{interval(e.mean, e.half, True)} for {name}" for name, e in (least, most))
            parts.append(f"{len(told)} of {len(gains)} arms {many} (from {ends})")
        elif told:
            parts.append(f"{listing(told)} {one if len(told) == 1 else many}")
    without = [f"{name} ({points(g.estimate.mean, 1, True)})" for name, g in gains if g.p is None]
    if without:
        gain = "the gain has" if len(without) == 1 else "the gains have"
        parts.append(f"for {listing(without)} {gain} no interval, so nothing is claimed")
    n = seeds([g.estimate.n for _, g in gains])
    how = ", each interval on its own" if len(without) < len(gains) else ""
    return [f"Against the untrained encoders: {'; '.join(parts)} (paired, {n}{how})."]


def _reach(board: Board) -> list[str]:
    """What the design could have seen, and what the claims were corrected for."""
    noise = next((n for n in board.noise[board.budget] if n.name == "mean"), None)
    said = []
    if noise is not None and noise.gap is not None:
        said.append(
            f"With {seeds([noise.n])} and this much noise a true gap of {points(noise.gap)} points between two arms "
            f"would be shown four times in five, smaller ones less often."
        )
    elif noise is not None and noise.n >= 2:
        said.append(
            "Seeds made no difference to any gap here, so the noise is unknown, and with it how small a gap would show."
        )
    if sum(pair.compared.holm is not None for pair in board.pairs[board.budget]) > 1:
        said.append(
            f"Intervals are 95 % Student t, each on its own; the word \u201cahead\u201d also needs the paired t test "
            f"to stay below 5 % after Holm\u2019s correction over all {len(board.pairs[board.budget])} pairs"
            f"{_flipped(board)}."
        )
    return said


def _flipped(board: Board) -> str:
    """Said only where there are seeds enough for it."""
    if not any(pair.compared.flip is not None for pair in board.pairs[board.budget]):
        return ""
    return ", and the permutation test of a pair with six seeds or more not to object"
