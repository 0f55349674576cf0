"""What tests of tagging share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tagged_made import sentences, write


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a set of tagged sentences."""

    def made(rule: Callable[[list[str]], list[str]], train: int = 200, most: int = 12) -> Path:
        path = tmp_path / "toy"
        path.mkdir()
        for seed, (part, count) in enumerate((("train", train), ("dev", 20), ("test", 60))):
            write(path / f"{part}.txt", sentences(count, seed, most), rule)
        return path

    return made
