"""The facts beside the scores: what was run, on which text, with which settings, and for how long."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from workbench.errors import plural
from workbench.report import formatting
from workbench.report.comparison import spending
from workbench.report.comparison.boards import Board
from workbench.report.load.frames import Frames
from workbench.report.load.run_files import FINISHED, flatten, number, part
from workbench.report.page.warnings import checks
from workbench.spec.parts import size_in_words
from workbench.spec.scoring import label_of_tasks
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


def scale_note(frames: Frames) -> str:
    """Return a caution against comparing these numbers with published ones, with the encoder's size if it is known."""
    spec: Mapping[str, Any] = next((s for s in frames.settings.values() if s), {})
    layers, width = spec.get("encoder.layers", 0), spec.get("encoder.hidden", 0)
    size = f"The encoder here has {size_in_words(layers, width)}. The" if layers else "The encoder, the"
    return (
        f"{size} score, the text and the budget may differ from those of the published numbers: compare the order "
        f"of the arms and the signs of differences, not their size."
    )


def statistic_note(board: Board) -> str:
    """Return a sentence on whether published scores of GLUE and those measured here are both medians."""
    counts = [str(count) for count in board.finetunings]
    seeds = f"{' to '.join(dict.fromkeys((counts[0], counts[-1])))} fine-tuning seed{'s' * (counts[-1] != '1')}"
    if board.statistic == "median":
        return f"Published scores are medians of ten fine-tuning runs; those of this report are medians over {seeds}."
    return (
        f"Published scores are medians of ten fine-tuning runs; those of this report are means over {seeds}, and "
        f"--set tasks.statistic=median shows medians."
    )


def time_note(frames: Frames) -> str:
    """Return a sentence on the time that all runs took, before the command if it is known."""
    runs = [r for r in frames.rows("runs") if known(r["seconds"])]
    seconds = math.fsum(r["seconds"] for r in runs)
    tuning = math.fsum(r["finetune_seconds"] for r in runs if known(r["finetune_seconds"]))
    times = f"{formatting.duration(seconds)} of training and {formatting.duration(tuning)} of fine-tuning"
    took = f"{plural(len(runs), 'run')} took {times}"
    return f"{took}, summed over runs. The command:" if frames.record["command"] else f"{took}."


def settings(frames: Frames) -> dict[str, list[Any]]:
    """Return the settings of the arms: those that all share, and those that differ besides axis, seed and budget."""
    arms = {r["run_id"]: frames.settings[r["run_id"]] for r in frames.rows("runs") if r["role"] == "arm"}
    aside = ("tasks.", "seed", "scale", *frames.axis.split(","))
    compared = {i: {k: v for k, v in spec.items() if not k.startswith(aside)} for i, spec in arms.items()}
    same, different = _split(compared)
    tasks = [(k, _value(v)) for k, v in flatten(frames.record["tasks"]).items() if v is not None]
    return {"same": same, "different": different, "tasks": tasks}


def environments(frames: Frames) -> dict[str, list[Any]]:
    """Return the entries of env.json that all runs share, and those that differ."""
    same, different = _split(frames.environments)
    return {"same": same, "different": different}


def _split(tables: Mapping[str, Mapping[str, Any]]) -> tuple[list[tuple[str, str]], list[tuple[str, str, list[str]]]]:
    """Return the keys with one value in all runs, and the others with each value and its runs, without unset values."""
    same, different = [], []
    for key, values in checks.by_value(tables).items():
        if len(values) == 1:
            same += [(key, _value(value)) for value in values if value not in ("None", "")]
        else:
            different += [(key, _value(value), ids) for value, ids in values.items() if value not in ("None", "")]
    return same, different


def _value(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= 300 else f"{text[:299]}…"
