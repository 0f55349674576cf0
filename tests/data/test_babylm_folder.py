"""BabyLM's folder of SOURCE.train files as a corpus, and what stands in its way, each in a sentence."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from text_files import read

from workbench.data import sources
from workbench.data.prepare import prepare
from workbench.errors import InputError
from workbench.progress import silent
from workbench.spec.parts import DataSpec
from workbench.spec.presets import resolve


def folder_of(path: Path, **texts: str) -> Path:
    path.mkdir(parents=True)
    for name, text in texts.items():
        name = name.replace("__", ".")
        raw = text.encode()
        (path / name).write_bytes(lzma.compress(raw) if name.endswith(".xz") else raw)
    return path


def test_sources_are_read_packed_or_not_without_dev_and_test(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = folder_of(
        tmp_path / "babylm", childes__train="one two\nthree\n", bnc_spoken__train__xz="four\n\nfive six seven\n",
        childes__dev="held", childes__test__xz="out",
    )  # fmt: skip
    assert read(path) == ["four", "five six seven", "one two\nthree"]
    assert "childes.dev, childes.test.xz are not read" in caplog.text and caplog.text.count("not read") == 1
    assert sources.is_babylm(DataSpec(corpus=(str(path),)))
    assert sources.is_babylm(DataSpec(corpus=(str(path / "*.train"),)))
    assert not sources.is_babylm(DataSpec(corpus=("docs",)))


def test_words_are_told_by_source_and_a_source_without_text_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder_of(
        tmp_path / "babylm", childes__train="what is that ?\n" * 300, bnc_spoken__train__xz="yes  no\n" * 200,
        subs__train="\n",
    )  # fmt: skip
    spec = resolve("nano", {"data.corpus": str(path), "encoder.vocab": 60, "batch.size": 2, "data.length": 16})
    prepared = prepare(spec, silent, tmp_path / "cache")
    assert prepared.sources == {"bnc_spoken.train": 400, "childes.train": 1200} and prepared.words == 1600
    assert prepare(spec, silent, tmp_path / "cache").sources == prepared.sources  # from the cache
    assert "there is no text in subs.train" in caplog.text


def test_folders_that_can_be_meant_in_two_ways_are_refused(tmp_path: Path) -> None:
    mixed = folder_of(tmp_path / "mixed", childes__train="a", notes__txt="b")
    with pytest.raises(InputError, match=r"BabyLM's childes\.train and other text, notes\.txt; move one"):
        read(mixed)
    assert read(mixed / "*.train") == ["a"]
    folder_of(tmp_path / "both" / "train_10M", childes__train="a")
    folder_of(tmp_path / "both" / "train_100M", childes__train="a b")
    with pytest.raises(InputError, match=r"childes\.train twice, as .*train_100M/childes\.train and as .*train_10M/"):
        read(tmp_path / "both")
    with pytest.raises(InputError, match=r"twice, as .*/childes\.train and as .*/childes\.train\.xz; .*move one"):
        read(folder_of(tmp_path / "packed", childes__train="a", childes__train__xz="a"))
    with pytest.raises(InputError, match="no file that can be read"):
        read(folder_of(tmp_path / "held", childes__dev="a"))
