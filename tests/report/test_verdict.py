"""The verdict of a study, and the doubts that stand before any claim."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import boards
import made
import pandas as pd
import pytest
from boards import BUDGET, cell, declare, gain
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.report import verdict_line
from workbench.report.comparison import leaderboards
from workbench.report.formatting import interval
from workbench.report.load.arm_names import person_name
from workbench.report.load.study_tables import Frames
from workbench.report.recommendation import advise
from workbench.report.results import Leaderboard, Verdict
from workbench.report.statistics.power import smallest_gap
from workbench.report.verdict import MOST_WORDS, caveat, seconds_text, verdicts
from workbench.spec.parts import Budget
from workbench.spec.scoring import OWN_SCORERS, SUITES, spoken

OWN = {"rtd": "originality", "electra-15": "originality", "bert-mlm": "pll"}


def measured(
    suites: Mapping[str, Mapping[str, float]], seeds: int = 5, scorers: Mapping[str, str] = OWN, sd: float = 0.5,
    names: Sequence[str] = (), words: float | None = None, **record: Any,
) -> Frames:  # fmt: skip
    """A study in memory: each suite has one task of its name, and the levels of its arms."""
    arms = list(next(iter(suites.values())))
    frames = made.in_memory(lambda *_: 0.0, [arm for arm in arms if arm != "untrained"], seeds, tunings=1)
    rows = [
        {
            "run_id": run["run_id"], "suite": suite, "task": suite, "metric": "accuracy", "seed": 0, "test_rows": 500,
            "value": levels[run["arm"]] + random.Random(f"{suite}/{run['arm']}/{run['seed']}").gauss(0, sd),
            "scorer": scorers.get(run["arm"], "pll") if suite in OWN_SCORERS else "",
        }
        for suite, levels in suites.items() for run in frames.rows("runs") if run["arm"] in levels
    ]  # fmt: skip
    other = pd.DataFrame(columns=["run_id", "task", "seed", "split", "metric", "value"])
    bags = [{"run_id": "", "task": suite, "baseline": "bag-of-words", "value": words} for suite in suites]
    baselines = pd.DataFrame(bags if words is not None else [], columns=["run_id", "task", "baseline", "value"])
    return replace(
        frames, scores=pd.DataFrame(rows), other=other, baselines=baselines,
        record={"axis": "objective", "tasks": {"names": list(names or suites)}, **record},
    )  # fmt: skip


def judged(frames: Frames) -> list[Verdict]:
    return verdicts(leaderboards(frames), frames)


UP = {"untrained": 50.0, "bert-mlm": 94.0, "rtd": 66.0}
DOWN = {"untrained": 50.0, "bert-mlm": 60.0, "rtd": 70.0}


def test_a_measure_by_own_scorers_recommends_nobody() -> None:
    frames = measured({"pairs": UP})
    (found,) = judged(frames)
    assert (found.kind, found.alike, found.best, found.next) == ("higher", False, "bert-mlm", "rtd")
    assert str(found) == (
        "No recommendation: BERT MLM scores higher than the other arm by minimal pairs, but each arm has its own "
        "scorer; linear probes would treat all alike."
    )
    assert found.scorers == {"bert-mlm": "pll", "rtd": "originality", "untrained": "pll"}
    told = advise(leaderboards(frames)[0], frames, Budget(steps=60))
    assert told.startswith("There is no recommendation") and "take" not in told


@pytest.mark.parametrize(
    ("scorers", "alike"),
    [
        ({"rtd": "pll", "bert-mlm": "pll"}, True),
        ({"rtd": "originality", "bert-mlm": "pll"}, False),
        ({"rtd": "", "bert-mlm": ""}, False),  # an unknown scorer shows nothing
    ],
)
def test_minimal_pairs_treat_arms_alike_where_one_scorer_scored_all(scorers: dict[str, str], alike: bool) -> None:
    (found,) = judged(measured({"blimp": UP}, scorers=scorers))
    assert found.alike is alike and (found.kind == "take") is alike


@pytest.mark.parametrize(
    ("axis", "alike"),
    [("generator.width", False), ("tying, generator.depth", False), ("corruption.rate", False), ("optim.lr", True)],
)
def test_one_scorer_that_was_trained_on_other_corruptions_recommends_nobody(axis: str, alike: bool) -> None:
    arms = {"untrained": 50.0, "0.25": 60.0, "0.5": 70.0}
    frames = measured({"pairs": arms}, scorers=dict.fromkeys(arms, "originality"), axis=axis)
    (found,) = judged(frames)
    assert (found.kind, found.alike) == (("take", True) if alike else ("higher", False))
    (board,) = leaderboards(frames)
    assert board.alike("0.25", "0.5") is alike


def test_arms_of_one_scorer_can_be_compared_beside_others() -> None:
    (board,) = leaderboards(measured({"minimal-pairs": UP | {"electra-15": 80.0}}))
    assert board.alike("rtd", "electra-15") and not board.alike("rtd", "bert-mlm") and not board.alike()


@pytest.mark.parametrize("suite", [suite for suite in SUITES if suite not in OWN_SCORERS])
def test_every_other_measure_treats_all_arms_alike(suite: str) -> None:
    first, *others = judged(measured({suite: DOWN, "pairs": UP}, names=("pairs", suite)))
    assert (first.suite, first.kind, first.best) == (suite, "take", "rtd") and first.alike
    e = f"{first.difference:.1f} ± {first.high - first.difference:.1f}"  # type: ignore[operator]
    assert str(first) == f"Take RTD: by {spoken(suite, [suite])} it is ahead of BERT MLM by {e} points."
    assert [other.kind for other in others] == ["higher"]


def test_of_measures_that_treat_all_alike_the_one_named_first_decides_and_contradictions_are_said() -> None:
    suites = {"glue": DOWN, "linear": UP}
    for names, best in ((("linear", "glue"), "bert-mlm"), (("glue", "linear"), "rtd"), ((), "rtd")):
        first, second = judged(measured(suites, names=names or ("other",)))
        assert (first.kind, first.best, second.kind) == ("disagree", best, "take")
        assert str(first).startswith("The measures disagree: by ") and "ahead of it" in str(first)
    level = {"untrained": 50.0, "bert-mlm": 60.0, "rtd": 60.0}
    assert judged(measured({"glue": DOWN, "linear": level}))[0].kind == "take"
    assert judged(measured({"glue": DOWN, "linear": level}, names=("linear", "glue")))[0].kind == "undecided"


@pytest.mark.parametrize(
    ("names", "decides"),
    [
        (("tag:texts/da-pos-train.conllu", "pairs:replace", "linear:next"), "tagging"),
        (("linear:next", "tag:texts/da-pos-train.conllu"), "linear"),
        (("linear:texts/da-pos-dev.conllu", "tag:da-pos"), "linear"),
        (("tag:da-pos", "linear"), "tagging"),
    ],
)
def test_a_task_of_a_file_is_named_first_though_it_has_another_name(names: tuple[str, ...], decides: str) -> None:
    frames = measured({"linear": UP, "tagging": DOWN}, names=names)
    frames.scores["task"] = frames.scores["task"].map({"linear": "linear:next", "tagging": "tag:da-pos-pos"})
    assert judged(frames)[0].suite == decides


def test_a_task_whose_name_is_too_long_for_a_sentence_is_left_out_of_it() -> None:
    frames = measured({"tagging": DOWN})
    for task, said in (("tag:da", "by tagging (tag:da) it"), ("tag:da_ddt-ud-pos-pos", "by tagging it")):
        frames.scores["task"] = task
        assert said in str(judged(frames)[0])


def test_what_would_decide_is_said_with_what_it_costs() -> None:
    level = {"untrained": 50.0, "bert-mlm": 60.0, "rtd": 64.0}
    frames = measured({"linear": level}, seeds=4, sd=2.0)
    (found,) = judged(frames)
    (board,) = leaderboards(frames)
    assert found.kind == "undecided" and found.rivals == (found.next,) and found.needed_seeds is not None
    noise = board.noise[board.budget][0].paired
    assert noise is not None
    assert found.detectable == pytest.approx(max(smallest_gap(noise, 2, 4) or 0, board.noise[board.budget][0].gap or 0))
    one_seed = sum(6.0 + 1.0 for _ in ("bert-mlm", "rtd"))  # seconds of training and of fine-tuning
    assert found.more_seconds == pytest.approx((found.needed_seeds - 4) * one_seed)
    assert found.difference is not None and found.high is not None
    assert str(found) == (
        f"Not decided by linear probes: RTD leads BERT MLM by {found.difference:.1f} ± "
        f"{found.high - found.difference:.1f} points; {found.needed_seeds} seeds, "
        f"{seconds_text(found.more_seconds or 0)} more, should show such a gap."
    )


FIVE = {"untrained": 50.0, "a": 60.0, "b": 60.2, "c": 60.4, "d": 66.8, "e": 70.3}
PLAN: dict[str, Any] = {"contrasts": declare([("e", "d")], 6), "design": {"seeds": [4, 6], "first": 0}}


@pytest.mark.parametrize(
    ("record", "seeds", "said"),
    [
        ({}, 4, ": e leads d, its only rival, by 4.0 ± 3.8 points before correction; eight seeds, 2 min more, should "),
        ({"contrasts": declare([("e", "d")], 4)}, 4, ": e leads b by 10.0 ± 2.3 points, a comparison that was not "),
        (PLAN, 4, ": the first look is planned at four seeds."),
        (PLAN | {"looks": [{"seeds": 4}]}, 4, ": e leads d by 4.0 ± 4.9 points; up to six seeds are planned."),
        (PLAN | {"looks": [{"seeds": 4}, {"seeds": 6}]}, 6, " points after six seeds, as planned."),
    ],
)  # fmt: skip
def test_an_open_gap_is_named_with_what_keeps_it_open(record: dict[str, Any], seeds: int, said: str) -> None:
    (found,) = judged(measured({"linear": FIVE}, seeds, sd=0.9 if seeds < 6 else 3.0, **record))
    assert found.kind == "undecided" and said in str(found), str(found)


def test_a_gap_that_the_permutation_test_leaves_open_is_that_of_the_t_test_alone() -> None:
    """And no number of seeds is named if it is at most the present one."""
    (found,) = judged(measured({"linear": {"untrained": 50.0, "bert-mlm": 60.0, "rtd": 63.0}}, seeds=6, sd=1.0))
    assert found.needed_seeds == 5 and str(found).endswith(
        ": RTD leads BERT MLM by 2.6 ± 1.6 points by the t test alone."
    )


def test_a_line_has_the_code_names_that_the_names_of_its_arms_hide() -> None:
    names = {"1.0": "Generator 1", "1.0, generator.depth=0.5": "Generator 1, depth 1/2", "0.25": "Generator 1/4",
             "rtd": "RTD", "electra-15": "ELECTRA 15%", "adversarial": "Adversarial RTD", "mine": "mine"}  # fmt: skip
    for sentence, codes in (
        ("Generator 1/4 leads Generator 1, depth 1/2 by 1.", ("0.25", "1.0, generator.depth=0.5")),
        ("Take Adversarial RTD: it is ahead of mine, RTD and ELECTRA 15%.", ("adversarial",)),
        ("Take RTDs: nothing to compare.", ()),
    ):  # fmt: skip
        known = ", ".join(f"{names[code]} is {code}" for code in codes)
        assert verdict_line({"sentence": sentence, "names": names}) == (f"{sentence} ({known})" if known else sentence)
    assert verdict_line({}) == ""


def test_best_arms_without_a_gap_are_level() -> None:
    (found,) = judged(measured({"linear": {"untrained": 50.0, "x": 60.0, "y": 61.0}}, seeds=4, sd=1.0))
    assert str(found).endswith(": y and x are level, 0.0 ± 2.2 points apart.")
    (found,) = judged(measured({"linear": {"untrained": 50.0, "x": 60.0, "y": 61.0}}, seeds=4, sd=0.0))
    assert str(found).endswith(": the differences do not vary between seeds.")


def test_arms_without_a_common_seed_have_no_gap() -> None:
    frames = measured({"linear": DOWN}, seeds=2)
    missing = frames.scores.run_id.isin(["bert-mlm-60-s0", "rtd-60-s1"])
    (found,) = judged(replace(frames, scores=frames.scores[~missing]))
    assert str(found).endswith(": the arms have no seed in common.")


@pytest.mark.parametrize("seeds", [1, 4])
@pytest.mark.parametrize("untrained", [62.0, 50.0, None])
@pytest.mark.parametrize("words", [70.0, 60.5, None])
def test_an_undecided_verdict_says_if_every_arm_is_below_words_and_none_ahead_of_its_untrained_encoder(
    words: float | None, untrained: float | None, seeds: int
) -> None:
    levels = {"bert-mlm": 60.0, "rtd": 61.0} | ({"untrained": untrained} if untrained is not None else {})
    (found,) = judged(measured({"linear": levels}, seeds=seeds, sd=2.0, words=words))
    unshown = untrained == 62.0 or (untrained == 50.0 and seeds == 1)  # one seed shows nothing
    assert found.kind == "undecided"
    assert (", and words without any encoder score higher" in str(found)) is (words == 70.0)
    assert (", and no arm is shown ahead of its untrained encoder" in str(found)) is unshown


def test_one_arm_ahead_of_its_untrained_encoder_is_enough() -> None:
    frames = measured({"linear": {"untrained": 58.5, "bert-mlm": 60.0, "rtd": 61.5}}, seeds=6, sd=1.0)
    (board,) = leaderboards(frames)
    assert [cell.gain is not None and cell.gain.claimed for cell in board.at(board.budget)] == [True, False]
    assert "untrained" not in str(judged(frames)[0])


def test_the_time_of_further_seeds_goes_before_their_number() -> None:
    (found,) = judged(measured({"linear": {"bert-mlm": 60.0, "rtd": 61.5}}, seeds=4, sd=1.0, words=70.0))
    end = " score higher: RTD leads BERT MLM by 0.8 ± 3.0 points; 46 seeds should show such a gap."
    assert str(found).endswith(end)


def test_a_recommendation_is_withheld_if_words_score_higher() -> None:
    found = judged(measured({"linear": DOWN}, words=90.0))[0]
    assert str(found).endswith("but words without any encoder score higher.")


@pytest.mark.parametrize(("seeds", "told"), [(1, "one seed gives no interval"), (2, "two seeds give no interval")])
def test_too_few_seeds_are_said(seeds: int, told: str) -> None:
    (found,) = judged(measured({"linear": DOWN}, seeds=seeds))
    assert found.kind == "undecided" and told in str(found) and str(found).endswith("four seeds would.")


def test_a_gap_that_takes_hundreds_of_seeds_is_no_plan() -> None:
    frames = measured({"linear": {"untrained": 50.0, "bert-mlm": 60.0, "rtd": 61.0}}, seeds=4, sd=2.0)
    (found,) = judged(frames)
    assert found.kind == "undecided" and found.needed_seeds is None
    assert str(found).endswith(" points, which no practical number of seeds would show.")


def test_an_arm_that_beats_others_but_not_its_untrained_encoder_is_not_recommended() -> None:
    (found,) = judged(measured({"linear": DOWN | {"untrained": 70.0}}))
    assert found.kind == "doubted" and str(found).startswith("No recommendation: RTD is ahead of the other arm")


def test_a_single_arm_is_compared_with_nothing() -> None:
    (found,) = judged(measured({"linear": {"untrained": 50.0, "rtd": 60.0}}))
    assert found.kind == "alone" and found.next == "" and found.difference is None


NAMES = st.text("ab cdé-,=.", min_size=1, max_size=60).map(str.strip).filter(bool)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(NAMES, min_size=2, max_size=3, unique=True), st.sampled_from(SUITES), st.integers(1, 6), st.floats(0, 9)
)
def test_no_sentence_has_more_than_thirty_words(arms: list[str], suite: str, seeds: int, gap: float) -> None:
    levels = {"untrained": 50.0} | {arm: 60.0 + place * gap for place, arm in enumerate(arms)}
    other = {"linear" if suite != "linear" else "glue": {arm: -level for arm, level in levels.items()}}
    for suites in ({suite: levels}, {suite: levels} | other):
        for found in judged(measured(suites, seeds=seeds, scorers={})):
            assert 0 < len(str(found).split()) <= MOST_WORDS, str(found)


@pytest.mark.parametrize(
    ("axis", "arm", "name"),
    [
        ("objective", "rtd", "RTD"),
        ("objective", "my_idea", "my_idea"),
        ("objective", "electra-15", "ELECTRA 15%"),
        ("objective", "bert-mlm, optim.lr=0.002", "BERT MLM, learning rate 0.002"),
        ("generator.width", "0.25", "Generator 1/4"),
        ("generator.width,generator.depth", "1.0, generator.depth=0.5", "Generator 1, depth 1/2"),
        ("optim.lr", "0.0005, generator.depth=0.5", "Learning rate 0.0005, generator depth 1/2"),
        ("generator.width", "unigram", "Unigram generator"),
        ("generator.width,generator.kind", "unigram, unigram", "Unigram generator"),
        ("optim.lr", "0.0005", "Learning rate 0.0005"),
        ("tying", "embeddings", "Tying embeddings"),
        ("objective,optim.lr", "all-tokens-mlm, 0.001", "All-Tokens MLM, learning rate 0.001"),
        ("scale", "rtd-base", "rtd-base"),
    ],
)
def test_arms_are_named_as_people_say_them(axis: str, arm: str, name: str) -> None:
    assert person_name(axis, arm) == name


TITLES = {"a": "arm A", "b": "arm B", "c": "arm C"}
SURE, UNSURE = gain(9.0), gain(0.2, 0.5)


def board(bag: float | None, **arms: tuple[float, Any]) -> Leaderboard:
    """Arms with these scores in each of three seeds, and these gains."""
    cells = [cell(arm, [score] * 3, gain=gained) for arm, (score, gained) in arms.items()]
    return boards.board(cells, baselines={} if bag is None else {"bag-of-words": {"order": bag}})


def said(found: Leaderboard, *arms: str) -> str:
    return caveat(found, BUDGET, arms or found.arms, TITLES)


UNSHOWN = interval(UNSURE.estimate.mean, UNSURE.estimate.half, True)


@pytest.mark.parametrize(
    ("bag", "arms", "about", "said_of", "not_said"),
    [
        # A bag of words: the arms that it beats by a higher mean with their scores, or their number and the best.
        (60.0, {"a": (61.0, SURE), "b": (59.0, SURE)}, "a", (), ("",)),
        (60.0, {"a": (60.0, SURE)}, "a", (), ("",)),
        (None, {"a": (1.0, SURE), "b": (2.0, None)}, "a", (), ("",)),
        (60.0, {"a": (61.0, SURE), "b": (59.0, SURE), "c": (42.0, SURE)}, "abc",
         ("60.0", "arm B (59.0) and arm C (42.0)"), ("arm A",)),
        (60.0, {"a": (61.0, SURE), "b": (59.0, SURE), "c": (42.0, SURE)}, "b", ("arm B (59.0)",), ("arm C",)),
        (60.0, {"a": (58.0, SURE), "b": (59.0, SURE), "c": (42.0, SURE)}, "abc",
         ("60.0", "each of the 3 arms", "59.0"), ("42.0", "arm A", "arm B", "arm C")),
        (60.0, {"a": (58.0, SURE)}, "a", ("arm A (58.0)",), ()),  # of one, nothing is the best
        # Gains that are not shown: the arms with their intervals, or their number.
        (None, {"a": (61.0, SURE), "b": (59.0, UNSURE), "c": (42.0, UNSURE)}, "abc",
         (f"arm B ({UNSHOWN}) and arm C ({UNSHOWN})", "own untrained encoders "), ("arm A",)),
        (None, {"a": (61.0, SURE), "b": (59.0, UNSURE)}, "ab", ("own untrained encoder ",), ("2 arms",)),
        (None, {"a": (61.0, UNSURE), "b": (59.0, UNSURE)}, "ab",
         (f"arm A ({UNSHOWN}) and arm B ({UNSHOWN})", "own untrained encoders "), ()),
        (None, {"a": (61.0, UNSURE)}, "a", ("arm A",), ()),
        # Arms without an untrained encoder.
        (60.0, {"a": (61.0, SURE), "b": (10.0, None)}, "b", ("arm B",), ()),
        (None, {"a": (61.0, None), "b": (59.0, None), "c": (70.0, SURE)}, "abc", ("arm A and arm B",), ("arm C",)),
    ],
)  # fmt: skip
def test_doubts_name_the_arms_that_are_asked_about_with_what_is_wrong(
    bag: float | None, arms: dict[str, Any], about: str, said_of: Sequence[str], not_said: Sequence[str]
) -> None:
    """An empty text in `not_said` stands for no doubt at all."""
    text = said(board(bag, **arms), *about)
    assert all(words in text for words in said_of) and not any(words in text if words else text for words in not_said)


def test_the_gains_of_these_tests_are_what_they_are_called() -> None:
    assert SURE.claimed and not UNSURE.claimed and UNSHOWN[0] in "+−"
    assert UNSURE.estimate.half is None or UNSURE.estimate.mean <= UNSURE.estimate.half
    assert caveat(board(60.0, a=(10.0, None)), BUDGET, [], TITLES) == ""


@pytest.mark.parametrize(
    ("baseline", "told"),
    [("bag-of-words", "A bag of words"), ("nearest-overlap", "The sentence with most words of the question"),
     ("word-lookup", "A look-up of each word's most frequent tag"), ("tf-idf", "Tf-idf of words")],
)  # fmt: skip
def test_a_baseline_on_words_counts_where_it_was_measured_on_every_task(baseline: str, told: str) -> None:
    baselines, cells = {baseline: {"order": 60.0}}, [cell("a", [59.0], gain=SURE), cell("b", [61.0], gain=SURE)]
    assert said(boards.board(cells, baselines=baselines)).startswith(f"{told}, without any encoder, has 60.0 on ")
    assert said(boards.board(cells, tasks=("order", "next"), baselines=baselines)) == ""


def test_a_gain_larger_than_its_interval_is_said_to_fall_to_the_number_of_arms() -> None:
    """One of two gains would be shown if it were the only one."""
    barely = gain(next(x / 20 for x in range(100) if gain(x / 20).claimed))
    half = barely.estimate.half
    assert half is not None and barely.estimate.mean > half
    unclaimed = replace(barely, adjusted=0.2)
    assert "2 arms" in said(board(None, a=(61.0, SURE), b=(59.0, unclaimed)))


def test_every_doubt_is_a_sentence_of_its_own() -> None:
    text = said(board(60.0, a=(59.0, UNSURE), b=(61.0, None), c=(62.0, UNSURE)))
    assert text.count(". ") == 2 and text.endswith(".") and "  " not in text
    assert text.index("60.0") < text.index("arm C (") < text.index("arm B,")
