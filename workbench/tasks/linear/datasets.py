"""Data sets of linear probes: a classification task, tagged sentences in files, or a set of minimal pairs."""

from __future__ import annotations

import contextlib

from workbench.data import tagged_sentences, tagged_sets
from workbench.errors import InputError, plural
from workbench.rng import seed_of
from workbench.store.atomic import user_path
from workbench.tasks.linear.problem import LinearProbe
from workbench.tasks.task import Examples, Tagged, Task, numbered
from workbench.tasks.zero_shot.minimal_pairs import PairSet

PREFIX = "linear:"
PARADIGMS = 3  # one paradigm in so many is tested on


def of_task(task: Task) -> LinearProbe:
    """Return a linear probe with the rows of a task, each of which must have one label.

    Its metrics are those that predicted labels have, as a readout gives no probabilities; macro F1 is left out where
    there is F1. Raises InputError for a regression, several labels a row, and folds.
    """
    if task.regression:
        raise InputError(
            f"--tasks {PREFIX}{task.name}: linear probes classify, and the labels of this task are numbers; "
            f"leave out {PREFIX}"
        )
    if task.multilabel or task.folds or task.metric == "average_precision":
        lacking = "tasks.folds" if task.folds else "several labels a row" if task.multilabel else "average precision"
        raise InputError(f"--tasks {PREFIX}{task.name}: linear probes do not have {lacking}; leave out {PREFIX}")
    left_out = {"average_precision", "macro_f1" if "f1" in task.metrics else ""} - {task.metric}
    metrics = tuple(name for name in task.metrics if name not in left_out)
    return LinearProbe(PREFIX + task.name, "texts", task.labels, task.metric, metrics, task.train, task.tests)


# ---- tagged sentences ----


def is_tagged(name: str) -> bool:
    """Return whether a name is the path of a file of tagged sentences, or of a folder that holds one."""
    path = user_path(name, "--tasks")
    if tagged_sentences.format_of(path):
        return True
    with contextlib.suppress(OSError):  # a folder that cannot be listed counts as none
        return path.is_dir() and tagged_sets.holds_set(path)
    return False


def of_tagged(name: str) -> LinearProbe:
    """Return a probe that predicts the tags of words, from a file or folder of tagged sentences.

    It is tested on the test file, or if there is none on the dev file (see `workbench.data.tagged_sets`). Raises
    InputError.
    """
    path = user_path(name, "--tasks")
    files = tagged_sets.files_of(path)
    parts = tagged_sets.sides(path, {part: tagged_sentences.read(file) for part, file in files.items()})
    train = parts.pop("train")
    tested = [sentence.tags for sentences in parts.values() for sentence in sentences]
    labels = tagged_sets.labels_of(path, [sentence.tags for sentence in train], tested)
    kind = tagged_sentences.tags_of(next(iter(files.values())))
    metrics = ("accuracy", "macro_f1") if kind == "pos" else ("entity_f1", "macro_f1", "accuracy")
    tests: dict[str, Examples | Tagged] = {part: numbered(parts[part], labels) for part in parts}
    name = f"{PREFIX}{tagged_sets.title(files)}-{kind}"
    return LinearProbe(name, "words", labels, metrics[0], metrics, numbered(train, labels), tests)


# ---- minimal pairs ----


def of_pairs(pairs: PairSet) -> LinearProbe:
    """Return a probe of which of two sentences is acceptable, tested on paradigms that it was not trained on.

    It trains on two thirds of the paradigms; a hash of a paradigm's name decides. Raises InputError for too few
    paradigms.
    """
    paradigm_of = pairs.groups["paradigm"]
    labels = tuple(sorted(set(paradigm_of)))
    order = sorted(labels, key=lambda paradigm: (seed_of(0, "linear", "paradigm", paradigm), paradigm))
    if len(order) < PARADIGMS:
        raise InputError(
            f"--tasks {PREFIX}{pairs.name}: {plural(len(order), 'paradigm')}, and at least {PARADIGMS} are needed, "
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
