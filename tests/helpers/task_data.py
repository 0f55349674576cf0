"""Small data for each kind of task, and the word under --tasks that selects it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks import table
from workbench.tasks.common.examples import Task

TEMPLATE = Path(__file__).parents[2] / "workbench/templates/task.py"
OWN = TEMPLATE.read_text().replace("NAME_", "odd-one-out").replace("NAME", "Odd one out")
SPEC = TasksSpec(length=32, batch=8, epochs=0.1, seeds=2)


def jsonl(path: Path, *rows: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def word(number: int) -> str:
    return " ".join(("bada", "kefe", "lofe", "nida", "tuba")[(number // 5**place) % 5] for place in range(3))


def write_data(tmp_path: Path) -> dict[str, str]:
    """Write data of each kind that needs no corpus into the working folder; return the word under --tasks of each."""
    labelled = [{"text": word(n), "label": "ab"[n % 2], "split": "train" if n < 40 else "test"} for n in range(60)]
    jsonl(tmp_path / "own.jsonl", *labelled)
    for part, start in (("train", 0), ("dev", 30)):
        rows = "".join(f"{n}\t{n % 2}\t\t{word(n)}\n" for n in range(start, start + 30))
        (tmp_path / "glue/CoLA").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"glue/CoLA/{part}.tsv").write_text(rows)
    for part in ("train", "val"):
        jsonl(tmp_path / f"sg/RTE/{part}.jsonl", *(
            {"premise": word(n), "hypothesis": word(n + 7), "label": ("entailment", "not_entailment")[n % 2]}
            for n in range(30)
        ))  # fmt: skip
    for part in ("train", "valid"):
        jsonl(tmp_path / f"lm/rte.{part}.jsonl", *(
            {"sentence1": word(n), "sentence2": word(n + 3), "label": n % 2} for n in range(30)
        ))  # fmt: skip
    for part in ("train", "test"):
        lines = "".join(f"bada A\nkefe {'AB'[n % 2]}\n\n" for n in range(20))
        (tmp_path / f"tags.{part}.iob2").write_text(lines)
    questions = [
        {"id": f"q{n}", "question": "kefe", "answers": [{"text": "bada", "answer_start": 0}]} for n in range(4)
    ]
    articles = [
        {"title": f"t{n}", "paragraphs": [{"context": f"bada {word(n)}", "qas": [
            {**each, "id": f"{each['id']}-{n}"} for each in questions
        ]}]} for n in range(12)
    ]  # fmt: skip
    (tmp_path / "squad").mkdir()
    (tmp_path / "squad/dev-v1.1.json").write_text(json.dumps({"version": "1.1", "data": articles}))
    jsonl(tmp_path / "pairs/one.jsonl", *(
        {"sentence_good": word(n), "sentence_bad": word(n + 9)} for n in range(20)
    ))  # fmt: skip
    jsonl(tmp_path / "similar.jsonl", *(
        {"sentence1": word(n), "sentence2": word(n + 5), "similarity": n % 4} for n in range(20)
    ))  # fmt: skip
    jsonl(tmp_path / "exam.jsonl", *(
        {"premise": word(n), "choices": [word(n + 2), word(n + 4), "keni"][: 2 + n % 2], "label": n % 2,
         "split": "train" if n < 20 else "test"}
        for n in range(30)
    ))  # fmt: skip
    (tmp_path / "own_task.py").write_text(OWN)
    return {
        "choice": "choice:exam.jsonl",
        "glue": "CoLA", "superglue": "superglue:rte", "babylm_glue": "babylm:rte", "table": "own.jsonl",
        "tagging": "tag:tags.train.iob2", "squad": "squad1-devsplit", "linear_probe": "linear:own.jsonl",
        "embeddings": "similarity:similar.jsonl", "minimal_pairs": "./pairs", "stranger": "./own_task.py",
    }  # fmt: skip


def options(*names: str, **more: Any) -> TasksSpec:
    places = {"glue": "glue", "superglue": "sg", "babylm": "lm", "squad": "squad"}
    return SPEC.model_copy(update={"names": tuple(names), **places, **more})


ENCODED = (
    "glue", "superglue", "babylm_glue", "table", "tagging", "squad", "linear_probe", "embeddings", "stranger",
)  # fmt: skip


def read(path: Path, **spec: Any) -> Task:
    return table.read(path, TasksSpec(names=str(path), **spec))


def refused(path: Path) -> str:
    """Return the message with which a table is refused: one line that names its file."""
    with pytest.raises(InputError) as caught:
        table.read(path, TasksSpec())
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    return str(caught.value)


def labelled(path: Path, count: int) -> Path:
    """Write a table with two training rows and one test row for each label."""
    lines = [f"text {n} of {part},L{n},{part}" for n in range(count) for part in ("train", "train", "dev")]
    path.write_text("\n".join(["text,label,split", *lines]))
    return path
