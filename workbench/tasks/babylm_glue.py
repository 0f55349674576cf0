"""BabyLM's fine-tuning tasks, from the files `TASK.train.jsonl` and `TASK.valid.jsonl` of its data, compressed or not.

They have names of their own, such as `babylm:mnli`: some have a sample of the training rows, and all are tested on
parts of the dev sets, so their scores are not those of GLUE. The two texts of a row are formed as in BabyLM's
evaluation pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.data.formats import json_rows
from workbench.data.streams import lines, packed_or_not
from workbench.errors import InputError, suggest
from workbench.spec.parts import TasksSpec
from workbench.store.atomic import user_path
from workbench.tasks.common.contract import TUNING, HeldOut, Name, Suite
from workbench.tasks.common.examples import Examples, Task, fingerprinted, held_out
from workbench.tasks.common.table_files import checked_text

SUITE = "babylm"
PREFIX = "babylm:"
KEY = "--set tasks.babylm"
trains = True


@dataclass(frozen=True)
class Row:
    """How one task is read: templates of its two texts, the number of its labels, its metrics and its epochs.

    A template names columns of the files. `rows` is the number of test rows in BabyLM's own data.
    """

    first: str
    second: str
    rows: int
    labels: int = 2
    metrics: tuple[str, ...] = ("accuracy",)
    epochs: float = 10.0
    summary: str = ""


ROWS: dict[str, Row] = {
    "boolq": Row("{question}", "{passage}", 1635, summary="does the passage answer the question with yes"),
    "mnli": Row(
        "{premise}", "{hypothesis}", 4908, 3, summary="MNLI, 10,000 training rows and half of the matched dev set"
    ),
    "mrpc": Row("{sentence1}", "{sentence2}", 204, metrics=("accuracy", "f1"), summary="MRPC, half of its dev set"),
    "multirc": Row(
        "Question: {question} Answer: {answer}", "{paragraph}", 2424,
        summary="is the answer to a question about the passage right",
    ),
    "qqp": Row(
        "{question1}", "{question2}", 20_215, metrics=("accuracy", "f1"),
        summary="QQP, 10,000 training rows and half of its dev set",
    ),
    "rte": Row("{sentence1}", "{sentence2}", 139, summary="RTE, half of its dev set"),
    "wsc": Row(
        'Does "{span2_text}" refer to "{span1_text}" in this passage?', "{text}", 52, epochs=30.0,
        summary="to whom does the pronoun refer",
    ),
}  # fmt: skip


def names_of(word: str) -> list[str]:
    """Return the tasks that a name stands for: one, or for `babylm` all. Raises InputError."""
    name = word.lower().removeprefix(PREFIX)
    if name == SUITE:
        return list(ROWS)
    if name not in ROWS:
        raise InputError(f"--tasks names an unknown task {word!r}{suggest(name, ['glue', *ROWS])}")
    return [name]


groups = (SUITE,)
reads = {*TUNING, "length", "rows", "held_out", "lm_weight", "babylm"}


def names() -> list[Name]:
    """Return the name, suite, metric and summary of each task."""
    return [(PREFIX + name, SUITE, "accuracy", row.summary) for name, row in ROWS.items()]


def accepts(word: str) -> bool:
    """Return whether a word begins as these tasks do. Raises InputError if there is no such task."""
    return word.lower().startswith(PREFIX) and bool(names_of(word))


def load(words: Sequence[str], options: TasksSpec, text: HeldOut | None = None) -> Suite:
    """Return the tasks of some names, and for those of `babylm` that are not available which files are missing.

    Raises InputError if a task selected by its own name is not available, or if no task is.
    """
    if options.babylm is None:
        raise InputError(
            f"--tasks {words[0]}: give the folder of BabyLM's TASK.train.jsonl and TASK.valid.jsonl with {KEY}=DIR"
        )
    folder = user_path(options.babylm, f"{KEY}:")
    selected = {name for word in words for name in names_of(word)}
    loaded: list[Task] = []
    missing: dict[str, str] = {}
    for name in (name for name in ROWS if name in selected):
        parts = {part: packed_or_not(folder / f"{name}.{part}.jsonl") for part in ("train", "valid")}
        lacking = [f"{name}.{part}.jsonl" for part, path in parts.items() if path is None]
        if lacking:
            missing[PREFIX + name] = f"no {' or '.join(lacking)} in {folder}"
        else:
            task = fingerprinted(_task(name, {part: path for part, path in parts.items() if path}), options.rows)
            loaded.append(held_out(task, options.held_out))
    alone = [PREFIX + name for word in words if word.lower() != SUITE for name in names_of(word)]
    if fault := next((name for name in (alone or list(missing)) if name in missing and (alone or not loaded)), None):
        raise InputError(f"task {fault} is not available: {missing[fault]}; give their folder with {KEY}=DIR")
    return Suite(tuple(loaded), missing)


def _task(name: str, parts: Mapping[str, Path]) -> Task:
    row = ROWS[name]
    examples = {part: _examples(path, row) for part, path in parts.items()}
    return Task(
        name=PREFIX + name, suite=SUITE, labels=tuple(map(str, range(row.labels))), metric="accuracy",
        metrics=row.metrics, epochs=row.epochs, train=examples["train"], tests={"valid": examples["valid"]},
        predictions="numbers",
    )  # fmt: skip


def _examples(path: Path, row: Row) -> Examples:
    first, second, targets = list[str](), list[str](), list[int]()
    for line, columns in json_rows(path, lines(path)):
        where = f"{path}, {line}"
        first.append(_filled(row.first, columns, where))
        second.append(_filled(row.second, columns, where))
        label = columns.get("label")
        if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < row.labels:
            raise InputError(f"{where}: label {label!r:.80} is not a number from 0 to {row.labels - 1}")
        targets.append(label)
    if not targets:
        raise InputError(f"{path} holds no rows")
    return Examples(first, second, targets)


def _filled(template: str, row: Mapping[str, Any], where: str) -> str:
    """Return a template filled with columns of a row. Raises InputError if a column is missing or holds no text."""
    import string

    columns = [name for _, name, _, _ in string.Formatter().parse(template) if name]
    return template.format(**{name: checked_text(row.get(name), name, where) for name in columns})
