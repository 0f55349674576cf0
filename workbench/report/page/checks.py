"""What a reader must know before believing a comparison: sentences, one for each thing that is not as it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from workbench.report.comparison import declared, reached
from workbench.report.comparison.boards import Board, Cell
from workbench.report.comparison.spending import TOLERANCE
from workbench.report.load.frames import Frames
from workbench.report.load.run_files import FINISHED
from workbench.report.page.doubts import BAG, beaten, caveat
from workbench.report.page.phrases import named, several
from workbench.report.words import listing, seeds
from workbench.spec.parts import CONVENTIONS

PASSING = ("started", "command")  # differ from run to run without meaning
CLOCK = 0.05  # how far clocks may be apart at a budget in seconds: timings are no better than that


def warnings(frames: Frames, boards: Iterable[Board], missing: Mapping[str, str]) -> list[str]:
    """All of them, the gravest first. `missing` maps tasks that could not be had to why."""
    boards = list(boards)
    found = [text for board in boards for text in doubtful(board, frames.axis)]
    found += [f"{name} is not part of any score here: {why}." for name, why in missing.items()]
    found += unfinished(frames)
    found += [*declared.warning(frames), *flattered(frames)]
    found += [text for board in boards[:1] for text in unequal_at(board)]
    found += data_differs(frames)
    found += environments_differ(frames)
    for board in boards:
        found += [*mute(board), *uneven(board)]
    found += collapsed(frames)
    return [*found, *frames.notes]


def doubtful(board: Board, axis: str) -> list[str]:
    """Arms that a bag of words beats or that are no better than untrained: all at the largest budget, else claimed."""
    found = []
    for budget in reversed(board.budgets):
        claimed = {pair.a for pair in board.pairs[budget] if pair.compared.claimed}
        bag = board.baseline(BAG)
        worse = {c.arm for c in board.at(budget) if c.gain is not None or beaten(c, bag)}
        arms = claimed | worse if budget == board.budget else claimed
        text = caveat(board, budget, arms, {c.arm: named(axis, c.arm) for c in board.at(budget)}, several(axis))
        found += [text if len(board.budgets) == 1 else f"At {budget}: {text}"] if text else []
    return found


def unfinished(frames: Frames) -> list[str]:
    """How many runs are in no table, by state; each is named further down."""
    states: dict[str, int] = {}
    for row in frames.rows("runs"):
        if row["state"] not in FINISHED:
            states[row["state"]] = states.get(row["state"], 0) + 1
    if not states:
        return []
    total = sum(states.values())
    told = listing([f"{n} {'not begun' if state == 'new' else state}" for state, n in sorted(states.items())])
    verb = "is" if total == 1 else "are"
    return [f"{total} of {len(frames.runs)} runs {verb} in no average ({told}); they are named below with the reason."]


def flattered(frames: Frames) -> list[str]:
    """A search that chose by the very rows that its scores are of; `tune` reports on others."""
    if not frames.record.get("tuning") or frames.record.get("experiment") == "tune":
        return []
    return [
        "The best of many trials flatters: settings were searched for by the same rows that the scores here are of. "
        "`workbench sweep tune` chooses on other rows and seeds than it reports."
    ]


def unequal_at(board: Board) -> list[str]:
    """One sentence for all budgets of which the same is to be said."""
    said: dict[str, list[str]] = {}
    for budget in board.budgets:
        if text := unequal(board, budget):
            said.setdefault(text, []).append(budget)
    return [f"At {listing(budgets)}: {text}" for text, budgets in said.items()]


def unequal(board: Board, budget: str) -> str:
    """Whether arms of one budget did not spend the same, under any convention; "" if they did."""
    cells = board.at(budget)
    found = {str(c): spread(cells, f"flops_{c}") for c in CONVENTIONS}
    main = board.convention(budget)
    if found[main] is not None:
        least, most, ratio = found[main] or ("", "", 1.0)
        ratios = {c: r[2] if r else 1.0 for c, r in found.items() if c != main}
        others = listing([f"{r:.2f} times under {c}" for c, r in ratios.items() if abs(r - ratio) > TOLERANCE])
        tail = f", {others}" if others else ""
        return (
            f"this is not at equal compute. The arm {most} spent {ratio:.2f} times the FLOPs of {least} ({main} "
            f"convention{tail}). Compare with the figure of score against compute in view."
        )
    rest = {c: r for c, r in found.items() if r is not None}
    if not rest:
        timed = spread(cells, "seconds", CLOCK) if budget.endswith("seconds") else None
        if timed is None:
            return ""
        return (
            f"the time is the same by plan only. The arm {timed[1]} trained {timed[2]:.2f} times as long as {timed[0]} "
            f"by the clock: seconds become steps when a few steps are timed, before a run begins."
        )
    told = listing([f"{r[2]:.2f} times under {c} ({r[1]} over {r[0]})" for c, r in rest.items()])
    return f"the arms spent the same under the {main} convention only. The most costly arm spent {told}."


def spread(cells: list[Cell], column: str, tolerance: float = TOLERANCE) -> tuple[str, str, float] | None:
    """The arms that spent least and most and their ratio, where it is more than a step's worth apart."""
    if len(cells) < 2:
        return None
    ordered = sorted(cells, key=lambda c: c.spent[column])
    low, high = ordered[0], ordered[-1]
    if not low.spent[column] > 0 or high.spent[column] / low.spent[column] <= 1 + tolerance:
        return None
    return low.arm, high.arm, high.spent[column] / low.spent[column]


def mute(board: Board) -> list[str]:
    """Tasks on which no arm at the largest budget does better than always giving the commonest answer."""
    chance = {**board.baselines.get("chance", {}), **board.baselines.get("majority", {})}
    best: dict[str, float] = {}
    for cell in board.task_cells:
        if cell.budget == board.budget:
            best[cell.task] = max(best.get(cell.task, cell.estimate.mean), cell.estimate.mean)
    silent = [task for task, value in best.items() if task in chance and value <= chance[task]]
    if not silent:
        return []
    return [
        f"On {listing(silent)} no arm at {board.budget} scores above always giving the commonest answer: nothing about "
        f"pre-training can be read from that."
    ]


def uneven(board: Board) -> list[str]:
    """Numbers of seeds that differ, and runs that lack a task."""
    found = []
    if len(board.finetunings) > 1:
        told = " to ".join(str(n) for n in (board.finetunings[0], board.finetunings[-1]))
        found.append(f"{board.label}: scores are means of {told} fine-tuning seeds, not of the same number everywhere.")
    for budget in board.budgets:
        having = {c.arm: set(c.scores) for c in board.at(budget)}
        if len({frozenset(s) for s in having.values()}) > 1:
            told = listing([f"{arm} {seeds([len(s)])}" for arm, s in having.items()])
            found.append(f"At {budget} the arms do not have the same seeds ({told}); pairs use those in common.")
    if board.untrained is None:
        found.append(f"{board.label}: there is no untrained encoder to compare with.")
    else:
        without = [c.arm for c in board.at(board.budget) if c.gain is None or c.gain.estimate.n < len(c.scores)]
        if without:
            found.append(
                f"{board.label}: some seeds of {listing(without)} have no untrained encoder of the same start."
            )
    for run_id, tasks in board.missing.items():
        found.append(f"{run_id} has no score on {listing(list(tasks))}, so it is in no average of {board.label}.")
    return found


def data_differs(frames: Frames) -> list[str]:
    prints = {row["data"] for row in frames.rows("runs") if row["state"] in FINISHED}
    return [f"The runs did not train on the same data: {len(prints)} fingerprints."] if len(prints) > 1 else []


def environments_differ(frames: Frames) -> list[str]:
    keys = [k for k, values in by_value(frames.environments).items() if len(values) > 1]
    if not keys:
        return []
    return [f"The runs were made in different environments: {listing(keys)} differ (see what was run)."]


def by_value(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """Key -> value as text -> the runs that have it, for keys that mean something."""
    found: dict[str, dict[str, list[str]]] = {}
    tables = {run_id: table for run_id, table in tables.items() if table}
    for key in dict.fromkeys(key for table in tables.values() for key in table):
        if key in PASSING:
            continue
        for run_id, table in tables.items():
            found.setdefault(key, {}).setdefault(str(table.get(key)), []).append(run_id)
    return found


def collapsed(frames: Frames) -> list[str]:
    """Return what is to be said of runs that ended where nothing is learned, by the last tenth of their logs."""
    found = reached.sentences(frames)
    for metric, bad, said in COLLAPSES:
        runs = [r for r in frames.logged if (end := at_end(frames, r, metric)) is not None and bad(end)]
        if runs:
            found.append(f"At the end of training {said} in {listing(runs)}.")
    return found


# A metric, when it means a collapse whatever the text is, and what is then said.
COLLAPSES: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    (
        "discriminator_recall",
        lambda v: v < 0.01,
        "the discriminator finds less than 1 % of the replaced tokens (it stays at the majority class)",
    ),
    (
        "discriminator_positive_rate",
        lambda v: v < 0.001 or v > 0.999,
        "the discriminator gives the same answer for at least 999 tokens in 1,000",
    ),
    (
        "generator_entropy",
        lambda v: v < 0.05,
        "the generator\u2019s entropy is below 0.05 nats, so it always writes the same",
    ),
)


def at_end(frames: Frames, run_id: str, metric: str) -> float | None:
    """The mean of a metric over the last tenth of what a run logged of it."""
    values = [row[metric] for row in frames.logged[run_id] if metric in row]
    tail = values[-max(1, len(values) // 10) :]
    return sum(tail) / len(tail) if tail else None


def cells(frames: Frames) -> tuple[list[int], list[tuple[str, str, dict[int, str]]]]:
    """Seeds, and for each arm and budget the state of every seed's run; what has no folder yet has no arm either."""
    rows = [row for row in frames.rows("runs") if row["role"] == "arm" and row["seed"] >= 0]
    table: dict[tuple[str, str], dict[int, str]] = {}
    for row in rows:
        table.setdefault((row["arm"], row["budget"]), {})[row["seed"]] = row["state"]
    return sorted({row["seed"] for row in rows}), [(arm, budget, found) for (arm, budget), found in table.items()]
