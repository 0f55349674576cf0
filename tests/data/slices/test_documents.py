"""Documents of several sources: how many are read, and what is set aside."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from workbench.data import sources
from workbench.data.filters import documents, without
from workbench.spec.parts import DataSpec


@pytest.fixture
def data(tmp_path: Path) -> DataSpec:
    """Two files of ten documents of ten characters."""
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("\n\n".join(f"{name} doc {number:04d}" for number in range(10)))
    return DataSpec(corpus=(str(tmp_path / "a.txt"), str(tmp_path / "b.txt")))


def test_all_documents_come_in_the_order_of_the_sources(data: DataSpec) -> None:
    words = Counter[str]()
    found = list(documents(data, sources.resolve(data), words=words))
    assert found == [f"{name} doc {number:04d}" for name in "ab" for number in range(10)]
    assert list(words.values()) == [30, 30] and all(Path(name).name in ("a.txt", "b.txt") for name in words)


@pytest.mark.parametrize(("limit", "expected"), [(1, 1), (10, 1), (11, 2), (100, 10), (101, 11), (10**6, 20)])
def test_reading_ends_with_the_document_that_reaches_the_limit(data: DataSpec, limit: int, expected: int) -> None:
    assert len(list(documents(data, sources.resolve(data), limit=limit))) == expected


def test_the_limit_of_the_hub_is_of_its_data_sets_alone(data: DataSpec) -> None:
    assert len(list(documents(data, sources.resolve(data), hub_limit=1))) == 20


def test_held_out_parts_are_set_aside_and_neither_yielded_nor_counted(data: DataSpec) -> None:
    data, aside, words = data.model_copy(update={"held_out": 0.4}), list[str](), Counter[str]()
    kept = list(documents(data, sources.resolve(data), aside=aside.append, words=words))
    everything = list(documents(data.model_copy(update={"held_out": 0.0}), sources.resolve(data)))
    assert kept == [text for each in everything if (text := without(each, 0.4, None))]
    assert sorted(kept + aside) == sorted(everything) and kept and aside
    assert sum(words.values()) == 3 * len(kept)
