"""What one fine-tuning computes, from the texts of its task alone: steps, rows, and numbers of tokens.

Lengths are those of at most SAMPLE rows, evenly spread. They are approximate: words and texts that are tokenized apart
in fine-tuning are counted together here, and the tokens of padding, which are few in batches by length, are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from workbench.spec.parts import TasksSpec
from workbench.tasks.embeddings.embedding_task import Embedding, Relevant, Similar
from workbench.tasks.price import SPECIAL, pieces_of
from workbench.tasks.squad.questions import LENGTH, QUERY, STRIDE, Questions, Squad
from workbench.tasks.tagging.tagging_task import Tagging
from workbench.tasks.task import Examples, Measure, Tagged, Task

SAMPLE = 1000
Rows = list[list[int]]  # for each example the tokens of each of its rows
T = TypeVar("T")


@dataclass(frozen=True)
class Workload:
    """One fine-tuning: its steps, the examples of a step, and the tokens of the rows of some examples.

    An example is what a batch counts: a row, a window, a question with all its answers, or a pair of texts. `tested` is
    the number of examples that are read besides, and `test` some of them. A step reads its rows in `passes`.
    """

    steps: int
    batch: int
    train: Rows
    test: Rows
    tested: int
    passes: int = 1


def workload(measure: Measure, spec: TasksSpec, tokenizer: Path, positions: int) -> Workload:
    """Return what one fine-tuning of an encoder with so many positions computes, at these settings."""
    from workbench.tasks.finetuning.fit import step_count

    count = _reader(measure, spec, tokenizer, positions)
    texts, repeats = _train(measure, spec)
    train, number = count(_some(texts)), len(texts) * repeats
    if isinstance(measure, Tagging | Squad):  # a batch counts windows
        number = round(number * sum(map(len, train)) / len(train))
        train = [[length] for rows in train for length in rows]
    folds = len(measure.folds) if isinstance(measure, Task) else 0
    share = (folds - 1) / folds if folds else 1
    steps = step_count(round(number * share), float(measure.settings(spec)["epochs"]), spec)
    tests = [example for part in _tests(measure) for example in part]
    twice = (
        2 if isinstance(measure, Embedding) else 1
    )  # it is tested before and after training, on both texts of a pair
    return Workload(steps * max(1, folds), spec.batch, train, count(_some(tests)), twice * len(tests), twice)


def _some(examples: Sequence[T]) -> list[T]:
    """Return at most SAMPLE examples, evenly spread."""
    step = max(1.0, len(examples) / SAMPLE)
    return [examples[int(place * step)] for place in range(min(len(examples), SAMPLE))]


def _train(measure: Measure, spec: TasksSpec) -> tuple[Sequence[list[str]], int]:
    """Return the texts of each training example, and how often each is in the training rows."""
    if isinstance(measure, Task):
        return _examples(measure, measure.train), 2 if spec.doubled and measure.symmetric else 1
    if isinstance(measure, Embedding):
        return [list(pair) for pair in measure.train.pairs()] if measure.train is not None else [], 1
    assert isinstance(measure, Tagging | Squad)
    return _of_part(measure.train), 1


def _tests(measure: Measure) -> list[Sequence[list[str]]]:
    """Return the texts of the examples of each part that is tested on."""
    assert isinstance(measure, Task | Embedding | Tagging | Squad)
    if isinstance(measure, Task):
        return [_examples(measure, part) for part in measure.tests.values()]
    return [_of_part(part) for part in measure.tests.values()]


def _examples(task: Task, rows: Examples) -> list[list[str]]:
    """Return the texts of the rows of each question, a row being all that is read together."""
    texts = [" ".join(pair) for pair in zip(rows.first, rows.second or [""] * len(rows), strict=True)]
    return [[texts[row] for row in unit] for unit in task.units(rows)]


def _of_part(part: Tagged | Questions | Similar | Relevant) -> list[list[str]]:
    """Return the texts of each sentence, of each question with its paragraph, or each text of an embedding."""
    if isinstance(part, Tagged):
        return [[" ".join(words)] for words in part.words]
    if isinstance(part, Questions):
        return [[row.text, part.paragraphs[row.paragraph]] for row in part.rows]
    return [[text] for text in part.texts()]


def _reader(measure: Measure, spec: TasksSpec, tokenizer: Path, positions: int) -> Callable[[list[list[str]]], Rows]:
    """Return the function that gives the tokens of the rows of examples, from their texts."""
    limit = min(spec.length, positions)
    if isinstance(measure, Squad):
        limit = min(spec.squad_length or LENGTH, positions)

    def rows_of(pieces: list[int]) -> list[int]:
        if isinstance(measure, Squad):
            return _windows(pieces, limit, spec)
        if isinstance(measure, Tagging):
            return [end - start + SPECIAL for start, end in _cut(pieces[0], limit - SPECIAL)]
        return [min(limit, max(1, count) + SPECIAL) for count in pieces]

    def count(examples: list[list[str]]) -> Rows:
        pieces = iter(pieces_of(tokenizer, [text for texts in examples for text in texts]))
        return [rows_of([next(pieces) for _ in texts]) for texts in examples]

    return count


def _cut(pieces: int, room: int) -> list[tuple[int, int]]:
    """Return the first piece and the end of each window of a sentence."""
    from workbench.tasks.pieces import cuts

    return [(start, min(start + room, pieces)) for start, _, _ in cuts(pieces, room)]


def _windows(pieces: list[int], limit: int, spec: TasksSpec) -> list[int]:
    """Return the tokens of the windows of a question and its paragraph, which have these numbers of pieces."""
    asked = min(pieces[0], QUERY, limit // 4)
    stride, room = spec.squad_stride or max(1, min(STRIDE, limit // 2)), limit - asked - SPECIAL - 1
    starts = range(0, max(1, pieces[1] - room + stride), stride)
    return [limit - room + min(room, pieces[1] - start) for start in starts]
