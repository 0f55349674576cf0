"""Predictions in the format of BabyLM's evaluation pipeline, and scores by its arithmetic beside ours.

The prediction for a minimal pair is the sentence that was chosen. If both have the same score, the pipeline of 2025
and of early 2026 chooses the right one, so that one is written for a tie; reported beside it are the number of ties
and our score, in which each counts half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.tasks.babylm_glue import PREFIX, ROWS
from workbench.tasks.minimal_pairs import PairSet

Predictions = dict[str, dict[str, list[dict[str, Any]]]]
MLM = ("pll", "generator-pll")  # the scorers that the pipeline calls the backend `mlm`


@dataclass(frozen=True)
class Dataset:
    """Set of minimal pairs of the pipeline: its folder, its key when collated, and the number of rows it must have."""

    folder: str
    key: str
    rows: int
    parts: int
    fast: bool = False


SETS = {  # under the names of our tasks
    "blimp-filtered": Dataset("blimp/blimp_filtered", "blimp", 59_875, 67),
    "supplement_filtered": Dataset("blimp/supplement_filtered", "blimp_supplement", 5_218, 5),
    "blimp-fast": Dataset("blimp/blimp_fast", "blimp", 67 * 200, 67, fast=True),
    "supplement_fast": Dataset("blimp/supplement_fast", "blimp_supplement", 5 * 50, 5, fast=True),
}


@dataclass(frozen=True)
class Predicted:
    """One file of predictions and its scores: `value` and `f1` by the pipeline's arithmetic, `ours` as in the run.

    `counts` is the fault in the number of rows, "" if it is the number that the pipeline expects.
    """

    file: str
    key: str
    predictions: Predictions
    value: float
    ours: float
    rows: int
    ties: int
    counts: str
    fast: dict[str, float] | None = None
    f1: float | None = None


def backend_of(scorer: str) -> str:
    """Return the folder of a scorer's predictions: `mlm` for pseudo-log-likelihoods, else the scorer's name."""
    return "mlm" if scorer in MLM else scorer


def of_pairs(pairs: PairSet, scorer: str, signs: str, ours: float) -> Predicted:
    """Return the predictions for minimal pairs from the choices that a score holds ("+", "-", "=")."""
    dataset = SETS[pairs.name]
    predictions: Predictions = {}
    right: dict[str, list[bool]] = {}
    for sign, good, bad, uid in zip(signs, pairs.good, pairs.bad, pairs.groups["paradigm"], strict=True):
        chosen = bad if sign == "-" else good
        rows = predictions.setdefault(uid, {"predictions": []})["predictions"]
        rows.append({"id": f"{uid}_{len(rows)}", "pred": chosen})
        right.setdefault(uid, []).append(chosen.strip() == good.strip())
    shares = {uid: sum(hits) / len(hits) for uid, hits in right.items()}
    counts = _counts(pairs.name, len(signs), dataset.rows, len(predictions), dataset.parts)
    return Predicted(
        f"zero_shot/{backend_of(scorer)}/{dataset.folder}/predictions.json", dataset.key, predictions,
        100 * sum(shares.values()) / len(shares), ours, len(signs), signs.count("="), counts,
        shares if dataset.fast else None,
    )  # fmt: skip


def of_labels(task: str, predicted: Sequence[int], score: Mapping[str, Any]) -> Predicted:
    """Return the predictions of a fine-tuned task from the labels that a score holds."""
    name = task.removeprefix(PREFIX)
    rows = [{"id": f"{name}_{place}", "pred": label} for place, label in enumerate(predicted)]
    values = score["values"]["valid"]
    counts = _counts(name, len(rows), ROWS[name].rows, 1, 1)
    return Predicted(
        f"finetune/{name}/predictions.json", "glue", {name: {"predictions": rows}}, values["accuracy"], score["value"],
        len(rows), 0, counts, None, values.get("f1"),
    )  # fmt: skip


def _counts(name: str, rows: int, expected: int, parts: int, expected_parts: int) -> str:
    """Return the fault that the pipeline would find in the number of rows, "" if there is none.

    The pipeline leaves out a task with such a fault.
    """
    if (rows, parts) == (expected, expected_parts):
        return ""
    of_parts = f" in {parts}" if expected_parts > 1 else ""
    of_expected_parts = f" in {expected_parts}" if expected_parts > 1 else ""
    return f"{name} has {rows:,} rows{of_parts} where BabyLM expects {expected:,}{of_expected_parts}"
