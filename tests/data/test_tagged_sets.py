"""The files of a set of tagged sentences, also in the hub's Parquet layout, and which sentences are trained on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from workbench import tasks
from workbench.data import tagged_sets
from workbench.data.tagged_sentences import Sentence
from workbench.data.tagged_sets import files_of, holds_set, labels_of, sides, title
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks.tagging import Tagging

WNUT = "news24train.conll upcoming.dev.conll upcoming.test=a upcoming.test.conll upcoming.test.annotated README.md"


def folder(path: Path, names: str) -> Path:
    """Write the named files: NAME holds one tagged word, and NAME=TEXT holds the text."""
    path.mkdir(exist_ok=True)
    for name, _, text in (each.partition("=") for each in names.split()):
        (path / name).write_text(f"{text or 'a O'}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("names", "asked", "parts", "name"),
    [
        ("eng.train eng.testa eng.testb README", "", "eng.train eng.testa eng.testb", "eng"),
        ("eng.train eng.testa eng.testb ned.train", "eng.testb", "eng.train eng.testa eng.testb", "eng"),
        ("train.txt valid.txt test.txt", "", "train.txt valid.txt test.txt", "set"),
        ("ddt.train.conllu.gz ddt.dev.conllu ddt.test.conllu", "ddt.dev.conllu",
         "ddt.train.conllu.gz ddt.dev.conllu ddt.test.conllu", "ddt"),
        ("xx-ud-train.conllu xx-ud-dev.conllu xx-ud-train.txt LICENSE.txt", "",
         "xx-ud-train.conllu xx-ud-dev.conllu", "xx-ud"),
        ("wnut17train.conll emerging.dev.conll emerging.test.annotated README.md", "",
         "wnut17train.conll emerging.dev.conll emerging.test.annotated", "set"),
        (WNUT, "", "news24train.conll upcoming.dev.conll upcoming.test.annotated", "set"),
        (WNUT, "upcoming.dev.conll", "news24train.conll upcoming.dev.conll upcoming.test.annotated", "set"),
        (WNUT, "news24train.conll", "news24train.conll upcoming.dev.conll upcoming.test.annotated", "set"),
        (WNUT, "upcoming.test.conll", "news24train.conll upcoming.dev.conll upcoming.test.conll", "set"),
        ("a.train.conll a.dev.conll a.test a.test.conll a.test.gold", "",
         "a.train.conll a.dev.conll a.test.gold", "set"),
        ("a.train.conll a.dev.conll a.test.conll a.test.gold", "a.train.conll",
         "a.train.conll a.dev.conll a.test.gold", "set"),
        ("a.train.conll a.dev.conll a.test.conll a.test.gold", "a.test.conll",
         "a.train.conll a.dev.conll a.test.conll", "a"),
        ("n-train.iob2 n-test.iob2 n-test.gold.iob2 n-test.pred.iob2", "", "n-train.iob2 - n-test.gold.iob2", "set"),
        ("n-train.iob2 n-dev.iob2 n-test-news.iob2 m-test-web.iob2", "",
         "n-train.iob2 n-dev.iob2 n-test-news.iob2", "set"),
        ("x.train.conll x.val.conll latest.conll contest.conll", "", "x.train.conll x.val.conll", "x"),
        ("x.train.conll x.val.conll latest.conll", "x.val.conll", "x.train.conll x.val.conll", "x"),
        ("train.conll test.conll .test.conll ._train.conll train.conll~", "", "train.conll - test.conll", "set"),
        ("ner_train.bio latesttrain.md devel.bio thetest.bio thetest.py", "",
         "ner_train.bio devel.bio thetest.bio", "set"),
        ("thetrain.txt devset.txt testing.txt train.py=import_a", "", "thetrain.txt devset.txt testing.txt", "set"),
    ],
)  # fmt: skip
def test_files_of_a_set_are_found(names: str, asked: str, parts: str, name: str, tmp_path: Path) -> None:
    files = files_of(folder(tmp_path / "set", names) / asked)
    given = zip(("train", "dev", "test"), parts.split(), strict=False)
    assert {part: file.name for part, file in files.items()} == {part: file for part, file in given if file != "-"}
    assert title(files) == name


def test_files_of_a_part_that_are_not_read_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files_of(folder(tmp_path / "set", WNUT))
    unread = "README.md, upcoming.test, upcoming.test.conll are not read, but train: news24train.conll, dev: upc"
    assert unread in caplog.text
    path = folder(tmp_path / "other", "a.train.conll a.dev.conll b.conll .a.dev.conll")
    (path / "more").mkdir()
    files_of(path)
    unread = ".a.dev.conll, b.conll, more are not read, but train: a.train.conll, dev: a.dev.conll"
    assert f"{path}: {unread}" in caplog.text


def test_sets_with_other_names_are_not_mixed(tmp_path: Path) -> None:
    path = folder(tmp_path / "set", "eng.testa eng.testb ned.train")
    assert files_of(path / "eng.testa") == {"dev": path / "eng.testa", "test": path / "eng.testb"}


def test_a_file_that_is_no_part_stands_for_itself(tmp_path: Path) -> None:
    path = folder(tmp_path / "set", "some.v2.conll other.conll") / "some.v2.conll"
    assert files_of(path) == {"": path} and title({"": path}) == "some.v2"
    alone = folder(tmp_path / "alone", "x-train.bio")
    assert files_of(alone) == files_of(alone / "x-train.bio") == {"": alone / "x-train.bio"}
    assert title(files_of(alone)) == "x"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("a-train.conllu b-test.conllu", "holds several sets"),
        ("train.conll train.conll.gz test.conll", "train.conll and train.conll.gz are the same part of a set"),
        ("atrain.conll btrain.conll b.test.conll", r"atrain.conll and btrain.conll .* \(train\); .* tag:.*/atrain.c"),
        ("train1.conll b1test.conll b2test.conll", r"b1test.conll and b2test.conll .* \(test\); .* tag:.*/b1test.c"),
        ("btrain.conll b.test.gold b.test.annotated", r"b.test.annotated and b.test.gold are the same part"),
        ("n-train.bio n-dev.bio n-test-news.bio n-test-web.bio", "n-test-news.bio and n-test-web.bio are the same pa"),
        ("notes.txt", "no file in this folder has a name that ends in train, dev or test"),
    ],
)
def test_what_could_be_several_sets_is_refused(names: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        files_of(folder(tmp_path / "set", names))


def test_a_folder_is_a_set_by_its_endings(tmp_path: Path) -> None:
    assert holds_set(folder(tmp_path / "a", "any.conllu")) and holds_set(folder(tmp_path / "b", "x.bio y.test.bio"))
    assert not holds_set(folder(tmp_path / "c", "train.txt")) and not holds_set(folder(tmp_path / "d", "x.bio y.bio"))


def test_a_single_file_is_divided_by_its_words_and_copies_stay_together() -> None:
    rows = [Sentence((f"w{n % 50}",), ("A",)) for n in range(200)]
    parts = sides(Path("x"), {"": rows})
    assert list(parts) == ["train", "test"] and sum(map(len, parts.values())) == 200
    assert not {each.words for each in parts["train"]} & {each.words for each in parts["test"]}
    assert sides(Path("x"), {"dev": rows, "test": rows[:1]}) == {"train": rows, "test": rows[:1]}
    for wrong in ({"train": rows}, {"test": rows}, {"train": [], "dev": rows}):
        with pytest.raises(InputError, match="too few sentences to train and to test on"):
            sides(Path("x"), wrong)


def tagged(*tags: str) -> Sentence:
    return Sentence(("a",) * len(tags), tags)


def test_labels_of_training_come_first() -> None:
    parts = {"train": [tagged("C", "A")], "test": [tagged("B", "A", "AA")]}
    assert labels_of(Path("x"), parts) == ("A", "C", "AA", "B")


def test_a_column_of_too_many_tags_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagged_sets, "MOST_TAGS", 3)
    parts = {"train": [tagged("A", "B"), tagged("C", "A")], "test": [tagged("D")]}
    assert labels_of(Path("x"), parts) == ("A", "B", "C", "D")
    with pytest.raises(InputError, match=r"--tasks x: the training words have 4 different tags, such as 'A', and 3 a"):
        labels_of(Path("x"), {"train": [tagged("A", "B"), tagged("C", "D")], "test": [tagged("A")]})


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
