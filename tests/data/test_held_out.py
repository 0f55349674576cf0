"""Text that pre-training does not see: which parts, the same on every pass, and nothing changed where none is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.data import filters
from workbench.data.prepare import prepare
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec

SHORT = [f"document {n} says word{n % 7} and word{n % 11} again" for n in range(400)]


def spec(path: Path, share: float) -> RunSpec:
    return resolve("nano", {"data.corpus": str(path), "data.held_out": share, "encoder.vocab": 200})


@given(st.lists(st.text(alphabet="ab \n", min_size=1), min_size=1, max_size=20), st.sampled_from([0.1, 0.5]))
def test_every_document_is_whole_on_one_side(documents: list[str], share: float) -> None:
    for document in documents:
        aside: list[str] = []
        kept = filters.without(document, share, aside.append)
        assert (kept, aside) in ((document.strip("\n"), []), ("", [document]))
        assert filters.without(document, share) == kept, "the same on the next pass"
        assert filters.without(document, 0.0) == document


def test_a_corpus_of_one_long_document_has_held_out_parts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "PIECE", 200)
    aside: list[str] = []
    kept = filters.without("\n".join(SHORT), 0.3, aside.append)
    lines = [line for part in aside for line in part.splitlines()]
    assert 60 < len(lines) < 200 and sorted([*kept.splitlines(), *lines]) == sorted(SHORT)


def test_what_is_held_out_is_in_no_shard_and_lies_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(SHORT))
    whole, less = (prepare(spec(path, share), cache=tmp_path / "cache") for share in (0.0, 0.2))
    aside = filters.read(less.folder)
    assert filters.read(whole.folder) == [] and 40 < len(aside) < 130
    assert less.documents + len(aside) == whole.documents == 400 and less.fingerprint != whole.fingerprint
    assert set(aside) < set(SHORT) and aside == [text for text in SHORT if text in set(aside)]
    seal = json.dumps(sorted(p.name for p in less.folder.iterdir()))
    assert filters.NAME in seal


def test_runs_that_hold_nothing_out_keep_their_names() -> None:
    base = resolve("nano")
    assert "held_out" not in base.identity()["data"]
    assert base.changed({"data.held_out": 0.02}).name != base.name
