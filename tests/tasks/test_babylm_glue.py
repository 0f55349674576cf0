"""BabyLM's fine-tuning tasks are read from its files, with its way of forming texts, or refused in one sentence."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from workbench import tasks
from workbench.errors import InputError
from workbench.spec import scoring
from workbench.spec.parts import TasksSpec
from workbench.tasks import babylm_glue
from workbench.tasks.common.examples import Task

MNLI = [{"premise": f"p {i}", "hypothesis": f"h {i}", "label": i % 3, "idx": i} for i in range(6)]


def put(folder: Path, **parts: list[dict[str, Any]]) -> Path:
    for name, rows in parts.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name.replace('__', '.')}.jsonl").write_text(text)
    return folder


def task_of(folder: Path, name: str) -> Task:
    suite = babylm_glue.load([name], TasksSpec(babylm=str(folder)))
    (found,) = suite.tasks
    assert not suite.missing and isinstance(found, Task)
    return found


def test_texts_and_labels_are_those_of_the_files(tmp_path: Path) -> None:
    folder = put(tmp_path, mnli__valid=MNLI[:2])
    rows = "".join(json.dumps(row) + "\n" for row in MNLI)
    (folder / "mnli.train.jsonl.xz").write_bytes(lzma.compress(rows.encode()))
    found = task_of(folder, "babylm:mnli")
    assert found.name == "babylm:mnli" and found.labels == ("0", "1", "2") and found.epochs == 10
    assert found.train.first[1] == "p 1" and found.train.second[4] == "h 4" and found.train.targets == [0, 1, 2] * 2
    assert list(found.tests) == ["valid"] and len(found.tests["valid"]) == 2


def test_templates_are_those_of_the_pipeline(tmp_path: Path) -> None:
    wsc = {"text": "Mark told Pete lies. He lied.", "span1_text": "Mark", "span2_text": "He", "label": 1}
    rc = {"paragraph": "A text.", "question": "Who?", "answer": "Ann {x}", "label": 0}
    folder = put(tmp_path, wsc__train=[wsc], wsc__valid=[wsc], multirc__train=[rc], multirc__valid=[rc])
    found = task_of(folder, "babylm:wsc")
    assert found.train.first == ['Does "He" refer to "Mark" in this passage?'] and found.epochs == 30
    assert found.train.second == ["Mark told Pete lies. He lied."]
    assert task_of(folder, "babylm:multirc").train.first == ["Question: Who? Answer: Ann {x}"]


def test_what_cannot_be_read_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--set tasks\.babylm=DIR"):
        babylm_glue.load(["babylm"], TasksSpec())
    with pytest.raises(
        InputError, match=r"task babylm:rte is not available: no rte\.train\.jsonl or rte\.valid\.jsonl"
    ):
        babylm_glue.load(["babylm:rte"], TasksSpec(babylm=str(tmp_path)))
    with pytest.raises(InputError, match="no boolq"):
        babylm_glue.load(["babylm"], TasksSpec(babylm=str(tmp_path)))
    with pytest.raises(InputError, match="did you mean 'mnli'"):
        tasks.load(TasksSpec(names=("babylm:mnly",), babylm=str(tmp_path)))
    put(tmp_path, mnli__train=MNLI, mnli__valid=[MNLI[0] | {"label": 3}])
    with pytest.raises(InputError, match=r"mnli\.valid\.jsonl, line 1: label 3 is not a number from 0 to 2"):
        babylm_glue.load(["babylm:mnli"], TasksSpec(babylm=str(tmp_path)))
    put(tmp_path, mnli__valid=[{"premise": "p", "label": 1}])
    with pytest.raises(InputError, match="'hypothesis' holds no text"):
        babylm_glue.load(["babylm:mnli"], TasksSpec(babylm=str(tmp_path)))


def test_its_scores_are_never_called_glue() -> None:
    assert scoring.score_label("babylm", ["babylm:mnli"]) == "babylm:mnli"
    assert "GLUE" not in scoring.score_label("babylm", [f"babylm:{name}" for name in babylm_glue.ROWS])


def test_the_real_sample_has_the_rows_that_babylm_expects(real_data: Path) -> None:
    folder = real_data / "glue_babylm"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    suite = babylm_glue.load(["babylm"], TasksSpec(babylm=str(folder)))
    assert "boolq.train.jsonl" in suite.missing["babylm:boolq"]  # it has no training rows there
    sizes = {task.name: (len(task.train), len(task.tests["valid"])) for task in suite if isinstance(task, Task)}
    assert sizes == {"babylm:mnli": (10_000, 4908), "babylm:wsc": (554, 52)}
