"""Near-duplicates: signatures against exact Jaccard similarities, and the same text for any slices and processes."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest
from text_files import Small, content, make, spec_of

from workbench.data import filters, near_duplicates, preprocessing
from workbench.data.near_duplicates import flags
from workbench.data.prepare import already
from workbench.errors import InputError
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec
from workbench.store.cache import differences

COPIES = 100


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A text in which some documents come again later, with one word changed; and its documents without those."""
    draw = random.Random(3)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 9))) for _ in range(3000)]
    first = [" ".join(draw.choices(words, k=draw.randint(30, 120))) for _ in range(750)]
    whole = list(first)
    for document in draw.sample(first, COPIES):
        again = document.split()
        again[0] = "another"
        whole.insert(draw.randint(whole.index(document) + 1, len(whole)), " ".join(again))
    folder = tmp_path_factory.mktemp("copied")
    (folder / "whole.txt").write_text("\n\n".join(whole))
    (folder / "kept.txt").write_text("\n\n".join(first))
    return folder / "whole.txt", first


def found(path: Path, **more: object) -> RunSpec:
    return spec_of(path, data__near_duplicates=0.7, **more)


def test_the_text_is_that_of_a_file_without_them(copied: tuple[Path, list[str]], tmp_path: Path) -> None:
    whole, first = copied
    left = make(found(whole), tmp_path / "one")
    kept = make(spec_of(whole.with_name("kept.txt")), tmp_path / "two")
    assert left.documents == kept.documents == len(first)
    assert left.fingerprint == kept.fingerprint and left.removed["near_duplicates"]["documents"] == COPIES
    assert not list(differences(tmp_path / "one"))
    assert json.loads((left.folder / "manifest.json").read_text())["removed"] == left.removed


def test_slices_and_processes_change_nothing(
    copied: tuple[Path, list[str]], tmp_path: Path, sliced: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = found(copied[0], data__held_out=0.1, data__min_words=35)
    one = make(spec, tmp_path / "one")
    sliced(40_000)
    monkeypatch.setattr(near_duplicates, "RANGE", 300)
    two = make(spec, tmp_path / "two", workers=2)
    assert len(list((tmp_path / "two/slices").iterdir())) > 5
    assert (one.fingerprint, one.removed, one.documents) == (two.fingerprint, two.removed, two.documents)
    assert filters.read(one.folder) == filters.read(two.folder)
    assert set(one.removed) == {"min_words", "near_duplicates"}
    [folder] = (tmp_path / "two/duplicates").iterdir()
    counts = json.loads((folder / "slice.json").read_text())["documents"]
    assert [flag for number in range(len(counts)) for flag in flags(folder, number)] == list(flags(folder))


def test_a_large_text_leaves_the_same_out_of_the_sample_of_its_vocabulary(
    copied: tuple[Path, list[str]], tmp_path: Path, sliced: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preprocessing, "WHOLE", 1000)
    sliced(20_000)
    left = make(found(copied[0]), tmp_path / "one")
    assert left.removed["near_duplicates"]["documents"] == COPIES and left.documents == len(copied[1])


def test_the_flags_depend_on_earlier_documents_alone(
    copied: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the slow way: each document's bands are compared with those of all before it."""
    from datasketch import MinHash

    documents = copied[0].read_text().split("\n\n")
    monkeypatch.setattr(near_duplicates, "AT_ONCE", 7)  # a long document is hashed in parts
    bands, rows = near_duplicates.bands_of(0.7)
    blank = MinHash(num_perm=near_duplicates.PERMUTATIONS, seed=1, scheme="affine32")
    seen: set[tuple[int, bytes]] = set()
    expected = []
    for document in documents:
        values = near_duplicates._values(document, blank)
        assert values is not None
        own = {(band, values[4 * band * rows : 4 * (band + 1) * rows]) for band in range(bands)}
        expected.append(bool(own & seen))
        seen |= own
    monkeypatch.undo()
    make(found(copied[0]), tmp_path)
    [folder] = (tmp_path / "duplicates").iterdir()
    assert list(flags(folder)) == expected and sum(expected) >= COPIES


def test_another_similarity_is_another_text_and_run_and_none_is_that_of_before(
    copied: tuple[Path, list[str]], tmp_path: Path
) -> None:
    base = spec_of(copied[0])
    assert "near_duplicates" not in base.identity()["data"]
    make(base, tmp_path)
    assert not (tmp_path / "duplicates").exists()
    assert already(found(copied[0]), tmp_path) is None
    assert found(copied[0]).name != base.name and already(base, tmp_path) is not None


def test_damaged_flags_are_made_again(copied: tuple[Path, list[str]], tmp_path: Path, sliced: Small) -> None:
    sliced(40_000)
    make(found(copied[0]), tmp_path)
    before = content(tmp_path)
    [folder] = (tmp_path / "duplicates").iterdir()
    raw = bytearray((folder / "left-out.bin").read_bytes())
    raw[5] ^= 1
    (folder / "left-out.bin").write_bytes(raw)
    for each in (tmp_path / "data").iterdir():
        (each / "manifest.json").write_text("{}")
    signature = next(iter((tmp_path / "signatures").iterdir()))
    (signature / "hashes.bin").write_bytes(b"")
    make(found(copied[0]), tmp_path)
    assert content(tmp_path) == before


@pytest.mark.parametrize("value", [0, -1, 1.5, "many"])
def test_a_similarity_out_of_range_is_refused(value: object) -> None:
    with pytest.raises(InputError, match="near_duplicates"):
        resolve("nano", {"data.near_duplicates": value})


# ---- signatures of one slice ----


WORDS = [f"w{number}" for number in range(5000)]


def text(seed: int, words: int = 200) -> list[str]:
    return random.Random(seed).choices(WORDS, k=words)


def changed(words: list[str], share: float, seed: int) -> list[str]:
    """A stretch of the words is replaced, so that about this share of the shingles differs."""
    other = list(words)
    other[: round(share * len(words))] = text(seed, round(share * len(words)))
    return other


def similarity(a: str, b: str) -> float:
    one, two = set(near_duplicates._shingles(a)), set(near_duplicates._shingles(b))
    return len(one & two) / len(one | two)


def repeated(folder: Path, documents: list[str | None], threshold: float = 0.8) -> list[bool]:
    folder.mkdir(exist_ok=True)
    return [bool(flag) for flag in near_duplicates.write(folder, documents, threshold)[1]]


@pytest.mark.parametrize("threshold", [0.5, 0.8, 0.95])
def test_similar_documents_are_found_as_often_as_the_formula_says(tmp_path: Path, threshold: float) -> None:
    bands, rows = near_duplicates.bands_of(threshold)
    assert bands * rows <= near_duplicates.PERMUTATIONS
    for share in (0.0, 0.02, 0.1, 0.3):
        pairs = [(" ".join(text(seed)), " ".join(changed(text(seed), share, seed + 10_000))) for seed in range(60)]
        flags = repeated(tmp_path / "a", [each for pair in pairs for each in pair], threshold)
        assert not any(flags[::2])
        expected = [1 - (1 - similarity(*pair) ** rows) ** bands for pair in pairs]
        spread = 4 * sum(p * (1 - p) for p in expected) ** 0.5
        assert abs(sum(flags[1::2]) - sum(expected)) <= spread + 0.5, share


def test_the_first_of_equal_documents_stays_and_case_and_punctuation_do_not_count(tmp_path: Path) -> None:
    one = " ".join(text(1))
    documents = [None, one, one.upper(), one.replace(" ", ", "), " ".join(text(2)), one]
    assert repeated(tmp_path / "a", documents) == [False, False, True, True, False, True]


def test_short_documents_are_compared_as_a_whole_and_empty_ones_not_at_all(tmp_path: Path) -> None:
    documents = ["a b", "a b", "a c", "", "", "...", "!!", None, None, "a", "A."]
    assert repeated(tmp_path / "a", documents) == [False, True] + [False] * 8 + [True]
    counts, flags = near_duplicates.write(tmp_path, [], 0.8)
    assert not any(counts) and len(flags) == 0


def test_without_datasketch_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketch", None)
    with pytest.raises(InputError, match=r"data.near_duplicates=0.8 needs .* pip install 'encoder-workbench\[dedup\]'"):
        near_duplicates.bands_of(0.8)


def test_a_document_that_is_left_out_for_its_length_does_not_stand_for_others(tmp_path: Path) -> None:
    one = " ".join(text(1))
    assert repeated(tmp_path / "a", [None, one, one]) == [False, False, True]


def test_a_long_document_is_hashed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from datasketch import MinHash

    blank = MinHash(num_perm=near_duplicates.PERMUTATIONS, seed=1, scheme="affine32")
    whole = near_duplicates._values(" ".join(text(1)), blank)
    monkeypatch.setattr(near_duplicates, "AT_ONCE", 7)
    assert near_duplicates._values(" ".join(text(1)), blank) == whole
