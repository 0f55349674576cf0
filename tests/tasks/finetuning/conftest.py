"""What tests of fine-tuning share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from causal_folders import build_folder


@pytest.fixture(scope="module")
def make(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that makes a folder with random weights of a family and a tokenizer to match.

    Those with a head are saved as language models; GPT-2's then has no padding token, as it is published.
    """
    made: dict[str, Path] = {}

    def build(kind: str) -> Path:
        if kind not in made:
            made[kind] = build_folder(encoder, kind, tmp_path_factory.mktemp("causal"))
        return made[kind]

    return build
