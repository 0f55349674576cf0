"""Candidates for answers in windows against slow loops."""

from __future__ import annotations

import hashlib
import json
import random
import string
import tracemalloc
import unicodedata
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import squad_files
import tokenizers
import torch
import transformers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from squad_files import WORDS, load, task_of
from torch.nn import functional
from written_runs import finished

from workbench import tasks
from workbench.data import hugging_face, tokenizer
from workbench.errors import Diverged, InputError
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.store.run_store import RunStore
from workbench.tasks import _squad_answers as squad_answers
from workbench.tasks import _squad_model as squad_model
from workbench.tasks._squad_answers import (
    Candidates,
    answerable_metrics,
    candidates,
    collected,
    nearest_overlap,
    unanswerable_metrics,
    words,
)
from workbench.tasks._squad_model import (
    Limits,
    SpanModel,
    Windows,
    best_spans,
    cuts,
    limits,
    most_context,
    span_loss,
    windows,
)
from workbench.tasks.common.contract import Model, Score, keep, score_name, take
from workbench.tasks.common.encoder_folders import configured, load_encoder
from workbench.tasks.squad import Question, Questions, Squad, read_questions


def made(folder: Path, limit: Limits, questions: Questions, **config: Any) -> Windows:
    usual = {"model_type": "electra"} | config
    return windows(folder, SimpleNamespace(**usual), {"train": questions}, limit)["train"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Questions:
    folder = squad_files.write(tmp_path_factory.mktemp("squad"), unanswerable=True, longest=40)
    return read_questions([folder / "train-v2.0.json"], True, training=True)[0]


@given(st.integers(0, 2**32))
def test_candidates_are_those_of_a_slow_loop(seed: int) -> None:
    """Released code: ends are not before the start, at most 30 tokens, and inside the window, ranked by their sum."""
    random = np.random.default_rng(seed)
    width, first, start, beam = 60, 9, 100, 8
    count = int(random.integers(1, width - first))
    spans: dict[str, Any] = {
        "starts": np.stack([random.permutation(width)[:beam]]), "start_scores": random.normal(size=(1, beam)),
        "ends": np.stack([random.permutation(width)[:beam] for _ in range(beam)])[None],
        "end_scores": random.normal(size=(1, beam, beam)),
    }  # fmt: skip
    inside = (spans["starts"] >= first) & (spans["starts"] < first + count)
    spans["begins"] = inside & (random.random((1, beam)) < 0.7)
    expected = []
    for i in range(beam):
        for j in range(beam):
            one, two = spans["starts"][0, i], spans["ends"][0, i, j]
            if spans["begins"][0, i] and one <= two < min(one + 30, first + count):
                score = spans["start_scores"][0, i] + spans["end_scores"][0, i, j]
                expected.append((score, (one - first + start, two - first + start)))
    expected.sort(key=lambda each: -each[0])
    found = candidates(spans, 0, first, count, start)
    starts, ends, tokens = found
    assert [tuple(span) for span in tokens.tolist()] == [span for _, span in expected]
    assert np.allclose(starts + ends, [score for score, _ in expected])


def test_a_question_has_the_least_null_odds_of_its_windows_and_twenty_different_texts(
    encoder: Path, toy: Questions
) -> None:
    part = made(encoder, Limits(20, 8, 6), toy)
    nothing = (np.zeros(0), np.zeros(0), np.zeros((0, 2), dtype=np.int64))
    nulls = np.random.default_rng(0).normal(size=len(part))
    found: list[Candidates] = [nothing] * len(part)
    last = len(part.paragraphs[part.rows[0, 1]])
    spans = [(first, end) for first in range(min(8, last)) for end in range(first, min(8, last))]
    found[0] = (-np.arange(2.0 * len(spans)), np.zeros(2 * len(spans)), np.array([*spans, *spans]))
    answers = collected(toy, part, found, nulls)
    for number, row in enumerate(toy.rows):
        assert answers.null_odds[row.id] == min(nulls[part.rows[:, 0] == number])
    first, *others = toy.rows
    assert answers.texts == {row.id: "empty" for row in others} | {first.id: answers.best[first.id][0]["text"]}
    texts = [each["text"] for each in answers.best[first.id]]
    offsets, paragraph = part.offsets[part.rows[0, 1]], toy.paragraphs[first.paragraph]
    every = dict.fromkeys(paragraph[offsets[one, 0] : offsets[two, 1]] for one, two in spans)
    assert len(spans) > 20 and texts == list(every)[:20]


# ---- Exact match and F1 ----

PIECES = [
    "the", "The", "THE", "a", "an", "A.", "An,", "theory", "Anna", "cat", "cat's", "dog", "Dog", "x", "1895", "1,895",
    "$", "--", "(1895)", "ß", "É", "e\u0301", "ſ", "İ", "naïve", "–", "“quoted”", "\u00a0", "\t", "\n", "  ", "",
    "the-end", "a1", "_an_", "…", "日本", "\u200b", "ﬁ", "the\u00a0cat",
]  # fmt: skip


def made_answer(draw: random.Random) -> str:
    return draw.choice([" ", "", " ", "  "]).join(draw.choices(PIECES, k=draw.randint(0, 5)))


def oracle_words(text: str) -> list[str]:
    kept = [c for c in text.lower() if c not in string.punctuation]
    tokens: list[str] = []
    current = ""
    for c in [*kept, " "]:
        kind = c == "_" or unicodedata.category(c)[0] in "LN" or c.isalnum()
        if kind == (bool(current) and (current[-1] == "_" or current[-1].isalnum())) or not current:
            current += c
        else:
            tokens.append(current)
            current = c
    tokens.append(current)
    plain = "".join(" " if token in ("a", "an", "the") else token for token in tokens)
    return plain.split()


def oracle_f1(gold: str, guess: str, both_empty: float) -> float:
    left, right = oracle_words(gold), oracle_words(guess)
    if left == [] or right == []:
        return both_empty if left == right else 0.0
    free, same = list(left), 0
    for word in right:
        if word in free:
            free.remove(word)
            same += 1
    if same == 0:
        return 0.0
    precision, recall = 1.0 * same / len(right), 1.0 * same / len(left)
    return (2 * precision * recall) / (precision + recall)


def oracle_1(questions: Questions, guesses: dict[str, str]) -> dict[str, float]:
    em = f1 = 0.0
    for row in questions.rows:
        guess = guesses.get(row.id)
        if guess is not None:
            em += any(oracle_words(text) == oracle_words(guess) for text, _ in row.answers)
            f1 += sorted(oracle_f1(text, guess, 0.0) for text, _ in row.answers)[-1]
    return {"exact": 100.0 * em / len(questions.rows), "f1": 100.0 * f1 / len(questions.rows)}


def oracle_2(questions: Questions, guesses: dict[str, str], odds: dict[str, float], limit: float) -> dict[str, float]:
    result: dict[str, float] = {}
    rows = [row for row in questions.rows if row.id in guesses]
    for kind in ("exact", "f1"):
        raw = {}
        for row in rows:
            golds = [text for text, _ in row.answers if oracle_words(text)] or [""]
            by_gold = [
                oracle_f1(gold, guesses[row.id], 1.0) if kind == "f1"
                else float(oracle_words(gold) == oracle_words(guesses[row.id]))
                for gold in golds
            ]  # fmt: skip
            raw[row.id] = max(by_gold)
        kept = [(row, raw[row.id] if odds[row.id] <= limit else float(not row.answers)) for row in rows]
        for name, chosen in (
            (kind, kept), (f"HasAns_{kind}", [each for each in kept if each[0].answers]),
            (f"NoAns_{kind}", [each for each in kept if not each[0].answers]),
        ):  # fmt: skip
            if chosen:
                result[name] = 100.0 * sum(score for _, score in chosen) / len(chosen)
        # Every threshold is tried: those questions with odds up to it count by their text, the others as unanswered.
        ranked = sorted((id for id in odds if id in raw), key=odds.__getitem__)
        answerable = {row.id for row in questions.rows if row.answers}
        totals = [float(len(questions.rows) - len(answerable))]
        for id in ranked:
            totals.append(totals[-1] + (raw[id] if id in answerable else (-1 if guesses[id] else 0)))
        best = max(range(len(totals)), key=lambda place: (totals[place], -place))
        result[f"best_{kind}"] = 100.0 * totals[best] / len(raw)
        result[f"best_{kind}_threshold"] = odds[ranked[best - 1]] if best else 0.0
    return result


def made_questions(draw: random.Random, count: int, unanswerable: bool) -> Questions:
    rows = []
    for number in range(count):
        impossible = unanswerable and draw.random() < 0.5
        answers = [] if impossible else [(made_answer(draw), 0) for _ in range(draw.randint(1, 4))]
        rows.append(Question(f"q{number}", "?", 0, tuple(answers), impossible, "x"))
    return Questions([""], rows)


def made_guesses(draw: random.Random, questions: Questions) -> dict[str, str]:
    """Return answers of which a tenth are missing, and half repeat a reference, whole or changed."""
    guesses = {}
    for row in questions.rows:
        text = draw.choice(row.answers)[0] if row.answers and draw.random() < 0.5 else made_answer(draw)
        if draw.random() < 0.9:
            guesses[row.id] = draw.choice([text, text.upper(), f"The {text}!", text[1:]])
    return guesses


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.booleans(), st.floats(-3, 3))
def test_answers_are_scored_as_the_official_scripts_score_them(seed: int, unanswerable: bool, limit: float) -> None:
    draw = random.Random(seed)
    questions = made_questions(draw, draw.randint(1, 40), unanswerable)
    guesses = made_guesses(draw, questions)
    if not unanswerable:
        assert answerable_metrics(questions, guesses) == oracle_1(questions, guesses)
    elif guesses:
        odds = {row.id: draw.choice([-1.0, 0.0, 0.5, limit, round(draw.gauss(0, 3), 1)]) for row in questions.rows}
        metrics, thresholds = unanswerable_metrics(questions, guesses, odds, limit)
        assert metrics | {f"{k}_threshold": v for k, v in thresholds.items()} == oracle_2(
            questions, guesses, odds, limit
        )


@settings(max_examples=150)
@given(st.text(max_size=30))
def test_any_text_is_normalised_alike(text: str) -> None:
    assert words(text) == oracle_words(text)


def by_hand(gold: str, guess: str) -> dict[str, float]:
    return answerable_metrics(Questions([""], [Question("q", "?", 0, ((gold, 0),), False, "x")]), {"q": guess})


@pytest.mark.parametrize(
    ("gold", "guess", "exact", "f1"),
    [
        ("The Broncos", "broncos!", 100, 100),
        ("Denver Broncos", "the Broncos", 0, 100 * 2 / 3),
        ("a b b", "b b c", 0, 100 * 4 / 5),  # the article is dropped: "b b" and "b b c"
        ("the", "a", 100, 0),  # 1.1: two empty answers match, and share no word
        ("1,895", "1895", 100, 100),
        ("cat", "", 0, 0),
        ("", "", 100, 0),
    ],
)
def test_values_by_hand(gold: str, guess: str, exact: float, f1: float) -> None:
    assert by_hand(gold, guess) == {"exact": exact, "f1": pytest.approx(f1)}


def test_no_answer_is_given_above_the_threshold_and_best_thresholds_are_found() -> None:
    rows = [
        Question("a", "?", 0, (("cat", 0),), False, "x"), Question("b", "?", 0, (("dog", 0),), False, "x"),
        Question("c", "?", 0, (), True, "x"), Question("d", "?", 0, (), True, "x"),
    ]  # fmt: skip
    questions = Questions([""], rows)
    guesses = {"a": "cat", "b": "dog", "c": "x", "d": "y"}
    odds = {"a": -3.0, "b": 1.0, "c": 2.0, "d": -4.0}
    metrics, thresholds = unanswerable_metrics(questions, guesses, odds, -2.75)
    assert metrics["exact"] == 50 and metrics["HasAns_exact"] == 50 and metrics["NoAns_exact"] == 50
    assert metrics["best_exact"] == 75 and thresholds["best_exact"] == 1.0
    none, at = unanswerable_metrics(questions, dict.fromkeys(guesses, "z"), odds, -9.0)
    assert none["f1"] == none["best_f1"] == 50 and at["best_f1"] == 0.0
    assert unanswerable_metrics(questions, {}, odds, 0.0)[0]["best_f1"] == 0


# ---- Baselines of SQuAD that read no text with an encoder ----


def test_the_nearest_sentence_answers() -> None:
    texts = [f"Filler about nothing at the end. The cats number {n} sleep. They lie." for n in range(12)]
    texts[3] = "Filler about nothing at the end. The Berlin lies at the river Havel. Cats sleep."
    row = Question("q", "At which river lies Berlin?", 3, (("Havel", 0),), False, "x")
    rows = [row, *(Question(f"q{n}", "Why?", n, (("x", 0),), False, "x") for n in range(12) if n != 3)]
    answers, odds = nearest_overlap(Questions(texts, rows))
    assert answers["q"] == "Havel" and -1 <= odds["q"] < 0 and odds["q0"] == 0


def test_the_order_of_a_set_does_not_decide_which_sentence_is_nearest() -> None:
    """Sums of floats depend on their order, which in a set of words depends on how the words are spelled."""

    def nearest(letter: str) -> tuple[dict[str, str], dict[str, float]]:
        draw, words = random.Random(3), [f"{letter}{n}" for n in range(60)]
        texts = ["".join(" ".join(draw.sample(words, 12)) + ". " for _ in range(4)) for _ in range(200)]
        asked = [" ".join(draw.sample(words, 20)) + "?" for _ in range(200)]
        rows = [Question(f"q{n}", text, n, (("x", 0),), False, "x") for n, text in enumerate(asked)]
        answers, odds = nearest_overlap(Questions(texts, rows))
        return {id: answer.replace(letter, "") for id, answer in answers.items()}, odds

    assert nearest("w") == nearest("v") == nearest("x")


def test_baselines_of_2_are_those_of_never_answering_and_of_overlap(tmp_path: Path) -> None:
    task = load("squad2", squad_files.write(tmp_path, unanswerable=True))
    assert task.baselines()["majority"] == 50 <= task.baselines()["nearest-overlap"]


# ---- Fine-tuning on SQuAD ----

CPU = Host(device="cpu", threads=1)


@pytest.fixture(scope="module")
def learned(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, tuple[Squad, TasksSpec, Score]]:
    """SQuAD 1.1 with joint heads, and 2.0 with independent ones, with their scores."""
    made = {}
    for unanswerable, head, epochs in ((False, "joint", 6), (True, "independent", 14)):
        words = {"squad_head": head, "epochs": epochs}
        task, spec = task_of(tmp_path_factory.mktemp("squad"), unanswerable, **words)
        made[unanswerable] = (task, spec, take(task, Model(encoder, spec, 0), CPU))
    return made


def test_it_learns_to_answer(learned: dict[bool, tuple[Squad, TasksSpec, Score]]) -> None:
    task, spec, score = learned[False]
    assert score.value == score.values["dev"]["f1"] > 90 > 2 * score.baselines["nearest-overlap"]
    assert score.metric == "f1" and score.values["dev"]["exact"] > 85
    assert score.steps == round(6 * np.ceil(score.details["windows"]["count"]["train"] / 32))
    assert (score.train_rows, score.test_rows) == (128, 48)
    assert score.finetune == task.settings(spec) and score.data == task.fingerprint


def test_it_learns_what_has_no_answer(learned: dict[bool, tuple[Squad, TasksSpec, Score]]) -> None:
    _, _, score = learned[True]
    assert score.metric == "best_f1" and score.value == score.values["dev"]["best_f1"] > 90
    assert score.baselines["majority"] == 50
    assert set(score.values["dev"]) == {
        f"{part}{kind}" for part in ("", "best_", "HasAns_", "NoAns_") for kind in ("exact", "f1")
    }
    assert set(score.details["thresholds"]) == {"best_exact", "best_f1"}


def test_the_predictions_are_those_that_the_score_is_of(learned: dict[bool, tuple[Squad, TasksSpec, Score]]) -> None:
    for unanswerable, (task, _, score) in learned.items():
        files = {name: json.loads(data) for name, data in score.files.items()}
        test = task.tests["dev"]
        assert set(files) == {".preds.json", ".nbest.json"} | ({".null_odds.json"} if unanswerable else set())
        assert all(set(content) == {row.id for row in test.rows} for content in files.values())
        for row in test.rows:
            nbest = files[".nbest.json"][row.id]
            assert files[".preds.json"][row.id] == nbest[0]["text"] in test.paragraphs[row.paragraph]
            assert len({each["text"] for each in nbest}) == len(nbest) <= 20
            assert sum(each["probability"] for each in nbest) == pytest.approx(1, abs=1e-4)
            sums = [each["start_logit"] + each["end_logit"] for each in nbest]
            assert sums == sorted(sums, reverse=True)
        if unanswerable:
            odds = files[".null_odds.json"]
            metrics, thresholds = unanswerable_metrics(test, files[".preds.json"], odds, -2.75)
            assert metrics == score.values["dev"] and thresholds == score.details["thresholds"]
        else:
            assert answerable_metrics(test, files[".preds.json"]) == score.values["dev"]
        assert "files" not in score.to_json() and score.to_json()["windows"] == score.details["windows"]


def test_a_loss_that_is_not_finite_is_said(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, spec = task_of(tmp_path / "squad", epochs=0.1)
    spans = squad_model.best_spans
    broken = lambda *words: spans(*words) | {"nulls": np.array([np.nan], dtype=np.float32)}  # noqa: E731
    monkeypatch.setattr(squad_answers, "best_spans", broken)
    with pytest.raises(Diverged, match=r"the outputs after fine-tuning on squad1 \(seed 0\) are not finite"):
        take(task, Model(encoder, spec, 0), CPU)


def test_details_count_windows_and_answers_that_fit_in_none(encoder: Path, tmp_path: Path) -> None:
    task, spec = task_of(tmp_path / "squad", longest=40, epochs=0.05)
    task = replace(task, faults={"answers are not at their offset, first in x": 2})
    score = take(task, Model(encoder, spec, 0), CPU)
    assert score.details["faults"] == task.faults
    assert score.details["notes"] == ["2 times: answers are not at their offset, first in x"]
    details = score.details["windows"]
    assert (details["length"], details["query"], details["stride"]) == (32, 8, 16)
    assert details["questions_without_the_answer"] == 0 and details["train_with_the_answer"] >= 128
    assert details["count"]["train"] > 128 and details["most_of_a_question"] > 1


def test_a_run_holds_the_predictions_with_their_hashes(tmp_path: Path, learned: dict[bool, Any]) -> None:
    run = finished(RunStore(tmp_path), 0, tuning=0)
    task, spec, score = learned[True]
    name = score_name(task, spec, 0)
    keep(run, name, score, run.weight_digests())
    stem = name.removesuffix(".json")
    files = {path.name: path.read_bytes() for path in (run.path / "predictions").iterdir()}
    assert files == {f"{stem}{ending}": text.encode() for ending, text in score.files.items()}
    stated = run.scores()[name]["files"]
    assert stated == {
        f"predictions/{file}": {"bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()} for file, d in files.items()
    }
    assert run.damage is None and run.summary(full=True)["state"] == "done"
    path = run.path / "predictions" / f"{stem}.preds.json"
    path.write_bytes(path.read_bytes().replace(b"ba", b"bo", 1))
    assert "predictions" in str(run.summary(full=True)["note"]) and run.summary(full=True)["state"] == "damaged"
    for each in (run.path / "predictions").iterdir():
        each.unlink()
    (run.path / "predictions").rmdir()  # a user may delete them all to save space
    assert run.summary(full=True)["state"] == "done"


@pytest.mark.slow
def test_real_questions_are_answered_from_their_paragraphs(encoder: Path, real_data: Path) -> None:
    spec = TasksSpec(
        **(WORDS | {"names": ("squad1-devsplit",), "squad": str(real_data / "squad"), "rows": 40, "epochs": 1})
    )
    (task,) = tasks.load(spec).tasks
    assert isinstance(task, Squad)
    score = take(task, Model(encoder, spec, 0), CPU)
    texts = json.loads(score.files[".preds.json"])
    test = task.tests["dev"]
    assert all(texts[row.id] in test.paragraphs[row.paragraph] or texts[row.id] == "empty" for row in test.rows)
    assert answerable_metrics(test, texts) == score.values["dev"]


@given(st.integers(0, 200), st.integers(1, 60), st.integers(1, 80))
def test_windows_are_those_of_the_released_code(tokens: int, room: int, stride: int) -> None:
    """A slow loop by its rule: as many tokens as fit, then `stride` further, until the end is reached."""
    expected, start = [], 0
    while start < tokens or not expected:
        length = min(room, tokens - start)
        expected.append((start, length))
        if start + length == tokens:
            break
        start += min(length, stride)
    assert cuts(tokens, room, stride) == expected
    covered = [place for start, count in expected for place in range(start, start + count)]
    assert set(covered) == set(range(tokens))


@given(st.integers(1, 900), st.integers(1, 450), st.integers(1, 128))
@example(318, 300, 128)  # token 214 has less context in the first window, which is longer
def test_the_window_with_the_most_context_is_that_of_the_released_code(tokens: int, room: int, stride: int) -> None:
    made_cuts = cuts(tokens, room, stride)
    for place, owner in enumerate(most_context(made_cuts, tokens)):
        scores = [
            min(place - start, start + count - 1 - place) + 0.01 * count if start <= place < start + count else -9.0
            for start, count in made_cuts
        ]
        assert owner == scores.index(max(scores))


def test_the_windows_of_a_long_paragraph_take_memory_in_proportion_to_its_tokens() -> None:
    tracemalloc.start()
    owners = most_context(cuts(20_000, 48, 16), 20_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(owners) == 20_000 and peak < 5e6  # a table of windows and tokens has 200 MB


def test_short_rows_have_short_limits(encoder: Path) -> None:
    config = configured(hugging_face.check_encoder_folder(encoder))
    assert limits(encoder, config, TasksSpec()) == Limits(48, 12, 24)  # the toy encoder has 48 positions
    assert limits(encoder, config, TasksSpec(squad_length=32, squad_stride=5)) == Limits(32, 8, 5)
    config.max_position_embeddings = 512
    assert limits(encoder, config, TasksSpec()) == Limits(512, 64, 128)
    assert limits(encoder, config, TasksSpec(squad_length=384)) == Limits(384, 64, 128)


def test_rows_are_the_pairs_that_the_tokenizer_makes(encoder: Path, toy: Questions) -> None:
    """A window of the whole paragraph has the ids and segment ids of the tokenizer's own encoding of the pair."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    part = made(encoder, Limits(512, 64, 128), toy)
    assert len(part) == len(toy)
    batch = part.batch([3, 4, 5, 6], "cpu")
    rows = [toy.rows[number] for number in (3, 4, 5, 6)]
    both = tokenizer([row.text for row in rows], [toy.paragraphs[row.paragraph] for row in rows], padding=True)
    for name in ("input_ids", "token_type_ids", "attention_mask"):
        assert batch.inputs[name].tolist() == both[name]
    assert part.lengths[3:7].tolist() == [sum(mask) for mask in both["attention_mask"]]
    for place in range(4):
        inside = [owner == 1 for owner in both.sequence_ids(place)]
        assert batch.allowed[place].tolist() == [True, *inside[1:]]
    assert batch.none.tolist() == [0] * 4


@pytest.mark.parametrize("length", [20, 24, 32])
def test_answers_map_back_exactly_and_windows_without_them_point_at_no_answer(
    encoder: Path, toy: Questions, length: int
) -> None:
    part = made(encoder, Limits(length, 8, 6), toy)
    batch = part.batch(np.arange(len(part)), "cpu")
    assert batch.inputs["input_ids"].shape[1] <= length and len(part) > len(toy)
    seen: dict[int, int] = {}
    for window, (number, paragraph, start, count) in enumerate(part.rows.tolist()):
        row = toy.rows[number]
        text, offsets = toy.paragraphs[row.paragraph], part.offsets[paragraph]
        assert batch.impossible[window] == row.impossible
        first, last = batch.spans[window].tolist()
        if part.spans[window, 0] < 0:
            assert (first, last) == (0, 0)
            if not row.impossible:
                answer = row.answers[0]
                inside = text[offsets[start, 0] : offsets[start + count - 1, 1]]
                assert answer[0] not in inside.split()
            continue
        seen[number] = seen.get(number, 0) + 1
        place = part.first[window]
        tokens = slice(first - place + start, last - place + start + 1)
        assert text[offsets[tokens][0, 0] : offsets[tokens][-1, 1]] == row.answers[0][0]
        assert (
            batch.inputs["input_ids"][window, first : last + 1].tolist() == part.paragraphs[paragraph][tokens].tolist()
        )
        assert batch.allowed[window, first] and batch.allowed[window, last]
    answerable = {number for number, row in enumerate(toy.rows) if not row.impossible}
    assert set(seen) == answerable and max(seen.values()) > 1


def test_every_token_is_owned_by_one_window(encoder: Path, toy: Questions) -> None:
    part = made(encoder, Limits(32, 8, 6), toy)
    begins = part.begins(np.arange(len(part)), 40).numpy()
    owned: dict[int, list[int]] = {number: [] for number in range(len(toy))}
    for window, (number, _, start, count) in enumerate(part.rows.tolist()):
        places = np.flatnonzero(begins[window]) - part.first[window]
        assert ((places >= 0) & (places < count)).all()
        owned[number] += (places + start).tolist()
    for number, places in owned.items():
        paragraph = part.rows[part.rows[:, 0] == number][0, 1]
        assert sorted(places) == list(range(len(part.paragraphs[paragraph])))


def test_questions_are_cut_and_empty_texts_are_read(encoder: Path) -> None:
    rows = [
        Question("long", "mini " * 60, 0, (("bada", 0),), False, "x"), Question("none", "", 0, (), True, "x"),
        Question("blank", "mini", 1, (), True, "x"),
    ]  # fmt: skip
    part = made(encoder, Limits(48, 12, 24), Questions(["bada mini", "\u00a0"], rows))
    assert [len(ids) for ids in part.questions] == [12, 0, len(part.questions[2])]
    assert part.rows[:, 3].tolist()[2] == 0  # a paragraph without tokens has one window
    assert part.batch([0, 1, 2], "cpu").allowed[2].sum() == 1


def test_blanks_are_no_part_of_an_answer_and_a_tokenizer_without_special_tokens_gets_an_end(tmp_path: Path) -> None:
    bytes_of = tokenizers.ByteLevelBPETokenizer()
    bytes_of.train_from_iterator(["the café is old"] * 9, 290, special_tokens=["<s>", "<pad>", "</s>", "<unk>"])
    named = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=bytes_of._tokenizer, **named).save_pretrained(tmp_path)
    text = "the  café is old, très old (café)"
    places = [("café", 5), ("très", 18), ("old", 13), ("café", 28)]  # the last two beside punctuation
    rows = [Question(f"q{n}", "what?", 0, (answer,), False, "x") for n, answer in enumerate(places)]
    part = made(tmp_path, Limits(64, 16, 32), Questions([text], rows))
    for window, row in enumerate(rows):
        first, last = part.spans[window]
        assert text[part.offsets[0][first, 0] : part.offsets[0][last, 1]] == row.answers[0][0]
    batch = part.batch([0], "cpu")
    ids = batch.inputs["input_ids"][0].tolist()
    assert ids[part.first[0] - 1] == ids[-1] == 2 and "token_type_ids" not in batch.inputs


def test_a_causal_encoder_has_no_answer_at_its_last_token(encoder: Path, toy: Questions) -> None:
    part = made(encoder, Limits(48, 12, 24), toy, is_decoder=True)
    batch = part.batch([0, 1, 2], "cpu")
    assert batch.none.tolist() == (part.lengths[:3] - 1).tolist()
    assert batch.allowed.gather(1, batch.none[:, None]).all() and not batch.allowed[:, 0].any()


def test_a_tokenizer_without_offsets_and_rows_that_are_too_short_are_refused(
    encoder: Path, toy: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="rows of 16 tokens hold too little of a paragraph beside a question of up to"):
        made(encoder, Limits(16, 10, 8), toy)

    class Slow:
        is_fast = False

    monkeypatch.setattr(squad_model, "load_published_tokenizer", lambda folder: Slow())
    with pytest.raises(InputError, match=r"gives no character offsets of its tokens.*tokenizer\.json$"):
        made(encoder, Limits(48, 12, 24), toy)


def test_offsets_of_our_own_tokenizer_are_characters_of_the_text(tmp_path: Path, toy: Questions) -> None:
    """Accents and letters that lower case changes move no offset."""
    own = tokenizer.train(["İstanbul café ﬁne bada"] * 20, 90)
    tokenizer.save(own, tmp_path, True)
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "İstanbul, CAFÉ e\u0301 ﬁne bada"
    for ids, offsets in squad_model._tokens(tmp_path, loaded, [text]):
        assert len(ids) == len(offsets) > 3
        assert text[offsets[-1, 0] : offsets[-1, 1]].strip() and offsets[-1, 1] == len(text)


# ---- Heads for the ends of answers, and their loss, against slow loops ----


def oracle(model: SpanModel, folder: Path, task: Squad, joint: bool, limit: Limits) -> list[dict[str, Any]]:
    """Loss parts and best spans of each window, one at a time, with the dense layers of the released code."""
    part = windows(folder, model.encoder.config, {"test": task.tests["dev"]}, limit)["test"]
    rows = []
    for number in range(len(part)):
        batch = part.batch([number], "cpu")
        hidden = model.encoder(**batch.inputs).last_hidden_state[0]  # (L, D)
        allowed = batch.allowed[0]
        lowered = torch.where(allowed, 0.0, -1000.0)
        start = hidden @ model.start.weight[0] + model.start.bias + lowered

        def ends(token: int, hidden: Any = hidden, lowered: Any = lowered) -> Any:
            if not joint:
                return hidden @ model.end.weight[0] + model.end.bias + lowered
            pairs = torch.cat([hidden[token].expand_as(hidden), hidden], 1)
            return model.end(functional.gelu(model.end_hidden(pairs)))[:, 0] + lowered  # type: ignore[misc]

        pooled = (start.softmax(0)[:, None] * hidden).sum(0)
        null = model.answerable(functional.gelu(model.answerable_hidden(torch.cat([hidden[0], pooled]))))[0]
        first, last = batch.spans[0].tolist()
        loss = -(start.log_softmax(0)[first] + ends(first).log_softmax(0)[last]) / 2
        label = batch.impossible[0]
        loss = loss - 0.5 * (label * null.sigmoid().log() + (1 - label) * (1 - null.sigmoid()).log())
        scores = start.log_softmax(0) if joint else start
        rows.append({"loss": loss, "null": null, "starts": scores, "ends": ends, "batch": batch, "number": number})
    return rows


@pytest.mark.parametrize("joint", [True, False])
def test_heads_and_loss_are_those_of_a_slow_loop(encoder: Path, tmp_path: Path, joint: bool) -> None:
    task, _ = task_of(tmp_path / "squad", True)
    task = replace(task, tests={"dev": replace(task.tests["dev"], rows=task.tests["dev"].rows[:6])})
    torch.manual_seed(3)
    model = SpanModel(load_encoder(encoder, 0.0), joint).eval()
    limit = Limits(24, 6, 8)
    part = windows(encoder, model.encoder.config, {"test": task.tests["dev"]}, limit)["test"]
    rows = np.arange(len(part))
    batch = part.batch(rows, "cpu")
    with torch.no_grad():
        slow = oracle(model, encoder, task, joint, limit)
        losses = torch.stack([each["loss"] for each in slow])
        assert torch.allclose(span_loss(model, batch, False), losses.mean(), atol=1e-5)
        assert torch.allclose(span_loss(model, batch, True), losses.sum(), atol=1e-4)
        spans = best_spans(model, batch, part.begins(rows, batch.allowed.shape[1]))
        for row, each in enumerate(slow):
            assert spans["nulls"][row] == pytest.approx(float(each["null"]), abs=1e-5)
            best, places = each["starts"].sort(descending=True)
            valid = int(batch.allowed[row].sum())
            count = min(20, valid)
            assert spans["starts"][row][:count].tolist() == places[:count].tolist()
            assert np.allclose(spans["start_scores"][row][:count], best[:count], atol=1e-5)
            for place in np.flatnonzero(spans["begins"][row]):
                ends = each["ends"](int(spans["starts"][row][place]))
                scored = ends.log_softmax(0) if joint else ends
                assert np.allclose(
                    spans["end_scores"][row, place][:count], scored.sort(descending=True)[0][:count], atol=1e-5
                )
                chosen = scored[spans["ends"][row, place][:count]]
                assert np.allclose(spans["end_scores"][row, place][:count], chosen, atol=1e-5)


def test_gradients_reach_every_weight(encoder: Path, tmp_path: Path) -> None:
    task, _ = task_of(tmp_path / "squad", True)
    for joint in (True, False):
        model = SpanModel(load_encoder(encoder, 0.0), joint)
        part = windows(encoder, model.encoder.config, {"train": task.train}, Limits(32, 8, 16))["train"]
        span_loss(model, part.batch(np.arange(16), "cpu"), False).backward()
        bare = {name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()}
        assert not {name for name in bare if not name.startswith("encoder.embeddings")}
