"""Metrics of linear probes, all times 100."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from workbench.tasks.linear.problem import LinearProbe
from workbench.tasks.metrics import measure
from workbench.tasks.tagging.tag_scores import gold_tags, micro, span_hits, tags_of
from workbench.tasks.task import Examples, Tagged


def points(probe: LinearProbe, rows: Examples | Tagged, predicted: Any) -> dict[str, float]:
    """Return the probe's metrics of predictions (N,): label numbers, or for pairs 1 right, 0.5 a tie, 0 wrong."""
    import numpy as np

    if probe.kind == "pairs":
        return {"accuracy": _mean(by_paradigm(probe, rows, predicted).values())}
    if isinstance(rows, Tagged):
        true = np.array([target for targets in rows.targets for target in targets])
    else:
        true = np.asarray(rows.targets)
    values = measure([name for name in probe.metrics if name != "entity_f1"], predicted, true)
    if "entity_f1" in probe.metrics:
        values["entity_f1"] = entity_f1(probe.labels, rows, predicted)
    return {name: 100 * values[name] for name in probe.metrics}


def by_paradigm(probe: LinearProbe, rows: Examples | Tagged, predicted: Any) -> dict[str, float]:
    """Return the accuracy times 100 in each paradigm of pairs; the headline is their unweighted mean, as BLiMP's is."""
    import numpy as np

    targets = np.asarray(rows.targets)
    return {probe.labels[t]: 100 * float(predicted[targets == t].mean()) for t in np.unique(targets).tolist()}


def entity_f1(labels: Sequence[str], rows: Examples | Tagged, predicted: Any) -> float:
    """Return F1 of entities, right if type and both ends match (conlleval), over all sentences; 0 without entities."""
    assert isinstance(rows, Tagged)
    return micro(span_hits(gold_tags(labels, rows), tags_of(labels, rows, predicted)).values()).f1


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return math.fsum(numbers) / len(numbers)
