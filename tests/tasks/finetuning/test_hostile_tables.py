"""Tables that would fill memory, or keep a processor busy for hours, are refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workbench import progress
from workbench.data import formats
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks import rows
from workbench.tasks.baselines import bag_of_words
from workbench.tasks.finetuning import table


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        table.load(path, TasksSpec())
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    return str(caught.value)


def labelled(path: Path, count: int) -> Path:
    """Write a table with two training rows and one test row for each label."""
    lines = [f"text {n} of {part},L{n},{part}" for n in range(count) for part in ("train", "train", "dev")]
    path.write_text("\n".join(["text,label,split", *lines]))
    return path


def test_more_labels_than_a_head_can_have(tmp_path: Path) -> None:
    said = refused(labelled(tmp_path / "t.csv", 1001))
    assert "1,001 different labels in 2,002 rows to train on" in said and "tasks.kind=regression" in said
    task = table.load(labelled(tmp_path / "t.csv", 1000), TasksSpec())
    assert len(task.labels) == 1000 and [task.labels[target] for target in task.train.targets[:3]] == ["L0", "L0", "L1"]


def test_fitting_a_baseline_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    bag_of_words(table.load(labelled(tmp_path / "t.csv", 5), TasksSpec()))
    assert "fitting a bag of words, 5 outputs, steps: 0 of 200" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_binary_is_no_table(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"t.{kind}"
    path.write_bytes(b"text,label\nword\0,1\n")
    assert "NUL at byte 15" in refused(path)
    path.write_bytes("text\tlabel\n".encode("utf-16-le"))
    assert "UTF-16" in refused(path)


def test_binary_and_endless_fields_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a\\u0000b", "label": 1}\n')
    assert "line 1: column 'text' holds a NUL" in refused(path)
    path.write_text('{"text": "' + "a " * (rows.LONGEST // 2) + 'b", "label": 1}\n')
    assert "line 1: column 'text' holds 1,048,577 characters, more than 1,048,576" in refused(path)


def test_a_label_is_text(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a", "label": "\\ud800"}\n')
    assert "line 1: the label holds half of a surrogate pair" in refused(path)


def test_a_table_has_to_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = labelled(tmp_path / "t.csv", 2)
    monkeypatch.setattr(rows, "LARGEST", 50)
    assert "bytes; a table may have at most 50" in refused(path)


def test_a_parquet_table_that_unpacks_to_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    texts = ["a " * 200_000 + str(n) for n in range(20)]
    pq.write_table(pa.table({"text": texts, "label": [0, 1] * 10}), path, compression="zstd", use_dictionary=False)
    monkeypatch.setattr(formats, "FREE", 1 << 20)
    assert "decompresses to 7 MiB in 20 rows of column 'text'" in refused(path)
