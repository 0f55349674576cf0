"""Rows of a linear probe as plain data: texts with a label, sentences with a tag on each word, or minimal pairs."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from workbench.data import tagged_sentences, tagged_sets
from workbench.errors import InputError, plural, suggest
from workbench.rng import seed_of
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.spec.run_spec import RunSpec
from workbench.spec.scoring import LINEAR, PATH_PREFIXES, PROBES
from workbench.store.atomic import user_path
from workbench.tasks import glue, minimal_pairs, probes, table
from workbench.tasks.common import baselines
from workbench.tasks.common.contract import Cost, HeldOut, Measure, Model, Scores
from workbench.tasks.common.cost import reading_cost
from workbench.tasks.common.data_rows import aside, fingerprint
from workbench.tasks.common.examples import Examples, Tagged, Task, numbered
from workbench.tasks.common.metrics import gold_and_predicted, metric, span_scores
from workbench.tasks.common.table_files import FORMATS
from workbench.tasks.minimal_pairs import PairSet

PREFIX = "linear:"
VERSION = 1  # increase it when the computation of linear probes changes
ROWS = 20_000  # texts, words or pairs to train on at most; more hardly improve the readout
ITERATIONS = 100  # of L-BFGS in one fit of a readout, for estimates of time
SLOWER = 10  # FLOPs of a readout take this many times longer than FLOPs of an encoder: memory bandwidth limits them
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # scikit-learn's C: weight of the summed loss against the penalty
HELD = 5  # one training row in five is set aside to choose the penalty


@dataclass(frozen=True)
class LinearProbe(Measure):
    """Measure of frozen states by a linear readout.

    `kind` says what the rows are: `texts` (Examples), `words` (Tagged) or `pairs` (Examples of a right and a wrong
    sentence, whose target is the number of the paradigm in `labels`). The headline metric is computed on the first
    of `tests`.
    """

    name: str
    kind: Literal["texts", "words", "pairs"]
    labels: tuple[str, ...]
    metric: str
    metrics: tuple[str, ...]
    train: Examples | Tagged
    tests: Mapping[str, Examples | Tagged]
    suite = "linear"
    act = "reading out"

    @functools.cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        parts = [
            [name, *([part.words] if isinstance(part, Tagged) else [part.first, part.second]), part.targets]
            for name, part in {"train": self.train, **self.tests}.items()
        ]
        return fingerprint([self.name, self.kind, self.labels, self.metric, self.metrics], *parts)

    def settings(self, options: TasksSpec) -> dict[str, Any]:
        return {"length": options.length, "control": options.control and self.kind == "words", "version": VERSION}

    def baselines(self, cache: Path | None = None) -> Mapping[str, float]:
        name = f"{self.fingerprint}-linear-{VERSION}-{baselines.VERSION}"
        return baselines.cached(name, lambda: word_baselines(self), cache)

    def cost(self, spec: RunSpec, options: TasksSpec, tokenizer: Path) -> Cost:
        """Return the cost of reading every text once, and of fitting a readout of each layer and one of all layers."""
        texts = [text for part in (self.train, *self.tests.values()) for text in part.texts()]
        reading = reading_cost(self.fingerprint, texts, spec, options, tokenizer)
        pairs_of_texts = self.kind == "texts" and getattr(self.train, "second", None) is not None
        features = 2 * (spec.encoder.layers + 1) * spec.encoder.hidden * (4 if pairs_of_texts else 1)
        labels = len(self.labels) if self.kind != "pairs" and len(self.labels) > 2 else 1
        fits = (len(STRENGTHS) + 1) * (2 if options.control and self.kind == "words" else 1)
        return Cost(reading + SLOWER * fits * ITERATIONS * 4 * len(flattened(self.train)) * features * labels)

    def measure(self, model: Model, host: Host) -> Scores:
        from workbench.tasks._linear_readout import probe

        return probe(self, model, host)


def limited(probe: LinearProbe, spec: TasksSpec) -> LinearProbe:
    """Return the probe as `spec` measures it.

    With `spec.held_out` it is tested on that share of its training rows. At most `spec.rows` rows, with at most ROWS
    texts, words or pairs, are trained on. Hashes of their content decide which rows are taken.
    """
    train, tests = probe.train, dict(probe.tests)
    if spec.held_out:
        kept, tested = aside(_ordered(probe, train, "held out"), spec.held_out)
        train, tests = train.take(sorted(kept)), {"held-out": train.take(sorted(tested))}
    most = min(spec.rows or len(train), len(train))
    sizes = [len(words) for words in train.words] if isinstance(train, Tagged) else [1] * len(train)
    if most < len(train) or sum(sizes) > ROWS:
        order = _ordered(probe, train, "rows")[:most]
        totals = itertools.accumulate(sizes[row] for row in order)
        train = train.take(sorted(row for row, total in zip(order, totals, strict=True) if total <= ROWS) or order[:1])
    return replace(probe, train=train, tests=tests)


def flattened(rows: Examples | Tagged) -> list[Any]:
    """Return the targets of all texts or pairs, or of all words."""
    return list(itertools.chain(*rows.targets)) if isinstance(rows, Tagged) else rows.targets


def _ordered(probe: LinearProbe, rows: Examples | Tagged, what: str) -> list[int]:
    keys = rows.texts()[: len(rows)]
    return sorted(range(len(rows)), key=lambda row: (seed_of(0, "linear", what, probe.name, keys[row]), row))


def held(probe: LinearProbe) -> list[bool]:
    """Return whether each training row is set aside to choose the penalty: a fifth of the groups, by a hash of each.

    Copies of a row are one group; of minimal pairs, a paradigm is one.
    """
    of_pairs = probe.kind == "pairs"
    texts = probe.train.texts()[: len(probe.train)]
    group_of = [probe.labels[target] for target in flattened(probe.train)] if of_pairs else texts
    order = sorted(set(group_of), key=lambda group: (seed_of(0, "linear", "penalty", probe.name, group), group))
    held_groups = set(order[: max(1, round(len(order) / HELD))])
    return [group in held_groups for group in group_of]


# ---- names ----

groups = ("linear", "linear:probes")
names = [
    (PREFIX + probe.name, "linear", probe.metrics[0], f"{probe.summary}; frozen states")
    for probe in (probes.PROBES[name.removeprefix(PREFIX)] for name in LINEAR)
]


def place(name: str) -> list[str] | None:
    """Return the single linear probes that a name stands for, without their prefix; None for any other task.

    Raises InputError for a name that begins with the prefix of linear probes and is not one of them.
    """
    if name.lower() in groups:
        return list(PROBES)
    if not name.lower().startswith(PREFIX):
        return [name] if not name.lower().startswith(PATH_PREFIXES) and is_tagged(name) else None
    rest = name[len(PREFIX) :]
    if rest.lower() in (*PROBES, *minimal_pairs.NAMED):
        return [rest.lower()]
    if row := glue.row_of(rest):
        return [row.name]
    if rest and (is_tagged(rest) or _is_pairs(rest) or rest.lower().endswith(FORMATS)):
        return [rest]
    known_names = [*PROBES, *glue.ROWS, *minimal_pairs.NAMED]
    raise InputError(
        f"--tasks {name}: no linear probe {rest!r}{suggest(rest, known_names)}; or give a path: a table, "
        f"tagged sentences (.conllu, .iob2), minimal pairs (.jsonl), or a folder of tagged sentences or minimal pairs"
    )


def _is_pairs(rest: str) -> bool:
    """Return whether a path is a file that begins with a minimal pair, or any folder; test for tagged words before."""
    return minimal_pairs.holds_pairs(rest) or user_path(rest, "--tasks").is_dir()


def accepts(word: str) -> bool:
    """Return whether a word selects linear probes, as a path to tagged sentences does. Raises InputError as `place`."""
    return place(word) is not None


def reads(word: str, options: TasksSpec) -> set[str]:
    """Return the settings that linear probes read; the ones that divide a table are refused with a reason."""
    members = place(word) or []
    of_table = {*table.COLUMNS, "kind", "metric", "folds"} if word.lower().endswith(FORMATS) else set()
    of_glue = {"glue"} if any(name not in PROBES and glue.row_of(name) for name in members) else set()
    of_blimp = {"blimp"} if any(name in minimal_pairs.NAMED for name in members) else set()
    return {"control", "length", "rows", "held_out", *of_table, *of_glue, *of_blimp}


def downloads(word: str, options: TasksSpec) -> bool:
    """Return whether the data of a word is downloaded from the hub."""
    of_glue = "glue" in reads(word, options) and glue.downloads(word, options)
    return of_glue or any(minimal_pairs.downloads(name, options) for name in place(word) or [])


def load(words: Sequence[str], spec: TasksSpec, text: HeldOut | None = None) -> list[LinearProbe]:
    """Return the probes of these names. Raises InputError."""
    members = dict.fromkeys(name for word in words for name in place(word) or [])
    return [limited(_probe(name, spec), spec) for name in members]


def _probe(name: str, spec: TasksSpec) -> LinearProbe:
    if name in minimal_pairs.NAMED:
        return of_pairs(minimal_pairs.load_named(name, spec.blimp))
    if name in PROBES:
        return of_task(probes.read([name])[0])
    if glue.row_of(name) is None:
        if is_tagged(name):
            return of_tagged(name)
        if _is_pairs(name):
            return of_pairs(minimal_pairs.load_path(name))
    table_given = name.lower().endswith(FORMATS)
    return of_task(table.read(name, spec) if table_given else glue.read_one(name, spec.glue, PREFIX + name))


# ---- data sets ----

PARADIGMS = 3  # one paradigm in three is tested on


def of_task(task: Task) -> LinearProbe:
    """Return a linear probe with the rows of a task, where each row must have one label.

    Average precision is left out, as a readout gives no probabilities, and so is macro F1 where there is F1. Raises
    InputError for a regression, several labels a row, and folds.
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
    labels = tagged_sets.labels_of(path, parts)
    kind = tagged_sentences.tags_of(next(iter(files.values())))
    metrics = ("accuracy", "macro_f1") if kind == "pos" else ("entity_f1", "macro_f1", "accuracy")
    rows: dict[str, Examples | Tagged] = {part: numbered(sentences, labels) for part, sentences in parts.items()}
    name = f"{PREFIX}{tagged_sets.title(files)}-{kind}"
    return LinearProbe(name, "words", labels, metrics[0], metrics, rows.pop("train"), rows)


# ---- minimal pairs ----


def of_pairs(pairs: PairSet) -> LinearProbe:
    """Return a probe for the acceptable one of two sentences, tested on paradigms that it was not trained on.

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
    tested = set(order[: len(order) // PARADIGMS])
    whole = Examples(list(pairs.good), list(pairs.bad), [labels.index(paradigm) for paradigm in paradigm_of])
    train, test = (
        whole.take([row for row, paradigm in enumerate(paradigm_of) if (paradigm in tested) is side])
        for side in (False, True)
    )
    name, metrics = PREFIX + pairs.name, ("accuracy",)
    return LinearProbe(name, "pairs", labels, "accuracy", metrics, train, {"held-out paradigms": test})


# ---- metrics ----


def points(probe: LinearProbe, rows: Examples | Tagged, predicted: Any) -> dict[str, float]:
    """Return the probe's metrics of predictions (N,): label numbers, or for pairs 1 right, 0.5 a tie, 0 wrong."""
    import numpy as np

    if probe.kind == "pairs":
        accuracies = by_paradigm(probe, rows, predicted).values()
        return {"accuracy": math.fsum(accuracies) / len(accuracies)}
    true = np.array(flattened(rows))
    values = {name: metric(name, predicted, true) for name in probe.metrics if name != "entity_f1"}
    if "entity_f1" in probe.metrics:  # right if type and both ends match, over all sentences
        values["entity_f1"] = span_scores(*gold_and_predicted(probe.labels, rows, predicted))["f1"]
    return {name: 100 * values[name] for name in probe.metrics}


def by_paradigm(probe: LinearProbe, rows: Examples | Tagged, predicted: Any) -> dict[str, float]:
    """Return the accuracy times 100 in each paradigm of pairs; the headline is their unweighted mean, as BLiMP's is."""
    import numpy as np

    targets = np.asarray(rows.targets)
    return {probe.labels[t]: 100 * float(predicted[targets == t].mean()) for t in np.unique(targets).tolist()}


# ---- baselines ----
# For tags, `bag-of-words` predicts each word's most frequent training tag, and the most frequent tag of all for words
# that do not occur in training. For pairs it is logistic regression on the words in which two sentences differ.


def word_baselines(probe: LinearProbe) -> dict[str, float]:
    """Return the headline metric of the most frequent answer, and of words alone."""
    train, test = probe.train, next(iter(probe.tests.values()))
    if isinstance(train, Tagged):
        assert isinstance(test, Tagged)
        guesses = zip(("majority", "bag-of-words"), baselines.by_word(train, test), strict=True)
        return {name: points(probe, test, guess)[probe.metric] for name, guess in guesses}
    assert isinstance(test, Examples)
    if probe.kind == "texts":
        tests = {"test": test}
        task = Task(probe.name, "table", probe.labels, probe.metric, probe.metrics, 1.0, train, tests)
        return {"majority": baselines.majority(task), "bag-of-words": baselines.bag_of_words(task)}
    import numpy as np

    from workbench.tasks._linear_readout import Regression

    known = baselines.vocabulary(Examples(train.texts(), None, [0] * (2 * len(train))), baselines.FEATURES)

    def differences(rows: Examples) -> Any:
        texts = (rows.first, rows.second or [])
        right, wrong = (baselines.matrix(Examples(side, None, rows.targets), known) for side in texts)
        return right - wrong

    model = Regression(pairs=True)
    model.fit(differences(train), np.arange(len(train)) % 2, baselines.STRENGTH)
    return {"majority": 50.0, "bag-of-words": points(probe, test, model.predict(differences(test)))[probe.metric]}
