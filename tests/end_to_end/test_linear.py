"""`workbench run` with linear probes as its only measures: scores, report, and nothing to do the second time."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from .conftest import SETS, Command

SENTENCES = ["the cat sees a dog", "one bird finds the garden", "my horse leaves this fish"]
TAGS = {
    "the": "DET",
    "a": "DET",
    "one": "NUM",
    "my": "DET",
    "this": "DET",
    "sees": "VERB",
    "finds": "VERB",
    "leaves": "VERB",
}


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagged")
    for part, turns in (("train", 8), ("test", 3)):
        rows = []
        for number in range(turns * len(SENTENCES)):
            words = SENTENCES[number % len(SENTENCES)].split()
            words = words[number % 4 :] + words[: number % 4]
            lines = [f"{n}\t{w}\t_\t{TAGS.get(w, 'NOUN')}" + "\t_" * 6 for n, w in enumerate(words, 1)]
            rows.append("\n".join(lines) + "\n")
        (folder / f"en_toy-ud-{part}.conllu").write_text("\n".join(rows), encoding="utf-8")
    return folder


def test_linear_probes_from_run_to_report(
    workbench: Command, text: Path, table: Path, tagged: Path, tmp_path: Path
) -> None:
    words = ["run", "ablation", "--objective", "bert-mlm", "--corpus", text, "--tasks", f"linear:{table},{tagged}"]
    words += ["--budget", "steps=5", "--seeds", 2, *SETS, "--set", "tasks.control=true", "--json"]
    done = workbench(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    scores = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/scores/*.json")]
    assert len(scores) == 2 * 2 * 2  # one for each task, run and its untrained encoder, however many tasks.seeds
    assert {(score["task"], score["suite"], score["seed"]) for score in scores} == {
        ("linear:animals", "linear", 0), ("linear:en_toy-ud-pos", "linear", 0),
    }  # fmt: skip
    for score in scores:
        assert list(score["layers"]) == ["0", "1", "2", "mixed"] and set(score["baselines"]) == {
            "majority",
            "bag-of-words",
        }
        assert ("control" in score["layers"]["mixed"]) == (score["task"] == "linear:en_toy-ud-pos")
        assert score["value"] == next(iter(score["layers"]["mixed"]["values"].values()))[score["metric"]]
    report = tmp_path / json.loads(done.stdout)["report"]
    with open(report.parent / "tasks.csv", encoding="utf-8") as file:
        rows = [(row["task"], row["arm"]) for row in csv.DictReader(file)]
    assert ("linear:en_toy-ud-pos", "bert-mlm") in rows and ("linear:animals", "untrained") in rows
    assert (
        "linear:en_toy-ud-pos" in report.read_text() and "bag-of-words" in (report.parent / "baselines.csv").read_text()
    )
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/scores/*.json")}
    assert workbench(*words, cwd=tmp_path).returncode == 0
    assert times == {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/scores/*.json")}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("1\tthe\n", "line 1: 2 columns, and CoNLL-U has 10"),
        ("\n" * 9, "holds no tagged sentences"),
        ("1\tthe\t_\tDET" + "\t_" * 6 + "\n", "too few sentences to train and to test on"),
    ],
)
def test_a_file_that_is_no_tagged_text_is_refused(
    content: str, told: str, workbench: Command, text: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.conllu").write_text(content, encoding="utf-8")
    done = workbench("run", "ablation", "--corpus", text, "--tasks", tmp_path / "bad.conllu", *SETS, cwd=tmp_path)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.glob("runs/*/metrics.jsonl"))
