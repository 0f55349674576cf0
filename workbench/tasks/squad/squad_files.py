"""SQuAD's files: the official JSON, compressed or not, and the Parquet files of the hub.

What the official code tolerates is counted under a phrase that says what is wrong, in which file and where first: an
answer that is not at its offset cannot be trained on, and its text still counts in a test. Raises InputError, which
names file, place and id, for a question that cannot be used at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import InputError
from workbench.tasks.rows import checked_text, rows_of, text_of
from workbench.tasks.squad.questions import Question, Questions


@dataclass(frozen=True)
class Row:
    """One question as a file has it, with its place there for messages."""

    where: str
    id: str
    article: str
    context: str
    question: str
    answers: tuple[tuple[str, int], ...]
    impossible: bool


@dataclass
class Faults:
    """Faults of a file that can be tolerated: how often each kind occurs, and the first place where it does."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, row: Row) -> None:
        """Count a fault of a question."""
        self.counts[what] = self.counts.get(what, 0) + 1
        self.first.setdefault(what, f"{row.where} (id {row.id})")

    def phrases(self) -> dict[str, int]:
        """Return how often each fault occurs, by a phrase that names the fault and the first place."""
        return {f"{what}, first in {self.first[what]}": count for what, count in self.counts.items()}


def read(paths: list[Path], unanswerable: bool, training: bool) -> tuple[Questions, dict[str, int]]:
    """Return the questions of the files of one part, and what is wrong with them.

    `unanswerable` says that the files are of version 2.0. Questions that cannot be trained on are left out if
    `training`. Raises InputError.
    """
    faults = Faults()
    paragraphs: dict[str, int] = {}
    questions: list[Question] = []
    seen: dict[str, str] = {}
    for row in (row for path in paths for row in _rows(path, unanswerable)):
        if row.id in seen and not training:
            raise InputError(f"{row.where}: id {row.id} occurs twice, first in {seen[row.id]}; remove one of the two")
        if row.id in seen:
            faults.add("ids occur twice", row)
        seen.setdefault(row.id, row.where)
        number = paragraphs.setdefault(row.context, len(paragraphs))
        if _usable(row, unanswerable, training, faults):
            questions.append(Question(row.id, row.question, number, row.answers, row.impossible, row.article))
    if not questions:
        raise InputError(f"{paths[0]} holds no question that can be {'trained on' if training else 'scored'}")
    return Questions(list(paragraphs), questions), faults.phrases()


def _usable(row: Row, unanswerable: bool, training: bool, faults: Faults) -> bool:
    """Return whether a question is kept, after its faults are counted. Raises InputError if it has no meaning."""
    if not row.question.strip():
        faults.add("questions are empty", row)
    if row.impossible and not unanswerable:
        raise InputError(f"{row.where}: question {row.id} is marked impossible, which occurs in SQuAD 2.0 alone")
    if not row.answers and not row.impossible:
        raise InputError(f"{row.where}: question {row.id} has no answer and is not marked impossible")
    if row.impossible and row.answers:
        faults.add("questions are marked impossible and have answers", row)
    for number, (text, start) in enumerate(row.answers):
        where = misplaced(row.context, text, start)
        if where is None:
            continue
        lost = training and number == 0 and not row.impossible
        faults.add(f"answers {where}{' (and are not trained on)' if lost else ''}", row)
        if lost:
            return False
    return True


def misplaced(context: str, text: str, start: int) -> str | None:
    """Return a phrase that says why an answer is not at its offset; None if it is."""
    if start < 0 or start + len(text) > len(context):
        return "end beyond the text" if start >= 0 else "begin before the text"
    if not text.strip():
        return "have no text"
    return None if context[start : start + len(text)] == text else "are not at their offset"


def _rows(path: Path, unanswerable: bool) -> Iterator[Row]:
    return _parquet(path, unanswerable) if path.suffix == ".parquet" else _official(path, unanswerable)


# ---- the official JSON ----


def _official(path: Path, unanswerable: bool) -> Iterator[Row]:
    """Yield the questions of an official file. Raises InputError."""
    try:
        content = json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not JSON: {str(error)[:120]}; download it again") from None
    for article, where in _items(content, "data", str(path), ": "):
        for paragraph, place in _items(article, "paragraphs", where):
            context = _text(paragraph, "context", place)
            name = _title(article, context, where)
            for entry, there in _items(paragraph, "qas", place):
                yield _row(entry, name, context, there, unanswerable)


def _row(entry: dict[str, Any], article: str, context: str, where: str, unanswerable: bool) -> Row:
    """Return an entry of `qas`. Raises InputError if a key is missing or of another type."""
    id = _text(entry, "id", where)
    here = f"{where}, question {id}"
    answers = []
    for answer, place in _items(entry, "answers", here, ", "):
        answers.append((_text(answer, "text", place), _offset(answer.get("answer_start"), place)))
    impossible = entry.get("is_impossible", unanswerable and not answers)
    if not isinstance(impossible, bool):
        raise InputError(f"{here}: 'is_impossible' is {impossible!r:.40}, and must be true or false")
    return Row(where, id, article, context, _text(entry, "question", here, empty=True), tuple(answers), impossible)


def _items(holder: Any, key: str, where: str, mark: str = ".") -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each object in the list under a key with its place. Raises InputError if it is not a list of objects."""
    if not isinstance(holder, dict) or not isinstance(holder.get(key), list):
        fault = "is not a list" if isinstance(holder, dict) and key in holder else "is missing"
        raise InputError(f"{where}: {key!r} {fault}; SQuAD's files hold data, paragraphs, qas and answers")
    for number, each in enumerate(holder[key]):
        place = f"{where}{mark}{key}[{number}]"
        if not isinstance(each, dict):
            raise InputError(f"{place} is {type(each).__name__} instead of an object")
        yield each, place


def _text(holder: dict[str, Any], key: str, where: str, empty: bool = False) -> str:
    """Return the text under a key. Raises InputError if there is none that a tokenizer can read."""
    text = checked_text(holder.get(key), key, where)
    if not text.strip() and not empty and key != "text":
        raise InputError(f"{where}: {key!r} is empty")
    return text


def _title(holder: dict[str, Any], context: str, where: str) -> str:
    """Return the title of an article, by which a devsplit is cut, or the context if it has none. Raises InputError."""
    title = holder.get("title")
    return checked_text(title, "title", where) if isinstance(title, str) else context


def _offset(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{where}: 'answer_start' is {value!r:.40}, and must be a whole number")
    return value


# ---- the hub's Parquet ----


def _parquet(path: Path, unanswerable: bool) -> Iterator[Row]:
    """Yield the rows of a Parquet file of the hub, whose answers are two lists. Raises InputError."""
    for place, columns in rows_of(path):
        where = f"{path}, {place}"
        answers = columns.get("answers")
        lists = [answers.get(key) for key in ("text", "answer_start")] if isinstance(answers, dict) else [None]
        if not all(isinstance(each, list) for each in lists) or len({len(each or ()) for each in lists}) != 1:
            raise InputError(f"{where}: column 'answers' does not hold lists 'text' and 'answer_start' of equal length")
        entry = {
            "id": columns.get("id"), "question": columns.get("question"),
            "answers": [{"text": text, "answer_start": start} for text, start in zip(*lists, strict=True)],
        }  # fmt: skip
        context = _text(columns, "context", where)
        yield _row(entry, _title(columns, context, where), context, where, unanswerable)
