"""`workbench run` with a choice, similarity and retrieval as its measures: scores, the report, and refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from .conftest import SETS, Command

ANIMALS = ("cat", "dog", "bird", "horse")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with COPA in the official layout, a table of similar sentences and a collection."""
    for part, count in (("train", 16), ("val", 6)):
        rows = [
            {"premise": f"The {ANIMALS[n % 4]} sleeps.", "choice1": f"It is quiet {part}.", "choice2": "It is loud.",
             "question": "effect", "label": n % 2, "idx": n} for n in range(count)
        ]  # fmt: skip
        write(tmp_path / "superglue/COPA" / f"{part}.jsonl", rows)
    pairs = [f"the {a} sees it,the {b} sees it,{5 * (a == b) + n / 10}" for n, a in enumerate(ANIMALS) for b in ANIMALS]
    (tmp_path / "alike.csv").write_text("sentence1,sentence2,score\n" + "\n".join(pairs) + "\n")
    write(
        tmp_path / "zoo/corpus.jsonl",
        [{"_id": f"d{n}", "text": f"a {name} and more"} for n, name in enumerate(ANIMALS)],
    )
    write(tmp_path / "zoo/queries.jsonl", [{"_id": f"q{n}", "text": f"the {name}"} for n, name in enumerate(ANIMALS)])
    grades = "".join(f"q{n}\td{n}\t1\n" for n in range(len(ANIMALS)))
    (tmp_path / "zoo/qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{grades}q0\tunknown\t1\n")
    return tmp_path


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_from_run_to_report(workbench: Command, text: Path, data: Path) -> None:
    names = "superglue,similarity:alike.csv,retrieval:zoo"
    words = ["run", "ablation", "--objective", "bert-mlm", "--corpus", text, "--tasks", names, "--evaluate-at", "log:1"]
    words += [
        "--set",
        "tasks.superglue=superglue",
        "--budget",
        "steps=6",
        "--seeds",
        1,
        *SETS,
        "--set",
        "tasks.seeds=1",
    ]
    done = workbench(*words, "--set", "tasks.epochs=2", "--json", cwd=data)
    assert done.returncode == 0, done.stderr
    assert "6 rows of the 6 of val" not in done.stderr
    scores = [json.loads(path.read_text()) for path in sorted(data.glob("runs/*/scores/*.json"))]
    final = [score for score in scores if "point" not in score]
    named = {(score["task"], score["suite"], score["metric"]) for score in final}
    assert named == {
        ("superglue:copa", "superglue", "accuracy"),
        ("similarity:alike", "similarity", "spearman"),
        ("retrieval:zoo", "retrieval", "ndcg_10"),
    }
    copa = next(score for score in final if score["suite"] == "superglue")
    assert (copa["train_rows"], copa["test_rows"], set(copa["baselines"])) == (16, 6, {"majority", "bag-of-words"})
    report = data / json.loads(done.stdout)["report"]
    page = report.read_text()
    assert "retrieval:zoo: 1 row about a document that is not in the corpus, and counts as never found: " in page
    with open(report.parent / "baselines.csv", encoding="utf-8") as file:
        rows = {(row["task"], row["baseline"]) for row in csv.DictReader(file)}
    assert {("superglue:copa", "bag-of-words"), ("similarity:alike", "tf-idf"), ("retrieval:zoo", "tf-idf")} <= rows


def test_embeddings_are_fine_tuned_where_a_setting_says_so(workbench: Command, text: Path, data: Path) -> None:
    parts = [
        f"the {a},a {b},{4 * (a == b) + n},{'test' if n > 2 else 'train'}"
        for n, a in enumerate(ANIMALS)
        for b in ANIMALS
    ]
    (data / "alike.csv").write_text("sentence1,sentence2,score,split\n" + "\n".join(parts) + "\n")
    (data / "zoo/qrels").mkdir()
    grades = [f"q{n}\td{n}\t1\n" for n in range(len(ANIMALS))]
    for part, rows in (("train", grades[:3]), ("test", grades[2:])):
        (data / f"zoo/qrels/{part}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    words = ["run", "ablation", "--objective", "bert-mlm", "--corpus", text, "--budget", "steps=6", "--seeds", 1, *SETS]
    words += ["--tasks", "similarity:alike.csv,retrieval:zoo", "--json"]
    done = workbench(*words, "--set", "tasks.embeddings=contrastive", "--set", "tasks.seeds=2", cwd=data)
    assert done.returncode == 0, done.stderr
    scores = [json.loads(path.read_text()) for path in sorted(data.glob("runs/*/scores/*.json"))]
    trained = {score["task"]: score["train_rows"] for score in scores}
    assert len(scores) == 8 and all("point" not in score for score in scores)  # two tasks, two seeds, and untrained
    assert trained["retrieval:zoo"] == 3 and trained["similarity:alike"] == 12
    assert all(f"{part}, frozen" in score["values"] for score in scores for part in score["values"] if "," not in part)
    page = (data / json.loads(done.stdout)["report"]).read_text()
    assert "an encoder that was fine-tuned on 3 pairs with MultipleNegativesRankingLoss" in page
    assert "also trained on" not in page and "have the text of one to train on" not in page
    assert "1 has the text of one to train on, so the score is partly one of memory: q2" in page
    frozen = workbench(*words, cwd=data)  # the same runs, with other scores
    assert frozen.returncode == 0, frozen.stderr
    page = (data / json.loads(frozen.stdout)["report"]).read_text()
    assert "MultipleNegativesRankingLoss" not in page


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (
            "superglue:multirc",
            "task superglue:multirc is not available: no MultiRC/train.jsonl or MultiRC/val.jsonl in superglue",
        ),
        ("retrieval:superglue", "superglue has no corpus.jsonl or corpus.tsv"),
        ("similarity:zoo", "give STS-B, or a table"),
        ("choice:alike.csv", "no column 'premise' or 'question'"),
    ],
)
def test_what_is_not_there_is_refused_in_a_sentence(
    names: str, told: str, workbench: Command, text: Path, data: Path
) -> None:
    sets = ["--set", "tasks.superglue=superglue", *SETS] if names.startswith("superglue:") else SETS
    words = ["run", "ablation", "--corpus", text, "--tasks", names, *sets]
    done = workbench(*words, cwd=data)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr
    assert not (data / "runs").exists() or not list(data.glob("runs/*/metrics.jsonl"))
