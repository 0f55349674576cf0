"""Comparisons of trained arms with their own untrained encoders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from workbench.report.statistics.group_sequential import Plan, results_of
from workbench.report.statistics.paired_comparison import Compared, Scores, pairwise

Groups = Mapping[tuple[str, str], tuple[str, ...]]  # (budget, arm) -> run ids


def gains(
    groups: Groups, scores: Mapping[str, float], seeds: Mapping[str, int], untrained: Mapping[str, str],
    plans: Mapping[str, Plan] | None = None,
) -> dict[tuple[str, str], Compared]:  # fmt: skip
    """Compare the arms of each budget with their own untrained encoders, and correct p for all arms of the budget.

    `groups` maps (budget, arm) to run ids, `scores` and `seeds` map a run id to its score and its pre-training seed,
    and `untrained` maps a run id to that of the untrained run with the same initial weights. An arm without such runs
    is left out. At a budget whose seeds are added by one of the `plans`, the looks of this plan count, as for declared
    comparisons; before the first look, gains have no interval.
    """
    comparisons: dict[tuple[str, str], Compared] = {}
    for budget in dict.fromkeys(budget for budget, _ in groups):
        runs_of = {arm: runs for (other, arm), runs in groups.items() if other == budget}
        starts = {
            arm: frozenset(untrained[r] for r in runs if untrained.get(r) in scores) for arm, runs in runs_of.items()
        }
        merged = _merged(starts.values())
        place = {arm: next(i for i, joined in enumerate(merged) if start <= joined) for arm, start in starts.items()}
        arms: dict[str, Scores] = {arm: {seeds[r]: scores[r] for r in runs} for arm, runs in runs_of.items()}
        arms |= {f"untrained\0{i}": {seeds[r]: scores[r] for r in joined} for i, joined in enumerate(merged) if joined}
        family = [(arm, f"untrained\0{place[arm]}") for arm, start in starts.items() if start]
        plan = (plans or {}).get(budget)
        found = pairwise(arms, family=family)
        if plan is not None:
            found = results_of(plan, arms, family) or {pair: _untested(one) for pair, one in found.items()}
        comparisons |= {(budget, arm): compared for (arm, _), compared in found.items()}
    return comparisons


def _untested(compared: Compared) -> Compared:
    """Return a comparison with its mean difference, and without interval and p."""
    difference = replace(compared.difference, estimate=replace(compared.estimate, half=None, df=None), p=None)
    return replace(compared, difference=difference, adjusted=None, flip=None)


def _merged(starts: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    """Join the sets that have a run in common, so that each untrained run enters the noise estimate once."""
    merged: list[frozenset[str]] = []
    for start in starts:
        apart = [other for other in merged if not other & start]
        merged = [*apart, start.union(*(other for other in merged if other & start))]
    return merged
