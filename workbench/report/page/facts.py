"""The facts beside the scores: what was run, on which text, for how long, and how sentences were scored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from workbench.errors import plural
from workbench.report import formatting
from workbench.report.comparison import spending
from workbench.report.comparison.boards import Board
from workbench.report.comparison.item_intervals import FEW
from workbench.report.formatting import listing
from workbench.report.load.frames import Frames
from workbench.report.load.run_files import FINISHED, number, part
from workbench.report.page import warnings
from workbench.spec.parts import size_in_words
from workbench.spec.published import BABYLM, BABYLM_NOTE
from workbench.spec.scoring import ZERO_SHOT, label_of_tasks
from workbench.spec.words_seen import by_source


def known(value: object) -> bool:
    """Return whether a cell of a table holds a value."""
    import pandas as pd

    return value is not None and value is not pd.NA and not (isinstance(value, float) and math.isnan(value))


def no_scores(frames: Frames) -> str:
    """Return the answer of a page without any comparison: the reason why there is none."""
    done = sum(run["state"] in FINISHED for run in frames.rows("runs"))
    if not done:
        return "There is no answer yet: no run has finished."
    if frames.scores.empty:
        trained = f"{plural(done, 'run')} {'is' if done == 1 else 'are'} trained"
        return f"There is no answer yet: {trained}, but none was measured on a task."
    return "There is no answer yet: no trained run has a score on every task."


def facts(frames: Frames, results: list[Board]) -> list[tuple[str, str]]:
    """Return the names and values of the facts at the top of the page."""
    runs = frames.rows("runs")
    arms = [run for run in runs if run["role"] == "arm"]
    done = sum(run["state"] in FINISHED for run in runs)
    spec: Mapping[str, Any] = next((frames.settings[r["run_id"]] for r in arms if frames.settings[r["run_id"]]), {})
    counts = [len(cell.scores) for board in results for cell in board.at(board.budget)]
    seconds = math.fsum(r["seconds"] for r in runs if known(r["seconds"]))
    tuning = math.fsum(r["finetune_seconds"] for r in runs if known(r["finetune_seconds"]))
    convention = str(next((r["convention"] for r in arms if known(r["convention"])), "paper"))
    flops = math.fsum(r[f"flops_{convention}"] for r in runs if known(r[f"flops_{convention}"]))
    budgets = list(dict.fromkeys(run["budget"] for run in arms if frames.settings[run["run_id"]]))
    layers, width = spec.get("encoder.layers", 0), spec.get("encoder.hidden", 0)
    return [
        ("Score", "; ".join(map(score, results)) or "none"),
        ("Budget of a run", formatting.listing(budgets) or "unknown"),
        *([("Compute", compared)] if (compared := spending.compute_text(frames)) else []),
        ("Pre-training seeds", formatting.seeds(counts) if counts else "none with scores"),
        ("Runs", f"{done} of {len(runs)} trained"),
        ("Encoder", f"{size_in_words(layers, width)} ({spec.get('scale')})" if layers else "unknown"),
        *([("Went on from", before)] if (before := went_on_from(spec)) else []),
        ("Text", text(frames, str(spec.get("data.corpus") or "unknown"))),
        *([("Words seen by a run", seen)] if (seen := words_seen(frames)) else []),
        ("Pre-training in all", f"{formatting.power(flops)} FLOPs ({convention}), {formatting.duration(seconds)}"),
        ("Fine-tuning and scoring in all", formatting.duration(tuning)),
    ]


def went_on_from(spec: Mapping[str, Any]) -> str:
    """Return the published pair that runs went on from, with what others spent on it; "" if there is none."""
    if not spec.get("pair.names"):
        return ""
    flops = number(spec.get("pair.flops"))
    amount = "unknown FLOPs" if math.isnan(flops) else f"{formatting.power(flops)} FLOPs"
    return f"{spec['pair.names']}: {amount} were spent before, which are in no number here"


def score(board: Board) -> str:
    """Return the label of a score, with its tasks unless these are the label: `GLUE (CoLA, ...)`, `RTE`."""
    tasks = f" ({formatting.listing(board.tasks)})"
    return board.label + (tasks if board.label != label_of_tasks(board.tasks) else "")


def text(frames: Frames, names: str) -> str:
    """Return the names of the text, with its words and those of each source if they were recorded."""
    recorded = frames.record["text"]
    total, sources = number(recorded.get("words")), part(recorded, "sources")
    if math.isnan(total):
        return names
    counts = {str(name): number(count) for name, count in sources.items()}
    return f"{names} ({total:,.0f} words{f': {by_source(counts)}' if len(counts) > 1 else ''})"


def words_seen(frames: Frames) -> str:
    """Return how many words finished runs saw in training, and in how many epochs; "" if words were not counted."""
    runs = [r for r in frames.rows("runs") if r["role"] == "arm" and r["state"] in FINISHED and known(r["words"])]
    if not runs:
        return ""
    ends = [(min(r[key] for r in runs), max(r[key] for r in runs)) for key in ("words", "epochs")]
    (few, many), (low, high) = ends
    if many <= few * 1.005:
        return f"{formatting.count(many)} ({high:.3g} epochs)"
    return f"{formatting.count(few)} to {formatting.count(many)} ({low:.3g} to {high:.3g} epochs)"


def time_note(frames: Frames) -> str:
    """Return a sentence on the time that all runs took, before the command if it is known."""
    runs = [r for r in frames.rows("runs") if known(r["seconds"])]
    seconds = math.fsum(r["seconds"] for r in runs)
    tuning = math.fsum(r["finetune_seconds"] for r in runs if known(r["finetune_seconds"]))
    times = f"{formatting.duration(seconds)} of training and {formatting.duration(tuning)} of fine-tuning"
    took = f"{plural(len(runs), 'run')} took {times}"
    return f"{took}, summed over runs. The command:" if frames.record["command"] else f"{took}."


def environments(frames: Frames) -> dict[str, list[Any]]:
    """Return the entries of env.json that all runs share, and those that differ."""
    same, different = _split(frames.environments)
    return {"same": same, "different": different}


def _split(tables: Mapping[str, Mapping[str, Any]]) -> tuple[list[tuple[str, str]], list[tuple[str, str, list[str]]]]:
    """Return the keys with one value in all runs, and the others with each value and its runs, without unset values."""
    same, different = [], []
    for key, values in warnings.by_value(tables).items():
        if len(values) == 1:
            same += [(key, _value(value)) for value in values if value not in ("None", "")]
        else:
            different += [(key, _value(value), ids) for value, ids in values.items() if value not in ("None", "")]
    return same, different


def _value(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= 300 else f"{text[:299]}…"


def covers(board: Board) -> str:
    """Return what the intervals of a board cover, with the interval for new test items too where these are few."""
    text = "Intervals are for new pre-training seeds on the same text, with the same vocabulary and the same test items"
    again = [(p, board.items.get(board.budget, {}).get(frozenset((p.a, p.b)))) for p in board.pairs[board.budget]]
    few = [(p, one) for p, one in again if one is not None and one.items < FEW]
    if not few:
        return f"{text}."
    pair, one = few[0]
    e = pair.difference.estimate
    return (
        f"{text}. With the {one.items:,} test items drawn again as well, the difference of {pair.a} and {pair.b} is "
        f"{formatting.interval(e.mean, one.high - e.mean)}; pairs.csv has the others."
    )


# -- how sentences or tagged words were scored, ties, and published scores


def scoring_notes(board: Board, frames: Frames) -> list[str]:
    """Return the notes under the tables of a board; none if its scores are neither zero-shot scores nor of tagging."""
    rows = [row for row in frames.rows("scores") if row["suite"] == board.suite and row.get("scorer")]
    if board.suite == "tagging":
        ways = dict.fromkeys((row["task"], row["scorer"]) for row in rows)
        return [f"{task}: {scorer}." for task, scorer in ways]
    if board.suite not in ZERO_SHOT:
        return []
    return [*_scorers(board, rows), *_ties(rows), *_published(board)]


def _scorers(board: Board, rows: list[dict[str, Any]]) -> list[str]:
    """Return a sentence on the scorer of each arm, with a caution if scorers differ."""
    cells = [*board.cells, *([board.untrained] if board.untrained else [])]
    arms = {run: cell.arm for cell in cells for run in cell.runs}
    arms_of: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["run_id"] in arms:
            arms_of.setdefault(str(row["scorer"]), {})[arms[row["run_id"]]] = None
    if not arms_of:
        return []
    each = [f"{scorer} ({listing(list(scored))})" for scorer, scored in arms_of.items()]
    if len(each) == 1:
        return [f"Sentences are scored by {each[0]}."]
    return [
        f"Sentences are scored by {listing(each)}. Scorers differ between objectives, so a difference here may be due "
        f"to the scorer and not to the encoder; linear probes and fine-tuning treat all encoders alike."
    ]


def _ties(rows: list[dict[str, Any]]) -> list[str]:
    """Return a sentence on the number of pairs with tied scores."""
    pairs, ties = sum(int(row["test_rows"]) for row in rows), sum(int(row["ties"]) for row in rows)
    if not ties:
        return ["In no pair do both sentences have the same score."] if pairs else []
    some = f"{ties:,} of {plural(pairs, 'pair')}, over all runs, {'has' if ties == 1 else 'have'}"
    return [f"{some} the same score for both sentences; each counts half."]


def _published(board: Board) -> list[str]:
    """Return the published scores on the filtered BLiMP pairs, if they are among the tasks."""
    if "blimp-filtered" not in board.tasks:
        return []
    sizes = dict.fromkeys(point.data for point in BABYLM)
    scores = [
        f"from {size} words {listing([f'{p.name} {p.blimp:.1f} ({p.year})' for p in BABYLM if p.data == size])}"
        for size in sizes
    ]
    sources = listing(list(dict.fromkeys(point.source for point in BABYLM)))
    return [f"Published on the filtered pairs by BabyLM's organisers: {'; '.join(scores)}. {BABYLM_NOTE} ({sources})."]
