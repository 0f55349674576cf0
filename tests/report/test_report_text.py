"""Words and epochs in reports, next to runs of older versions, which did not count them."""

from __future__ import annotations

from pathlib import Path

from made import recorded, spec_of, trained

from workbench.report.load import frames
from workbench.report.page import facts
from workbench.store.run_store import RunStore


def test_records_of_older_versions_name_the_text_alone(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    spec = spec_of("rtd", 0, {"steps": 60})
    trained(store, spec)
    found = frames.read(store, recorded(store, [spec]))
    told = dict(facts.facts(found, []))
    assert told["Text"] == "docs" and "Words seen by a run" not in told
