"""The warnings of a report: a sentence for each fact that weakens a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workbench.errors import plural
from workbench.report.comparison import declared
from workbench.report.comparison.boards import Board, Cell
from workbench.report.comparison.doubts import beaten, caveat, learned
from workbench.report.comparison.spending import TOLERANCE
from workbench.report.formatting import listing, seeds
from workbench.report.load.frames import Frames
from workbench.report.load.run_files import FINISHED
from workbench.report.page.phrases import named, several
from workbench.report.page.warnings import arithmetic, late_falls
from workbench.report.page.warnings.collapses import collapsed
from workbench.spec.parts import CONVENTIONS

PASSING = ("started", "command")  # differ between runs in any case
CLOCK = 0.05  # relative difference of training times that is tolerated at a budget in seconds: timings vary as much


def warnings(frames: Frames, boards: Iterable[Board], missing: Mapping[str, str]) -> list[str]:
    """Return all warnings, the gravest first. `missing` maps each unavailable task to the reason."""
    boards = list(boards)
    sentences = [text for board in boards for text in from_scores(board, frames.axis)]
    sentences += [f"{name} is not part of any score here: {why}." for name, why in missing.items()]
    sentences += unfinished(frames)
    sentences += [
        *declared.warning(frames),
        *declared.measure_warnings(frames),
        *declared.reported_before(frames),
        *overestimated(frames),
    ]
    sentences += [text for board in boards[:1] for text in unequal_at(board)]
    sentences += data_differs(frames)
    sentences += arithmetic.mixture(frames.rows("runs")).sentences()
    sentences += environments_differ(frames)
    for board in boards:
        sentences += [*uninformative_tasks(board), *uneven(board)]
    sentences += collapsed(frames)
    return [*sentences, *frames.notes]


def from_scores(board: Board, axis: str) -> list[str]:
    """Return the warnings that follow from scores alone, which kept reports get again from their tables."""
    return [*doubtful(board, axis), *late_falls.sentences(board)]


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
    return [f"The runs were made in different environments: {listing(keys)} differ (see \u201cWhat was run\u201d)."]


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


def cells(frames: Frames) -> tuple[list[int], list[tuple[str, str, dict[int, str]]]]:
    """Return the seeds, and for each arm and budget {seed: state of its run}; runs without a folder are left out."""
    rows = [row for row in frames.rows("runs") if row["role"] == "arm" and row["seed"] >= 0]
    table: dict[tuple[str, str], dict[int, str]] = {}
    for row in rows:
        table.setdefault((row["arm"], row["budget"]), {})[row["seed"]] = row["state"]
    return sorted({row["seed"] for row in rows}), [(arm, budget, states) for (arm, budget), states in table.items()]
