"""Linear probes as measures: what they learn, which rows choose the penalty, their baselines, and their names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_probes import CPU, SPEC, WORDS, by_end, conllu, pairs, sentences, tagger, toy_pair_set

from workbench import tasks
from workbench.spec.parts import TasksSpec
from workbench.tasks import _linear_readout as linear_readout
from workbench.tasks import linear_probe
from workbench.tasks.common.contract import Model, Suite, expected, take
from workbench.tasks.common.examples import Tagged
from workbench.tasks.linear_probe import LinearProbe, fingerprinted


def test_a_tagger_learns_what_words_say_and_tells_its_layers(encoder: Path) -> None:
    task = tagger()
    score = take(task, Model(encoder, SPEC, 0), CPU)
    assert score.value == score.values["test"]["accuracy"] > 85
    layers = score.details["layers"]
    assert list(layers) == ["0", "1", "2", "mixed"]
    assert score.values["test, layer 1"] == layers["1"]["values"]["test"]
    assert all(each["strength"] in linear_readout.STRENGTHS for each in layers.values())
    assert (score.train_rows, score.test_rows) == (task.train.count(), task.tests["test"].count())  # type: ignore[union-attr]
    assert score.baselines["bag-of-words"] == 100.0 and score.baselines["majority"] < 40
    assert score.suite == "linear" and json.loads(json.dumps(score.to_json()))["layers"] == layers


def test_equal_calls_agree_to_the_last_digit(encoder: Path) -> None:
    once, again = (take(tagger(), Model(encoder, SPEC, 0), CPU) for _ in range(2))
    assert replace(once, seconds=0) == replace(again, seconds=0)


def test_labels_of_test_rows_choose_nothing(encoder: Path) -> None:
    task = tagger()
    rows = task.tests["test"]
    assert isinstance(rows, Tagged)
    other = replace(task, tests={"test": replace(rows, targets=[[4 - t for t in row] for row in rows.targets])})
    one, two = (take(each, Model(encoder, SPEC, 0), CPU).details["layers"] for each in (task, other))
    for name in one:
        assert {key: one[name][key] for key in ("strength", "held_out_losses")} == {
            key: two[name][key] for key in ("strength", "held_out_losses")
        }
        assert one[name]["values"] != two[name]["values"]


def test_copies_of_a_row_choose_the_penalty_together() -> None:
    rows = [["bada"], ["kefe", "logo"]] * 10 + sentences(30, 3)
    probe = fingerprinted(replace(tagger(), train=Tagged(rows, [by_end(words) for words in rows])), SPEC)
    marks = linear_probe.held(probe)
    assert len(set(marks[:20:2])) == len(set(marks[1:20:2])) == 1
    assert 0.1 < np.mean(marks) < 0.5
    aside = linear_probe.held(pairs())
    assert {label for label, mark in zip(linear_probe.groups(pairs()), aside, strict=True) if mark}.isdisjoint(
        label for label, mark in zip(linear_probe.groups(pairs()), aside, strict=True) if not mark
    )


def test_pairs_are_learnt_on_other_paradigms(encoder: Path) -> None:
    task = pairs()
    train, test = task.train, task.tests["held-out paradigms"]
    assert set(train.targets).isdisjoint(test.targets) and len(set(test.targets)) == 2  # type: ignore[arg-type]
    score = take(task, Model(encoder, SPEC, 0), CPU)
    assert score.value > 95 and score.baselines == {"majority": 50.0, "bag-of-words": 100.0}
    signs, labels = score.details["items"], np.array(test.targets)
    right = np.array([{"+": 100.0, "=": 50.0, "-": 0.0}[sign] for sign in signs])
    assert score.value == pytest.approx(np.mean([right[labels == label].mean() for label in set(test.targets)]))  # type: ignore[arg-type]
    assert "items" not in score.details["layers"]["mixed"]
    assert set(score.details["layers"]["mixed"]["paradigms"]) == {task.labels[int(t)] for t in set(test.targets)}  # type: ignore[arg-type]


def test_a_control_task_can_only_be_learnt_word_by_word(encoder: Path) -> None:
    spec = SPEC.model_copy(update={"control": True})
    task = tagger()
    control = take(task, Model(encoder, spec, 0), CPU).details["layers"]["mixed"]["control"]
    score = take(task, Model(encoder, SPEC, 0), CPU)
    assert control["selectivity"] == pytest.approx(score.value - control["accuracy"])
    assert control["accuracy"] > 80  # twenty words, all of them seen
    tags = linear_readout._targets(task, task.train)
    drawn = linear_readout._drawn(task, task.train, tags)
    words = [word for row in task.train.words for word in row]  # type: ignore[union-attr]
    assert len(set(zip(words, drawn.tolist(), strict=True))) == len(set(words))
    unseen = Tagged([[f"{word}x" for word in WORDS * 50]], [[0] * 1000])
    shares = np.bincount(linear_readout._drawn(task, unseen, tags), minlength=5) / 1000
    assert np.abs(shares - np.bincount(tags) / len(tags)).max() < 0.25
    assert "control" not in score.details["layers"]["mixed"]
    assert task.settings(spec) != task.settings(SPEC)


# ---- rows and names ----


def test_names_choose_linear_probes(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    rows = [f"{' '.join(words)},{int('bada' in words)}" for words in sentences(80, 7)]
    table.write_text("text,label\n" + "\n".join(dict.fromkeys(rows)) + "\n", encoding="utf-8")
    conllu(tmp_path / "some.conllu", 60, 9)
    names = (f"linear:{table}", str(tmp_path / "some.conllu"), f"linear:{tmp_path / 'some.conllu'}", str(table))
    suite = tasks.load(TasksSpec(names=names[:2] + names[3:]), tmp_path / "cache")
    assert [(task.name, task.suite) for task in suite.tasks] == [
        ("linear:mine", "linear"), ("linear:some-pos", "linear"), ("mine", "table"),
    ]  # fmt: skip
    assert tasks.load(TasksSpec(names=names[2:3]), tmp_path / "cache").tasks[0] == suite.tasks[1]
    assert all(0 <= value <= 100 for task in suite.tasks for value in task.baselines().values())
    assert [(task.name, seed) for task, seed, _ in expected(Suite(suite.tasks[:2]), TasksSpec(seeds=3))] == [
        ("linear:mine", 0), ("linear:some-pos", 0),
    ]  # fmt: skip
    folder = tmp_path / "zorro"
    folder.mkdir()
    made = toy_pair_set(3)
    for paradigm in sorted(set(made.groups["paradigm"])):
        of = [row for row, name in enumerate(made.groups["paradigm"]) if name == paradigm]
        found = [{"sentence_good": made.good[row], "sentence_bad": made.bad[row]} for row in of]
        (folder / f"{paradigm}.jsonl").write_text("\n".join(map(json.dumps, found)), encoding="utf-8")
    (zorro,) = tasks.load(TasksSpec(names=(f"linear:{folder}",)), tmp_path / "cache").tasks
    assert (zorro.name, zorro.suite, zorro.baselines()["majority"]) == ("linear:zorro", "linear", 50.0)
    (named,) = tasks.load(TasksSpec(names=("linear:blimp",), blimp=str(folder)), tmp_path / "cache").tasks
    assert named.name == "linear:blimp" and not tasks.local(TasksSpec(names=("linear:blimp-fast",)))
    assert tasks.local(TasksSpec(names=("linear:blimp",), blimp=str(folder)))
    assert not tasks.local(TasksSpec(names=("linear:CoLA",))) and tasks.local(TasksSpec(names=("linear", names[0])))
    assert {"linear:package", "linear:order"} <= {row["name"] for row in tasks.known()}


@pytest.mark.parametrize(
    ("name", "count", "bag"),
    [("ud_czech_cltt", 13_894, 85.0), ("ud_danish_ddt", 10_332, 78.6), ("uner_danish_ddt", 19_985, 25.2)],
)
def test_real_sentences(name: str, count: int, bag: float, encoder: Path, real_data: Path, tmp_path: Path) -> None:
    if not (real_data / name).is_dir():
        pytest.skip(f"no tagged sentences at {real_data / name}")
    suite = tasks.load(TasksSpec(names=(str(real_data / name),)), tmp_path)
    (task,) = suite.tasks
    assert isinstance(task, LinearProbe) and isinstance(task.train, Tagged)
    assert task.train.count() == count and task.baselines()["bag-of-words"] == pytest.approx(bag, abs=0.1)
    few = fingerprinted(
        replace(task, tests={"test": task.tests["test"].take(list(range(20)))}), SPEC.model_copy(update={"rows": 60})
    )
    assert 0 <= take(few, Model(encoder, SPEC, 0), CPU).value <= 100
