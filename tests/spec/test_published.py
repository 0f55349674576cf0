"""Published numbers: they are beside an experiment only where they can be compared with it."""

from __future__ import annotations

import pytest

from workbench.spec.published import BABYLM, POINTS, SQUAD_F1, beside, finding, points_of
from workbench.spec.scoring import GLUE


def test_points_are_those_of_the_same_tasks_alone() -> None:
    assert points_of("GLUE", GLUE) == POINTS and points_of("probes", ["order"]) == ()
    assert points_of("SQuAD", ["squad1", "RTE"]) == points_of("squad1-devsplit", ["squad1-devsplit"]) == ()


def test_the_rows_that_a_reader_looks_up_first_are_correct_and_have_a_source() -> None:
    table = {p.name: (p.score, p.flops) for p in POINTS}
    assert table["ELECTRA-Small"] == (79.9, 1.4e18) and table["BERT-Base"] == (82.2, 6.4e19)
    assert table["ELECTRA-400K"] == (89.0, 7.1e20) and len(table) == len(POINTS) == 17
    assert all("2003.10555" in p.source and 70 < p.score < 90 and 1e16 < p.flops < 1e22 for p in POINTS)


def test_f1_of_both_versions_is_their_mean_and_needs_both() -> None:
    one, two, both = (
        {point.name: (point.score, point.flops) for point in points_of("a label", tasks)}
        for tasks in (["squad1"], ["squad2"], ["squad2", "squad1"])
    )
    assert set(one) - set(both) == {"BERT-Base"} and set(both) == set(two)  # its F1 is printed for 1.1 alone
    assert one["ELECTRA-Base"] == (90.8, 6.4e19) and two["ELECTRA-Base"] == (83.3, 6.4e19)
    assert both["ELECTRA-1.75M"] == (pytest.approx((94.9 + 90.6) / 2), 3.1e21)


def test_a_column_is_shown_where_two_of_its_arms_are() -> None:
    found = beside("objective", ["rtd", "bert-mlm", "mine"])
    assert found is not None and (found.scores["rtd"], found.scores["bert-mlm"]) == (85.0, 82.2)
    assert beside("objective", ["rtd", "mine"]) is None and beside("optim.lr", ["rtd", "bert-mlm"]) is None
    assert beside("tying", ["none", "all"]) is not None


def test_a_finding_of_training_algorithms_needs_one_of_them() -> None:
    assert "two-stage" in finding("objective", ["rtd", "two-stage rtd"]) and finding("objective", ["rtd"]) == ""
    assert "1/4 to 1/2" in finding("generator.width", ["0.25"])


def test_a_model_costs_the_same_wherever_it_is_named() -> None:
    glue = {point.name: point.flops for point in POINTS}
    assert all(glue[name] == flops for name, (*_, flops) in SQUAD_F1.items() if name in glue)
    rows = [(model.year, model.data, model.name) for model in BABYLM]
    assert len(rows) == len(set(rows)) and all(50 < model.blimp < 100 for model in BABYLM)
