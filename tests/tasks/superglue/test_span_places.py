"""Where the spans of a row are in its text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from superglue_made import load

from workbench.tasks.superglue import ABSENT, MOVED, spans_of


@pytest.mark.parametrize(
    ("text", "words", "index", "marked", "fault"),
    [
        ("Joe Joe's uncle saw him, Joe.", "him", 4, "him", None),
        ("Joe Joe's uncle saw him, Joe.", "Joe", 5, "Joe", None),
        ("the Old man, the old Man", "the old man", 3, "the old Man", None),
        ("the Old man, the old Man", "the old man", 1, "the Old man", MOVED),
        ("a theatre and the end", "the", 0, "the", MOVED),
        ("a red car", "blue sky", 1, "red car", ABSENT),
        ("he said hehe", "he", None, "he", None),
    ],
)
def test_a_span_is_found_at_its_index_or_named(
    text: str, words: str, index: int | None, marked: str, fault: str | None
) -> None:
    odd: list[str] = []
    columns = {"span1_text": words, "span1_index": index, "span2_text": text.split()[0], "span2_index": 0}
    (start, end), _ = spans_of(columns, text, "x.jsonl, line 1", odd)
    assert text[start:end] == marked and odd == ([fault] if fault else [])
    if marked == "Joe":
        assert start == text.rindex("Joe")


def test_the_real_spans_of_wsc_are_all_found(real_data: Path) -> None:
    path = real_data / "glue_babylm" / "wsc.train.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path}")
    (task,) = load(f"spans:{path}")
    assert (len(task.train), len(task.tests["dev"])) == (554, 52) and task.labels == ("0", "1")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    spans = task.train.spans or []
    texts = [(text[a:b], text[c:d]) for text, ((a, b), (c, d)) in zip(task.train.first, spans, strict=True)]
    same = [one.lower() == row["span1_text"].lower() and two.lower() == row["span2_text"].lower()
            for (one, two), row in zip(texts, rows, strict=True)]  # fmt: skip
    assert sum(same) >= 550, [pair for pair, good in zip(texts, same, strict=True) if not good]
