"""The warnings of a report: a short line and its reason for each fact that weakens a comparison."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from workbench.errors import plural
from workbench.report.comparison import declared, reached
from workbench.report.comparison.boards import Board, Cell
from workbench.report.comparison.doubts import beaten, caveat, learned
from workbench.report.comparison.spending import TOLERANCE
from workbench.report.comparison.training_points import Place, lines
from workbench.report.formatting import listing, seeds
from workbench.report.load.frames import Frames
from workbench.report.load.naming import named, several
from workbench.report.load.run_files import END, FINISHED
from workbench.spec.parts import CONVENTIONS
from workbench.store.environment import SWITCH

PASSING = ("started", "command")  # differ between runs in any case
CLOCK = 0.05  # relative difference of training times that is tolerated at a budget in seconds: timings vary as much


def warnings(frames: Frames, boards: Iterable[Board], missing: Mapping[str, str]) -> list[str]:
    """Return the reasons of all warnings, the gravest first. `missing` maps each unavailable task to the reason."""
    return [caution.reason for caution in cautions(frames, boards, missing)]


def doubtful(board: Board, axis: str) -> list[str]:
    """Return sentences on arms that score below a bag of words or are not shown ahead of their untrained encoder.

    At the largest budget all such arms are named; at the others, only those that are ahead of another arm.
    """
    sentences = []
    for budget in reversed(board.budgets):
        claimed = {pair.a for pair in board.pairs[budget] if pair.compared.claimed}
        word_score = learned(board)
        worse = {c.arm for c in board.at(budget) if c.gain is not None or beaten(c, word_score)}
        arms = claimed | worse if budget == board.budget else claimed
        text = caveat(board, budget, arms, {c.arm: named(axis, c.arm) for c in board.at(budget)}, several(axis))
        sentences += [text if len(board.budgets) == 1 else f"At {budget}: {text}"] if text else []
    return sentences


def unfinished(frames: Frames) -> list[str]:
    """Return the number of runs that are in no average, by state; the page names each of them further down."""
    states: dict[str, int] = {}
    for row in frames.rows("runs"):
        if row["state"] not in FINISHED:
            states[row["state"]] = states.get(row["state"], 0) + 1
    if not states:
        return []
    total = sum(states.values())
    by_state = listing([f"{n} {'not begun' if state == 'new' else state}" for state, n in sorted(states.items())])
    verb = "is" if total == 1 else "are"
    return [
        f"{total} of {plural(len(frames.runs), 'run')} {verb} in no average ({by_state}); "
        f"the reason is given below for each."
    ]


def overestimated(frames: Frames) -> list[str]:
    """Return a warning if settings were chosen by the rows that the scores are computed on; `tune` uses other rows."""
    if not frames.record.get("tuning") or frames.record.get("experiment") == "tune":
        return []
    return [
        "The best of many trials overestimates: settings were chosen by scores on the same rows that the scores here "
        "are computed on. `workbench sweep tune` chooses on other rows and seeds than those of its report."
    ]


def unequal_at(board: Board) -> list[str]:
    """Return the warnings of `unequal`, each once, with all budgets that it holds for."""
    budgets_of: dict[str, list[str]] = {}
    for budget in board.budgets:
        if text := unequal(board, budget):
            budgets_of.setdefault(text, []).append(budget)
    return [f"At {listing(budgets)}: {text}" for text, budgets in budgets_of.items()]


def unequal(board: Board, budget: str) -> str:
    """Return a sentence if the arms of a budget did not spend the same under some convention; "" if they did."""
    cells = board.at(budget)
    spreads = {str(c): spread(cells, f"flops_{c}") for c in CONVENTIONS}
    main = board.convention(budget)
    if spreads[main] is not None:
        least, most, ratio = spreads[main] or ("", "", 1.0)
        ratios = {c: r[2] if r else 1.0 for c, r in spreads.items() if c != main}
        others = listing([f"{r:.2f} times under {c}" for c, r in ratios.items() if abs(r - ratio) > TOLERANCE])
        tail = f", {others}" if others else ""
        return (
            f"this is not at equal compute. The arm {most} spent {ratio:.2f} times the FLOPs of {least} ({main} "
            f"convention{tail}). Compare the arms in the figure of score against compute instead."
        )
    rest = {c: r for c, r in spreads.items() if r is not None}
    if not rest:
        timed = spread(cells, "seconds", CLOCK) if budget.endswith("seconds") else None
        if timed is None:
            return ""
        return (
            f"only the planned time is the same. The arm {timed[1]} trained {timed[2]:.2f} times as long as "
            f"{timed[0]}: a budget in seconds is converted to steps by timing a few steps before a run begins."
        )
    largest = listing([f"{r[2]:.2f} under {c} ({r[1]} over {r[0]})" for c, r in rest.items()])
    return (
        f"the arms spent the same under the {main} convention only. The largest ratio of the FLOPs of two arms is "
        f"{largest}."
    )


def spread(cells: list[Cell], column: str, tolerance: float = TOLERANCE) -> tuple[str, str, float] | None:
    """Return the arms that spent least and most, and their ratio; None if it is at most 1 + `tolerance`."""
    if len(cells) < 2:
        return None
    ordered = sorted(cells, key=lambda c: c.spent[column])
    low, high = ordered[0], ordered[-1]
    if not low.spent[column] > 0 or high.spent[column] / low.spent[column] <= 1 + tolerance:
        return None
    return low.arm, high.arm, high.spent[column] / low.spent[column]


def uninformative_tasks(board: Board) -> list[str]:
    """Return a sentence on the tasks where no arm at the largest budget scores above the most frequent answer."""
    chance = {**board.baselines.get("chance", {}), **board.baselines.get("majority", {})}
    best: dict[str, float] = {}
    for cell in board.task_cells:
        if cell.budget == board.budget:
            best[cell.task] = max(best.get(cell.task, cell.estimate.mean), cell.estimate.mean)
    uninformative = [task for task, value in best.items() if task in chance and value <= chance[task]]
    if not uninformative:
        return []
    return [
        f"On {listing(uninformative)}, no arm at {board.budget} scores higher than always giving the most frequent "
        f"answer, so these scores show nothing about pre-training."
    ]


def uneven(board: Board) -> list[str]:
    """Return sentences on numbers of seeds that differ, on untrained encoders and on tasks that are missing."""
    sentences = []
    if len(board.finetunings) > 1:
        few, many = board.finetunings[0], board.finetunings[-1]
        sentences.append(
            f"{board.label}: scores are {board.statistic}s of {few} to {many} fine-tuning seeds, not of equally many."
        )
    for budget in board.budgets:
        seeds_of = {c.arm: set(c.scores) for c in board.at(budget)}
        if len({frozenset(s) for s in seeds_of.values()}) > 1:
            numbers = listing([f"{arm} {seeds([len(s)])}" for arm, s in seeds_of.items()])
            sentences.append(f"At {budget} the arms do not have the same seeds ({numbers}); pairs use those in common.")
    plan = board.family.plan
    if board.untrained is None:
        sentences.append(f"{board.label}: there is no untrained encoder to compare with.")
    else:
        counted = {c.arm: c.scores if plan is None else plan.so_far(c.scores) for c in board.at(board.budget)}
        without = [c.arm for c in board.at(board.budget) if c.gain is None or c.gain.estimate.n < len(counted[c.arm])]
        if without:
            sentences.append(
                f"{board.label}: some seeds of {listing(without)} have no untrained encoder with the same initial "
                f"weights."
            )
    for run_id, tasks in board.missing.items():
        sentences.append(f"{run_id} has no score on {listing(list(tasks))}, so it is in no average of {board.label}.")
    return sentences


def data_differs(frames: Frames) -> list[str]:
    """Return a sentence if finished runs trained on different data, by fingerprint."""
    prints = {row["data"] for row in frames.rows("runs") if row["state"] in FINISHED}
    if len(prints) < 2:
        return []
    return [f"The runs did not train on the same data: their data have {len(prints)} fingerprints."]


def environments_differ(frames: Frames) -> list[str]:
    """Return a sentence with the entries of env.json that differ between runs, besides where a text was found."""
    differing = [k for k, values in by_value(frames.environments).items() if len(values) > 1]
    keys = [key for key in differing if not key.startswith("places.")]
    if not keys:
        return []
    return [f"The runs were made in different environments: {listing(keys)} differ (see Settings)."]


def by_value(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """Return {key: {value as text: ids of its runs}}, without the keys that differ between runs in any case."""
    runs_of: dict[str, dict[str, list[str]]] = {}
    tables = {run_id: table for run_id, table in tables.items() if table}
    for key in dict.fromkeys(key for table in tables.values() for key in table):
        if key in PASSING:
            continue
        for run_id, table in tables.items():
            runs_of.setdefault(key, {}).setdefault(str(table.get(key)), []).append(run_id)
    return runs_of


@dataclass(frozen=True)
class Caution:
    """One fact that weakens a comparison: a `short` line, and the `reason` with its numbers."""

    short: str
    reason: str


def cautions(frames: Frames, boards: Iterable[Board], missing: Mapping[str, str]) -> list[Caution]:
    """Return all warnings as short lines with their reasons, the gravest first."""
    boards = list(boards)
    listed = []
    for board in boards:
        listed += [Caution(_doubt(board), text) for text in doubtful(board, frames.axis)]
        listed += [Caution(_fall(text), text) for text in late_falls(board)]
    listed += [
        Caution(f"{name} is in no score.", f"{name} is not part of any score: {why}.") for name, why in missing.items()
    ]
    listed += [Caution(f"{text.partition(' (')[0]}.", text) for text in unfinished(frames)]
    late, before, best = declared.warning(frames), declared.reported_before(frames), overestimated(frames)
    named_late = "Measures were first named after scores were known: exploratory."
    listed += [Caution(named_late, text) for text in declared.measure_warnings(frames)]
    listed += [Caution("Comparisons were declared after both arms had been trained.", text) for text in late]
    listed += [Caution("Seeds were added after a report, without a plan.", text) for text in before]
    listed += [Caution("Settings were chosen by the scores shown here.", text) for text in best]
    for board in boards[:1]:
        listed += [Caution(_apart(board), text) for text in unequal_at(board)]
    listed += [Caution("The runs did not train on the same data.", text) for text in data_differs(frames)]
    kinds = mixture(frames.rows("runs")).sentences()
    listed += [Caution("The runs were computed by several kinds of arithmetic.", text) for text in kinds]
    listed += [Caution("The runs were made in different environments.", text) for text in environments_differ(frames)]
    for board in boards:
        blind = "Some tasks show nothing: no arm beats the most frequent answer."
        listed += [Caution(blind, text) for text in uninformative_tasks(board)]
        listed += [Caution(_start(text), text) for text in uneven(board)]
    listed += [Caution(_start(text), text) for text in collapsed(frames)]
    listed += [Caution(_start(text), text) for text in frames.notes]
    return [Caution(caution.short, caution.reason) for caution in dict.fromkeys(listed)]


def _doubt(board: Board) -> str:
    """Return the short line for arms that words alone beat, or that are not shown ahead of untrained encoders."""
    cells, word_score = board.at(board.budget), learned(board)
    worse = [cell for cell in cells if beaten(cell, word_score)]
    if worse and word_score is not None:
        many = "every arm" if len(worse) == len(cells) else f"{len(worse)} of {len(cells)} arms"
        return f"{board.label}: words without an encoder score higher than {many} ({word_score:.1f})."
    unshown = sum(cell.gain is not None and not cell.gain.claimed for cell in cells)
    many = "No arm is" if unshown == len(cells) else f"{unshown} of {len(cells)} arms are not"
    return f"{board.label}: {many} shown ahead of {'its' if many == 'No arm is' else 'their'} untrained encoder."


def _fall(text: str) -> str:
    """Return the short line for a score that fell while an arm trained."""
    found = re.search(r": (.+) had ([\d.]+) after .* and has ([\d.]+) at its end", text)
    return f"{found[1]} fell from {found[2]} to {found[3]} while it trained." if found else _start(text)


def _apart(board: Board) -> str:
    """Return the short line for arms that did not spend the same under every convention."""
    cells = board.at(board.budget)
    main = board.convention()
    own = spread(cells, f"flops_{main}")
    if own is not None:
        return f"Not at equal compute: FLOPs differ by a factor of {own[2]:.2f}."
    worst = max((s[2] for c in CONVENTIONS if (s := spread(cells, f"flops_{c}")) is not None), default=1.0)
    names = {"matmul": "matrix products", "paper": "the paper\u2019s count", "paper-sparse": "sparse look-ups"}
    if worst == 1.0:
        return "Only the planned time is equal."
    return f"Equal by {names.get(main, main)} only: up to {worst:.2f} times apart by another count."


def _start(text: str) -> str:
    """Return the first clause of a sentence as a short line."""
    text = re.sub(r" at [^,;:()]+ FLOPs \([a-z-]+\)", "", text)
    clause = re.split(r"(?<=[a-z%)])[.:;](?: |$)|, so | \(", text, maxsplit=1)[0]
    if len(clause) > 110:
        return re.sub(r"( in| of| for| and| the)*$", "", clause[:109].rsplit(" ", 1)[0]) + " …"
    return clause.rstrip(".") + "."


# -- training that collapsed, by the last tenth of the log of each run

# A metric, whether its value means a collapse on any text, and the sentence on it.
COLLAPSES: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    (
        "discriminator_recall",
        lambda v: v < 0.01,
        "the discriminator detects less than 1 % of the replaced tokens (it nearly always predicts the majority class)",
    ),
    (
        "discriminator_positive_rate",
        lambda v: v < 0.001 or v > 0.999,
        "the discriminator gives the same answer for at least 999 tokens in 1,000",
    ),
    (
        "generator_entropy",
        lambda v: v < 0.05,
        "the generator\u2019s entropy is below 0.05 nats, so it nearly always writes the same token",
    ),
)


def collapsed(frames: Frames) -> list[str]:
    """Return sentences on finished runs whose training collapsed, by the last tenth of their logs."""
    sentences = reached.sentences(frames)
    finished = {row["run_id"] for row in frames.rows("runs") if row["state"] in FINISHED}
    bad_of: dict[str, list[str]] = {metric: [] for metric, _, _ in COLLAPSES}
    for run_id, rows in frames.logged.items():
        for metric, bad, _ in COLLAPSES if run_id in finished else ():
            if (end := at_end(rows, metric)) is not None and bad(end):
                bad_of[metric].append(run_id)
    for metric, _, sentence in COLLAPSES:
        runs = bad_of[metric]
        if runs:
            sentences.append(f"At the end of training, {sentence} in {listing(runs)}.")
    return sentences


def at_end(rows: Iterable[Mapping[str, float]], metric: str) -> float | None:
    """Return the mean of a metric over the last tenth of its logged values; None if it was not logged."""
    values = [row[metric] for row in rows if metric in row]
    tail = values[-max(1, len(values) // 10) :]
    return sum(tail) / len(tail) if tail else None


# -- scores that fall late in training, as those of a detector whose generator has become good may do

FALL = 5.0  # points by which the mean must fall; without a cause that was found, kept studies have falls of up to 3
FEWEST = 2  # seeds, each of which must fall


def late_falls(board: Board) -> list[str]:
    """Return a sentence on each arm of the largest budget whose score fell, in every seed, before the end."""
    arms = dict.fromkeys(place.arm for place in board.places)
    told = [fall(line) for arm in arms for line in lines(board.places, arm) if line[0].budget == board.budget]
    return [f"{board.label}: {text}" for text in told if text]


def fall(line: list[Place]) -> str:
    """Return what is said of the places of one arm, in the order of training; "" if its score did not fall."""
    end = line[-1]
    if end.mark != END or len(line) == 1:
        return ""
    best = max(line, key=lambda place: place.estimate.mean)
    drops = [best.scores[seed] - score for seed, score in end.scores.items() if seed in best.scores]
    if len(drops) < FEWEST or min(drops) <= 0 or best.estimate.mean - end.estimate.mean < FALL:
        return ""
    return (
        f"{end.arm} had {best.estimate.mean:.1f} after {best.mark} of its training and has {end.estimate.mean:.1f} at "
        f"its end; it fell in each of {seeds([len(drops)])}. A way to score may stop telling what an encoder knows, so "
        f"compare {end.arm} by fine-tuning or linear probes as well."
    )


# -- runs that were computed by several kinds of arithmetic, such as two processors or precisions


@dataclass(frozen=True)
class Mixture:
    """The kinds of arithmetic of an experiment's trained runs.

    `seeds_of` maps a kind to {arm: its seeds}. `apart` are the pairs of arms of which some two runs of one budget and
    seed were computed by different kinds, and `disjoint` are the pairs among these that have no kind in common.
    `switched` maps a run that was continued on another kind to its kinds, in order.
    """

    seeds_of: Mapping[str, Mapping[str, frozenset[int]]]
    apart: tuple[tuple[str, str], ...]
    disjoint: tuple[tuple[str, str], ...]
    switched: Mapping[str, str]

    def sentences(self) -> list[str]:
        """Return one sentence on the kinds, with the arms and seeds of each, and one on runs that changed theirs."""
        texts = []
        if len(self.seeds_of) > 1:
            texts.append(f"The runs were computed by {len(self.seeds_of)} kinds of arithmetic: {self._by_kind()}.")
            texts[0] += f" {self._meaning()}"
        if self.switched:
            each = listing([f"{run_id} ({kinds})" for run_id, kinds in self.switched.items()])
            verb = "run was" if len(self.switched) == 1 else "runs were"
            texts.append(f"{len(self.switched)} {verb} continued on another kind of arithmetic: {each}.")
        return texts

    def _by_kind(self) -> str:
        parts = []
        for kind, arms in self.seeds_of.items():
            names: dict[frozenset[int], list[str]] = {}
            for arm, numbers in arms.items():
                names.setdefault(numbers, []).append(arm)
            among = [f"{listing(who)} ({_numbers(numbers)})" for numbers, who in names.items()]
            parts.append(f"{kind} for {listing(among)}")
        return "; ".join(parts)

    def _meaning(self) -> str:
        if not self.apart:
            return "The arms of each seed share a kind, so differences within seeds do not mix kinds."
        if self.disjoint:
            first, count = self.disjoint[0], len(self.disjoint)
            pairs = f"{first[0]} against {first[1]}" + (f" and {plural(count - 1, 'other pair')}" if count > 1 else "")
            return (
                f"No kind is common to both arms of {pairs}, so a difference between them cannot be told from a "
                f"difference between the kinds; train the arms of each seed on the same kind."
            )
        return (
            f"In {plural(len(self.apart), 'pair')} of arms, some differences within a seed are between two kinds; "
            f"train the arms of each seed on the same kind."
        )


def mixture(runs: Iterable[Mapping[str, Any]]) -> Mixture:
    """Return the kinds of arithmetic of trained runs, given as rows of `frames.Frames.runs`.

    Untrained encoders and runs whose kind was not recorded are left out.
    """
    seeds_of: dict[str, dict[str, frozenset[int]]] = {}
    compared: dict[tuple[str, int], dict[str, str]] = {}  # budget and seed -> arm -> kind
    kinds_of: dict[str, set[str]] = {}
    switched: dict[str, str] = {}
    for row in runs:
        kind = row.get("arithmetic")
        if row["role"] != "arm" or row["state"] not in FINISHED or not isinstance(kind, str) or not kind:
            continue
        arm, seed = row["arm"], row["seed"]
        arms = seeds_of.setdefault(kind, {})
        arms[arm] = arms.get(arm, frozenset()) | {seed}
        kinds_of.setdefault(arm, set()).add(kind)
        compared.setdefault((row["budget"], seed), {})[arm] = kind
        if SWITCH in kind:
            switched[row["run_id"]] = kind
    apart = tuple(dict.fromkeys(
        (a, b) for kind_of in compared.values() for a, b in combinations(kind_of, 2) if kind_of[a] != kind_of[b]
    ))  # fmt: skip
    return Mixture(
        seeds_of, apart, tuple(pair for pair in apart if not kinds_of[pair[0]] & kinds_of[pair[1]]), switched
    )


def _numbers(seeds: Iterable[int]) -> str:
    """Return `seed 2`, `seeds 0, 1 and 4`, or `seeds 0 to 3` if none is missing between them."""
    ordered = sorted(seeds)
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"seeds {ordered[0]} to {ordered[-1]}"
    return f"seed{'s' * (len(ordered) > 1)} {listing([str(seed) for seed in ordered])}"
