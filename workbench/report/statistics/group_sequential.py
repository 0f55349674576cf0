"""Group-sequential tests: several looks at an experiment while seeds are added, at the error rate of one look.

The looks are planned before the first run: the number of seeds at each, and the share of the error rate that each may
spend. After the look at n of at most N seeds, the share (n / N)^2 is spent (alpha spending, Lan and DeMets 1983, with
the power family of Kim and DeMets 1987). The p values of a look are divided by its own share, and a comparison is
decided if the result, corrected as in `paired_comparison`, is below 5 %. The shares add up to one, so the rates of
false claims of all looks add up to the rate of a single look (Bonferroni). This holds for samples of any size, for any
noise, and for any reason to stop.

Before the last look, a comparison counts as out of reach if even an optimistic effect would hardly be shown by the
last look. Nothing is claimed then, so this only saves runs. Simulated rates: docs/decisions/0011.

The same looks hold for all comparisons of one budget: for the family that an experiment declared beforehand, and for
the gains of trained arms over their own untrained encoders.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from workbench.report.statistics.intervals import ALPHA, Array, Estimate, Scores, t_above
from workbench.report.statistics.paired_comparison import Compared, pairwise, reach_of

FIRST = 4  # seeds of the first look; fewer leave hardly any degrees of freedom
GROWTH = 1.5  # each look has 1.5 times as many seeds as the one before
SPENDING = 2.0  # exponent of n / N in the share of the error rate that is spent
OPTIMISTIC = 0.9  # one-sided level of the upper bound of the effect size that `still_shown` assumes
NEGLIGIBLE = 0.05  # a comparison is out of reach if that probability is smaller

Pair = tuple[str, str]
Groups = Mapping[tuple[str, str], tuple[str, ...]]  # (budget, arm) -> run ids
Status = Literal["decided", "open", "out of reach", "not decided"]


@dataclass(frozen=True)
class Plan:
    """A plan of looks: the rising numbers of `seeds`, the `first` seed, and how many looks have been `taken`."""

    seeds: tuple[int, ...]
    first: int = 0
    taken: int = 0

    @functools.cached_property
    def shares(self) -> tuple[float, ...]:
        """The shares of the error rate that each look may spend, which add up to one."""
        spent = [0.0, *((count / self.seeds[-1]) ** SPENDING for count in self.seeds)]
        return tuple(after - before for before, after in itertools.pairwise(spent))

    def so_far(self, scores: Scores, taken: int | None = None) -> Scores:
        """Return the scores of the seeds that count after a number of looks, by default those taken; none before."""
        taken = self.taken if taken is None else taken
        count = self.seeds[taken - 1] if taken else 0
        return {seed: score for seed, score in scores.items() if 0 <= seed - self.first < count}


def plan_of(record: Mapping[str, Any]) -> Plan | None:
    """Return the plan that an experiment's record holds, with the number of looks taken; None if it has no plan."""
    design, taken = record.get("design"), record.get("looks")
    seeds, first = (design.get("seeds"), design.get("first")) if isinstance(design, Mapping) else (None, None)
    if not isinstance(seeds, Sequence) or not seeds or not isinstance(first, int):
        return None
    if any(type(count) is not int or count < 1 for count in seeds) or list(seeds) != sorted(set(seeds)):
        return None
    done = {look.get("seeds") for look in taken or () if isinstance(look, Mapping)}
    return Plan(tuple(seeds), first, next((i for i, count in enumerate(seeds) if count not in done), len(seeds)))


def schedule(most: int) -> tuple[int, ...]:
    """Return the planned numbers of seeds, which end with `most`; the last look adds at least two seeds."""
    counts = [FIRST]
    while math.ceil(counts[-1] * GROWTH) < most:
        counts.append(math.ceil(counts[-1] * GROWTH))
    if counts[-1] > most - 2:
        counts.pop()
    return (*counts, most)


@dataclass(frozen=True)
class Look:
    """One look at a family of comparisons: the result of each, and its status, after which open ones go on."""

    seeds: int
    share: float
    compared: Mapping[Pair, Compared]
    status: Mapping[Pair, Status]


def looks(plan: Plan, arms: Mapping[str, Scores], family: Sequence[Pair]) -> list[Look]:
    """Return the looks of a plan that have been taken. A comparison that was decided once stays decided."""
    results: list[Look] = []
    for index in range(plan.taken):
        scores_so_far = {arm: plan.so_far(scores, index + 1) for arm, scores in arms.items()}
        compared = pairwise(scores_so_far, family=family, share=plan.shares[index])
        reach = reach_of(family)
        status = {pair: status_of(plan, index, comparison, len(arms), reach) for pair, comparison in compared.items()}
        if results:
            status |= {pair: "decided" for pair, before in results[-1].status.items() if before == "decided"}
        results.append(Look(plan.seeds[index], plan.shares[index], compared, status))
    return results


def status_of(plan: Plan, index: int, compared: Compared, arms: int, reach: int) -> Status:
    """Return the status of a comparison of `arms` arms after the look with this index; `reach` is by `reach_of`."""
    if compared.verdict != "open":
        return "decided"
    if index == len(plan.seeds) - 1:
        return "not decided"
    e, noise = compared.estimate, compared.noise
    if e.half is None or not noise:
        return "open"
    probability = float(still_shown(plan, index, e.mean, noise, compared.df, arms, reach))
    return "open" if probability >= NEGLIGIBLE else "out of reach"


def still_shown(
    plan: Plan, index: int, mean: float | Array, noise: float | Array, df: int, arms: int, reach: int
) -> Array:
    """Return the probability that the last look shows an optimistic effect, given the mean difference at this look.

    The effect is the upper end of a one-sided interval of 90 % for the size of the difference, `noise` the standard
    deviation of paired differences, and `reach` the correction for a comparison that alone is still open.
    """
    from scipy.special import ndtr, stdtrit

    now, most = plan.seeds[index], plan.seeds[-1]
    effect = np.abs(mean) + stdtrit(df, OPTIMISTIC) * noise / math.sqrt(now)
    level = ALPHA * plan.shares[-1] / reach
    least = t_above(level / 2, (arms - 1) * (most - 1)) * noise / math.sqrt(most)
    expected = (now * np.abs(mean) + (most - now) * effect) / most
    scatter = noise * math.sqrt(most - now) / most
    return np.asarray(ndtr((expected - least) / scatter))


def results_of(plan: Plan, arms: Mapping[str, Scores], family: Sequence[Pair]) -> dict[Pair, Compared]:
    """Return the results of comparisons by the looks that have been taken (`final`); none before the first look."""
    taken = looks(plan, arms, family)
    return final(taken) if taken else {}


def final(taken: Sequence[Look]) -> dict[Pair, Compared]:
    """Return the results of the last look, each with the smallest adjusted p of all looks.

    The p of an earlier look is used only if the difference at the last look has the same sign and an interval without
    zero.
    """
    results = {}
    for pair, last in taken[-1].compared.items():
        every = [look.compared[pair] for look in taken]
        best = min(every, key=lambda one: (one.verdict == "open", 1.0 if one.adjusted is None else one.adjusted))
        e = last.estimate
        agrees = e.half is not None and abs(e.mean) > e.half and e.mean * best.estimate.mean > 0
        borne_out = best.verdict != "open" and agrees
        results[pair] = replace(last, adjusted=best.adjusted, flip=best.flip) if borne_out else last
    return results


@dataclass(frozen=True)
class Family:
    """The pairs of arms that were declared beforehand, and the plan of interim looks (None without --seeds auto).

    If `exploratory`, the measure itself was named after scores were known, and no pair counts as declared.
    """

    pairs: tuple[tuple[str, str], ...] = ()
    plan: Plan | None = None
    exploratory: bool = False

    @property
    def level(self) -> float:
        """Confidence level of intervals in %: 95, or with a plan, the level of the last look taken (or the first)."""
        return 95.0 if self.plan is None else 100 * (1 - ALPHA * self.plan.shares[max(0, self.plan.taken - 1)])


NOTHING = Family()
Families = Mapping[str, Family]  # by budget


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
        nothing = Estimate(math.nan, None, None, 0)
        of_family = results_of(family.plan, arms, pairs) or {
            pair: _untested(all_pairs[pair], nothing) for pair in pairs
        }
    return {pair: of_family.get(pair) or replace(compared, declared=False) for pair, compared in all_pairs.items()}


def gains_over_untrained(
    groups: Groups, scores: Mapping[str, float], seeds: Mapping[str, int], untrained: Mapping[str, str],
    plans: Mapping[str, Plan] | None = None,
) -> dict[tuple[str, str], Compared]:  # fmt: skip
    """Compare the arms of each budget with their own untrained encoders, and correct p for all arms of the budget.

    `groups` maps (budget, arm) to run ids, `scores` and `seeds` map a run id to its score and its pre-training seed,
    and `untrained` maps a run id to the untrained run with the same initial weights. An arm without such runs is left
    out. At a budget whose seeds are added by one of the `plans`, the looks of this plan count, as for declared
    comparisons; before the first look, gains have no interval.
    """
    comparisons: dict[tuple[str, str], Compared] = {}
    for budget in dict.fromkeys(budget for budget, _ in groups):
        runs_of = {arm: runs for (other, arm), runs in groups.items() if other == budget}
        starts = {
            arm: frozenset(untrained[r] for r in runs if untrained.get(r) in scores) for arm, runs in runs_of.items()
        }
        merged: list[frozenset[str]] = []  # each untrained run enters the noise estimate once
        for start in starts.values():
            apart = [other for other in merged if not other & start]
            merged = [*apart, start.union(*(other for other in merged if other & start))]
        place = {arm: next(i for i, joined in enumerate(merged) if start <= joined) for arm, start in starts.items()}
        arms: dict[str, Scores] = {arm: {seeds[r]: scores[r] for r in runs} for arm, runs in runs_of.items()}
        arms |= {f"untrained\0{i}": {seeds[r]: scores[r] for r in joined} for i, joined in enumerate(merged) if joined}
        family = [(arm, f"untrained\0{place[arm]}") for arm, start in starts.items() if start]
        plan = (plans or {}).get(budget)
        compared = pairwise(arms, family=family)
        if plan is not None:
            compared = results_of(plan, arms, family) or {
                pair: _untested(one, replace(one.estimate, half=None, df=None)) for pair, one in compared.items()
            }
        comparisons |= {(budget, arm): one for (arm, _), one in compared.items()}
    return comparisons


def _untested(compared: Compared, estimate: Estimate) -> Compared:
    return replace(compared, estimate=estimate, seeds=(), p=None, adjusted=None, flip=None, order=None)
