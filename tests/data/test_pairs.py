"""Rows of two segments: against a slow loop over single rows, and what holds for every row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data import corpus
from workbench.data.corpus import DRAWS, Corpus, Pairs, document_ends
from workbench.data.prepare import Prepared
from workbench.data.tokenizer import save, sentence_ends, train
from workbench.errors import InputError
from workbench.rng import row_keys
from workbench.spec.parts import Special

SPECIAL = Special(pad=0, unk=1, cls=2, sep=3, mask=4)
FIRST = 10  # the smallest id of a token of text


def stream_of(sizes: list[int]) -> np.ndarray:
    """Documents of these sizes with [SEP] after each; every token of text is another one."""
    number, parts = FIRST, []
    for size in sizes:
        parts += [np.arange(number, number + size), [SPECIAL.sep]]
        number += size
    return np.concatenate(parts).astype(np.int64)


def made(kind: Any, sizes: list[int], length: int, ends: set[int]) -> Pairs:
    """The pairs of a stream of documents in which the tokens `ends` end a sentence."""
    stream = stream_of(sizes)
    marks = np.isin(np.arange(stream.max() + 1), list(ends))

    def read(starts: np.ndarray, width: int) -> np.ndarray:
        return np.array([np.pad(stream[at : at + width], (0, max(0, at + width - len(stream)))) for at in starts])

    at = np.flatnonzero(stream == SPECIAL.sep)
    starts = np.array([0, *at[:-1] + 1])
    return Pairs(kind, length, SPECIAL, starts, at - starts, marks, read)


# A slow version of one row, written from the description


def nearest(begins: list[int], middle: int, reach: int) -> int | None:
    """The sentence that begins nearest to the middle, the earlier of two, or None if none is near."""
    near = [at for at in begins if abs(at - middle) <= reach]
    return min(near, key=lambda at: (abs(at - middle), at)) if near else None


def slow_row(kind: str, documents: list[list[int]], ends: set[int], length: int, number: int, u: Any) -> Any:
    """The two segments of a row, and whether they were taken apart."""
    room, which = length - 3, 0
    while number >= -(-len(documents[which]) // room):
        number -= -(-len(documents[which]) // room)
        which += 1
    document, texts, reach = documents[which], -(-len(documents[which]) // room), room // 2
    size = len(document)
    target = min(2 + int(u[1] * (room - 1)) if u[0] < 0.1 else room, size)
    a = 1 + int(u[2] * (target - 1))
    middle = a + (number * (size - target) // (texts - 1) if texts > 1 else 0)
    begins = [at for at in range(1, size) if document[at - 1] in ends]
    cut, broken = nearest(begins, middle, reach), bool(u[3] < 0.5)
    if kind == "order":
        first, second = slow_order(document, begins, cut, middle, a, target, reach, bool(u[6] < 0.5))
        return ([second, first] if broken else [first, second]), broken
    others = [other for other in range(len(documents)) if other != which]
    other = documents[others[int(u[4] * len(others))]]
    high = max(0, len(other) - room)
    place = int(u[5] * (high + 1))
    begin = nearest([at for at in range(high + 1) if at == 0 or other[at - 1] in ends], place, reach)
    if cut is None or begin is None:
        cut, begin = middle, place
    a = min(max(a, target - (size - cut)), cut)
    b = min(target - a, len(other) - begin)
    return [document[cut - a : cut], other[begin : begin + b] if broken else document[cut : cut + b]], broken


def slow_order(
    document: list[int], begins: list[int], cut: int | None, middle: int, a: int, target: int, reach: int,
    backward: bool,
) -> tuple[list[int], list[int]]:  # fmt: skip
    """The two segments in the order of the text."""
    size, edges = len(document), [0, *begins, len(document)]
    if cut is not None:
        size_a = min(max(a, target - (size - cut)), cut)
        begin, end = cut - size_a, cut + target - size_a
        earlier = [at for at in edges if begin - reach <= at <= begin]
        later = [at for at in edges if end <= at <= end + reach]
        if backward and later:
            return document[begin:cut], document[later[0] - (target - size_a) : later[0]]
        if not backward and earlier:
            return document[earlier[-1] : earlier[-1] + size_a], document[cut:end]
    return document[middle - a : middle], document[middle : middle + target - a]


@given(
    st.sampled_from(["next", "order"]), st.lists(st.integers(2, 90), min_size=2, max_size=6), st.integers(8, 30),
    st.sampled_from([0.0, 0.1, 0.4]), st.integers(0, 10**6),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_rows_equal_a_slow_loop(kind: str, sizes: list[int], length: int, rate: float, seed: int) -> None:
    numbers = np.random.default_rng(seed)
    documents = [part.tolist() for part in np.split(np.arange(FIRST, FIRST + sum(sizes)), np.cumsum(sizes)[:-1])]
    ends = {token for document in documents for token in document if numbers.random() < rate}
    rows = made(kind, sizes, length, ends)
    draws = numbers.random((len(rows), DRAWS))
    found = rows.rows(np.arange(len(rows)), draws)
    for row in range(len(rows)):
        (first, second), broken = slow_row(kind, documents, ends, length, row, draws[row])
        ids = [SPECIAL.cls, *first, SPECIAL.sep, *second, SPECIAL.sep]
        assert first and second and len(ids) <= length
        assert found.ids[row].tolist() == ids + [SPECIAL.pad] * (length - len(ids))
        assert found.attention[row].tolist() == [place < len(ids) for place in range(length)]
        kinds = [0] * (len(first) + 2) + [1] * (len(second) + 1)
        assert found.segments[row].tolist() == kinds + [0] * (length - len(ids))
        assert bool(found.broken[row]) == broken


def epoch(kind: str) -> tuple[Pairs, Any]:
    """An epoch of long documents with a sentence end at about every tenth token."""
    numbers = np.random.default_rng(0)
    ends = set(numbers.choice(240_000, 24_000, replace=False).tolist())
    paired = made(kind, [24_000] * 10, 63, ends)
    return paired, paired.rows(np.arange(len(paired)), numbers.random((len(paired), DRAWS)))


@pytest.mark.parametrize("kind", ["next", "order"])
def test_a_row_shows_its_label_neither_by_its_length_nor_by_its_parts(kind: str) -> None:
    paired, rows = epoch(kind)
    assert len(paired) == 4000
    assert rows.broken.mean() == pytest.approx(0.5, abs=0.03)
    text = rows.attention.sum(1) - 3
    assert (text < 60).mean() == pytest.approx(0.1 * 58 / 59, abs=0.02)
    second = rows.segments.sum(1)
    for size in (text, second):
        assert size[rows.broken].mean() == pytest.approx(
            size[~rows.broken].mean(), rel=0.02 if kind == "next" else 0.05
        )
    # Nor by whether a segment begins or ends with a sentence.
    ends, row = np.append(paired.ends_sentence, False), np.arange(len(rows.ids))
    for place in (0, text - second + 2):
        begins = ends[rows.ids[row, place + 1] - 1]
        assert begins[rows.broken].mean() == pytest.approx(begins[~rows.broken].mean(), abs=0.05)
    for place in (text - second + 1, text + 1):
        last = ends[rows.ids[row, place]]
        assert last[rows.broken].mean() == pytest.approx(last[~rows.broken].mean(), abs=0.05)


def test_an_epoch_shows_nearly_all_of_the_text() -> None:
    paired, rows = epoch("order")
    seen = set(rows.ids[rows.attention].tolist()) - {SPECIAL.cls, SPECIAL.sep}
    assert len(seen) > 0.7 * 240_000  # texts overlap by the distance to a sentence, at other places in every epoch
    again = paired.rows(np.arange(len(paired)), np.random.default_rng(1).random((len(paired), DRAWS)))
    assert len(seen | set(again.ids.ravel().tolist())) > 0.85 * 240_000


def test_a_random_segment_is_of_another_document() -> None:
    _, rows = epoch("next")
    text = rows.attention.sum(1) - 3
    second = rows.ids[np.arange(len(rows.ids)), text - rows.segments.sum(1) + 3]
    apart = (rows.ids[:, 1] - FIRST) // 24_000 != (second - FIRST) // 24_000
    assert np.array_equal(apart, rows.broken)
    assert {int(each) for each in (second[rows.broken] - FIRST) // 24_000} == set(range(10))


# The corpus that serves them


def written(folder: Path, sizes: list[int], shards: int = 1) -> Prepared:
    folder.mkdir(exist_ok=True)
    stream, names = stream_of(sizes), []
    for number, part in enumerate(np.array_split(stream, shards)):
        part.astype("<u4").tofile(folder / f"{number}.bin")
        names.append({"name": f"{number}.bin"})
    (folder / "manifest.json").write_text(json.dumps({"dtype": "<u4", "shards": names}))
    return Prepared(folder, "f", len(stream), len(sizes), 1, int(stream.max()) + 1, SPECIAL, folder)


def test_ends_of_documents_are_found_wherever_files_and_blocks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [3, 1, 40, 0, 7]
    written(tmp_path, sizes, shards=4)
    files = sorted(tmp_path.glob("*.bin"))
    expected = np.flatnonzero(stream_of(sizes) == SPECIAL.sep).tolist()
    for block in (1, 5, 1 << 24):
        monkeypatch.setattr(corpus, "BLOCK", block)
        assert document_ends(files, np.dtype("<u4"), SPECIAL.sep).tolist() == expected
    assert document_ends([], np.dtype("<u4"), SPECIAL.sep).tolist() == []


@pytest.mark.parametrize("kind", ["next", "order"])
def test_a_batch_of_pairs_is_a_pure_function_of_its_position(tmp_path: Path, kind: Any) -> None:
    prepared = written(tmp_path, [500, 1, 300, 7, 90], shards=3)
    corpus = Corpus(prepared, 16, 3, kind)
    assert corpus.rows == 39 + 24 + 1 + 7  # a document of one token has no pair
    whole = corpus.batch(0, 3 * corpus.rows)
    assert torch.equal(whole.keys, row_keys(3, torch.arange(3 * corpus.rows)))
    for position, rows in ((0, 1), (17, 40), (corpus.rows - 3, 9)):
        part = Corpus(prepared, 16, 3, kind).batch(position, rows)
        for name, value in part.tensors().items():
            assert torch.equal(value, whole.tensors()[name][position : position + rows]), name
    assert whole.tensors().keys() == {"ids", "keys", "attention", "segments", "broken"}
    assert not torch.equal(
        whole.ids[: corpus.rows].sort(0).values, whole.ids[corpus.rows : -corpus.rows].sort(0).values
    )
    assert np.array_equal(corpus.counts(), Corpus(prepared, 16, 3).counts())


@pytest.mark.parametrize("kind", [None, "next"])
def test_copies_repeat_in_turn(tmp_path: Path, kind: Any) -> None:
    """The same row has the same draws in every epoch of a copy, and others in the other copies."""
    corpus = Corpus(written(tmp_path, [100, 200, 90]), 16, 5, kind, copies=2)
    epochs = [corpus.batch(number * corpus.rows, corpus.rows) for number in range(5)]
    keys = [set(epoch.keys.tolist()) for epoch in epochs]
    assert keys[0] == keys[2] == keys[4] and keys[1] == keys[3] and not keys[0] & keys[1]
    assert [epoch.keys.tolist() for epoch in epochs[:1]] != [epoch.keys.tolist() for epoch in epochs[2:3]]
    rows = [dict(zip(epoch.keys.tolist(), epoch.ids.tolist(), strict=True)) for epoch in epochs]
    assert rows[0] == rows[2] and rows[1] == rows[3]


def test_pairs_need_two_documents(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data.pairs=next needs two or more documents .* and the corpus has 1; separ"):
        Corpus(written(tmp_path, [100, 1]), 16, 0, "next")


def test_sentences_end_with_three_marks(tmp_path: Path) -> None:
    trained = train(["is it so ? it is . oh ! 3 , 4 ; yes"] * 50, 200)
    save(trained, tmp_path, lowercase=True)
    ends = sentence_ends(tmp_path, 200)
    assert {trained.id_to_token(int(number)) for number in np.flatnonzero(ends)} == {".", "!", "?"}
    assert sentence_ends(tmp_path / "none", 9).tolist() == [False] * 9
