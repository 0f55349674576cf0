"""Words and epochs in reports, next to runs of older versions, which did not count them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from made import recorded, spec_of, trained

from workbench.report.load import frames
from workbench.report.page import experiment_facts
from workbench.store.run_store import RunStore


def test_records_of_older_versions_name_the_text_alone(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    spec = spec_of("rtd", 0, {"steps": 60})
    trained(store, spec)
    found = frames.read(store, recorded(store, [spec]))
    told = dict(experiment_facts.facts(found, []))
    assert told["Text"] == "docs" and "Words seen by a run" not in told


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"a": {}, "b": {"encoder.layers": 2, "encoder.hidden": 64}},
            "The encoder here has 2 layers of 64. The score",
        ),
        ({"a": {}}, "The encoder, the score"),
    ],
)
def test_what_sets_the_numbers_apart_names_a_size_only_where_a_run_tells_it(
    settings: dict[str, dict[str, int]], said: str
) -> None:
    """Pages of runs without settings used to say "None layers of None"."""
    note = experiment_facts.scale_note(SimpleNamespace(settings=settings))  # type: ignore[arg-type]
    assert note.startswith(said) and "None" not in note
