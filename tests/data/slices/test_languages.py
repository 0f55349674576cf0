"""Documents in other languages: which are left out and counted, and what is refused."""

from __future__ import annotations

import builtins
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from workbench.data import filters, preprocessing
from workbench.data.prepare import already, prepare
from workbench.errors import InputError
from workbench.progress import silent
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec

pytest.importorskip("py3langid")

SENTENCES = {
    "en": "the harbour was quiet that morning and the fishermen were mending their nets beside the water",
    "de": "der Hafen war an diesem Morgen still und die Fischer flickten am Wasser ihre Netze",
    "cs": "v přístavu bylo toho rána ticho a rybáři spravovali u vody své sítě",
}
DOCUMENTS = [(code, f"{text} {number}") for number in range(120) for code, text in SENTENCES.items()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(text for _, text in DOCUMENTS))
    return path


def spec(path: Path, **keys: Any) -> RunSpec:
    base = {"data.corpus": str(path), "encoder.vocab": 200, "batch.size": 4, "data.length": 16}
    return resolve("nano", base | {f"data.{key}": value for key, value in keys.items()})


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("language", ["en", "cs"])
def test_the_text_is_that_of_a_file_in_one_language(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str, workers: int | None
) -> None:
    other = tmp_path / "kept.txt"
    other.write_text("\n\n".join(text for code, text in DOCUMENTS if code == language))
    expected = prepare(spec(other), silent, tmp_path / "two")
    if workers:
        monkeypatch.setattr(preprocessing, "SLICE", 8_000)
    found = prepare(spec(path, language=language), silent, tmp_path / "one", workers or 1)
    manifest = json.loads((found.folder / "manifest.json").read_text())
    assert ("slices" in manifest) == bool(workers)
    assert (found.documents, found.words, found.tokens) == (120, expected.words, expected.tokens)
    lost = [text for code, text in DOCUMENTS if code != language]
    assert found.removed == {"language": {"documents": 240, "words": sum(len(text.split()) for text in lost)}}
    if not workers:
        assert found.fingerprint == expected.fingerprint


def test_short_documents_are_counted_as_short_whatever_their_language(path: Path, tmp_path: Path) -> None:
    found = prepare(spec(path, language="en", min_words=16), silent, tmp_path)
    kept = [text for code, text in DOCUMENTS if code == "en" and len(text.split()) >= 16]
    short = [text for _, text in DOCUMENTS if len(text.split()) < 16]
    assert found.documents == len(kept) and found.removed["min_words"]["documents"] == len(short)
    assert found.removed.get("language", {}).get("documents", 0) == len(DOCUMENTS) - len(kept) - len(short)


def test_a_language_is_found_in_the_first_characters_alone() -> None:
    long = (SENTENCES["de"] + " ") * 40
    assert len(long) > filters.CHARACTERS and filters.is_in("de", long + SENTENCES["en"] * 400)
    assert not filters.is_in("en", long + SENTENCES["en"] * 400)


def test_another_language_is_another_text_and_another_run(path: Path, tmp_path: Path) -> None:
    base, english = spec(path), spec(path, language="en")
    assert "language" not in base.identity()["data"] and base.name != english.name
    prepare(base, silent, tmp_path)
    assert already(base, tmp_path) is not None and already(english, tmp_path) is None


def test_another_version_of_the_model_is_another_text(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    english = spec(path, language="en")
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
def test_what_cannot_be_kept_is_refused_by_name(path: Path, tmp_path: Path, language: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        prepare(spec(path, language=language), silent, tmp_path)


def test_without_the_package_the_command_says_what_to_install(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("py3langid"):
            raise ImportError(name)
        return real(name, *rest)

    filters._model.cache_clear()
    monkeypatch.setattr(builtins, "__import__", missing)  # as if its files were gone, but not its metadata
    with pytest.raises(InputError, match=r"needs the package py3langid; pip install 'encoder-workbench\[language\]'"):
        prepare(spec(path, language="en"), silent, tmp_path)


def test_an_absent_package_is_noticed_before_any_text_is_read(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    with pytest.raises(InputError, match=r"needs the package py3langid; pip install 'encoder-workbench\[language\]'"):
        already(spec(path, language="en"), tmp_path)
