"""Questions with their answers, or texts with two marked spans, as plain rows; and what is odd about them.

A row that cannot be used is refused by the readers. What can be used and is odd stays in the data, and is counted and
named by file and line in sentences (`notes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.errors import InputError, plural
from workbench.tasks.rows import checked_text, first_of
from workbench.tasks.task import Examples, Spans


@dataclass(frozen=True)
class Row:
    """One row of a file: its place for messages, its id if it has one, and what is odd about it.

    `first` is the text that all answers share, `seconds` the text of each answer, or a single None if there is only one
    text. `targets` has one label for each of `seconds`. `spans` are two spans of `first` by characters.
    """

    where: str
    id: str | None
    first: str
    seconds: tuple[str | None, ...]
    targets: tuple[Any, ...]
    spans: Spans | None = None
    odd: tuple[str, ...] = ()


def examples(rows: Sequence[Row], grouped: bool) -> Examples:
    """Return rows as examples, an example for each answer; with `grouped` they keep the numbers of their questions."""
    each = [(number, row, place) for number, row in enumerate(rows) for place in range(len(row.seconds))]
    second = [row.seconds[place] for _, row, place in each]
    return Examples(
        [row.first for _, row, _ in each], None if None in second else [text or "" for text in second],
        [row.targets[place] for _, row, place in each], [number for number, _, _ in each] if grouped else None,
        [row.spans for _, row, _ in each if row.spans] or None,
    )  # fmt: skip


def id_of(columns: Mapping[str, Any]) -> str | None:
    """Return the id of a row, which official files call idx; None if it has none."""
    number = next((columns[name] for name in ("idx", "id") if columns.get(name) is not None), None)
    return None if number is None else str(number)


def text(columns: Mapping[str, Any], name: str, where: str, faults: list[str]) -> str:
    """Return the text of a column; an empty one is added to `faults`. Raises InputError if there is none."""
    value = checked_text(columns.get(name), name, where)
    if not value.strip():
        faults.append(f"an empty {name}")
    return value


def label(value: Any, names: Sequence[str], where: str) -> int:
    """Return the number of a label that is a name, true or false, or a number. Raises InputError for any other."""
    word = str(value).lower() if isinstance(value, bool) else value
    if isinstance(word, str) and word in names:
        return names.index(word)
    if isinstance(word, str) and word.isascii() and word.isdigit():
        word = int(word)
    if isinstance(word, bool) or not isinstance(word, int) or not 0 <= word < len(names):
        raise InputError(f"{where}: label {value!r:.80} is not one of {', '.join(names)}")
    return word


def notes(parts: Mapping[str, Sequence[Row]], shared: bool = True) -> list[str]:
    """Return a sentence on each kind of oddity: what rows say of themselves, and ids that occur twice.

    With `shared`, rows to test on whose texts are also trained on are named as well.
    """
    trained = {_content(row) for row in parts["train"]} if shared else set()
    sentences = []
    for part, rows in parts.items():
        for kind in dict.fromkeys(each for row in rows for each in row.odd):
            sentences.append(_sentence(part, rows, [kind in row.odd for row in rows], kind))
        sentences.append(_sentence(part, rows, _repeated([row.id for row in rows]), "an id that an earlier row has"))
        if part != "train":
            same = "the same texts as a row to train on, so the score is partly one of memory"
            sentences.append(_sentence(part, rows, [_content(row) in trained for row in rows], same))
    return [sentence for sentence in sentences if sentence]


def _repeated(ids: Sequence[str | None]) -> list[bool]:
    """Return for each row whether an earlier one has its id."""
    first: dict[str, int] = {}
    return [each is not None and first.setdefault(each, row) != row for row, each in enumerate(ids)]


def _content(row: Row) -> tuple[Any, ...]:
    return row.first, row.seconds, row.spans


def _sentence(part: str, rows: Sequence[Row], holds: Sequence[bool], what: str) -> str:
    """Return a sentence on the rows of a part that something holds for; "" if there are none."""
    places = [row.where for row, does in zip(rows, holds, strict=True) if does]
    if not places:
        return ""
    has = "has" if len(places) == 1 else "have"
    return f"{plural(len(places), 'row')} of the {len(rows):,} of {part} {has} {what}: {first_of(places)}"
