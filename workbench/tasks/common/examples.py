"""Texts with labels as plain data, the task of learning them, and its folds, whatever they were read from."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from workbench.data.tagged_sentences import Sentence
from workbench.errors import InputError, plural
from workbench.rng import seed_of
from workbench.spec.host import Host
from workbench.spec.parts import DATA_KEYS, TasksSpec
from workbench.spec.run_spec import RunSpec
from workbench.tasks.common.contract import FINE_TUNING, Cost, EncoderFacts, Measure, Model, Scores
from workbench.tasks.common.data_rows import aside, fingerprint, random_order, warned
from workbench.tasks.common.metrics import OF_ORDER, judged

Span = tuple[int, int]
Spans = tuple[Span, Span]


@dataclass(frozen=True)
class Examples:
    """Rows of one split: `first`, `second` (None for single texts) and `targets`, all of the same length.

    A target is an index into the task's labels, a list of indices if a row may have several labels, or a number in a
    regression. `groups` holds the question number of each row, if each question has several neighbouring rows, one an
    answer. `spans` holds two spans of `first` for each row, each as (start, end) in characters.
    """

    first: list[str]
    second: list[str] | None
    targets: list[Any]
    groups: list[int] | None = None
    spans: list[Spans] | None = None

    def __post_init__(self) -> None:
        given = [each for each in (self.second, self.targets, self.groups, self.spans) if each is not None]
        assert all(len(each) == len(self.first) for each in given)

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: Sequence[int]) -> Examples:
        """Return the rows at these indices, in this order."""
        columns = (self.first, self.second, self.targets, self.groups, self.spans)
        return Examples(*(None if column is None else [column[i] for i in rows] for column in columns))  # type: ignore[arg-type]

    def texts(self) -> list[str]:
        """Return every text, the first ones before the second ones."""
        return [*self.first, *(self.second or [])]

    def pairs(self) -> list[tuple[str, str]]:
        """Return both texts of each row."""
        return list(zip(self.first, self.second or [], strict=True))

    def questions(self) -> list[list[int]]:
        """Return the indices of the rows of each question; without groups each row is one."""
        rows_of: dict[int, list[int]] = {}
        for row, group in enumerate(range(len(self)) if self.groups is None else self.groups):
            rows_of.setdefault(group, []).append(row)
        return list(rows_of.values())


@dataclass(frozen=True)
class Tagged:
    """Sentences as lists of words, with the number of each word's tag."""

    words: list[list[str]]
    targets: list[list[int]]

    def __len__(self) -> int:
        return len(self.words)

    def take(self, rows: Sequence[int]) -> Tagged:
        """Return the sentences at these indices, in this order."""
        return Tagged([self.words[i] for i in rows], [self.targets[i] for i in rows])

    def texts(self) -> list[str]:
        """Return every sentence, its words separated by blanks."""
        return [" ".join(words) for words in self.words]


def numbered(sentences: Iterable[Sentence], labels: Sequence[str]) -> Tagged:
    """Return sentences with the number of each tag, its place in `labels`."""
    number, rows = {label: place for place, label in enumerate(labels)}, list(sentences)
    return Tagged([list(each.words) for each in rows], [[number[tag] for tag in each.tags] for each in rows])


@dataclass(frozen=True)
class Task(Measure):
    """One downstream task of texts with labels, on which an encoder is fine-tuned, with its data and metrics.

    `labels` is empty in a regression, whose targets lie in `span`. `metric` is the headline metric among `metrics`,
    computed on the first of `tests`. `symmetric` says that the texts of a pair may be exchanged. If `multilabel`, a row
    has any number of labels. If `choice`, the rows of a question are its answers, exactly one of which is right; the
    one with the largest output is predicted. `folds` are the numbers of the training rows that each fold tests, and
    `notes` sentences on what is odd about the data. A score keeps the `predictions` of the test rows as a CSV file, or
    as the numbers of the labels.
    """

    name: str
    suite: str
    labels: tuple[str, ...]
    metric: str
    metrics: tuple[str, ...]
    epochs: float
    train: Examples
    tests: Mapping[str, Examples]
    span: tuple[float, float] = (0.0, 1.0)
    symmetric: bool = False
    multilabel: bool = False
    folds: tuple[tuple[int, ...], ...] = ()
    notes: tuple[str, ...] = ()
    choice: bool = False
    predictions: Literal["", "csv", "numbers"] = ""
    act = FINE_TUNING

    @functools.cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        settings: list[Any] = [self.name, self.labels, self.metric, self.span, self.symmetric]
        settings += filter(None, (self.multilabel, self.folds, self.choice))
        parts = [
            [name, rows.first, rows.second, rows.targets, *filter(None, (rows.groups, rows.spans))]
            for name, rows in {"train": self.train, **self.tests}.items()
        ]
        return fingerprint(settings, *parts)

    @property
    def regression(self) -> bool:
        return not self.labels

    @property
    def kind(self) -> Literal["classification", "multilabel", "regression", "choice"]:
        """The kind of the targets, on which loss and metrics depend."""
        if self.choice:
            return "choice"
        return "regression" if self.regression else "multilabel" if self.multilabel else "classification"

    @property
    def outputs(self) -> int:
        """The number of outputs of a row."""
        return 1 if self.choice or self.regression else len(self.labels)

    def units(self, rows: Examples) -> list[list[int]]:
        """Return the indices of the rows of each prediction: all answers of a question in a choice, else one row."""
        return rows.questions() if self.choice else [[row] for row in range(len(rows))]

    def array(self, rows: Examples) -> Any:
        """Return the targets of rows: labels (N,) int64, numbers (N,) float64, or 0 and 1 (N, labels) float32."""
        import numpy as np

        if not self.multilabel:
            return np.array(rows.targets, dtype=np.float64 if self.regression else np.int64)
        array = np.zeros((len(rows), len(self.labels)), dtype=np.float32)
        for row, labels in enumerate(rows.targets):
            array[row, labels] = 1
        return array

    def settings(self, spec: TasksSpec) -> dict[str, Any]:
        """Return every setting that changes a score, with the task's own number of epochs if none is set."""
        unused = set() if spec.lm_weight else {"lm_weight"}
        return spec.model_dump(mode="json", exclude=DATA_KEYS | unused) | {"epochs": spec.epochs or self.epochs}

    def baselines(self, cache: Path | None = None) -> Mapping[str, float]:
        from workbench.tasks.common import baselines

        return baselines.of_task(self, cache)

    def cost(self, spec: RunSpec, options: TasksSpec, tokenizer: Path) -> Cost:
        """Return the cost of one fine-tuning, of all folds together."""
        from workbench.tasks.common.cost import tuning_cost

        parts = []
        for rows in (self.train, *self.tests.values()):
            texts = [" ".join(pair) for pair in zip(rows.first, rows.second or [""] * len(rows), strict=True)]
            parts.append([[texts[row] for row in unit] for unit in self.units(rows)])
        (train, *tests), repeats = parts, 2 if options.doubled and self.symmetric else 1
        return tuning_cost(self, spec, options, tokenizer, train, tests, repeats=repeats, folds=len(self.folds))

    def measure(self, model: Model, host: Host) -> Scores:
        from workbench.tasks.common.classification import finetune

        return finetune(self, model, host)

    def reading(self, options: TasksSpec, facts: EncoderFacts) -> tuple[str, dict[str, Any]]:
        length = facts.cut(options.length)
        place = "last token" if facts.reads_last else "first token"
        return f"texts cut to {length} tokens and read at the {place}", {"length": length, "read_at": place}


def limited(task: Task, rows: int | None) -> Task:
    """Return the task with at most `rows` training rows, the same ones every time; a question is one row."""
    questions = task.train.questions()
    if rows is None or rows >= len(questions):
        return task
    return replace(task, train=_taken(task.train, questions, random_order("rows", task.name, len(questions))[:rows]))


def held_out(task: Task, share: float) -> Task:
    """Return the task measured on a share of its training rows, which are not trained on; the same rows every time."""
    if not share:
        return task
    questions = task.train.questions()
    sides = aside(random_order("held out", task.name, len(questions)), share)
    train, test = (_taken(task.train, questions, numbers) for numbers in sides)
    return replace(task, train=train, tests={"held-out": test}, folds=())


def _taken(rows: Examples, questions: list[list[int]], numbers: list[int]) -> Examples:
    return rows.take([row for number in sorted(numbers) for row in questions[number]])


# ---- cross-validation ----
# One fine-tuning seed has one score, of all folds together. Metrics of labels are computed on the predictions of
# all folds at once, because the mean of the F1 of small folds is biased; metrics of an order (average precision,
# correlations) are means over the folds, because the outputs of different models are not on one scale (Forman and
# Scholz 2010, "Apples-to-apples in cross-validation studies"). The folds depend on the texts alone, so that all seeds,
# runs and baselines share them.

PART = "out-of-fold"


def divided(task: Task, count: int) -> Task:
    """Return a task without tests with `count` folds of its rows as its test.

    Equal first texts are in one fold. The texts of each label are assigned to the folds in turn, in an order by their
    hash, the rarest label first. Texts with a label that no other fold has, above all texts that are alone with their
    label, are tested in no fold and trained on in all, and a note says so. Raises InputError if a fold remains empty.
    """
    rows_of: dict[str, list[int]] = {}
    labels_of: dict[str, set[int]] = {}
    for row, (text, target) in enumerate(zip(task.train.first, task.train.targets, strict=True)):
        rows_of.setdefault(text, []).append(row)
        labels_of.setdefault(text, set()).update([] if task.regression else target if task.multilabel else [target])
    counts = Counter(label for labels in labels_of.values() for label in labels)

    def rarest(text: str) -> tuple[int, int, int, str]:
        number, label = min(((counts[label], label) for label in labels_of[text]), default=(len(labels_of), -1))
        return number, label, seed_of(0, "folds", text), text

    fold_of = {text: place % count for place, text in enumerate(sorted(labels_of, key=rarest))}
    folds_of_label: dict[int, set[int]] = {}
    for text, labels in labels_of.items():
        for label in labels:
            folds_of_label.setdefault(label, set()).add(fold_of[text])
    alone = {text for text, labels in labels_of.items() if any(len(folds_of_label[label]) == 1 for label in labels)}
    dealt: list[list[int]] = [[] for _ in range(count)]
    for text, fold in fold_of.items():
        dealt[fold] += [] if text in alone else rows_of[text]
    if not all(dealt):
        raise InputError(
            f"tasks.folds={count} needs {count} different texts, and {task.name} has {len(rows_of) - len(alone)} that "
            f"can be tested"
        )
    left = plural(sum(len(rows_of[text]) for text in alone), "row")
    note = f"{left} with a label of too few texts can be trained on in every fold, and tested in none"
    notes = (*task.notes, *(warned(task.name, [note]) if alone else ()))
    folds = tuple(tuple(sorted(rows)) for rows in dealt)
    tests = {PART: task.train.take([row for rows in folds for row in rows])}
    return replace(task, tests=tests, folds=folds, notes=notes)


def of_folds(task: Task) -> Iterator[Task]:
    """Yield the task of each fold: tested on its rows, trained on all others."""
    for rows in task.folds:
        tested = set(rows)
        others = task.train.take([row for row in range(len(task.train)) if row not in tested])
        yield replace(task, train=others, tests={PART: task.train.take(rows)}, folds=())


def over_folds(task: Task, outputs: Sequence[Any], targets: Sequence[Any]) -> dict[str, float]:
    """Return the metrics, as fractions, of the outputs (N, labels) and the targets of each fold."""
    import numpy as np

    of_labels = [name for name in task.metrics if name not in OF_ORDER]
    of_order = [name for name in task.metrics if name in OF_ORDER]
    pooled = judged(task.kind, of_labels, np.concatenate(outputs), np.concatenate(targets))
    each = [judged(task.kind, of_order, *fold) for fold in zip(outputs, targets, strict=True)]
    means = {name: float(np.mean([values[name] for values in each])) for name in of_order}
    return {name: (pooled | means)[name] for name in task.metrics}


def headline(task: Task, outputs_of: Callable[[Task], Any]) -> float:
    """Return the headline metric, times 100, of the outputs (N, labels) for the first test part, or for all folds."""
    if task.folds:
        parts = list(of_folds(task))
        targets = [part.array(part.tests[PART]) for part in parts]
        return 100 * over_folds(task, [outputs_of(part) for part in parts], targets)[task.metric]
    test = next(iter(task.tests.values()))
    return 100 * judged(task.kind, [task.metric], outputs_of(task), task.array(test), test.groups)[task.metric]
