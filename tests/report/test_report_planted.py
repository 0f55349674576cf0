"""Known truths, with noise on both levels: what the answer says of them, time after time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import made
import pandas as pd
import parsed
import pytest
from planted_studies import judged, noise_of

from workbench.report import write
from workbench.report.comparison.boards import board
from workbench.report.comparison.verdict import Verdict, of_board
from workbench.report.page import advice

TIED = dict.fromkeys((*made.ARMS, "untrained"), 65.0)


def answers(levels: Mapping[str, float], arms: tuple[str, ...], seeds: int, studies: int) -> list[Verdict]:
    said = []
    for study in range(studies):
        found = board(made.in_memory(noise_of(levels, study), arms, seeds), "probes")
        assert found is not None
        said.append(of_board(found, "objective"))
    return said


@pytest.mark.parametrize("seeds", [3, 5])
def test_planted_ties_come_out_as_ties(seeds: int) -> None:
    """Five arms of one truth: in about 95 of 100 studies the answer ranks nobody."""
    said = answers(TIED, made.ARMS, seeds, 80)
    ranked = [one for one in said if one.kind != "undecided"]
    assert len(ranked) <= 0.05 * 80 + 4  # 5 % and two standard errors
    assert all(one.sentence.startswith("Not decided") and one.rivals for one in said if one not in ranked)


def test_a_planted_tie_of_two_says_how_many_seeds_a_gap_of_this_size_would_take() -> None:
    said = answers(TIED, ("rtd", "bert-mlm"), 5, 60)
    open_ = [one for one in said if one.kind == "undecided"]
    assert len(said) - len(open_) <= 0.05 * 60 + 4
    assert all("five seeds would show a gap of" in one.sentence and one.needed_seeds != 5 for one in open_)


@pytest.mark.parametrize("seeds", [3, 5])
def test_planted_winners_come_out_as_winners(seeds: int) -> None:
    levels = TIED | {"rtd": 75.0}
    said = answers(levels, made.ARMS, seeds, 40)
    won = [one for one in said if one.kind == "take" and one.best == "rtd" and not one.rivals]
    assert len(won) >= 38
    assert all(one.seeds == seeds and one.low is not None and "\u00b1" in one.sentence for one in won)


def test_six_seeds_bring_in_the_permutation_test() -> None:
    found = board(made.in_memory(noise_of(TIED | {"rtd": 75.0}, 1), ("rtd", "bert-mlm"), 6), "probes")
    assert found is not None
    [pair] = found.pairs[found.budget]
    assert pair.compared.flip == 2 / 2**6 and pair.compared.claimed
    few = board(made.in_memory(noise_of(TIED, 1), ("rtd", "bert-mlm"), 5), "probes")
    assert few is not None and few.pairs[few.budget][0].compared.flip is None


def test_test_examples_have_a_noise_of_their_own() -> None:
    found = board(made.in_memory(lambda *_: 70.0, ("rtd", "bert-mlm"), 3), "probes")
    assert found is not None
    noise = {n.name: n.examples for n in found.noise[found.budget]}
    assert noise["package"] == pytest.approx(100 * (0.7 * 0.3 / 500) ** 0.5)
    assert noise["order"] is None and noise["mean"] is None  # a correlation is no share of right answers


def test_noise_is_told_for_the_pair_of_arms_that_shares_fewest_seeds() -> None:
    """Two arms of five seeds and one of three: the smallest gap that could show is that of three seeds."""
    frames = made.in_memory(noise_of(TIED, 1), ("rtd", "bert-mlm", "electra-15"), 5)
    late = [f"electra-15-60-s{seed}" for seed in (3, 4)]
    few = replace(frames, runs=_without(frames.runs, late), scores=_without(frames.scores, late))
    whole, part = board(frames, "probes"), board(few, "probes")
    assert whole is not None and part is not None
    assert {noise.n for noise in whole.noise[whole.budget]} == {5}
    assert {noise.n for noise in part.noise[part.budget]} == {3}


def _without(table: pd.DataFrame, runs: list[str]) -> pd.DataFrame:
    return table[~table["run_id"].isin(runs)].reset_index(drop=True)


# -- arms that are ahead of others and of nothing else


def test_an_arm_that_is_no_better_than_untrained_is_ahead_only_after_that_is_said() -> None:
    """RTD beats BERT MLM by far, and yet only by doing no harm."""
    _, _, sentence, before = judged({"rtd": 65.0, "bert-mlm": 50.0, "untrained": 65.0})
    assert sentence.kind == "doubted" and "not shown ahead of its own untrained encoder" in sentence.sentence
    assert before.startswith("None of the 2 objectives is shown ahead of its own untrained encoder on probe score.")


def test_an_arm_that_a_bag_of_words_beats_is_ahead_only_after_that_is_said() -> None:
    _, _, sentence, before = judged({"rtd": 75.0, "bert-mlm": 65.0, "untrained": 60.0}, 80.0)
    said = r"A bag of words, without any encoder, has 80\.0 on probe score: more than "
    assert sentence.kind == "doubted" and "words without any encoder score higher" in sentence.sentence
    assert re.match(said + r"each of the 2 objectives, the best of which has 7\d\.\d\.", before)


def test_only_the_arms_that_are_called_ahead_are_doubted_in_the_verdict() -> None:
    """The winner beats both; the loser does not, which stands under "Before you rely on it" alone."""
    found, _, sentence, before = judged({"rtd": 85.0, "bert-mlm": 60.0, "untrained": 60.0}, 70.0)
    assert sentence.kind == "take" and sentence.sentence.startswith("Take RTD: by fine-tuned probes it is ahead of")
    assert before.startswith("A bag of words, without any encoder, has 70.0 on probe score: more than bert-mlm (")
    assert re.search(r"Not shown ahead of its own untrained encoder on probe score: bert-mlm \([+\u2212]\d", before)
    clear = judged({"rtd": 85.0, "bert-mlm": 75.0, "untrained": 60.0}, 50.0)
    assert clear[2].kind == "take" and "bag of words" not in clear[3]
    assert clear[0].cells[0].gain is not None and clear[0].cells[0].gain.claimed and found.cells[0].gain is not None


def test_the_page_never_says_ahead_before_it_says_what_is_wrong(tmp_path: Path) -> None:
    """The whole page, from a store on disk: verdict, warnings, and the table of pairs."""
    truth = made.noisy({"rtd": 52.0, "bert-mlm": 45.0, "untrained": 60.0})
    store, name = made.study(tmp_path / "runs", truth, ("rtd", "bert-mlm"), seeds=5)
    tree = parsed.page(write(store, name, tmp_path / "out"))
    said = "words without any encoder score higher"
    assert tree.find("h1")[0].text.startswith("No recommendation: RTD is ahead") and said in tree.find("h1")[0].text
    [first, *_] = tree.by_id("warnings").find("li")
    assert "A bag of words, without any encoder, has 55.0 on probe score" in " ".join(first.text.split())
    rows = parsed.sheet(tmp_path / "out" / "pairs.csv")
    assert [row["verdict"] for row in rows] == ["ahead"] and rows[0]["df"] == "4.0"


def test_advice_says_what_is_wrong_first() -> None:
    """The arm that would be taken is no better than untrained."""
    levels = {"rtd": 65.0, "bert-mlm": 50.0, "untrained": 65.0}
    frames = made.in_memory(noise_of(levels, 3), ("rtd", "bert-mlm"), 5, budgets=(60, 120))
    found = board(frames, "probes")
    assert found is not None
    taken = advice.advise(found, frames, None, "paper")
    assert taken.startswith("Not shown ahead of its own untrained encoder on probe score: rtd (")
    assert "no recommendation" in taken and "take rtd" not in taken


# -- no sentence contradicts another


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_two_seeds_of_five_objectives_are_told_apart_by_no_sentence(seeds: int) -> None:
    """What is claimed in any sentence, in any of 40 studies, is claimed in the table, and beside a fitting interval."""
    for study in range(40):
        frames = made.in_memory(noise_of(TIED | {"rtd": 67.0, "bert-mlm": 64.0}, study), made.ARMS, seeds)
        found = board(frames, "probes")
        assert found is not None
        claims = {(p.a, p.b) for p in found.pairs[found.budget] if p.compared.claimed}
        verdict = of_board(found, "objective")
        assert (verdict.kind == "undecided") == any((verdict.best, arm) not in claims for arm in verdict.rivals)
        assert claims or ("is ahead" not in verdict.sentence and verdict.rivals)
        for p in found.pairs[found.budget]:
            e = p.compared.estimate
            assert e.half is not None and (not p.compared.claimed or e.mean > e.half)
