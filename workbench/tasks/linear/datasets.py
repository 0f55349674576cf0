"""Where linear probes come from: a classification, a file or folder of tagged sentences, or sets of minimal pairs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from workbench.data import tagged
from workbench.errors import InputError
from workbench.rng import seed_of
from workbench.store.atomic import user_path
from workbench.tasks.linear.problem import LinearProbe, Tagged
from workbench.tasks.task import Examples, Task
from workbench.tasks.zero_shot.minimal_pairs import PairSet

PREFIX = "linear:"
PARTS = {"train": "train", "dev": "dev", "validation": "dev", "valid": "dev", "testa": "dev", "test": "test",
         "testb": "test"}  # fmt: skip
PART = re.compile(rf"(?:^|[._-])({'|'.join(PARTS)})$", re.IGNORECASE)
TEST_SHARE = 5  # one sentence in so many is tested on, where a file has no others beside it
PARADIGMS = 3  # one paradigm in so many is tested on


def of_task(task: Task) -> LinearProbe:
    """The same rows as a linear probe. Raises InputError for a regression."""
    if task.regression:
        raise InputError(f"--tasks {PREFIX}{task.name}: linear probes classify, and the labels here are numbers")
    return LinearProbe(PREFIX + task.name, "texts", task.labels, task.metric, task.metrics, task.train, task.tests)


# ---- tagged sentences ----


def is_tagged(name: str) -> bool:
    """Whether a name is that of a file of tagged sentences, or of a folder with one."""
    path = user_path(name, "--tasks")
    if tagged.format_of(path):
        return True
    with contextlib.suppress(OSError):  # a folder that cannot be looked into is none
        return path.is_dir() and bool(_files(path))
    return False


def of_tagged(name: str) -> LinearProbe:
    """Tags of words, tested on the file of test sentences; without one on dev, or on a fifth of the only file.

    A file named as training, dev or test part stands for all three; a folder holds one such set. Where there is no
    training file, dev is learnt from. Raises InputError.
    """
    path = user_path(name, "--tasks")
    if not path.exists():
        raise InputError(f"--tasks {path}: there is no such file")
    files = _files(path) if path.is_dir() else _siblings(path)
    _check_one_set(path, files)
    parts = _parts(path, {part: tagged.read(file) for part, file in files.items()})
    train = parts.pop("train")
    labels = _labels(path, train, [sentence for part in parts.values() for sentence in part])
    kind = tagged.FORMATS[tagged.format_of(next(iter(files.values())))]
    metrics = ("accuracy", "macro_f1") if kind == "pos" else ("entity_f1", "macro_f1", "accuracy")
    order = [part for part in ("test", "dev") if part in parts]
    tests: dict[str, Examples | Tagged] = {part: _tagged(parts[part], labels) for part in order}
    where = next(iter(files.values()))
    title = PART.sub("", _stem(where)) or where.resolve().parent.name
    return LinearProbe(f"{PREFIX}{title}-{kind}", "words", labels, metrics[0], metrics, _tagged(train, labels), tests)


def _stem(path: Path) -> str:
    return path.name[: path.name.lower().rindex(tagged.format_of(path))]


def _siblings(path: Path) -> dict[str, Path]:
    """Part -> file: the file alone, or with those that are named alike but for the part."""
    stem = _stem(path)
    found = PART.search(stem)
    if not found:
        return {"": path}
    rest = stem[: found.start(1)]
    beside = _named(other for other in path.parent.iterdir() if tagged.format_of(other) == tagged.format_of(path))
    files = {part: file for part, file in beside if _stem(file)[: PART.search(_stem(file)).start(1)] == rest}  # type: ignore[union-attr]
    return files if len(files) > 1 else {"": path}


def _files(folder: Path) -> dict[str, Path]:
    """Part -> file of a folder; "" for the only file, where it is named as no part."""
    found = sorted(path for path in folder.iterdir() if path.is_file() and tagged.format_of(path))
    named = dict(_named(found))
    return named if len(named) > 1 else ({"": found[0]} if len(found) == 1 else named)


def _named(paths: Iterable[Path]) -> list[tuple[str, Path]]:
    return [(PARTS[found[1].lower()], path) for path in sorted(paths) if (found := PART.search(_stem(path)))]


def _check_one_set(path: Path, files: Mapping[str, Path]) -> None:
    """Raises InputError where the parts in a folder are not of one set, or stand for none."""
    if not files:
        raise InputError(f"--tasks {path}: no file here is called after train, dev or test")
    rests = {PART.sub("", _stem(file)) + tagged.format_of(file) for file in files.values()}
    if len(rests) > 1:
        raise InputError(f"--tasks {path} holds several sets ({', '.join(sorted(rests))}); name a file of one of them")


def _parts(path: Path, files: dict[str, list[tagged.Sentence]]) -> dict[str, list[tagged.Sentence]]:
    """train, and test or dev or both."""
    if "" in files:
        chosen = [seed_of(0, "linear", "test", *sentence.words) % TEST_SHARE == 0 for sentence in files[""]]
        sides = ("train", False), ("test", True)
        parts = {part: [s for s, test in zip(files[""], chosen, strict=True) if test is side] for part, side in sides}
    else:
        parts = dict(files)
    if "train" not in parts:
        parts["train"] = parts.pop("dev", [])
    there = [part for part in ("test", "dev") if parts.get(part)]
    if not parts["train"] or not there:
        raise InputError(f"--tasks {path}: {_counts(parts)} sentences are too few to learn from and to test on")
    return {"train": parts["train"]} | {part: parts[part] for part in there}


def _counts(parts: Mapping[str, list[tagged.Sentence]]) -> str:
    return " and ".join(f"{len(found):,} of {part}" for part, found in parts.items())


def _labels(path: Path, train: list[tagged.Sentence], test: list[tagged.Sentence]) -> tuple[str, ...]:
    seen = sorted({tag for sentence in train for tag in sentence.tags})
    if len(seen) < 2:
        raise InputError(f"--tasks {path}: every word to learn from has the tag {seen[0]!r}, so nothing can be learnt")
    return (*seen, *sorted({tag for sentence in test for tag in sentence.tags} - set(seen)))


def _tagged(sentences: list[tagged.Sentence], labels: tuple[str, ...]) -> Tagged:
    number = {label: place for place, label in enumerate(labels)}
    return Tagged([list(s.words) for s in sentences], [[number[tag] for tag in s.tags] for s in sentences])


# ---- minimal pairs ----


def of_pairs(pairs: PairSet) -> LinearProbe:
    """Which of two sentences is right, learnt on two thirds of the paradigms and tested on the others.

    Hashes of the paradigms' names decide the side. Raises InputError for too few of them.
    """
    paradigm_of = pairs.groups["paradigm"]
    labels = tuple(sorted(set(paradigm_of)))
    order = sorted(labels, key=lambda paradigm: (seed_of(0, "linear", "paradigm", paradigm), paradigm))
    if len(order) < PARADIGMS:
        raise InputError(
            f"--tasks {PREFIX}{pairs.name}: {len(order)} paradigms, and {PARADIGMS} are needed to hold one out"
        )
    aside = set(order[: len(order) // PARADIGMS])
    numbers = [labels.index(paradigm) for paradigm in paradigm_of]
    whole = Examples(list(pairs.good), list(pairs.bad), numbers)
    train, test = (
        whole.take([row for row, paradigm in enumerate(paradigm_of) if (paradigm in aside) is side])
        for side in (False, True)
    )
    tests: dict[str, Examples | Tagged] = {"held-out paradigms": test}
    return LinearProbe(PREFIX + pairs.name, "pairs", labels, "accuracy", ("accuracy",), train, tests)
