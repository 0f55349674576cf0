"""Tagging as plain data: what its name follows, and which sentences are held out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tagged_made import SPEC, by_end, load, task_of

from workbench import tasks
from workbench.tasks.common.contract import expected


def test_settings_that_change_a_score_change_its_name() -> None:
    task = task_of(20, 7)
    names = {
        name
        for spec in (SPEC, SPEC.model_copy(update={"lr": 1e-4}), SPEC.model_copy(update={"lm_weight": 0.5}))
        for _, _, name in expected(tasks.Suite((task,)), spec)
    }
    assert len(names) == 2 * SPEC.seeds  # lm_weight concerns texts


def test_rows_and_held_out_sentences_are_chosen_once_for_all(folder: Callable[..., Path]) -> None:
    path = folder(by_end)
    few, all_rows = (load(path, SPEC.model_copy(update={"rows": rows})) for rows in (50, None))
    assert len(few.train) == 50 and few.tests == all_rows.tests and few.fingerprint != all_rows.fingerprint
    assert load(path, SPEC.model_copy(update={"rows": 50})) == few
    aside = load(path, SPEC.model_copy(update={"held_out": 0.2}))
    assert [(part, len(rows)) for part, rows in aside.tests.items()] == [("held-out", 40)] and len(aside.train) == 160
    assert sorted(aside.train.words + aside.tests["held-out"].words) == sorted(all_rows.train.words)
