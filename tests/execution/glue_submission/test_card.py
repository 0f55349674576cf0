"""The card of a submission: a page and a document with the origin of every file."""

from __future__ import annotations

import json

from workbench.execution.glue_submission.card import FORMAT, Card, Dev, Entry

WHOLE = Entry(
    "CoLA.tsv", "CoLA", "rtd-1", 1063, "as the mean of 2", "the best on dev", "matthews",
    (Dev(3, 51.237, 51.237), Dev(0, 50.0, 49.991)), "d" * 16, "t" * 16, {"lr": 1e-4}, "0.1",
)  # fmt: skip
MAJORITY = Entry("WNLI.tsv", "WNLI", "rtd-1", 146, "the most frequent label")
CARD = Card("glue.zip", "ab" * 32, "rtd-1", "named", "cd" * 32, [WHOLE, MAJORITY], {}, "0.2", "0123456789abcdef")


def test_the_page_has_a_row_for_each_file() -> None:
    page = CARD.to_markdown()
    assert (
        "| CoLA.tsv | 1,063 | CoLA | 3, 0 | matthews 51.24, 50.00 | 51.24, 49.99 | as the mean of 2; the best on dev |"
        in page
    )
    assert "| WNLI.tsv | 146 | WNLI | - | - | - | the most frequent label |" in page
    assert f"SHA-256 `{'ab' * 32}`" in page and "workbench 0.2, commit 0123456789\n" in page and "partial" not in page


def test_files_that_lack_are_named_with_their_reason() -> None:
    partial = Card(**{**vars(CARD), "missing": {"MRPC.tsv": "no scores on MRPC"}, "commit": ""})
    page = partial.to_markdown()
    assert "This submission is partial" in page and "- MRPC.tsv: no scores on MRPC" in page and "commit" not in page
    assert not partial.to_json()["complete"] and CARD.to_json()["complete"]


def test_the_document_holds_everything_and_survives_json() -> None:
    content = CARD.to_json()
    assert json.loads(json.dumps(content)) == content and content["format"] == FORMAT
    [first, _] = content["entries"]
    assert first["dev"] == [
        {"seed": 3, "recorded": 51.237, "repeated": 51.237},
        {"seed": 0, "recorded": 50.0, "repeated": 49.991},
    ]
    assert first["settings"] == {"lr": 1e-4} and first["data"] == "d" * 16
