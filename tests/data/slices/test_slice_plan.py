"""The plan by which processes share a text is read as it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.data.preprocessing import KINDS, Plan, Slice
from workbench.data.sources import BuiltIn, File, Hub, Remote
from workbench.errors import InputError
from workbench.spec.parts import DataSpec


def test_a_plan_of_every_kind_of_source_is_read_as_it_was_written(tmp_path: Path) -> None:
    several = (
        BuiltIn("docs", "ab", 10), BuiltIn("python-code", "cd", 20),
        File(Path("/texts/a.txt"), 30, (1_700_000_000_000_000_001, 2, 3)),
        File(Path("/texts/b.txt"), 5, (7, 8, 9), (10, 15)), Remote("s3://bucket/c.txt", 20, "etag", 40, (0, 20)),
        Hub("owner/name", None, "0" * 40),
    )  # fmt: skip
    assert {type(source) for source in several} == set(KINDS.values())
    slices = (Slice(several[:2]), Slice(several[2:4]), Slice(several[4:]))
    plan = Plan(tmp_path, "text-1", DataSpec(corpus=("x",), length=16), tmp_path / "tokenizers" / "wp-1", slices)
    plan.write()
    assert Plan.read(plan.path) == plan
    assert [plan.name(0), plan.folder(1).name, plan.lock(12).name] == ["text-1-00000", "text-1-00001", "text-1-00012"]
    assert plan.folder(0).parent != plan.lock(0).parent and plan.path.parent.parent == tmp_path


@pytest.mark.parametrize("content", [None, "", "{}", "[1]", '{"key": "x"}'])
def test_what_is_no_plan_is_refused(content: str | None, tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    path = tmp_path / "plans" / "odd.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=r"odd\.json is no plan of a text's slices, which data prepare writes"):
        Plan.read(path)
