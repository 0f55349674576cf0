"""The answer at the top of a report, and the doubts that come with it."""

from __future__ import annotations

import re

import made
from declared_pairs import ELECTRA, declare, declared_study
from planted_studies import judged, noise_of

from workbench.report.comparison.boards import board
from workbench.report.page.answer import answer


def test_many_comparisons_are_counted_not_listed() -> None:
    arms = tuple(f"arm-{i}" for i in range(9))
    levels = {arm: 60.0 + 2 * i for i, arm in enumerate(arms)} | {"untrained": 40.0}
    found = board(made.in_memory(made.noisy(levels, 0.1, 0.1), arms, 5), "probes")
    assert found is not None
    said = answer(found, "objective")
    assert "arm-8 is ahead of every other of the 9 objectives: of 8, from arm-7 down to arm-0, by" in said.sentence
    assert any("28 other pairs are told apart" in text or "of the 28 other pairs" in text for text in said.further)
    assert any("9 of 9 arms beat their own untrained encoders" in text for text in said.further)


def test_what_is_decided_and_what_is_not_stand_apart() -> None:
    levels = made.LEVELS | {"electra-15": 69.9}
    found, _ = declared_study(levels, declare(ELECTRA))
    sentence = answer(found, "objective").sentence
    assert sentence.startswith("1 of the 2 comparisons that were declared beforehand is decided: rtd is ahead of bert")
    assert "Not decided: rtd and electra-15 (" in sentence or "Not decided: electra-15 and rtd (" in sentence
    assert "Holm\u2019s correction over the 2 declared pairs" in " ".join(answer(found, "objective").further)
    none, _ = declared_study(dict.fromkeys(made.LEVELS, 65.0), declare(ELECTRA))
    assert answer(none, "objective").sentence.startswith("None of the 2 comparisons that were declared beforehand is")


def test_a_leader_that_nothing_is_claimed_of_is_doubted_right_after_the_verdict() -> None:
    found, _, sentence, _ = judged({"rtd": 65.0, "bert-mlm": 65.0, "untrained": 65.0}, 80.0, seeds=3)
    assert sentence.startswith("With 3 seeds, rtd cannot be told apart from bert-mlm: the gap is") or (
        "bert-mlm cannot be told apart from rtd" in sentence
    )
    assert answer(found, "objective").further[0].startswith("A bag of words, without any encoder, has 80.0")


def test_a_doubted_winner_further_down_is_doubted_there() -> None:
    """The verdict is of RTD, which is beyond doubt; ELECTRA-15 is ahead of BERT MLM and of nothing else."""
    found, *_, sentence, _ = judged({"rtd": 85.0, "electra-15": 60.0, "bert-mlm": 50.0, "untrained": 60.0})
    assert sentence.startswith("rtd is ahead of every other of the 3 objectives")
    further = next(text for text in answer(found, "objective").further if "Further down" in text)
    assert re.match(
        r"Not shown ahead of its own untrained encoder on [^:]*: electra-15 \(\S+ \S+ \S+\)\. Further", further
    )


def test_a_gain_that_only_the_correction_takes_away_is_told_as_that() -> None:
    """Some of 60 studies have a gain above its own interval and yet none that is claimed: no sentence hides it."""
    seen = 0
    for study in range(60):
        levels = dict.fromkeys(made.ARMS, 66.3) | {"untrained": 65.0}
        found = board(made.in_memory(noise_of(levels, study), made.ARMS, 4), "probes")
        assert found is not None
        text = " ".join(answer(found, "objective").further)
        missed = [c for c in found.cells if c.gain and c.gain.verdict == "open" and c.gain.estimate.low > 0]
        seen += bool(missed)
        assert bool(missed) == ("larger than its own interval, which is not corrected" in text)
    assert seen
