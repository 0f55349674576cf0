"""Predictions as BabyLM's evaluation pipeline writes them, and scores by its arithmetic beside ours.

A prediction of a minimal pair is the sentence that was chosen. The pipeline of 2025 and of early 2026 chooses the right
one where both have one score, so that is what is written for a tie; the number of ties stands beside, and our score, in
which each counts half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.tasks.finetuning.babylm_glue import PREFIX, ROWS
from workbench.tasks.zero_shot.minimal_pairs import PairSet

Predictions = dict[str, dict[str, list[dict[str, Any]]]]
MLM = ("pll", "generator-pll")  # ways to score sentences that are the pipeline's backend `mlm`


@dataclass(frozen=True)
class Dataset:
    """A set of minimal pairs of the pipeline: its folder, its key when collated, and how many rows it must have."""

    folder: str
    key: str
    rows: int
    parts: int
    fast: bool = False


SETS = {  # by the names of our tasks
    "blimp-filtered": Dataset("blimp/blimp_filtered", "blimp", 59_875, 67),
    "supplement_filtered": Dataset("blimp/supplement_filtered", "blimp_supplement", 5_218, 5),
    "blimp-fast": Dataset("blimp/blimp_fast", "blimp", 67 * 200, 67, fast=True),
    "supplement_fast": Dataset("blimp/supplement_fast", "blimp_supplement", 5 * 50, 5, fast=True),
}


@dataclass(frozen=True)
class Predicted:
    """One file of predictions and what it scores; `value` and `f1` are the pipeline's, `ours` is the run's own score.

    `counts` says what is wrong with the number of rows, "" where it is what the pipeline expects.
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
    """Return the folder of a way to score sentences: `mlm` for pseudo-log-likelihoods, else its own name."""
    return "mlm" if scorer in MLM else scorer


def of_pairs(pairs: PairSet, scorer: str, signs: str, ours: float) -> Predicted:
    """Return the predictions of minimal pairs from the choices that a score keeps ("+", "-", "=")."""
    found = SETS[pairs.name]
    predictions: Predictions = {}
    right: dict[str, list[bool]] = {}
    for sign, good, bad, uid in zip(signs, pairs.good, pairs.bad, pairs.groups["paradigm"], strict=True):
        chosen = bad if sign == "-" else good
        rows = predictions.setdefault(uid, {"predictions": []})["predictions"]
        rows.append({"id": f"{uid}_{len(rows)}", "pred": chosen})
        right.setdefault(uid, []).append(chosen.strip() == good.strip())
    shares = {uid: sum(hits) / len(hits) for uid, hits in right.items()}
    counts = _counts(pairs.name, len(signs), found.rows, len(predictions), found.parts)
    return Predicted(
        f"zero_shot/{backend_of(scorer)}/{found.folder}/predictions.json", found.key, predictions,
        100 * sum(shares.values()) / len(shares), ours, len(signs), signs.count("="), counts,
        shares if found.fast else None,
    )  # fmt: skip


def of_labels(task: str, predicted: Sequence[int], score: Mapping[str, Any]) -> Predicted:
    """Return the predictions of a fine-tuned task from the labels that a score keeps."""
    name = task.removeprefix(PREFIX)
    rows = [{"id": f"{name}_{place}", "pred": label} for place, label in enumerate(predicted)]
    values = score["values"]["valid"]
    counts = _counts(name, len(rows), ROWS[name].rows, 1, 1)
    return Predicted(
        f"finetune/{name}/predictions.json", "glue", {name: {"predictions": rows}}, values["accuracy"], score["value"],
        len(rows), 0, counts, None, values.get("f1"),
    )  # fmt: skip


def _counts(name: str, rows: int, wanted: int, parts: int, wanted_parts: int) -> str:
    """Return what the pipeline would find wrong with the number of rows, as it would then leave the task out."""
    if (rows, parts) == (wanted, wanted_parts):
        return ""
    of_parts = f" in {parts}" if wanted_parts > 1 else ""
    wanted_of = f" in {wanted_parts}" if wanted_parts > 1 else ""
    return f"{name} has {rows:,} rows{of_parts} where BabyLM expects {wanted:,}{wanted_of}"
