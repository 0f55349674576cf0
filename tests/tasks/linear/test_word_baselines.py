"""Baselines of linear probes that need no encoder."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_probes import pairs

from workbench.tasks.linear import word_baselines
from workbench.tasks.linear.problem import LinearProbe
from workbench.tasks.task import Examples, Tagged


def test_words_alone_take_their_most_frequent_tag() -> None:
    train = Tagged([["a", "b", "a"], ["a", "c"]], [[0, 1, 0], [1, 1]])
    test = Tagged([["a", "b", "new"]], [[0, 1, 1]])
    probe = LinearProbe("n", "words", ("X", "Y"), "accuracy", ("accuracy",), train, {"test": test})
    assert word_baselines._computed(probe) == {"majority": pytest.approx(200 / 3), "bag-of-words": 100.0}


def test_pairs_are_told_by_the_words_in_which_they_differ_and_the_baselines_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each pair the right sentence has `bada` where the wrong one has `kefe`; an even split is 50 points."""
    probe = word_baselines.added(pairs(), tmp_path)
    assert probe.baselines == {"majority": 50.0, "bag-of-words": 100.0}
    monkeypatch.setattr(word_baselines, "_computed", lambda probe: pytest.fail("computed again"))
    assert word_baselines.added(pairs(), tmp_path) == probe


def test_equal_sentences_are_ties_for_words_alone() -> None:
    rows = Examples(["a b c", "b c a", "c d"], ["a b c", "b c a", "c d"], [0, 0, 0])
    probe = LinearProbe("n", "pairs", ("p",), "accuracy", ("accuracy",), rows, {"test": rows})
    assert word_baselines._computed(probe) == {"majority": 50.0, "bag-of-words": 50.0}
