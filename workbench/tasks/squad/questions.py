"""Questions on paragraphs as plain data, and SQuAD as a measure with the settings of the released code.

Source of the settings: Clark et al. 2020, table 7, and the released `configure_finetuning.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.rng import seed_of
from workbench.spec.parts import TasksSpec
from workbench.spec.scoring import SQUAD

VERSION = 1  # increase it when the computation of a score changes
EPOCHS = 2.0
LENGTH = 512  # tokens of a window, if the encoder has as many positions
STRIDE, QUERY = 128, 64  # tokens between the starts of windows, and of a question, at that length
ANSWER = 30  # tokens of an answer at most
BEAM = N_BEST = 20  # starts, and ends of each start; different answers that are kept of a question
ANSWERABLE = 0.5  # weight of the loss of the answerability head
THRESHOLD = -2.75  # log-odds of "no answer" above which none is given, as in the released code's test outputs


@dataclass(frozen=True)
class Question:
    """One question: its id, its text, the index of its paragraph, and its answers as (text, first character).

    `impossible` says that the paragraph does not answer it. `article` is the title of the paragraph's article.
    """

    id: str
    text: str
    paragraph: int
    answers: tuple[tuple[str, int], ...]
    impossible: bool
    article: str


@dataclass(frozen=True)
class Questions:
    """The questions of one part, and the paragraphs that they are asked about."""

    paragraphs: list[str]
    rows: list[Question]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: list[int]) -> Questions:
        """Return the questions at these indices, in this order, with all paragraphs."""
        return Questions(self.paragraphs, [self.rows[i] for i in rows])

    def where(self, keep: Callable[[Question], bool]) -> Questions:
        """Return the questions that `keep` accepts, in their order."""
        return self.take([number for number, row in enumerate(self.rows) if keep(row)])


@dataclass(frozen=True)
class Squad:
    """Measure of SQuAD (see `workbench.tasks.task.Measure`), version 2.0 if `unanswerable`, else 1.1.

    The headline metric is computed on the first of `tests`: F1, in 2.0 at the best threshold, as the paper's table 4
    has it. `faults` counts what is wrong in the files, by a phrase that says what and where.
    """

    name: str
    unanswerable: bool
    train: Questions
    tests: Mapping[str, Questions]
    fingerprint: str = ""
    baselines: Mapping[str, float] = field(default_factory=dict)
    faults: Mapping[str, int] = field(default_factory=dict)
    suite: str = SQUAD
    act: str = "fine-tuning"

    @property
    def metric(self) -> str:
        return "best_f1" if self.unanswerable else "f1"

    def seeds(self, spec: TasksSpec) -> int:
        """Return the number of fine-tuning seeds."""
        return spec.seeds

    def settings(self, spec: TasksSpec) -> dict[str, Any]:
        """Return every setting that changes a score; a length or stride of None follows from the encoder."""
        shared = (
            "lr", "layer_decay", "extra_decay", "weight_decay", "warmup", "batch", "dropout", "clip", "sum_loss",
            "overlap", "bias_correction", "rows",
        )  # fmt: skip
        return {name: getattr(spec, name) for name in shared} | {
            "epochs": spec.epochs or EPOCHS, "head": spec.squad_head, "length": spec.squad_length or LENGTH,
            "stride": spec.squad_stride, "query": QUERY, "answer": ANSWER, "beam": BEAM, "n_best": N_BEST,
            "answerable": ANSWERABLE, "threshold": THRESHOLD, "version": VERSION,
        }  # fmt: skip


def fingerprinted(task: Squad, spec: TasksSpec) -> Squad:
    """Return the task as `spec` measures it, with its fingerprint.

    With `spec.held_out` it is tested on about that share of its training questions, those of some paragraphs. At most
    `spec.rows` questions are trained on. Hashes decide which.
    """
    train, tests = task.train, task.tests
    if spec.held_out:
        aside = _paragraphs_aside(train, spec.held_out)
        tests = {"held-out": train.where(lambda row: row.paragraph in aside)}
        train = train.where(lambda row: row.paragraph not in aside)
    if spec.rows is not None and spec.rows < len(train):
        order = sorted(range(len(train)), key=lambda row: (seed_of(0, SQUAD, "rows", train.rows[row].id), row))
        train = train.take(sorted(order[: spec.rows]))
    selected = replace(task, train=train, tests=tests)
    return replace(selected, fingerprint=_fingerprint(selected))


def _paragraphs_aside(train: Questions, share: float) -> set[int]:
    """Return the indices of about this share of the paragraphs with questions, at least one, but never all."""
    asked = sorted({row.paragraph for row in train.rows})
    order = sorted(asked, key=lambda number: (seed_of(0, SQUAD, "held out", train.paragraphs[number]), number))
    return set(order[: min(max(1, round(share * len(order))), len(order) - 1)])


def _fingerprint(task: Squad) -> str:
    """Return 16 hex digits of a hash over everything that decides a score: questions, paragraphs and answers."""
    sha = hashlib.sha256(json.dumps([task.name, task.metric]).encode())
    for name, part in {"train": task.train, **task.tests}.items():
        rows = [(row.id, row.text, part.paragraphs[row.paragraph], row.answers, row.impossible) for row in part.rows]
        sha.update(json.dumps([name, rows]).encode())
    return sha.hexdigest()[:16]
