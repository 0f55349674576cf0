"""Which scores of a run count in an experiment, and what is said of the others."""

from __future__ import annotations

from typing import Any

from workbench.report.load.chosen_scores import choose


def score(run: str, value: float, digest: str = "aa", **changes: Any) -> dict[str, Any]:
    settings = {"lr": 1e-4, "length": 128}
    given = {"run_id": run, "task": "order", "suite": "probes", "value": value, "digest": digest, "finetune": settings}
    return given | {"path": f"{run}/scores/order-{digest}-0.json"} | changes


def test_scores_under_the_settings_of_the_experiment_are_chosen_before_those_of_the_most() -> None:
    own = score("a", 60.0)
    others = [score(run, 61.0, "bb", finetune={"lr": 2e-4, "length": 64}) for run in ("a", "b")]
    for tasks, kept in (
        ({"lr": 1e-4}, [own]),
        ({"lr": 2e-4}, others),
        ({"lr": 9.0}, others),
        ({"lr": None, "length": 128}, [own]),
    ):
        notes: list[str] = []
        assert choose([own, *others], tasks, notes) == kept
        (note,) = notes
        left, shown = ("bb", "aa") if kept == [own] else ("aa", "bb")
        assert f"(digest {left}; shown: {shown})" in note
        assert note.startswith("order: 2 scores" if kept == [own] else "order: 1 score ")


def test_scores_of_other_tasks_and_those_that_are_not_numbers_are_left_out() -> None:
    notes: list[str] = []
    rows = [
        score("a", 60.0), score("b", float("nan")), score("a", 1.0, task="CoLA", suite="glue"),
        score("a", 2.0, task="mine", suite="table"),
    ]  # fmt: skip
    assert choose(rows, {"names": ["order"]}, notes) == rows[:1]
    assert notes == ["b/scores/order-aa-0.json: the score is not a number and is left out"]
    assert [s["task"] for s in choose(rows, {"names": ["glue", "data/mine.csv"]}, [])] == ["CoLA", "mine"]
    assert [s["task"] for s in choose(rows, {"names": ["next"]}, [])] == ["order", "CoLA", "mine"]
