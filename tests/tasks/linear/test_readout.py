"""The readout against an independent solution of the same problem, and the rows that may choose its penalty."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from workbench.errors import Diverged, InputError
from workbench.tasks import _linear_readout as linear_readout
from workbench.tasks._linear_readout import STRENGTHS, Regression, read_out


def problem(rows: int = 300, features: int = 6, labels: int = 3, seed: int = 0) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(rows, features)).astype(np.float32)
    scores = inputs @ random.normal(size=(features, labels)) + random.gumbel(size=(rows, labels))
    return inputs, scores.argmax(1)


def solved(inputs: Any, targets: Any, strength: float, labels: int) -> Any:
    """Return the weights (features + 1, labels) of the penalised softmax regression, the intercept last."""
    wide = np.hstack([inputs, np.ones((len(inputs), 1))]).astype(np.float64)
    truth = np.eye(labels)[targets]

    def loss(flat: Any) -> tuple[float, Any]:
        weights = flat.reshape(wide.shape[1], labels)
        scores = wide @ weights
        logs = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
        penalised = np.vstack([weights[:-1], np.zeros((1, labels))])
        gradient = strength * wide.T @ (np.exp(logs) - truth) + penalised
        return -strength * (truth * logs).sum() + (penalised**2).sum() / 2, gradient.ravel()

    start = np.zeros(wide.shape[1] * labels)
    found: Any = minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-7, "maxiter": 2000})
    return found.x.reshape(wide.shape[1], labels)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_the_fit_is_that_of_the_problem_written_out(strength: float) -> None:
    inputs, targets = problem()
    model = Regression(pairs=False)
    for each in STRENGTHS[: STRENGTHS.index(strength) + 1]:  # on the path, as `read_out` goes it
        model.fit(inputs, targets, each)
    weights = solved(inputs, targets, strength, 3)
    scores = inputs @ weights[:-1] + weights[-1]
    logs = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    assert np.abs(model.model.predict_proba(inputs) - np.exp(logs)).max() < 5e-3
    assert model.loss(inputs, targets) == pytest.approx(-logs[np.arange(len(targets)), targets].mean(), abs=1e-3)
    assert model.converged


def test_test_rows_choose_nothing() -> None:
    inputs, targets = problem()
    held = np.arange(300) % 5 == 0
    one = read_out(inputs, targets, held, [inputs[:50], inputs[50:]])
    other = read_out(inputs, targets, held, [1e6 * inputs[::-1]])
    assert (one.strength, one.losses) == (other.strength, other.losses)
    again = read_out(inputs, targets, held, [inputs])
    assert (np.concatenate(one.predicted) == again.predicted[0]).all()


def test_the_strength_is_the_one_of_the_lowest_loss_on_rows_set_aside() -> None:
    inputs, targets = problem(rows=120, features=60, labels=2)
    held = np.arange(120) % 5 == 0
    found = read_out(inputs, targets, held, [inputs])
    assert found.strength == STRENGTHS[int(np.argmin(found.losses))] < STRENGTHS[-1]
    noise = np.where(held, 1 - targets, targets)  # turned round where the choice is made: no fit at all is best
    assert read_out(inputs, noise, held, [inputs]).strength == STRENGTHS[0]


def test_scales_of_features_change_nothing() -> None:
    inputs, targets = problem()
    held = np.arange(300) % 5 == 0
    stretched = (inputs * np.array([1, 1e3, 1e-3, 1, 1e4, 1e-2]) + 7).astype(np.float32)
    plain, other = (read_out(each, targets, held, [each]).predicted[0] for each in (inputs, stretched))
    assert (plain == other).mean() > 0.99
    constant = np.hstack([inputs, np.full((300, 1), 1e-20, dtype=np.float32)])
    assert (read_out(constant, targets, held, [constant]).predicted[0] == plain).all()


def test_pairs_are_ordered_by_a_direction_and_equal_ones_are_ties() -> None:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(400, 5)).astype(np.float32)
    inputs[:, 2] += 1.0  # right less wrong
    targets, held = np.arange(400) % 2, np.arange(400) % 7 == 0
    test = np.stack([np.array([0, 0, 3, 0, 0]), np.zeros(5), np.array([0, 0, -3, 0, 0])]).astype(np.float32)
    assert read_out(inputs, targets, held, [test], pairs=True).predicted[0].tolist() == [1.0, 0.5, 0.0]
    flipped = read_out(inputs, 1 - targets, held, [inputs], pairs=True).predicted[0]
    assert (flipped == read_out(inputs, targets, held, [inputs], pairs=True).predicted[0]).mean() > 0.99


def test_labels_that_only_the_rows_set_aside_have_cost_but_do_not_stop_it() -> None:
    inputs, targets = problem()
    held = np.arange(300) % 5 == 0
    targets = np.where(np.arange(300) == 5, 3, targets)
    found = read_out(inputs, targets, held, [inputs])
    assert max(found.losses) < 10 and np.isfinite(found.losses).all()


def test_balanced_rows_find_the_rare_label() -> None:
    random = np.random.default_rng(0)
    targets = (np.arange(1000) % 20 == 0).astype(int)
    inputs = (random.normal(size=(1000, 3)) + targets[:, None]).astype(np.float32)
    held = np.arange(1000) // 20 % 5 == 0
    plain, balanced = (read_out(inputs, targets, held, [inputs], balanced=b).predicted[0] for b in (False, True))
    assert plain[targets == 1].mean() < 0.4 and balanced[targets == 1].mean() > 0.6
    repeated = np.repeat(np.arange(1000), np.where(targets == 1, 19, 1))
    same = read_out(inputs[repeated], targets[repeated], held[repeated], [inputs]).predicted[0]
    assert (same == balanced).mean() > 0.97


def test_too_few_rows_are_an_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, targets = problem(rows=6)
    for held in (np.zeros(6, dtype=bool), np.ones(6, dtype=bool), targets != targets[0]):
        with pytest.raises(InputError, match="6 rows to train on are too few or too alike"):
            read_out(inputs, targets, held, [inputs])
    inputs, targets = problem()
    monkeypatch.setattr(linear_readout, "MOST_STEPS", 2)
    assert not read_out(inputs, targets, np.arange(300) % 5 == 0, [inputs]).converged


def test_weights_that_are_not_finite_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, targets = problem()
    regression = Regression(pairs=False)
    monkeypatch.setattr(regression.model, "fit", lambda *_: setattr(regression.model, "coef_", np.array([[np.nan]])))
    with pytest.raises(Diverged, match="weights of a linear readout"):
        regression.fit(inputs, targets, 1.0)
