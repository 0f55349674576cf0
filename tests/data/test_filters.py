"""Filters of documents: held-out parts, limits of length, and languages; what is left out is counted."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.data import filters, preprocessing, sources
from workbench.data.filters import documents, without
from workbench.data.prepare import Prepared, already, prepare
from workbench.errors import InputError
from workbench.progress import silent
from workbench.spec.parts import DataSpec
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec


def spec(path: Path, **keys: Any) -> RunSpec:
    base = {"data.corpus": str(path), "encoder.vocab": 200, "batch.size": 4, "data.length": 16}
    return resolve("nano", base | {f"data.{key}": value for key, value in keys.items()})


def written(path: Path, texts: list[str]) -> Path:
    path.write_text("\n\n".join(texts))
    return path


# ---- documents and limits of reading ----


@pytest.fixture
def data(tmp_path: Path) -> DataSpec:
    """Two files of ten documents of ten characters."""
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("\n\n".join(f"{name} doc {number:04d}" for number in range(10)))
    return DataSpec(corpus=(str(tmp_path / "a.txt"), str(tmp_path / "b.txt")))


def test_all_documents_come_in_the_order_of_the_sources(data: DataSpec) -> None:
    words = Counter[str]()
    found = list(documents(data, sources.resolve(data), words=words))
    assert found == [f"{name} doc {number:04d}" for name in "ab" for number in range(10)]
    assert list(words.values()) == [30, 30] and all(Path(name).name in ("a.txt", "b.txt") for name in words)


@pytest.mark.parametrize(("limit", "expected"), [(1, 1), (10, 1), (11, 2), (100, 10), (101, 11), (10**6, 20)])
def test_reading_ends_with_the_document_that_reaches_the_limit(data: DataSpec, limit: int, expected: int) -> None:
    assert len(list(documents(data, sources.resolve(data), limit=limit, hub_limit=1))) == expected


def test_held_out_parts_are_set_aside_and_neither_yielded_nor_counted(data: DataSpec) -> None:
    data, aside, words = data.model_copy(update={"held_out": 0.4}), list[str](), Counter[str]()
    kept = list(documents(data, sources.resolve(data), aside=aside.append, words=words))
    everything = list(documents(data.model_copy(update={"held_out": 0.0}), sources.resolve(data)))
    assert kept == [text for each in everything if (text := without(each, 0.4, None))]
    assert sorted(kept + aside) == sorted(everything) and kept and aside
    assert sum(words.values()) == 3 * len(kept)


# ---- held-out parts ----

SHORT = [f"document {n} says word{n % 7} and word{n % 11} again" for n in range(400)]


@given(st.lists(st.text(alphabet="ab \n", min_size=1), min_size=1, max_size=20), st.sampled_from([0.1, 0.5]))
def test_every_document_is_whole_on_one_side(documents: list[str], share: float) -> None:
    for document in documents:
        aside: list[str] = []
        kept = without(document, share, aside.append)
        assert (kept, aside) in ((document.strip("\n"), []), ("", [document]))
        assert without(document, share) == kept, "the same on the next pass"
        assert without(document, 0.0) == document


def test_a_corpus_of_one_long_document_has_held_out_parts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "PIECE", 200)
    aside: list[str] = []
    kept = without("\n".join(SHORT), 0.3, aside.append)
    lines = [line for part in aside for line in part.splitlines()]
    assert 60 < len(lines) < 200 and sorted([*kept.splitlines(), *lines]) == sorted(SHORT)


def test_what_is_held_out_is_in_no_shard_and_lies_beside_them(tmp_path: Path) -> None:
    path = written(tmp_path / "text.txt", SHORT)
    whole, less = (prepare(spec(path, held_out=share), silent, tmp_path / "cache") for share in (0.0, 0.2))
    aside = filters.read(less.folder)
    assert filters.read(whole.folder) == [] and 40 < len(aside) < 130
    assert less.documents + len(aside) == whole.documents == 400 and less.fingerprint != whole.fingerprint
    assert set(aside) < set(SHORT) and aside == [text for text in SHORT if text in set(aside)]
    assert (less.folder / filters.NAME).is_file()


# ---- length ----

LENGTHS = [1 + 7 * n % 40 for n in range(600)]  # words of each document
DOCUMENTS = [" ".join(f"w{(n * word) % 97}" for word in range(length)) for n, length in enumerate(LENGTHS)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path / "text.txt", DOCUMENTS)


def content(prepared: Prepared) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(prepared.folder.glob("*.bin"))}


@pytest.mark.parametrize(("least", "most"), [(0, None), (5, 30), (17, 17)])
def test_the_text_is_that_of_a_file_with_the_other_documents_alone(
    path: Path, tmp_path: Path, least: int, most: int | None
) -> None:
    kept = [text for text, words in zip(DOCUMENTS, LENGTHS, strict=True) if least <= words <= (most or 10**9)]
    other = written(tmp_path / "kept.txt", kept)
    found = prepare(spec(path, min_words=least, max_words=most), silent, tmp_path / "one")
    expected = prepare(spec(other), silent, tmp_path / "two")
    assert (found.documents, found.words, found.tokens) == (len(kept), expected.words, expected.tokens)
    assert found.fingerprint == expected.fingerprint and content(found) == content(expected)
    short, long = ([n for n in LENGTHS if n < least], [n for n in LENGTHS if most and n > most])
    counts = {"min_words": short, "max_words": long}
    removed = {name: {"documents": len(each), "words": sum(each)} for name, each in counts.items() if each}
    assert found.removed == removed and expected.removed == {}
    assert json.loads((found.folder / "manifest.json").read_text()).get("removed", {}) == removed


def test_slices_leave_out_and_count_the_same(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, int | None] = {"min_words": 5, "max_words": 30}
    whole = prepare(spec(path, **limits), silent, tmp_path / "one")
    monkeypatch.setattr(preprocessing, "SLICE", 8_000)
    sliced = prepare(spec(path, **limits), silent, tmp_path / "two")
    assert "slices" in json.loads((sliced.folder / "manifest.json").read_text())
    assert (sliced.fingerprint, sliced.removed) == (whole.fingerprint, whole.removed)
    assert (sliced.documents, sliced.words, sliced.tokens) == (whole.documents, whole.words, whole.tokens)


def test_other_filters_are_another_text_and_another_run(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("py3langid")
    base, filtered = spec(path), ({"held_out": 0.2}, {"min_words": 5}, {"max_words": 30}, {"language": "en"})
    prepare(base, silent, tmp_path / "cache")
    for keys in filtered:
        other: RunSpec = spec(path, **keys)
        assert not keys.keys() & base.identity()["data"].keys() and other.name != base.name
        assert already(other, tmp_path / "cache") is None
    assert already(spec(path, min_words=0), tmp_path / "cache") is not None


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda path: spec(path, min_words=9, max_words=8), "min_words"),
        (lambda path: prepare(spec(path, min_words=99), silent, path.parent / "cache"), "within data.min_words=99; ch"),
        (lambda path: spec(path, min_words=-1), "min_words"),
        (lambda path: spec(path, max_words=0), "max_words"),
    ],
)
def test_limits_that_leave_nothing_are_refused_by_name(path: Path, make: Callable[[Path], object], word: str) -> None:
    with pytest.raises(InputError, match=word):
        make(path)


# ---- language ----

SENTENCES = {
    "en": "the harbour was quiet that morning and the fishermen were mending their nets beside the water",
    "de": "der Hafen war an diesem Morgen still und die Fischer flickten am Wasser ihre Netze",
    "cs": "v přístavu bylo toho rána ticho a rybáři spravovali u vody své sítě",
}
TRANSLATED = [(code, f"{text} {number}") for number in range(120) for code, text in SENTENCES.items()]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    pytest.importorskip("py3langid")
    return written(tmp_path / "text.txt", [text for _, text in TRANSLATED])


@pytest.mark.parametrize("language", ["en", "cs"])
def test_the_text_is_that_of_a_file_in_one_language(mixed: Path, tmp_path: Path, language: str) -> None:
    other = written(tmp_path / "kept.txt", [text for code, text in TRANSLATED if code == language])
    expected = prepare(spec(other), silent, tmp_path / "two")
    found = prepare(spec(mixed, language=language), silent, tmp_path / "one")
    assert found.fingerprint == expected.fingerprint and found.documents == 120
    lost = [text for code, text in TRANSLATED if code != language]
    assert found.removed == {"language": {"documents": 240, "words": sum(len(text.split()) for text in lost)}}


def test_short_documents_are_counted_as_short_whatever_their_language(mixed: Path, tmp_path: Path) -> None:
    found = prepare(spec(mixed, language="en", min_words=16), silent, tmp_path)
    kept = [text for code, text in TRANSLATED if code == "en" and len(text.split()) >= 16]
    short = [text for _, text in TRANSLATED if len(text.split()) < 16]
    assert found.documents == len(kept) and found.removed["min_words"]["documents"] == len(short)
    assert found.removed.get("language", {}).get("documents", 0) == len(TRANSLATED) - len(kept) - len(short)


def test_a_language_is_found_in_the_first_characters_alone() -> None:
    pytest.importorskip("py3langid")
    long = (SENTENCES["de"] + " ") * 40
    assert len(long) > filters.CHARACTERS
    for language, found in (("de", ""), ("en", "language")):
        assert filters.unsuitable(DataSpec(language=language), long + SENTENCES["en"] * 400) == found


def test_another_version_of_the_model_is_another_text(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    english = spec(mixed, language="en")
    prepare(english, silent, tmp_path)
    assert already(english, tmp_path) is not None
    monkeypatch.setattr("importlib.metadata.version", lambda name: "9.9")
    assert already(english, tmp_path) is None


@pytest.mark.parametrize(
    ("language", "message"),
    [
        ("EN", "data.language"),
        ("english", "data.language"),
        ("eng", r"data.language=eng is no language of py3langid; did you mean 'en'"),
        ("fi", "no document within data.language=fi; change"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(mixed: Path, tmp_path: Path, language: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        prepare(spec(mixed, language=language), silent, tmp_path)


def test_without_the_package_the_command_says_what_to_install(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filters._model.cache_clear()
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)  # as if its files were gone, but not its metadata
    with pytest.raises(InputError, match=r"needs the package py3langid; pip install 'encoder-workbench\[language\]'"):
        prepare(spec(mixed, language="en"), silent, tmp_path)


def test_an_absent_package_is_noticed_before_any_text_is_read(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    with pytest.raises(InputError, match=r"needs the package py3langid; pip install 'encoder-workbench\[language\]'"):
        already(spec(mixed, language="en"), tmp_path)
