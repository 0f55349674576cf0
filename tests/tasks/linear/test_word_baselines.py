"""Baselines of linear probes that need no encoder."""

from __future__ import annotations

import pytest

from workbench.tasks.linear import word_baselines
from workbench.tasks.linear.problem import LinearProbe
from workbench.tasks.task import Tagged


def test_words_alone_take_their_most_frequent_tag() -> None:
    train = Tagged([["a", "b", "a"], ["a", "c"]], [[0, 1, 0], [1, 1]])
    test = Tagged([["a", "b", "new"]], [[0, 1, 1]])
    probe = LinearProbe("n", "words", ("X", "Y"), "accuracy", ("accuracy",), train, {"test": test})
    assert word_baselines._computed(probe) == {"majority": pytest.approx(200 / 3), "bag-of-words": 100.0}
