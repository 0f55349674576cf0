"""What may be said: sentences that claim no more than the rule of `paired_comparison` allows.

"A is ahead of B" is said where `statistics.Compared.claimed` holds, and nowhere else. Where A is beaten by a bag of
words, or not shown ahead of its own untrained encoder, that is said first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.report.comparison.boards import Board, Cell, Pair
from workbench.report.comparison.spending import TOLERANCE, ratios
from workbench.report.page import decided
from workbench.report.page.doubts import caveat
from workbench.report.page.phrases import gap_text, how, mean_label, named, several
from workbench.report.statistics.noise import LEAST_DF, reach_of
from workbench.report.statistics.paired_comparison import ALPHA
from workbench.report.statistics.power import needed_seeds
from workbench.report.words import freedom, interval, listing, points, seeds

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
    plural = several(axis)
    if board.family.pairs:
        return _declared(board, names, plural)
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
    below = caveat(board, board.budget, {p.a for p in rest}, names, plural)
    further = [f"{below} {text}".strip() for text in further]
    doubt = caveat(board, board.budget, {cells[0].arm}, names, plural) if lead else ""
    if any(p.compared.claimed for p in lead):
        sentence, doubt = f"{doubt} {sentence}".strip(), ""
    further = [doubt, *_unequal(board, names), *further, *_against_untrained(cells, names), *_reach(board)]
    return Answer(sentence, tuple(text for text in further if text))


def _declared(board: Board, names: dict[str, str], plural: str) -> Answer:
    """Answer from the comparisons that were declared beforehand, and from no others."""
    cells = board.at(board.budget)
    claimed = {pair.a for pair in decided.declared_pairs(board) if pair.compared.claimed}
    sentence, doubt = (
        decided.sentence(board, names),
        caveat(board, board.budget, claimed or {cells[0].arm}, names, plural),
    )
    if claimed:
        sentence, doubt = f"{doubt} {sentence}".strip(), ""
    rest = [*decided.planned(board), *_unequal(board, names), *_against_untrained(cells, names), *_reach(board)]
    return Answer(sentence, tuple(text for text in (doubt, decided.exploratory(board, names), *rest) if text))


def _unequal(board: Board, names: dict[str, str]) -> list[str]:
    """That the first did not spend the same as another, where that is so."""
    convention, found = board.convention(), ratios(board, board.budget)
    first = next(iter(found), "")
    other = max(found, key=lambda arm: max(found[first] / found[arm], found[arm] / found[first]), default="")
    if not found or max(found[first] / found[other], found[other] / found[first]) <= 1 + TOLERANCE:
        return []
    ratio = found[first] / found[other]
    more = f"{ratio:.2f} times the" if ratio > 1 else f"only {ratio:.2f} of the"
    return [
        f"This is not at equal compute: {names[first]} spent {more} FLOPs of {names[other]} ({convention} convention)."
    ]


def _alone(board: Board, cell: Cell, names: dict[str, str]) -> str:
    e = cell.estimate
    tail = "one seed, so no interval" if e.df is None else f"95 % interval over {seeds([e.n])}, {freedom([e.df])}"
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
    n, paired = seeds([p.difference.estimate.n for p in lead]), how([p.compared for p in lead])
    if not unsure:
        gaps = _gaps(sure, names)
        every = f"every other of the {len(cells)} {plural}: " if len(sure) > 1 else ""
        return f"{first} is ahead {'of ' + every if every else ''}{gaps} points of {board.label} ({paired})."
    if sure:
        gaps = _gaps(sure, names)
        others = _open(unsure, names, board)
        return (
            f"{first} has the highest {mean_label(board)} and is ahead {gaps} points ({paired}), "
            f"but {n} can't tell it from {others}."
        )
    near, far = unsure[0], unsure[-1]
    if len(lead) == 1:
        gap = gap_text(near.compared, f" points of {board.label}")
        return f"{n} can't tell {first} from {names[near.b]}: the gap is {gap} ({paired}){_enough(near, cells)}."
    return (
        f"{n} can't tell which of the {len(cells)} {plural} is best: {first} has the highest {mean_label(board)}, "
        f"{gap_text(near.compared, ' points more')} than the next, {names[near.b]}, and "
        f"{gap_text(far.compared, ' more')} than the last, {names[far.b]} ({paired}{_but(far, board)})"
        f"{'' if _but(near, board) and _but(far, board) else _enough(near, cells)}."
    )


def _open(pairs: list[Pair], names: dict[str, str], board: Board) -> str:
    """`b (0.4 ± 0.7)`; what is larger than its interval and still not claimed comes last, with the reason once."""
    said: dict[str, list[str]] = {}
    for p in sorted(pairs, key=lambda p: _but(p, board)):
        said.setdefault(_but(p, board), []).append(f"{names[p.b]} ({gap_text(p.compared)})")
    plain, *others = [said.pop("", []), *said.items()]
    return listing([*plain, *(listing(told) + why for why, told in others)])


def _gaps(pairs: list[Pair], names: dict[str, str]) -> str:
    """`of b by 1.3 ± 0.4 and of c by 2.0 ± 0.6`; nearest and farthest where there are many."""
    if len(pairs) <= MOST:
        return listing([f"of {names[p.b]} by {gap_text(p.compared)}" for p in pairs])
    near, far = pairs[0], pairs[-1]
    return (
        f"of {len(pairs)}, from {names[near.b]} down to {names[far.b]}, by {gap_text(near.compared)} "
        f"to {gap_text(far.compared)}"
    )


def _but(pair: Pair, board: Board) -> str:
    """Why a gap that is larger than its own interval is still not claimed."""
    if pair.compared.claimed or pair.difference.p is None or pair.difference.p >= ALPHA:
        return ""
    if pair.compared.adjusted is not None and pair.compared.adjusted < ALPHA:
        return ", more than its own interval, but the permutation test doesn\u2019t bear it out"
    return f", more than its own interval but not once all {len(board.pairs[board.budget])} comparisons are counted"


def _enough(pair: Pair, cells: list[Cell]) -> str:
    """How many seeds would do, if gap and noise are what they seem to be."""
    e, noise = pair.difference.estimate, pair.compared.noise
    if e.n < 2 or not noise:
        return ""
    if e.half is None:
        return f"; from {1 + math.ceil(LEAST_DF / (len(cells) - 1))} seeds on there is an interval"
    needed = needed_seeds(e.mean, noise, len(cells))
    if needed is None:
        return "; no practical number of seeds would, for a gap of this size"
    if needed <= e.n:
        return f"; a gap of this size is mostly shown by {seeds([needed])}, but was not here"
    return f"; about {needed} would, for a gap of this size"


def _further(pairs: list[Pair], names: dict[str, str], among: int) -> str:
    if len(pairs) > MOST:
        return f"{len(pairs)} of the {among} other pairs are told apart; the table of pairs names them"
    by_first: dict[str, list[str]] = {}
    for p in pairs:
        by_first.setdefault(p.a, []).append(f"of {names[p.b]} by {gap_text(p.compared)}")
    return "; ".join(f"{names[a]} is ahead {listing(behind)}" for a, behind in by_first.items())


_UNTRAINED = {
    "ahead": ("beats its own untrained encoder", "beat their own untrained encoders"),
    "open": (
        "can't be told from its own untrained encoder",
        "can't be told from their own untrained encoders",
    ),
    "behind": ("is worse than its own untrained encoder", "are worse than their own untrained encoders"),
}


def _against_untrained(cells: list[Cell], names: dict[str, str]) -> list[str]:
    """Which arms beat the untrained encoder of their seed, by the rule of `paired_comparison`; a sentence, or none."""
    gains = [(names[c.arm], c.gain) for c in cells if c.gain is not None]
    if not gains:
        return []
    parts = []
    for verdict, (one, many) in _UNTRAINED.items():
        found = [(name, g) for name, g in gains if g.adjusted is not None and g.verdict == verdict]
        mine = [(name, g.estimate) for name, g in found]
        told = [f"{name} ({interval(e.mean, e.half, True)})" for name, e in mine]
        missed = [name for name, g in found if verdict == "open" and (g.difference.p or 1.0) < ALPHA]
        if len(told) > MOST:
            least, most = min(mine, key=lambda m: m[1].mean), max(mine, key=lambda m: m[1].mean)
            ends = " to ".join(f"{interval(e.mean, e.half, True)} for {name}" for name, e in (least, most))
            parts.append(f"{len(told)} of {len(gains)} arms {many} (from {ends})")
        elif told:
            parts.append(f"{listing(told)} {one if len(told) == 1 else many}")
        if missed:
            parts[-1] += f", though {listing(missed)} by more than the interval before all comparisons are counted"
    without = [f"{name} ({points(g.estimate.mean, 1, True)})" for name, g in gains if g.adjusted is None]
    if without:
        gain = "the gain has" if len(without) == 1 else "the gains have"
        parts.append(f"for {listing(without)} {gain} no interval, so nothing is claimed")
    rule = f", by the same rule as \u201cahead\u201d, over {len(gains)} comparisons" if len(gains) > 1 else ""
    rule = rule if len(without) < len(gains) else ""
    return [f"Against the untrained encoders: {'; '.join(parts)} ({how([g for _, g in gains])}{rule})."]


def _reach(board: Board) -> list[str]:
    """What the design could have seen, and by what rule claims are made."""
    noise = next((n for n in board.noise[board.budget] if n.name == "mean"), None)
    if noise is None or noise.n < 2 or noise.paired is None:
        return []
    if noise.paired == 0:
        return [
            "Seeds made no difference to any gap here, so the noise is unknown, and with it how small a gap would show."
        ]
    if noise.gap is None:
        return [
            f"With {seeds([noise.n])} of {len(board.at(board.budget))} arms there {'is' if noise.df == 1 else 'are'} "
            f"{freedom([noise.df])} to estimate the noise from: too few to show any gap, however large."
        ]
    return [
        f"With {seeds([noise.n])} and this much noise (paired differences scatter by {points(noise.paired, 2)}, "
        f"{freedom([noise.df])}) a true gap of {points(noise.gap)} points between two arms"
        f"{' of a declared comparison' if board.family.pairs else ''} would be shown four times in five, "
        f"smaller ones less often.",
        _rule(board),
    ]


def _rule(board: Board) -> str:
    """When "ahead" is said, in the words of a reader."""
    pairs = [pair for pair in board.pairs[board.budget] if pair.compared.declared]
    if len(pairs) == 1 and len(board.at(board.budget)) < 3:
        return (
            f"\u201cAhead\u201d is said where the paired t test stays below 5 %{_flipped(board)}. Intervals are 95 % "
            f"Student t."
        )
    return (
        f"\u201cAhead\u201d is said where two paired t tests stay below 5 %: one with the noise that all arms share "
        f"and {_holm(board, len(pairs))}, one with the noise of the two arms alone and its p "
        f"times {reach_of([(pair.a, pair.b) for pair in pairs])}{_flipped(board)}. Intervals of "
        f"differences are 95 % Student t, each on its own, and the wider of what the two kinds of noise give."
    )


def _holm(board: Board, comparisons: int) -> str:
    """Return over what Holm's correction runs."""
    which = f"the {comparisons} declared" if board.family.pairs else f"all {comparisons}"
    return f"Holm\u2019s correction over {which} pairs"


def _flipped(board: Board) -> str:
    """The part of the rule that needs six seeds; said only where there are as many."""
    if not any(pair.compared.flip is not None for pair in board.pairs[board.budget]):
        return ""
    return ", and where the permutation test of a pair with six seeds or more does too"
