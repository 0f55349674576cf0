"""Evaluation of any encoder: the order of scores, what is said of their settings, and measurements that diverge."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import Diverged, InputError
from workbench.execution import published_runs as evaluation
from workbench.execution.published_runs import evaluate
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.common.contract import EncoderFacts, Measure, Model, Score, Suite
from workbench.tasks.common.examples import Examples, Tagged, Task
from workbench.tasks.minimal_pairs import PairSet
from workbench.tasks.squad import Question, Questions, Squad
from workbench.tasks.tagging import Tagging

SPEC = TasksSpec(seeds=2, lr=3e-4, length=128)
CPU = Host(device="cpu", threads=1)
ROWS = Examples(["a", "b"], None, [0, 1])
PAIRS = PairSet("pairs", "minimal-pairs", ["a b"] * 3, ["b a"] * 3, {"paradigm": ["x"] * 3})


def task(name: str) -> Task:
    return Task(name, "table", ("x", "y"), "accuracy", ("accuracy",), 3.0, ROWS, {"dev": ROWS})


class Taking:
    """In place of the measurement itself: what is asked for, and `errors` by the name of the measure."""

    def __init__(self) -> None:
        self.asked: list[tuple[Path, str, int]] = []
        self.errors: dict[str, Exception] = {}

    def __call__(self, measure: Measure, model: Model, host: Host) -> Score:
        seed = model.seed
        self.asked.append((model.folder, measure.name, seed))
        assert model.progress is not None and model.unfinished is None
        model.progress(1, 2)
        if measure.name in self.errors:
            raise self.errors[measure.name]
        value = 60.0 + 10 * seed
        return Score(measure.name, measure.suite, "accuracy", seed, value, {}, {}, 2, 2, 1, 0.1, {"lr": 1}, "", "ab")


@pytest.fixture
def encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that counts as an encoder of 48 positions; its facts are tested in `test_encoder_facts.py`."""
    monkeypatch.setattr(evaluation, "encoder_facts", lambda folder: EncoderFacts(2, 32, 48, False))
    return tmp_path / "encoder"


@pytest.fixture
def taking(monkeypatch: pytest.MonkeyPatch) -> Taking:
    made = Taking()
    monkeypatch.setattr(evaluation, "take", made)
    return made


def run(encoder: Path, *measures: Measure) -> tuple[list[dict[str, Any]], int]:
    return evaluate(encoder, Suite(measures), SPEC, "small", CPU)


def test_scores_come_in_order_and_carry_the_settings_of_fine_tuning(
    encoder: Path, taking: Taking, capsys: pytest.CaptureFixture[str]
) -> None:
    """Texts are cut to the 48 positions of this encoder, whatever the settings allow."""
    rows, failed = run(encoder, PAIRS, task("größe"))
    assert taking.asked == [(encoder, "pairs", 0), (encoder, "größe", 0), (encoder, "größe", 1)] and failed == 0
    named = [(row["task"], row["seed"], row["value"]) for row in rows]
    assert named == [("pairs", 0, 60), ("größe", 0, 60), ("größe", 1, 70)]
    for row in rows[1:]:
        assert (row["settings"], row["length"], row["read_at"]) == ("small", 48, "first token")
    assert not {"settings", "length", "read_at"} & rows[0].keys(), "nothing of this was fine-tuned"
    said = capsys.readouterr().err
    assert str(encoder) in said and "small" in said and "0.0003" in said and "48 tokens" in said and "2 seeds" in said
    assert "größe 65.0" in said and "pairs 60.0" in said  # the means at the end


@pytest.mark.parametrize(
    ("facts", "length", "read_at"),
    [(EncoderFacts(2, 32, 48, False), 24, "first token"), (EncoderFacts(2, 32, None, True), 128, "last token")],
)
def test_the_limit_of_the_settings_holds_where_it_is_shorter(
    facts: EncoderFacts, length: int, read_at: str, encoder: Path, taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "encoder_facts", lambda folder: facts)
    [row], _ = evaluate(encoder, Suite((task("a"),)), TasksSpec(seeds=1, length=length), "nano", CPU)
    assert (row["read_at"], row["length"], row["settings"]) == (read_at, length, "nano")


def test_settings_are_only_said_where_something_is_fine_tuned(
    encoder: Path, taking: Taking, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, _ = run(encoder, PAIRS)
    said = capsys.readouterr().err
    assert len(rows) == 1 and "0.0003" not in said and "pairs 60.0" in said


def test_what_diverges_is_a_warning_and_the_others_go_on(
    encoder: Path, taking: Taking, caplog: pytest.LogCaptureFixture
) -> None:
    taking.errors = {name: Diverged(f"{name} is no number by step 3", 3) for name in ("bad", "pairs")}
    with caplog.at_level(logging.WARNING, logger="workbench"):
        rows, failed = run(encoder, task("bad"), PAIRS, task("good"))
    assert [row["task"] for row in rows] == ["good", "good"] and failed == 3 and len(taking.asked) == 5
    assert [(str(encoder) in line, "step 3" in line, "tasks.lr" in line) for line in caplog.messages] == [
        (True, True, True), (True, True, True), (True, True, False),
    ], "a learning rate is of no use to what trains nothing"  # fmt: skip


def test_any_other_error_ends_the_evaluation(encoder: Path, taking: Taking) -> None:
    taking.errors = {"bad": InputError("its tokenizer cannot read this")}
    with pytest.raises(InputError, match="its tokenizer cannot read this"):
        run(encoder, task("bad"), task("good"))
    assert taking.asked == [(encoder, "bad", 0)]


def test_nothing_to_measure_is_no_error(encoder: Path, taking: Taking, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(encoder) == ([], 0) and capsys.readouterr().err == ""


@pytest.mark.parametrize("kind", ["missing", "empty", "file"])
def test_a_folder_without_an_encoder_is_named_before_anything_is_measured(
    tmp_path: Path, taking: Taking, kind: str
) -> None:
    folder = tmp_path / "größe"
    {"missing": lambda: None, "empty": folder.mkdir, "file": folder.touch}[kind]()
    with pytest.raises(InputError, match="größe"):
        run(folder, task("a"))
    assert taking.asked == []


def test_tagging_says_how_it_reads_words(encoder: Path, taking: Taking, capsys: pytest.CaptureFixture[str]) -> None:
    rows = Tagged([["a", "b"]], [[0, 1]])
    tagged = Tagging("tag:x", ("A", "B"), 2, "", rows, {"test": rows})
    (row, _), _ = run(encoder, tagged)
    said = capsys.readouterr().err
    assert "sentences of tagged words read in windows of 48 tokens, 2 seeds" in said and "texts cut" not in said
    assert (row["settings"], row["length"], "read_at" in row) == ("small", 48, False)
    run(encoder, task("both"), tagged)
    assert "read at the first token and sentences of tagged words" in capsys.readouterr().err


@pytest.mark.parametrize(("given", "tokens"), [(None, 48), (32, 32)])
def test_settings_are_printed_for_questions_too(
    given: int | None, tokens: int, encoder: Path, taking: Taking, capsys: pytest.CaptureFixture[str]
) -> None:
    row = Question("1", "who", 0, (("a", 0),), False, "x")
    part = Questions(["a b"], [row])
    spec = SPEC.model_copy(update={"squad_length": given, "seeds": 1})
    ((score,), failed) = evaluate(encoder, Suite((Squad("squad1", False, part, {"dev": part}),)), spec, "small", CPU)
    assert (
        f"questions read with windows of their paragraphs, {tokens} tokens together, 1 seed" in capsys.readouterr().err
    )
    assert (score["settings"], failed) == ("small", 0) and "length" not in score
