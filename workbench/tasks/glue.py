"""The nine GLUE tasks (Wang et al. 2019), read from the official folders or from the Parquet files of the hub."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.data.formats import whole_split
from workbench.data.hugging_face.hub import fetch
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.store.atomic import user_path
from workbench.tasks.common.contract import TUNING, HeldOut, Name, Suite
from workbench.tasks.common.examples import Examples, Task, fingerprinted, held_out
from workbench.tasks.common.table_files import FORMATS, checked_text, rows_of, text_of

KEY = "--set tasks.glue"
trains = True
HUB = "nyu-mll/glue"
_DEV = {"dev": ("dev", "validation")}
_MATCHED = {
    "matched": ("dev_matched", "validation_matched"),
    "mismatched": ("dev_mismatched", "validation_mismatched"),
}
_ENTAILMENT = ("entailment", "not_entailment")
_BINARY = ("0", "1")
_PAIR = ("sentence1", "sentence2")


@dataclass(frozen=True)
class Row:
    """How one task is read, measured and fine-tuned.

    `texts` and `label` are names of columns in the official header, or numbers of columns if there is no header;
    `hub_texts` are the hub's names of the text columns if they differ. `tests` maps our name of a test part to its
    official file and its split on the hub. `labels` are in the hub's order. `span` is the range of the targets of a
    regression. `gaps` says that the official file is known to hold lines with lost tabs, which every reader skips.
    """

    name: str
    config: str
    texts: tuple[str | int, ...]
    label: str | int = "label"
    labels: tuple[str, ...] = _BINARY
    metric: str = "accuracy"
    metrics: tuple[str, ...] = ("accuracy",)
    epochs: float = 3.0
    tests: Mapping[str, tuple[str, str]] = field(default_factory=lambda: _DEV)
    hub_texts: tuple[str, ...] = ()
    span: tuple[float, float] | None = None
    symmetric: bool = False
    gaps: bool = False
    summary: str = ""

    @property
    def header(self) -> bool:
        return isinstance(self.label, str)

    @property
    def text_columns(self) -> list[str]:
        """The names of the text columns on the hub."""
        return list(self.hub_texts or map(str, self.texts))


# Metrics and epochs: docs/electra.md 5. `symmetric` is the official `double_unordered`, which leaves QQP out.
ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        Row(
            "CoLA", "cola", (3,), 1, metric="matthews", metrics=("matthews", "accuracy"), hub_texts=("sentence",),
            summary="is the sentence acceptable English",
        ),
        Row("SST-2", "sst2", ("sentence",), summary="is the film review positive"),
        Row(
            "MRPC", "mrpc", ("#1 String", "#2 String"), "Quality", metrics=("accuracy", "f1"), hub_texts=_PAIR,
            symmetric=True, summary="do two sentences from the news have the same meaning",
        ),
        Row(
            "STS-B", "stsb", _PAIR, "score", (), "spearman", ("spearman", "pearson"), 10.0, span=(0.0, 5.0),
            symmetric=True, summary="how similar are the meanings of two sentences, 0 to 5",
        ),
        Row(
            "QQP", "qqp", ("question1", "question2"), "is_duplicate", metrics=("accuracy", "f1"), gaps=True,
            summary="do two questions ask the same",
        ),
        Row(
            "MNLI", "mnli", _PAIR, "gold_label", ("entailment", "neutral", "contradiction"), tests=_MATCHED,
            hub_texts=("premise", "hypothesis"), summary="does the first sentence entail or contradict the second",
        ),
        Row(
            "QNLI", "qnli", ("question", "sentence"), labels=_ENTAILMENT,
            summary="does the sentence answer the question",
        ),
        Row("RTE", "rte", _PAIR, labels=_ENTAILMENT, epochs=10.0, summary="does the text entail the sentence"),
        Row("WNLI", "wnli", _PAIR, summary="to whom does the pronoun refer; adversarial, not part of the mean"),
    )
}  # fmt: skip


def row_of(name: str) -> Row | None:
    """Return the row of a task, None if there is no such task.

    A substitute such as `QNLI-devsplit` has the row of its task; it keeps its own name and never counts as GLUE.
    """
    exact = {known.lower(): row for known, row in ROWS.items()}
    if name.lower() in exact:
        return exact[name.lower()]
    base = next((row for known, row in exact.items() if name.lower().startswith(known + "-")), None)
    return replace(base, name=name) if base else None


groups = ("glue",)
reads = {*TUNING, "length", "rows", "held_out", "lm_weight", "glue"}


def names() -> list[Name]:
    """Return the name, suite, metric and summary of each task."""
    return [(row.name, "glue", row.metric, row.summary) for row in ROWS.values()]


def accepts(word: str) -> bool:
    """Return whether a word is a substitute of a task, and not the name of a table."""
    return row_of(word) is not None and not word.lower().endswith(FORMATS)


def downloads(word: str, options: TasksSpec) -> bool:
    """Return whether the files are downloaded from the hub."""
    return options.glue is None or not user_path(options.glue, f"{KEY}:").is_dir()


def load(words: Sequence[str], options: TasksSpec, text: HeldOut | None = None) -> Suite:
    """Return the tasks of these names; those of `glue` whose files are absent are in `missing`, with the reason.

    Raises InputError if a task selected by its own name is absent, if all are, or if files cannot be used.
    """
    members = dict.fromkeys(name for word in words for name in (ROWS if word.lower() == "glue" else [word]))
    tasks, missing = read(members, options.glue, options.rows)
    for word in words:
        if (row := row_of(word)) and row.name in missing:
            raise InputError(f"task {row.name} is not available: {missing[row.name]}")
    if not tasks:
        raise InputError(f"no GLUE task was found: {next(iter(missing.values()))}")
    return Suite(tuple(held_out(task, options.held_out) for task in tasks), missing)


def read(names: Iterable[str], where: str | None, rows: int | None = None) -> tuple[list[Task], dict[str, str]]:
    """Return the named tasks, and why those without files are missing. Raises InputError for files of no use."""
    rows_of_tasks = [row for name in names if (row := row_of(name))]
    folder = folder_of(where, [row.config for row in rows_of_tasks if row.name in ROWS])
    if isinstance(folder, str):
        return [], {row.name: folder for row in rows_of_tasks}
    local = user_path(where or HUB, f"{KEY}:").is_dir()
    tasks: list[Task] = []
    missing: dict[str, str] = {}
    for row in rows_of_tasks:
        parts = _official(folder, row) if local else None
        parts = parts or (_hub(folder, row) if row.name in ROWS else None)
        if parts is None:
            hub = f"no {row.config}/*.parquet in the hub's {where or HUB}"
            missing[row.name] = _looked(folder, row) if local else hub
        else:
            tasks.append(_task(row, parts, rows))
    return tasks, missing


def read_one(name: str, where: str | None, called: str, rows: int | None = None) -> Task:
    """Return one task for use under another name, `called`. Raises InputError if it is not available."""
    tasks, missing = read([name], where, rows)
    for why in missing.values():
        raise InputError(f"task {called} is not available: {why}")
    return tasks[0]


def folder_of(where: str | None, configs: Iterable[str], option: str = KEY) -> Path | str:
    """Return the folder `where`, or the local copy of these configs of a data set on the hub.

    If there is none, return a sentence that says why, with the option that names a folder. Raises InputError if `where`
    can be neither of the two.
    """
    place = where or HUB
    folder = user_path(place, f"{option}:")
    if folder.is_dir():
        return folder
    patterns = [f"{config}/*.parquet" for config in configs]
    return fetch(place, patterns, option, "the folder that holds CoLA, MRPC and the others")


def _task(row: Row, parts: Mapping[str, Examples], rows: int | None) -> Task:
    task = Task(
        name=row.name, suite="glue", labels=row.labels, metric=row.metric, metrics=row.metrics, epochs=row.epochs,
        train=parts["train"], tests={k: v for k, v in parts.items() if k != "train"},
        span=row.span or (0.0, 1.0), symmetric=row.symmetric,
    )  # fmt: skip
    return fingerprinted(task, rows)


def _files(row: Row) -> dict[str, tuple[str, str]]:
    """Return the official file and the hub's split of each part."""
    return {"train": ("train", "train"), **row.tests}


def _looked(folder: Path, row: Row) -> str:
    """Return which of the official files are missing, and where they were looked for."""
    lacking = [f"{file}.tsv" for file, _ in _files(row).values() if not (folder / row.name / f"{file}.tsv").is_file()]
    return f"no {' or '.join(lacking)} in {folder / row.name}"


# ---- the official layout: DIR/CoLA/train.tsv ... ----


def _official(folder: Path, row: Row) -> dict[str, Examples] | None:
    """Return each part from its official file; None if a file is missing."""
    paths = {part: folder / row.name / f"{file}.tsv" for part, (file, _) in _files(row).items()}
    if not all(path.is_file() for path in paths.values()):
        return None
    return {part: _examples(path, row, _read_tsv(path, row)) for part, path in paths.items()}


def _read_tsv(path: Path, row: Row) -> Iterator[tuple[int, list[str], str]]:
    """Yield (line number, texts, label) of each row."""
    for number, fields in tsv_rows(path, [*row.texts, row.label], row.header, row.gaps):
        yield number, fields[:-1], fields[-1]


def tsv_rows(
    path: Path, columns: Iterable[str | int], header: bool = True, gaps: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, fields of `columns`) of each row. Fields are split at tabs alone: quotation marks are text.

    Columns are names in the header, or numbers from 0. With `gaps`, lines that lack columns are skipped. Raises
    InputError for a column that is not there, and without `gaps` for such a line.
    """
    lines, wanted = text_of(path).split("\n"), list(columns)  # splitlines() also splits at other characters
    if header:
        names = lines[0].rstrip("\r").split("\t")
        lacking = [c for c in wanted if isinstance(c, str) and c not in names]
        if lacking:
            raise InputError(f"{path} has no column {lacking[0]!r}; its header has {', '.join(map(repr, names))[:200]}")
        wanted = [names.index(c) if isinstance(c, str) else c for c in wanted]
    where = [int(c) for c in wanted]
    for number, line in enumerate(lines[header:], start=1 + header):
        fields = line.rstrip("\r").split("\t")
        if len(fields) > max(where):
            yield number, [fields[i] for i in where]
        elif line.strip() and not gaps:
            raise InputError(f"{path}, line {number}: {len(fields)} columns where {max(where) + 1} are needed")


def _examples(path: Path, row: Row, lines: Iterable[tuple[int, list[str], str]]) -> Examples:
    texts: list[list[str]] = []
    targets: list[Any] = []
    for number, fields, label in lines:
        texts.append(
            [checked_text(each, name, f"{path}, line {number}") for each, name in zip(fields, row.texts, strict=True)]
        )
        targets.append(_target(row, label, f"{path}, line {number}"))
    if not texts:
        raise InputError(f"{path} holds no rows")
    first, *second = (list(column) for column in zip(*texts, strict=True))
    return Examples(first, second[0] if second else None, targets)


def _target(row: Row, label: str, where: str) -> int | float:
    """Return the number of a label, or the score of a regression. Raises InputError for any other value."""
    if row.span is None:
        if label not in row.labels:
            raise InputError(f"{where}: label {label[:80]!r} is not one of {', '.join(row.labels)}")
        return row.labels.index(label)
    low, high = row.span
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    if not low <= number <= high:
        raise InputError(f"{where}: {label[:80]!r} is not a score from {low:g} to {high:g}")
    return number


# ---- the hub's layout: cola/train-00000-of-00001.parquet ... ----


def _hub(folder: Path, row: Row) -> dict[str, Examples] | None:
    """Return each part from its Parquet files; None if files are missing.

    Labels are numbers already, in the order of `row.labels`.
    """
    parts: dict[str, Examples] = {}
    for part, (_, split) in _files(row).items():
        rows = hub_rows(folder, row.config, split, [*row.text_columns, "label"])
        if rows is None:
            return None
        texts: list[list[str]] = []
        targets: list[int | float] = []
        for where, (*fields, label) in rows:
            texts.append([checked_text(each, name, where) for each, name in zip(fields, row.text_columns, strict=True)])
            targets.append(_hub_target(row, label, where))
        if not texts:
            raise InputError(f"{folder / row.config / split}-*.parquet holds no rows")
        first, *second = (list(column) for column in zip(*texts, strict=True))
        parts[part] = Examples(first, second[0] if second else None, targets)
    return parts


def hub_rows(folder: Path, config: str, split: str, columns: list[str]) -> Iterator[tuple[str, list[Any]]] | None:
    """Return (file and row, values of `columns`) of each row of a split; None if it has no files.

    Raises InputError for a column or a file that is not there.
    """
    paths = whole_split((folder / config).glob(f"{split}-*.parquet"))
    return _parquet_rows(paths, columns) if paths else None


def _parquet_rows(paths: Iterable[Path], columns: list[str]) -> Iterator[tuple[str, list[Any]]]:
    for path in paths:
        for number, values in rows_of(path):
            if lacking := [name for name in columns if name not in values]:
                raise InputError(f"{path} has no column {lacking[0]!r}; there are {', '.join(values)[:200]}")
            yield f"{path}, {number}", [values[name] for name in columns]


def _hub_target(row: Row, label: Any, where: str) -> int | float:
    """Return a label of the hub. Raises InputError for a value out of range."""
    low, high = row.span or (0, len(row.labels) - 1)
    kinds = (int, float) if row.span else int
    if not isinstance(label, kinds) or isinstance(label, bool) or not low <= label <= high:
        raise InputError(f"{where}: label {label!r:.80} is not in {low:g}..{high:g}")
    return label


# ---- the server of GLUE ----
# A submission is one zip of 11 files: names, header, spelling of labels and numbers of rows are those that jiant's
# scripts write and the server compares. AX, the diagnostic set, is predicted by the classifier of MNLI.

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


def read_part(folder: Path, part: Part) -> Examples | None:
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


def fingerprint_of_texts(rows: Examples) -> str:
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
