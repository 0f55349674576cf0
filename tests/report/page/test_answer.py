"""The answer at the top of a report, and the doubts that come with it."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import made
import pytest
from declared_pairs import ELECTRA, declare, declared_study
from planted_studies import judged, noise_of

from workbench.report.comparison.boards import board
from workbench.report.page.answer import answer
from workbench.report.statistics.power import family_of
from workbench.report.statistics.sequential_power import shown


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
    assert "Holm\u2019s correction over the 2 declared pairs" in answer(found, "objective").rule
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


def test_the_gap_of_the_noisiest_arms_stands_beside_that_of_equal_noise() -> None:
    """One arm scatters ten times as much as the others, so its comparisons need a larger gap and more seeds."""
    levels = dict.fromkeys(made.ARMS, 60.0) | {"untrained": 40.0}

    def law(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
        spread = 10.0 if arm == "rtd" else 1.0
        return levels[arm] + spread * random.Random(f"{arm}/{seed}").gauss(0, 1)

    found = board(made.in_memory(law, made.ARMS, 5), "probes")
    assert found is not None
    noise = found.noise[found.budget][0]
    assert noise.gap is not None and noise.widest is not None
    assert "rtd" in (noise.widest.a, noise.widest.b) and noise.widest.gap > 1.2 * noise.gap
    text = " ".join(answer(found, "objective").further)
    assert f"a true gap of {noise.gap:.1f} points between two arms would be shown four times in five if all" in text
    assert f"the noisiest pair, it would take {noise.widest.gap:.1f} points" in text


def test_the_gap_of_a_plan_is_that_of_all_its_looks() -> None:
    """By the looks until the last one, less is shown than by as many fixed seeds, and more than at the first look."""
    arms = ("rtd", "bert-mlm", "electra-15")
    frames = made.in_memory(noise_of(dict.fromkeys(arms, 60.0) | {"untrained": 50.0}, 1), arms, 6)
    design = {"seeds": [4, 6], "first": 0, "measure": "probes"}
    record = {"contrasts": declare(ELECTRA, 6), "design": design, "looks": [{"seeds": 4}]}
    found = board(replace(frames, record={**frames.record, **record}), "probes")
    assert found is not None and found.family.plan is not None
    noise = found.noise[found.budget][0]
    unit = shown(3, (4, 6), family_of(list(found.arms), ELECTRA))
    assert unit is not None and noise.gap == pytest.approx(unit.gap * (noise.paired or 0.0))
    text = " ".join(answer(found, "objective").further)
    assert "With looks at 4 and 6 seeds and this much noise (paired differences have a standard deviation" in text
    assert f"a true gap of {noise.gap:.1f} points between two arms of a declared comparison would be shown" in text
