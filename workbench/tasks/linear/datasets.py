"""Data sets of linear probes: a classification task, tagged sentences in files, or a set of minimal pairs."""

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
TEST_SHARE = 5  # one sentence in so many is tested on if there is a single file
PARADIGMS = 3  # one paradigm in so many is tested on


def of_task(task: Task) -> LinearProbe:
    """Return a linear probe with the rows of a task. Raises InputError for a regression."""
    if task.regression:
        raise InputError(
            f"--tasks {PREFIX}{task.name}: linear probes classify, and the labels of this task are numbers; "
            f"leave out {PREFIX}"
        )
    return LinearProbe(PREFIX + task.name, "texts", task.labels, task.metric, task.metrics, task.train, task.tests)


# ---- tagged sentences ----


def is_tagged(name: str) -> bool:
    """Return whether a name is the path of a file of tagged sentences, or of a folder that holds one."""
    path = user_path(name, "--tasks")
    if tagged.format_of(path):
        return True
    with contextlib.suppress(OSError):  # a folder that cannot be listed counts as none
        return path.is_dir() and bool(_files(path))
    return False


def of_tagged(name: str) -> LinearProbe:
    """Return a probe that predicts the tags of words, from a file or folder of tagged sentences.

    It is tested on the test file, or if there is none on the dev file; of a single file, a fifth of the sentences
    are tested on. The path of a training, dev or test file stands for all three files of its set; a folder holds
    one such set. If there is no training file, the dev file is trained on. Raises InputError.
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
    """Return the name of a file of tagged sentences without its ending."""
    return path.name[: path.name.lower().rindex(tagged.format_of(path))]


def _siblings(path: Path) -> dict[str, Path]:
    """Return the file of each part: this file alone, or with those whose names differ only in the part."""
    stem = _stem(path)
    match = PART.search(stem)
    if not match:
        return {"": path}
    title = stem[: match.start(1)]
    named = _named(other for other in path.parent.iterdir() if tagged.format_of(other) == tagged.format_of(path))
    files = {part: file for part, file in named if _stem(file)[: PART.search(_stem(file)).start(1)] == title}  # type: ignore[union-attr]
    return files if len(files) > 1 else {"": path}


def _files(folder: Path) -> dict[str, Path]:
    """Return the file of each part in a folder; the part of an only file is ""."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and tagged.format_of(path))
    named = dict(_named(files))
    return named if len(named) > 1 else ({"": files[0]} if len(files) == 1 else named)


def _named(paths: Iterable[Path]) -> list[tuple[str, Path]]:
    """Return part and path of the files whose names end in a part, such as `train`."""
    return [(PARTS[match[1].lower()], path) for path in sorted(paths) if (match := PART.search(_stem(path)))]


def _check_one_set(path: Path, files: Mapping[str, Path]) -> None:
    """Raise InputError if there is no file of a part, or if the files are parts of several sets."""
    if not files:
        raise InputError(f"--tasks {path}: no file in this folder has a name that ends in train, dev or test")
    titles = {PART.sub("", _stem(file)) + tagged.format_of(file) for file in files.values()}
    if len(titles) > 1:
        raise InputError(f"--tasks {path} holds several sets ({', '.join(sorted(titles))}); name a file of one of them")


def _parts(path: Path, files: dict[str, list[tagged.Sentence]]) -> dict[str, list[tagged.Sentence]]:
    """Return the sentences of `train`, and of `test` or `dev` or both. Raises InputError if tested are too few."""
    if "" in files:
        chosen = [seed_of(0, "linear", "test", *sentence.words) % TEST_SHARE == 0 for sentence in files[""]]
        sides = ("train", False), ("test", True)
        parts = {part: [s for s, test in zip(files[""], chosen, strict=True) if test is side] for part, side in sides}
    else:
        parts = dict(files)
    if "train" not in parts:
        parts["train"] = parts.pop("dev", [])
    tested = [part for part in ("test", "dev") if parts.get(part)]
    if not parts["train"] or not tested:
        raise InputError(f"--tasks {path}: too few sentences to train and to test on ({_counts(parts)})")
    return {"train": parts["train"]} | {part: parts[part] for part in tested}


def _counts(parts: Mapping[str, list[tagged.Sentence]]) -> str:
    return ", ".join(f"{part}: {len(sentences):,}" for part, sentences in parts.items())


def _labels(path: Path, train: list[tagged.Sentence], test: list[tagged.Sentence]) -> tuple[str, ...]:
    """Return the tags of the training sentences, then those that occur in test sentences only.

    Raises InputError if all training words have the same tag.
    """
    seen = sorted({tag for sentence in train for tag in sentence.tags})
    if len(seen) < 2:
        raise InputError(f"--tasks {path}: every training word has the tag {seen[0]!r}, so there is nothing to learn")
    return (*seen, *sorted({tag for sentence in test for tag in sentence.tags} - set(seen)))


def _tagged(sentences: list[tagged.Sentence], labels: tuple[str, ...]) -> Tagged:
    """Return sentences with the number of each tag."""
    number = {label: place for place, label in enumerate(labels)}
    return Tagged([list(s.words) for s in sentences], [[number[tag] for tag in s.tags] for s in sentences])


# ---- minimal pairs ----


def of_pairs(pairs: PairSet) -> LinearProbe:
    """Return a probe that tells which of two sentences is right, tested on paradigms that it was not trained on.

    It trains on two thirds of the paradigms; a hash of a paradigm's name decides. Raises InputError for too few
    paradigms.
    """
    paradigm_of = pairs.groups["paradigm"]
    labels = tuple(sorted(set(paradigm_of)))
    order = sorted(labels, key=lambda paradigm: (seed_of(0, "linear", "paradigm", paradigm), paradigm))
    if len(order) < PARADIGMS:
        raise InputError(
            f"--tasks {PREFIX}{pairs.name}: {len(order)} paradigms, and at least {PARADIGMS} are needed, "
            f"one of them to test on"
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
