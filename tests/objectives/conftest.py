"""Rows of English text for the objectives, tokenised with a WordPiece vocabulary of 1,000 trained on that text."""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest


@dataclass(frozen=True)
class RealRows:
    """Rows of real text: `words` (B, L) are token ids without special tokens, whose ids are 0 to 4."""

    words: np.ndarray
    vocab: int


@pytest.fixture(scope="session")
def real_rows(real_data: Path) -> RealRows:
    from tokenizers import BertWordPieceTokenizer

    with lzma.open(real_data / "corpus" / "gutenberg-prose.txt.xz", "rt", encoding="utf-8") as file:
        text = file.read(300_000)
    tokenizer = BertWordPieceTokenizer()
    tokenizer.train_from_iterator(text.splitlines(), vocab_size=1000, show_progress=False)
    assert [tokenizer.id_to_token(i) for i in range(5)] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    stream = tokenizer.encode(text[100_000:110_000], add_special_tokens=False).ids
    rows, length = 8, 48
    return RealRows(np.array(stream[: rows * length]).reshape(rows, length), tokenizer.get_vocab_size())
