"""SQuAD's files are read from every layout, and what is wrong with them is named, counted or refused."""

from __future__ import annotations

import gzip
import json
import logging
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import squad_files
from squad_files import facts, load

from workbench import tasks
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks import squad
from workbench.tasks.squad import read_questions


def test_the_official_files_are_read_plain_and_compressed(tmp_path: Path) -> None:
    task = load("squad1", squad_files.write(tmp_path))
    assert (task.name, task.suite, task.metric, task.act) == ("squad1", "squad", "f1", "fine-tuning")
    assert len(task.train) == 16 * 8 and list(task.tests) == ["dev"] and len(task.tests["dev"]) == 6 * 8
    assert all(text[start : start + len(answer)] == answer for _, _, text, ((answer, start),), _ in facts(task))
    assert set(task.baselines()) == {"nearest-overlap"}
    (tmp_path / "train-v1.1.json.xz").write_bytes(lzma.compress((tmp_path / "train-v1.1.json").read_bytes()))
    (tmp_path / "dev-v1.1.json.gz").write_bytes(gzip.compress((tmp_path / "dev-v1.1.json").read_bytes()))
    for name in ("train-v1.1.json", "dev-v1.1.json"):
        (tmp_path / name).unlink()
    packed = load("SQuAD1", tmp_path)
    assert facts(packed) == facts(task) and packed.fingerprint == task.fingerprint


PARAGRAPH = "The cat sat on the mat."


def damaged(folder: Path, change: Callable[[dict[str, Any]], Any], unanswerable: bool = False) -> Path:
    """Write a dev file of two questions of which `change` has damaged the entry of the first, and return its path."""
    first = squad_files.entry("q1", "What sat?", [("cat", 4)], False if unanswerable else None)
    second = squad_files.entry("q2", "On what?", [("the mat", 15)], False if unanswerable else None)
    whole = {"data": [{"title": "Cats", "paragraphs": [{"context": PARAGRAPH, "qas": [first, second]}]}]}
    change({"whole": whole, "paragraph": whole["data"][0]["paragraphs"][0], "first": first, "second": second})
    path = folder / f"dev-{'v2.0' if unanswerable else 'v1.1'}.json"
    path.write_text(json.dumps(whole), encoding="utf-8")
    return path


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no data": (lambda at: at["whole"].pop("data"), r"json: 'data' is missing; SQuAD's files hold"),
    "data is not a list": (lambda at: at["whole"].update(data={}), r"json: 'data' is not a list"),
    "no context": (
        lambda at: at["paragraph"].pop("context"),
        r"data\[0\]\.paragraphs\[0\]: column 'context' holds no text",
    ),
    "empty context": (lambda at: at["paragraph"].update(context=" "), r"paragraphs\[0\]: 'context' is empty"),
    "no id": (lambda at: at["first"].pop("id"), r"qas\[0\]: column 'id' holds no text"),
    "same id": (lambda at: at["second"].update(id="q1"), r"qas\[1\]: id q1 occurs twice, first in .*qas\[0\]"),
    "no question": (lambda at: at["first"].pop("question"), r"question q1: column 'question' holds no text"),
    "question is a number": (lambda at: at["first"].update(question=3), r"question q1: column 'question' holds no"),
    "a paragraph is a list": (
        lambda at: at["whole"]["data"][0]["paragraphs"].append([]),
        r"data\[0\]\.paragraphs\[1\] is list instead of an object",
    ),
    "no answers": (lambda at: at["first"].pop("answers"), r"question q1: 'answers' is missing"),
    "answers are empty": (lambda at: at["first"].update(answers=[]), r"question q1 has no answer and is not marked"),
    "the offset is text": (
        lambda at: at["first"]["answers"][0].update(answer_start="4"),
        r"question q1, answers\[0\]: 'answer_start' is '4', and must be a whole number",
    ),
    "the answer is null": (
        lambda at: at["first"]["answers"][0].update(text=None),
        r"question q1, answers\[0\]: column 'text' holds no text",
    ),
    "half a surrogate pair": (lambda at: at["first"].update(question="\ud800"), "half of a surrogate pair"),
    "half a surrogate pair in a title": (
        lambda at: at["whole"]["data"][0].update(title="Cats \udc00"),
        r"data\[0\]: column 'title' holds half of a surrogate pair",
    ),
    "a NUL": (lambda at: at["paragraph"].update(context="a\0b"), r"paragraphs\[0\]: column 'context' holds a NUL"),
    "impossible in 1.1": (lambda at: at["first"].update(is_impossible=True), "marked impossible, which occurs in SQuA"),
    "impossible is text": (lambda at: at["first"].update(is_impossible="no"), r"'is_impossible' is 'no', and must be"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_cannot_be_used_is_refused_with_its_place(tmp_path: Path, fault: str) -> None:
    change, message = REFUSED[fault]
    path = damaged(tmp_path, change)
    with pytest.raises(InputError, match=message) as error:
        read_questions([path], False, training=False)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_bytes_that_are_no_json_are_refused(tmp_path: Path) -> None:
    path = damaged(tmp_path, lambda at: None)
    whole = path.read_bytes()
    packed = tmp_path / "dev-v1.1.json.xz"
    for content, target, message in (
        (whole[:-20], path, "is not JSON"), (b"", path, "is not JSON"), (b"[" * 100_000, path, "is not JSON"),
        (whole.replace(b"cat", b"\xff\xfe"), path, "is not UTF-8"), (whole + b"\0", path, "NUL at byte"),
        (lzma.compress(whole)[:-9], packed, "is truncated"), (b"no xz" * 9, packed, "is damaged or not xz"),
        (b'"data"', path, "'data' is missing"),
    ):  # fmt: skip
        target.write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_questions([target], False, training=False)


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "shifted": (lambda at: at["first"]["answers"][0].update(answer_start=5), "answers are not at their offset"),
    "beyond": (lambda at: at["first"]["answers"][0].update(answer_start=22), "answers end beyond the text"),
    "before": (lambda at: at["first"]["answers"][0].update(answer_start=-3), "answers begin before the text"),
    "blank": (lambda at: at["first"]["answers"][0].update(text=" ", answer_start=3), "answers have no text"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_misplaced_answers_are_counted_and_not_trained_on(tmp_path: Path, fault: str) -> None:
    change, phrase = FAULTS[fault]
    path = damaged(tmp_path, change)
    tested, faults = read_questions([path], False, training=False)
    place = f"first in {path}: data[0].paragraphs[0].qas[0] (id q1)"
    assert len(tested) == 2 and faults == {f"{phrase}, {place}": 1}
    trained, faults = read_questions([path], False, training=True)
    assert [row.id for row in trained.rows] == ["q2"] and faults == {f"{phrase} (and are not trained on), {place}": 1}


def test_only_the_first_answer_is_trained_on(tmp_path: Path) -> None:
    path = damaged(tmp_path, lambda at: at["first"]["answers"].append({"text": "sat", "answer_start": 4}))
    questions, faults = read_questions([path], False, training=True)
    assert len(questions) == 2 and list(faults.values()) == [1] and "not trained on" not in str(faults)


def test_what_training_tolerates_is_counted(tmp_path: Path) -> None:
    def change(at: dict[str, Any]) -> None:
        at["second"].update(id="q1", question="  ", is_impossible=True)

    path = damaged(tmp_path, change, unanswerable=True)
    questions, faults = read_questions([path], True, training=True)
    assert len(questions) == 2
    assert sorted((phrase.partition(",")[0], count) for phrase, count in faults.items()) == [
        ("ids occur twice", 1), ("questions are empty", 1), ("questions are marked impossible and have answers", 1),
    ]  # fmt: skip


def test_faults_are_said_and_kept_with_the_task(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    squad_files.write(tmp_path)
    path = tmp_path / "train-v1.1.json"
    whole = json.loads(path.read_text())
    for paragraph in whole["data"][2]["paragraphs"][:3]:
        paragraph["qas"][0]["answers"][0]["answer_start"] += 1
    path.write_text(json.dumps(whole))
    with caplog.at_level(logging.WARNING, "workbench"):
        task = load("squad1", tmp_path)
    assert len(task.train) == 125 and list(task.faults.values()) == [3]
    assert (
        "squad1: 3 of 173 questions: answers are not at their offset (and are not trained on), first in " in caplog.text
    )
    dev = json.loads((tmp_path / "dev-v1.1.json").read_text())
    whole["data"] += dev["data"][:1]
    path.write_text(json.dumps(whole))
    assert [
        count for phrase, count in load("squad1", tmp_path).faults.items() if "in the training file too" in phrase
    ] == [8]


def test_real_files_are_read_without_a_fault(real_data: Path) -> None:
    task = load("squad1-devsplit", real_data / "squad")
    assert len(task.train) + len(task.tests["dev"]) == 10_570 and not task.faults
    assert 15 < task.baselines()["nearest-overlap"] < 25
    second = load("squad2-devsplit", real_data / "squad")
    impossible = sum(row.impossible for part in (second.train, *second.tests.values()) for row in part.rows)
    assert impossible == 5945 and len(second.train) + len(second.tests["dev"]) == 11_873
    assert {row.article for row in task.train.rows} & {row.article for row in second.train.rows}
    assert not {row.article for row in task.train.rows} & {row.article for row in second.tests["dev"].rows}


# ---- Names of SQuAD under --tasks, and the layouts that they are read from ----


def test_the_layouts_of_the_paper_code_and_of_the_hub_hold_the_same(tmp_path: Path) -> None:
    for unanswerable, name, folder, configuration in (
        (False, "squad1", "squadv1", "plain_text"), (True, "squad2", "squad", "squad_v2"),
    ):  # fmt: skip
        official = tmp_path / name
        official.mkdir()
        task = load(name, squad_files.write(official, unanswerable))
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
    squad_files.write(tmp_path, train=0)
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
    squad_files.write(tmp_path, unanswerable=True, train=0, dev=30)
    task = load("squad2-devsplit", tmp_path)
    (test,) = task.tests.values()
    sides = [{row.article for row in part.rows} for part in (task.train, test)]
    assert not sides[0] & sides[1] and len(sides[0] | sides[1]) == 30 and 3 <= len(sides[1]) <= 14
    assert len(task.train) + len(test) == 30 * 8 and len(facts(task)) == 30 * 8
    squad_files.write(tmp_path, unanswerable=True, train=0, dev=40)
    more = load("squad2-devsplit", tmp_path)
    assert sides[1] <= {row.article for row in more.tests["dev"].rows}
    assert sides[0] <= {row.article for row in more.train.rows}
    squad_files.write(tmp_path, unanswerable=True, train=0, dev=1)
    with pytest.raises(InputError, match="too few articles"):
        load("squad2-devsplit", tmp_path)


def test_every_name_is_listed() -> None:
    rows = {row["name"]: row for row in tasks.known() if row["suite"] == "squad"}
    assert list(rows) == ["squad1", "squad2", "squad1-devsplit", "squad2-devsplit"]
    assert rows["squad1"]["metric"] == "f1" and rows["squad2-devsplit"]["metric"] == "best_f1"


def test_files_of_the_other_version_are_refused(tmp_path: Path) -> None:
    squad_files.write(tmp_path, unanswerable=True)
    for part in ("train", "dev"):
        (tmp_path / f"{part}-v1.1.json").write_bytes((tmp_path / f"{part}-v2.0.json").read_bytes())
    with pytest.raises(InputError, match=r"marked impossible, which occurs in SQuAD 2\.0 alone"):
        load("squad1", tmp_path)
    squad_files.write(tmp_path)
    for part in ("train", "dev"):
        (tmp_path / f"{part}-v2.0.json").write_bytes((tmp_path / f"{part}-v1.1.json").read_bytes())
    with pytest.raises(InputError, match=r"all questions in .* have answers"):
        load("squad2", tmp_path)


def test_a_training_file_without_answers_is_refused(tmp_path: Path) -> None:
    squad_files.write(tmp_path, unanswerable=True)
    whole = json.loads((tmp_path / "train-v2.0.json").read_text())
    for article in whole["data"]:
        for row in (row for paragraph in article["paragraphs"] for row in paragraph["qas"]):
            row |= {"answers": [], "is_impossible": True}
    (tmp_path / "train-v2.0.json").write_text(json.dumps(whole))
    with pytest.raises(InputError, match=r"no question to train on in .* has an answer"):
        load("squad2", tmp_path)


# ---- Questions as plain data: which rows are taken, and what their names follow ----


def test_fewer_rows_and_a_part_held_out_are_the_same_each_time(tmp_path: Path) -> None:
    squad_files.write(tmp_path)
    whole = load("squad1", tmp_path)
    some = load("squad1", tmp_path, rows=20)
    assert len(some.train) == 20 and facts(some) == facts(load("squad1", tmp_path, rows=20))
    assert {row.id for row in some.train.rows} < {row.id for row in whole.train.rows}
    assert some.fingerprint != whole.fingerprint and len(some.tests["dev"]) == 48
    held = load("squad1", tmp_path, held_out=0.25)
    (test,) = held.tests.values()
    assert list(held.tests) == ["held-out"] and len(test) == 32 and len(held.train) == 96
    assert len(load("squad1", tmp_path, held_out=0.999).train) == 1  # not all are held out
    contexts = [{part.paragraphs[row.paragraph] for row in part.rows} for part in (held.train, test)]
    assert not contexts[0] & contexts[1]
    assert {row.id for row in held.train.rows} | {row.id for row in test.rows} == {row.id for row in whole.train.rows}


def test_settings_and_names_follow_what_changes_a_score(tmp_path: Path) -> None:
    task = load("squad1", squad_files.write(tmp_path))
    usual = task.settings(TasksSpec())
    assert usual["epochs"] == 2 and usual["length"] == 512 and usual["head"] == "joint" and usual["stride"] is None
    for words in ({"squad_head": "independent"}, {"squad_length": 128}, {"squad_stride": 64}, {"lr": 1e-5}):
        assert task.settings(TasksSpec(**words)) != usual
    for words in ({"squad": "x"}, {"seeds": 9}, {"length": 64}, {"glue": "x"}):
        assert task.settings(TasksSpec(**words)) == usual
    with pytest.raises(InputError, match=r"cannot be combined with tasks\.lm_weight=0\.5"):
        load("squad1", tmp_path, lm_weight=0.5)
