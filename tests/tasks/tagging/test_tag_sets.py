"""Sets of tagged sentences: what is unusual is counted, and what is unseen is an error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tagged_made import CPU, SPEC, load, task_of

from workbench import tasks
from workbench.spec.parts import TasksSpec
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.examples import Tagged
from workbench.tasks.tagging import Tagging, fingerprinted


def test_what_is_unusual_is_counted_and_named(tmp_path: Path) -> None:
    (tmp_path / "xx-train.conll").write_text("a O\nb B-X\n\nc I-X\nd O\n\n# sent_id = 3\n\n", encoding="utf-8")
    (tmp_path / "xx-test.conll").write_text("a O\nb B-X\n\ne B-Y\nf I-Y\ng I-X\n\n", encoding="utf-8")
    task = load(tmp_path / "xx-train.conll")
    assert task.notes == (
        "xx-test.conll, first at line 6: 1 tag does not follow IOB2 (I-X), read as conlleval reads them",
        "xx-train.conll, first at line 7: 1 sentence without words, left out",
        "xx-train.conll, first at line 4: 1 tag does not follow IOB2 (I-X), read as conlleval reads them",
        "xx-test.conll, first at line 4: 2 words of test have tags that no training word has (B-Y, I-Y), counted as "
        "errors",
        "xx-test.conll, first at line 1: 1 of 2 sentences of test is also a training sentence, word by word",
    )
    assert task.labels == ("B-X", "O", "B-Y", "I-Y") and task.known == 2
    assert sum(map(len, task.tests["test"].targets)) == 5  # the gold standard keeps every word


def test_a_dev_file_that_is_trained_on_is_named(tmp_path: Path) -> None:
    (tmp_path / "xx-dev.conll").write_text("a O\nb B-X\n\n", encoding="utf-8")
    (tmp_path / "xx-test.conll").write_text("c O\nb B-X\n\n", encoding="utf-8")
    assert load(tmp_path / "xx-dev.conll").notes == ("xx-dev.conll is trained on, as there is no training file",)
    (tmp_path / "xx-train.conll").write_text("d O\nb B-X\n\n", encoding="utf-8")
    assert load(tmp_path / "xx-dev.conll").notes == ()


def test_tags_that_training_lacks_are_errors(encoder: Path) -> None:
    task = task_of(100, 5)
    unseen = Tagged(task.tests["test"].words, [[5] * len(words) for words in task.tests["test"].words])
    with_unseen = fingerprinted(replace(task, labels=(*task.labels, "ZZ"), tests={"test": unseen}), SPEC)
    score = take(with_unseen, Model(encoder, SPEC, 0), CPU)
    assert score.value == 0.0 and " ZZ ZZ" not in score.files[".test.conll"]


@pytest.mark.parametrize(
    ("name", "labels", "lookup"),
    [("ud_czech_cltt", 15, 85.0), ("ud_danish_ddt", 16, 78.6), ("uner_danish_ddt", 7, 38.3)],
)
def test_real_sentences(name: str, labels: int, lookup: float, real_data: Path, encoder: Path, tmp_path: Path) -> None:
    if not (real_data / name).is_dir():
        pytest.skip("the tagged sentences are not here")
    spec = SPEC.model_copy(update={"names": (f"tag:{real_data / name}",), "rows": 40, "epochs": 1.0})
    (task,) = tasks.load(spec, tmp_path).tasks
    assert isinstance(task, Tagging) and task.known == labels
    full = load_baseline(task, spec, tmp_path, real_data / name)
    assert full == pytest.approx(lookup, abs=0.1)
    few = fingerprinted(replace(task, tests={"test": task.tests["test"].take(list(range(30)))}), spec)
    score = take(few, Model(encoder, spec, 0), CPU)
    assert score.test_rows == few.tests["test"].count() == sum(len(words) for words in few.tests["test"].words)


def load_baseline(task: Tagging, spec: TasksSpec, cache: Path, path: Path) -> float:
    """Return the look-up's score with all training sentences."""
    (whole,) = tasks.load(spec.model_copy(update={"rows": None, "names": (f"tag:{path}",)}), cache).tasks
    return whole.baselines()["word-lookup"]
