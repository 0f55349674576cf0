"""Whole reports on studies with known truth."""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import made
import parsed
import pytest
from boards import declare, judged, noise_of
from made import GLUE, recorded, spec_of, trained
from scipy import stats

from workbench.report import data_files, recommendation, write
from workbench.report.comparison import leaderboard, leaderboards
from workbench.report.load import study_tables
from workbench.report.load.study_tables import Frames
from workbench.report.page import rendering
from workbench.report.results import Verdict
from workbench.report.statistics.group_sequential import schedule
from workbench.report.statistics.power import family_of, unit_gap
from workbench.report.verdict import verdict_of, verdicts
from workbench.spec.parts import Budget
from workbench.store.run_store import RunStore

TIED = dict.fromkeys((*made.ARMS, "untrained"), 65.0)


def answers(levels: Mapping[str, float], arms: tuple[str, ...], seeds: int, studies: int) -> list[Verdict]:
    said = []
    for study in range(studies):
        found = leaderboard(made.in_memory(noise_of(levels, study), arms, seeds), "probes")
        assert found is not None
        said.append(verdict_of(found, "objective"))
    return said


@pytest.mark.parametrize("seeds", [3, 5])
def test_planted_ties_come_out_as_ties(seeds: int) -> None:
    """Five arms of one truth: in about 38 of 40 studies the answer ranks nobody."""
    said = answers(TIED, made.ARMS, seeds, 40)
    ranked = [one for one in said if one.kind != "undecided"]
    assert len(ranked) <= 0.05 * 40 + 3  # 5 % and two standard errors
    assert all(one.sentence.startswith("Not decided") and one.rivals for one in said if one not in ranked)


def test_a_planted_tie_of_two_says_how_many_seeds_a_gap_of_this_size_would_take() -> None:
    said = answers(TIED, ("rtd", "bert-mlm"), 5, 30)
    open_ = [one for one in said if one.kind == "undecided"]
    assert len(said) - len(open_) <= 0.05 * 30 + 3
    assert all(re.search(r" leads .* by .* ± .* points|are level", one.sentence) for one in open_)
    assert all(one.needed_seeds != 5 for one in open_)


@pytest.mark.parametrize("seeds", [3, 5])
def test_planted_winners_come_out_as_winners(seeds: int) -> None:
    levels = TIED | {"rtd": 75.0}
    said = answers(levels, made.ARMS, seeds, 20)
    won = [one for one in said if one.kind == "take" and one.best == "rtd" and not one.rivals]
    assert len(won) >= 19
    assert all(one.seeds == seeds and one.low is not None and "\u00b1" in one.sentence for one in won)


def test_test_examples_have_a_noise_of_their_own() -> None:
    found = leaderboard(made.in_memory(lambda *_: 70.0, ("rtd", "bert-mlm"), 3), "probes")
    assert found is not None
    noise = {n.name: n.examples for n in found.noise[found.budget]}
    assert noise["package"] == pytest.approx(100 * (0.7 * 0.3 / 500) ** 0.5)
    assert noise["order"] is None and noise["mean"] is None  # a correlation is no share of right answers


# -- arms that are ahead of others and of nothing else
def test_an_arm_that_is_no_better_than_untrained_is_ahead_only_after_that_is_said() -> None:
    """RTD beats BERT MLM by far, and yet only by doing no harm."""
    _, _, sentence, before = judged({"rtd": 65.0, "bert-mlm": 50.0, "untrained": 65.0})
    assert sentence.kind == "doubted" and "not shown ahead of its own untrained encoder" in sentence.sentence
    assert before.startswith("Not shown ahead of their own untrained encoders on probe score: rtd (")


def test_only_the_arms_that_are_called_ahead_are_doubted_in_the_verdict() -> None:
    """The winner beats both; the loser does not, which stands under "Before you rely on it" alone."""
    found, _, sentence, before = judged({"rtd": 85.0, "bert-mlm": 60.0, "untrained": 60.0}, 70.0)
    assert sentence.kind == "take" and sentence.sentence.startswith("Take RTD: by fine-tuned probes it is ahead of")
    assert before.startswith("A bag of words, without any encoder, has 70.0 on probe score: more than bert-mlm (")
    assert re.search(r"Not shown ahead of its own untrained encoder: bert-mlm \([+\u2212]\d", before)
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


# -- no sentence contradicts another
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_two_seeds_of_five_objectives_are_told_apart_by_no_sentence(seeds: int) -> None:
    """What is claimed in any sentence, in any of 20 studies, is claimed in the table, and beside a fitting interval."""
    for study in range(20):
        frames = made.in_memory(noise_of(TIED | {"rtd": 67.0, "bert-mlm": 64.0}, study), made.ARMS, seeds)
        found = leaderboard(frames, "probes")
        assert found is not None
        claims = {(p.a, p.b) for p in found.pairs[found.budget] if p.compared.claimed}
        verdict = verdict_of(found, "objective")
        assert (verdict.kind == "undecided") == any((verdict.best, arm) not in claims for arm in verdict.rivals)
        assert claims or ("is ahead" not in verdict.sentence and verdict.rivals)
        for p in found.pairs[found.budget]:
            e = p.compared.estimate
            assert e.half is not None and (not p.compared.claimed or e.mean > e.half)


EXPERIMENTS = 200


def most(studies: int) -> int:
    """Return the false claims that a rate of 5 % stays within, 99 times in 100."""
    return int(stats.binom.ppf(0.99, studies, 0.05))


CLAIM = re.compile(r"\bis ahead\b|: take |^Take |^Higher ")
FIVE = (*((arm, "bert-mlm") for arm in made.ARMS if arm != "bert-mlm"), ("rtd", "electra-15"))


def in_name_only(study: int, gaps: dict[str, float] | None = None) -> Callable[..., float]:
    """Return the law of arms with equal true scores: noise of the seed, of the run (unequal by arm) and of the task."""

    def truth(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
        shared = random.Random(f"{study}/{seed}").gauss(0, 2)
        own = random.Random(f"{study}/{arm}/{seed}").gauss(0, 3.0 if arm == "rtd" and gaps is None else 1.0)
        level = 55.0 if arm == "untrained" else 65.0 + (gaps or {}).get(arm, 0.0)
        return level + shared + own

    return truth


def claims(frames: Frames) -> list[str]:
    """Return every sentence and row of a report in which one arm is called ahead."""
    found = []
    boards_found = leaderboards(frames)
    found += [str(verdict) for verdict in verdicts(boards_found, frames) if CLAIM.search(str(verdict))]
    for board in boards_found:
        text = recommendation.advise(board, frames, Budget(steps=60))
        found += [text] if CLAIM.search(text) else []
        found += [f"{row['a']} ahead of {row['b']}" for row in data_files.pair_rows(board) if row["verdict"] == "ahead"]
    return found


def record(pairs: Sequence[tuple[str, str]], seeds: int, planned: bool) -> dict[str, Any]:
    made_up: dict[str, Any] = {"axis": "objective", "contrasts": declare(pairs, seeds) if pairs else []}
    if planned:
        made_up["design"] = {"seeds": list(schedule(seeds)), "first": 0, "measure": "probes"}
        made_up["looks"] = [{"seeds": count} for count in schedule(seeds)]
    return made_up


@pytest.mark.parametrize(
    ("arms", "pairs", "seeds", "planned", "studies"),
    [
        (("rtd", "bert-mlm"), (), 5, False, 100),
        pytest.param(("rtd", "bert-mlm"), (("rtd", "bert-mlm"),), 9, True, EXPERIMENTS, marks=pytest.mark.slow),
        pytest.param(made.ARMS, FIVE, 4, False, EXPERIMENTS, marks=pytest.mark.slow),
        (made.ARMS, FIVE, 6, True, 100),
    ],
    ids=["two arms", "two arms, seeds added", "declared", "declared, seeds added"],
)
def test_arms_that_differ_in_name_only_are_called_ahead_in_at_most_five_percent(
    arms: tuple[str, ...], pairs: tuple[tuple[str, str], ...], seeds: int, planned: bool, studies: int
) -> None:
    wrong = 0
    for study in range(studies):
        frames = made.in_memory(in_name_only(study), arms, seeds, tunings=1)
        wrong += bool(claims(replace(frames, record=record(pairs, seeds, planned))))
    assert wrong <= most(studies)


def test_a_planted_difference_of_the_promised_size_is_told_four_times_in_five() -> None:
    """The drill detects a real difference.

    The path is the same, and the arm in the fewest comparisons is ahead by the smallest gap.
    """
    arms, pairs, seeds, told = ("rtd", "bert-mlm", "electra-15"), (("rtd", "bert-mlm"), ("rtd", "electra-15")), 5, 0
    unit = unit_gap(3, seeds, family_of(arms, pairs))
    assert unit is not None
    gaps = {"bert-mlm": -unit * 2**0.5}  # paired differences scatter by the square root of 2
    for study in range(60):
        frames = made.in_memory(in_name_only(study, gaps), arms, seeds, tunings=1)
        found = claims(replace(frames, record=record(pairs, seeds, False)))
        told += "rtd ahead of bert-mlm" in found
    assert 40 <= told <= 56


@pytest.mark.slow
def test_a_page_claims_what_the_same_scores_claim_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the rates above hold for stores of run directories and whole pages, too."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    arms, claimed = ("rtd", "bert-mlm"), 0
    for study in range(24):
        law = in_name_only(study, {"rtd": 2.0} if study % 2 else None)
        store, name = made.study(tmp_path / str(study), law, arms, 5, tunings=1)
        page = parsed.page(write(store, name, tmp_path / f"{study}.html"))
        verdicts = [row["verdict"] for row in parsed.sheet(tmp_path / f"{study}-pairs.csv")]
        on_page = "ahead" in verdicts or bool(CLAIM.search(page.find("header")[0].text))
        in_memory = bool(claims(made.in_memory(law, arms, 5, tunings=1)))
        assert on_page == in_memory, study
        claimed += on_page
    assert 0 < claimed < 24


def test_a_report_of_medians_says_so_and_changes_every_number(tmp_path: Path) -> None:
    """One fine-tuning of each run fails: means fall by it and medians do not, in scores, gains, pairs and metrics."""

    def truth(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
        return 20.0 if tuning == 1 else 60.0 + 2 * seed + tuning + (arm == "rtd") * (3 + seed % 2)

    stores = {
        statistic: made.study(tmp_path / statistic, truth, ("rtd", "bert-mlm"), tunings=3, tasks=tuple(GLUE),
                         record={"tasks": {"names": ["glue"], "statistic": statistic}})
        for statistic in ("mean", "median")
    }  # fmt: skip
    for statistic, of_three in (("mean", statistics.fmean), ("median", statistics.median)):
        found = study_tables.read_study(*stores[statistic])
        (board,) = leaderboards(found)
        assert board.statistic == found.statistic == statistic
        row = next(row for row in data_files.arm_rows(board) if row["arm"] == "rtd")
        each = [of_three([truth("rtd", 60, "RTE", seed, n) for n in range(3)]) for seed in range(3)]
        assert row["score"] == pytest.approx(statistics.fmean(each)) and row["statistic"] == statistic
        assert row["gain"] == pytest.approx((3 + 4 + 3) / 3 * (2 / 3 if statistic == "mean" else 1))
        (pair,) = data_files.pair_rows(board)
        assert pair["difference"] == row["gain"] and pair["statistic"] == statistic
        assert {each["statistic"] for each in data_files.task_rows(board)} == {statistic}
        written = write(*stores[statistic], tmp_path / f"{statistic} report").read_text(encoding="utf-8")
        assert f"the {statistic} over fine-tuning seeds of a run" in written


def test_records_of_older_versions_name_the_text_alone(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    spec = spec_of("rtd", 0, {"steps": 60})
    trained(store, spec)
    found = study_tables.read_study(store, recorded(store, [spec]))
    told = dict(rendering.facts(found, []))
    assert told["Text"] == "docs" and "Words seen by a run" not in told
