"""Zorro's text files: which of two lines is right, paradigms and phenomena, and files that are not read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from workbench import tasks
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks import minimal_pairs
from workbench.tasks.minimal_pairs import PairSet


def test_a_folder_of_zorro_is_a_task_by_paradigm_and_phenomenon(tmp_path: Path) -> None:
    folder = tmp_path / "babyberta"
    folder.mkdir()
    (folder / "irregular-verb.txt").write_text("Mark seen it .\nMark saw it .\nMark had saw it .\nMark had seen it .\n")
    (folder / "filler-gap-wh_question_object.txt.gz").write_bytes(gzip.compress(b"who it is .\nwhat it is .\n"))
    (folder / "filler-gap-wh_question_subject.txt").write_text("he saw who is .\nhe saw it is .\n")
    (folder / "README.txt").write_text("odd\n")
    (task,) = tasks.load(TasksSpec(names=str(folder))).tasks
    assert isinstance(task, PairSet) and (task.name, task.suite) == ("babyberta", "minimal-pairs")
    assert task.good == ("what it is .", "he saw it is .", "Mark saw it .", "Mark had seen it .")
    assert task.bad == ("who it is .", "he saw who is .", "Mark seen it .", "Mark had saw it .")
    paradigms = ("filler-gap-wh_question_object", "filler-gap-wh_question_subject", *["irregular-verb"] * 2)
    assert task.groups == {"paradigm": paradigms, "phenomenon": (*["filler-gap"] * 2, *["irregular"] * 2)}
    assert len(minimal_pairs.PHENOMENA) == 23 and len(set(minimal_pairs.PHENOMENA.values())) == 13


def test_files_of_other_names_are_not_read(tmp_path: Path) -> None:
    """Their lines may be in the other order, as in Zorro's earlier versions."""
    (tmp_path / "agreement_between_neighbors.txt").write_text("this house .\nthis houses .\n")
    with pytest.raises(
        InputError, match=r"are no JSON lines of minimal pairs .*\.txt files are read only if they have"
    ):
        minimal_pairs.load_path(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a .\nb .\nc .\n", r"irregular-verb\.txt has an odd number of lines; of each two lines the first is wrong"),
        ("a .\n\nc .\nd .\n", r"irregular-verb\.txt, line 1: 'sentence_good' holds no text"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "irregular-verb.txt").write_text(text)
    with pytest.raises(InputError, match=said):
        minimal_pairs.load_path(str(tmp_path))
