"""The rows that objectives of pairs of segments train on: which pairs they hold, and the names of runs with them."""

from __future__ import annotations

import pytest
from objective_oracle import tiny

from workbench import objectives
from workbench.errors import InputError


def test_an_objective_decides_which_pairs_its_rows_hold() -> None:
    assert (tiny("bert").data.pairs, tiny("albert").data.pairs) == ("next", "order")
    assert tiny("rtd").data.pairs is None
    assert tiny("rtd", {"data.pairs": "order"}).data.pairs == "order"
    with pytest.raises(InputError, match=r"data.pairs=order: bert needs data.pairs=next; leave it out"):
        tiny("bert", {"data.pairs": "order"})


@pytest.mark.parametrize(("child", "parent", "pairs"), [
    ("bert", "bert-mlm", ("next", None)), ("bert-mlm", "bert", (None, "next")), ("bert", "bert", ("next", "next")),
])  # fmt: skip
def test_a_parent_has_the_rows_of_its_own_objective(
    child: str, parent: str, pairs: tuple[str | None, str | None]
) -> None:
    start = {"start.take": "encoder", "start.parent": {"objective": parent}}
    spec = tiny(child, start)
    resolved = spec.parent()
    assert resolved is not None and (spec.data.pairs, resolved.data.pairs) == pairs
    again = objectives.with_options(spec)
    assert again == spec and again.name == spec.name


def test_runs_without_pairs_keep_their_names() -> None:
    plain = tiny("bert-mlm")
    assert not {"pairs", "copies"} & plain.identity()["data"].keys()
    others = [tiny("bert-mlm", {"data.pairs": "next"}), tiny("bert-mlm", {"data.copies": 10}), tiny("bert")]
    assert len({spec.name for spec in (plain, *others)}) == 4


def test_baselines_are_shared_with_runs_without_pairs() -> None:
    from workbench.execution.study_runner import untrained
    from workbench.spec.stages import BoundRun

    specs = [tiny("bert-mlm"), tiny("bert"), tiny("bert", {"data.copies": 3})]
    assert len({untrained(BoundRun(spec)).run_id for spec in specs}) == 1
