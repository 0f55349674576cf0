"""A stream of 10^12 tokens is planned, ordered and read without being made: no number wraps at 2^31 or 2^32."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import numpy as np
import pytest

from workbench.data.corpus import Corpus, permuted
from workbench.data.prepare import Prepared, bind
from workbench.spec.parts import Special
from workbench.spec.presets import resolve
from workbench.spec.stages import ResolvedSpec
from workbench.training.plan import plan

TOKENS = 10**12
LENGTH = 512
HERE = (0, 2**31, 2**32 + 7, 499_999_999_990, 500_000_000_000, TOKENS - 600)  # positions that hold tokens; others are 0


def written(folder: Path) -> Prepared:
    """Two files of 5e11 tokens, of which the disk holds the pages around the positions HERE alone."""
    half = TOKENS // 2
    shards = []
    for number in range(2):
        path = folder / f"tokens-{number:05d}.bin"
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
    (folder / "manifest.json").write_text(json.dumps({"dtype": "<u2", "shards": shards}))
    special = Special(pad=0, unk=1, cls=2, sep=3, mask=4)
    return Prepared(
        folder, "f" * 16, TOKENS, 10**9, 4 * TOKENS, 30_000, special, folder / "tokenizer", words=7 * 10**11
    )


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    return written(tmp_path)


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
