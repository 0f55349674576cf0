"""Comparisons of trained arms with their own untrained encoders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workbench.report.statistics.paired_comparison import Compared, Scores, pairwise

Groups = Mapping[tuple[str, str], tuple[str, ...]]  # (budget, arm) -> runs


def gains(
    groups: Groups, scores: Mapping[str, float], seeds: Mapping[str, int], bare: Mapping[str, str]
) -> dict[tuple[str, str], Compared]:
    """Compare the arms of each budget with their own untrained encoders, adjusted for all arms of the budget.

    `groups` maps (budget, arm) to runs, `bare` a run to the untrained run of the same start.
    """
    found: dict[tuple[str, str], Compared] = {}
    for budget in dict.fromkeys(budget for budget, _ in groups):
        mine = {arm: runs for (other, arm), runs in groups.items() if other == budget}
        starts = {arm: frozenset(bare[r] for r in runs if bare.get(r) in scores) for arm, runs in mine.items()}
        merged = _merged(starts.values())
        names = {arm: next(i for i, whole in enumerate(merged) if start <= whole) for arm, start in starts.items()}
        arms: dict[str, Scores] = {arm: {seeds[r]: scores[r] for r in runs} for arm, runs in mine.items()}
        arms |= {f"untrained\0{i}": {seeds[r]: scores[r] for r in whole} for i, whole in enumerate(merged) if whole}
        family = [(arm, f"untrained\0{names[arm]}") for arm, start in starts.items() if start]
        found |= {(budget, arm): compared for (arm, _), compared in pairwise(arms, family=family).items()}
    return found


def _merged(starts: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    """Join sets of untrained runs that have a run in common, so that none stands twice for noise of its own."""
    merged: list[frozenset[str]] = []
    for start in starts:
        apart = [other for other in merged if not other & start]
        merged = [*apart, start.union(*(other for other in merged if other & start))]
    return merged
