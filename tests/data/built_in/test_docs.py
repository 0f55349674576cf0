"""The built-in corpora: English out of docstrings, split without leaks, and Python files."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from workbench.data import built_in_text, sources
from workbench.data.built_in_text import Entry
from workbench.data.sources import BuiltIn
from workbench.errors import InputError
from workbench.spec.parts import DataSpec


@pytest.fixture(scope="module")
def sides(workbench_cache: Path) -> dict[str, list[Entry]]:
    return {"train": built_in_text.entries("train"), "test": built_in_text.entries("test")}


def test_the_corpus_is_large_english_of_all_packages(sides: dict[str, list[Entry]]):
    made = built_in_text.info()
    assert made.missing == () and set(made.packages) == set(built_in_text.PACKAGES)
    assert made.bytes["train"] > 8_000_000 and made.bytes["test"] > 600_000
    text = " ".join(entry.text for entry in sides["train"])
    common = Counter(re.findall(r"[a-z]+", text.lower()))
    assert {word for word, _ in common.most_common(8)} >= {"the", "of", "to", "a", "is"}
    assert sum(text.count(mark) for mark in (">>> ", "``", ":func:", ".. note")) < 200
    for side in sides.values():
        shares = Counter(entry.package for entry in side)
        assert set(shares) == set(built_in_text.PACKAGES) and min(shares.values()) > 200
    topics = {entry.name: entry for entry in sides["train"] if entry.module == "pydoc_data.topics"}
    assert "assignment" in topics and topics["assignment"].signature == ""


def test_no_module_is_on_both_sides_and_no_entry_twice(sides: dict[str, list[Entry]]):
    train, test = ({(entry.package, entry.module) for entry in side} for side in sides.values())
    assert not train & test
    texts = [" ".join(re.findall(r"\w+", entry.text.lower())) for entry in sides["train"] + sides["test"]]
    assert len(set(texts)) == len(texts)


def test_no_test_text_is_in_the_training_documents(sides: dict[str, list[Entry]]):
    """No eight words in a row, and no sentence of four words or more."""
    blob = " | ".join(" ".join(re.findall(r"\w+", document.lower())) for document in built_in_text.documents("train"))
    tokens = blob.split()
    eights = set(zip(*(tokens[i:] for i in range(8)), strict=False))
    sentences = []
    for entry in sides["test"]:
        for line in entry.text.split("\n"):
            found = re.findall(r"\w+", line.lower())
            assert not any(run in eights for run in zip(*(found[i:] for i in range(8)), strict=False)), line
            sentences += [" ".join(re.findall(r"\w+", part.lower())) for part in re.split(r"(?<=[.!?])\s", line)]
    sentences = [sentence for sentence in sentences if len(sentence.split()) >= 4]
    assert len(sentences) > 5000
    padded = f" {blob} "
    for sentence in random.Random(0).sample(sentences, 300):
        assert f" {sentence} " not in padded


def test_documents_are_the_modules(sides: dict[str, list[Entry]]):
    documents = list(built_in_text.documents("train"))
    assert len(documents) == len({(entry.package, entry.module) for entry in sides["train"]})
    first = sides["train"][0]
    assert documents[0].startswith("\n".join(line for line in (first.signature, first.text) if line))
    assert not any("\n\n" in document for document in documents)


def fake_packages(root: Path) -> dict[str, Path]:
    for number in range(40):
        folder = root / f"numpy/part{number % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"m{number}.py").write_text(f'"""Module number {number} says {"very " * number}much of itself."""')
    (root / "numpy/tests").mkdir()
    (root / "numpy/tests/m.py").write_text('"""A test module that must not be in the corpus."""')
    return {"numpy": root / "numpy"}


def test_order_and_content_do_not_depend_on_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files = built_in_text.source_files(fake_packages(tmp_path)) * 5
    many = built_in_text._extract(files)
    monkeypatch.setattr(built_in_text, "cores", lambda: 1)
    assert built_in_text._extract(files) == many
    assert [entry.module for entry in many] == [module for _, _, module in files]
    assert not any("tests" in entry.module for entry in many)


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    roots = fake_packages(tmp_path)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(built_in_text, "_root", roots.get)
    made = built_in_text.info()
    assert made.missing == ("python", "pandas", "matplotlib", "scipy", "torch")
    assert made.entries["train"] == sum(not built_in_text.is_test(f"numpy.part{n % 4}.m{n}") for n in range(40)) > 30
    assert built_in_text.info() == made
    monkeypatch.setattr(built_in_text, "_root", lambda package: None)
    with pytest.raises(built_in_text.InputError, match="'docs' is made of the sources of python, numpy"):
        built_in_text.entries("train")


@pytest.mark.parametrize(("name", "left"), [("info.json", b"{}"), ("train.jsonl", None)])
def test_a_damaged_corpus_is_made_again(
    tmp_path: Path, name: str, left: bytes | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    roots = fake_packages(tmp_path)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(built_in_text, "_root", roots.get)
    made, (path,) = built_in_text.info(), (tmp_path / "cache/docs").glob(f"[!.]*/{name}")
    whole = path.read_bytes()
    path.unlink()
    if left is not None:
        path.write_bytes(left)
    assert built_in_text.info() == made and path.read_bytes() == whole and str(path.parent) in caplog.text
    built_in_text._load.cache_clear()
    assert len(built_in_text.entries("train")) == made.entries["train"]


def test_shared_paragraphs_are_dropped_from_the_test_side():
    train = [Entry("p", "a", "f", "", "One two three four five six seven eight nine ten.\nReturns the mean value.")]
    shared = "Zero. one two three four five six seven eight and more."
    test = [
        Entry("p", "b", "f", "", f"A first paragraph of its own.\n{shared}\nA last one of its own."),
        Entry("p", "b", "g", "", f"{shared}\nThe rest goes too, without its beginning."),
        Entry("p", "b", "h", "", "Something else. Returns the mean value."),
        Entry("p", "b", "i", "", "Returns the mean value of something else."),
    ]
    kept = built_in_text._without_shared(test, train)
    assert [(entry.name, entry.text) for entry in kept] == [
        ("f", "A first paragraph of its own.\nA last one of its own."),
        ("i", "Returns the mean value of something else."),
    ]


def test_extraction_imports_nothing_of_the_packages(workbench_cache: Path, sides: dict[str, list[Entry]]):
    code = """
        import json, sys
        from workbench.data import built_in_text
        count = len(built_in_text.entries("train"))
        print(json.dumps([count, sorted({"torch", "numpy", "pandas", "scipy", "matplotlib"} & set(sys.modules))]))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [len(sides["train"]), []]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of 40 modules with a line of code each, and some files that are no text of the corpus."""
    root = tmp_path / "numpy"
    (root / "tests").mkdir(parents=True)
    for number in range(40):
        (root / f"m{number}.py").write_text(f"def f(x):\n    return x + {number}\n")
    (root / "tests/m.py").write_text("assert True\n")
    (root / "copy.py").write_text("def f(x):\n    return x + 3\n")
    (root / "empty.py").write_text("\n")
    (root / "latin.py").write_bytes(b"# caf\xe9\n")
    (root / "nul.py").write_text("x = '\0'\n")
    monkeypatch.setattr(built_in_text, "_root", {"numpy": root}.get)
    return root


def resolved() -> BuiltIn:
    (source,) = sources.resolve(DataSpec(corpus=("python-code",)))
    assert isinstance(source, BuiltIn)
    return source


def test_documents_are_the_files_of_the_training_side(package: Path) -> None:
    advanced: list[int] = []
    found = list(sources.read(resolved(), "text", advanced.append))
    kept = [number for number in range(40) if not built_in_text.is_test(f"numpy.m{number}")]
    assert 30 < len(kept) < 40
    assert sorted(found) == sorted(f"def f(x):\n    return x + {number}\n" for number in kept)
    assert advanced == [len(text) for text in found] and sum(advanced) <= resolved().size
    assert sources.name_of(resolved()) == "python-code"


def test_a_changed_file_is_prepared_anew(package: Path) -> None:
    before = sources.identity(resolved())
    assert before == sources.identity(resolved())
    changed = next(n for n in range(40) if not built_in_text.is_test(f"numpy.m{n}"))
    (package / f"m{changed}.py").write_text("pass\n")
    after = sources.identity(resolved())
    assert after != before and after[0] == "python-code"


def test_without_packages_or_files_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for roots, message in (({}, "is made of the sources of python, numpy"), ({"numpy": tmp_path}, "has no file on")):
        monkeypatch.setattr(built_in_text, "_root", roots.get)
        with pytest.raises(InputError, match=f"'python-code' {message}"):
            resolved()


def test_no_module_of_the_real_packages_is_on_the_test_side() -> None:
    held = {(entry.package, entry.module) for entry in built_in_text.entries("test")}
    files = built_in_text.source_files(built_in_text.installed("docs"))
    modules = {path: (package, module) for path, package, module in files}
    found = [modules[path] for path in built_in_text.code_files()]
    assert len(found) > 1000 and held and held.isdisjoint(found)
