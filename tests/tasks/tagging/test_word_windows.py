"""Words in windows: every word is read once, at its own piece."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tagged_made import WORDS

from workbench.tasks._tagger import word_windows
from workbench.tasks.common.encoder_folders import load_encoder
from workbench.tasks.common.token_rows import SHORTEST, Splitter, open_splitter


class Plain:
    """A slow tokenizer: a piece for each letter, and none for a word of `x`."""

    is_fast = False
    unk_token_id, eos_token_id, bos_token_id, pad_token_id = 1, None, None, 0

    def __call__(self, texts: Any, add_special_tokens: bool = True, verbose: bool = True) -> dict[str, Any]:
        return {"input_ids": [[ord(letter) for letter in text if letter not in "x "] for text in texts]}


WORD = st.text(alphabet="abcx", min_size=1, max_size=9)


@settings(deadline=None, max_examples=150)
@given(
    texts=st.lists(st.lists(WORD, min_size=1, max_size=30), min_size=1, max_size=4),
    room=st.integers(SHORTEST, 24), last=st.booleans(),
)  # fmt: skip
def test_every_word_is_read_once_at_its_own_piece(texts: list[list[str]], room: int, last: bool) -> None:
    splitter = Splitter(Path("x"), Plain(), (2,), (3,), room)
    data = word_windows(splitter, texts, last)
    words = [word for each in texts for word in each]
    read = np.concatenate([numbers for _, numbers in data.places])
    assert data.count == len(words) and sorted(read.tolist()) == list(range(len(words)))
    assert data.empty == sum(set(word) == {"x"} for word in words)
    for ids, (positions, numbers) in zip(data.rows.ids, data.places, strict=True):
        assert len(positions) and len(ids) <= room + 2 and (ids[0], ids[-1]) == (2, 3)
        for position, number in zip(positions, numbers, strict=True):
            letters = words[number].replace("x", "")
            assert ids[position] == (ord(letters[-last]) if letters else 1)
            if room >= 8:  # with context on both sides, unless the sentence ends there
                assert position > 1 or number == 0 or ids[1] == ids[position]


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(
        st.lists(st.sampled_from([*WORDS, "\u200d", "日本"]), min_size=1, max_size=40), min_size=1, max_size=3
    )
)
def test_batches_hold_each_words_state(texts: list[list[str]], encoder: Path) -> None:
    config = load_encoder(encoder, 0.0).config
    data = word_windows(open_splitter(encoder, config, 16, "tagging"), texts, last=False)
    rows = np.arange(len(data.rows))[::-1]
    inputs, places, numbers = data.batch(rows, "cpu")
    ids = inputs["input_ids"].flatten()[places].tolist()
    firsts = {n: data.rows.ids[r][p] for r, where in enumerate(data.places) for p, n in zip(*where, strict=True)}
    assert ids == [firsts[number] for number in numbers]
