"""The names of tagging under `--tasks`: `tag:FILE` or `tag:FOLDER`, each with `#COLUMN` if wanted, and named sets."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench import progress
from workbench.data import tagged_sentences, tagged_sets
from workbench.data.hugging_face.hub import fetch
from workbench.data.streams import PACKINGS
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.store.atomic import user_path
from workbench.tasks.tagging import tag_sets
from workbench.tasks.tagging.tagging_task import Tagging, fingerprinted

PREFIX = "tag:"
KEY = "--set tasks.tagging"
PARTS = {"train", "dev", "test"}
ENTITIES = "ner_tags"  # the hub's name of the column of entities


@dataclass(frozen=True)
class NamedSet:
    """A published set: possible names of its training file, all its files in words, and the column of its tags."""

    train: tuple[str, ...]
    files: str
    column: str
    summary: str


NAMED = {
    "ner-dane": NamedSet(
        ("ddt.train.conllu",), "ddt.train.conllu, ddt.dev.conllu and ddt.test.conllu", "ner",
        "named entities in Danish, DaNE (Hvingelby et al. 2020)",
    ),
    "conll2003": NamedSet(
        ("eng.train", "train.txt"), "eng.train, eng.testa and eng.testb, or train.txt, valid.txt and test.txt", "",
        "named entities in English news (Tjong Kim Sang and De Meulder 2003)",
    ),
}  # fmt: skip


def known() -> list[tuple[str, str, str, str]]:
    """Return the name, suite, metric and summary of each named set."""
    return [(name, "tagging", "entity_f1", each.summary) for name, each in NAMED.items()]


def is_tagging(name: str) -> bool:
    """Return whether a name selects tagging."""
    return name.lower() in NAMED or name.lower().startswith(PREFIX)


def load(names: Sequence[str], spec: TasksSpec) -> list[Tagging]:
    """Return the tasks of names that `is_tagging` holds for. Raises InputError.

    What is unusual about their data is logged as warnings.
    """
    tasks = [_named(name.lower(), spec) if name.lower() in NAMED else _at_path(name) for name in dict.fromkeys(names)]
    for task in tasks:
        for note in task.notes:
            progress.warn_once(f"{task.name}: {note}")
    return [fingerprinted(task, spec) for task in tasks]


def _at_path(name: str) -> Tagging:
    """Return the task of a name `tag:PATH` or `tag:PATH#COLUMN`."""
    text, column = name[len(PREFIX) :], ""
    if "#" in text and not user_path(text, "--tasks").exists():
        text, _, column = text.rpartition("#")
    if not text:
        raise InputError(f"--tasks {name}: give a file or folder of tagged sentences, such as tag:ud-train.conllu")
    path = user_path(text, "--tasks")
    files = tagged_sets.files_of(path)
    conllu = tagged_sentences.format_of(next(iter(files.values()))) == tagged_sentences.CONLLU
    kind = (column or ("pos" if conllu else "")).lower()
    title = path.resolve().name if _in_parquet(files.values()) else tagged_sets.title(files)
    return tag_sets.load(f"{PREFIX}{title}{'-' if kind else ''}{kind}", path, column)


def _named(name: str, spec: TasksSpec) -> Tagging:
    """Return a named set from the folder `tasks.tagging`, or the folder of its name in there. Raises InputError."""
    wanted = NAMED[name]
    lacking = InputError(
        f"task {name} is not available: {KEY}=DIR must name a folder with its files {wanted.files}, or a copy of it in "
        f"Parquet (train, validation and test with the columns tokens and ner_tags), here or by its name on the hub"
    )
    if spec.tagging is None:
        raise lacking
    folder = user_path(spec.tagging, f"{KEY}:")
    if not folder.is_dir():
        fetched = fetch(spec.tagging, ["*.parquet", "**/*.parquet"], KEY, f"a folder with the files {wanted.files}")
        if isinstance(fetched, str):
            raise InputError(f"task {name} is not available: {fetched}")
        folder = fetched
    places = itertools.product((folder / name, folder), wanted.train, ("", *PACKINGS))
    file = next((path for place, file, packing in places if (path := place / f"{file}{packing}").is_file()), None)
    if file is not None and set(tagged_sets.files_of(file)) == PARTS:
        return tag_sets.load(name, file, wanted.column)
    for place in (folder / name, folder):
        if file is None and place.is_dir() and set(tagged_sets.of_hub(place)) == PARTS:
            return tag_sets.load(name, place, ENTITIES)
    raise lacking


def needs_hub(name: str, spec: TasksSpec) -> bool:
    """Return whether a named set is downloaded from the hub."""
    return name.lower() in NAMED and spec.tagging is not None and not user_path(spec.tagging, f"{KEY}:").is_dir()


def _in_parquet(files: Iterable[Path]) -> bool:
    return all(file.suffix == tagged_sets.SUFFIX for file in files)
