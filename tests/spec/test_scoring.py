"""A mean of scores is called GLUE only when it is GLUE."""

from __future__ import annotations

import itertools

import pytest

from workbench.spec.scoring import GLUE, PROBES, counted, mean_score, score_label


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
