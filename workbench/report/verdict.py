"""The verdict of a study: which arm to take, or what would decide it, in one sentence made from typed fields.

Every place that recommends an arm takes it from here: the page, its CSV and JSON files, `Study.answer()`, and the
commands. An arm is recommended only if a measure that treats all arms alike shows it ahead of every other arm
(`Leaderboard.alike`, `paired_comparison`), and if no doubt stands against it: a baseline without an encoder, or its own
untrained encoder, may do as well. A measure by the arms' own scorers says which arm is higher by its own scores.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from workbench.report.formatting import interval, listing, points, short
from workbench.report.load.arm_names import person_name
from workbench.report.load.study_tables import Frames
from workbench.report.results import Leaderboard, Pair, Verdict, seeds_to_decide, spending_ratios
from workbench.report.statistics.group_sequential import NOTHING, Plan
from workbench.report.statistics.intervals import ALPHA
from workbench.report.statistics.paired_comparison import LEAST_DF, Compared
from workbench.report.statistics.power import family_of, gap_of
from workbench.spec.experiment import EQUAL_WITHIN
from workbench.spec.scoring import spoken

MOST_WORDS = 30
PRACTICAL_SEEDS = 100  # a verdict proposes no design of more seeds than this
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
# Baselines that know words and have no encoder, and what they are in a sentence.
WORD_BASELINES = {
    "bag-of-words": "A bag of words", "word-lookup": "A look-up of each word's most frequent tag",
    "tf-idf": "Tf-idf of words", "nearest-overlap": "The sentence with most words of the question",
}  # fmt: skip


def verdicts(boards: Sequence[Leaderboard], frames: Frames) -> list[Verdict]:
    """Return the verdict of each measure, the measure that decides first.

    Measures that were named before any score was known come first, then measures that treat all arms alike, then the
    measures that the command names first. The first verdict says so if a measure that treats all alike contradicts it.
    """
    names = [str(name).lower() for name in (frames.record.get("tasks") or {}).get("names") or ()]
    planned = (frames.record.get("design") or {}).get("measure")

    def rank(one: tuple[Leaderboard, Verdict]) -> tuple[bool, bool, int]:
        board, verdict = one
        tasks = [task.lower() for task in board.tasks]
        words = {board.suite.lower(), *tasks, *(task[: task.find(":") + 1] for task in tasks if ":" in task)}
        # A name selects a task or suite by all of it, its file's name, or its kind: `tag:da-pos-train.conllu` has only
        # the kind, `tag:`, in common with its task `tag:da-pos-pos`.
        parts = ({n, n.rpartition("/")[2].rpartition(".")[0], n[: n.find(":") + 1] or n} for n in names)
        places = (i for i, part in enumerate(parts) if words & part)
        place = -1 if board.suite == planned else next(places, len(names))  # a plan's measure comes first
        return board.family.exploratory, not verdict.alike, place

    each = sorted(((board, verdict_of(board, frames.axis)) for board in boards), key=rank)
    if not each:
        return []
    (_, first), *others = each
    if first.kind == "take":
        alike = [(other, pair) for board, other in others if other.alike for pair in board.pairs[board.budget]]
        against = [(other, pair) for other, pair in alike if pair.compared.claimed and pair.b == first.best]
        first = _contradicted(first, *against[0]) if against else first
    elif first.kind == "higher":
        late = next((short(_brief(other.measure)) for _, other in others if other.alike), "")
        tail = f"{late} treat all alike, but were named after scores were known"
        end = tail if late else "linear probes would treat all alike"
        start = f"No recommendation: {first.sentence.removesuffix('.')}"
        first = replace(first, sentence=_fitting(f"{start}; {end}.", f"{start}."))
    return [first, *(verdict for _, verdict in others)]


def verdict_of(board: Leaderboard, axis: str) -> Verdict:
    """Return the verdict of one measure by itself."""
    cells, pairs, alike = board.at(board.budget), board.pairs[board.budget], board.alike()
    wins = Counter(pair.a for pair in pairs)  # every pair names the arm with the higher mean first
    first = max(cells, key=lambda cell: wins[cell.arm])
    lead = [pair for pair in pairs if pair.a == first.arm]
    rivals = [pair for pair in lead if not pair.compared.claimed]
    near = min(rivals or lead, key=lambda pair: pair.compared.estimate.mean, default=None)
    verdict = Verdict(
        "alone", board.suite, spoken(board.suite, board.tasks), board.budget, alike, first.arm, first.estimate.mean,
        first.estimate.n, {cell.arm: person_name(axis, cell.arm) for cell in cells},
        scorers={arm: ", ".join(sorted({name for _, name in each if name})) for arm, each in board.scorers.items()},
        same_compute=max(spending_ratios(board, board.budget).values(), default=1.0) <= 1 + EQUAL_WITHIN,
        absent=tuple(set(board.arms) - {cell.arm for cell in cells}),
    )  # fmt: skip
    if near is None:
        alone = f"Nothing to compare: {_name(verdict, first.arm)} alone has scores at {short(board.budget)}."
        return replace(verdict, sentence=alone)
    e, needed = near.compared.estimate, seeds_to_decide(board, board.budget, near)
    needed = None if needed is None or needed > PRACTICAL_SEEDS else needed
    seconds = sum(cell.spent["seconds"] + cell.spent["finetune_seconds"] for cell in cells)  # of one seed of each arm
    more = (needed - e.n) * seconds if needed is not None and needed > e.n else math.nan
    verdict = replace(
        verdict, next=near.b, difference=e.mean if e.n else None, low=e.low, high=e.high, seeds=e.n,
        rivals=tuple(pair.b for pair in rivals), detectable=detectable(board, board.budget, near), needed_seeds=needed,
        more_seconds=more if math.isfinite(more) else None,
    )  # fmt: skip
    if (again := board.items.get(board.budget, {}).get(frozenset((near.a, near.b)))) is not None:
        verdict = replace(verdict, items=again.items, low_items=again.low, high_items=again.high)
    if board.family.exploratory:
        return replace(verdict, kind="exploratory", sentence=_exploratory(verdict))
    if rivals:
        return replace(verdict, kind="undecided", sentence=_undecided(verdict, board, near.compared))
    doubt = "words without any encoder score higher" if first.estimate.mean < words_score(board) else ""
    if not doubt and first.gain is not None and not first.gain.claimed:
        doubt = "it is not shown ahead of its own untrained encoder"
    if doubt:
        return replace(
            verdict, kind="doubted", sentence=f"No recommendation: {_first(verdict, 'is ahead of')}, but {doubt}."
        )
    if not alike:
        higher = _first(verdict, "scores higher than")
        return replace(verdict, kind="higher", sentence=f"{higher}, but each arm has its own scorer.")
    return replace(verdict, kind="take", sentence=_take(verdict))


def detectable(board: Leaderboard, budget: str, pair: Pair) -> float | None:
    """Return the smallest true gap that a comparison would have shown four times in five; None if it is not known."""
    noise, family = board.noise[budget][0], board.families.get(budget, NOTHING)
    if noise.gap is None:
        return None
    arms = {cell.arm: cell.scores for cell in board.at(budget)}
    return max(noise.gap, gap_of(arms, pair.a, pair.b, noise.n, family_of(list(arms), family.pairs), family.plan))


def words_score(board: Leaderboard) -> float:
    """Return the score of the baseline on words alone; minus infinity if it was not measured on every task."""
    return next((value for name in WORD_BASELINES if (value := board.baseline(name)) is not None), -math.inf)


def caveat(board: Leaderboard, budget: str, arms: Iterable[str], names: Mapping[str, str]) -> str:
    """Return the sentences that must stand before any claim for these arms; "" if there are no doubts about them."""
    wanted, every, word_score = set(arms), board.at(budget), words_score(board)
    cells = [cell for cell in every if cell.arm in wanted]
    worse = [cell for cell in cells if cell.estimate.mean < word_score]
    unshown = [(cell, cell.gain.estimate) for cell in cells if cell.gain is not None and not cell.gain.claimed]
    alone = [names[cell.arm] for cell in cells if cell.gain is None]
    on = " on the " if board.label.startswith("mean of ") else " on "
    place = f"{on}{board.label}"  # in the first sentence alone
    sentences = []
    if worse:
        baseline = next(text for name, text in WORD_BASELINES.items() if board.baseline(name) is not None)
        best = points(max(cell.estimate.mean for cell in worse))
        scores = listing([f"{names[cell.arm]} ({points(cell.estimate.mean)})" for cell in worse])
        all_of = f"each of the {len(every)} arms, the best of which has {best}"
        sentences.append(
            f"{baseline}, without any encoder, has {points(word_score)}{place}: more than "
            f"{all_of if len(worse) == len(every) > 1 else scores}."
        )
        place = ""
    if unshown:
        gains = listing([f"{names[cell.arm]} ({interval(e.mean, e.half, True)})" for cell, e in unshown])
        own = "its own untrained encoder" if len(unshown) == 1 else "their own untrained encoders"
        corrected = len(every) > 1 and any(e.half is not None and e.mean > e.half for _, e in unshown)
        after = f", after correction for all {len(every)} arms" if corrected else ""
        sentences.append(f"Not shown ahead of {own}{place}{after}: {gains}.")
    if alone:
        sentences.append(f"No untrained encoder was measured for {listing(alone)}, so the gain by training is unknown.")
    return " ".join(sentences)


def _fitting(*sentences: str) -> str:
    return next((text for text in sentences if len(text.split()) <= MOST_WORDS), sentences[-1])


def _brief(measure: str) -> str:
    return measure.partition(" (")[0]


def _uncut(measure: str) -> str:
    """Return a measure such as `linear probes (linear:next)`, without the task in brackets if it is too long."""
    return measure if short(measure) == measure else _brief(measure)


def _name(verdict: Verdict, arm: str) -> str:
    return short(verdict.names.get(arm, arm))


def _gap(verdict: Verdict) -> str:
    assert verdict.difference is not None
    half = None if verdict.high is None else verdict.high - verdict.difference
    return f"{interval(verdict.difference, half)} points"


def _take(verdict: Verdict) -> str:
    """Return `Take RTD: by GLUE it is ahead of all others, of BERT MLM by 1.2 ± 0.9 points.`"""
    unequal = "" if verdict.same_compute else ", though not at equal compute"
    here = f" at {short(verdict.budget)}" if verdict.absent else ""
    others = f"all others{here}, of " if len(verdict.names) > 2 else ""
    start, end = f"Take {_name(verdict, verdict.best)}{unequal}", f"{_name(verdict, verdict.next)} by {_gap(verdict)}"
    measures = (_uncut(verdict.measure), _brief(verdict.measure))
    return _fitting(*(f"{start}: by {short(measure)} it is ahead of {others}{end}." for measure in measures))


def _first(verdict: Verdict, leads: str) -> str:
    """Return `BERT MLM scores higher than the others by minimal pairs`, with `leads` between the arms."""
    others = "the others" if len(verdict.names) > 2 else "the other arm"
    return f"{_name(verdict, verdict.best)} {leads} {others} by {short(_brief(verdict.measure))}"


def _exploratory(verdict: Verdict) -> str:
    gap = f", {_gap(verdict)} above {_name(verdict, verdict.next)}" if verdict.difference is not None else ""
    start = f"by {short(_brief(verdict.measure))}, named after scores were known, {_name(verdict, verdict.best)}"
    return _fitting(
        f"Exploratory: {start} is highest{gap}; new seeds would test it.", f"Exploratory: {start} is highest."
    )


def _contradicted(first: Verdict, other: Verdict, pair: Pair) -> Verdict:
    measures = [(_uncut(verdict.measure), _brief(verdict.measure)) for verdict in (first, other)]
    one, two = _name(first, first.best), _name(other, pair.a)
    sentences = (
        f"The measures disagree: by {short(a)} {one} is ahead of all others, by {short(b)} {two} is ahead of it."
        for a, b in zip(*measures, strict=True)
    )
    return replace(first, kind="disagree", sentence=_fitting(*sentences))


def _undecided(verdict: Verdict, board: Leaderboard, compared: Compared) -> str:
    """Return `Not decided by GLUE: RTD leads BERT MLM by 4.0 ± 5.1 points; 12 seeds should show such a gap.`

    If it is too long, the mark of the only rival goes first, then the seeds, the measure, and at last the arms.
    """
    cells, word_score, plan = board.at(board.budget), words_score(board), board.family.plan
    unshown = all(cell.gain is not None and not cell.gain.claimed for cell in cells)
    but = ", and words without any encoder score higher" * all(cell.estimate.mean < word_score for cell in cells)
    but += ", and no arm is shown ahead of its untrained encoder" * unshown
    starts = (f"Not decided by {short(_brief(verdict.measure))}{but}", f"Not decided{but}")
    if reason := _no_interval(verdict, plan):
        return _fitting(*(f"{start}: {reason}." for start in starts))
    level = points(verdict.difference) == points(0.0)
    ends = _further_seeds(verdict, compared.declared, plan, level)
    marked, lead = (_leads(verdict, compared, level, rival) for rival in (True, False))
    named = [f"{start}: {text}." for start in starts for text in (marked + ends[0], *(lead + end for end in ends))]
    return _fitting(*named, f"{starts[1]}: the best two are {_gap(verdict)} apart.")


def _no_interval(verdict: Verdict, plan: Plan | None) -> str:
    """Return why the difference of the best two arms has no interval; "" if it has one."""
    least = 1 + math.ceil(LEAST_DF / max(1, len(verdict.names) - 1))
    if plan is not None and not plan.taken:
        return f"the first look is planned at {_seeds(plan.seeds[0])}"
    if verdict.seeds < 1:
        return "the arms have no seed in common"
    if verdict.detectable is None and verdict.seeds < least:
        return f"{_seeds(verdict.seeds)} {'gives' if verdict.seeds == 1 else 'give'} no interval, {_seeds(least)} would"
    return "the differences do not vary between seeds" if verdict.detectable is None else ""


def _leads(verdict: Verdict, compared: Compared, level: bool, rival: bool) -> str:
    """Return the best arm's gap to the nearest one, which is marked as the `rival` if all others are behind."""
    best, second, gap = _name(verdict, verdict.best), _name(verdict, verdict.next), _gap(verdict)
    if level:
        return f"{best} and {second} are level, {gap} apart"
    only = ", its only rival," if rival and len(verdict.rivals) == 1 < len(verdict.names) - 1 else ""
    why = ""  # it is not decided, although the interval leaves out zero
    if compared.p is not None and compared.p < ALPHA <= (compared.adjusted or 0.0):
        why = " before correction"
    elif compared.p is not None and compared.p < ALPHA <= (compared.flip or 0.0):
        why = " by the t test alone"
    return f"{best} leads {second}{only} by {gap}{why}"


def _further_seeds(verdict: Verdict, declared: bool, plan: Plan | None, level: bool) -> list[str]:
    """Return how a sentence may end that names the gap, the longest end first."""
    needed = verdict.needed_seeds
    if not declared:
        return [", a comparison that was not declared", ""]
    if plan is not None:
        most = _seeds(plan.seeds[-1])
        return [f"; up to {most} are planned" if verdict.seeds < plan.seeds[-1] else f" after {most}, as planned", ""]
    if level or (needed is not None and needed <= verdict.seeds):
        return [""]
    if needed is None:
        return [", which no practical number of seeds would show", ""]
    time = f", {seconds_text(verdict.more_seconds)} more," if verdict.more_seconds is not None else ""
    end = "should show such a gap"  # four times in five
    return [f"; {_seeds(needed)}{time} {end}", f"; {_seeds(needed)} {end}", ""]


def seconds_text(seconds: float) -> str:
    """Return a time in one rounded unit: `40 s`, `12 min`, `3 h`, `2 days`."""
    for size, unit in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _seeds(count: int) -> str:
    number = NUMBERS[count] if count < len(NUMBERS) else str(count)
    return f"{number} seed{'s' * (count != 1)}"
