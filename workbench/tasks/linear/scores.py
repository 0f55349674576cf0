"""Metrics of linear probes, all times 100."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from workbench.data.tagged import spans
from workbench.tasks.linear.problem import LinearProbe, Tagged
from workbench.tasks.metrics import measure
from workbench.tasks.task import Examples


def points(probe: LinearProbe, rows: Examples | Tagged, predicted: Any) -> dict[str, float]:
    """The probe's metrics of predictions (N,): labels by number, or for pairs 1 right, 0.5 a tie, 0 wrong."""
    import numpy as np

    if probe.kind == "pairs":
        return {"accuracy": _mean(by_paradigm(probe, rows, predicted).values())}
    if isinstance(rows, Tagged):
        true = np.array([target for targets in rows.targets for target in targets])
    else:
        true = np.asarray(rows.targets)
    found = measure([name for name in probe.metrics if name != "entity_f1"], predicted, true)
    if "entity_f1" in probe.metrics:
        found["entity_f1"] = entity_f1(probe.labels, rows, predicted)
    return {name: 100 * found[name] for name in probe.metrics}


def by_paradigm(probe: LinearProbe, rows: Examples | Tagged, predicted: Any) -> dict[str, float]:
    """Accuracy times 100 in each paradigm of pairs; the headline is their unweighted mean, as BLiMP's is."""
    import numpy as np

    targets = np.asarray(rows.targets)
    return {probe.labels[t]: 100 * float(predicted[targets == t].mean()) for t in np.unique(targets).tolist()}


def entity_f1(labels: Sequence[str], rows: Examples | Tagged, predicted: Any) -> float:
    """F1 of entities whose type and both ends are right, over all sentences (conlleval); 0 where there are none."""
    assert isinstance(rows, Tagged)
    start = hits = there = found = 0
    for targets in rows.targets:
        mine = predicted[start : start + len(targets)]
        start += len(targets)
        right, guessed = (spans([labels[int(number)] for number in each]) for each in (targets, mine))
        hits, there, found = hits + len(right & guessed), there + len(right), found + len(guessed)
    return 2 * hits / (there + found) if there + found else 0.0


def _mean(values: Iterable[float]) -> float:
    kept: list[float] = list(values)
    return math.fsum(kept) / len(kept)
