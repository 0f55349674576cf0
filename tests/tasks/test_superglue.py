"""Choices, answers judged one by one, and marked spans: what is read, learned and measured, and what is refused."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.linear_model
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st
from superglue_made import COPA, MULTIRC, WORDS, WSC, both, choices, load, put

from workbench import tasks
from workbench.errors import InputError
from workbench.spec import scoring
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks import babylm_glue, superglue
from workbench.tasks.common import baselines
from workbench.tasks.common import classification as finetuner
from workbench.tasks.common.classification import SpanPairClassifier, choice_loss
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.encoder_folders import load_encoder
from workbench.tasks.common.examples import Examples, Task
from workbench.tasks.common.metrics import choice_accuracy, judged
from workbench.tasks.common.token_rows import encode, nearest, open_splitter, parts_of
from workbench.tasks.superglue import ABSENT, MOVED, spans_of

SPEC = TasksSpec(lr=5e-3, layer_decay=0.9, batch=16, epochs=8.0, length=32, dropout=0.0, seeds=1)
CPU = Host(device="cpu", threads=1)


def test_the_official_layout_is_read(tmp_path: Path) -> None:
    both(both(both(tmp_path, "COPA", COPA), "MultiRC", MULTIRC), "WSC", WSC)
    rows = [{"question": "is it", "passage": "yes", "idx": i, "label": i > 2} for i in range(6)]
    put(tmp_path / "BoolQ/train.jsonl.xz", rows)
    put(tmp_path / "BoolQ/val.jsonl", [{"question": "is it not", "passage": "no", "idx": 0, "label": False}])
    boolq, copa, multirc, wsc = load("superglue", tmp_path)
    assert boolq.train.targets == [0, 0, 0, 1, 1, 1] and boolq.labels == ("false", "true")
    asked = "The man broke his toe. What was the cause of this?", "It rained. What happened as a result?"
    assert copa.train.first == [text for text in asked for _ in range(2)]
    assert copa.train.second == [row[name] for row in COPA for name in ("choice1", "choice2")]
    assert (copa.train.targets, copa.train.groups, copa.kind) == ([0, 1, 1, 0], [0, 0, 1, 1], "choice")
    assert multirc.train.second == ["Who? Ann", "Who? Bob", "What? a cat"] and multirc.train.groups == [0, 0, 1]
    assert (multirc.kind, multirc.metric, multirc.train.targets) == ("classification", "f1a_em", [1, 0, 1])
    assert wsc.train.spans == [((0, 4), (21, 23)), ((0, 3), (13, 16))] and wsc.train.targets == [1, 0]
    assert "superglue" not in scoring.label_of_tasks([copa.name]).removeprefix("superglue:copa")
    found = tasks.load(TasksSpec(names=("superglue",), superglue=str(tmp_path)))
    lacking = {
        name.lower(): f"no {name}/train.jsonl or {name}/val.jsonl in {tmp_path}" for name in ("CB", "RTE", "WiC")
    }
    assert found.missing == {f"superglue:{name}": why for name, why in lacking.items()}


WIC = [
    {"word": "place", "sentence1": "Do you want to come over to my place later?", "sentence2": "Laws had no place.",
     "idx": 0, "label": False, "start1": 31, "start2": 12, "end1": 36, "end2": 17, "version": 1.1},
    {"word": "bank", "sentence1": "Banks lend.", "sentence2": "My bank.", "idx": 1, "label": True,
     "start1": 0, "start2": 3, "end1": 5, "end2": 7, "version": 1.1},
]  # fmt: skip


def test_wic_marks_a_word_in_each_sentence(tmp_path: Path, encoder: Path) -> None:
    (wic,) = load("superglue:wic", both(tmp_path, "WiC", WIC * 4))
    assert wic.train.spans is not None
    marked = [
        [text[a:b] for a, b in spans] for text, spans in zip(wic.train.first[:2], wic.train.spans[:2], strict=True)
    ]
    assert marked == [["place", "place"], ["Banks", "bank"]] and wic.train.targets[:2] == [0, 1]
    assert take(wic, Model(encoder, SPEC.model_copy(update={"epochs": 1.0}), 0), CPU).task == "superglue:wic"


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (
            {"end1": 99},
            r"val\.jsonl, line 1: start1 and end1 are 31 and 99, where sentence1, of 43 characters, has no word",
        ),
        ({"start2": 17}, "start2 and end2 are 17 and 17"),
        ({"start1": 6, "end1": 7}, "has no word"),
        ({"start1": None}, "start1 is None, and must be the number of a character"),
        ({"start1": True}, "start1 is True"),
    ],
)
def test_a_word_that_is_not_in_its_sentence_is_refused(fault: dict[str, object], told: str, tmp_path: Path) -> None:
    both(tmp_path, "WiC", WIC)
    put(tmp_path / "WiC/val.jsonl", [WIC[0] | fault])
    with pytest.raises(InputError, match=told):
        load("superglue:wic", tmp_path)


def test_every_name_is_listed() -> None:
    rows = {row["name"]: row for row in tasks.known()}
    assert {f"superglue:{name}" for name in superglue.TASKS} | {"choice:FILE", "spans:FILE"} <= set(rows)
    assert rows["superglue:multirc"]["metric"] == "f1a_em" and rows["superglue:copa"]["suite"] == "superglue"


def test_what_is_missing_or_misspelt_is_said(tmp_path: Path) -> None:
    for names, folder, told in (
        ("superglue", None, r"--set tasks\.superglue=DIR"),
        ("superglue:copa", tmp_path, r"superglue:copa is not available: no COPA/train\.jsonl or COPA/val\.jsonl"),
        ("superglue", tmp_path, "no task of superglue was found"),
        ("superglue:cop", tmp_path, "did you mean 'copa'"),
        ("choice:nowhere.csv", None, "nowhere.csv is not a file"),
    ):
        with pytest.raises(InputError, match=told):
            load(names, folder)


def test_metrics_of_questions_agree_with_a_plain_loop() -> None:
    random = np.random.default_rng(0)
    groups = np.sort(random.integers(0, 40, 200))
    true, guess = random.integers(0, 2, 200), random.integers(0, 2, 200)
    each = [all(true[i] == guess[i] for i in np.flatnonzero(groups == g)) for g in sorted(set(groups.tolist()))]
    found = judged("classification", ["exact_match", "f1a_em"], np.eye(2)[guess], true, groups.tolist())
    assert found["exact_match"] == pytest.approx(np.mean(each), abs=0)
    assert found["f1a_em"] == (sklearn.metrics.f1_score(true, guess) + np.mean(each)) / 2


def test_answers_with_equal_scores_share_the_credit() -> None:
    scores = np.array([1.0, 2.0, 0.5, 0.5, 3.0, 3.0, 3.0])
    true, groups = np.array([0, 1, 1, 0, 0, 0, 1]), [0, 0, 1, 1, 2, 2, 2]
    assert choice_accuracy(scores, true, groups) == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)


def test_the_loss_is_the_cross_entropy_over_the_answers_of_each_question() -> None:
    outputs, sizes = torch.randn(9, 1), [2, 4, 3]
    targets = torch.tensor([0, 1, 0, 0, 1, 0, 1, 0, 0])
    parts = outputs[:, 0].split(sizes)
    each = [torch.nn.functional.cross_entropy(part, torch.tensor(t)) for part, t in zip(parts, (1, 2, 0), strict=True)]
    assert torch.allclose(choice_loss(outputs, targets, sizes, total=False), torch.stack(each).mean())
    assert torch.allclose(choice_loss(outputs, targets, sizes, total=True), torch.stack(each).sum())


def task_of_choices(train: int = 150) -> Task:
    return Task("choice:toy", "table", ("wrong", "right"), "accuracy", ("accuracy",), 8.0, choices(train, 1),
                {"dev": choices(60, 2)}, choice=True)  # fmt: skip


def test_bag_of_words_of_choices_is_a_conditional_logit() -> None:
    """Of two answers it is logistic regression, without a constant, on the difference of their features."""
    rows = [row for row in choices(300, 3).questions() if len(row) == 2]
    train = choices(300, 3).take([row for pair in rows for row in pair])
    task = Task("x", "table", ("wrong", "right"), "accuracy", ("accuracy",), 1.0, train, {"dev": train}, choice=True)
    known = baselines.vocabulary(train, 1000)
    inputs = baselines.matrix(train, known)
    starts = [pair[0] for pair in task.units(train)]
    ours = baselines._fit(inputs, task.array(train)[:, None].astype(float), "choice", starts)
    first = np.asarray(train.targets)[starts]
    differences = (inputs[starts] - inputs[[s + 1 for s in starts]])[:, 1:]
    oracle = sklearn.linear_model.LogisticRegression(C=baselines.STRENGTH, fit_intercept=False, tol=1e-8, max_iter=3000)
    oracle.fit(differences, first)
    assert np.abs(differences @ ours[1:, 0] - oracle.decision_function(differences)).max() < 0.05
    assert baselines.bag_of_words(task) > 95


def test_baselines_are_honest() -> None:
    made = Examples(["x"] * 6, list("abcdef"), [0, 1, 0, 1, 1, 0], [0, 0, 1, 1, 2, 2])
    task = Task("x", "table", ("wrong", "right"), "accuracy", ("accuracy",), 1.0, made, {"dev": made}, choice=True)
    assert baselines.majority(task) == pytest.approx(200 / 3)
    of_answers = replace(task, choice=False, metric="f1a_em", metrics=("f1a_em",), suite="superglue")
    found = of_answers.baselines()
    assert list(found) == ["majority", "all-right", "bag-of-words"]
    assert found["all-right"] == pytest.approx(100 * (2 / 3 + 0) / 2)


def test_choices_are_learned_and_counted_by_question(encoder: Path) -> None:
    task = task_of_choices()
    score = take(task, Model(encoder, SPEC, 0), CPU)
    assert score.value > 90 and (score.train_rows, score.test_rows) == (150, 60)
    assert score.steps == 8 * 10  # batches of 16 questions


def test_a_batch_holds_whole_questions(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two and three answers are mixed: each part of the targets has one right answer, and each question comes once."""
    seen: list[int] = []

    def spy(outputs: torch.Tensor, targets: torch.Tensor, sizes: list[int], total: bool) -> torch.Tensor:
        assert outputs.shape == (len(targets), 1)
        assert [int(part.sum()) for part in targets.split(sizes)] == [1] * len(sizes)
        seen.extend(sizes)
        return choice_loss(outputs, targets, sizes, total)

    monkeypatch.setattr(finetuner, "choice_loss", spy)
    take(task_of_choices(50), Model(encoder, SPEC.model_copy(update={"epochs": 1.0}), 0), CPU)
    assert sorted(seen) == [2] * 25 + [3] * 25


def test_spans_are_learned_where_the_text_alone_says_nothing(encoder: Path, tmp_path: Path) -> None:
    """The texts are drawn alike for both labels: with which letters does the first marked word begin?"""
    random = np.random.default_rng(5)
    rows = []
    for part, count in (("train", 300), ("test", 80)):
        for _ in range(count):
            words = random.choice(WORDS, 8)
            one, two = random.choice(8, 2, replace=False).tolist()
            words[one] = ("ba", "ke")[len(rows) % 2] + words[one][2:]
            rows.append({
                "text": " ".join(words), "span1_text": words[one], "span1_index": one, "span2_text": words[two],
                "span2_index": two, "label": words[one][:2], "split": part,
            })  # fmt: skip
    (task,) = load(f"spans:{put(tmp_path / 'begins.jsonl', rows)}")
    assert task.name == "spans:begins" and task.labels == ("ba", "ke") and task.train.spans is not None
    assert take(task, Model(encoder, SPEC, 0), CPU).value > 90
    unmarked = replace(
        task, train=replace(task.train, spans=None), tests={"test": replace(task.tests["test"], spans=None)}
    )
    assert take(unmarked, Model(encoder, SPEC, 0), CPU).value < 75


# ---- Rows of SuperGLUE's files ----


@pytest.mark.parametrize(
    ("folder", "row", "told"),
    [
        ("COPA", COPA[0] | {"label": 2}, "line 2: label 2 is not one of 0, 1"),
        ("COPA", {"premise": "a", "choice1": "b", "question": "cause", "label": 0}, "column 'choice2' holds no text"),
        ("WSC", WSC[0] | {"target": {**WSC[0]["target"], "span1_index": 99}}, "span1_index is 99, and the text"),
        ("WSC", WSC[0] | {"target": {**WSC[0]["target"], "span2_text": " "}}, "line 2: span2_text is empty"),
        ("WSC", WSC[0] | {"target": {**WSC[0]["target"], "span2_index": "x"}}, "line 2: span2_index is 'x'"),
        ("MultiRC", {"idx": 1, "passage": {"text": "a"}}, "line 2: 'passage' does not hold a text"),
        ("MultiRC", {"passage": {"text": "a", "questions": [{"question": "b", "answers": []}]}}, "line 2, question 0:"),
        ("MultiRC", {"passage": {"text": "a", "questions": [{"question": "b", "answers": [{"text": "c"}]}]}}, "None"),
        ("CB", {"premise": "a", "hypothesis": "b", "label": "maybe"}, "label 'maybe' is not one of"),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_used_is_refused_with_its_place(
    folder: str, row: dict[str, Any], told: str, tmp_path: Path
) -> None:
    pair = {"premise": "a", "hypothesis": "b", "label": "neutral"}
    good = {"COPA": COPA[0], "WSC": WSC[0], "MultiRC": MULTIRC[0], "CB": pair}[folder]
    both(tmp_path, folder, [good, row])
    with pytest.raises(InputError) as caught:
        load(f"superglue:{folder.lower()}", tmp_path)
    assert told in str(caught.value) and str(tmp_path / folder / "train.jsonl") in str(caught.value)


def test_what_is_odd_is_counted_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train = [*COPA, COPA[1] | {"choice2": COPA[1]["choice1"], "premise": "  "}]
    both(tmp_path, "COPA", train, [COPA[0]])
    both(tmp_path, "WSC", [*WSC, WSC[0] | {"idx": 7, "target": {**WSC[0]["target"], "span1_index": 3}}], [WSC[0]])
    copa, wsc = load("superglue:copa,superglue:wsc", tmp_path)
    file = tmp_path / "COPA" / "train.jsonl"
    assert copa.notes == (
        f"1 row of the 3 of train has an empty premise: {file}, line 3",
        f"1 row of the 3 of train has two equal choices: {file}, line 3",
        f"1 row of the 3 of train has an id that an earlier row has: {file}, line 3",
        f"1 row of the 1 of val has the same texts as a row to train on, so the score is partly one of memory: "
        f"{tmp_path / 'COPA' / 'val.jsonl'}, line 1",
    )
    assert [note for note in wsc.notes if MOVED in note and "line 3" in note]
    assert len(copa.train) == 6  # nothing is left out
    assert "an empty premise" in caplog.text


# ---- The head that sees two spans ----


def test_the_span_head_sees_its_spans_alone(encoder: Path) -> None:
    model = SpanPairClassifier(load_encoder(encoder, 0.0), 2, 0.0).eval()
    hidden, spans = torch.randn(2, 7, 32), torch.tensor([[[1, 3], [4, 5]], [[0, 1], [2, 7]]])
    pooled = model.pooled(hidden, spans)
    for row, place, (start, end) in ((0, 0, (1, 3)), (0, 1, (4, 5)), (1, 1, (2, 7))):
        weights = torch.softmax(model.attention(hidden[row, start:end])[:, 0], 0)
        assert torch.allclose(pooled[row, place], weights @ hidden[row, start:end], atol=1e-6)
    other = hidden.clone()
    other[0, [0, 3, 5, 6]] = 99.0
    assert torch.equal(model.pooled(other, spans)[0], pooled[0])


# ---- Where the spans of a row are in its text ----


@pytest.mark.parametrize(
    ("text", "words", "index", "marked", "fault"),
    [
        ("Joe Joe's uncle saw him, Joe.", "him", 4, "him", None),
        ("Joe Joe's uncle saw him, Joe.", "Joe", 5, "Joe", None),
        ("the Old man, the old Man", "the old man", 3, "the old Man", None),
        ("the Old man, the old Man", "the old man", 1, "the Old man", MOVED),
        ("a theatre and the end", "the", 0, "the", MOVED),
        ("a red car", "blue sky", 1, "red car", ABSENT),
        ("he said hehe", "he", None, "he", None),
    ],
)
def test_a_span_is_found_at_its_index_or_named(
    text: str, words: str, index: int | None, marked: str, fault: str | None
) -> None:
    odd: list[str] = []
    columns = {"span1_text": words, "span1_index": index, "span2_text": text.split()[0], "span2_index": 0}
    (start, end), _ = spans_of(columns, text, "x.jsonl, line 1", odd)
    assert text[start:end] == marked and odd == ([fault] if fault else [])
    if marked == "Joe":
        assert start == text.rindex("Joe")


def test_the_real_spans_of_wsc_are_all_found(real_data: Path) -> None:
    path = real_data / "glue_babylm" / "wsc.train.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path}")
    (task,) = load(f"spans:{path}")
    assert (len(task.train), len(task.tests["dev"])) == (554, 52) and task.labels == ("0", "1")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    spans = task.train.spans or []
    texts = [(text[a:b], text[c:d]) for text, ((a, b), (c, d)) in zip(task.train.first, spans, strict=True)]
    same = [one.lower() == row["span1_text"].lower() and two.lower() == row["span2_text"].lower()
            for (one, two), row in zip(texts, rows, strict=True)]  # fmt: skip
    assert sum(same) >= 550, [pair for pair, good in zip(texts, same, strict=True) if not good]


# ---- Rows that keep the pieces of two marked spans ----


@given(count=st.integers(2, 60), starts=st.tuples(st.integers(0, 59), st.integers(0, 59)), width=st.integers(1, 20),
       room=st.integers(4, 60))  # fmt: skip
def test_pieces_of_both_spans_are_always_kept(count: int, starts: tuple[int, int], width: int, room: int) -> None:
    spans = [(start % count, min(count, start % count + width)) for start in starts]
    kept = nearest(count, spans, room).tolist()
    assert kept == sorted(set(kept)) and len(kept) == min(room, count)
    assert all(start in kept for start, _ in spans)
    inside = {piece for start, end in spans for piece in range(start, end)}
    assert inside <= set(kept) or set(kept) <= inside


def test_marked_rows_hold_the_pieces_of_their_spans(encoder: Path) -> None:
    text = "bada, kego lofe mitu (bago) keni"
    spans = ((6, 15), (22, 26))
    assert [text[a:b] for a, b in spans] == ["kego lofe", "bago"]
    assert [text[a:b] for a, b in parts_of(text, spans)] == ["bada,", "kego", "lofe", "mitu", "(", "bago", ")", "keni"]
    rows = Examples([text], None, [0], None, [spans])
    task = Task("x", "table", ("a", "b"), "accuracy", ("accuracy",), 1.0, rows, {"dev": rows})
    data = encode(encoder, task, 64)["train"]
    reader = open_splitter(encoder, 64, "x")
    words = [reader.tokenizer.decode(data.ids[0][start:end]).replace(" ", "") for start, end in data.spans[0].tolist()]
    assert words == ["kegolofe", "bago"]
    inputs, _ = data.batch([0], "cpu")
    assert inputs["spans"].shape == (1, 2, 2) and "token_type_ids" not in inputs


# ---- BabyLM's tasks, from JSON lines of their own ----

MNLI = [{"premise": f"p {i}", "hypothesis": f"h {i}", "label": i % 3, "idx": i} for i in range(6)]


def put_parts(folder: Path, **parts: list[dict[str, Any]]) -> Path:
    for name, rows in parts.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name.replace('__', '.')}.jsonl").write_text(text)
    return folder


def task_of(folder: Path, name: str) -> Task:
    suite = babylm_glue.load([name], TasksSpec(babylm=str(folder)))
    (found,) = suite.tasks
    assert not suite.missing and isinstance(found, Task)
    return found


def test_texts_and_labels_are_those_of_the_files(tmp_path: Path) -> None:
    folder = put_parts(tmp_path, mnli__valid=MNLI[:2])
    rows = "".join(json.dumps(row) + "\n" for row in MNLI)
    (folder / "mnli.train.jsonl.xz").write_bytes(lzma.compress(rows.encode()))
    found = task_of(folder, "babylm:mnli")
    assert found.name == "babylm:mnli" and found.labels == ("0", "1", "2") and found.epochs == 10
    assert found.train.first[1] == "p 1" and found.train.second[4] == "h 4" and found.train.targets == [0, 1, 2] * 2
    assert list(found.tests) == ["valid"] and len(found.tests["valid"]) == 2


def test_templates_are_those_of_the_pipeline(tmp_path: Path) -> None:
    wsc = {"text": "Mark told Pete lies. He lied.", "span1_text": "Mark", "span2_text": "He", "label": 1}
    rc = {"paragraph": "A text.", "question": "Who?", "answer": "Ann {x}", "label": 0}
    folder = put_parts(tmp_path, wsc__train=[wsc], wsc__valid=[wsc], multirc__train=[rc], multirc__valid=[rc])
    found = task_of(folder, "babylm:wsc")
    assert found.train.first == ['Does "He" refer to "Mark" in this passage?'] and found.epochs == 30
    assert found.train.second == ["Mark told Pete lies. He lied."]
    assert task_of(folder, "babylm:multirc").train.first == ["Question: Who? Answer: Ann {x}"]


def test_what_cannot_be_read_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--set tasks\.babylm=DIR"):
        babylm_glue.load(["babylm"], TasksSpec())
    with pytest.raises(
        InputError, match=r"task babylm:rte is not available: no rte\.train\.jsonl or rte\.valid\.jsonl"
    ):
        babylm_glue.load(["babylm:rte"], TasksSpec(babylm=str(tmp_path)))
    with pytest.raises(InputError, match="no boolq"):
        babylm_glue.load(["babylm"], TasksSpec(babylm=str(tmp_path)))
    with pytest.raises(InputError, match="did you mean 'mnli'"):
        tasks.load(TasksSpec(names=("babylm:mnly",), babylm=str(tmp_path)))
    put_parts(tmp_path, mnli__train=MNLI, mnli__valid=[MNLI[0] | {"label": 3}])
    with pytest.raises(InputError, match=r"mnli\.valid\.jsonl, line 1: label 3 is not a number from 0 to 2"):
        babylm_glue.load(["babylm:mnli"], TasksSpec(babylm=str(tmp_path)))
    put_parts(tmp_path, mnli__valid=[{"premise": "p", "label": 1}])
    with pytest.raises(InputError, match="'hypothesis' holds no text"):
        babylm_glue.load(["babylm:mnli"], TasksSpec(babylm=str(tmp_path)))


def test_its_scores_are_never_called_glue() -> None:
    assert scoring.score_label("babylm", ["babylm:mnli"]) == "babylm:mnli"
    assert "GLUE" not in scoring.score_label("babylm", [f"babylm:{name}" for name in babylm_glue.ROWS])


def test_the_real_sample_has_the_rows_that_babylm_expects(real_data: Path) -> None:
    folder = real_data / "glue_babylm"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    suite = babylm_glue.load(["babylm"], TasksSpec(babylm=str(folder)))
    assert "boolq.train.jsonl" in suite.missing["babylm:boolq"]  # it has no training rows there
    sizes = {task.name: (len(task.train), len(task.tests["valid"])) for task in suite if isinstance(task, Task)}
    assert sizes == {"babylm:mnli": (10_000, 4908), "babylm:wsc": (554, 52)}
