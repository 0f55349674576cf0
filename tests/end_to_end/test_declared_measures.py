"""A measure that is first named when scores of its runs are known is exploratory, as the record says with the times."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from workbench.store.atomic import read_object

from .conftest import SETS, Command

RUN = ["run", "ablation", "--objective", "bert-mlm", "--objective", "rtd", "--seeds", "2", "--budget", "steps=4", *SETS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    """A text, and two folders of minimal pairs: each is a measure."""
    place = tmp_path_factory.mktemp("declared")
    (place / "text.txt").write_bytes(text.read_bytes())
    for name, wrong in (("one", "the the"), ("two", "dog the")):
        (place / name).mkdir()
        rows = [{"sentence_good": f"the cat sees {n} dogs.", "sentence_bad": f"{wrong} cat {n}."} for n in range(8)]
        (place / name / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


def carried_out(
    workbench: Command, folder: Path, tasks: str, *more: str
) -> tuple[dict[str, Any], Path, dict[str, Any]]:
    """The record and the folder of the report of a command, and its outcome as JSON."""
    done = workbench(*RUN, "--corpus", "text.txt", "--tasks", tasks, "--json", *more, cwd=folder)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    runs = Path(outcome["store"])
    return read_object(runs / "experiments" / f"{outcome['record']}.json"), Path(outcome["report"]).parent, outcome


def seen(record: dict[str, Any]) -> dict[str, int]:
    return {row["name"]: row["seen"] for row in record["measures"]}


def test_a_measure_named_after_scores_were_known_is_exploratory(workbench: Command, folder: Path) -> None:
    first, report, outcome = carried_out(workbench, folder, "one")
    assert seen(first) == {"one": 0} and first["measures"][0]["declared"] <= first["first_score"]
    with (folder / report / "pairs.csv").open(newline="") as lines:
        (pair,) = csv.DictReader(lines)
    assert pair["verdict"] != "exploratory" and pair["items"] == ("8" if pair["low"] else "")
    assert outcome["verdict"]["kind"] != "exploratory" and outcome["verdict"] | {"at": ""} == first["verdict"] | {
        "at": ""
    }

    again, _, _ = carried_out(workbench, folder, "one")
    assert again["measures"] == first["measures"] and again["first_score"] == first["first_score"]

    later, report, outcome = carried_out(workbench, folder, "two,one")
    assert seen(later) == {"one": 0, "two": 2} and later["first_score"] == first["first_score"]
    with (folder / report / "pairs.csv").open(newline="") as lines:
        assert [(row["verdict"], row["declared"]) for row in csv.DictReader(lines)] == [("exploratory", "no")]
    page = (folder / report / "index.html").read_text()
    assert "are exploratory, and nothing is claimed by them: two (" in page and first["first_score"][:16] in page
    assert outcome["verdict"]["kind"] == "exploratory"
    assert outcome["verdict"]["sentence"].startswith("Exploratory: by minimal pairs, named after scores were known, ")

    scorer, _, _ = carried_out(workbench, folder, "one", "--set", "tasks.scorers=generator-pll,default")
    assert seen(scorer) == {"one": 2}, "another scorer is another measure"

    lines = workbench("status", cwd=folder).stdout.splitlines()
    told = {line.split(",")[0].split()[1]: line for line in lines if line.startswith("verdict ")}
    assert set(told) == {first["name"], later["name"], scorer["name"]}
    assert outcome["verdict"]["sentence"] in told[later["name"]] and "RTD is rtd" in told[later["name"]]


def test_measures_named_together_before_any_score_are_declared(workbench: Command, folder: Path) -> None:
    record, report, outcome = carried_out(workbench, folder, "one,two", "--runs", "others")
    assert seen(record) == {"one": 0, "two": 0} and outcome["verdict"]["kind"] != "exploratory"
    assert "exploratory" not in (folder / report / "pairs.csv").read_text()
