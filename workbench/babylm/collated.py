"""All predictions of a run in the one file that BabyLM's leaderboard accepts, and a table of their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.babylm.predictions import Predicted

FULL = (
    "blimp", "blimp_supplement", "ewok", "entity_tracking_filtered", "comps", "global_piqa_parallel",
    "global_piqa_nonparallel", "reading", "aoa_surprisals", "aoa",
)  # fmt: skip
FAST = (
    "blimp", "blimp_supplement", "ewok", "entity_tracking_filtered", "global_piqa_parallel", "global_piqa_nonparallel",
    "reading",
)  # fmt: skip


def collated(by_revision: Mapping[str, Sequence[Predicted]], track: Sequence[str]) -> dict[str, Any]:
    """Return the content of `all_full_preds_and_fast_scores_BACKEND.json`.

    A task is null if it is missing or has another number of rows than BabyLM requires. Fast scores are fractions,
    with one entry for each revision of the track, in its order.
    """
    main = [each for each in by_revision.get("main", ()) if each.fast is None and not each.counts]
    content: dict[str, Any] = {key: None for key in FULL}
    content |= {each.key: each.predictions for each in main if each.key != "glue"}
    content["glue"] = {name: rows for each in main if each.key == "glue" for name, rows in each.predictions.items()}
    fast = {
        name: {each.key: each.fast for each in several if each.fast is not None and not each.counts}
        for name, several in by_revision.items()
    }
    content["fast_eval_results"] = {key: [fast.get(name, {}).get(key) for name in track] for key in FAST}
    return content


def rows(run_id: str, by_revision: Mapping[str, Sequence[Predicted]], backend: str) -> list[dict[str, Any]]:
    """Return a table row for each file of predictions, and one for the mean of the tasks of each revision.

    `pipeline` is BabyLM's accuracy: the mean over paradigms, with ties counted as right. `with_f1` is F1 instead
    for the tasks of which BabyLM's tables show F1. `ours` counts a tie as half. Fast sets and full sets have means
    of their own.
    """
    table = []
    for revision, several in by_revision.items():
        names = {"run_id": run_id, "revision": revision, "backend": backend}
        by_revision_rows = [names | _row(each) for each in several]
        table += by_revision_rows
        for fast, word in ((False, "tasks"), (True, "fast sets")):
            chosen = [
                row for row, each in zip(by_revision_rows, several, strict=True) if (each.fast is not None) == fast
            ]
            table += [names | _mean(chosen, word)] if len(chosen) > 1 else []
    return table


def _row(each: Predicted) -> dict[str, Any]:
    """Return the table row of one file of predictions."""
    return {
        "task": each.file.split("/")[-2], "pipeline": each.value,
        "with_f1": each.value if each.f1 is None else each.f1, "ours": each.ours, "ties": each.ties, "rows": each.rows,
        "missing": each.counts,
    }  # fmt: skip


def _mean(rows: Sequence[Mapping[str, Any]], word: str) -> dict[str, Any]:
    """Return the unweighted mean of some tasks as one row."""
    means = {key: sum(row[key] for row in rows) / len(rows) for key in ("pipeline", "with_f1", "ours")}
    sums = {key: sum(row[key] for row in rows) for key in ("ties", "rows")}
    return {"task": f"mean of {len(rows)} {word}", **means, **sums, "missing": ""}
