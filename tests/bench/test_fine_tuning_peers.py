"""The other sides of the fine-tuning benchmarks learn the same answers, and are scored on the same questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import squad_files

from workbench.data import tokenizer
from workbench.tasks._squad_answers import answerable_metrics

BENCHMARKS = Path(__file__).parents[2] / "experiments" / "benchmarks"


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_labels_of_windows_are_the_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dynamic: bool) -> None:
    """Logits that are largest at the labels give every answer back, also from paragraphs of several windows."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import squad
    from transformers import AutoTokenizer

    task, spec = squad_files.task_of(tmp_path / "squad", longest=60, squad_length=48, squad_stride=10)
    (tmp_path / "words").mkdir()
    tokenizer.save(tokenizer.train(task.train.paragraphs, 200), tmp_path / "words", True)
    windows, places = squad.encoded(AutoTokenizer.from_pretrained(tmp_path / "words"), task.train, spec, dynamic)
    assert len(windows) > len(task.train)
    assert {len(window["input_ids"]) for window in windows} == {48} or dynamic

    def logits(key: str) -> Any:
        made = np.zeros((len(windows), 48))
        for row, window in enumerate(windows):
            made[row, window[key]] = 5.0 if window[key] else 0.0  # no answer at 0, where there is none in the window
        return made

    found = squad.searched(task.train, places, logits("start_positions"), logits("end_positions"))
    assert answerable_metrics(task.train, found) == {"f1": 100.0, "exact": 100.0}


def test_only_known_sides_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import side_by_side

    sides = {"ours": float, "one": float, "other": float}
    assert list(side_by_side.chosen_sides(sides, None)) == ["ours", "one", "other"]
    assert list(side_by_side.chosen_sides(sides, ["other"])) == ["ours", "other"]
    with pytest.raises(SystemExit, match="--peer none is none of one, other"):
        side_by_side.chosen_sides(sides, ["none"])
