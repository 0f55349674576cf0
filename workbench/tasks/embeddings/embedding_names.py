"""The names of embeddings under `--tasks`: `similarity:STS-B`, `similarity:FILE` and `retrieval:DIR`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from workbench.errors import InputError
from workbench.progress import warn_once
from workbench.spec.parts import TasksSpec
from workbench.store.atomic import user_path
from workbench.tasks.embeddings import retrieval_files, tf_idf
from workbench.tasks.embeddings.embedding_task import RETRIEVAL, SIMILARITY, Embedding, Similar, sealed
from workbench.tasks.finetuning import glue, table
from workbench.tasks.tables.labelled import Line
from workbench.tasks.task import Task

STS = "STS-B"
LEAST = 3  # pairs, below which no correlation says anything


def known() -> list[tuple[str, str, str, str]]:
    """Return the name or form of each task, its suite, metric and summary."""
    return [
        (
            f"{SIMILARITY}:{STS}",
            SIMILARITY,
            "spearman",
            "how similar two sentences are, by the cosine of their embeddings",
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


def load(names: Sequence[str], spec: TasksSpec, cache: Path | None) -> list[Embedding]:
    """Return the tasks of names that `is_embedding` holds for, with their baselines. Raises InputError."""
    if names and spec.held_out:
        raise InputError(
            f"--tasks {names[0]}: a search cannot choose settings by the rows that a report shows; use --tasks pairs"
        )
    tasks = [sealed(_task(name, spec)) for name in dict.fromkeys(names)]
    for task in tasks:
        for note in task.notes:
            warn_once(f"{task.name}: {note}")
    return [replace(task, baselines=tf_idf.baselines(task, cache)) for task in tasks]


def _task(name: str, spec: TasksSpec) -> Embedding:
    suite, _, rest = name.partition(":")
    if needs_glue(name):
        return _sts(spec)
    path = user_path(rest, "--tasks") if rest else None
    if suite.lower() == RETRIEVAL:
        if path is None or not path.is_dir():
            raise InputError(f"--tasks {name}: give a folder with corpus.jsonl, queries.jsonl and qrels/test.tsv")
        parts, notes = retrieval_files.read(path)
        return Embedding(f"{RETRIEVAL}:{path.resolve().name}", RETRIEVAL, parts, tuple(notes))
    if path is None or not path.is_file() or not table.is_table(path.name):
        raise InputError(
            f"--tasks {name}: give {STS}, or a table (.csv, .tsv, .jsonl, .parquet) of two texts and a number"
        )
    return Embedding(f"{SIMILARITY}:{table.title(path)}", SIMILARITY, _of_table(path, spec))


def _sts(spec: TasksSpec) -> Embedding:
    """Return STS-B with its dev part, from GLUE's folder. Raises InputError."""
    suite = glue.load([STS], spec.glue)
    for why in suite.missing.values():
        raise InputError(f"task {SIMILARITY}:{STS} is not available: {why}")
    task = next(each for each in suite.tasks if isinstance(each, Task))
    parts = {
        part: Similar(tuple(rows.first), tuple(rows.second or ()), tuple(rows.targets))
        for part, rows in task.tests.items()
    }
    return Embedding(f"{SIMILARITY}:{STS}", SIMILARITY, parts)


def _of_table(path: Path, spec: TasksSpec) -> dict[str, Similar]:
    """Return the parts of a table: those to test on if it or the files beside it have some, else all of its rows.

    Raises InputError.
    """
    lines = [line for part, file in table.siblings(path).items() for line in table.lines_of(file, spec, part)]
    tested = [part for part in ("test", "dev") if any(line.part == part for line in lines)]
    parts = {part: [line for line in lines if line.part == part] for part in tested} or {"all": lines}
    return {part: _similar(path, part, rows) for part, rows in parts.items()}


def _similar(path: Path, part: str, rows: Sequence[Line]) -> Similar:
    """Return rows of a table as pairs. Raises InputError if they are no pairs with a number that varies."""
    targets = []
    for line in rows:
        if len(line.texts) != 2:
            raise InputError(
                f"{path} has one column of texts, and similarity needs two; name the other: --set tasks.pair="
            )
        try:
            targets.append(float(line.label))
        except (TypeError, ValueError):
            raise InputError(f"{line.where}: label {line.label!r} is not a number, as similarity needs") from None
    if len(rows) < LEAST or len(set(targets)) < 2:
        fault = f"{len(rows)} pairs" if len(rows) < LEAST else "the same number in every row"
        raise InputError(f"{path} has {fault} in part {part!r}, and a correlation needs {LEAST} pairs that differ")
    return Similar(tuple(line.texts[0] for line in rows), tuple(line.texts[1] for line in rows), tuple(targets))
