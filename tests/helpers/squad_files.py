"""SQuAD files made of toy words, and their tasks: the answer is the only word of a paragraph that begins with `ba`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from workbench import tasks
from workbench.spec.parts import TasksSpec
from workbench.tasks.squad import Squad

OTHERS = [f"{a}{b}" for a in ("ke", "lo", "mi") for b in ("da", "fe", "go", "ni", "tu")]
ANSWERS = [f"ba{b}" for b in ("da", "fe", "go", "ni", "tu")]


def entry(id: str, question: str, answers: list[tuple[str, int]], impossible: bool | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {
        "id": id, "question": question, "answers": [{"text": text, "answer_start": start} for text, start in answers],
    }  # fmt: skip
    return made if impossible is None else made | {"is_impossible": impossible}


def content(
    articles: int, each: int, unanswerable: bool, seed: int = 0, longest: int = 16, prefix: str = "q"
) -> dict[str, Any]:
    """Return a file of `articles` with `each` paragraphs of one question; in 2.0 half of them have no answer."""
    random = np.random.default_rng(seed)
    data = []
    for article in range(articles):
        paragraphs = []
        for number in range(each):
            words = random.choice(OTHERS, size=random.integers(4, longest)).tolist()
            impossible = unanswerable and number % 2 == 1
            place = int(random.integers(len(words) + 1))
            answers = []
            if not impossible:
                words.insert(place, str(random.choice(ANSWERS)))
                start = len(" ".join(["", *words[:place]]).lstrip()) + (place > 0)
                answers = [(words[place], start)]
            qas = [entry(f"{prefix}{article}-{number}", "loda mini", answers, impossible if unanswerable else None)]
            paragraphs.append({"context": " ".join(words), "qas": qas})
        data.append({"title": f"article {prefix}{article}", "paragraphs": paragraphs})
    return {"version": "v2.0" if unanswerable else "1.1", "data": data}


def write(folder: Path, unanswerable: bool = False, train: int = 16, dev: int = 6, longest: int = 16) -> Path:
    """Write a training and a dev file of so many articles of eight questions in the official layout."""
    version = "v2.0" if unanswerable else "v1.1"
    for part, articles in (("train", train), ("dev", dev)):
        if articles:
            made = content(articles, 8, unanswerable, seed=len(part), longest=longest, prefix=part)
            (folder / f"{part}-{version}.json").write_text(json.dumps(made), encoding="utf-8")
    return folder


def load(name: str, folder: Path | str | None, **words: Any) -> Squad:
    where = None if folder is None else str(folder)
    (task,) = tasks.load(TasksSpec(names=(name,), squad=where, **words)).tasks
    assert isinstance(task, Squad)
    return task


def facts(task: Squad) -> list[tuple[str, str, str, tuple[tuple[str, int], ...], bool]]:
    rows = [(part, row) for part in (task.train, *task.tests.values()) for row in part.rows]
    return [(row.id, row.text, part.paragraphs[row.paragraph], row.answers, row.impossible) for part, row in rows]


WORDS: dict[str, Any] = {"lr": 3e-3, "layer_decay": 0.9, "dropout": 0.0, "epochs": 6, "squad_length": 32, "seeds": 1}


def task_of(folder: Path, unanswerable: bool = False, longest: int = 16, **words: Any) -> tuple[Squad, TasksSpec]:
    folder.mkdir(exist_ok=True)
    write(folder, unanswerable, longest=longest)
    name = "squad2" if unanswerable else "squad1"
    words = WORDS | words
    return load(name, folder, **words), TasksSpec(names=(name,), squad=str(folder), **words)
