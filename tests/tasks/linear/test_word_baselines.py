"""Baselines of linear probes that need no encoder."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_probes import pairs

from workbench.tasks import linear_probe
from workbench.tasks.common.examples import Examples, Tagged
from workbench.tasks.linear_probe import LinearProbe


def test_words_alone_take_their_most_frequent_tag() -> None:
    train = Tagged([["a", "b", "a"], ["a", "c"]], [[0, 1, 0], [1, 1]])
    test = Tagged([["a", "b", "new"]], [[0, 1, 1]])
    probe = LinearProbe("n", "words", ("X", "Y"), "accuracy", ("accuracy",), train, {"test": test})
    assert probe.baselines() == {"majority": pytest.approx(200 / 3), "bag-of-words": 100.0}


def test_pairs_are_told_by_the_words_in_which_they_differ_and_the_baselines_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each pair the right sentence has `bada` where the wrong one has `kefe`; an even split is 50 points."""
    expected = {"majority": 50.0, "bag-of-words": 100.0}
    assert pairs().baselines(tmp_path) == expected
    monkeypatch.setitem(linear_probe.BASELINES, "pairs", lambda probe: pytest.fail("computed again"))
    assert pairs().baselines(tmp_path) == expected


def test_equal_sentences_are_ties_for_words_alone() -> None:
    rows = Examples(["a b c", "b c a", "c d"], ["a b c", "b c a", "c d"], [0, 0, 0])
    probe = LinearProbe("n", "pairs", ("p",), "accuracy", ("accuracy",), rows, {"test": rows})
    assert probe.baselines() == {"majority": 50.0, "bag-of-words": 50.0}
