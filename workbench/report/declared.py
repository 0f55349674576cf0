"""The comparisons that were declared before any score was there, as arms of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.report.frames import Frames
from workbench.report.words import listing

Families = Mapping[str, tuple[tuple[str, str], ...]]  # budget -> pairs of arms
Labels = Mapping[frozenset[str], str]  # two arms -> what the experiment file calls their comparison


def contrasts(frames: Frames, late: bool = False) -> list[Mapping[str, Any]]:
    """Return the contrasts of the record that were declared beforehand, or those that were not, if `late`.

    A contrast is declared beforehand if no seed had trained runs of both arms when it was written down.
    """
    rows = frames.record.get("contrasts") or []
    return [row for row in rows if isinstance(row, Mapping) and bool(row.get("seen")) == late]


def families(frames: Frames) -> Families:
    """Return the pairs of arms that were declared beforehand, at each budget."""
    found: dict[str, dict[tuple[str, str], None]] = {}
    for row in contrasts(frames):
        for budget, a, b in _arms(frames, row):
            found.setdefault(budget, {}).setdefault((a, b))
    return {budget: tuple(pairs) for budget, pairs in found.items()}


def labels(frames: Frames) -> Labels:
    """Return the label of each comparison that has one."""
    rows = [row for row in contrasts(frames) if row.get("label")]
    return {frozenset((a, b)): str(row["label"]) for row in rows for _, a, b in _arms(frames, row)}


def _arms(frames: Frames, row: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return each budget at which a contrast has runs of both arms, with the names of the two."""
    runs = frames.by_id()
    sides: list[dict[str, set[str]]] = []
    for key in ("runs_a", "runs_b"):
        arms: dict[str, set[str]] = {}
        for run_id in _texts(row.get(key)):
            if run_id in runs:
                arms.setdefault(str(runs[run_id]["budget"]), set()).add(str(runs[run_id]["arm"]))
        sides.append(arms)
    one, two = sides
    return [
        (budget, a, b)
        for budget in one
        for a in sorted(one[budget])
        for b in sorted(two.get(budget, ()))
        if a != b and "unknown" not in (a, b)
    ]


def _texts(value: Any) -> Sequence[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, Sequence) else []


def warning(frames: Frames) -> list[str]:
    """Return what a reader must know of contrasts that were declared when scores were there."""
    rows = contrasts(frames, late=True)
    if not rows:
        return []
    told = listing([f"{_told(row.get('a'))} against {_told(row.get('b'))} ({row.get('seen')})" for row in rows])
    are = "are treated as exploratory" if contrasts(frames) else "do not narrow the correction, which is over all pairs"
    return [
        f"Comparisons that were declared when both arms were trained already (for so many seeds) {are}: {told}. Fresh "
        f"seeds in another store would be a test of them."
    ]


def _told(arm: Any) -> str:
    if not isinstance(arm, Mapping):
        return "unknown"
    return ", ".join(str(value) if key == "objective" else f"{key}={value}" for key, value in arm.items())
