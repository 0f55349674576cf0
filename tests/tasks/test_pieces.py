"""Texts and words as pieces, and long texts as windows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.tasks._linear_readout import Reader, open_reader, picked_states
from workbench.tasks.common.token_rows import SHORTEST, cuts, word_pieces


@pytest.fixture(scope="module")
def reader(encoder: Path) -> Reader:
    return open_reader(encoder, 20, "cpu")


@given(pieces=st.integers(1, 400), room=st.integers(SHORTEST, 64))
def test_windows_read_every_piece_once_and_inside_of_themselves(pieces: int, room: int) -> None:
    made = cuts(pieces, room)
    assert [i for _, first, last in made for i in range(first, last)] == list(range(pieces))
    for start, first, last in made:
        assert start <= first and last <= min(start + room, pieces)
        if start > 0:
            assert first - start >= room // 4
    assert made[-1][0] + room >= pieces


@pytest.mark.parametrize("kind", ["gpt2", "roberta"])
def test_words_are_looked_up_as_they_stand_after_a_blank(kind: str, tmp_path: Path) -> None:
    """Byte-level tokenizers have different tokens for ' bada' and 'bada'."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2Model, PreTrainedTokenizerFast, RobertaConfig, RobertaModel

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<pad>", "<s>"], show_progress=False)
    made.train_from_iterator(["a bada kefe logo"] * 20, trainer)
    PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", bos_token="<s>").save_pretrained(tmp_path)
    if kind == "gpt2":
        model: Any = GPT2Model(GPT2Config(vocab_size=300, n_positions=32, n_embd=16, n_layer=1, n_head=2))
    else:
        model = RobertaModel(
            RobertaConfig(vocab_size=300, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                          intermediate_size=16, max_position_embeddings=34)
        )  # fmt: skip
    model.save_pretrained(tmp_path)
    reader = open_reader(tmp_path, 32, "cpu")
    rows, firsts = word_pieces(reader.splitter, [["bada", "kefe"]])
    expected = made.encode(" bada").ids
    assert rows[0][: firsts[0][1]].tolist() == expected and expected != made.encode("bada").ids
    assert picked_states(reader, rows, firsts).shape == (2, 2, 16)


def test_a_slow_tokenizer_is_aligned_like_a_fast_one(encoder: Path, reader: Reader) -> None:
    class Slow:
        """Tokenizer with only the functions of one that has no offsets."""

        is_fast, fast = False, reader.splitter.tokenizer
        unk_token_id, eos_token_id, bos_token_id, pad_token_id = fast.unk_token_id, None, None, fast.pad_token_id

        def __call__(self, texts: Any, add_special_tokens: bool = True, verbose: bool = True) -> dict[str, Any]:
            return {"input_ids": self.fast(texts, add_special_tokens=add_special_tokens)["input_ids"]}

    slow = Reader(reader.model, replace(reader.splitter, tokenizer=Slow()), "cpu")
    sentences = [["bada", "\u200d", "badakefe", "."], ["日本", "mini"]]
    for mine, other in zip(word_pieces(slow.splitter, sentences), word_pieces(reader.splitter, sentences), strict=True):
        assert all((a == b).all() for a, b in zip(mine, other, strict=True))
