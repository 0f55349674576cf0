"""The state of a word is that of its first subword, however long the sentence is and in whatever windows it is read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModel, AutoTokenizer

from workbench.errors import Diverged, InputError
from workbench.tasks import _linear_readout as linear_readout
from workbench.tasks._linear_readout import Reader, mean_states, open_reader, picked_states
from workbench.tasks.common.token_rows import cuts, text_pieces, word_pieces

WORDS = ["bada", "kefe", "logo", "mini", "badakefe", "zzz", "Bada", "ke-fe", "42", ".", "\u0301", "\u200d", "日本"]


@pytest.fixture(scope="module")
def reader(encoder: Path) -> Reader:
    return open_reader(encoder, 20, "cpu")


def by_hugging_face(folder: Path, ids: list[int]) -> Any:
    """Return the states (layers, L, D) of one row, computed by transformers alone."""
    model = AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        return torch.stack(model(torch.tensor([ids]), output_hidden_states=True).hidden_states)[:, 0].numpy()


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sentences=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=7), min_size=1, max_size=5))
def test_a_words_state_is_its_first_subwords(encoder: Path, sentences: list[list[str]]) -> None:
    reader = open_reader(encoder, 48, "cpu")
    found = picked_states(reader, *word_pieces(reader.splitter, sentences))
    tokenizer, count = AutoTokenizer.from_pretrained(encoder), 0
    for words in sentences:
        pieces = [tokenizer(word, add_special_tokens=False)["input_ids"] or [tokenizer.unk_token_id] for word in words]
        ids = [tokenizer.cls_token_id, *(piece for part in pieces for piece in part), tokenizer.sep_token_id]
        if len(ids) > 48:
            count += len(words)
            continue
        expected = by_hugging_face(encoder, ids)
        place = 1
        for part in pieces:
            assert np.allclose(found[:, count], expected[:, place], atol=2e-5)
            place, count = place + len(part), count + 1
    assert count == found.shape[1]


def test_a_long_sentence_is_read_in_windows(reader: Reader) -> None:
    words = ["bada", "kefe", "logo", "mini", "tuni"] * 30
    rows, firsts = word_pieces(reader.splitter, [words])
    found = picked_states(reader, rows, firsts)
    assert found.shape[:2] == (3, 150) and len(rows[0]) > 5 * reader.splitter.room
    assert (np.abs(found).sum((0, 2)) > 0).all()
    first, last = rows[0][: reader.splitter.room], rows[0][-reader.splitter.room :]
    whole = by_hugging_face(reader.folder, [*reader.splitter.before, *first, *reader.splitter.after])
    assert np.allclose(found[:, 0], whole[:, 1], atol=2e-5)
    middle = [i for i, place in enumerate(firsts[0]) if len(rows[0]) - reader.splitter.room <= place]
    end = cuts(len(rows[0]), reader.splitter.room)[-1][0]
    ids = rows[0][end : end + reader.splitter.room]
    tail = by_hugging_face(reader.folder, [*reader.splitter.before, *ids, *reader.splitter.after])
    assert np.allclose(found[:, middle[-1]], tail[:, 1 + firsts[0][middle[-1]] - end], atol=2e-5)
    assert len(last) == reader.splitter.room


def test_a_texts_state_is_the_mean_over_its_pieces(reader: Reader) -> None:
    texts = ["bada kefe logo", "mini", "", "kefe " * 40]
    found = mean_states(reader, text_pieces(reader.splitter, texts))
    tokenizer = AutoTokenizer.from_pretrained(reader.folder)
    for number, text in enumerate(texts):
        bare = tokenizer(text, add_special_tokens=False)["input_ids"][: reader.splitter.room] or [
            tokenizer.unk_token_id
        ]
        expected = by_hugging_face(reader.folder, [*reader.splitter.before, *bare, *reader.splitter.after])[
            :, 1:-1
        ].mean(1)
        assert np.allclose(found[:, number], expected, atol=2e-5)


def test_batches_and_their_order_change_nothing_but_rounding(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = [["bada"] * n for n in (1, 9, 3, 30, 2)]
    together = picked_states(reader, *word_pieces(reader.splitter, sentences))
    assert (picked_states(reader, *word_pieces(reader.splitter, sentences)) == together).all()
    monkeypatch.setattr(linear_readout, "TOKENS", 1)
    assert np.allclose(picked_states(reader, *word_pieces(reader.splitter, sentences)), together, atol=1e-5)


def test_what_cannot_be_read_is_said_in_a_sentence(electra: Callable[..., Path], encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pieces of a text fit into a row, and a linear probe needs 4"):
        open_reader(encoder, 5, "cpu")
    huge = electra(initializer_range=1e30)
    reader = open_reader(huge, 20, "cpu")
    with pytest.raises(Diverged, match="not all finite"):
        mean_states(reader, text_pieces(reader.splitter, ["bada kefe"]))
    other = tmp_path / "other"
    shutil.copytree(encoder, other)
    for file in ("config.json", "model.safetensors"):
        shutil.copy(electra(vocab_size=20) / file, other / file)
    small = open_reader(other, 20, "cpu")
    with pytest.raises(InputError, match="do not belong together"):
        mean_states(small, text_pieces(small.splitter, ["bada kefe logo mini tu"]))
