"""Tables that would fill memory, or keep a processor busy for hours, are refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from refused_tables import labelled, refused

from workbench import progress
from workbench.spec.parts import TasksSpec
from workbench.tasks import table
from workbench.tasks.common.baselines import bag_of_words


def test_more_labels_than_a_head_can_have(tmp_path: Path) -> None:
    said = refused(labelled(tmp_path / "t.csv", 1001))
    assert "1,001 different labels in 2,002 rows to train on" in said and "tasks.kind=regression" in said
    task = table.read(labelled(tmp_path / "t.csv", 1000), TasksSpec())
    assert len(task.labels) == 1000 and [task.labels[target] for target in task.train.targets[:3]] == ["L0", "L0", "L1"]


def test_fitting_a_baseline_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    bag_of_words(table.read(labelled(tmp_path / "t.csv", 5), TasksSpec()))
    assert "fitting a bag of words, 5 outputs, steps: 0 of 200" in capsys.readouterr().err


def test_a_label_is_text(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a", "label": "\\ud800"}\n')
    assert "line 1: the label holds half of a surrogate pair" in refused(path)
