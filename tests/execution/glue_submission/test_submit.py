"""The zip of a submission, and places where none can be written."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import InputError
from workbench.execution.glue_submission import submit
from workbench.execution.glue_submission.card import Card, Dev, Entry
from workbench.execution.glue_submission.choice import SeedChoice


def test_equal_predictions_make_an_equal_zip_in_the_order_of_the_server() -> None:
    files = {"RTE.tsv": ["entailment", "not_entailment"], "CoLA.tsv": ["1", "0", "1"]}
    content = submit._zip(files)
    assert content == submit._zip(dict(reversed(files.items())))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.namelist() == [part.file for part in submit.PARTS.values() if part.file in files]
        for name, words in files.items():
            lines = archive.read(name).decode().splitlines()
            assert lines[0] == "index\tprediction"
            assert lines[1:] == [f"{number}\t{word}" for number, word in enumerate(words)]
        assert {info.date_time for info in archive.infolist()} == {submit.DATED}


def test_the_card_stands_beside_the_zip_and_no_other_file_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "glue.zip"
    cards = submit._outputs(out)
    assert cards == (tmp_path / "glue.json", tmp_path / "glue.md")
    for path in (out, *cards):
        path.write_text("an earlier one")
    assert submit._outputs(out) == cards
    cards[1].unlink()
    cards[1].symlink_to(out)
    with pytest.raises(InputError, match=r"glue.md exists and is not a regular file; name another"):
        submit._outputs(out)
    cards[1].unlink()
    os.mkfifo(cards[1])
    with pytest.raises(InputError, match=r"glue.md exists and is not a regular file"):
        submit._outputs(out)
    with pytest.raises(InputError, match=r"a submission is a zip file; name it as in --out glue\.zip"):
        submit._outputs(tmp_path / "glue.tar")


def test_a_folder_that_is_missing_is_named_by_the_option_of_this_command() -> None:
    class Run:
        def scores(self) -> dict[str, Any]:
            return {"s": {"task": "CoLA", "value": 1.0, "values": {"dev": {}}, "digest": "d", "seed": 0}}

    planned = submit._plan(Run(), "someone/other", SeedChoice(), False)  # type: ignore[arg-type]
    assert "give a folder with --glue=DIR" in planned.missing["CoLA.tsv"]


def test_the_table_has_the_mean_of_the_seeds_on_dev() -> None:
    files = [
        Entry("RTE.tsv", "RTE", "r", 3000, "mean", "best", "accuracy", (Dev(2, 60.0, 60.0), Dev(1, 61.02, 61.0))),
        Entry("WNLI.tsv", "WNLI", "r", 146, "majority"),
    ]
    one, two = submit.table_rows(Card("z", "", "r", "", "", files, {}, "", ""))
    assert (one["seeds"], one["dev"], one["metric"]) == ("2,1", 60.51, "accuracy")
    assert (two["seeds"], two["dev"], two["metric"]) == (None, None, None)
