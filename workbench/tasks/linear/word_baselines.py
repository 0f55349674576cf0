"""Baselines of linear probes that need no encoder: the most frequent answer, and words alone.

For tags, `bag-of-words` predicts each word's most frequent training tag, and the most frequent tag of all for words
that do not occur in training. For pairs it is logistic regression on the words in which two sentences differ.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.tasks import baselines
from workbench.tasks.linear.problem import VERSION, LinearProbe
from workbench.tasks.linear.scores import points
from workbench.tasks.task import Examples, Tagged, Task


def added(probe: LinearProbe, cache: Path | None = None) -> LinearProbe:
    """Return the probe with its baselines, which come from the cache if they were computed before."""
    name = f"{probe.fingerprint}-linear-{VERSION}-{baselines.VERSION}"
    return replace(probe, baselines=baselines.cached(name, lambda: _computed(probe), cache))


def _computed(probe: LinearProbe) -> dict[str, float]:
    """Return the baselines of a probe, times 100."""
    if probe.kind == "texts":
        assert isinstance(probe.train, Examples)
        rows = {part: each for part, each in probe.tests.items() if isinstance(each, Examples)}
        task = Task(probe.name, "table", probe.labels, probe.metric, probe.metrics, 1.0, probe.train, rows)
        return {"majority": baselines.majority(task), "bag-of-words": baselines.bag_of_words(task)}
    return _of_tags(probe) if probe.kind == "words" else _of_pairs(probe)


def _of_tags(probe: LinearProbe) -> dict[str, float]:
    """Return the baselines of a probe of tags."""
    train, test = probe.train, next(iter(probe.tests.values()))
    assert isinstance(train, Tagged) and isinstance(test, Tagged)
    same, of_words = baselines.by_word(train, test)
    return {"majority": _headline(probe, test, same), "bag-of-words": _headline(probe, test, of_words)}


def _headline(probe: LinearProbe, test: Examples | Tagged, predicted: Any) -> float:
    """Return the headline metric of predictions."""
    return points(probe, test, predicted)[probe.metric]


def _of_pairs(probe: LinearProbe) -> dict[str, float]:
    """Return the baselines of a probe of minimal pairs."""
    import numpy as np

    from workbench.tasks.linear.readout import Regression

    train, test = probe.train, next(iter(probe.tests.values()))
    assert isinstance(train, Examples) and isinstance(test, Examples) and train.second and test.second
    both = Examples(train.first + train.second, None, [0] * (2 * len(train)))
    known = baselines.vocabulary(both, baselines.FEATURES)

    def differences(rows: Examples) -> Any:
        sides = (Examples(texts, None, rows.targets) for texts in (rows.first, rows.second or []))
        right, wrong = (baselines.matrix(side, known) for side in sides)
        return right - wrong

    model = Regression(pairs=True)
    model.fit(differences(train), np.arange(len(train)) % 2, baselines.STRENGTH)
    return {"majority": 50.0, "bag-of-words": _headline(probe, test, model.predict(differences(test)))}
