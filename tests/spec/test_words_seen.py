"""Budgets in words: what plans make of them, and what rows of training really hold."""

from __future__ import annotations

import logging
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from workbench.data.corpus import Corpus
from workbench.data.prepare import bind, prepare
from workbench.errors import InputError
from workbench.execution import study
from workbench.execution.study import Job, check_epochs, job_of
from workbench.progress import silent
from workbench.spec import presets
from workbench.spec.experiment import grid
from workbench.spec.run_spec import RunSpec
from workbench.training import plan

COUNTS = {"data.words": 60_000, "data.tokens": 100_000}


def spec_of(**changes: Any) -> RunSpec:
    given = {key.replace("__", "."): value for key, value in changes.items()}
    return presets.resolve("nano", COUNTS | {"budget.words": 1e5} | given)


def job_for(base: RunSpec, match: str | None = None) -> Job:
    return job_of(grid("ablation", {}, match, base), base, 1, ["rtd", "bert-mlm"])


def test_a_step_sees_the_words_of_its_rows() -> None:
    """A row of 32 tokens holds 30 of the text, six tenths of which are words: 18; a step of 32 rows sees 576."""
    spec = spec_of()
    assert (spec.data.length, spec.batch.size) == (32, 32)
    assert spec.data.words_of(32 * 32) == 576
    made = plan.plan(spec)
    assert (made.steps, made.words) == (173, 173 * 576) and made.epochs == pytest.approx(173 * 576 / 60_000)


def test_words_of_rows_are_those_of_the_text(tmp_path: Path) -> None:
    """Over one epoch of a text whose words are single tokens, rows hold the words that a plan says."""
    words = ["ada", "bob", "cat", "dog"]
    text = "\n\n".join(" ".join(words[(i * k + i) % 4] for k in range(11)) for i in range(400))
    (tmp_path / "small.train").write_text(text)
    base = spec_of(data__corpus=(str(tmp_path / "small.train"),), encoder__vocab=200, data__words=0, data__tokens=0)
    prepared = prepare(base, silent, tmp_path / "cache")
    spec = bind(base, prepared)
    assert (spec.data.words, prepared.sources) == (4400, {"small.train": 4400})

    corpus = Corpus(prepared, spec.data.length, 0)
    ids = corpus.batch(0, corpus.rows).ids
    seen = int((ids >= 5).sum())  # neither [CLS] nor [SEP]
    told = spec.data.words_of(corpus.rows * spec.data.length)
    assert told == pytest.approx(seen, rel=0.005)
    assert told / spec.data.words == pytest.approx(1, rel=0.01)


def test_a_budget_in_words_is_matched_in_flops_or_in_words() -> None:
    base = spec_of()
    runs, (match,) = job_for(base).priced
    assert match.unit == "flops" and match.given == "words=100000"
    assert runs[0][1].steps == 173 and runs[0][1].flops["matmul"] == pytest.approx(runs[1][1].flops["matmul"], rel=0.02)
    assert runs[0][1].words != runs[1][1].words
    runs, (match,) = job_for(base, "words").priced
    assert match.unit == "words" and [priced.steps for _, priced in runs] == [173, 173]


def test_other_budgets_are_matched_in_words() -> None:
    runs, (match,) = job_for(spec_of(budget__words=None, budget__steps=50), "words").priced
    assert match.amount == pytest.approx(50 * 576) and [priced.steps for _, priced in runs] == [50, 50]


def test_a_parent_pays_its_share_of_the_words() -> None:
    spec = spec_of(schedule__kind="wsd", start={"parent": {"schedule.kind": "constant"}, "share": 0.5})
    made = plan.plan(spec)
    parent = made.parent
    assert parent is not None and parent["steps"] == 86 and made.steps == 173
    assert made.words == 173 * 576


def test_words_must_be_counted_first() -> None:
    with pytest.raises(InputError, match="not known before the text is prepared"):
        plan.plan(spec_of(data__words=0))
    unknown = plan.plan(spec_of(data__words=0, budget__words=None, budget__steps=3))
    assert unknown.words is None and unknown.epochs is None


def test_counts_and_the_field_for_words_leave_older_names_alone() -> None:
    old = presets.resolve("nano")
    assert old.name == presets.resolve("nano", COUNTS).name
    assert spec_of().name != spec_of(budget__words=2e5).name
    assert "words" not in old.identity()["budget"] and "words" in spec_of().identity()["budget"]


def test_more_epochs_than_babylm_allows_are_said_and_a_limit_refuses(caplog: pytest.LogCaptureFixture) -> None:
    few, many = (job_for(spec_of(budget__words=words), "words") for words in (5.99e5, 6.1e5))
    check_epochs(few, None)
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        check_epochs(many, None)
    assert "60,000 words of docs 10.17 times" in caplog.text and "challenge" in caplog.text
    check_epochs(many, 10.2)
    with pytest.raises(InputError, match="--most-epochs 9"):
        check_epochs(few, 9)


def test_exact_amounts_survive_the_way_through_floats() -> None:
    """What a run spends in words buys the same number of steps again, whatever the ratio."""
    for words in (59_999, 61_803, 33_333):
        spec = spec_of(data__words=words, budget__words=None, budget__steps=977)
        amount = study._spent(spec, "words")
        again = spec.replace(budget={"words": amount})
        assert plan.plan(again).steps == 977 and Fraction(amount) > 0
