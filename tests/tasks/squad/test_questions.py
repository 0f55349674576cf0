"""Questions as plain data: which rows are taken, and what their names follow."""

from __future__ import annotations

from pathlib import Path

import pytest
import squad_made
from squad_tasks import facts, load

from workbench.errors import InputError
from workbench.spec.parts import TasksSpec


def test_fewer_rows_and_a_part_held_out_are_the_same_each_time(tmp_path: Path) -> None:
    squad_made.write(tmp_path)
    whole = load("squad1", tmp_path)
    some = load("squad1", tmp_path, rows=20)
    assert len(some.train) == 20 and facts(some) == facts(load("squad1", tmp_path, rows=20))
    assert {row.id for row in some.train.rows} < {row.id for row in whole.train.rows}
    assert some.fingerprint != whole.fingerprint and len(some.tests["dev"]) == 48
    held = load("squad1", tmp_path, held_out=0.25)
    (test,) = held.tests.values()
    assert list(held.tests) == ["held-out"] and len(test) == 32 and len(held.train) == 96
    assert len(load("squad1", tmp_path, held_out=0.999).train) == 1  # not all are held out
    contexts = [{part.paragraphs[row.paragraph] for row in part.rows} for part in (held.train, test)]
    assert not contexts[0] & contexts[1]
    assert {row.id for row in held.train.rows} | {row.id for row in test.rows} == {row.id for row in whole.train.rows}


def test_settings_and_names_follow_what_changes_a_score(tmp_path: Path) -> None:
    task = load("squad1", squad_made.write(tmp_path))
    usual = task.settings(TasksSpec())
    assert usual["epochs"] == 2 and usual["length"] == 512 and usual["head"] == "joint" and usual["stride"] is None
    for words in ({"squad_head": "independent"}, {"squad_length": 128}, {"squad_stride": 64}, {"lr": 1e-5}):
        assert task.settings(TasksSpec(**words)) != usual
    for words in ({"squad": "x"}, {"seeds": 9}, {"length": 64}, {"glue": "x"}):
        assert task.settings(TasksSpec(**words)) == usual
    with pytest.raises(InputError, match=r"cannot be combined with tasks\.lm_weight=0\.5"):
        load("squad1", tmp_path, lm_weight=0.5)
