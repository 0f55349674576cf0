"""Measurement of a frozen encoder by a linear probe: a readout of each layer's states, and one of all layers together.

The headline is the readout of all layers' states side by side: it can weight layers freely, and the problem stays
convex. The results of single layers are reported beside it and select nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workbench import cpu
from workbench.rng import seed_of
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.linear import problem, scores
from workbench.tasks.linear.problem import LinearProbe
from workbench.tasks.linear.readout import Readout, read_out
from workbench.tasks.score import Progress, Score, items_of, score_digest
from workbench.tasks.task import Examples, Tagged

MIXED = "mixed"

Array = Any  # a numpy array


def probe(
    encoder: Path, task: LinearProbe, spec: TasksSpec, seed: int, host: Host, progress: Progress | None = None
) -> Score:
    """Fit the readouts on the states of an encoder folder and return their score; nothing is drawn at random.

    Raises InputError for a folder without an encoder and for too few rows, Diverged for states that are not finite.
    """
    from workbench.tasks.linear.states import open_reader

    begun = time.perf_counter()
    device = host.resolved_device()
    cpu.prepare(host.threads, host.plain, device)
    reader = open_reader(encoder, spec.length, device)
    train = _features(reader, task.train, task.kind)
    tests = {part: _features(reader, rows, task.kind) for part, rows in task.tests.items()}
    steps = len(train) + 1
    results: dict[str, dict[str, Any]] = {}
    with _threads(host.threads):
        for step, (name, inputs, test_inputs) in enumerate(_views(train, tests), 1):
            results[name] = _layer(task, inputs, test_inputs, name == MIXED, spec.control)
            if progress is not None:
                progress(step, steps)
    first = next(iter(task.tests))
    mixed, items = results[MIXED]["values"], results[MIXED].pop("items", {})
    values = dict(mixed)
    values |= {f"{first}, layer {name}": each["values"][first] for name, each in results.items() if name != MIXED}
    return Score(
        task=task.name, suite=task.suite, metric=task.metric, seed=seed, value=mixed[first][task.metric],
        values=values, baselines=dict(task.baselines), train_rows=_count(task.train),
        test_rows=_count(task.tests[first]), steps=0, seconds=time.perf_counter() - begun,
        finetune=task.settings(spec), data=task.fingerprint, digest=score_digest(task, spec),
        details={"layers": results, **items},
    )  # fmt: skip


def _count(rows: Examples | Tagged) -> int:
    """Return the number of rows, or of words in tagged sentences."""
    return rows.count() if isinstance(rows, Tagged) else len(rows)


@contextmanager
def _threads(most: int | None) -> Iterator[None]:
    """Limit matrix products outside torch to `most` threads."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(most):
        yield


# ---- features ----


def _features(reader: Any, rows: Examples | Tagged, kind: str) -> Array:
    """Return features (layers, N, F) of texts, of words, or of differences between sentences.

    The texts u and v of a pair are read separately; their features are u, v, |u - v| and u * v, as in InferSent
    (Conneau et al. 2017).
    """
    import numpy as np

    from workbench.tasks.linear import states
    from workbench.tasks.pieces import text_pieces, word_pieces

    if isinstance(rows, Tagged):
        return states.picked_states(reader, *word_pieces(reader.splitter, rows.words))
    place: dict[str, int] = {}  # each different text is read once
    for text in (*rows.first, *(rows.second or [])):
        place.setdefault(text, len(place))
    state_means = states.mean_states(reader, text_pieces(reader.splitter, list(place)))
    first = state_means[:, [place[text] for text in rows.first]]
    if rows.second is None:
        return first
    second = state_means[:, [place[text] for text in rows.second]]
    if kind == "pairs":
        return first - second
    return np.concatenate([first, second, np.abs(first - second), first * second], axis=-1)


def _views(train: Array, tests: dict[str, Array]) -> Iterator[tuple[str, Array, dict[str, Array]]]:
    """Yield the name and features of each layer, 0 being the embeddings, and then of all layers side by side."""
    import numpy as np

    for layer in range(len(train)):
        yield str(layer), train[layer], {part: each[layer] for part, each in tests.items()}
    yield MIXED, np.concatenate(list(train), -1), {part: np.concatenate(list(x), -1) for part, x in tests.items()}


# ---- readouts ----


def _layer(
    task: LinearProbe, train: Array, tests: dict[str, Array], mixed: bool = False, control: bool = False
) -> dict[str, Any]:
    """Return what a score's file holds on one layer, or on all layers together if they are `mixed`."""
    held = _held(task)
    balanced = task.metric == "matthews"  # this metric gives rare labels the weight of frequent ones
    read = read_out(train, _targets(task, task.train), held, list(tests.values()), task.kind == "pairs", balanced)
    values = {
        part: scores.points(task, task.tests[part], guess) for part, guess in zip(tests, read.predicted, strict=True)
    }
    results = {"values": values, **_choice(read)}
    first = next(iter(tests))
    if task.kind == "pairs":
        results["paradigms"] = scores.by_paradigm(task, task.tests[first], read.predicted[0])
    if mixed and task.metric == "accuracy" and task.kind != "words":
        results["items"] = _items(task, task.tests[first], read.predicted[0])
    if mixed and control and task.kind == "words":
        results["control"] = _control(task, train, tests[first], held, values[first]["accuracy"])
    return results


def _items(task: LinearProbe, rows: Examples | Tagged, predicted: Array) -> dict[str, str]:
    """Return the fact on each test row: whether it was predicted rightly, or of pairs the share of a win."""
    import numpy as np

    right = predicted if task.kind == "pairs" else predicted == np.asarray(rows.targets)
    return items_of([float(value) for value in right])


def _choice(read: Readout) -> dict[str, Any]:
    """Return which penalty was chosen, and by which losses."""
    return {"strength": read.strength, "held_out_losses": list(read.losses), "converged": read.converged}


def _held(task: LinearProbe) -> Array:
    """Return a mask (N,) of the training rows that choose the penalty."""
    import numpy as np

    marks = problem.held(task)
    if isinstance(task.train, Tagged):
        return np.repeat(marks, [len(words) for words in task.train.words])
    return np.array(marks)


def _targets(task: LinearProbe, rows: Examples | Tagged) -> Array:
    """Return the label numbers (N,); differences of sentences get 0 and 1 in turn.

    `Regression` negates the differences with 0, so the numbers change nothing, and both labels occur.
    """
    import numpy as np

    if task.kind == "pairs":
        return np.arange(len(rows)) % 2
    if isinstance(rows, Tagged):
        return np.array([target for targets in rows.targets for target in targets])
    return np.array(rows.targets)


def _control(task: LinearProbe, train: Array, test: Array, held: Array, accuracy: float) -> dict[str, Any]:
    """Return the accuracy on a control task, and the selectivity, which is the accuracy on tags minus it.

    In the control task (Hewitt and Liang 2019) a word has the same tag wherever it stands. A hash of the word draws
    it from the tags of the training rows, so that a readout can only learn it word by word.
    """
    tags = _targets(task, task.train)
    drawn = [_drawn(task, rows, tags) for rows in (task.train, next(iter(task.tests.values())))]
    read = read_out(train, drawn[0], held, [test])
    reached = 100 * float((read.predicted[0] == drawn[1]).mean())
    return {"accuracy": reached, "selectivity": accuracy - reached, **_choice(read)}


def _drawn(task: LinearProbe, rows: Examples | Tagged, tags: Array) -> Array:
    """Return the control task's tag numbers (N,) of the words in `rows`."""
    import numpy as np

    assert isinstance(rows, Tagged)
    words = [word for words in rows.words for word in words]
    of_word = {word: tags[seed_of(0, "linear", "control", task.name, word) % len(tags)] for word in set(words)}
    return np.array([of_word[word] for word in words])
