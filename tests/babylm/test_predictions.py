"""Predictions score by the arithmetic of BabyLM's pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from babylm_made import pairs_of

from workbench.execution.babylm_export import of_pairs
from workbench.tasks._preferences import as_signs
from workbench.tasks.minimal_pairs import pair_set


def by_the_pipeline(content: dict[str, Any], data: dict[str, list[str]]) -> float:
    """Return the mean over sub-tasks of the share of predictions that are right, in the order of the file."""
    scores = []
    for uid, good in data.items():
        rows = content[uid]["predictions"]
        assert [row["id"] for row in rows] == [f"{uid}_{place}" for place in range(len(good))]
        scores.append(sum(row["pred"] == text for row, text in zip(rows, good, strict=True)) / len(good) * 100)
    return sum(scores) / len(scores)


def test_predictions_score_by_the_pipeline_s_arithmetic_and_ties_by_ours() -> None:
    pairs = pairs_of(["b", "a", "a", "b", "a", "b", "a"])
    signs = as_signs(np.array([1, 0, 0.5, 0, 1, 0.5, 0]))
    assert signs == "+-=-+=-"
    found = of_pairs(pairs, "pll", signs, ours=43.75)
    assert found.file == "zero_shot/mlm/blimp/blimp_filtered/predictions.json"
    data = {"b": ["good 0", "good 3", "good 5"], "a": ["good 1", "good 2", "good 4", "good 6"]}
    assert found.value == pytest.approx(by_the_pipeline(found.predictions, data))
    assert found.value == pytest.approx((100 * 2 / 3 + 100 * 2 / 4) / 2)  # both ties count as right there
    assert (found.ours, found.ties) == (43.75, 2)
    assert found.counts == "blimp-filtered has 7 rows in 2 where BabyLM expects 59,875 in 67"
    assert found.predictions["a"]["predictions"][0] == {"id": "a_0", "pred": "bad 1"}


def test_scorers_have_backends_of_their_own() -> None:
    files = [of_pairs(pairs_of(["a"]), name, "+", 100.0).file for name in ("pll", "generator-pll", "originality")]
    assert [file.split("/")[1] for file in files] == ["mlm", "mlm", "originality"]


def test_identical_sentences_are_right_whatever_was_chosen() -> None:
    pairs = pair_set("blimp-filtered", "blimp", ["same", "x"], ["same", "y"], {"paradigm": ["a", "a"]})
    assert of_pairs(pairs, "pll", "--", 0.0).value == 50.0
