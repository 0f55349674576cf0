"""The answer to a report's question, in sentences that claim no more than the rule of `paired_comparison` allows.

"A is ahead of B" is stated only if `paired_comparison.Compared.claimed` holds. If a bag of words scores higher than A,
or A is not shown ahead of its own untrained encoder, that is stated first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.errors import plural
from workbench.report.comparison.boards import Board, Cell, Pair
from workbench.report.comparison.doubts import caveat
from workbench.report.comparison.spending import TOLERANCE, ratios
from workbench.report.formatting import freedom, interval, listing, points, seeds
from workbench.report.page import decisions
from workbench.report.page.phrases import gap_text, how, mean_label, named, relation, several
from workbench.report.statistics.noise import LEAST_DF, own_noises, reach_of
from workbench.report.statistics.paired_comparison import ALPHA
from workbench.report.statistics.per_task import Noise
from workbench.report.statistics.power import needed_seeds

MOST = 5  # comparisons listed in one sentence; of more, only the ends are given, so that it stays readable


@dataclass(frozen=True)
class Answer:
    """The answer to the question in one `sentence`, and `further` sentences: other results and doubts.

    `rule` says when an arm is called ahead; it is "" where too little is known of the noise to apply it.
    """

    sentence: str
    further: tuple[str, ...]
    rule: str


def answer(board: Board, axis: str) -> Answer:
    """Return the answer at the largest budget of a board."""
    cells = board.at(board.budget)
    names = {c.arm: named(axis, c.arm) for c in cells}
    noun = several(axis)
    if board.family.exploratory:
        return Answer(_exploratory(board, names), tuple(_reach(board, names)), "")
    if board.family.pairs:
        return _declared(board, names, noun)
    pairs = board.pairs[board.budget]
    lead = [p for p in pairs if p.a == cells[0].arm]
    if len(cells) == 1:
        sentence = _alone(board, cells[0], names)
    elif all(p.difference.estimate.n < 2 for p in lead):
        sentence = _one_seed(board, cells, lead, names)
    else:
        sentence = _compared(board, cells, lead, names, noun)
    rest = [p for p in pairs if p not in lead and p.compared.claimed]
    further = [f"Further down the ranking, {_further(board, rest, names, len(pairs) - len(lead))}."] if rest else []
    below = caveat(board, board.budget, {p.a for p in rest}, names, noun)
    further = [f"{below} {text}".strip() for text in further]
    doubt = caveat(board, board.budget, {cells[0].arm}, names, noun) if lead else ""
    if any(p.compared.claimed for p in lead):
        sentence, doubt = f"{doubt} {sentence}".strip(), ""
    further = [doubt, *_unequal(board, names), *further, *_against_untrained(cells, names), *_reach(board, names)]
    return Answer(sentence, tuple(text for text in further if text), _rule(board))


def _exploratory(board: Board, names: dict[str, str]) -> str:
    """Return the sentence on a measure that was named after scores were known."""
    return (
        f"Exploratory: this measure was named after scores of these runs were known, so nothing is claimed by it. "
        f"{decisions.highest(board, names)}."
    )


def _declared(board: Board, names: dict[str, str], noun: str) -> Answer:
    """Return the answer from the comparisons that were declared beforehand alone."""
    cells = board.at(board.budget)
    claimed = {pair.a for pair in decisions.declared_pairs(board) if pair.compared.claimed}
    sentence, doubt = (
        decisions.sentence(board, names),
        caveat(board, board.budget, claimed or {cells[0].arm}, names, noun),
    )
    if claimed:
        sentence, doubt = f"{doubt} {sentence}".strip(), ""
    rest = [
        *decisions.planned(board),
        *_unequal(board, names),
        *_against_untrained(cells, names),
        *_reach(board, names),
    ]
    further = (doubt, decisions.exploratory(board, names), *rest)
    return Answer(sentence, tuple(text for text in further if text), _rule(board))


def _unequal(board: Board, names: dict[str, str]) -> list[str]:
    """Return a sentence that the first arm did not spend as much as another, if their FLOPs differ; else none."""
    convention, spent = board.convention(), ratios(board, board.budget)
    first = next(iter(spent), "")
    other = max(spent, key=lambda arm: max(spent[first] / spent[arm], spent[arm] / spent[first]), default="")
    if not spent or max(spent[first] / spent[other], spent[other] / spent[first]) <= 1 + TOLERANCE:
        return []
    ratio = spent[first] / spent[other]
    more = f"{ratio:.2f} times the" if ratio > 1 else f"only {ratio:.2f} of the"
    return [
        f"This is not at equal compute: {names[first]} spent {more} FLOPs of {names[other]} ({convention} convention)."
    ]


def _alone(board: Board, cell: Cell, names: dict[str, str]) -> str:
    """Return the sentence for a single arm, which is compared with nothing."""
    e = cell.estimate
    tail = "one seed, so no interval" if e.df is None else f"95 % interval over {seeds([e.n])}, {freedom([e.df])}"
    return (
        f"{names[cell.arm]} scores {interval(e.mean, e.half)} on {board.label} ({tail}); "
        f"there is no other arm at this budget to compare it with."
    )


def _one_seed(board: Board, cells: list[Cell], lead: list[Pair], names: dict[str, str]) -> str:
    """Return the sentence for arms that share at most one seed, so that none is shown ahead."""
    first, gap = cells[0], lead[0].difference.estimate
    if gap.n == 0:
        return (
            f"{names[first.arm]} has the highest {board.label} ({points(first.estimate.mean)}), but it shares no seed "
            f"with {names[lead[0].b]}, so nothing shows whether the difference is more than noise."
        )
    more = f"{points(gap.mean)} more than" if points(gap.mean) != points(0.0) else "level with"
    return (
        f"One seed cannot rank them: {names[first.arm]} has the highest {board.label} ({points(first.estimate.mean)}), "
        f"{more} {names[lead[0].b]}, and without a second seed there is no interval to "
        f"show whether the difference is more than noise."
    )


def _compared(board: Board, cells: list[Cell], lead: list[Pair], names: dict[str, str], noun: str) -> str:
    """Return the sentence on the arm with the highest mean: which others it is ahead of, and which not."""
    first = names[cells[0].arm]
    sure, unsure = [p for p in lead if p.compared.claimed], [p for p in lead if not p.compared.claimed]
    n, paired = seeds([p.difference.estimate.n for p in lead]), how([p.compared for p in lead])
    verb, than = relation(board, sure)
    gaps = _gaps(sure, names, than)
    if not unsure:
        every = f"{than} every other of the {len(cells)} {noun}: " if len(sure) > 1 else ""
        return f"{first} {verb} {every}{gaps} points of {board.label} ({paired})."
    if sure:
        others = _open(unsure, names, board)
        return (
            f"{first} has the highest {mean_label(board)} and {verb} {gaps} points ({paired}), "
            f"but with {n} it cannot be told apart from {others}."
        )
    near, far = unsure[0], unsure[-1]
    if len(lead) == 1:
        gap = gap_text(near.compared, f" points of {board.label}")
        return (
            f"With {n}, {first} cannot be told apart from {names[near.b]}: the gap is {gap} "
            f"({paired}){_enough(near, cells)}."
        )
    return (
        f"With {n}, it cannot be told which of the {len(cells)} {noun} is best: {first} has the highest "
        f"{mean_label(board)}, {gap_text(near.compared, ' points more')} than the next, {names[near.b]}, and "
        f"{gap_text(far.compared, ' more')} than the last, {names[far.b]} ({paired}{_but(far, board)})"
        f"{'' if _but(near, board) and _but(far, board) else _enough(near, cells)}."
    )


def _open(pairs: list[Pair], names: dict[str, str], board: Board) -> str:
    """Return the arms that the first is not ahead of, with their gaps: `b (0.4 ± 0.7) and c (0.9 ± 0.8)`.

    Gaps that are larger than their own interval and still not claimed come last, with the reason once.
    """
    by_reason: dict[str, list[str]] = {}
    for p in sorted(pairs, key=lambda p: _but(p, board)):
        by_reason.setdefault(_but(p, board), []).append(f"{names[p.b]} ({gap_text(p.compared)})")
    plain, *others = [by_reason.pop("", []), *by_reason.items()]
    return listing([*plain, *(listing(arms) + reason for reason, arms in others)])


def _gaps(pairs: list[Pair], names: dict[str, str], than: str) -> str:
    """Return `of b by 1.3 ± 0.4 and of c by 2.0 ± 0.6`; the nearest and the farthest arm alone if there are many."""
    if len(pairs) <= MOST:
        return listing([f"{than} {names[p.b]} by {gap_text(p.compared)}" for p in pairs])
    near, far = pairs[0], pairs[-1]
    return (
        f"{than} {len(pairs)}, from {names[near.b]} down to {names[far.b]}, by {gap_text(near.compared)} "
        f"to {gap_text(far.compared)}"
    )


def _but(pair: Pair, board: Board) -> str:
    """Return why a gap that is larger than its own interval is still not claimed; "" for any other gap."""
    if pair.compared.claimed or pair.difference.p is None or pair.difference.p >= ALPHA:
        return ""
    if pair.compared.adjusted is not None and pair.compared.adjusted < ALPHA:
        return ", more than its own interval, but the permutation test does not confirm it"
    comparisons = len(board.pairs[board.budget])
    return f", more than its own interval, but not after correction for all {comparisons} comparisons"


def _enough(pair: Pair, cells: list[Cell]) -> str:
    """Return how many seeds would show a gap of this size, if the true gap and noise are equal to their estimates."""
    e, noise = pair.difference.estimate, pair.compared.noise
    if e.n < 2 or not noise:
        return ""
    if e.half is None:
        return f"; from {1 + math.ceil(LEAST_DF / (len(cells) - 1))} seeds on there is an interval"
    own = own_noises({cell.arm: cell.scores for cell in cells}).get(frozenset((pair.a, pair.b)))
    needed = needed_seeds(e.mean, noise, len(cells), own=own)
    if needed is None:
        return "; no practical number of seeds would show a gap of this size"
    if needed <= e.n:
        return f"; {seeds([needed])} would show a gap of this size in most experiments, but not in this one"
    return f"; about {seeds([needed])} would show a gap of this size"


def _further(board: Board, pairs: list[Pair], names: dict[str, str], among: int) -> str:
    """Return which arms below the first are ahead of others; of many pairs, their number out of `among`."""
    if len(pairs) > MOST:
        return f"{len(pairs)} of the {among} other pairs are told apart; the table of pairs names them"
    return decisions.ahead(board, pairs, names)


_UNTRAINED = {
    "ahead": ("beats its own untrained encoder", "beat their own untrained encoders"),
    "open": (
        "cannot be told apart from its own untrained encoder",
        "cannot be told apart from their own untrained encoders",
    ),
    "behind": ("is worse than its own untrained encoder", "are worse than their own untrained encoders"),
}


def _against_untrained(cells: list[Cell], names: dict[str, str]) -> list[str]:
    """Return a sentence on which arms beat the untrained encoder of their seed, by the rule of `paired_comparison`."""
    gains = [(names[c.arm], c.gain) for c in cells if c.gain is not None]
    if not gains:
        return []
    parts = []
    for verdict, (one, many) in _UNTRAINED.items():
        group = [(name, g) for name, g in gains if g.adjusted is not None and g.verdict == verdict]
        estimates = [(name, g.estimate) for name, g in group]
        arms = [f"{name} ({interval(e.mean, e.half, True)})" for name, e in estimates]
        missed = [name for name, g in group if verdict == "open" and (g.difference.p or 1.0) < ALPHA]
        if len(arms) > MOST:
            least, most = min(estimates, key=lambda m: m[1].mean), max(estimates, key=lambda m: m[1].mean)
            ends = " to ".join(f"{interval(e.mean, e.half, True)} for {name}" for name, e in (least, most))
            parts.append(f"{len(arms)} of {len(gains)} arms {many} (from {ends})")
        elif arms:
            parts.append(f"{listing(arms)} {one if len(arms) == 1 else many}")
        if missed:
            gain = "the gain of" if len(missed) == 1 else "each gain of"
            parts[-1] += (
                f", though {gain} {listing(missed)} is larger than its own interval, which is not corrected for the "
                f"number of comparisons"
            )
    without = [f"{name} ({points(g.estimate.mean, 1, True)})" for name, g in gains if g.adjusted is None]
    if without:
        gain = "the gain has" if len(without) == 1 else "the gains have"
        parts.append(f"for {listing(without)} {gain} no interval, so nothing is claimed")
    rule = f", by the same rule as \u201cahead\u201d, over {len(gains)} comparisons" if len(gains) > 1 else ""
    rule = rule if len(without) < len(gains) else ""
    return [f"Against the untrained encoders: {'; '.join(parts)} ({how([g for _, g in gains])}{rule})."]


def _reach(board: Board, names: dict[str, str]) -> list[str]:
    """Return the smallest gap that the design would have shown in most experiments."""
    noise = _noise(board)
    if noise is None or noise.n < 2 or noise.paired is None:
        return []
    if noise.paired == 0:
        return [
            "Every gap is the same in all seeds, so the noise is unknown, and so is the smallest gap that would show."
        ]
    if noise.gap is None:
        return [
            f"With {seeds([noise.n])} of {len(board.at(board.budget))} arms there {'is' if noise.df == 1 else 'are'} "
            f"{freedom([noise.df])} to estimate the noise from: too few to show any gap, however large."
        ]
    plan = board.family.plan
    looked = seeds([noise.n]) if plan is None else f"looks at {listing([str(count) for count in plan.seeds])} seeds"
    return [
        f"With {looked} and this much noise (paired differences have a standard deviation of "
        f"{points(noise.paired, 2)}, {freedom([noise.df])}) a true gap of {points(noise.gap)} points between two arms"
        f"{' of a declared comparison' if board.family.pairs else ''} would be shown four times in five if all arms "
        f"had the same noise, smaller ones less often{_widest(noise, names)}."
    ]


def _noise(board: Board) -> Noise | None:
    """Return the noise of the means over tasks."""
    return next((noise for noise in board.noise[board.budget] if noise.name == "mean"), None)


def _widest(noise: Noise, names: dict[str, str]) -> str:
    """Return the clause on the gap that the two noisiest arms need; "" if it is not larger than that of all arms."""
    if noise.widest is None:
        return ""
    a, b = names[noise.widest.a], names[noise.widest.b]
    return f"; with the noise of {a} and {b}, the noisiest pair, it would take {points(noise.widest.gap)} points"


def _rule(board: Board) -> str:
    """Return the rule by which an arm is called ahead; "" if the noise is not known."""
    noise = _noise(board)
    if noise is None or not noise.paired or noise.gap is None:
        return ""
    pairs = [pair for pair in board.pairs[board.budget] if pair.compared.declared]
    level = f"{board.family.level:.3g}"
    if len(pairs) == 1 and len(board.at(board.budget)) < 3:
        return (
            f"An arm is called \u201cahead\u201d if p of the paired t test is below 5 %{_flipped(board)}. The interval "
            f"of the difference is a {level} % Student t interval."
        )
    return (
        f"An arm is called \u201cahead\u201d if two paired t tests have p below 5 %: one with the noise that all arms "
        f"share, after {_holm(board, len(pairs))}, and one with the noise of the two arms alone, after its p is "
        f"multiplied by {reach_of([(pair.a, pair.b) for pair in pairs])}{_flipped(board)}. Intervals of differences "
        f"are {level} % Student t intervals, not corrected for their number; each is the wider of those by the two "
        f"kinds of noise."
    )


def _holm(board: Board, comparisons: int) -> str:
    """Return the name of the correction: Holm's, over all pairs or over those that were declared."""
    which, noun = ("the", "declared pair") if board.family.pairs else ("all", "pair")
    return f"Holm\u2019s correction over {which} {plural(comparisons, noun)}"


def _flipped(board: Board) -> str:
    """Return the clause on the permutation test, if any pair has the six seeds that it needs; else ""."""
    if not any(pair.compared.flip is not None for pair in board.pairs[board.budget]):
        return ""
    return "; for a pair with six seeds or more, p of the permutation test must be below 5 % as well"
