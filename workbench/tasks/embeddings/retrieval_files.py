"""A collection for retrieval in BEIR's layout (Thakur et al. 2021): corpus, queries and relevance.

    DIR/corpus.jsonl     {"_id": "d1", "title": "...", "text": "..."}, or corpus.tsv with a header of these names
    DIR/queries.jsonl    {"_id": "q1", "text": "..."}, or queries.tsv
    DIR/qrels/test.tsv   query-id, corpus-id, score, with a header; or qrels/dev.tsv, or qrels.tsv
    DIR/qrels/train.tsv  the same of queries to train on, read only where embeddings are fine-tuned

Files may be packed. Raises InputError that names file and line for a row that cannot be used; what can be used and is
odd is counted and named in sentences.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.data.formats import delimited_rows, json_rows
from workbench.data.streams import lines, packed_or_not
from workbench.errors import InputError, plural
from workbench.progress import warn_once
from workbench.spec.scoring import TESTED
from workbench.tasks.embeddings.embedding_task import Relevant
from workbench.tasks.rows import checked_text, first_of

IDS = ("_id", "id")
RELEVANCE = ("query-id", "corpus-id", "score")
Found = dict[str, list[str]]  # what is odd -> where
FATES = (("counts as never found", "scored"), ("is not trained on", "trained on"))  # of odd rows, by part


def read(folder: Path, trained: bool = False) -> tuple[dict[str, Relevant], list[str]]:
    """Return the parts of a collection, `test` first, and sentences on what is odd about it. Raises InputError.

    With `trained`, the last part is `train`.
    """
    faults: Found = {}
    documents = _texts(_file(folder, "corpus"), faults)
    queries = _texts(_file(folder, "queries"), faults)
    files = {part: path for part in TESTED if (path := packed_or_not(folder / "qrels" / f"{part}.tsv"))}
    alone = packed_or_not(folder / "qrels.tsv")
    if not files and alone is None:
        raise InputError(f"{folder} has no qrels/test.tsv, qrels/dev.tsv or qrels.tsv, which say what is relevant")
    if files and alone is not None:
        warn_once(f"{alone} is not read, but the files in {folder / 'qrels'}")
    named = files or {"test": alone} if alone is not None else files
    if trained:
        named |= {"train": _training(folder)}
    parts = {
        part: Relevant(queries, documents, _grades(path, queries, documents, faults, FATES[part == "train"]))
        for part, path in named.items()
    }
    return parts, [_sentence(what, places) for what, places in faults.items()]


def _file(folder: Path, name: str) -> Path:
    """Return the file of texts of this name. Raises InputError if there is none."""
    table = packed_or_not(folder / f"{name}.jsonl", folder / f"{name}.tsv")
    if table is None:
        raise InputError(f"{folder} has no {name}.jsonl or {name}.tsv, as a collection for retrieval needs")
    return table


def _training(folder: Path) -> Path:
    """Return the file of the relevance to train on. Raises InputError if there is none."""
    table = packed_or_not(folder / "qrels/train.tsv")
    if table is None:
        raise InputError(
            f"{folder} has no qrels/train.tsv, with the relevant documents of queries to train on; without it, leave "
            f"out tasks.embeddings, which measures the frozen encoder"
        )
    return table


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield ("line 7", {column: value}) for each row of JSON lines or of a TSV file with a header."""
    if ".jsonl" in path.name:
        yield from json_rows(path, lines(path))
        return
    rows = delimited_rows(path, lines(path), "\t")
    header = [name.strip() for name in next(rows, ("", []))[1]]
    for where, fields in rows:
        if len(fields) != len(header):
            raise InputError(f"{path}, {where}: {len(fields)} fields where the header has {len(header)}")
        yield where, dict(zip(header, fields, strict=True))


def _texts(path: Path, faults: Found) -> dict[str, str]:
    """Return the texts of a file by their ids, a title before its text. Raises InputError."""
    texts: dict[str, str] = {}
    first: dict[str, str] = {}
    for line, columns in _rows(path):
        where = f"{path}, {line}"
        id = next((columns[name] for name in IDS if columns.get(name) not in (None, "")), None)
        if id is None or isinstance(id, (bool, float, list, dict)):
            raise InputError(f"{where}: there is no '_id'; each row needs one, and a 'text'")
        if str(id) in texts:
            raise InputError(f"{where}: the id {id} occurs twice, first in {first[str(id)]}; remove one of the two")
        title = checked_text(columns.get("title") or "", "title", where)
        text = f"{title} {checked_text(columns.get('text'), 'text', where)}".strip()
        if not text:
            faults.setdefault("with an empty text", []).append(where)
        texts[str(id)], first[str(id)] = text, where
    if not texts:
        raise InputError(f"{path} holds no rows")
    return texts


def _grades(
    path: Path, queries: Mapping[str, str], documents: Mapping[str, str], faults: Found, fates: tuple[str, str]
) -> dict[str, dict[str, float]]:
    """Return the grade above 0 of each relevant document by query. Raises InputError.

    `fates` say what becomes of documents that are not there, and what queries without relevant ones are not.
    """
    unknown, alone = fates
    graded: dict[str, dict[str, float]] = {}
    place: dict[str, str] = {}
    for line, columns in _rows(path):
        where = f"{path}, {line}"
        lacking = [name for name in RELEVANCE if name not in columns]
        if lacking:
            raise InputError(
                f"{where}: there is no column {lacking[0]!r}; qrels have {', '.join(RELEVANCE)} in a header"
            )
        query, document, grade = str(columns["query-id"]), str(columns["corpus-id"]), _number(columns["score"], where)
        if query not in queries:
            faults.setdefault("about a query that is not in the queries, and is left out", []).append(where)
            continue
        if document not in documents:
            faults.setdefault(f"about a document that is not in the corpus, and {unknown}", []).append(where)
        given = graded.setdefault(query, {})
        if document in given:
            faults.setdefault(
                "about a query and a document that an earlier row has, of which the last counts", []
            ).append(where)
        given[document] = grade
        place.setdefault(query, where)
    relevant = {query: {d: grade for d, grade in each.items() if grade > 0} for query, each in graded.items()}
    for query in (query for query, each in relevant.items() if not each):
        faults.setdefault(f"about a query without any relevant document, which is not {alone}", []).append(place[query])
    scored = {query: each for query, each in relevant.items() if each}
    if not scored:
        raise InputError(f"{path} has no relevant document (a score above 0) of any query")
    return scored


def _number(value: Any, where: str) -> float:
    """Return a grade. Raises InputError if it is not a number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{where}: score {value!r:.40} is not a number")
    return number


def _sentence(what: str, places: list[str]) -> str:
    """Return a sentence on the rows that something holds for."""
    return f"{plural(len(places), 'row')} {what}: {first_of(places)}"
