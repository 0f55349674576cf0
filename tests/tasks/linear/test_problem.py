"""Linear probes as plain data: which rows they are fitted to."""

from __future__ import annotations

import pytest
from toy_probes import SPEC, tagger

from workbench.tasks.linear import problem
from workbench.tasks.linear.problem import fingerprinted
from workbench.tasks.task import Tagged


def test_rows_are_capped_and_held_out_by_content() -> None:
    whole = tagger()
    small = fingerprinted(whole, SPEC.model_copy(update={"rows": 30}))
    assert len(small.train) == 30 and small.tests == whole.tests and small.fingerprint != whole.fingerprint
    asked = fingerprinted(whole, SPEC.model_copy(update={"held_out": 0.25}))
    assert list(asked.tests) == ["held-out"] and len(asked.tests["held-out"]) == 30 and len(asked.train) == 90


def test_no_more_words_are_learnt_from_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem, "ROWS", 100)
    train = fingerprinted(tagger(), SPEC).train
    assert isinstance(train, Tagged) and 80 < train.count() <= 100
