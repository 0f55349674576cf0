"""Rows of SuperGLUE's files: what is odd is counted, and what cannot be used is refused with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from superglue_made import COPA, MULTIRC, WSC, both, load

from workbench.errors import InputError
from workbench.tasks.superglue import MOVED


@pytest.mark.parametrize(
    ("folder", "row", "told"),
    [
        ("COPA", COPA[0] | {"label": 2}, "line 2: label 2 is not one of 0, 1"),
        ("COPA", {"premise": "a", "choice1": "b", "question": "cause", "label": 0}, "column 'choice2' holds no text"),
        ("WSC", WSC[0] | {"target": {**WSC[0]["target"], "span1_index": 99}}, "span1_index is 99, and the text"),
        ("WSC", WSC[0] | {"target": {**WSC[0]["target"], "span2_text": " "}}, "line 2: span2_text is empty"),
        ("WSC", WSC[0] | {"target": {**WSC[0]["target"], "span2_index": "x"}}, "line 2: span2_index is 'x'"),
        ("MultiRC", {"idx": 1, "passage": {"text": "a"}}, "line 2: 'passage' does not hold a text"),
        ("MultiRC", {"passage": {"text": "a", "questions": [{"question": "b", "answers": []}]}}, "line 2, question 0:"),
        ("MultiRC", {"passage": {"text": "a", "questions": [{"question": "b", "answers": [{"text": "c"}]}]}}, "None"),
        ("CB", {"premise": "a", "hypothesis": "b", "label": "maybe"}, "label 'maybe' is not one of"),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_used_is_refused_with_its_place(
    folder: str, row: dict[str, Any], told: str, tmp_path: Path
) -> None:
    good = {
        "COPA": COPA,
        "WSC": WSC,
        "MultiRC": MULTIRC,
        "CB": [{"premise": "a", "hypothesis": "b", "label": "neutral"}],
    }
    both(tmp_path, folder, [good[folder][0], row])
    with pytest.raises(InputError) as caught:
        load(f"superglue:{folder.lower()}", tmp_path)
    assert told in str(caught.value) and str(tmp_path / folder / "train.jsonl") in str(caught.value)


def test_what_is_odd_is_counted_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train = [*COPA, COPA[1] | {"choice2": COPA[1]["choice1"], "premise": "  "}]
    both(tmp_path, "COPA", train, [COPA[0]])
    both(tmp_path, "WSC", [*WSC, WSC[0] | {"idx": 7, "target": {**WSC[0]["target"], "span1_index": 3}}], [WSC[0]])
    copa, wsc = load("superglue:copa,superglue:wsc", tmp_path)
    file = tmp_path / "COPA" / "train.jsonl"
    assert copa.notes == (
        f"1 row of the 3 of train has an empty premise: {file}, line 3",
        f"1 row of the 3 of train has two equal choices: {file}, line 3",
        f"1 row of the 3 of train has an id that an earlier row has: {file}, line 3",
        f"1 row of the 1 of val has the same texts as a row to train on, so the score is partly one of memory: "
        f"{tmp_path / 'COPA' / 'val.jsonl'}, line 1",
    )
    assert [note for note in wsc.notes if MOVED in note and "line 3" in note]
    assert len(copa.train) == 6  # nothing is left out
    assert "an empty premise" in caplog.text
