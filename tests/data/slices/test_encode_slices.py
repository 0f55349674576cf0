"""Slices of a text are encoded once each, and made again where they or the text have changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from slice_text import Small, content, make, spec_of

from workbench.data import prepare, preprocessing
from workbench.errors import InputError


def test_a_damaged_slice_alone_is_made_again(
    book: Path, tmp_path: Path, sliced: Small, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sliced(100_000)
    made = make(spec_of(book), tmp_path)
    before = content(tmp_path)
    slice_ = sorted((tmp_path / "slices").iterdir())[3]
    path = slice_ / "tokens-00000.bin"
    path.write_bytes(path.read_bytes()[:-2] + b"\xff\xff")
    with pytest.raises(InputError, match="has changed since it was prepared"):
        prepare.check(made)
    encoded: list[int] = []
    real = preprocessing._encode
    monkeypatch.setattr(
        preprocessing, "_encode", lambda plan, number, *rest: (encoded.append(number), real(plan, number, *rest))
    )
    assert make(spec_of(book), tmp_path) == made and encoded == [3] and content(tmp_path) == before
    (slice_ / "slice.json").write_text("{}")
    assert make(spec_of(book), tmp_path) == made and encoded == [3, 3] and content(tmp_path) == before
    assert str(slice_) in caplog.text


def test_a_file_that_changes_meanwhile_is_refused(
    book: Path, tmp_path: Path, sliced: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(book.read_bytes())
    sliced(100_000)
    real = preprocessing.encode

    def changing(*args: object) -> None:
        real(*args)  # type: ignore[arg-type]
        os.utime(path, ns=(1, time.time_ns()))

    monkeypatch.setattr(preprocessing, "encode", changing)
    with pytest.raises(InputError, match="was changed while it was read"):
        make(spec_of(path), tmp_path / "cache")
