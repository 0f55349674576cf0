"""What must be said of an arm before it is called ahead: a bag of words that beats it, a gain that is not shown."""

from __future__ import annotations

from typing import Any

import by_hand
import pytest
from by_hand import BUDGET, cell, gain

from workbench.report.comparison.boards import Board
from workbench.report.comparison.doubts import BAG, beaten, caveat, doubted
from workbench.report.formatting import interval

NAMES = {"a": "arm A", "b": "arm B", "c": "arm C"}
SURE, LARGE_UNSURE, UNSURE = gain(9.0), gain(2.0, 0.9, 3), gain(0.2, 0.5)


def board(bag: float | None, **arms: tuple[float, Any]) -> Board:
    """Arms with these scores in each of three seeds, and these gains."""
    cells = [cell(arm, [score] * 3, gain=gained) for arm, (score, gained) in arms.items()]
    return by_hand.board(cells, baselines={} if bag is None else {BAG: {"order": bag}})


def said(found: Board, *arms: str) -> str:
    return caveat(found, BUDGET, arms or found.arms, NAMES, "objectives")


def test_the_gains_of_these_tests_are_what_they_are_called() -> None:
    assert SURE.claimed and not LARGE_UNSURE.claimed and not UNSURE.claimed
    for one, larger in ((LARGE_UNSURE, True), (UNSURE, False)):
        assert one.estimate.half is None or (one.estimate.mean > one.estimate.half) == larger


def test_arms_are_doubted_for_a_bag_of_words_or_a_gain_that_is_not_shown() -> None:
    found = board(60.0, a=(61.0, SURE), b=(59.0, SURE), c=(62.0, UNSURE))
    assert {one.arm for one in doubted(found, BUDGET)} == {"b", "c"}
    assert [one.arm for one in doubted(board(None, a=(1.0, SURE), b=(2.0, None)), BUDGET)] == ["b"]


@pytest.mark.parametrize(("bag", "lost"), [(60.1, True), (60.0, False), (59.9, False), (None, False)])
def test_a_bag_of_words_beats_an_arm_by_a_higher_mean(bag: float | None, lost: bool) -> None:
    assert beaten(cell("a", [59.0, 61.0]), bag) is lost


def test_a_bag_of_words_counts_where_it_was_measured_on_every_task() -> None:
    found = by_hand.board([cell("a", [50.0], gain=SURE)], tasks=("order", "next"), baselines={BAG: {"order": 90.0}})
    assert doubted(found, BUDGET) == [] and said(found) == ""


def test_the_words_of_the_question_count_as_a_bag_of_words_does() -> None:
    found = by_hand.board([cell("a", [20.0], gain=SURE)], baselines={"nearest-overlap": {"order": 21.0}})
    assert [one.arm for one in doubted(found, BUDGET)] == ["a"]
    assert said(found).startswith("The sentence with most words of the question, without any encoder, has 21.0 on ")


def test_without_doubts_nothing_is_said() -> None:
    found = board(60.0, a=(61.0, SURE), b=(10.0, None))
    assert said(found, "a") == "" and said(found, "b") != ""
    assert caveat(found, BUDGET, [], NAMES, "objectives") == ""


def test_arms_that_a_bag_of_words_beats_are_named_with_their_scores() -> None:
    found = board(60.0, a=(61.0, SURE), b=(59.0, SURE), c=(42.0, SURE))
    text = said(found)
    assert "60.0" in text and "arm B (59.0) and arm C (42.0)" in text and "arm A" not in text
    assert "arm B (59.0)" in said(found, "b") and "arm C" not in said(found, "b")


def test_if_a_bag_of_words_beats_all_the_best_of_them_is_told() -> None:
    text = said(board(60.0, a=(58.0, SURE), b=(59.0, SURE), c=(42.0, SURE)))
    assert "60.0" in text and "3 objectives" in text and "59.0" in text and "42.0" not in text and "arm" not in text
    assert "arm A (58.0)" in said(board(60.0, a=(58.0, SURE)))  # of one, nothing is the best


def test_gains_that_are_not_shown_are_told_with_their_intervals() -> None:
    text = said(board(None, a=(61.0, SURE), b=(59.0, UNSURE), c=(42.0, UNSURE)))
    mean, half = UNSURE.estimate.mean, UNSURE.estimate.half
    told = interval(mean, half, True)
    assert told[0] in "+−" and f"arm B ({told}) and arm C ({told})" in text and "arm A" not in text
    one = said(board(None, a=(61.0, SURE), b=(59.0, UNSURE)))
    assert "own untrained encoder " in one and "own untrained encoders " in text


def test_if_no_gain_is_shown_their_number_is_told() -> None:
    text = said(board(None, a=(61.0, UNSURE), b=(59.0, UNSURE)))
    assert "2 objectives" in text and "arm" not in text
    assert "arm A" in said(board(None, a=(61.0, UNSURE)))


def test_a_gain_larger_than_its_interval_is_said_to_fall_to_the_number_of_arms() -> None:
    """One of two gains would be shown if it were the only one."""
    by = next(x / 20 for x in range(100) if gain(x / 20).claimed)
    barely = gain(by)
    half = barely.estimate.half
    assert half is not None and barely.estimate.mean > half
    unclaimed = type(barely)(barely.difference, 0.2, barely.flip, None, barely.noise, barely.df)
    both = said(board(None, a=(61.0, SURE), b=(59.0, unclaimed)))
    assert "2 objectives" in both and "2 objectives" not in said(board(None, a=(61.0, SURE), b=(59.0, UNSURE)))


def test_arms_without_an_untrained_encoder_are_named() -> None:
    text = said(board(None, a=(61.0, None), b=(59.0, None), c=(70.0, SURE)))
    assert "arm A and arm B" in text and "arm C" not in text


def test_every_doubt_is_a_sentence_of_its_own() -> None:
    text = said(board(60.0, a=(59.0, UNSURE), b=(61.0, None), c=(62.0, UNSURE)))
    assert text.count(". ") == 2 and text.endswith(".") and "  " not in text
    assert text.index("60.0") < text.index("arm C (") < text.index("arm B,")


def test_a_look_up_of_words_is_a_baseline_like_a_bag_of_words() -> None:
    baselines = {"word-lookup": {"order": 60.0}}
    found = by_hand.board([cell("a", [59.0], gain=SURE), cell("b", [61.0], gain=SURE)], baselines=baselines)
    assert [one.arm for one in doubted(found, BUDGET)] == ["a"]
    assert said(found).startswith("A look-up of each word's most frequent tag, without any encoder, has 60.0 on")
