"""A mean of scores is called GLUE only when it is GLUE, and published numbers are beside what is comparable alone."""

from __future__ import annotations

import itertools

import pytest

from workbench.spec.scoring import (
    BABYLM,
    GLUE,
    POINTS,
    PROBES,
    SQUAD_F1,
    beside,
    counted,
    finding,
    mean_score,
    points_of,
    score_label,
)


def test_the_eight_are_the_papers() -> None:
    assert set(GLUE) == {"CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE"}


def test_only_all_eight_are_glue() -> None:
    assert score_label("glue", reversed(GLUE)) == "GLUE"
    for size in range(1, 8):
        for tasks in itertools.combinations(GLUE, size):
            assert score_label("glue", tasks) != "GLUE"
            assert all(task in score_label("glue", tasks) for task in tasks)


def test_a_stand_in_neither_completes_glue_nor_joins_it() -> None:
    seven = [task for task in GLUE if task != "QNLI"]
    label = score_label("glue", [*seven, "QNLI-devsplit"])
    assert label.startswith("mean of ") and "QNLI-devsplit" in label
    values = {task: 10.0 for task in GLUE} | {"QNLI-devsplit": 1000.0, "WNLI": 1000.0}
    assert mean_score("glue", values) == ("GLUE", 10.0)


def test_wnli_never_counts_unless_it_is_alone() -> None:
    assert mean_score("glue", {"WNLI": 90.0, "RTE": 60.0, "CoLA": 20.0}) == ("mean of CoLA, RTE", 40.0)
    assert mean_score("glue", {"WNLI": 90.0}) == ("WNLI", 90.0)


@pytest.mark.parametrize(
    ("scores", "printed"),
    [
        ((60.6, 93.2, 88.0, 90.0, 91.3, 86.6, 92.3, 70.4), 84.0),
        ((69.3, 96.0, 90.6, 92.1, 92.4, 90.5, 94.5, 86.8), 89.0),
    ],
)
def test_published_rows_come_out(scores: tuple[float, ...], printed: float) -> None:
    """BERT and ELECTRA-400K in the ELECTRA paper's table 2: CoLA, SST, MRPC, STS, QQP, MNLI, QNLI, RTE and Avg."""
    names = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE")
    label, value = mean_score("glue", dict(zip(names, scores, strict=True)))
    assert label == "GLUE" and abs(value - printed) <= 0.051


def test_probes_have_their_own_name() -> None:
    assert score_label("probes", PROBES) == "probe score"
    assert score_label("probes", ["order", "package"]) == "mean of package, order"
    assert "GLUE" not in score_label("table", ["mine"]) and score_label("table", ["mine"]) == "mine"


def test_tasks_stand_in_one_order_and_once() -> None:
    assert counted("glue", ["RTE", "CoLA", "RTE"]) == ("CoLA", "RTE")
    assert counted("table", ["b", "a"]) == ("a", "b")
    with pytest.raises(ValueError, match="no scores"):
        mean_score("glue", {})


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
