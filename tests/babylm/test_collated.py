"""The one file of all predictions, and the table of their scores."""

from __future__ import annotations

from babylm_made import whole

from workbench.execution import babylm_export
from workbench.execution.babylm_export import SMALL, of_labels


def test_collated_files_have_every_key_and_fast_scores_in_the_order_of_revisions() -> None:
    labels = of_labels("babylm:wsc", [0, 1] * 26, {"value": 50.0, "values": {"valid": {"accuracy": 50.0}}})
    short = of_labels("babylm:rte", [0], {"value": 50.0, "values": {"valid": {"accuracy": 50.0}}})
    names = tuple(f"chck_{count}M" for count in SMALL)
    content = babylm_export.collated(
        {"main": [whole("supplement_filtered"), labels, short], "chck_2M": [whole("supplement_fast")]}, names
    )
    assert len(content["blimp_supplement"]) == 5 and content["blimp"] is None and content["ewok"] is None
    assert list(content["glue"]) == ["wsc"]  # RTE has too few rows
    assert content["glue"]["wsc"]["predictions"][51] == {"id": "wsc_51", "pred": 1}
    fast = content["fast_eval_results"]["blimp_supplement"]
    assert len(fast) == len(names) == 19 and fast[1] == {f"u{place}": 1 / 50 for place in range(5)}
    assert [each is None for each in fast].count(False) == 1 and content["fast_eval_results"]["reading"] == [None] * 19


def test_means_are_over_tasks_whatever_their_size() -> None:
    f1 = {"value": 80.0, "values": {"valid": {"accuracy": 80.0, "f1": 60.0}}}
    labels = of_labels("babylm:mrpc", [1] * 204, f1)
    rows = babylm_export.rows("r", {"main": [whole("supplement_filtered"), labels, whole("supplement_fast")]}, "mlm")
    assert [row["task"] for row in rows] == ["supplement_filtered", "mrpc", "supplement_fast", "mean of 2 tasks"]
    share = rows[0]["pipeline"]
    assert rows[3]["pipeline"] == (share + 80) / 2 and rows[3]["with_f1"] == (share + 60) / 2
    assert not any(row["missing"] for row in rows)
