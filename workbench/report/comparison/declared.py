"""The comparisons that were declared before any score was there, as arms of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workbench.report.load.frames import Frames
from workbench.report.statistics.group_sequential import Plan, final, looks, plan_of, unseen
from workbench.report.statistics.paired_comparison import Compared, Scores, pairwise
from workbench.report.words import listing

Labels = Mapping[frozenset[str], str]  # two arms -> what the experiment file calls their comparison


@dataclass(frozen=True)
class Family:
    """The pairs of arms that were declared beforehand, and the plan of looks at them where seeds are added by one."""

    pairs: tuple[tuple[str, str], ...] = ()
    plan: Plan | None = None

    def renamed(self, names: Mapping[str, str]) -> Family:
        """Return the family with its arms called by other names."""
        return replace(self, pairs=tuple((names.get(a, a), names.get(b, b)) for a, b in self.pairs))


NOTHING = Family()
Families = Mapping[str, Family]  # by budget


def contrasts(frames: Frames, late: bool = False) -> list[Mapping[str, Any]]:
    """Return the contrasts of the record that were declared beforehand, or those that were not, if `late`.

    A contrast is declared beforehand if no seed had trained runs of both arms when it was written down.
    """
    rows = frames.record.get("contrasts") or []
    return [row for row in rows if isinstance(row, Mapping) and bool(row.get("seen")) == late]


def compare(arms: Mapping[str, Scores], family: Family, order: bool = False) -> dict[tuple[str, str], Compared]:
    """Compare every two arms, the higher mean first; the pairs of the `family` are adjusted for themselves alone.

    The others are exploratory: adjusted for all pairs, and never claimed. Where nothing was declared this is
    `paired_comparison.pairwise`. Where seeds are added by a plan, only those count that the looks so far are about.
    """
    if family.plan is not None and family.pairs:
        arms = {arm: family.plan.upto(family.plan.taken - 1, scores) for arm, scores in arms.items()}
    named = {frozenset(pair) for pair in family.pairs}
    every = pairwise(arms, order)
    first = [pair for pair in every if frozenset(pair) in named]
    if not first:
        return every
    if family.plan is None:
        mine = pairwise(arms, order, first)
    else:
        taken = looks(family.plan, arms, first)
        mine = final(taken) if taken else {pair: unseen(every[pair]) for pair in first}
    return {pair: mine.get(pair) or replace(compared, declared=False) for pair, compared in every.items()}


def families(frames: Frames) -> Families:
    """Return what was declared beforehand, at each budget."""
    plan = plan_of(frames.record)
    found: dict[str, dict[tuple[str, str], None]] = {}
    for row in contrasts(frames):
        for budget, a, b in _arms(frames, row):
            found.setdefault(budget, {}).setdefault((a, b))
    return {budget: Family(tuple(pairs), plan) for budget, pairs in found.items()}


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
