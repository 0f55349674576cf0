"""The test parts of GLUE, and predictions on them in the files that the server of GLUE accepts.

A submission is one zip of 11 files: names, header, spelling of labels and numbers of rows are those that jiant's
scripts write and the server compares. AX, the diagnostic set, is predicted by the classifier of MNLI.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import InputError
from workbench.tasks.finetuning.glue import ROWS, Row, hub_rows, tsv_rows
from workbench.tasks.rows import checked_text
from workbench.tasks.task import Examples

HEADER = "index\tprediction"
DECIMALS = 3  # of the scores of STS-B, as jiant writes them


@dataclass(frozen=True)
class Part:
    """One file of a submission.

    `name` is that of the file without `.tsv`. `task` is the task whose classifier predicts it. `path` is the official
    file with its texts, and `split` their config and split on the hub. `rows` is their number.
    """

    name: str
    task: str
    path: str
    split: tuple[str, str]
    rows: int

    @property
    def file(self) -> str:
        return f"{self.name}.tsv"


PARTS = {
    part.name: part
    for part in (
        Part("CoLA", "CoLA", "CoLA/test.tsv", ("cola", "test"), 1063),
        Part("SST-2", "SST-2", "SST-2/test.tsv", ("sst2", "test"), 1821),
        Part("MRPC", "MRPC", "MRPC/test.tsv", ("mrpc", "test"), 1725),
        Part("STS-B", "STS-B", "STS-B/test.tsv", ("stsb", "test"), 1379),
        Part("QQP", "QQP", "QQP/test.tsv", ("qqp", "test"), 390_965),
        Part("MNLI-m", "MNLI", "MNLI/test_matched.tsv", ("mnli", "test_matched"), 9796),
        Part("MNLI-mm", "MNLI", "MNLI/test_mismatched.tsv", ("mnli", "test_mismatched"), 9847),
        Part("QNLI", "QNLI", "QNLI/test.tsv", ("qnli", "test"), 5463),
        Part("RTE", "RTE", "RTE/test.tsv", ("rte", "test"), 3000),
        Part("WNLI", "WNLI", "WNLI/test.tsv", ("wnli", "test"), 146),
        Part("AX", "MNLI", "diagnostic/diagnostic.tsv", ("ax", "test"), 1104),
    )
}


def read(folder: Path, part: Part) -> Examples | None:
    """Return the texts of a part, from its official file or the hub's; None if there is neither.

    Raises InputError for a number of rows that the server would refuse, and for rows in another order.
    """
    path, row = folder / part.path, ROWS[part.task]
    if path.is_file():
        rows: Iterator[tuple[str, list[Any]]] = _official_rows(path, row)
    else:
        official = hub_rows(folder, *part.split, row.text_columns)
        if official is None:
            return None
        path, rows = folder / part.split[0], official
    names = row.text_columns
    texts = [
        [checked_text(each, name, where) for each, name in zip(fields, names, strict=True)] for where, fields in rows
    ]
    if len(texts) != part.rows:
        raise InputError(
            f"{path} has {len(texts):,} rows for {part.file}, and the server of GLUE takes exactly {part.rows:,}; give "
            f"the official file"
        )
    first, *second = (list(column) for column in zip(*texts, strict=True))
    return Examples(first, second[0] if second else None, [0] * len(first))


def _official_rows(path: Path, row: Row) -> Iterator[tuple[str, list[Any]]]:
    """Yield (file and line, texts) of each row. Raises InputError if the first column does not count them from 0."""
    columns = row.texts if row.header else row.hub_texts  # test files have a header, also those of CoLA
    for expected, (number, (index, *fields)) in enumerate(tsv_rows(path, [0, *columns])):
        if index != str(expected):
            raise InputError(
                f"{path}, line {number}: the index is {index[:20]!r}, and {expected} is expected; predictions are "
                f"numbered in the official order"
            )
        yield f"{path}, line {number}", fields


def fingerprint(rows: Examples) -> str:
    """Return 16 hex digits of a hash over the texts of a part."""
    return hashlib.sha256(json.dumps([rows.first, rows.second]).encode()).hexdigest()[:16]


def averaged(outputs: Sequence[Any], row: Row) -> Any:
    """Return the mean (N, labels) of the outputs of several classifiers: of their probabilities, or of their scores.

    The outputs of a single one are returned as they are.
    """
    import numpy as np
    from scipy.special import softmax

    if len(outputs) == 1:
        return outputs[0]
    return np.mean([each if row.span else softmax(each.astype(np.float64), axis=1) for each in outputs], axis=0)


def words_of(outputs: Any, row: Row) -> list[str]:
    """Return the predictions of outputs (N, labels) as the server spells them.

    The score of a regression is clipped to its range, since the server refuses any other.
    """
    if row.span is None:
        return [row.labels[i] for i in outputs.argmax(1).tolist()]
    low, high = row.span
    scores = (low + (high - low) * outputs[:, 0].astype(float)).clip(low, high)
    return [f"{score:.{DECIMALS}f}" for score in scores.tolist()]


def tsv(predictions: Iterable[str]) -> bytes:
    """Return the content of a file of predictions."""
    lines = [HEADER, *(f"{index}\t{word}" for index, word in enumerate(predictions))]
    return ("\n".join(lines) + "\n").encode()
