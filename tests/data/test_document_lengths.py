"""Documents that are left out for their length: which, how many are counted, and that nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.data import preprocessing
from workbench.data.prepare import Prepared, already, prepare
from workbench.errors import InputError
from workbench.progress import silent
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec

LENGTHS = [1 + 7 * n % 40 for n in range(600)]  # words of each document
DOCUMENTS = [" ".join(f"w{(n * word) % 97}" for word in range(length)) for n, length in enumerate(LENGTHS)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(DOCUMENTS))
    return path


def spec(path: Path, **limits: int | None) -> RunSpec:
    base = {"data.corpus": str(path), "encoder.vocab": 200, "batch.size": 4, "data.length": 16}
    return resolve("nano", base | {f"data.{key}": value for key, value in limits.items()})


def content(prepared: Prepared) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(prepared.folder.glob("*.bin"))}


@pytest.mark.parametrize(("least", "most"), [(0, None), (5, None), (0, 30), (5, 30), (17, 17)])
def test_the_text_is_that_of_a_file_with_the_other_documents_alone(
    path: Path, tmp_path: Path, least: int, most: int | None
) -> None:
    kept = [text for text, words in zip(DOCUMENTS, LENGTHS, strict=True) if least <= words <= (most or 10**9)]
    other = tmp_path / "kept.txt"
    other.write_text("\n\n".join(kept))
    found = prepare(spec(path, min_words=least, max_words=most), silent, tmp_path / "one")
    expected = prepare(spec(other), silent, tmp_path / "two")
    assert (found.documents, found.words, found.tokens) == (len(kept), expected.words, expected.tokens)
    assert found.fingerprint == expected.fingerprint and content(found) == content(expected)
    short, long = ([n for n in LENGTHS if n < least], [n for n in LENGTHS if most and n > most])
    counts = {"min_words": short, "max_words": long}
    removed = {name: {"documents": len(each), "words": sum(each)} for name, each in counts.items() if each}
    assert found.removed == removed and expected.removed == {}
    assert json.loads((found.folder / "manifest.json").read_text()).get("removed", {}) == removed


@pytest.mark.parametrize("workers", [1, 2])
def test_slices_leave_out_and_count_the_same(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    limits: dict[str, int | None] = {"min_words": 5, "max_words": 30}
    whole = prepare(spec(path, **limits), silent, tmp_path / "one")
    monkeypatch.setattr(preprocessing, "SLICE", 8_000)
    sliced = prepare(spec(path, **limits), silent, tmp_path / "two", workers)
    assert "slices" in json.loads((sliced.folder / "manifest.json").read_text())
    assert (sliced.fingerprint, sliced.removed) == (whole.fingerprint, whole.removed)
    assert (sliced.documents, sliced.words, sliced.tokens) == (whole.documents, whole.words, whole.tokens)


def test_other_limits_are_another_text_and_another_run(path: Path, tmp_path: Path) -> None:
    base = spec(path)
    assert not {"min_words", "max_words"} & base.identity()["data"].keys()
    prepare(base, silent, tmp_path / "cache")
    for limits in ({"min_words": 5}, {"max_words": 30}):
        other: RunSpec = spec(path, **limits)
        assert already(other, tmp_path / "cache") is None and other.name != base.name
    assert already(spec(path, min_words=0), tmp_path / "cache") is not None


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda path: spec(path, min_words=9, max_words=8), "min_words"),
        (
            lambda path: prepare(spec(path, min_words=1000), silent, path.parent / "cache"),
            "no document within data.min_words=1000; change",
        ),
        (lambda path: spec(path, min_words=-1), "min_words"),
        (lambda path: spec(path, max_words=0), "max_words"),
    ],
)
def test_limits_that_leave_nothing_are_refused_by_name(path: Path, make: Callable[[Path], object], word: str) -> None:
    with pytest.raises(InputError, match=word):
        make(path)
