"""Whether arms spent the same: what a report calls equal, under which convention, and its wording if they did not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import made
import parsed
import pytest

from workbench.report import write
from workbench.report.comparison import spending
from workbench.report.load import frames

ARMS = ("rtd", "bert-mlm")
ASKED = "At equal compute, what does each step from BERT to ELECTRA buy?"


def priced(**paper: float) -> frames.Frames:
    """Return a study in memory whose arms cost these FLOPs per step by `paper`, and the same by other conventions."""

    def price(arm: str) -> Mapping[str, float]:
        return {"paper": paper[arm.replace("-", "_")], "paper-sparse": 1.0, "matmul": 1.0}

    found = made.in_memory(lambda *_: 50.0, ARMS, seeds=2, price=lambda arm: price(arm) if arm in ARMS else NOTHING)
    found.record["question"] = ASKED  # type: ignore[index]
    return found


NOTHING = dict.fromkeys(("paper", "paper-sparse", "matmul"), 0.0)


@pytest.mark.parametrize(("ratio", "equal"), [(1.0, True), (1.019, True), (1.021, False), (1.6, False)])
def test_arms_are_equal_within_two_percent_by_the_count_of_their_budget(ratio: float, equal: bool) -> None:
    found = priced(rtd=ratio, bert_mlm=1.0)
    suffix = "" if equal else " (not at equal compute: every run got 60 steps)"
    question = ASKED if equal else "What does each step from BERT to ELECTRA buy?" + suffix
    assert spending.question(found) == question
    assert spending.compute_text(found).startswith(
        "equal: " if equal else f"not equal: FLOPs (paper) of one arm are up to {ratio:.2f}"
    )
    found = replace(found, runs=found.runs.assign(convention="matmul"))
    assert spending.question(found) == ASKED and "(matmul)" in spending.compute_text(found)


def test_one_arm_and_no_finished_run_are_asked_plainly() -> None:
    found = priced(rtd=1.0, bert_mlm=1.0)
    found.runs.loc[found.runs["arm"] == "rtd", "state"] = "interrupted"
    assert spending.question(found) == "What does each step from BERT to ELECTRA buy?"
    found = replace(found, runs=found.runs.assign(state="new"))
    assert (
        spending.question(found) == "What does each step from BERT to ELECTRA buy?"
        and spending.compute_text(found) == ""
    )


def test_arms_with_budgets_of_their_own_are_not_at_equal_compute() -> None:
    found = priced(rtd=1.0, bert_mlm=1.0)
    found.runs.loc[found.runs["arm"] == "rtd", "budget"] = "30 steps"
    assert spending.question(found).endswith("(not at equal compute: no two arms had one budget)")


@pytest.mark.parametrize("same", [True, False])
def test_a_report_says_equal_only_where_it_is(same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The word is absent from title, heading, sections, captions, figure and tables if compute differs.

    Sentences that deny equality are not counted.
    """
    if same:
        monkeypatch.setattr(made, "COST", {})
    store, name = made.study(tmp_path / "runs", made.noisy(made.LEVELS), arms=made.ARMS, budgets=(30, 60), seeds=3)
    page = write(store, name, tmp_path / "out")
    tree = parsed.page(page)
    title = tree.find("title")[0].text
    heading = tree.find("p")[0].text.removesuffix(tree.find("p")[0].find("span")[0].text).strip()
    assert title == f"ablation: {heading}"
    if same:
        assert heading == ASKED
        return
    assert heading.endswith("buy? (not at equal compute: every run got 30 steps and 60 steps)")
    texts = [
        page.read_text(),
        *(path.read_text() for path in page.parent.glob("*.csv")),
        (page.parent / "compute.svg").read_text(),
    ]
    assert len(texts) > 5
    for text in texts:
        text = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
        text = re.sub(r"\bnot (at )?equal( compute)?\b", "", text, flags=re.IGNORECASE)
        assert not re.search(r".{40}equal.{20}", text, flags=re.IGNORECASE), re.search(
            r".{40}equal.{20}", text, flags=re.IGNORECASE
        )
