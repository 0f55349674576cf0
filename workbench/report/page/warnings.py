"""The warnings of a report: a short line and its reason for each fact that weakens a comparison."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from workbench.errors import plural
from workbench.report.comparison import contrasts, late_measures, points_by_budget
from workbench.report.formatting import listing, seeds
from workbench.report.load.run_files import END, FINISHED
from workbench.report.load.study_tables import Frames
from workbench.report.page.rendering import values_of_runs
from workbench.report.results import Cell, Leaderboard
from workbench.report.statistics.intervals import t_interval
from workbench.report.verdict import caveat, words_score
from workbench.spec import loss_floors
from workbench.spec.experiment import EQUAL_WITHIN, arm_text
from workbench.spec.loss_floors import FloorCheck
from workbench.spec.parts import CONVENTIONS
from workbench.store.environment import SWITCH

Title = Callable[[str], str]
CLOCK = 0.05  # relative difference of training times that is tolerated at a budget in seconds: timings vary as much
FALL = 5.0  # points by which the mean must fall; without a cause that was found, kept studies have falls of up to 3
FEWEST = 2  # seeds, each of which must fall
# A metric, whether its value at the end of training means a collapse on any text, and the sentence on it.
COLLAPSES: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    ("discriminator_recall", lambda v: v < 0.01,
     "the discriminator detects less than 1 % of the replaced tokens"),
    ("discriminator_positive_rate", lambda v: v < 0.001 or v > 0.999,
     "the discriminator gives at least 999 of 1,000 tokens the same answer"),
    ("generator_entropy", lambda v: v < 0.05,
     "the generator\u2019s entropy is below 0.05 nats, so it nearly always writes the same token"),
)  # fmt: skip


@dataclass(frozen=True)
class Caution:
    """One fact that weakens a comparison: a `short` line, and the `reason` with its numbers."""

    short: str
    reason: str


def cautions(
    frames: Frames, boards: Sequence[Leaderboard], missing: Mapping[str, str], title: Title = str
) -> list[Caution]:
    """Return all warnings, the gravest first. `missing` maps each unavailable task to the reason.

    `title` returns the name of an arm that people say.
    """
    listed = [caution for board in boards for caution in (*doubtful(board, title), *late_falls(board, title))]
    listed += [
        Caution(f"{name} is in no score.", f"{name} is not part of any score: {why}.") for name, why in missing.items()
    ]
    listed += [*unfinished(frames), *declared_late(frames), *reported_before(frames), *overestimated(frames)]
    listed += [*collapsed(frames, title), *(unequal_compute(boards[0], title) if boards else [])]
    listed += [*data_differs(frames), *kinds_of_arithmetic(frames.rows("runs"), title), *environments_differ(frames)]
    listed += [caution for board in boards for caution in (*uninformative_tasks(board), *uneven(board, title))]
    listed += map(by_first_clause, frames.notes)
    return list(dict.fromkeys(listed))


def by_first_clause(text: str, label: str = "") -> Caution:
    """Return a warning whose short line is the first clause of its reason, without amounts of FLOPs.

    The reason may begin with the `label` of a board and a colon, or with a single word and a colon, which is kept.
    """
    if label and text.startswith(f"{label}: "):
        rest = by_first_clause(text.removeprefix(f"{label}: "))
        return Caution(f"{label}: {rest.short}", text)
    clause = re.sub(r" at [^,;:()]+ FLOPs \([a-z-]+\)", "", text)
    clause = re.split(r"(?<=[a-z%)])[.:;](?: |$)|, so | \(", clause, maxsplit=1)[0]
    if " " not in clause and text.startswith(f"{clause}: "):
        return by_first_clause(text, clause)
    if len(clause) > 110:
        return Caution(re.sub(r"( in| of| for| and| the)*$", "", clause[:109].rsplit(" ", 1)[0]) + " …", text)
    return Caution(clause.rstrip(".") + ".", text)


def doubtful(board: Leaderboard, title: Title = str) -> list[Caution]:
    """Return warnings of arms that score below a baseline on words or are not shown ahead of their untrained encoder.

    At the largest budget all such arms are named; at the others, only arms that are ahead of another arm.
    """
    cells, word_score = board.at(board.budget), words_score(board)
    below = sum(cell.estimate.mean < word_score for cell in cells)
    unshown = sum(cell.gain is not None and not cell.gain.claimed for cell in cells)
    if below:
        many = "every arm" if below == len(cells) else f"{below} of {len(cells)} arms"
        short = f"{board.label}: words without an encoder score higher than {many} ({word_score:.1f})."
    elif unshown == len(cells):
        short = f"{board.label}: no arm is shown ahead of its untrained encoder."
    else:
        verb = "is not shown ahead of its" if unshown == 1 else "are not shown ahead of their"
        short = f"{board.label}: {unshown} of {len(cells)} arms {verb} untrained encoder."
    listed = []
    for budget in reversed(board.budgets):
        arms = {pair.a for pair in board.pairs[budget] if pair.compared.claimed}
        if budget == board.budget:
            arms |= {cell.arm for cell in cells if cell.gain is not None or cell.estimate.mean < word_score}
        text = caveat(board, budget, arms, {cell.arm: title(cell.arm) for cell in board.at(budget)})
        listed += [Caution(short, text if len(board.budgets) == 1 else f"At {budget}: {text}")] if text else []
    return listed


def unfinished(frames: Frames) -> list[Caution]:
    """Return a warning with the number of runs that are in no average, by state."""
    states = Counter(row["state"] for row in frames.rows("runs") if row["state"] not in FINISHED)
    if not states:
        return []
    total = states.total()
    by_state = listing([f"{n} {'not begun' if state == 'new' else state}" for state, n in sorted(states.items())])
    start = f"{total} of {plural(len(frames.runs), 'run')} {'is' if total == 1 else 'are'} in no average"
    return [Caution(f"{start}.", f"{start} ({by_state}); the reason is given below for each.")]


def declared_late(frames: Frames) -> list[Caution]:
    """Return warnings of measures and of comparisons that were declared when results were known."""
    listed = []
    if rows := late_measures(frames):
        each = listing([f"{row['name']} ({row['declared'][:16]}, scores of {seeds([row['seen']])})" for row in rows])
        time = str(frames.record.get("first_score") or "")[:16]
        first = f" The first score was written at {time}." if time else ""
        listed.append(Caution(
            "Measures were first named after scores were known: exploratory.",
            f"Measures that were first named when scores of these runs were known (with the time, and the seeds that "
            f"had scores) are exploratory, and nothing is claimed by them: {each}.{first} New seeds in another store "
            f"would be a fair test.",
        ))  # fmt: skip
    if rows := contrasts(frames, late=True):
        sides = [[arm_text(row[side]) if side in row else "unknown" for side in ("a", "b")] for row in rows]
        pairs = listing([f"{a} against {b} ({row['seen']})" for (a, b), row in zip(sides, rows, strict=True)])
        narrow = "do not narrow the correction, which covers all pairs"
        are = "are treated as exploratory" if contrasts(frames) else narrow
        listed.append(Caution(
            "Comparisons were declared after both arms had been trained.",
            f"Comparisons that were declared when both arms had been trained already (with this number of seeds) "
            f"{are}: {pairs}. New seeds in another store would be a fair test of them.",
        ))  # fmt: skip
    return listed


def reported_before(frames: Frames) -> list[Caution]:
    """Return a warning for each budget at which seeds were added after a report, without a plan."""
    times: dict[str, list[str]] = {}
    for row in frames.record.get("reported") or []:
        budget = " ".join(f"{unit}={amount:g}" for unit, amount in row["budget"].items() if unit != "convention")
        times.setdefault(budget, []).append(f"{seeds([len(row['seeds'])])} ({row['at'][:10]})")
    return [
        Caution(
            "Seeds were added after a report, without a plan.",
            f"Results at {budget} were reported with {listing(each)}. Each report may make false claims in 5 % of "
            f"experiments, and so at least one of them in up to {5 * len(each)} %, unless all seeds were planned "
            f"before the first. `--seeds auto`, in another store (`--runs`), plans its looks and keeps 5 % for all "
            f"together.",
        )
        for budget, each in times.items()
        if len(each) > 1
    ]


def overestimated(frames: Frames) -> list[Caution]:
    """Return a warning if settings were chosen by the rows that the scores are computed on; `tune` uses other rows."""
    chosen = frames.record.get("tuning") and frames.record.get("experiment") != "tune"
    return [Caution(
        "Settings were chosen by the scores shown here.",
        "The best of many trials overestimates: settings were chosen by scores on the same rows that the scores here "
        "are computed on. `workbench sweep tune` chooses on other rows and seeds than those of its report.",
    )] if chosen else []  # fmt: skip


def unequal_compute(board: Leaderboard, title: Title = str) -> list[Caution]:
    """Return a warning for each different way in which the arms of a budget did not spend the same."""
    cells, main = board.at(board.budget), board.convention()
    own = spread(cells, f"flops_{main}")
    others = {str(c): found[2] for c in CONVENTIONS if (found := spread(cells, f"flops_{c}")) is not None}
    names = {"matmul": "matrix products", "paper": "the paper\u2019s count", "paper-sparse": "sparse look-ups"}
    if own is not None:
        short = f"Not at equal compute: FLOPs differ by a factor of {own[2]:.2f}."
    elif not others:
        short = "Only the planned time is equal."
    else:
        worst = max(others, key=lambda convention: others[convention])
        apart = f"by {names[worst]} up to {others[worst]:.2f} times apart"
        short = f"FLOPs are equal by {names.get(main, main)} only, and {apart}."
    budgets_of: dict[str, list[str]] = {}
    for budget in board.budgets:
        if text := unequal(board, budget, title):
            budgets_of.setdefault(text, []).append(budget)
    return [Caution(short, f"At {listing(budgets)}: {text}") for text, budgets in budgets_of.items()]


def unequal(board: Leaderboard, budget: str, title: Title = str) -> str:
    """Return a sentence if the arms of a budget did not spend the same under some convention; "" if they did."""
    cells, main = board.at(budget), board.convention(budget)
    apart = {str(c): found for c in CONVENTIONS if (found := spread(cells, f"flops_{c}")) is not None}
    if main in apart:
        least, most, ratio = apart[main]
        ratios = {c: apart[c][2] if c in apart else 1.0 for c in CONVENTIONS if c != main}
        others = listing([f"{r:.2f} times under {c}" for c, r in ratios.items() if abs(r - ratio) > EQUAL_WITHIN])
        return (
            f"this is not at equal compute. {title(most)} spent {ratio:.2f} times the FLOPs of {title(least)} ({main} "
            f"convention{f', {others}' if others else ''})."
        )
    if apart:
        each = [
            f"Under {convention}, {title(most)} spent {ratio:.2f} times the FLOPs of {title(least)}."
            for convention, (least, most, ratio) in apart.items()
        ]
        return f"the arms spent the same under the {main} convention only. {' '.join(each)}"
    if budget.endswith("seconds") and (timed := spread(cells, "seconds", CLOCK)) is not None:
        return (
            f"only the planned time is the same. {title(timed[1])} trained {timed[2]:.2f} times as long as "
            f"{title(timed[0])}: a budget in seconds is converted to steps by timing a few steps before a run begins."
        )
    return ""


def spread(cells: Sequence[Cell], column: str, tolerance: float = EQUAL_WITHIN) -> tuple[str, str, float] | None:
    """Return the arms that spent least and most, and their ratio; None if it is at most 1 + `tolerance`."""
    ordered = sorted(cells, key=lambda cell: cell.spent[column])
    if len(cells) < 2 or not ordered[0].spent[column] > 0:
        return None
    ratio = ordered[-1].spent[column] / ordered[0].spent[column]
    return (ordered[0].arm, ordered[-1].arm, ratio) if ratio > 1 + tolerance else None


def data_differs(frames: Frames) -> list[Caution]:
    """Return a warning if finished runs trained on different data, by fingerprint."""
    prints = {row["data"] for row in frames.rows("runs") if row["state"] in FINISHED}
    text = f"The runs did not train on the same data: their data have {len(prints)} fingerprints."
    return [by_first_clause(text)] if len(prints) > 1 else []


def environments_differ(frames: Frames) -> list[Caution]:
    """Return a warning with the entries of env.json that differ between runs, besides where a text was found."""
    differing = [key for key, values in values_of_runs(frames.environments).items() if len(values) > 1]
    keys = [key for key in differing if not key.startswith("places.")]
    text = f"The runs\u2019 environments differ in {listing(keys)} (see Settings)."
    return [by_first_clause(text)] if keys else []


def kinds_of_arithmetic(runs: Iterable[Mapping[str, Any]], title: Title = str) -> list[Caution]:
    """Return warnings of trained runs that were computed by several kinds of arithmetic, such as two processors.

    The first one has the arms and seeds of each kind, and whether differences within a seed mix kinds; the second one
    has the runs that were continued on another kind. Runs whose kind was not recorded are left out.
    """
    rows = [row for row in runs if row["role"] == "arm" and row["state"] in FINISHED
            and isinstance(row.get("arithmetic"), str) and row["arithmetic"]]  # fmt: skip
    seeds_of: dict[str, dict[str, set[int]]] = {}  # kind -> arm -> its seeds
    compared: dict[tuple[str, int], dict[str, str]] = {}  # budget and seed -> arm -> kind
    for row in rows:
        seeds_of.setdefault(row["arithmetic"], {}).setdefault(row["arm"], set()).add(row["seed"])
        compared.setdefault((row["budget"], row["seed"]), {})[row["arm"]] = row["arithmetic"]
    texts = []
    if len(seeds_of) > 1:
        apart = dict.fromkeys(
            (a, b) for kind_of in compared.values() for a, b in combinations(kind_of, 2) if kind_of[a] != kind_of[b]
        )
        disjoint = [(a, b) for a, b in apart if not any({a, b} <= arms.keys() for arms in seeds_of.values())]
        by_kind = "; ".join(f"{kind} for {_arms_and_seeds(arms, title)}" for kind, arms in seeds_of.items())
        pairs = [(title(a), title(b)) for a, b in disjoint]
        texts.append(
            f"The runs were computed by {len(seeds_of)} kinds of arithmetic: {by_kind}. {_mixed(len(apart), pairs)}"
        )
    if switched := {row["run_id"]: row["arithmetic"] for row in rows if SWITCH in row["arithmetic"]}:
        each = listing([f"{run_id} ({kinds})" for run_id, kinds in switched.items()])
        verb = "run was" if len(switched) == 1 else "runs were"
        texts.append(f"{len(switched)} {verb} continued on another kind of arithmetic: {each}.")
    return [Caution("The runs were computed by several kinds of arithmetic.", text) for text in texts]


def _arms_and_seeds(arms: Mapping[str, set[int]], title: Title) -> str:
    """Return `rtd and bert-mlm (seeds 0 to 3)`, or `seed 2`, or `seeds 0, 1 and 4`."""
    arms_of: dict[tuple[int, ...], list[str]] = {}
    for arm, numbers in arms.items():
        arms_of.setdefault(tuple(sorted(numbers)), []).append(title(arm))
    parts = []
    for own, names in arms_of.items():
        which = f"seed{'s' * (len(own) > 1)} {listing([str(seed) for seed in own])}"
        if len(own) > 2 and own[-1] - own[0] == len(own) - 1:
            which = f"seeds {own[0]} to {own[-1]}"
        parts.append(f"{listing(names)} ({which})")
    return listing(parts)


def _mixed(apart: int, disjoint: Sequence[tuple[str, str]]) -> str:
    """Return whether differences mix kinds, given the number of pairs that do and the pairs without a common kind."""
    if not apart:
        return "The arms of each seed share a kind, so differences within seeds do not mix kinds."
    if not disjoint:
        some = f"In {plural(apart, 'pair')} of arms, some differences within a seed are between two kinds"
        return f"{some}; train the arms of each seed on the same kind."
    (a, b), others = disjoint[0], len(disjoint) - 1
    pairs = f"{a} against {b}" + (f" and {plural(others, 'other pair')}" if others else "")
    return (
        f"No kind is common to both arms of {pairs}, so a difference between them cannot be told from a difference "
        f"between the kinds; train the arms of each seed on the same kind."
    )


def uninformative_tasks(board: Leaderboard) -> list[Caution]:
    """Return a warning of the tasks where no arm at the largest budget scores above the most frequent answer."""
    chance = {**board.baselines.get("chance", {}), **board.baselines.get("majority", {})}
    best: dict[str, float] = {}
    for cell in board.task_cells:
        if cell.budget == board.budget:
            best[cell.task] = max(best.get(cell.task, cell.estimate.mean), cell.estimate.mean)
    uninformative = [task for task, value in best.items() if task in chance and value <= chance[task]]
    return [Caution(
        "Some tasks show nothing: no arm beats the most frequent answer.",
        f"On {listing(uninformative)}, no arm at {board.budget} scores higher than always giving the most frequent "
        f"answer, so these scores show nothing about pre-training.",
    )] if uninformative else []  # fmt: skip


def uneven(board: Leaderboard, title: Title = str) -> list[Caution]:
    """Return warnings of numbers of seeds that differ, and of untrained encoders and tasks that are missing."""
    texts = []
    if len(board.finetunings) > 1:
        few, many = board.finetunings[0], board.finetunings[-1]
        texts.append(
            f"{board.label}: scores are {board.statistic}s of {few} to {many} fine-tuning seeds, not of equally many."
        )
    for budget in board.budgets:
        seeds_of = {cell.arm: frozenset(cell.scores) for cell in board.at(budget)}
        if len(set(seeds_of.values())) > 1:
            numbers = listing([f"{title(arm)} {seeds([len(own)])}" for arm, own in seeds_of.items()])
            texts.append(f"At {budget} the arms do not have the same seeds ({numbers}); pairs use those in common.")
    plan, without = board.family.plan, []
    for cell in board.at(board.budget):
        counted = cell.scores if plan is None else plan.so_far(cell.scores)
        without += [title(cell.arm)] if cell.gain is None or cell.gain.estimate.n < len(counted) else []
    if board.untrained is None:
        texts.append(f"{board.label}: there is no untrained encoder to compare with.")
    elif without:
        some = f"{board.label}: some seeds of {listing(without)}"
        texts.append(f"{some} have no untrained encoder with the same initial weights.")
    for run_id, tasks in board.missing.items():
        texts.append(f"{run_id} has no score on {listing(list(tasks))}, so it is in no average of {board.label}.")
    return [by_first_clause(text, board.label) for text in texts]


def collapsed(frames: Frames, title: Title = str) -> list[Caution]:
    """Return warnings of trained runs whose losses or metrics show nothing learned, by the last tenth of their logs.

    A discriminator that detects nothing gives one answer as well, so a run is named for one of both alone.
    """
    noted = {note.partition(" is ")[0] for note in frames.notes}  # kept reports of older versions have the sentences
    texts = [
        _at_the_floor(title(arm), budget, checks)
        for (arm, budget), checks in loss_checks(frames).items() if f"{arm} at {budget}" not in noted
    ]  # fmt: skip
    runs_of: dict[str, dict[str, dict[str, set[int]]]] = {}  # sentence -> budget -> arm -> its seeds
    for row in frames.rows("runs"):
        if row["state"] not in FINISHED:
            continue
        log = frames.logged(row["run_id"])  # one log at a time: as rows, a log takes eight times its memory
        ends = ((metric.partition("_")[0], at_end(log, metric), bad, text) for metric, bad, text in COLLAPSES)
        found = {part: text for part, value, bad, text in reversed([*ends]) if value is not None and bad(value)}
        for text in found.values():
            seeds_of = runs_of.setdefault(text, {}).setdefault(row["budget"], {})
            seeds_of.setdefault(row["arm"], set()).add(row["seed"])
    for _, _, text in COLLAPSES:
        for budget, arms in runs_of.get(text, {}).items():
            texts.append(f"At the end of training, {text}: {_arms_and_seeds(arms, title)} at {budget}.")
    return [by_first_clause(text) for text in texts if text]


def at_end(rows: Iterable[Mapping[str, float]], metric: str) -> float | None:
    """Return the mean of a metric over the last tenth of its logged values; None if it was not logged."""
    values = [row[metric] for row in rows if metric in row]
    tail = values[-max(1, len(values) // 10) :]
    return sum(tail) / len(tail) if tail else None


def loss_checks(frames: Frames) -> dict[tuple[str, str], dict[str, list[FloorCheck]]]:
    """Return by arm and budget, and by metric, how the losses of trained runs compare with token frequencies alone.

    A damaged run enters no average of scores, but its logged metrics are used here.
    """
    checks: dict[tuple[str, str], dict[str, list[FloorCheck]]] = {}
    for run in frames.rows("runs"):
        if run["state"] in (*FINISHED, "damaged") and (logged := frames.logged(run["run_id"])):
            for check in loss_floors.floor_checks(logged, frames.floors.get(run["run_id"], {})):
                checks.setdefault((run["arm"], run["budget"]), {}).setdefault(check.metric, []).append(check)
    return checks


def _at_the_floor(arm: str, budget: str, checks: Mapping[str, Sequence[FloorCheck]]) -> str:
    phrases, slight, whole = [], True, False
    for metric, each in checks.items():
        flagged = [check for check in each if check.flagged]
        if not flagged:
            continue
        hardly = all(check.slight for check in flagged)  # a gain that is too small to count
        slight, whole = slight and hardly, whole or len(flagged) == len(each)
        value, floor = t_interval([check.value for check in each]), t_interval([check.floor for check in each]).mean
        half = f" ± {value.half:.3f} over {seeds([len(each)])}" if value.half is not None else ""
        some = f"{'hardly' if hardly else 'no'} better in {len(flagged)} of {seeds([len(each)])}"
        notes = [some] * (len(flagged) < len(each)) + [flagged[0].too_little] * hardly
        aside = f" ({'; '.join(notes)})" if notes else ""
        phrases.append(
            f"{loss_floors.name(metric)} is {value.mean:.3f}{half}, and token frequencies alone give {floor:.3f}{aside}"
        )
    if not phrases:
        return ""
    better = f"is{'' if whole else ' in some seeds'} {'hardly' if slight else 'no'} better"
    return f"{arm} at {budget} {better} than token frequencies alone: {listing(phrases)}."


def late_falls(board: Leaderboard, title: Title = str) -> list[Caution]:
    """Return a warning of each arm of the largest budget whose score fell, in every seed, before the end."""
    listed = []
    for arm in dict.fromkeys(point.arm for point in board.points):
        for line in points_by_budget(board.points, arm):
            if line[0].budget == board.budget and (found := fall(line)) is not None:
                best, end, dropped = found
                name = title(arm)
                listed.append(Caution(
                    f"{name} fell from {best.estimate.mean:.1f} to {end.estimate.mean:.1f} while it trained.",
                    f"{board.label}: {name} had {best.estimate.mean:.1f} after {best.mark} of its training and has "
                    f"{end.estimate.mean:.1f} at its end; it fell in each of {seeds([dropped])}. The scorer may no "
                    f"longer show what the encoder knows, so compare {name} by fine-tuning or linear probes as well.",
                ))  # fmt: skip
    return listed


def fall(line: Sequence[Cell]) -> tuple[Cell, Cell, int] | None:
    """Return the best point of one arm in the order of training, its end, and the seeds; None if it did not fall."""
    end, best = line[-1], max(line, key=lambda point: point.estimate.mean)
    drops = [best.scores[seed] - score for seed, score in end.scores.items() if seed in best.scores]
    fell = len(drops) >= FEWEST and min(drops) > 0 and best.estimate.mean - end.estimate.mean >= FALL
    return (best, end, len(drops)) if end.mark == END and fell else None
