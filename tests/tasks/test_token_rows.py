"""Rows of token ids: how texts are cut, and how rows are put into batches."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from workbench import progress
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks._linear_readout import Reader, open_reader
from workbench.tasks.common import token_rows
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.encoder_folders import load_encoder, row_length
from workbench.tasks.common.examples import Examples, Task
from workbench.tasks.common.token_rows import (
    SHORTEST,
    by_length,
    cuts,
    doubled,
    encode,
    encode_rows,
    open_splitter,
    shuffled,
    word_pieces,
)


def test_texts_of_a_pair_do_not_run_together_and_no_row_is_empty(make: Callable[[str], Path], encoder: Path) -> None:
    rows = Examples(["bada kego", ""], ["mida", ""], [0, 1])
    task = Task("pairs", "table", ("a", "b"), "accuracy", ("accuracy",), 1.0, rows, {"dev": rows})
    ids = encode(make("gpt2"), task, 8)["train"].ids
    apart = encode(make("gpt2"), Task("one", "table", ("a", "b"), "accuracy", ("accuracy",), 1.0,
                   Examples(["bada kego", "mida"], None, [0, 1]), {"dev": rows}), 8)["train"].ids  # fmt: skip
    assert ids[0].tolist() == [*apart[0], 3, *apart[1]] and ids[1].tolist() == [3]
    long = Examples(["bada " * 30], ["mida " * 30], [0])
    cut = encode(make("gpt2"), Task("long", "table", ("a",), "accuracy", ("accuracy",), 1.0, long, {"dev": long}), 9)
    assert len(cut["train"].ids[0]) == 9 and cut["train"].ids[0].tolist().count(3) == 1


VOCABULARY = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "<sep>", "<cls>", "<s>", "</s>", "<mask>", "▁a", "▁b"]
OUTPUTS = {"model_input_names": ["input_ids", "attention_mask"]}


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("AlbertTokenizer", {}, [0, 0, 0, 0, 1, 1]),  # [CLS] a b [SEP] b [SEP]
        ("XLNetTokenizer", {}, [0, 0, 0, 1, 1, 2]),  # a b <sep> b <sep> <cls>
        ("AlbertTokenizer", OUTPUTS, None),
    ],
)
def test_pairs_have_the_segments_of_pre_training_unless_the_tokenizer_leaves_them_out(
    tmp_path: Path, name: str, settings: dict[str, list[str]], expected: list[int] | None
) -> None:
    made = getattr(transformers, name)(vocab=[(word, -float(place)) for place, word in enumerate(VOCABULARY)])
    made.save_pretrained(tmp_path)
    stated = tmp_path / "tokenizer_config.json"
    stated.write_text(json.dumps(json.loads(stated.read_text()) | settings))
    types = encode_rows(tmp_path, Examples(["a b"], ["b"], [0]), 16).types
    assert (None if types is None else types[0].tolist()) == expected


SPEC = TasksSpec(lr=3e-3, layer_decay=0.9, length=32, dropout=0.1)


CPU = Host(device="cpu")


def test_every_row_once_an_epoch_and_like_lengths_together(encoder: Path, keyword: Task) -> None:
    train = encode(encoder, keyword, 32)["train"]
    batches = shuffled(train.lengths, 10, seed=3)
    epochs = [[next(batches) for _ in range(26)] for _ in range(2)]
    for epoch in epochs:
        assert Counter(np.concatenate(epoch).tolist()) == Counter(range(256))
        assert sorted(len(b) for b in epoch)[:2] in ([6, 10], [10, 10])
    assert [b.tolist() for b in epochs[0]] != [b.tolist() for b in epochs[1]]
    again, other = shuffled(train.lengths, 10, seed=3), shuffled(train.lengths, 10, seed=4)
    assert [next(again).tolist() for _ in range(26)] == [b.tolist() for b in epochs[0]]
    assert [next(other).tolist() for _ in range(26)] != [b.tolist() for b in epochs[0]]
    lengths = np.array([len(ids) for ids in train.ids])
    padded = sum(len(b) * lengths[b].max() for b in epochs[0])
    assert padded < 1.15 * lengths.sum()


def test_test_batches_hold_every_row_once_within_their_size(
    encoder: Path, keyword: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encode(encoder, keyword, 32)["train"]
    monkeypatch.setattr(token_rows, "TOKENS", 100)
    batches = list(by_length(data.lengths))
    assert Counter(np.concatenate(batches).tolist()) == Counter(range(256))
    assert all(len(b) * max(len(data.ids[i]) for i in b) <= 100 for b in batches)


def test_pairs_are_cut_longest_first_within_the_encoders_positions(electra: Callable[..., Path], keyword: Task) -> None:
    folder = electra(max_position_embeddings=12)
    assert row_length(folder, load_encoder(folder, 0.0).config, 128) == 12
    train = keyword.train
    pair = replace(train, first=["bada " * 30] * 256, second=["kego"] * 256)
    task = replace(keyword, name="pairs", train=pair, tests={"dev": pair})
    ids = encode(folder, task, 12)["dev"].ids[0]
    short = encode(folder, replace(task, tests={"dev": replace(pair, first=["kego"] * 256)}), 12)["dev"].ids[0]
    assert len(ids) == 12 and ids[-2] == short[-2]  # the second text is whole
    assert take(replace(task, epochs=0.1), Model(folder, SPEC, 0), CPU).steps == 1


def test_doubling_is_for_symmetric_pairs_only(encoder: Path, keyword: Task, lengths: Task) -> None:
    both = doubled(lengths)
    assert both.train.first[192:] == lengths.train.second and both.train.second[192:] == lengths.train.first  # type: ignore[index]
    released = SPEC.model_copy(update={"doubled": True, "epochs": 1.0})
    assert take(lengths, Model(encoder, released, 0), CPU).steps == 12  # of 384 rows
    assert take(keyword, Model(encoder, released, 0), CPU).steps == 8  # of 256
    score = take(lengths, Model(encoder, released, 0), CPU)
    assert score.data == lengths.fingerprint and score.train_rows == 192


def test_long_texts_are_encoded_in_pieces_with_progress(
    encoder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of a million characters take seconds each; the ids do not depend on the pieces."""
    words = ["bada kego", "mida", "kego kego mida", "bada"] * 3
    rows = Examples(words, [words[-1 - place] for place in range(12)], [0] * 12)
    whole = encode_rows(encoder, rows, 8)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(token_rows, "CHARACTERS", 30)
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    parts = list(token_rows.pieces(rows, encoder))
    assert [text for part, _ in parts for text in part.first] == rows.first
    assert [text for part, _ in parts for text in part.second or []] == rows.second
    assert sum(size for _, size in parts) == sum(map(len, [*rows.first, *(rows.second or [])]))
    assert all(30 < size <= 30 + 18 for _, size in parts[:-1]) and len(parts) == 6
    capsys.readouterr()
    assert [ids.tolist() for ids in encode_rows(encoder, rows, 8).ids] == [ids.tolist() for ids in whole.ids]
    assert f"{encoder}: encoding texts, in pieces: 5 of 6" in capsys.readouterr().err
    monkeypatch.setattr(token_rows, "PIECE", 2)
    again = encode_rows(encoder, rows, 8)
    for mine, other in ((again.ids, whole.ids), (again.types or [], whole.types or [])):
        assert [row.tolist() for row in mine] == [row.tolist() for row in other] and len(mine) == 12


# ---- Texts and words as pieces, and long texts as windows ----


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


def test_words_are_looked_up_as_they_stand_after_a_blank(tmp_path: Path) -> None:
    """Byte-level tokenizers have different tokens for ' bada' and 'bada'."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<pad>", "<s>"], show_progress=False)
    made.train_from_iterator(["a bada kefe logo"] * 20, trainer)
    loaded = transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", bos_token="<s>")
    loaded.save_pretrained(tmp_path)
    rows, firsts, _ = word_pieces(open_splitter(tmp_path, 32, "x"), [["bada", "kefe"]])
    expected = made.encode(" bada").ids
    assert rows[0][: firsts[0][1]].tolist() == expected and expected != made.encode("bada").ids


def test_a_slow_tokenizer_is_aligned_like_a_fast_one(encoder: Path, reader: Reader) -> None:
    class Slow:
        """Tokenizer with only the functions of one that has no offsets."""

        is_fast, fast = False, reader.splitter.tokenizer
        unk_token_id, eos_token_id, bos_token_id, pad_token_id = fast.unk_token_id, None, None, fast.pad_token_id

        def __call__(self, texts: Any, add_special_tokens: bool = True, verbose: bool = True) -> dict[str, Any]:
            return {"input_ids": self.fast(texts, add_special_tokens=add_special_tokens)["input_ids"]}

    slow = Reader(reader.model, replace(reader.splitter, tokenizer=Slow()), "cpu")
    sentences = [["bada", "\u200d", "badakefe", "."], ["日本", "mini"]]
    mine, other = (word_pieces(each.splitter, sentences) for each in (slow, reader))
    assert all((a == b).all() for side in (0, 1) for a, b in zip(mine[side], other[side], strict=True))
