"""A text of many documents, and the size of its slices."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.data import preprocessing, tokenizer


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of 0.6 MB in 2,000 documents, of which some occur twice."""
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 9))) for _ in range(2000)]
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_text("\n\n".join(" ".join(draw.choices(words, k=draw.randint(1, 90))) for _ in range(2000)))
    return path


@pytest.fixture
def sliced(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the size of slices."""
    monkeypatch.setattr(tokenizer, "SAMPLE", 200_000)
    return lambda size: monkeypatch.setattr(preprocessing, "SLICE", size)
