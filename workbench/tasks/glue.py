"""The nine GLUE tasks (Wang et al. 2019), read from the official folders or from the Parquet files of the hub."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.data.formats import whole_split
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks.common.contract import OF_TEXTS, HeldOut, Suite
from workbench.tasks.common.data_rows import fingerprint
from workbench.tasks.common.examples import Examples, Task, held_out, limited
from workbench.tasks.common.table_files import FORMATS, checked_text, here_or_fetched, is_here, rows_of, text_of

KEY = "--set tasks.glue"
trains = True
HUB = "nyu-mll/glue"
_DEV = {"dev": ("dev", "validation")}
_MATCHED = {"matched": ("dev_matched", "validation_matched"), "mismatched": ("dev_mismatched", "validation_mismatched")}
_ENTAILMENT = ("entailment", "not_entailment")
_BINARY = ("0", "1")
_PAIR = ("sentence1", "sentence2")


@dataclass(frozen=True)
class Row:
    """How one task is read, measured and fine-tuned."""

    name: str
    config: str  # on the hub
    texts: tuple[str | int, ...]  # columns in the official header, or their numbers if there is no header
    label: str | int = "label"  # column, or its number
    labels: tuple[str, ...] = _BINARY  # in the hub's order
    metric: str = "accuracy"
    metrics: tuple[str, ...] = ("accuracy",)
    epochs: float = 3.0
    tests: Mapping[str, tuple[str, str]] = field(default_factory=lambda: _DEV)  # part -> official file, the hub's split
    hub_texts: tuple[str, ...] = ()  # the hub's names of the text columns, if they differ
    span: tuple[float, float] | None = None  # range of the targets of a regression
    symmetric: bool = False
    gaps: bool = False  # whether the official file is known to hold lines with lost tabs, which every reader skips
    summary: str = ""

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
    base = next((row for known, row in exact.items() if name.lower().startswith(known + "-")), None)
    return exact.get(name.lower()) or (replace(base, name=name) if base else None)


groups = ("glue",)
reads = {*OF_TEXTS, "glue"}
names = [(row.name, "glue", row.metric, row.summary) for row in ROWS.values()]


def accepts(word: str) -> bool:
    """Return whether a word is a substitute of a task, and not the name of a table."""
    return row_of(word) is not None and not word.lower().endswith(FORMATS)


def downloads(word: str, options: TasksSpec) -> bool:
    """Return whether the files are downloaded from the hub."""
    return not is_here(options.glue, KEY)


def load(words: Sequence[str], options: TasksSpec, text: HeldOut | None = None) -> Suite:
    """Return the tasks of these names; for `glue`, tasks without files are in `missing`, with the reason.

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
    """Return the named tasks, and why others have no files. Raises InputError for files that cannot be used."""
    rows_of_tasks = [row for name in names if (row := row_of(name))]
    folder = folder_of(where, [row.config for row in rows_of_tasks if row.name in ROWS])
    if isinstance(folder, str):
        return [], {row.name: folder for row in rows_of_tasks}
    local = is_here(where or HUB, KEY)
    tasks: list[Task] = []
    missing: dict[str, str] = {}
    for row in rows_of_tasks:
        splits = {"train": ("train", "train"), **row.tests}
        files = {part: folder / row.name / f"{file}.tsv" for part, (file, _) in splits.items()}
        lacking = [path.name for path in files.values() if not path.is_file()]
        found: dict[str, Examples | None] = dict.fromkeys(splits)
        if local and not lacking:
            found = {part: _examples(_official(path, row), row.texts, path) for part, path in files.items()}
        elif row.name in ROWS:
            found = {part: _hub(folder, row, split) for part, (_, split) in splits.items()}
        parts = {part: rows for part, rows in found.items() if rows is not None}
        if len(parts) < len(splits):
            in_folder = f"no {' or '.join(lacking)} in {folder / row.name}"
            missing[row.name] = in_folder if local else f"no {row.config}/*.parquet in the hub's {where or HUB}"
            continue
        task = Task(
            name=row.name, suite="glue", labels=row.labels, metric=row.metric, metrics=row.metrics, epochs=row.epochs,
            train=parts.pop("train"), tests=parts, span=row.span or (0.0, 1.0), symmetric=row.symmetric,
        )  # fmt: skip
        tasks.append(limited(task, rows))
    return tasks, missing


def read_one(name: str, where: str | None, called: str) -> Task:
    """Return one task for use under another name, `called`. Raises InputError if it is not available."""
    tasks, missing = read([name], where)
    for why in missing.values():
        raise InputError(f"task {called} is not available: {why}")
    return tasks[0]


def folder_of(where: str | None, configs: Iterable[str], option: str = KEY) -> Path | str:
    """Return the folder `where`, or the local copy of these configs of a data set on the hub.

    If there is none, return a sentence that says why, with the option that names a folder. Raises InputError if `where`
    can be neither of the two.
    """
    patterns = [f"{config}/*.parquet" for config in configs]
    return here_or_fetched(where or HUB, patterns, option, "the folder that holds CoLA, MRPC and the others")


def _examples(rows: Iterable[tuple[str, list[Any], Any]], columns: Sequence[str | int], path: Path | str) -> Examples:
    texts: list[list[str]] = []
    targets: list[Any] = []
    for where, fields, target in rows:
        texts.append([checked_text(each, name, where) for each, name in zip(fields, columns, strict=True)])
        targets.append(target)
    if not texts:
        raise InputError(f"{path} holds no rows")
    first, *second = (list(column) for column in zip(*texts, strict=True))
    return Examples(first, second[0] if second else None, targets)


# ---- the official layout: DIR/CoLA/train.tsv ... ----


def _official(path: Path, row: Row) -> Iterator[tuple[str, list[str], int | float]]:
    for number, (*fields, label) in tsv_rows(path, [*row.texts, row.label], isinstance(row.label, str), row.gaps):
        where = f"{path}, line {number}"
        if row.span is None:
            if label not in row.labels:
                raise InputError(f"{where}: label {label[:80]!r} is not one of {', '.join(row.labels)}")
            yield where, fields, row.labels.index(label)
            continue
        low, high = row.span
        try:
            score = float(label)
        except ValueError:
            score = math.nan
        if not low <= score <= high:
            raise InputError(f"{where}: {label[:80]!r} is not a score from {low:g} to {high:g}")
        yield where, fields, score


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


# ---- the hub's layout: cola/train-00000-of-00001.parquet ... ----


def _hub(folder: Path, row: Row, split: str) -> Examples | None:
    """Return a split from its Parquet files, whose labels are places in `row.labels`; None without files."""
    rows = hub_rows(folder, row.config, split, [*row.text_columns, "label"])
    if rows is None:
        return None
    low, high = row.span or (0, len(row.labels) - 1)
    kinds = (int, float) if row.span else int

    def targets() -> Iterator[tuple[str, list[Any], int | float]]:
        for where, (*fields, label) in rows:
            if not isinstance(label, kinds) or isinstance(label, bool) or not low <= label <= high:
                raise InputError(f"{where}: label {label!r:.80} is not in {low:g}..{high:g}")
            yield where, fields, label

    return _examples(targets(), row.text_columns, f"{folder / row.config / split}-*.parquet")


def hub_rows(folder: Path, config: str, split: str, columns: list[str]) -> Iterator[tuple[str, list[Any]]] | None:
    """Return (file and row, values of `columns`) of each row of a split; None if it has no files.

    Raises InputError for a column or a file that is not there.
    """
    paths = whole_split((folder / config).glob(f"{split}-*.parquet"))

    def rows() -> Iterator[tuple[str, list[Any]]]:
        for path in paths:
            for number, values in rows_of(path):
                if lacking := [name for name in columns if name not in values]:
                    raise InputError(f"{path} has no column {lacking[0]!r}; there are {', '.join(values)[:200]}")
                yield f"{path}, {number}", [values[name] for name in columns]

    return rows() if paths else None


# ---- the server of GLUE ----
# A submission is one zip of 11 files, with the names, header, spelling of labels and numbers of rows that jiant's
# scripts write and the server compares. AX, the diagnostic set, is predicted by the classifier of MNLI.

HEADER = "index\tprediction"
DECIMALS = 3  # of the scores of STS-B, as jiant writes them


@dataclass(frozen=True)
class Part:
    """One file of a submission."""

    name: str  # of the file without `.tsv`
    task: str  # whose classifier predicts it
    path: str  # the official file with its texts
    split: tuple[str, str]  # its config and split on the hub
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
    columns = row.text_columns
    if path.is_file():
        rows: Iterator[tuple[str, list[Any]]] | None = _official_rows(path, row)
    else:
        path, rows = folder / part.split[0], hub_rows(folder, *part.split, columns)
    if rows is None:
        return None
    found = _examples(((where, fields, 0) for where, fields in rows), columns, path)
    if len(found) != part.rows:
        fault = f"{path} has {len(found):,} rows for {part.file}, and the server of GLUE takes exactly {part.rows:,}"
        raise InputError(f"{fault}; give the official file")
    return found


def _official_rows(path: Path, row: Row) -> Iterator[tuple[str, list[Any]]]:
    """Yield (file and line, texts) of each row. Raises InputError if the first column does not count from 0."""
    columns = row.texts if isinstance(row.label, str) else row.hub_texts  # the test file of CoLA has a header too
    for expected, (number, (index, *fields)) in enumerate(tsv_rows(path, [0, *columns])):
        if index != str(expected):
            raise InputError(
                f"{path}, line {number}: the index is {index[:20]!r}, and {expected} is expected; predictions are "
                f"numbered in the official order"
            )
        yield f"{path}, line {number}", fields


def fingerprint_of_texts(rows: Examples) -> str:
    """Return 16 hex digits of a hash over the texts of a part."""
    return fingerprint([rows.first, rows.second])


def averaged(outputs: Sequence[Any], row: Row) -> Any:
    """Return the mean (N, labels) of the probabilities or scores of several classifiers; of one its outputs."""
    import numpy as np
    from scipy.special import softmax

    if len(outputs) == 1:
        return outputs[0]
    return np.mean([each if row.span else softmax(each.astype(np.float64), axis=1) for each in outputs], axis=0)


def words_of(outputs: Any, row: Row) -> list[str]:
    """Return the predictions of outputs (N, labels) as the server spells them, scores clipped to the range it takes."""
    if row.span is None:
        return [row.labels[i] for i in outputs.argmax(1).tolist()]
    low, high = row.span
    scores = (low + (high - low) * outputs[:, 0].astype(float)).clip(low, high)
    return [f"{score:.{DECIMALS}f}" for score in scores.tolist()]


def tsv(predictions: Iterable[str]) -> bytes:
    """Return the content of a file of predictions."""
    lines = [HEADER, *(f"{index}\t{word}" for index, word in enumerate(predictions))]
    return ("\n".join(lines) + "\n").encode()
