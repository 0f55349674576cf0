"""Exact match and F1 of SQuAD equal an oracle that follows the official scripts by other means, to the last digit."""

from __future__ import annotations

import math
import random
import string
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.tasks._squad_answers import answerable_metrics, unanswerable_metrics, words
from workbench.tasks.squad import Question, Questions

PIECES = [
    "the", "The", "THE", "a", "an", "A.", "An,", "theory", "Anna", "cat", "cat's", "dog", "Dog", "x", "1895", "1,895",
    "$", "--", "(1895)", "ß", "É", "e\u0301", "ſ", "İ", "naïve", "–", "“quoted”", "\u00a0", "\t", "\n", "  ", "",
    "the-end", "a1", "_an_", "…", "日本", "\u200b", "ﬁ", "the\u00a0cat",
]  # fmt: skip


def made_answer(draw: random.Random) -> str:
    return draw.choice([" ", "", " ", "  "]).join(draw.choices(PIECES, k=draw.randint(0, 5)))


# ---- an oracle: characters are classified one by one, and bags are compared by crossing words off ----


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


def test_10_000_answers_are_scored_as_the_official_scripts_score_them() -> None:
    draw = random.Random(0)
    for unanswerable in (False, True):
        questions = made_questions(draw, 10_000, unanswerable)
        guesses = made_guesses(draw, questions)
        if not unanswerable:
            assert answerable_metrics(questions, guesses) == oracle_1(questions, guesses)
            continue
        odds = {row.id: round(draw.gauss(0, 3), 1) for row in questions.rows}  # with ties
        metrics, thresholds = unanswerable_metrics(questions, guesses, odds, -2.75)
        metrics |= {f"{name}_threshold": value for name, value in thresholds.items()}
        assert metrics == oracle_2(questions, guesses, odds, -2.75)


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.booleans(), st.floats(-3, 3))
def test_small_sets_are_scored_as_the_official_scripts_score_them(seed: int, unanswerable: bool, limit: float) -> None:
    draw = random.Random(seed)
    questions = made_questions(draw, draw.randint(1, 6), unanswerable)
    guesses = made_guesses(draw, questions)
    if not unanswerable:
        assert answerable_metrics(questions, guesses) == oracle_1(questions, guesses)
    elif guesses:
        odds = {row.id: draw.choice([-1.0, 0.0, 0.5, limit]) for row in questions.rows}
        metrics, thresholds = unanswerable_metrics(questions, guesses, odds, limit)
        assert metrics | {f"{k}_threshold": v for k, v in thresholds.items()} == oracle_2(
            questions, guesses, odds, limit
        )


@settings(max_examples=300)
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


def test_floats_of_the_scores_are_finite() -> None:
    assert all(math.isfinite(value) for value in by_hand("", "").values())
