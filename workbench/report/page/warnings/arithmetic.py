"""Runs of one experiment that were computed by several kinds of arithmetic, such as two processors or precisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from workbench.errors import plural
from workbench.report.formatting import listing
from workbench.report.load.run_files import FINISHED
from workbench.store.environment import SWITCH


@dataclass(frozen=True)
class Mixture:
    """The kinds of arithmetic of an experiment's trained runs.

    `seeds_of` maps a kind to {arm: its seeds}. `apart` are the pairs of arms of which some two runs of one budget and
    seed were computed by different kinds, and `disjoint` are the pairs among these that have no kind in common.
    `switched` maps a run that was continued on another kind to its kinds, in order.
    """

    seeds_of: Mapping[str, Mapping[str, frozenset[int]]]
    apart: tuple[tuple[str, str], ...]
    disjoint: tuple[tuple[str, str], ...]
    switched: Mapping[str, str]

    def sentences(self) -> list[str]:
        """Return one sentence on the kinds, with the arms and seeds of each, and one on runs that changed theirs."""
        texts = []
        if len(self.seeds_of) > 1:
            texts.append(f"The runs were computed by {len(self.seeds_of)} kinds of arithmetic: {self._by_kind()}.")
            texts[0] += f" {self._meaning()}"
        if self.switched:
            each = listing([f"{run_id} ({kinds})" for run_id, kinds in self.switched.items()])
            verb = "run was" if len(self.switched) == 1 else "runs were"
            texts.append(f"{len(self.switched)} {verb} continued on another kind of arithmetic: {each}.")
        return texts

    def _by_kind(self) -> str:
        parts = []
        for kind, arms in self.seeds_of.items():
            names: dict[frozenset[int], list[str]] = {}
            for arm, seeds in arms.items():
                names.setdefault(seeds, []).append(arm)
            among = [f"{listing(who)} ({_numbers(seeds)})" for seeds, who in names.items()]
            parts.append(f"{kind} for {listing(among)}")
        return "; ".join(parts)

    def _meaning(self) -> str:
        if not self.apart:
            return "The arms of each seed share a kind, so differences within seeds do not mix kinds."
        if self.disjoint:
            first, count = self.disjoint[0], len(self.disjoint)
            pairs = f"{first[0]} against {first[1]}" + (f" and {plural(count - 1, 'other pair')}" if count > 1 else "")
            return (
                f"No kind is common to both arms of {pairs}, so a difference between them cannot be told from a "
                f"difference between the kinds; train the arms of each seed on the same kind."
            )
        return (
            f"In {plural(len(self.apart), 'pair')} of arms, some differences within a seed are between two kinds; "
            f"train the arms of each seed on the same kind."
        )


def mixture(runs: Iterable[Mapping[str, Any]]) -> Mixture:
    """Return the kinds of arithmetic of trained runs, given as rows of `frames.Frames.runs`.

    Untrained encoders and runs whose kind was not recorded are left out.
    """
    seeds_of: dict[str, dict[str, frozenset[int]]] = {}
    compared: dict[tuple[str, int], dict[str, str]] = {}  # budget and seed -> arm -> kind
    kinds_of: dict[str, set[str]] = {}
    switched: dict[str, str] = {}
    for row in runs:
        kind = row.get("arithmetic")
        if row["role"] != "arm" or row["state"] not in FINISHED or not isinstance(kind, str) or not kind:
            continue
        arm, seed = row["arm"], row["seed"]
        arms = seeds_of.setdefault(kind, {})
        arms[arm] = arms.get(arm, frozenset()) | {seed}
        kinds_of.setdefault(arm, set()).add(kind)
        compared.setdefault((row["budget"], seed), {})[arm] = kind
        if SWITCH in kind:
            switched[row["run_id"]] = kind
    apart = tuple(dict.fromkeys(
        (a, b) for kind_of in compared.values() for a, b in combinations(kind_of, 2) if kind_of[a] != kind_of[b]
    ))  # fmt: skip
    return Mixture(
        seeds_of, apart, tuple(pair for pair in apart if not kinds_of[pair[0]] & kinds_of[pair[1]]), switched
    )


def _numbers(seeds: Iterable[int]) -> str:
    """Return `seed 2`, `seeds 0, 1 and 4`, or `seeds 0 to 3` if none is missing between them."""
    ordered = sorted(seeds)
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"seeds {ordered[0]} to {ordered[-1]}"
    return f"seed{'s' * (len(ordered) > 1)} {listing([str(seed) for seed in ordered])}"
