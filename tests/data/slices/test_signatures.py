"""Bands of MinHash values: what is repeated within a slice, against Jaccard similarities that are computed exactly."""

from __future__ import annotations

import builtins
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.data import minhash
from workbench.errors import InputError

WORDS = [f"w{number}" for number in range(5000)]


def text(seed: int, words: int = 200) -> list[str]:
    return random.Random(seed).choices(WORDS, k=words)


def changed(words: list[str], share: float, seed: int) -> list[str]:
    """A stretch of the words is replaced, so that about this share of the shingles differs."""
    other = list(words)
    other[: round(share * len(words))] = text(seed, round(share * len(words)))
    return other


def similarity(a: str, b: str) -> float:
    one, two = set(minhash._shingles(a)), set(minhash._shingles(b))
    return len(one & two) / len(one | two)


def repeated(folder: Path, documents: list[str | None], threshold: float = 0.8) -> list[bool]:
    folder.mkdir(exist_ok=True)
    return [bool(flag) for flag in minhash.write(folder, documents, threshold)[1]]


@pytest.mark.parametrize("threshold", [0.5, 0.8, 0.95])
def test_similar_documents_are_found_as_often_as_the_formula_says(tmp_path: Path, threshold: float) -> None:
    bands, rows = minhash.bands_of(threshold)
    assert bands * rows <= minhash.PERMUTATIONS
    for share in (0.0, 0.02, 0.1, 0.3):
        pairs = [(" ".join(text(seed)), " ".join(changed(text(seed), share, seed + 10_000))) for seed in range(60)]
        flags = repeated(tmp_path / "a", [each for pair in pairs for each in pair], threshold)
        assert not any(flags[::2])
        expected = [1 - (1 - similarity(*pair) ** rows) ** bands for pair in pairs]
        spread = 4 * sum(p * (1 - p) for p in expected) ** 0.5
        assert abs(sum(flags[1::2]) - sum(expected)) <= spread + 0.5, share


def test_the_first_of_equal_documents_stays_and_case_and_punctuation_do_not_count(tmp_path: Path) -> None:
    one = " ".join(text(1))
    documents = [one, one.upper(), one.replace(" ", ", "), " ".join(text(2)), one]
    assert repeated(tmp_path / "a", documents) == [False, True, True, False, True]


def test_short_documents_are_compared_as_a_whole_and_empty_ones_not_at_all(tmp_path: Path) -> None:
    documents = ["a b", "a b", "a c", "", "", "...", "!!", None, None, "a", "A."]
    assert repeated(tmp_path / "a", documents) == [False, True] + [False] * 8 + [True]


def test_a_document_that_is_left_out_for_its_length_does_not_stand_for_others(tmp_path: Path) -> None:
    one = " ".join(text(1))
    assert repeated(tmp_path / "a", [None, one, one]) == [False, False, True]


def test_the_files_hold_each_hash_once_in_order_with_its_first_document(tmp_path: Path) -> None:
    one, two = " ".join(text(1)), " ".join(text(2))
    counts, _ = minhash.write(tmp_path, [one, two, one, None, two, " ".join(text(3))], 0.8)
    bands, _ = minhash.bands_of(0.8)
    assert counts == [3] * bands
    hashes = np.fromfile(tmp_path / minhash.FILES[0], "<u8").reshape(bands, 3)
    places = np.fromfile(tmp_path / minhash.FILES[1], "<u4").reshape(bands, 3)
    assert (np.diff(hashes.astype(object)) > 0).all()
    assert all(sorted(each) == [0, 1, 5] for each in places.tolist())
    assert {path.name for path in tmp_path.iterdir()} == set(minhash.FILES)


def test_a_long_document_is_hashed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from datasketch import MinHash

    blank = MinHash(num_perm=minhash.PERMUTATIONS, seed=1, scheme="affine32")
    whole = minhash._values(" ".join(text(1)), blank)
    monkeypatch.setattr(minhash, "AT_ONCE", 7)
    assert minhash._values(" ".join(text(1)), blank) == whole


def test_a_slice_without_documents_has_no_entries(tmp_path: Path) -> None:
    counts, flags = minhash.write(tmp_path, [], 0.8)
    assert not any(counts) and len(flags) == 0


def test_without_datasketch_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any, **others: Any) -> Any:
        if name == "datasketch":
            raise ImportError
        return real(name, *more, **others)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"data.near_duplicates=0.8 needs .* pip install 'encoder-workbench\[dedup\]'"):
        minhash.bands_of(0.8)
