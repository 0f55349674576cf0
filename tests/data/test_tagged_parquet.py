"""Tagged sentences in the hub's Parquet layout, written by the library datasets: the same task as from columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from workbench import tasks
from workbench.data import tagged_sets
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks.tagging import Tagging

TAGS = ["O", "B-PER", "I-PER", "B-LOC"]
ROWS = {
    "train": [(["Ann", "Lee", "saw", "Rome"], [1, 2, 0, 3]), (["-DOCSTART-"], [0]), (["it", "rains"], [0, 0])] * 4,
    "validation": [(["Bob", "slept"], [1, 0])],
    "test": [(["Eve", "left", "Oslo"], [1, 0, 3]), ([], []), (["now"], [0])],
}


@pytest.fixture
def hub(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a data set as the hub holds it."""
    from datasets import ClassLabel, Dataset, Features, Sequence, Value

    def made(place: Path = tmp_path / "copy", numbers: bool = True, named: bool = True) -> Path:
        tag = ClassLabel(names=TAGS) if named else Value("int64")
        for split, rows in ROWS.items():
            for shard, part in enumerate((rows[:1], rows[1:])):
                values = [tags if numbers else [TAGS[each] for each in tags] for _, tags in part]
                words, kind = [words for words, _ in part], tag if numbers else Value("string")
                kinds = Features({"tokens": Sequence(Value("string")), "ner_tags": Sequence(kind)})
                content = Dataset.from_dict({"tokens": words, "ner_tags": values}, features=kinds)
                file = place / "data" / f"{split}-{shard:05}-of-00002.parquet"
                file.parent.mkdir(parents=True, exist_ok=True)
                content.to_parquet(file)
        return place

    return made


def load(name: str, folder: Path | str | None = None) -> Tagging:
    (task,) = tasks.load(TasksSpec(names=(name,), tagging=str(folder) if folder else None)).tasks
    assert isinstance(task, Tagging)
    return task


def columns(folder: Path) -> Path:
    """Write the same sentences as CoNLL's columns."""
    folder.mkdir()
    for split, rows in ROWS.items():
        file = folder / f"{split.replace('validation', 'dev')}.txt"
        blocks = ["\n".join(f"{word} {TAGS[tag]}" for word, tag in zip(*row, strict=True)) for row in rows if row[0]]
        file.write_text("\n\n".join(blocks) + "\n")
    return folder


@pytest.mark.parametrize("numbers", [True, False])
def test_it_is_the_task_that_columns_give(hub: Callable[..., Path], numbers: bool, tmp_path: Path) -> None:
    task, same = load(f"tag:{hub(numbers=numbers)}"), load(f"tag:{columns(tmp_path / 'plain')}")
    assert (task.name, task.metric, task.scheme) == ("tag:copy", "entity_f1", same.scheme)
    assert (task.labels, task.train, task.tests) == (same.labels, same.train, same.tests)
    assert list(task.tests) == ["test", "dev"] and "1 sentence without words, left out" in " ".join(task.notes)


@pytest.mark.parametrize("name", ["ner-dane", "conll2003"])
def test_named_sets_are_read_from_a_copy(name: str, hub: Callable[..., Path], tmp_path: Path) -> None:
    task = load(name, hub())
    assert task.name == name and len(task.train) == 8
    assert load(name, hub(tmp_path / "sets" / name).parent).fingerprint == task.fingerprint
    assert tasks.local(TasksSpec(names=(name,), tagging=str(tmp_path / "sets")))


def test_a_named_set_is_read_by_its_name_on_the_hub(
    hub: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "datasets--someone--dane"
    commit = "0" * 40
    hub(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert len(load("ner-dane", "someone/dane").train) == 8
    assert not tasks.local(TasksSpec(names=("ner-dane",), tagging="someone/dane"))
    with pytest.raises(InputError, match=r"task ner-dane is not available: .*download from the hub failed"):
        load("ner-dane", "someone/else")


def test_the_layout_of_converted_sets_is_read_too(hub: Callable[..., Path], tmp_path: Path) -> None:
    """As in the hub's branch of converted data sets: CONFIGURATION/SPLIT/0000.parquet."""
    before = load(f"tag:{hub()}")
    for path in sorted((tmp_path / "copy/data").iterdir()):
        split, number = path.stem.split("-")[:2]
        target = tmp_path / "converted/plain" / split / f"{number[1:]}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    after = load(f"tag:{tmp_path / 'converted'}")
    assert (after.train, after.tests) == (before.train, before.tests)


def test_a_split_of_which_a_file_is_missing_is_refused(hub: Callable[..., Path]) -> None:
    folder = hub()
    (folder / "data/train-00001-of-00002.parquet").unlink()
    with pytest.raises(InputError, match=r"train-00001-of-00002\.parquet is missing, and train-00000-of-00002\.pa"):
        load(f"tag:{folder}")


def test_what_cannot_be_read_is_refused_with_its_place(hub: Callable[..., Path], tmp_path: Path) -> None:
    unnamed = hub(named=False)
    with pytest.raises(InputError, match=r"-00000-of-00002\.parquet, row 1: .* the number 1, and the file does not s"):
        load(f"tag:{unnamed}")
    with pytest.raises(InputError, match=r"has no column pos; its columns are tokens, ner_tags"):
        load(f"tag:{unnamed}#pos")
    with pytest.raises(InputError, match="name the folder of the data set"):
        load(f"tag:{unnamed / 'data/train-00000-of-00002.parquet'}")
    hub(tmp_path / "copy/other")
    with pytest.raises(InputError, match=r"holds several data sets \(data, other/data\)"):
        load(f"tag:{unnamed}")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"tokens": ["a"], "tags": ["O", "O"]}, "are not two lists of the same length"),
        ({"tokens": ["a", " "], "tags": ["O", "O"]}, "holds ' ', which is not a word"),
        ({"tokens": ["a"], "tags": [" "]}, "holds ' ', which is not a tag"),
    ],
)
def test_a_damaged_row_is_refused(row: dict[str, Any], told: str, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "train-00000-of-00001.parquet"
    pq.write_table(pa.Table.from_pylist([{"tokens": ["b"], "tags": ["B-X"]}, row]), path)
    with pytest.raises(InputError) as caught:
        tagged_sets.read_raw(path)
    assert told in str(caught.value) and f"{path}, row 2" in str(caught.value)
