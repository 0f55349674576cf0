"""The names of embeddings under `--tasks`: `similarity:STS-B`, `similarity:FILE` and `retrieval:DIR`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.errors import InputError
from workbench.progress import warn_once
from workbench.spec.parts import TasksSpec
from workbench.spec.scoring import TESTED
from workbench.store.atomic import user_path
from workbench.tasks.embeddings import pair_batches, retrieval_files
from workbench.tasks.embeddings.embedding_task import (
    RETRIEVAL,
    SIMILARITY,
    Embedding,
    Relevant,
    Similar,
    fingerprinted,
)
from workbench.tasks.finetuning import glue, table
from workbench.tasks.rows import FORMATS, first_of
from workbench.tasks.tables import labelled
from workbench.tasks.tables.labelled import Line
from workbench.tasks.task import Examples, Task

STS = "STS-B"
NUMBERS = ("relatedness_score", "similarity", *table.LABELS)  # usual names of the column of numbers
LEAST = 3  # pairs, below which no correlation says anything


def known() -> list[tuple[str, str, str, str]]:
    """Return the name or form of each task, its suite, metric and summary."""
    return [
        (
            f"{SIMILARITY}:{STS}",
            SIMILARITY,
            "spearman",
            "how similar two sentences are, by the cosine of their embeddings, frozen or fine-tuned",
        ),
        (
            f"{SIMILARITY}:FILE",
            SIMILARITY,
            "spearman",
            "the same, from a table of your own with two texts and a number",
        ),
        (f"{RETRIEVAL}:DIR", RETRIEVAL, "ndcg_10", "which documents answer a query, by embeddings; a folder as BEIR's"),
    ]


def is_embedding(name: str) -> bool:
    """Return whether a name selects embeddings."""
    return name.lower().startswith((f"{SIMILARITY}:", f"{RETRIEVAL}:"))


def needs_glue(name: str) -> bool:
    """Return whether a name selects a task of GLUE, which may have to be downloaded."""
    return name.lower() == f"{SIMILARITY}:{STS}".lower()


def load(names: Sequence[str], spec: TasksSpec) -> list[Embedding]:
    """Return the tasks of names that `is_embedding` holds for. Raises InputError."""
    if names and spec.held_out:
        raise InputError(
            f"--tasks {names[0]}: a search cannot choose settings by the rows that a report shows; use --tasks pairs"
        )
    if names and trains(spec):
        pair_batches.check_installed(spec)
    tasks = [fingerprinted(_task(name, spec), spec.rows) for name in dict.fromkeys(names)]
    for task in tasks:
        if isinstance(task.train, Relevant):  # raises InputError if its pairs make no batch
            next(pair_batches.apart(task.train.pairs(), spec.batch, 0))
    for task in tasks:
        for note in task.notes:
            warn_once(f"{task.name}: {note}")
    return tasks


def _task(name: str, spec: TasksSpec) -> Embedding:
    suite, _, rest = name.partition(":")
    if needs_glue(name):
        return _sts(spec)
    path = user_path(rest, "--tasks") if rest else None
    if suite.lower() == RETRIEVAL:
        if path is None or not path.is_dir():
            raise InputError(f"--tasks {name}: give a folder with corpus.jsonl, queries.jsonl and qrels/test.tsv")
        collection, notes = retrieval_files.read(path, trains(spec))
        training = collection.pop("train", None)
        notes += _asked_before(training, collection) if training is not None else []
        return Embedding(f"{RETRIEVAL}:{path.resolve().name}", RETRIEVAL, collection, tuple(notes), train=training)
    if path is None or not path.is_file() or not table.is_table(path.name):
        raise InputError(f"--tasks {name}: give {STS}, or a table ({', '.join(FORMATS)}) of two texts and a number")
    parts, notes = _of_table(path, spec)
    train = parts.pop("train", None)
    return Embedding(f"{SIMILARITY}:{table.title(path)}", SIMILARITY, parts, tuple(notes), train=train)


def trains(spec: TasksSpec) -> bool:
    """Return whether encoders are fine-tuned before their embeddings are measured."""
    return spec.embeddings != "frozen"


def _asked_before(train: Relevant, parts: Mapping[str, Relevant]) -> list[str]:
    """Return a sentence on the queries to test on whose text is trained on; [] if there are none."""
    known = {train.queries[query] for query in train.grades}
    asked = {query for part in parts.values() for query in part.grades}
    again = sorted(query for query in asked if train.queries[query] in known)
    if not again:
        return []
    return [
        f"of the {len(asked):,} queries to test on, {len(again):,} {'has' if len(again) == 1 else 'have'} the text of "
        f"one to train on, so the score is partly one of memory: {first_of(again)}"
    ]


def _sts(spec: TasksSpec) -> Embedding:
    """Return STS-B with its dev part, from GLUE's folder. Raises InputError."""
    suite = glue.load([STS], spec.glue)
    for why in suite.missing.values():
        raise InputError(f"task {SIMILARITY}:{STS} is not available: {why}")
    task = next(each for each in suite.tasks if isinstance(each, Task))
    parts = {part: _as_pairs(rows) for part, rows in task.tests.items()}
    return Embedding(f"{SIMILARITY}:{STS}", SIMILARITY, parts, train=_as_pairs(task.train) if trains(spec) else None)


def _as_pairs(rows: Examples) -> Similar:
    return Similar(tuple(rows.first), tuple(rows.second or ()), tuple(rows.targets))


def _of_table(path: Path, spec: TasksSpec) -> tuple[dict[str, Similar], list[str]]:
    """Return the parts of a table, those to test on first, and sentences on what is odd about it. Raises InputError.

    Without training, they are the rows to test on if it or the files beside it have some, else all of its rows.
    """
    files, spec = table.siblings(path), table.with_columns(path, spec, NUMBERS)
    lines = [line for part, file in files.items() for line in table.lines_of(file, spec, part, NUMBERS)]
    if trains(spec):
        sides = table.parts_of(lines, "regression", path, None)
        ordered = {part: sides[part] for part in (*TESTED, "train") if part in sides}
        again = labelled.repeated(sides)
        return {part: _similar(path, part, rows) for part, rows in ordered.items()}, [again] if again else []
    tested = [part for part in TESTED if any(line.part == part for line in lines)]
    parts = {part: [line for line in lines if line.part == part] for part in tested} or {"all": lines}
    return {part: _similar(path, part, rows) for part, rows in parts.items()}, []


def _similar(path: Path, part: str, rows: Sequence[Line]) -> Similar:
    """Return rows of a table as pairs. Raises InputError unless they are pairs with numbers that vary."""
    targets = []
    for line in rows:
        if len(line.texts) != 2:
            raise InputError(
                f"{path} has one column of texts, and similarity needs two; name the other: --set tasks.pair="
            )
        number = labelled.number_of(line.label)
        if number is None or not math.isfinite(number):
            raise InputError(f"{line.where}: label {line.label!r} is not a number, as similarity needs")
        targets.append(number)
    if len(rows) < LEAST or len(set(targets)) < 2:
        fault = f"{len(rows)} pairs" if len(rows) < LEAST else "the same number in every row"
        raise InputError(f"{path} has {fault} in part {part!r}, and a correlation needs {LEAST} pairs that differ")
    return Similar(tuple(line.texts[0] for line in rows), tuple(line.texts[1] for line in rows), tuple(targets))
