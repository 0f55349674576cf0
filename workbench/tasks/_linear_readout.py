"""Measurement of a frozen encoder by a linear probe: a readout of each layer's states, and one of all layers together.

The headline is the readout of all layers' states side by side: it can weight layers freely, and the problem stays
convex. The results of single layers are reported beside it and select nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workbench import cpu
from workbench.cpu import layers
from workbench.errors import Diverged, InputError
from workbench.process import heed
from workbench.rng import seed_of
from workbench.spec.host import Host
from workbench.tasks import linear_probe
from workbench.tasks.common.contract import Model, Scores, items_of
from workbench.tasks.common.encoder_folders import load_frozen, row_length
from workbench.tasks.common.examples import Examples, Tagged
from workbench.tasks.common.token_rows import (
    Pieces,
    Splitter,
    by_length,
    check_ids,
    numbered,
    open_splitter,
    text_pieces,
    windows,
    word_pieces,
)
from workbench.tasks.linear_probe import STRENGTHS, LinearProbe, flattened

MIXED = "mixed"

Array = Any  # a numpy array


def probe(task: LinearProbe, trial: Model, host: Host) -> Scores:
    """Fit the readouts on the states of an encoder and score them; nothing is drawn at random.

    Raises InputError for a folder without an encoder and for too few rows, Diverged for states that are not finite.
    """
    from threadpoolctl import threadpool_limits

    device = host.resolved_device()
    cpu.prepare(host.threads, host.plain, device)
    reader = open_reader(trial.folder, trial.options.length, device)
    train = features(reader, task.train, task.kind)
    tests = {part: features(reader, rows, task.kind) for part, rows in task.tests.items()}
    results: dict[str, dict[str, Any]] = {}
    with threadpool_limits(host.threads):  # of matrix products outside torch
        for step in range(len(train) + 1):  # each layer, 0 being the embeddings, and then all layers side by side
            name = str(step) if step < len(train) else MIXED
            inputs, *test_inputs = (
                np.concatenate(list(part), -1) if name == MIXED else part[step] for part in (train, *tests.values())
            )
            results[name] = _layer(task, inputs, test_inputs, name == MIXED, trial.options.control)
            if trial.progress is not None:
                trial.progress(step + 1, len(train) + 1)
    first, test = next(iter(task.tests.items()))
    values, items = dict(results[MIXED]["values"]), results[MIXED].pop("items", {})
    values |= {f"{first}, layer {name}": each["values"][first] for name, each in results.items() if name != MIXED}
    counts = len(flattened(task.train)), len(flattened(test))
    return Scores(values, counts, {"layers": results, **items})


# ---- features ----


def features(reader: Any, rows: Examples | Tagged, kind: str) -> Array:
    """Return features (layers, N, F) of texts, of words, or of differences between sentences.

    The texts u and v of a pair are read separately; their features are u, v, |u - v| and u * v, as in InferSent
    (Conneau et al. 2017).
    """
    if isinstance(rows, Tagged):
        pieces, firsts, _ = word_pieces(reader.splitter, rows.words)
        return mean_states(reader, pieces, *numbered(pieces, firsts))
    different = dict.fromkeys(rows.texts())  # each is read once
    place = {text: number for number, text in enumerate(different)}
    pieces = text_pieces(reader.splitter, list(place))
    of_texts = mean_states(
        reader, pieces, [np.full(len(ids), number) for number, ids in enumerate(pieces)], len(pieces)
    )
    first, *seconds = (
        of_texts[:, [place[text] for text in texts]] for texts in (rows.first, rows.second) if texts is not None
    )
    if not seconds:
        return first
    second = seconds[0]
    if kind == "pairs":
        return first - second
    return np.concatenate([first, second, np.abs(first - second), first * second], axis=-1)


# ---- readouts ----


def _layer(task: LinearProbe, train: Array, tests: list[Array], mixed: bool, control: bool) -> dict[str, Any]:
    held = np.array(linear_probe.held(task))
    if isinstance(task.train, Tagged):
        held = np.repeat(held, [len(words) for words in task.train.words])
    balanced = task.metric == "matthews"  # this metric gives rare labels the weight of frequent ones
    pairs = task.kind == "pairs"  # `Regression` negates differences with 0, so that their numbers change nothing
    targets = np.arange(len(task.train)) % 2 if pairs else np.array(flattened(task.train))
    guesses, choice = read_out(train, targets, held, tests, pairs, balanced)
    predicted, (first, test) = guesses[0], next(iter(task.tests.items()))
    values = {
        part: linear_probe.points(task, rows, guess)
        for (part, rows), guess in zip(task.tests.items(), guesses, strict=True)
    }
    results = {"values": values, **choice}
    if task.kind == "pairs":
        results["paradigms"] = linear_probe.by_paradigm(task, test, predicted)
    if mixed and task.metric == "accuracy" and task.kind != "words":
        right = predicted if task.kind == "pairs" else predicted == np.asarray(test.targets)
        results["items"] = items_of(right.tolist())
    if mixed and control and task.kind == "words":
        results["control"] = _control(task, train, tests[0], held, values[first]["accuracy"])
    return results


def _control(task: LinearProbe, train: Array, test: Array, held: Array, accuracy: float) -> dict[str, Any]:
    """Return the accuracy on a control task, and the selectivity: the accuracy on tags minus this accuracy.

    In the control task (Hewitt and Liang 2019) a word has the same tag wherever it stands. A hash of the word draws
    it from the tags of the training rows, so that a readout can only learn it word by word.
    """
    (guess,), choice = read_out(train, _drawn(task, task.train), held, [test])
    reached = 100 * float((guess == _drawn(task, next(iter(task.tests.values())))).mean())
    return {"accuracy": reached, "selectivity": accuracy - reached, **choice}


def _drawn(task: LinearProbe, rows: Examples | Tagged) -> Array:
    """Return the control task's tag numbers (N,) of the words in `rows`."""
    assert isinstance(rows, Tagged)
    tags, words = flattened(task.train), [word for sentence in rows.words for word in sentence]
    of_word = {word: tags[seed_of(0, "linear", "control", task.name, word) % len(tags)] for word in set(words)}
    return np.array([of_word[word] for word in words])


# ---- logistic regression ----
# A fifth of the training rows, chosen by a hash of their content, is set aside. Of five strengths, the one with the
# lowest cross-entropy on these rows is taken, and the regression is fitted again on all training rows. Test rows are
# only predicted. The problem is convex and the fit starts from zero, so nothing is random.

MOST_STEPS = 500  # of L-BFGS
TOLERANCE = 1e-4  # largest entry of the mean loss's gradient at the end of the last fit
ROUGH = 1e-3  # the same while the strength is chosen, where it changes the losses by about 0.01 at most
CONSTANT = 1e-6  # a feature whose deviation is at most this share of its largest value is constant up to rounding
LEAST = 1e-12  # probability of a label that no row of the fit has


def read_out(
    train: Array, targets: Array, held: Array, tests: Sequence[Array], pairs: bool = False, balanced: bool = False
) -> tuple[list[Array], dict[str, Any]]:
    """Fit a readout on `train` (N, F); return the predictions (N,) of each array in `tests`, and facts on the fit.

    The facts are the chosen strength, the losses of all strengths on the rows set aside, and whether the fit converged.
    `held` (N,) marks the rows that choose the strength. If `balanced`, rows are weighted so that all labels count
    alike. With `pairs` the features are differences, right sentence minus wrong one: there is no intercept, and a
    prediction is 1 if the difference is on the right side, 0.5 on the boundary, 0 on the wrong side. Raises
    InputError for too few rows.
    """
    if held.all() or not held.any() or len(set(targets[~held].tolist())) < 2:
        raise InputError(
            f"{len(targets):,} rows to train on are too few or too alike for a linear probe, which sets "
            f"a fifth of them aside to choose its penalty"
        )
    scale = _scale(train, pairs)
    scaled, weights = scale(train), np.ones(len(targets))
    if balanced:
        places, counts = np.unique(targets, return_inverse=True, return_counts=True)[1:]
        weights = len(targets) / (len(counts) * counts[places])
    losses, chosen = [], Regression(pairs, ROUGH)
    for strength in STRENGTHS:  # each fit starts from the weights of the previous fit
        chosen.fit(scaled[~held], targets[~held], strength, weights[~held])
        losses.append(chosen.loss(scaled[held], targets[held], weights[held]))
    strength = STRENGTHS[int(np.argmin(losses))]
    final = Regression(pairs)
    final.fit(scaled, targets, strength, weights)
    facts = {"strength": strength, "held_out_losses": losses, "converged": final.converged}
    return [final.predict(scale(part)) for part in tests], facts


def _scale(train: Array, pairs: bool) -> Any:
    """Return a function that scales every feature to mean 0 and standard deviation 1 on the training rows.

    The mean of differences is not subtracted, because their zero is where two sentences are the same.
    """
    mean = np.zeros(train.shape[1], dtype=np.float64) if pairs else train.mean(0, dtype=np.float64)
    spread = np.sqrt(((train - mean) ** 2).mean(0, dtype=np.float64))
    spread[spread <= CONSTANT * np.abs(train).max(0)] = 1.0
    return lambda rows: ((rows - mean) / spread).astype(np.float32)


class Regression:
    """Logistic regression of scikit-learn; each fit starts from the last one while the labels stay the same."""

    def __init__(self, pairs: bool, tolerance: float = TOLERANCE) -> None:
        from sklearn.linear_model import LogisticRegression

        self.pairs, self.converged = pairs, True
        self.model: Any = LogisticRegression(
            solver="lbfgs", tol=tolerance, max_iter=MOST_STEPS, fit_intercept=not pairs, warm_start=True
        )

    def fit(self, rows: Array, targets: Array, strength: float, weights: Array = None) -> None:
        """Minimise the weighted cross-entropy of labels (N,) plus the penalty. Raises Diverged."""
        from sklearn.exceptions import ConvergenceWarning

        self.model.set_params(C=strength)
        # numpy once warned of an invalid value in a matrix product here, which could not be repeated. It matters only
        # if the weights are not finite, which is checked below.
        with warnings.catch_warnings(), np.errstate(invalid="ignore"):
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model.fit(self._signed(rows, targets), targets, weights)
        if not np.isfinite(self.model.coef_).all():
            raise Diverged("the weights of a linear readout are not finite")
        self.converged = int(self.model.n_iter_.max()) < MOST_STEPS

    def _signed(self, rows: Array, targets: Array) -> Array:
        """Negate the rows of pairs with target 0, so that scikit-learn gets both labels; the loss does not change."""
        if not self.pairs:
            return rows
        signs = np.where(targets == 1, 1, -1).astype(rows.dtype)[:, None]
        return rows.multiply(signs).tocsr() if hasattr(rows, "multiply") else rows * signs

    def loss(self, rows: Array, targets: Array, weights: Array = None) -> float:
        """Return the weighted mean cross-entropy of labels (N,)."""
        probabilities = self.model.predict_proba(self._signed(rows, targets)).astype(np.float64)
        column = {label: place for place, label in enumerate(self.model.classes_.tolist())}
        likelihoods = [
            row[column[t]] if t in column else 0.0 for row, t in zip(probabilities, targets.tolist(), strict=True)
        ]
        return float(np.average(-np.log(np.maximum(likelihoods, LEAST)), weights=weights))

    def predict(self, rows: Array) -> Array:
        """Return labels (N,), or for pairs 1, 0.5 and 0 as in `read_out`."""
        if self.pairs:
            return (np.sign(rows @ self.model.coef_[0].astype(np.float32)) + 1) / 2
        return self.model.predict(rows)


# ---- hidden states ----
# Rows of similar length share a batch, everything is float32, and on a CPU an ELECTRA is computed by the kernels of
# training. Texts that are longer than a row are read in windows that overlap by half; the state of a piece (a subword)
# is taken from the window in which it has context on both sides.
# Shapes: R rows, L positions, D width, N states that are returned.


@dataclass(frozen=True)
class Reader:
    """Frozen encoder with its tokenizer."""

    model: Any
    splitter: Splitter
    device: str


def open_reader(folder: Path, length: int, device: str) -> Reader:
    """Load an encoder folder to read rows of at most `length` tokens. Raises InputError."""
    model = load_frozen(folder, device)
    return Reader(model, open_splitter(folder, row_length(folder, model.config, length), "a linear probe"), device)


def mean_states(reader: Reader, rows: Pieces, indices: Pieces, count: int) -> Any:
    """Return the mean over pieces of the states with the same index: float32 (layers, `count`, D).

    `indices` holds the index of each piece, -1 for a piece whose state is not used.
    """
    from scipy.sparse import csr_matrix

    folder, model = reader.splitter.folder, reader.model
    data, places = windows(reader.splitter, rows, indices)
    check_ids(folder, [data], model)
    states_of: Any = None
    weights = 1 / np.bincount(np.concatenate([p[p >= 0] for p in indices]), minlength=count)
    for batch in by_length(data.lengths):
        heed()
        inputs, _ = data.batch(batch, reader.device)
        states = states_of_layers(model, inputs)
        if states_of is None:
            states_of = np.zeros((len(states), count, states[0].shape[-1]), dtype=np.float32)
        width = inputs["input_ids"].shape[1]
        columns = np.concatenate([place * width + places[window][0] for place, window in enumerate(batch)])
        targets, at = np.unique(np.concatenate([places[window][1] for window in batch]), return_inverse=True)
        shape = (len(targets), len(batch) * width)
        mean = csr_matrix((weights[targets][at].astype(np.float32), (at, columns)), shape=shape)
        for layer, state in enumerate(states):
            states_of[layer, targets] += mean @ state.float().flatten(0, 1).cpu().numpy()
    if not np.isfinite(states_of).all():
        raise Diverged(f"{folder}: the encoder's states are not all finite numbers", 0)
    return states_of


def states_of_layers(model: Any, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Return the states (B, L, D) before the first layer and after each layer."""
    ids, attention = inputs["input_ids"], inputs.get("attention_mask")
    with torch.inference_mode():
        if layers.can(model, ids):
            return layers.every_state(model, ids, attention)
        return list(model(input_ids=ids, attention_mask=attention, output_hidden_states=True).hidden_states)
