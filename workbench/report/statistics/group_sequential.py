"""Looking at an experiment several times while seeds are added, without claiming more than one look would.

The looks are planned before the first run: at which numbers of seeds, and which share of the error rate each may spend.
By the look at n of at most N seeds the share (n / N)^2 has been spent (alpha spending, Lan and DeMets 1983, with the
power family of Kim and DeMets 1987). A look's own share divides its p values; what is then below 5 % after the
correction of `noise` is decided. The shares add up to one, so that the rates of false claims of all looks add up to
that of a single one (Bonferroni): however small the samples, whatever the noise, and for whatever reason it ended.

Before the last look a comparison counts as out of reach where even an optimistic effect would hardly be shown by the
last one. Nothing is claimed by that, and nothing lost: it only saves runs. Simulated rates: docs/decisions/0011.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from workbench.report.statistics.noise import reach_of
from workbench.report.statistics.paired_comparison import ALPHA, Compared, Difference, Estimate, Scores, pairwise

if TYPE_CHECKING:
    from workbench.report.statistics.noise import Array

FIRST = 4  # seeds of the first look; fewer have hardly any degrees of freedom
GROWTH = 1.5  # each look has half as many seeds again as the one before
SPENDING = 2.0  # exponent of the share of the most seeds
OPTIMISTIC = 0.9  # level of the one-sided bound that is taken for the effect when asking what is within reach
NEGLIGIBLE = 0.05  # probability below which that effect is out of reach

Pair = tuple[str, str]
Status = Literal["decided", "open", "out of reach", "not decided"]


@dataclass(frozen=True)
class Plan:
    """The numbers of `seeds` at which looks are planned, rising, the first seed, and how many looks are taken."""

    seeds: tuple[int, ...]
    first: int = 0
    taken: int = 0

    @property
    def most(self) -> int:
        """The largest number of seeds that there can be."""
        return self.seeds[-1]

    @property
    def shares(self) -> tuple[float, ...]:
        """Which share of the error rate each look may spend; they add up to one."""
        spent = [0.0, *((count / self.most) ** SPENDING for count in self.seeds)]
        return tuple(after - before for before, after in itertools.pairwise(spent))

    def upto(self, look: int, scores: Scores) -> Scores:
        """Return the scores of the seeds that a look is about; before the first look there are none."""
        count = self.seeds[look] if look >= 0 else 0
        return {seed: score for seed, score in scores.items() if 0 <= seed - self.first < count}


def plan_of(record: Mapping[str, Any]) -> Plan | None:
    """Return the plan that an experiment's record holds, with the looks that were taken; None where there is none."""
    design, taken = record.get("design"), record.get("looks")
    seeds, first = (design.get("seeds"), design.get("first")) if isinstance(design, Mapping) else (None, None)
    if not isinstance(seeds, Sequence) or isinstance(seeds, str) or not seeds or not isinstance(first, int):
        return None
    if any(type(count) is not int or count < 1 for count in seeds) or list(seeds) != sorted(set(seeds)):
        return None
    done = {look.get("seeds") for look in taken or () if isinstance(look, Mapping)}
    return Plan(tuple(seeds), first, next((i for i, count in enumerate(seeds) if count not in done), len(seeds)))


def schedule(most: int) -> tuple[int, ...]:
    """Return the numbers of seeds to look at, up to the most there can be; the last block has two seeds at least."""
    counts = [FIRST]
    while math.ceil(counts[-1] * GROWTH) < most:
        counts.append(math.ceil(counts[-1] * GROWTH))
    if counts[-1] > most - 2:
        counts.pop()
    return (*counts, most)


@dataclass(frozen=True)
class Look:
    """One look at a family of comparisons: what it found of each, and where each stands after it."""

    seeds: int
    share: float
    compared: Mapping[Pair, Compared]
    status: Mapping[Pair, Status]

    @property
    def goes_on(self) -> bool:
        """Whether some comparison is still open, so that more seeds are worth it."""
        return "open" in self.status.values()


def looks(plan: Plan, arms: Mapping[str, Scores], family: Sequence[Pair]) -> list[Look]:
    """Return the looks of a plan that have been taken. Once decided, a comparison stays decided."""
    found: list[Look] = []
    for index in range(plan.taken):
        seen = {arm: plan.upto(index, scores) for arm, scores in arms.items()}
        compared = pairwise(seen, family=family, share=plan.shares[index])
        reach = reach_of(family)
        status = {pair: status_of(plan, index, one, len(arms), reach) for pair, one in compared.items()}
        if found:
            status |= {pair: "decided" for pair, before in found[-1].status.items() if before == "decided"}
        found.append(Look(plan.seeds[index], plan.shares[index], compared, status))
    return found


def status_of(plan: Plan, index: int, compared: Compared, arms: int, reach: int) -> Status:
    """Return where a comparison stands after a look that compared it so."""
    if compared.verdict != "open":
        return "decided"
    if plan.seeds[index] == plan.most:
        return "not decided"
    e, noise = compared.estimate, compared.noise
    if e.half is None or not noise:
        return "open"
    chance = float(still_shown(plan, index, e.mean, noise, compared.df, arms, reach))
    return "open" if chance >= NEGLIGIBLE else "out of reach"


def still_shown(
    plan: Plan, index: int, mean: float | Array, noise: float | Array, df: int, arms: int, reach: int
) -> Array:
    """Return the probability that the last look shows an optimistic effect, given the mean difference of this look.

    The effect is the upper end of a one-sided interval of 90 % for the size of the difference, `noise` the standard
    deviation of paired differences, and the correction that of the last comparison that is left open.
    """
    import numpy as np
    from scipy import stats

    now, most = plan.seeds[index], plan.most
    effect = np.abs(mean) + stats.t.ppf(OPTIMISTIC, df) * noise / math.sqrt(now)
    level = ALPHA * plan.shares[-1] / reach
    least = stats.t.isf(level / 2, max(1, (arms - 1) * (most - 1))) * noise / math.sqrt(most)
    expected = (now * np.abs(mean) + (most - now) * effect) / most
    scatter = noise * math.sqrt(most - now) / most
    return np.asarray(stats.norm.sf((least - expected) / scatter))


def unseen(compared: Compared) -> Compared:
    """Return a comparison of which nothing is known yet, as no look has been taken."""
    blank = Difference(Estimate(math.nan, None, None, 0), (), None)
    return replace(compared, difference=blank, adjusted=None, flip=None, order=None)


def final(taken: Sequence[Look]) -> dict[Pair, Compared]:
    """Return each comparison as the last look has it, with the smallest adjusted p of all looks.

    That p is kept from an earlier look only where the last one still has the same sign and leaves out zero.
    """
    found = {}
    for pair, last in taken[-1].compared.items():
        every = [look.compared[pair] for look in taken]
        best = min(every, key=lambda one: (one.verdict == "open", one.adjusted or 1.0))
        e = last.estimate
        agrees = e.half is not None and abs(e.mean) > e.half and e.mean * best.estimate.mean > 0
        borne_out = best.verdict != "open" and agrees
        found[pair] = replace(last, adjusted=best.adjusted, flip=best.flip) if borne_out else last
    return found
