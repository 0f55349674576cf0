"""Readout of linear probes: logistic regression with an L2 penalty, whose strength is chosen on training rows.

A fifth of the training rows, chosen by a hash of their content, is set aside. Of five strengths, the one with the
lowest cross-entropy on these rows is taken, and the regression is fitted again on all training rows. Test rows are
only predicted. The problem is convex and the fit starts from zero, so nothing is random.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbench.errors import Diverged, InputError

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # scikit-learn's C: weight of the summed loss against the penalty
MOST_STEPS = 500  # of L-BFGS
TOLERANCE = 1e-4  # largest entry of the mean loss's gradient at the end of the last fit
ROUGH = 1e-3  # the same while the strength is chosen, where it changes the losses by about 0.01 at most
CONSTANT = 1e-6  # a feature whose deviation is at most this share of its largest value is constant up to rounding
LEAST = 1e-12  # probability of a label that no row of the fit has

Array = Any  # a numpy array; numpy is imported late


@dataclass(frozen=True)
class Readout:
    """Predictions (N,) for each test part, the strength that was chosen, and whether the final fit converged.

    `losses` are the cross-entropies on the rows set aside, in the order of STRENGTHS.
    """

    predicted: list[Array]
    strength: float
    losses: tuple[float, ...]
    converged: bool


def read_out(
    train: Array, targets: Array, held: Array, tests: Sequence[Array], pairs: bool = False, balanced: bool = False
) -> Readout:
    """Fit a readout on `train` (N, F) and predict every array in `tests`.

    `held` (N,) marks the rows that choose the strength. If `balanced`, rows are weighted so that all labels count
    alike. With `pairs` the features are differences, right sentence minus wrong one: there is no intercept, and a
    prediction is 1 if the difference is on the right side, 0.5 on the boundary, 0 on the wrong side. Raises
    InputError for too few rows.
    """
    import numpy as np

    if held.all() or not held.any() or len(set(targets[~held].tolist())) < 2:
        raise InputError(
            f"{len(targets):,} rows to train on are too few or too alike for a linear probe, which sets "
            f"a fifth of them aside to choose its penalty"
        )
    scale = _scale(train, pairs)
    scaled = scale(train)
    weights = _balance(targets) if balanced else np.ones(len(targets))
    losses, chosen = [], Regression(pairs, ROUGH)
    for strength in STRENGTHS:  # each fit starts from the one before
        chosen.fit(scaled[~held], targets[~held], strength, weights[~held])
        losses.append(chosen.loss(scaled[held], targets[held], weights[held]))
    strength = STRENGTHS[int(np.argmin(losses))]
    final = Regression(pairs)
    final.fit(scaled, targets, strength, weights)
    return Readout([final.predict(scale(part)) for part in tests], strength, tuple(losses), final.converged)


def _scale(train: Array, pairs: bool) -> Any:
    """Return a function that scales every feature to mean 0 and standard deviation 1 on the training rows.

    The mean of differences is not subtracted, because their zero is where two sentences are the same.
    """
    import numpy as np

    mean = np.zeros(train.shape[1], dtype=np.float64) if pairs else train.mean(0, dtype=np.float64)
    spread = np.sqrt(((train - mean) ** 2).mean(0, dtype=np.float64))
    spread[spread <= CONSTANT * np.abs(train).max(0)] = 1.0
    return lambda rows: ((rows - mean) / spread).astype(np.float32)


def _balance(targets: Array) -> Array:
    """Return weights (N,) with mean 1 under which all labels count alike."""
    import numpy as np

    places, counts = np.unique(targets, return_inverse=True, return_counts=True)[1:]
    weights: Array = len(targets) / (len(counts) * counts[places])
    return weights


class Regression:
    """Logistic regression of scikit-learn; each fit starts from the last one while the labels stay the same."""

    def __init__(self, pairs: bool, tolerance: float = TOLERANCE) -> None:
        from sklearn.linear_model import LogisticRegression

        self.pairs, self.converged = pairs, True
        self.model: Any = LogisticRegression(
            solver="lbfgs", tol=tolerance, max_iter=MOST_STEPS, fit_intercept=not pairs, warm_start=True
        )

    def fit(self, rows: Array, targets: Array, strength: float, weights: Array = None) -> None:
        """Minimise the cross-entropy of labels (N,), each row with its weight, plus the penalty.

        Raises Diverged if the weights are not finite.
        """
        import numpy as np
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
        """Return the differences, negated where the target is 0.

        The loss stays the same, and scikit-learn gets rows of both labels, which it needs.
        """
        import numpy as np

        if not self.pairs:
            return rows
        signs = np.where(targets == 1, 1, -1).astype(rows.dtype)[:, None]
        return rows.multiply(signs).tocsr() if hasattr(rows, "multiply") else rows * signs

    def loss(self, rows: Array, targets: Array, weights: Array = None) -> float:
        """Return the weighted mean cross-entropy of labels (N,)."""
        import numpy as np

        probabilities = self.model.predict_proba(self._signed(rows, targets)).astype(np.float64)
        column = {label: place for place, label in enumerate(self.model.classes_.tolist())}
        likelihoods = [
            row[column[t]] if t in column else 0.0 for row, t in zip(probabilities, targets.tolist(), strict=True)
        ]
        return float(np.average(-np.log(np.maximum(likelihoods, LEAST)), weights=weights))

    def predict(self, rows: Array) -> Array:
        """Return labels (N,), or for pairs 1, 0.5 and 0 as in `read_out`."""
        import numpy as np

        if self.pairs:
            return (np.sign(rows @ self.model.coef_[0].astype(np.float32)) + 1) / 2
        return self.model.predict(rows)
