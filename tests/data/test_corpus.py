"""Rows as a function of their position: every row once an epoch, at any size, in constant time and memory."""

from __future__ import annotations

import errno
import gc
import itertools
import json
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data import corpus as corpus_module
from workbench.data.corpus import Corpus, permuted
from workbench.data.prepare import Prepared, bind
from workbench.rng import row_keys
from workbench.spec.parts import Special
from workbench.spec.presets import resolve
from workbench.spec.stages import ResolvedSpec
from workbench.training.plan import plan

SPECIAL = Special(pad=0, unk=1, cls=2, sep=3, mask=4)


def corpus(
    folder: Path, tokens: list[np.ndarray] | list[int], length: int, seed: int = 0, dtype: str = "<u2"
) -> Corpus:
    """Of shards with these tokens; of sparse shards, if they are given as sizes."""
    shards = []
    for number, part in enumerate(tokens):
        path = folder / f"{number}.bin"
        size = part if isinstance(part, int) else len(part)
        if isinstance(part, int):
            with open(path, "wb") as file:
                file.truncate(part * np.dtype(dtype).itemsize)
        else:
            part.astype(dtype).tofile(path)
        shards.append({"name": path.name, "tokens": size})
    (folder / "manifest.json").write_text(json.dumps({"dtype": dtype, "shards": shards}))
    total = sum(shard["tokens"] for shard in shards)
    return Corpus(Prepared(folder, "f", total, 1, 1, 9, SPECIAL, folder), length, seed)


@given(st.integers(1, 3000), st.integers(0, 2**62))
@settings(max_examples=200, deadline=None)
def test_the_permutation_takes_every_place_once(size: int, key: int):
    found = permuted(np.arange(size), size, key)
    assert np.array_equal(np.sort(found), np.arange(size))


@given(st.integers(1, 2**40), st.integers(0, 2**62), st.data())
@settings(max_examples=100, deadline=None)
def test_it_stays_inside_and_apart_at_any_size(size: int, key: int, data: st.DataObject):
    places = np.array(sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=50))))
    found = permuted(places, size, key)
    assert found.min() >= 0 and found.max() < size and len(set(found.tolist())) == len(places)
    one_by_one = [int(permuted(np.array([place]), size, key)[0]) for place in places]
    assert found.tolist() == one_by_one


def test_it_looks_like_chance():
    """Fixed points, neighbours that stay neighbours, and where the first tenth goes, as of a random order."""
    size, fixed, neighbours, early = 10_007, 0, 0, []
    for key in range(40):
        found = permuted(np.arange(size), size, key)
        fixed += int((found == np.arange(size)).sum())
        neighbours += int((np.abs(np.diff(found)) == 1).sum())
        early.append((found[: size // 10] < size // 2).mean())
    assert 15 < fixed < 75  # expected 40
    assert 45 < neighbours < 120  # expected 80
    assert abs(np.mean(early) - 0.5) < 0.01


def test_orders_do_not_change():
    """Runs on disk were trained in these; another order would make every resumed run another run."""
    assert permuted(np.arange(8), 1000, 7).tolist() == [188, 874, 824, 253, 351, 809, 79, 993]
    assert permuted(np.arange(3), 2**33 + 5, 7).tolist() == [4410046693, 2952696572, 600256082]


def test_other_keys_give_other_orders_down_to_small_sizes():
    assert len({tuple(permuted(np.arange(4), 4, key)) for key in range(600)}) == 24
    first, second = (permuted(np.arange(5000), 5000, key) for key in (1, 2))
    assert (first == second).mean() < 0.01


@pytest.mark.parametrize("cuts", [[], [7], [10, 11, 500, 503], list(range(50, 1000, 50))])
def test_rows_are_slices_of_the_stream_wherever_shards_end(tmp_path: Path, cuts: list[int]):
    stream = np.arange(5, 1005)
    made = corpus(tmp_path, np.split(stream, cuts), length=9)
    assert made.rows == 1000 // 7 == 142
    ids = made.batch(0, made.rows).ids
    expected = {(2, *stream[start : start + 7].tolist(), 3) for start in range(0, 142 * 7, 7)}
    assert {tuple(row) for row in ids.tolist()} == expected
    assert ids.dtype == torch.int64 and ids.shape == (142, 9)


def test_a_batch_is_a_pure_function_of_its_position(tmp_path: Path):
    made = corpus(tmp_path, [np.arange(5, 2005)], length=12, seed=3)
    whole = made.batch(0, 3 * made.rows)
    for position, rows in ((0, 1), (17, 40), (made.rows - 3, 9), (2 * made.rows, made.rows)):
        part = Corpus(made.prepared, 12, 3).batch(position, rows)
        assert torch.equal(part.ids, whole.ids[position : position + rows])
        assert torch.equal(part.keys, whole.keys[position : position + rows])
        assert torch.equal(part.keys, row_keys(3, torch.arange(position, position + rows)))
        assert part.attention is None


def test_epochs_hold_the_same_rows_in_another_order(tmp_path: Path):
    made = corpus(tmp_path, [np.arange(5, 2005)], length=12)
    epochs = [made.batch(epoch * made.rows, made.rows) for epoch in range(3)]
    rows = [[tuple(row) for row in epoch.ids.tolist()] for epoch in epochs]
    assert set(rows[0]) == set(rows[1]) == set(rows[2]) and len(set(rows[0])) == made.rows
    assert rows[0] != rows[1] != rows[2] != rows[0]
    assert len(torch.cat([epoch.keys for epoch in epochs]).unique()) == 3 * made.rows
    assert Corpus(made.prepared, 12, 1).batch(0, 50).ids.tolist() != epochs[0].ids[:50].tolist()


def test_large_ids_survive(tmp_path: Path):
    made = corpus(tmp_path, [np.array([70_000, 4_000_000_000, 1, 2, 3, 4])], length=8, dtype="<u4")
    assert made.batch(0, 1).ids.tolist() == [[2, 70_000, 4_000_000_000, 1, 2, 3, 4, 3]]


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.filterwarnings("error")])]
)
@pytest.mark.parametrize(("dtype", "largest"), [("<u2", 1 << 16), ("<u4", 1 << 32)])
def test_tokens_held_on_a_device_give_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, largest: int, device: str
) -> None:
    """In any order of positions, over ends of shards and of epochs, also if a batch is larger than what is gathered."""
    monkeypatch.setattr("workbench.data.corpus.AHEAD", 50)
    monkeypatch.setattr("workbench.data.corpus.BLOCK", 300)
    stream = np.random.default_rng(0).integers(0, largest, 2005)
    mapped = corpus(tmp_path, np.split(stream, [7, 1000]), length=12, seed=3, dtype=dtype)
    mapped.copies = 2
    held = Corpus(mapped.prepared, 12, 3, copies=2)
    assert held.hold(torch.device(device), 10 * stream.nbytes)
    for position, rows in ((0, 8), (8, 8), (45, 8), (16, 4), (190, 20), (3 * mapped.rows - 3, 9), (5, 120), (0, 8)):
        batch, same = held.batch(position, rows, device), mapped.batch(position, rows)
        assert batch.ids.device.type == batch.keys.device.type == device
        assert torch.equal(batch.ids.cpu(), same.ids) and batch.ids.dtype == torch.int64
        assert torch.equal(batch.keys.cpu(), same.keys) and batch.attention is batch.segments is None
        batch.ids.zero_(), batch.keys.zero_()  # an objective may change its batch


def test_tokens_are_held_once_for_all_runs_on_a_text_and_only_where_they_fit(tmp_path: Path) -> None:
    first = corpus(tmp_path, [np.arange(5, 1005)], length=12, seed=0)
    second, device = Corpus(first.prepared, 20, 1), torch.device("cpu")
    assert not first.hold(device, 19_999) and first._tokens is None, "2,000 bytes are more than a tenth"
    assert first.hold(device, 20_000) and second.hold(device, 1) and first._tokens is second._tokens
    del first, second
    gc.collect()
    assert not corpus_module._held, "the memory is free once no run uses it"


def test_ten_billion_rows_cost_no_more_than_ten_thousand(tmp_path: Path):
    """Sparse shards: 6 * 10^10 tokens that take no room on the disk."""
    rows = 10_000_000_000
    made = corpus(tmp_path, [3 * rows, 2 * rows, rows], length=8)
    assert made.rows == rows
    made.batch(rows - 4, 8)
    tracemalloc.start()
    for step in range(20):
        made.batch(step * rows // 7, 128)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000
    order = made.order(np.arange(rows - 500, rows + 500))
    assert order.min() >= 0 and order.max() < rows and order.max() > 2**33
    assert len(set(order[:500])) == len(set(order[500:])) == 500


def test_words_are_counted_over_all_rows_and_pairs_within_rows(tmp_path: Path):
    """In shards that differ, without a last incomplete row, for any seed; a pair across the end of a row is none."""
    rng = np.random.default_rng(0)
    tokens = [rng.integers(5, 9, 500), rng.integers(0, 6, 77)]
    found = corpus(tmp_path, tokens, length=10)
    whole = np.bincount(np.concatenate(tokens)[: found.rows * 8], minlength=9)
    stream, expected = np.concatenate(tokens).tolist(), Counter[int]()
    for row in range(found.rows):
        line = stream[8 * row : 8 * row + 8]
        expected.update(left * 9 + right for left, right in itertools.pairwise(line))
    for seed in (0, 5):
        found = corpus(tmp_path, tokens, length=10, seed=seed)
        keys, counts = found.pairs()
        assert found.counts().tolist() == whole.tolist()
        assert dict(zip(keys.tolist(), counts.tolist(), strict=True)) == expected


def test_of_a_large_corpus_a_sample_is_counted(tmp_path: Path):
    """A second half of other words makes up about half of it."""
    found = corpus(tmp_path, [np.full(40_000, 5), np.full(40_000, 7)], length=10).counts(rows=1000)
    assert found.sum() == 8000 and found[5] + found[7] == 8000
    assert abs(found[5] - 4000) < 500


TOKENS = 10**12
LENGTH = 512
HERE = (0, 2**31, 2**32 + 7, 499_999_999_990, 500_000_000_000, TOKENS - 600)  # positions that hold tokens; others are 0


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    """Two files of 5e11 tokens, of which the disk holds the pages around the positions HERE alone."""
    half = TOKENS // 2
    shards = []
    for number in range(2):
        path = tmp_path / f"tokens-{number:05d}.bin"
        try:
            with open(path, "wb") as file:
                file.truncate(2 * half)
                for place in (place - number * half for place in HERE if number * half <= place < (number + 1) * half):
                    file.seek(2 * place)
                    file.write(np.arange(1, 21, dtype="<u2")[: half - place].tobytes())
        except OSError as error:
            assert error.errno in (errno.EFBIG, errno.EINVAL, errno.ENOSPC)
            pytest.skip("this disk holds no sparse file of a terabyte")
        shards.append({"name": path.name, "tokens": half})
    (tmp_path / "manifest.json").write_text(json.dumps({"dtype": "<u2", "shards": shards}))
    words = tmp_path / "tokenizer"
    return Prepared(tmp_path, "f" * 16, TOKENS, 10**9, 4 * TOKENS, 30_000, SPECIAL, words, words=7 * 10**11)


def test_rows_are_read_at_every_position(prepared: Prepared) -> None:
    corpus = Corpus(prepared, LENGTH, seed=1)
    assert corpus.rows == TOKENS // (LENGTH - 2) == 1_960_784_313
    for place in HERE:
        row = place // (LENGTH - 2)
        ids = corpus._read(np.array([row * (LENGTH - 2)]), 2 * (LENGTH - 2))[0]
        start = place - row * (LENGTH - 2)
        end = 500_000_000_000 - place if place < 500_000_000_000 < place + 20 else 20
        assert ids[start : start + end].tolist() == list(range(1, end + 1))
        assert start == 0 or not ids[:start].any() or place == 500_000_000_000


def test_order_and_keys_are_distinct_far_into_training(prepared: Prepared) -> None:
    corpus = Corpus(prepared, LENGTH, seed=1)
    for position in (0, 2**31 - 500, 2**32 - 500, 3 * corpus.rows - 500, 2**40):
        positions = np.arange(position, position + 1000)
        rows = corpus.order(positions)
        assert rows.dtype == np.int64 and rows.min() >= 0 and rows.max() < corpus.rows
        same_epoch = positions // corpus.rows == position // corpus.rows
        assert len(set(rows[same_epoch].tolist())) == same_epoch.sum()
        batch = corpus.batch(position, 1000)
        assert len(set(batch.keys.tolist())) == 1000 and batch.ids.shape == (1000, LENGTH)


@pytest.mark.parametrize("size", [10**12, 2**40 + 1, 10**12 // 126])
def test_the_permutation_reaches_all_of_a_long_stream(size: int) -> None:
    images = permuted(np.arange(size - 20_000, size), size, key=5)
    assert len(set(images.tolist())) == 20_000 and images.min() >= 0 and images.max() < size
    tenths = np.bincount(images // -(-size // 10), minlength=10)
    assert (abs(tenths - 2000) < 250).all()  # five standard deviations


def test_a_plan_of_as_many_tokens_counts_all(prepared: Prepared) -> None:
    base = resolve("nano", {"data.length": LENGTH, "encoder.positions": LENGTH, "budget": {"tokens": 2 * TOKENS}})
    made = plan(ResolvedSpec(bind(base, prepared)))
    assert made.tokens == pytest.approx(2 * TOKENS, rel=1e-6)
    assert made.epochs == pytest.approx(2, rel=1e-2)
