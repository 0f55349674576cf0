"""Names of SQuAD under --tasks, and the layouts that they are read from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import squad_made
from squad_tasks import facts, load

from workbench import tasks
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks import squad


def test_the_layouts_of_the_paper_code_and_of_the_hub_hold_the_same(tmp_path: Path) -> None:
    for unanswerable, name, folder, configuration in (
        (False, "squad1", "squadv1", "plain_text"), (True, "squad2", "squad", "squad_v2"),
    ):  # fmt: skip
        official = tmp_path / name
        official.mkdir()
        task = load(name, squad_made.write(official, unanswerable))
        assert task.metric == ("best_f1" if unanswerable else "f1")
        paper, hub = tmp_path / f"{name} paper", tmp_path / f"{name} hub"
        (paper / folder).mkdir(parents=True)
        (hub / configuration).mkdir(parents=True)
        for part, split in (("train", "train"), ("dev", "validation")):
            (written,) = official.glob(f"{part}-*")
            (paper / folder / f"{part}.json").write_bytes(written.read_bytes())
            rows = [
                {
                    "id": qa["id"], "title": article["title"], "context": paragraph["context"],
                    "question": qa["question"],
                    "answers": {key: [each[key] for each in qa["answers"]] for key in ("text", "answer_start")},
                }
                for article in json.loads(written.read_text())["data"]
                for paragraph in article["paragraphs"]
                for qa in paragraph["qas"]
            ]  # fmt: skip
            kinds = pa.struct([("text", pa.list_(pa.string())), ("answer_start", pa.list_(pa.int32()))])
            fields = [(key, pa.string()) for key in ("id", "title", "context", "question")]
            table = pa.Table.from_pylist(rows, schema=pa.schema([*fields, ("answers", kinds)]))
            pq.write_table(table, hub / configuration / f"{split}-00000-of-00001.parquet")
        for other in (paper, hub):
            assert facts(load(name, other)) == facts(task)
        assert load(f"{name}-devsplit", paper).fingerprint == load(f"{name}-devsplit", hub).fingerprint


def test_without_a_training_file_the_devsplit_is_named(tmp_path: Path) -> None:
    squad_made.write(tmp_path, train=0)
    with pytest.raises(InputError, match=r"no train-v1\.1\.json in .*; .*--tasks squad1-devsplit$"):
        load("squad1", tmp_path)
    with pytest.raises(InputError, match=r"task squad2-devsplit is not available: no dev-v2\.0\.json"):
        load("squad2-devsplit", tmp_path)
    with pytest.raises(InputError, match="unknown task 'squad3'; did you mean"):
        load("squad3", tmp_path)


def test_without_the_hub_a_sentence_says_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(squad, "fetch", lambda *words: asked.append(words) or "its download failed")
    for name, where in (("squad1", "rajpurkar/squad"), ("squad2-devsplit", "rajpurkar/squad_v2")):
        with pytest.raises(InputError, match=f"^task {name} is not available: its download failed"):
            load(name, None)
        assert asked[-1][0] == where
    assert asked[0][1] == ["**/train-*.parquet", "**/validation-*.parquet"]
    assert asked[1][1] == ["**/validation-*.parquet"]
    assert not tasks.local(TasksSpec(names=("squad1",)))
    assert tasks.local(TasksSpec(names=("squad1",), squad="/"))


def test_a_devsplit_shares_no_article_and_stays_where_it_is(tmp_path: Path) -> None:
    squad_made.write(tmp_path, unanswerable=True, train=0, dev=30)
    task = load("squad2-devsplit", tmp_path)
    (test,) = task.tests.values()
    sides = [{row.article for row in part.rows} for part in (task.train, test)]
    assert not sides[0] & sides[1] and len(sides[0] | sides[1]) == 30 and 3 <= len(sides[1]) <= 14
    assert len(task.train) + len(test) == 30 * 8 and len(facts(task)) == 30 * 8
    squad_made.write(tmp_path, unanswerable=True, train=0, dev=40)
    more = load("squad2-devsplit", tmp_path)
    assert sides[1] <= {row.article for row in more.tests["dev"].rows}
    assert sides[0] <= {row.article for row in more.train.rows}
    squad_made.write(tmp_path, unanswerable=True, train=0, dev=1)
    with pytest.raises(InputError, match="too few articles"):
        load("squad2-devsplit", tmp_path)


def test_every_name_is_listed() -> None:
    rows = {row["name"]: row for row in tasks.known() if row["suite"] == "squad"}
    assert list(rows) == ["squad1", "squad2", "squad1-devsplit", "squad2-devsplit"]
    assert rows["squad1"]["metric"] == "f1" and rows["squad2-devsplit"]["metric"] == "best_f1"


def test_files_of_the_other_version_are_refused(tmp_path: Path) -> None:
    squad_made.write(tmp_path, unanswerable=True)
    for part in ("train", "dev"):
        (tmp_path / f"{part}-v1.1.json").write_bytes((tmp_path / f"{part}-v2.0.json").read_bytes())
    with pytest.raises(InputError, match=r"marked impossible, which occurs in SQuAD 2\.0 alone"):
        load("squad1", tmp_path)
    squad_made.write(tmp_path)
    for part in ("train", "dev"):
        (tmp_path / f"{part}-v2.0.json").write_bytes((tmp_path / f"{part}-v1.1.json").read_bytes())
    with pytest.raises(InputError, match=r"all questions in .* have answers"):
        load("squad2", tmp_path)


def test_a_training_file_without_answers_is_refused(tmp_path: Path) -> None:
    squad_made.write(tmp_path, unanswerable=True)
    whole = json.loads((tmp_path / "train-v2.0.json").read_text())
    for article in whole["data"]:
        for row in (row for paragraph in article["paragraphs"] for row in paragraph["qas"]):
            row |= {"answers": [], "is_impossible": True}
    (tmp_path / "train-v2.0.json").write_text(json.dumps(whole))
    with pytest.raises(InputError, match=r"no question to train on in .* has an answer"):
        load("squad2", tmp_path)
