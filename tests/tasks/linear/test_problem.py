"""Linear probes as plain data: which rows they are fitted to."""

from __future__ import annotations

import pytest
from toy_probes import SPEC, tagger

from workbench.tasks import linear_probe
from workbench.tasks.common.examples import Tagged
from workbench.tasks.linear_probe import fingerprinted


def test_rows_are_capped_and_held_out_by_content() -> None:
    whole = tagger()
    small = fingerprinted(whole, SPEC.model_copy(update={"rows": 30}))
    assert len(small.train) == 30 and small.tests == whole.tests and small.fingerprint != whole.fingerprint
    asked = fingerprinted(whole, SPEC.model_copy(update={"held_out": 0.25}))
    assert list(asked.tests) == ["held-out"] and len(asked.tests["held-out"]) == 30 and len(asked.train) == 90


def test_no_more_words_are_learnt_from_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_probe, "ROWS", 100)
    train = fingerprinted(tagger(), SPEC).train
    assert isinstance(train, Tagged) and 80 < train.count() <= 100
