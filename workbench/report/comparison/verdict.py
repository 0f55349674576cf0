"""The verdict of a study: which arm to take, or what would decide it, in one sentence made from typed fields.

Every place that recommends an arm takes it from here: the page, its CSV and JSON files, `Study.answer()`, and the
commands. An arm is recommended only if a measure that treats all arms alike shows it ahead of every other arm
(`Board.alike`, `paired_comparison`). A measure by the arms' own scorers says which arm is higher by its own scores.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from workbench.report.comparison.boards import Board, Cell, Pair
from workbench.report.comparison.declared import NOTHING
from workbench.report.comparison.doubts import beaten, learned
from workbench.report.comparison.spending import unequal
from workbench.report.formatting import interval, points, short
from workbench.report.load.frames import Frames
from workbench.report.load.naming import person_name
from workbench.report.statistics.noise import LEAST_DF, own_noises
from workbench.report.statistics.per_task import gap_of
from workbench.report.statistics.power import family_of, needed_seeds
from workbench.spec.scoring import spoken

# take: ahead of all others by a measure that treats all alike. higher: the same by a measure with own scorers.
# doubted: ahead, but not of words alone or of its own untrained encoder. disagree: another measure that treats all
# alike shows an arm ahead of it. undecided: not ahead of all others. exploratory: the measure was named after scores of
# the runs were known. alone: no second arm to compare it with.
Kind = Literal["take", "higher", "doubted", "disagree", "undecided", "exploratory", "alone"]
MOST_WORDS = 30
PRACTICAL_SEEDS = 100  # a verdict proposes no design of more seeds than this
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Verdict:
    """What one measure says of the arms at the largest budget, and its sentence of at most 30 words.

    `best` is the arm with the highest mean, `score` its mean, and `next` the nearest arm: the second best if `best` is
    ahead of all, else the nearest arm that it is not shown ahead of. `difference` is `best` minus `next` in points,
    with its interval from `low` to `high`, which are None without an interval; `rivals` are all arms that `best` is
    not shown ahead of. `detectable` is the smallest true gap that this comparison shows four times in five,
    `needed_seeds` how many seeds would show a gap as large as `difference`, and `more_seconds` the time of the further
    ones, as the runs so far took. `scorers` names the scorer of each arm if arms have their own. `names` are the arms
    as people say them.
    """

    kind: Kind
    suite: str
    measure: str
    budget: str
    alike: bool
    best: str
    score: float
    seeds: int
    names: Mapping[str, str]
    next: str = ""
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    items: int | None = None  # test items whose results are kept, with the interval if they are drawn again as well
    low_items: float | None = None
    high_items: float | None = None
    rivals: tuple[str, ...] = ()
    detectable: float | None = None
    needed_seeds: int | None = None
    more_seconds: float | None = None
    same_compute: bool = True
    absent: tuple[str, ...] = ()  # arms of the study without scores at this budget
    scorers: Mapping[str, str] = field(default_factory=dict)
    sentence: str = ""

    def __str__(self) -> str:
        return self.sentence

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return asdict(self)


def verdicts(boards: Sequence[Board], frames: Frames) -> list[Verdict]:
    """Return the verdict of each measure, the one that decides first.

    Measures that were named before any score was known come first, then those that treat all arms alike, and then those
    that the command names first. The first says so if another measure that treats all alike contradicts it.
    """
    each = [(board, of_board(board, frames.axis)) for board in boards]
    each.sort(key=lambda one: (one[0].family.exploratory, not one[1].alike, _named_at(one[0], frames.record)))
    if not each:
        return []
    (_, first), *others = each
    if first.kind == "take":
        alike = [(other, pair) for board, other in others if other.alike for pair in board.pairs[board.budget]]
        against = [(other, pair) for other, pair in alike if pair.compared.claimed and pair.b == first.best]
        first = _contradicted(first, *against[0]) if against else first
    elif first.kind == "higher":
        late = next((short(other.measure.partition(" (")[0]) for _, other in others if other.alike), "")
        tail = f"{late} treat all alike, but were named after scores were known"
        first = replace(first, sentence=_higher(first, f"; {tail if late else 'no measure here treats all alike'}"))
    return [first, *(verdict for _, verdict in others)]


def of_board(board: Board, axis: str) -> Verdict:
    """Return the verdict of one measure, whatever the others say."""
    cells, pairs, alike = board.at(board.budget), board.pairs[board.budget], board.alike()
    wins = Counter(pair.a for pair in pairs)  # every pair names the arm with the higher mean first
    first = max(cells, key=lambda cell: wins[cell.arm])
    lead = [pair for pair in pairs if pair.a == first.arm]
    rivals = [pair for pair in lead if not pair.compared.claimed]
    near = min(rivals or lead, key=lambda pair: pair.difference.estimate.mean, default=None)
    verdict = Verdict(
        "alone", board.suite, spoken(board.suite, board.tasks), board.budget, alike, first.arm, first.estimate.mean,
        first.estimate.n, {cell.arm: person_name(axis, cell.arm) for cell in cells}, scorers=_scorers(board),
        same_compute=not unequal(board, board.budget), absent=tuple(set(board.arms) - {cell.arm for cell in cells}),
    )  # fmt: skip
    if near is None:
        return replace(verdict, sentence=_alone(verdict))
    e = near.difference.estimate
    needed = _needed(board, near)
    verdict = replace(
        verdict, next=near.b, difference=e.mean if e.n else None, low=e.low, high=e.high, seeds=e.n,
        rivals=tuple(pair.b for pair in rivals), detectable=detectable(board, board.budget, near), needed_seeds=needed,
        more_seconds=_seconds(cells, needed - e.n) if needed is not None and needed > e.n else None,
    )  # fmt: skip
    if (again := board.items.get(board.budget, {}).get(frozenset((near.a, near.b)))) is not None:
        verdict = replace(verdict, items=again.items, low_items=again.low, high_items=again.high)
    if board.family.exploratory:
        return replace(verdict, kind="exploratory", sentence=_exploratory(verdict))
    if rivals:
        return replace(verdict, kind="undecided", sentence=_undecided(verdict, board, near))
    if doubt := _doubt(board, first):
        return replace(verdict, kind="doubted", sentence=_doubted(verdict, doubt))
    if not alike:
        return replace(verdict, kind="higher", sentence=_higher(verdict))
    return replace(verdict, kind="take", sentence=_take(verdict))


def detectable(board: Board, budget: str, pair: Pair) -> float | None:
    """Return the smallest true gap that a comparison would have shown four times in five; None if it is not known."""
    noise, family = board.noise[budget][0], board.families.get(budget, NOTHING)
    if noise.gap is None:
        return None
    arms = {cell.arm: cell.scores for cell in board.at(budget)}
    return max(noise.gap, gap_of(arms, pair.a, pair.b, noise.n, family_of(list(arms), family.pairs), family.plan))


def seconds_text(seconds: float) -> str:
    """Return a time in one rounded unit: `40 s`, `12 min`, `3 h`, `2 days`."""
    for size, unit in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _named_at(board: Board, record: Mapping[str, Any]) -> int:
    """Return the place of a measure among the names of the command; that of a plan is the first."""
    tasks, design = record.get("tasks") or {}, record.get("design") or {}
    if design.get("measure") == board.suite:
        return -1
    names = [str(name).lower() for name in tasks.get("names") or ()]
    words = {board.suite.lower(), *(task.lower() for task in board.tasks)}
    stems = [name.rpartition("/")[2].rpartition(".")[0] for name in names]
    places = [place for place, both in enumerate(zip(names, stems, strict=True)) if words & set(both)]
    return min(places, default=len(names))


def _scorers(board: Board) -> dict[str, str]:
    """Return the scorer of each arm, or several separated by commas, where arms have their own."""
    return {arm: ", ".join(sorted({name for _, name in each if name})) for arm, each in board.scorers.items()}


def _needed(board: Board, pair: Pair) -> int | None:
    """Return how many seeds would show a gap as large as the one of a pair; None if that is not known, or too many."""
    e, noise = pair.difference.estimate, pair.compared.noise
    if board.family.plan is not None or e.n < 2 or e.half is None or not noise:
        return None
    arms = {cell.arm: cell.scores for cell in board.at(board.budget)}
    own = own_noises(arms).get(frozenset((pair.a, pair.b)))
    needed = needed_seeds(e.mean, noise, len(arms), family_of(list(arms), board.family.pairs), own)
    return needed if needed is not None and needed <= PRACTICAL_SEEDS else None


def _seconds(cells: Sequence[Cell], seeds: int) -> float | None:
    """Return the seconds that further seeds of these arms take, by the mean of the seeds so far."""
    total = seeds * sum(cell.spent["seconds"] + cell.spent["finetune_seconds"] for cell in cells)
    return total if math.isfinite(total) else None


def _doubt(board: Board, cell: Cell) -> str:
    """Return the reason not to recommend an arm that is ahead of all others; "" if there is none."""
    if beaten(cell, learned(board)):
        return "words without any encoder score higher"
    return "not shown ahead of its own untrained encoder" if cell.gain is not None and not cell.gain.claimed else ""


# -- sentences


def _fitting(*sentences: str) -> str:
    """Return the first sentence of at most MOST_WORDS words, or else the last one."""
    return next((text for text in sentences if len(text.split()) <= MOST_WORDS), sentences[-1])


def _name(verdict: Verdict, arm: str) -> str:
    """Return the name of an arm in a sentence, cut if it is long."""
    return short(verdict.names.get(arm, arm))


def _gap(verdict: Verdict) -> str:
    assert verdict.difference is not None
    half = None if verdict.high is None else verdict.high - verdict.difference
    return f"{interval(verdict.difference, half)} points"


def _alone(verdict: Verdict) -> str:
    return f"Nothing to compare: {_name(verdict, verdict.best)} alone has scores at {short(verdict.budget)}."


def _take(verdict: Verdict) -> str:
    """Return `Take RTD: by GLUE it is ahead of all others, of BERT MLM by 1.2 ± 0.9 points.`"""
    unequal_ = "" if verdict.same_compute else ", though not at equal compute"
    here = f" at {short(verdict.budget)}" if verdict.absent else ""
    others = f"all others{here}, of " if len(verdict.names) > 2 else ""
    best, rival = _name(verdict, verdict.best), _name(verdict, verdict.next)
    return _fitting(
        *(
            f"Take {best}{unequal_}: by {short(measure)} it is ahead of {others}{rival} by {_gap(verdict)}."
            for measure in (verdict.measure, verdict.measure.partition(" (")[0])
        )
    )


def _higher(verdict: Verdict, tail: str = "") -> str:
    """Return `Higher by its own scores: BERT MLM, 94.4 % of pairs; no measure here treats all alike.`"""
    unit = "BLiMP\u2019s pairs" if verdict.suite == "blimp" else "pairs"
    return f"Higher by its own scores: {_name(verdict, verdict.best)}, {points(verdict.score)} % of {unit}{tail}."


def _exploratory(verdict: Verdict) -> str:
    """Return the sentence on a measure that was named after scores of the runs were known."""
    gap = f", {_gap(verdict)} above {_name(verdict, verdict.next)}" if verdict.difference is not None else ""
    start = (
        f"by {short(verdict.measure.partition(' (')[0])}, named after scores were known, {_name(verdict, verdict.best)}"
    )
    return _fitting(
        f"Exploratory: {start} is highest{gap}; new seeds would test it.", f"Exploratory: {start} is highest."
    )


def _doubted(verdict: Verdict, doubt: str) -> str:
    but = doubt if doubt.startswith("words") else f"it is {doubt}"
    return (
        f"No recommendation: {_name(verdict, verdict.best)} is ahead of the others by "
        f"{short(verdict.measure.partition(' (')[0])}, but {but}."
    )


def _contradicted(first: Verdict, other: Verdict, pair: Pair) -> Verdict:
    """Return the verdict of the deciding measure as contradicted by a pair of another one that treats all alike."""
    one, two = (short(verdict.measure) for verdict in (first, other))
    sentence = _fitting(
        *(
            f"The measures disagree: by {a} {_name(first, first.best)} is ahead of all others, by {b} "
            f"{_name(other, pair.a)} is ahead of it."
            for a, b in ((one, two), (one.partition(" (")[0], two.partition(" (")[0]))
        )
    )
    return replace(first, kind="disagree", sentence=sentence)


def _undecided(verdict: Verdict, board: Board, pair: Pair) -> str:
    """Return `Not decided by GLUE: four seeds would show a gap of 7.5 points; 12 seeds, 3 h more, would show 4.0.`"""
    measure = verdict.measure.partition(" (")[0]
    words = learned(board)
    higher = all(beaten(cell, words) for cell in board.at(board.budget))
    but = ", and words without any encoder score higher" if higher else ""
    among = [_name(verdict, arm) for arm in (verdict.best, *verdict.rivals)]
    which = f" {' or '.join(among)};" if len(among) == 2 < len(verdict.names) else ""
    n, gap = verdict.seeds, verdict.detectable
    if gap is None:
        return f"Not decided by {measure}{but}: {_too_few(verdict, board, pair)}."
    plan = board.family.plan
    design = f"looks at up to {plan.most} seeds" if plan is not None else _seeds(n)
    shows = f"{design} would show a gap of {points(gap)} points" if gap < 100 else f"{design} would show no gap"
    texts = []
    for start in (
        f"Not decided by {short(measure)}{but}:{which}", f"Not decided by {short(measure)}{but}:", f"Not decided{but}:",
    ):  # fmt: skip
        texts.append(f"{start} {shows}{_further(verdict, plan is not None)}.")
    return _fitting(*texts, f"Not decided{but}: {shows}.")


def _further(verdict: Verdict, planned: bool) -> str:
    """Return the clause on how many seeds would show a gap as large as the difference."""
    if verdict.difference is None:  # before the first look of a plan
        return ""
    gap, needed = points(verdict.difference), verdict.needed_seeds
    if gap == points(0.0):
        return "; the best two are level"
    if planned or needed is None:
        return "" if planned else f"; no practical number of seeds would show {gap}"
    if needed <= verdict.seeds:
        return f"; the difference is {_gap(verdict)}"
    time = "" if verdict.more_seconds is None else f", {seconds_text(verdict.more_seconds)} more,"
    return f"; {_seeds(needed)}{time} would show {gap}"


def _too_few(verdict: Verdict, board: Board, pair: Pair) -> str:
    """Return why the comparisons have no interval."""
    if verdict.seeds < 1:
        return "the arms have no seed in common"
    least = 1 + math.ceil(LEAST_DF / max(1, len(verdict.names) - 1))
    if verdict.seeds < least:
        return f"{_seeds(verdict.seeds)} {'gives' if verdict.seeds == 1 else 'give'} no interval, {_seeds(least)} would"
    return "the arms score the same in every seed"


def _seeds(count: int) -> str:
    number = NUMBERS[count] if count < len(NUMBERS) else str(count)
    return f"{number} seed{'s' * (count != 1)}"
