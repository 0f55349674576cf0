"""The files of a set of tagged sentences, and which sentences are trained on."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.data import tagged_sets
from workbench.data.tagged_sentences import Sentence
from workbench.data.tagged_sets import files_of, holds_set, labels_of, sides, title
from workbench.errors import InputError

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


def test_labels_of_training_come_first() -> None:
    assert labels_of(Path("x"), [["C", "A"]], [["B", "A", "AA"]]) == ("A", "C", "AA", "B")


def test_a_column_of_too_many_tags_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagged_sets, "MOST_TAGS", 3)
    assert labels_of(Path("x"), [("A", "B"), ("C", "A")], [("D",)]) == ("A", "B", "C", "D")
    with pytest.raises(InputError, match=r"--tasks x: the training words have 4 different tags, such as 'A', and 3 a"):
        labels_of(Path("x"), [("A", "B"), ("C", "D")], [("A",)])
