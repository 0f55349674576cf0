"""Contradictions of casing between the settings of a tokenizer and its vocabulary."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer, models, normalizers
from transformers import PreTrainedTokenizerFast

from workbench.data.tokenizer import contradiction

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SMALL, CAPITAL = ["the", "cat", "##s", "sat"], ["The", "Cat", "##s", "sat"]
JAPANESE = ["\u732b", "\u306f", "##\u3060"]


def tokenizer(words: list[str], normalizer: Any) -> PreTrainedTokenizerFast:
    made = Tokenizer(models.WordPiece({word: i for i, word in enumerate([*SPECIAL, *words])}, unk_token="[UNK]"))
    if normalizer is not None:
        made.normalizer = normalizer
    names = {f"{word.strip('[]').lower()}_token": word for word in SPECIAL}
    return PreTrainedTokenizerFast(tokenizer_object=made, **names)


@pytest.mark.parametrize("keeping", [None, normalizers.NFC(), normalizers.BertNormalizer(lowercase=False)])
def test_capitals_that_are_kept_need_a_vocabulary_with_capitals(keeping: Any) -> None:
    assert contradiction(tokenizer(SMALL, keeping)).endswith("set do_lower_case to true")
    assert contradiction(tokenizer(CAPITAL, keeping)) == contradiction(tokenizer(JAPANESE, keeping)) == ""


@pytest.mark.parametrize("lower", [normalizers.Lowercase(), normalizers.BertNormalizer(lowercase=True)])
def test_capitals_of_a_vocabulary_are_in_vain_if_texts_are_put_into_lower_case(lower: Any) -> None:
    assert "2 of the 4 tokens of the vocabulary have capital letters" in contradiction(tokenizer(CAPITAL, lower))
    assert contradiction(tokenizer(SMALL, lower)) == contradiction(tokenizer(JAPANESE, lower)) == ""
    mostly_small = [f"word{i}" for i in range(200)] + ["XIV"]
    assert contradiction(tokenizer(mostly_small, lower)) == ""


def test_of_a_tokenizer_in_python_nothing_is_said() -> None:
    assert contradiction(object()) == ""
