"""Published numbers: they are beside an experiment only where they can be compared with it."""

from __future__ import annotations

import math

import pytest

from workbench.spec.published import BABYLM, POINTS, SQUAD_F1, beside, finding, points_of


def test_points_are_those_of_the_same_tasks_alone() -> None:
    assert points_of("GLUE", ["CoLA", "RTE"]) == POINTS and points_of("probes", ["order"]) == ()
    assert points_of("SQuAD", ["squad1", "RTE"]) == ()


def test_f1_of_both_versions_is_their_mean_and_needs_both() -> None:
    one, both = points_of("SQuAD", ["squad1"]), points_of("SQuAD", ["squad2", "squad1"])
    assert {point.name for point in one} - {point.name for point in both} == {"BERT-Base"}  # printed for 1.1 alone
    assert {point.name: point.score for point in both}["ELECTRA-1.75M"] == pytest.approx((94.9 + 90.6) / 2)
    assert {point.name: point.score for point in one} == {name: row[0] for name, row in SQUAD_F1.items()}


def test_a_column_is_shown_where_two_of_its_arms_are() -> None:
    found = beside("objective", ["rtd", "bert-mlm", "mine"])
    assert found is not None and (found.scores["rtd"], found.scores["bert-mlm"]) == (85.0, 82.2)
    assert beside("objective", ["rtd", "mine"]) is None and beside("optim.lr", ["rtd", "bert-mlm"]) is None


def test_a_finding_of_training_algorithms_needs_one_of_them() -> None:
    assert "two-stage" in finding("objective", ["rtd", "two-stage rtd"]) and finding("objective", ["rtd"]) == ""
    assert "1/4 to 1/2" in finding("generator.width", ["0.25"])


def test_a_model_costs_the_same_wherever_it_is_named() -> None:
    glue = {point.name: point.flops for point in POINTS}
    assert all(glue[name] == flops for name, (*_, flops) in SQUAD_F1.items() if name in glue)
    rows = [(model.year, model.data, model.name) for model in BABYLM]
    assert len(rows) == len(set(rows)) and all(50 < model.blimp < 100 for model in BABYLM)
    assert all(point.flops > 1e16 or math.isnan(point.flops) for point in POINTS)
