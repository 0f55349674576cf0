"""`workbench run` with tagging as its only measure: scores, predictions beside them, report, and refusals."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from pathlib import Path

import pytest

from workbench.store.run_store import RunStore

from .conftest import SETS, Command

ANIMALS = ("cat", "dog", "bird", "horse", "fish")
SENTENCES = ["the cat sees a dog", "one bird finds the garden", "my horse leaves this fish", "it rains"]


@pytest.fixture
def chunks(tmp_path: Path) -> Path:
    """Return a folder of sentences in BIOES in which animals are spans, the word before each belonging to its span."""
    folder = tmp_path / "chunks"
    folder.mkdir()
    for part, turns in (("train", 12), ("dev", 2), ("test", 4)):
        blocks = []
        for number in range(turns * len(SENTENCES)):
            words = SENTENCES[number % len(SENTENCES)].split()
            words += [f"{part}{number}"] if number % len(SENTENCES) else []  # the first sentence is repeated
            ends = [word in ANIMALS for word in words]
            tags = [
                "E-ANIMAL" if end else "B-ANIMAL" if after else "O"
                for end, after in zip(ends, [*ends[1:], False], strict=True)
            ]
            blocks.append("\n".join(map(" ".join, zip(words, tags, strict=True))))
        (folder / f"{part}.txt").write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return folder


def test_tagging_from_run_to_report(workbench: Command, text: Path, chunks: Path, tmp_path: Path) -> None:
    words = ["run", "ablation", "--objective", "bert-mlm", "--corpus", text, "--tasks", f"tag:{chunks}"]
    words += ["--budget", "steps=5", "--seeds", 1, *SETS, "--set", "tasks.seeds=1", "--set", "tasks.epochs=2", "--json"]
    done = workbench(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    files = sorted(tmp_path.glob("runs/*/scores/*.json"))
    assert len(files) == 2  # of the run and of its untrained encoder
    for path in files:
        score = json.loads(path.read_text())
        assert (score["task"], score["suite"], score["scheme"]) == ("tag:chunks", "tagging", "BIOES")
        assert list(score["types"]) == ["ANIMAL"] and set(score["baselines"]) == {"majority", "word-lookup"}
        assert list(score["files"]) == [f"predictions/{path.stem}.{part}.conll" for part in ("test", "dev")]
        written = (path.parents[1] / f"predictions/{path.stem}.test.conll").read_bytes()
        stated = score["files"][f"predictions/{path.stem}.test.conll"]
        assert stated == {"bytes": len(written), "sha256": hashlib.sha256(written).hexdigest()}
        rows = [line.split() for line in written.decode().splitlines() if line]
        assert len(rows) == score["test_rows"] and {gold for _, gold, _ in rows} == {"B-ANIMAL", "I-ANIMAL", "O"}
        right = sum(gold == guess for _, gold, guess in rows)
        assert 100 * (right / len(rows)) == score["values"]["test"]["accuracy"]
    assert all(run.damage is None and run.state == "done" for run in RunStore(tmp_path / "runs").runs())
    report = tmp_path / json.loads(done.stdout)["report"]
    page = report.read_text()
    assert "tag:chunks: micro F1 of spans as conlleval and seqeval" in page and "in BIOES." in page
    assert "tag:chunks: test.txt, first at line 1: 4 of 16 sentences of test are also training sentences" in page
    with open(report.parent / "baselines.csv", encoding="utf-8") as file:
        assert ("tag:chunks", "word-lookup") in {(row["task"], row["baseline"]) for row in csv.DictReader(file)}
    kept = [*tmp_path.glob("runs/*/scores/*"), *tmp_path.glob("runs/*/predictions/*")]
    times = [path.stat().st_mtime_ns for path in kept]
    assert workbench(*words, cwd=tmp_path).returncode == 0
    assert times == [path.stat().st_mtime_ns for path in kept]

    predictions = files[0].parents[1] / f"predictions/{files[0].stem}.test.conll"
    predictions.write_text(predictions.read_text().replace("O", "o", 1))
    verified = workbench("verify", "runs", cwd=tmp_path)
    assert verified.returncode == 1 and "has changed since it was written" in verified.stdout
    assert f"predictions/{predictions.name}" in verified.stdout


def test_an_encoder_is_evaluated_with_its_predictions(
    workbench: Command, text: Path, chunks: Path, tmp_path: Path
) -> None:
    words = ["run", "ablation", "--objective", "bert-mlm", "--corpus", text, "--tasks", "none", *SETS]
    assert workbench(*words, "--budget", "steps=2", "--seeds", 1, cwd=tmp_path).returncode == 0
    encoder = shutil.copytree(next(tmp_path.glob("runs/bert-mlm-*/encoder")), tmp_path / "model")
    tasks = ["--tasks", f"tag:{chunks}", "--set", "tasks.seeds=1", "--set", "tasks.epochs=1"]
    done = workbench("evaluate", encoder, *tasks, "--runs", "kept", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "sentences of tagged words read in windows of" in done.stderr
    (score,) = [json.loads(path.read_text()) for path in tmp_path.glob("kept/*/scores/*.json")]
    assert score["read_at"] == "first piece of each word" and score["settings"]
    assert {f"predictions/{path.name}" for path in tmp_path.glob("kept/*/predictions/*.conll")} == set(score["files"])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("the O\ncat\n", "train.txt, line 2: one column"),
        ("the O\ncat ANIMAL\n\nB B-X\n", "train.txt, line 2: tag 'ANIMAL' is not O, B-TYPE"),
        ("the O\n\ncat O\n", "every training word has the tag 'O'"),
        ("", "train.txt holds no tagged sentences"),
    ],
)
def test_damaged_files_are_refused(
    content: str, told: str, workbench: Command, text: Path, chunks: Path, tmp_path: Path
) -> None:
    (chunks / "train.txt").write_text(content, encoding="utf-8")
    done = workbench("run", "ablation", "--corpus", text, "--tasks", f"tag:{chunks}", *SETS, cwd=tmp_path)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.glob("runs/*/metrics.jsonl"))
