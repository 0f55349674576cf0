"""BabyLM's fine-tuning tasks, from the files `TASK.train.jsonl` and `TASK.valid.jsonl` of its data, compressed or not.

They have names of their own, such as `babylm:mnli`: some have a sample of the training rows, and all are tested on
parts of the dev sets, so their scores are not scores of GLUE. The two texts of a row are formed as in BabyLM's
evaluation pipeline.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.data.formats import json_rows
from workbench.data.streams import lines
from workbench.errors import InputError
from workbench.tasks.common.contract import OF_TEXTS
from workbench.tasks.common.examples import Examples, Task
from workbench.tasks.common.table_files import checked_text
from workbench.tasks.superglue import JsonSuite

SUITE = "babylm"
PREFIX = "babylm:"


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


def _task(name: str, files: Mapping[str, Path]) -> Task:
    row = ROWS[name]
    train, valid = (_examples(path, row) for path in files.values())
    return Task(
        name=PREFIX + name, suite=SUITE, labels=tuple(map(str, range(row.labels))), metric="accuracy",
        metrics=row.metrics, epochs=row.epochs, train=train, tests={"valid": valid}, predictions="numbers",
    )  # fmt: skip


def _examples(path: Path, row: Row) -> Examples:
    first, second, targets = list[str](), list[str](), list[int]()
    for line, columns in json_rows(path, lines(path)):
        where = f"{path}, {line}"
        for texts, template in ((first, row.first), (second, row.second)):
            named = [name for _, name, _, _ in string.Formatter().parse(template) if name]
            texts.append(template.format(**{name: checked_text(columns.get(name), name, where) for name in named}))
        label = columns.get("label")
        if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < row.labels:
            raise InputError(f"{where}: label {label!r:.80} is not a number from 0 to {row.labels - 1}")
        targets.append(label)
    if not targets:
        raise InputError(f"{path} holds no rows")
    return Examples(first, second, targets)


TASKS = JsonSuite(SUITE, ROWS, lambda name: {part: f"{name}.{part}.jsonl" for part in ("train", "valid")}, _task)
trains = True
groups = (SUITE,)
reads = {*OF_TEXTS, "babylm"}
names = [(PREFIX + name, SUITE, "accuracy", row.summary) for name, row in ROWS.items()]
accepts, load = TASKS.accepts, TASKS.load
