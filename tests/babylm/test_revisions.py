"""BabyLM's revisions of a run: those with weights, and those that lack."""

from __future__ import annotations

from pathlib import Path

from babylm_made import keep, run_of

from workbench.execution.babylm_export import missing, revisions, track


def test_revisions_are_points_by_words_and_the_end_where_it_is_one(tmp_path: Path) -> None:
    run = run_of(tmp_path, 3e6)
    keep(run, 3, "1 M words")
    keep(run, 6, "2 M words")
    keep(run, 5, "50 %")  # of another schedule
    found = {revision.name: revision.place for revision in revisions(run)}
    assert found == {"main": "", "chck_1M": "points/00000003/", "chck_2M": "points/00000006/", "chck_3M": ""}
    assert missing(run) == [] and len(track(run)) == 19


def test_revisions_that_a_run_lacks_are_named(tmp_path: Path) -> None:
    run = run_of(tmp_path, 2.4e6)  # ends between two of them
    keep(run, 3, "1 M words")
    assert [revision.name for revision in revisions(run)] == ["main", "chck_1M"] and missing(run) == ["chck_2M"]
    large = run_of(tmp_path, 2.2e8, **{"seed": 5, "batch.size": 1_000_000})
    assert len(track(large)) == 28 and track(large)[-1] == "chck_1000M" and missing(large)[-1] == "chck_200M"
