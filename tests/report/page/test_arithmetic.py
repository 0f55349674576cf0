"""Runs of several kinds of arithmetic in one report: which arms and seeds, and what that means for differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers import made
from workbench.report.load import frames
from workbench.report.page import warnings
from workbench.report.page.warnings import mixture

X, Y = "bf16 / amx / Intel", "fp32 / compiled / AMD"


def runs(kinds: dict[tuple[str, int], str], **changes: Any) -> list[dict[str, Any]]:
    return [
        {"run_id": f"{arm}-s{seed}", "role": "arm", "arm": arm, "seed": seed, "budget": "9 steps", "state": "done",
         "arithmetic": kind} | changes
        for (arm, seed), kind in kinds.items()
    ]  # fmt: skip


def test_one_kind_is_no_warning() -> None:
    same = {("a", 0): X, ("b", 0): X}
    assert mixture(runs(same)).sentences() == [] == mixture([]).sentences()
    others = runs({("c", 0): Y}, state="failed") + runs({("d", 0): Y}, role="untrained")
    others += runs({("e", 0): ""}) + runs({("f", 0): float("nan")})  # type: ignore[dict-item]  # not recorded
    assert mixture(runs(same) + others).sentences() == []


def test_arms_without_a_common_kind_are_named() -> None:
    found = mixture(runs({(arm, seed): kind for arm, kind in (("a", X), ("b", Y), ("c", X)) for seed in range(3)}))
    assert found.disjoint == found.apart == (("a", "b"), ("b", "c")) and not found.switched
    assert found.sentences() == [
        f"The runs were computed by 2 kinds of arithmetic: {X} for a and c (seeds 0 to 2); {Y} for b (seeds 0 to 2). "
        f"No kind is common to both arms of a against b and 1 other pair, so a difference between them cannot be told "
        f"from a difference between the kinds; train the arms of each seed on the same kind."
    ]


@pytest.mark.parametrize(
    ("kinds", "apart", "end"),
    [
        ({("a", 0): X, ("b", 0): X, ("a", 5): Y, ("b", 5): Y}, 0, "differences within seeds do not mix kinds."),
        ({("a", 0): X, ("b", 0): X, ("a", 5): Y, ("b", 5): X}, 1, "train the arms of each seed on the same kind."),
        ({("a", 0): X, ("b", 5): Y}, 0, "differences within seeds do not mix kinds."),  # no seed in common
    ],
)
def test_seeds_that_differ_in_kind_are_told_from_arms_that_do(
    kinds: dict[tuple[str, int], str], apart: int, end: str
) -> None:
    found = mixture(runs(kinds))
    assert len(found.apart) == apart and found.disjoint == ()
    (told,) = found.sentences()
    assert told.startswith("The runs were computed by 2 kinds of arithmetic: ") and told.endswith(end)


def test_a_run_that_was_continued_on_another_kind_is_named_from_its_files(tmp_path: Path) -> None:
    store, name = made.study(tmp_path, lambda *_: 50.0, ("rtd", "bert-mlm"), 2, tasks=("order",), tunings=1)
    before = {"versions": {}, "machine": {"cpu": "Intel(R) Xeon(R)"}, "precision": "bf16", "kernels": "tiles"}
    changed = [
        {"key": "kernels", "from": "tiles", "to": "avx512", "at": "x"},
        {"key": "machine.cpu", "from": "Intel(R) Xeon(R)", "to": "AMD EPYC", "at": "x"},
    ]
    after = {"versions": {}, "machine": {"cpu": "AMD EPYC"}, "precision": "bf16", "kernels": "avx512"}
    for run in map(store.get, store.experiment(name).runs):
        resumed = run.run_id.startswith("rtd") and run.spec().seed == 1
        made.edit(run.path / "env.json", **(after | {"changes": changed} if resumed else before))
        made.relist(run)
    read = frames.read(store, name)
    both = "bf16 / amx / Intel, then bf16 / avx512-bf16 / AMD"
    (row,) = [row for row in read.rows("runs") if row["arithmetic"] == both]
    told = [text for text in warnings.warnings(read, [], {}) if "arithmetic" in text]
    assert row["arm"] == "rtd" and row["seed"] == 1 and len(told) >= 2
    assert f"{both} for rtd (seed 1)" in told[0] and "rtd and bert-mlm" not in told[0]
    assert told[1] == f"1 run was continued on another kind of arithmetic: {row['run_id']} ({both})."
