"""The comparisons that an experiment declared before any score existed, given as pairs of arms of a report."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workbench.report.formatting import listing, seeds
from workbench.report.load.frames import Frames
from workbench.report.statistics.group_sequential import Plan, plan_of, results_of, unseen
from workbench.report.statistics.paired_comparison import Compared, Scores, pairwise

Labels = Mapping[frozenset[str], str]  # two arms -> the label of their comparison in the experiment file


@dataclass(frozen=True)
class Family:
    """The pairs of arms that were declared beforehand, and the plan of looks at them if seeds are added by a plan.

    If `exploratory`, the measure itself was named after scores were known, and no pair counts as declared.
    """

    pairs: tuple[tuple[str, str], ...] = ()
    plan: Plan | None = None
    exploratory: bool = False

    @property
    def level(self) -> float:
        """Return the level in % of the intervals of these comparisons: 95, or that of the last look of a plan."""
        return 95.0 if self.plan is None else self.plan.level

    def renamed(self, names: Mapping[str, str]) -> Family:
        """Return the family with other names for its arms."""
        return replace(self, pairs=tuple((names.get(a, a), names.get(b, b)) for a, b in self.pairs))


NOTHING = Family()
Families = Mapping[str, Family]  # by budget


def contrasts(frames: Frames, late: bool = False) -> list[Mapping[str, Any]]:
    """Return the contrasts of the record that were declared beforehand, or with `late` those that were not.

    A contrast was declared beforehand if no seed had trained runs of both arms when it was written down.
    """
    rows = frames.record.get("contrasts") or []
    return [row for row in rows if isinstance(row, Mapping) and bool(row.get("seen")) == late]


def compare(arms: Mapping[str, Scores], family: Family, order: bool = False) -> dict[tuple[str, str], Compared]:
    """Compare every two arms, the higher mean first; p values of the `family` are corrected for its pairs alone.

    The other pairs are exploratory: corrected for all pairs, and never claimed. If nothing was declared, the result
    is that of `paired_comparison.pairwise`. If seeds are added by a plan, only the seeds of the looks taken so far
    count.
    """
    if family.plan is not None and family.pairs:
        arms = {arm: family.plan.so_far(scores) for arm, scores in arms.items()}
    declared = {frozenset(pair) for pair in family.pairs}
    all_pairs = pairwise(arms, order)
    if family.exploratory:
        return {pair: replace(compared, declared=False) for pair, compared in all_pairs.items()}
    pairs = [pair for pair in all_pairs if frozenset(pair) in declared]
    if not pairs:
        return all_pairs
    if family.plan is None:
        of_family = pairwise(arms, order, pairs)
    else:
        of_family = results_of(family.plan, arms, pairs) or {pair: unseen(all_pairs[pair]) for pair in pairs}
    return {pair: of_family.get(pair) or replace(compared, declared=False) for pair, compared in all_pairs.items()}


def families(frames: Frames) -> Families:
    """Return the comparisons that were declared beforehand, for each budget."""
    plan = plan_of(frames.record)
    pairs_at: dict[str, dict[tuple[str, str], None]] = {}
    for row in contrasts(frames):
        for budget, a, b in _arms(frames, row):
            pairs_at.setdefault(budget, {}).setdefault((a, b))
    return {budget: Family(tuple(pairs), plan) for budget, pairs in pairs_at.items()}


def labels(frames: Frames) -> Labels:
    """Return the label of each comparison that has one."""
    rows = [row for row in contrasts(frames) if row.get("label")]
    return {frozenset((a, b)): str(row["label"]) for row in rows for _, a, b in _arms(frames, row)}


def _arms(frames: Frames, row: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return (budget, arm a, arm b) for each budget at which a contrast has runs of both arms."""
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


def late_measures(frames: Frames, names: Collection[str] | None = None) -> list[Mapping[str, Any]]:
    """Return the measures of the record, by default all, that were first named after scores of its runs were known.

    A measure whose settings are not those of the scores shown is left out.
    """
    digests: dict[str, set[str]] = {}
    for row in frames.rows("scores"):
        digests.setdefault(str(row["task"]), set()).add(str(row.get("digest")))
    rows = [row for row in frames.record.get("measures") or [] if isinstance(row, Mapping) and row.get("seen")]
    known = [row for row in rows if names is None or row.get("name") in names]
    return [row for row in known if row.get("digest") in digests.get(str(row.get("name")), ())]


def measure_warnings(frames: Frames) -> list[str]:
    """Return a sentence on the measures that were named after scores of the same runs were known; [] for none."""
    rows = late_measures(frames)
    if not rows:
        return []
    each = listing([f"{row['name']} ({str(row['declared'])[:16]}, scores of {seeds([row['seen']])})" for row in rows])
    time = str(frames.record.get("first_score") or "")[:16]
    first = f" The first score is of {time}." if time else ""
    return [
        f"Measures that were first named when scores of these runs were known (with the time, and the seeds that had "
        f"scores) are exploratory, and nothing is claimed by them: {each}.{first} "
        f"New seeds in another store would be a fair test."
    ]


def warning(frames: Frames) -> list[str]:
    """Return a sentence on the contrasts that were declared after both arms had been trained; [] if there are none."""
    rows = contrasts(frames, late=True)
    if not rows:
        return []
    pairs = listing([f"{_text(row.get('a'))} against {_text(row.get('b'))} ({row.get('seen')})" for row in rows])
    are = "are treated as exploratory" if contrasts(frames) else "do not narrow the correction, which covers all pairs"
    return [
        f"Comparisons that were declared when both arms had been trained already (with this number of seeds) {are}: "
        f"{pairs}. New seeds in another store would be a fair test of them."
    ]


def reported_before(frames: Frames) -> list[str]:
    """Return a sentence for each budget at which seeds were added after a report, without a plan."""
    times: dict[str, list[str]] = {}
    for row in frames.record.get("reported") or []:
        budget = " ".join(f"{unit}={amount:g}" for unit, amount in row["budget"].items() if unit != "convention")
        times.setdefault(budget, []).append(f"{seeds([len(row['seeds'])])} ({row['at'][:10]})")
    return [
        f"Results at {budget} were reported with {listing(each)}. Each report may make false claims in 5 % of "
        f"experiments, and so at least one of them in up to {5 * len(each)} %, unless all seeds were planned before "
        f"the first. `--seeds auto`, in another store (`--runs`), plans its looks and keeps 5 % for all together."
        for budget, each in times.items()
        if len(each) > 1
    ]


def _text(arm: Any) -> str:
    """Return the name of an arm of a contrast as text."""
    if not isinstance(arm, Mapping):
        return "unknown"
    return ", ".join(str(value) if key == "objective" else f"{key}={value}" for key, value in arm.items())
