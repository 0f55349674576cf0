"""Tagged sentences in Parquet files in the layout of the Hugging Face hub: a row for each sentence.

Words are the list in column `tokens` (or `words`), tags the list in `ner_tags`, `tags`, `pos_tags` or `chunk_tags`, or
in a column that is named. Tags may be numbers if the file says what they are called, as the library datasets writes it.
Files of a split are `SPLIT-00000-of-00002.parquet`, or lie in a folder of its name, at most two folders down. Rows that
hold `-DOCSTART-` alone are skipped, as in CoNLL's files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.data.formats import parquet_rows, whole_split
from workbench.data.tagged import DOCUMENT, Sentence
from workbench.errors import InputError, encodable

SUFFIX = ".parquet"
SPLITS = ("train", "validation", "valid", "dev", "test")
SHARD = re.compile(rf"({'|'.join(SPLITS)})(?:-\d+-of-\d+)?")
DEPTHS = ("", "*/", "*/*/")
WORDS = ("tokens", "words")
TAGS = ("ner_tags", "tags", "pos_tags", "chunk_tags")


def splits_of(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each split of the data set in a folder, in order; empty if there are none.

    Raises InputError if several data sets or configurations are in it.
    """
    by_split: dict[tuple[Path, str], list[Path]] = {}
    for path in sorted(path for depth in DEPTHS for path in folder.glob(f"{depth}*{SUFFIX}")):
        if match := SHARD.fullmatch(path.stem):
            by_split.setdefault((path.parent, match[1]), []).append(path)
        elif path.parent.name in SPLITS and path.parent != folder:
            by_split.setdefault((path.parent.parent, path.parent.name), []).append(path)
    sets = list(dict.fromkeys(place for place, _ in by_split))
    if len(sets) > 1:
        shown = ", ".join(str(place.relative_to(folder)) or "." for place in sets)
        raise InputError(f"{folder} holds several data sets ({shown}); name the folder of one of them")
    return {split: paths for (_, split), paths in by_split.items()}


def shards(first: Path) -> list[Path]:
    """Return the files of the split that a file begins."""
    match = SHARD.fullmatch(first.stem)
    beside = first.parent.glob(f"*{SUFFIX}")
    return [path for path in beside if not match or ((m := SHARD.fullmatch(path.stem)) and m[1] == match[1])]


def read_raw(first: Path, column: str = "") -> list[Sentence]:
    """Return the sentences of the split that a file begins, with the tags as they are written.

    The number of a row stands for the line of its words. Raises InputError naming the file and the row.
    """
    sentences = [sentence for path in whole_split(shards(first)) for sentence in _sentences(path, column)]
    if not any(sentence.words for sentence in sentences):
        raise InputError(f"{first} holds no tagged sentences")
    return sentences


def _sentences(path: Path, column: str) -> Iterator[Sentence]:
    """Yield the sentences of one file."""
    names: list[str] | None = None
    words = tags = ""
    for number, (where, row) in enumerate(parquet_rows(path, str(path)), 1):
        if not words:
            words, tags = _columns(path, list(row), column)
            names = _names(path, tags)
        place = f"{path}, {where}"
        tokens, values = row[words], row[tags]
        if not isinstance(tokens, list) or not isinstance(values, list) or len(tokens) != len(values):
            raise InputError(f"{place}: {words!r} and {tags!r} are not two lists of the same length")
        if len(tokens) == 1 and isinstance(tokens[0], str) and DOCUMENT.match(tokens[0]):
            continue
        for token in tokens:
            if not isinstance(token, str) or not token.strip() or not encodable(token):
                raise InputError(f"{place}: {words!r} holds {token!r:.40}, which is not a word")
        yield Sentence(
            tuple(tokens), tuple(_tag(each, names, tags, place) for each in values), (number,) * max(1, len(tokens))
        )


def _tag(value: Any, names: list[str] | None, column: str, where: str) -> str:
    """Return the name of a tag. Raises InputError."""
    if isinstance(value, str) and value.strip() and encodable(value):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{where}: {column!r} holds {value!r:.40}, which is not a tag")
    if names is None:
        raise InputError(f"{where}: {column!r} holds the number {value}, and the file does not say what it is called")
    if not 0 <= value < len(names):
        raise InputError(f"{where}: {column!r} holds {value}, and the tags have numbers from 0 to {len(names) - 1}")
    return names[value]


def _columns(path: Path, columns: list[str], column: str) -> tuple[str, str]:
    """Return the columns of words and of tags. Raises InputError if there is none."""
    words = next((name for name in WORDS if name in columns), "")
    tags = column or next((name for name in TAGS if name in columns), "")
    if not words or tags not in columns:
        lacking = column or (" or ".join(TAGS) if words else " or ".join(WORDS))
        raise InputError(f"{path} has no column {lacking}; its columns are {', '.join(columns)}")
    return words, tags


def _names(path: Path, column: str) -> list[str] | None:
    """Return what the numbers of a column are called, from the file's own description; None if it has none."""
    import pyarrow.parquet as pq

    metadata = (pq.read_schema(path).metadata or {}).get(b"huggingface")
    try:
        feature = json.loads(metadata)["info"]["features"][column] if metadata else None
    except (ValueError, KeyError, TypeError):
        return None
    while isinstance(feature, dict | list) and "names" not in feature:  # a list of features, in one of three spellings
        feature = (
            feature[0]
            if isinstance(feature, list) and feature
            else feature.get("feature")
            if isinstance(feature, dict)
            else None
        )
    names = feature.get("names") if isinstance(feature, dict) else None
    return [str(name) for name in names] if isinstance(names, list) else None
