"""Baselines are those of scikit-learn on the same features, and are cached."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.linear_model
import sklearn.metrics

from workbench.tasks.common import baselines
from workbench.tasks.common.examples import Examples, Tagged, Task, limited

WORDS = ["red", "green", "blue", "dark", "light", "old", "new", "fast", "slow", "warm", "cold", "tall", "small", "deep",
         "wide"]  # fmt: skip


def sentences(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=8)) for _ in range(count)]


def made(label: Any, labels: tuple[str, ...], metric: str = "accuracy", span: tuple[float, float] = (0, 1)) -> Task:
    train, test = sentences(300, 1), sentences(200, 2)
    parts = [Examples(texts, None, [label(text) for text in texts]) for texts in (train, test)]
    return Task("made", "table", labels, metric, (metric,), 3.0, parts[0], {"dev": parts[1]}, span=span)


def colours(text: str) -> int:
    words = text.split()
    return min(words.count("red"), 2)


def test_logistic_regression_is_scikit_learns() -> None:
    task = made(colours, ("none", "one", "more"))
    known = baselines.vocabulary(task.train, 50_000)
    inputs, test = (baselines.matrix(part, known) for part in (task.train, task.tests["dev"]))
    oracle = sklearn.linear_model.LogisticRegression(C=baselines.STRENGTH, tol=1e-8, max_iter=2000)
    oracle.fit(inputs[:, 1:], task.train.targets)
    ours = baselines._fit(inputs, np.eye(3)[task.train.targets], "classification")
    scores = np.asarray(test @ ours)
    ours_log = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    assert np.abs(np.exp(ours_log) - oracle.predict_proba(test[:, 1:])).max() < 5e-3
    expected = sklearn.metrics.accuracy_score(task.tests["dev"].targets, oracle.predict(test[:, 1:]))
    assert baselines.bag_of_words(task) == pytest.approx(100 * expected, abs=1.0)


def test_ridge_is_scikit_learns() -> None:
    task = made(lambda text: float(text.split().count("red") - text.split().count("blue")), (), "spearman", (-8, 8))
    known = baselines.vocabulary(task.train, 50_000)
    inputs = baselines.matrix(task.train, known)
    targets = (np.array(task.train.targets) + 8) / 16
    ours = baselines._fit(inputs, targets[:, None], "regression")
    oracle = sklearn.linear_model.Ridge(alpha=1 / baselines.STRENGTH, tol=1e-10).fit(inputs[:, 1:].toarray(), targets)
    assert np.allclose(inputs @ ours[:, 0], oracle.predict(inputs[:, 1:].toarray()), atol=2e-3)
    assert baselines.bag_of_words(task) > 80 and baselines.majority(task) == 0.0


def test_pairs_can_be_told_by_the_words_they_share() -> None:
    texts, others = sentences(400, 3), sentences(400, 4)
    same = [i % 2 for i in range(400)]
    second = [a if yes else b for a, b, yes in zip(texts, others, same, strict=True)]
    rows = Examples(texts, second, same)
    task = Task("p", "table", ("0", "1"), "accuracy", ("accuracy",), 3.0, rows, {"dev": rows})
    assert baselines.bag_of_words(task) > 95


def test_majority_is_of_the_training_set() -> None:
    task = made(colours, ("none", "one", "more"))
    most = max((0, 1, 2), key=list(task.train.targets).count)
    expected = np.mean([target == most for target in task.tests["dev"].targets])
    assert baselines.majority(task) == pytest.approx(100 * expected)
    assert baselines.majority(replace(task, metric="matthews")) == 0.0


def test_the_look_up_of_many_words_takes_a_moment() -> None:
    """A sum of counters, one for each word, would take minutes."""
    count = 40_000
    rows = Tagged([[f"w{number}", "x"] for number in range(count)], [[number, count] for number in range(count)])
    begun = time.process_time()
    majority, looked_up = baselines.by_word(rows, rows)
    assert time.process_time() - begun < 10
    assert (majority == count).all() and looked_up.tolist() == [each for row in rows.targets for each in row]


def test_baselines_are_kept_by_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = made(colours, ("none", "one", "more"))
    first = task.baselines(tmp_path)
    assert first == {"majority": baselines.majority(task), "bag-of-words": baselines.bag_of_words(task)}
    (file,) = (tmp_path / "baselines").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(baselines, "bag_of_words", lambda task: pytest.fail("computed twice"))
        assert task.baselines(tmp_path) == first
    file.write_text("[1, 2")  # damaged
    assert task.baselines(tmp_path) == first
    limited(task, 50).baselines(tmp_path)
    assert len(list((tmp_path / "baselines").iterdir())) == 2


def test_odd_texts_have_no_features_and_do_no_harm() -> None:
    rows = Examples(["...", "_", "a", "b"] * 3, None, [0, 1] * 6)
    task = Task("odd", "table", ("0", "1"), "accuracy", ("accuracy",), 3.0, rows, {"dev": rows})
    assert 0 <= baselines.bag_of_words(task) <= 100
