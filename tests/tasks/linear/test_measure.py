"""Linear probes as measures: what they learn, which rows choose the penalty, their baselines, and their names."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from workbench import tasks
from workbench.errors import InputError
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.linear import datasets, measure, problem, readout, word_baselines
from workbench.tasks.linear.problem import LinearProbe, sealed
from workbench.tasks.linear.scores import points
from workbench.tasks.measures import expected, take
from workbench.tasks.task import Examples, Suite, Tagged, Task
from workbench.tasks.zero_shot import minimal_pairs

WORDS = [f"{a}{b}" for a in ("ba", "ke", "lo", "mi") for b in ("da", "fe", "go", "ni", "tu")]
SPEC = TasksSpec(length=24)
CPU = Host(device="cpu", threads=1)


def sentences(count: int, seed: int) -> list[list[str]]:
    random = np.random.default_rng(seed)
    return [random.choice(WORDS, size=random.integers(2, 12)).tolist() for _ in range(count)]


def by_end(words: list[str]) -> list[int]:
    """Return tagged sentences in which the tag of a word is its second syllable."""
    return [("da", "fe", "go", "ni", "tu").index(word[2:]) for word in words]


def tagger(rule: Callable[[list[str]], list[int]] = by_end, train: int = 120, test: int = 40) -> LinearProbe:
    parts = [Tagged(rows, [rule(words) for words in rows]) for rows in (sentences(train, 1), sentences(test, 2))]
    labels = ("A", "B", "C", "D", "E")
    probe = LinearProbe(
        "linear:toy", "words", labels, "accuracy", ("accuracy", "macro_f1"), parts[0], {"test": parts[1]}
    )
    return sealed(probe, SPEC)


def pair_set(paradigms: int, rows: int = 30) -> minimal_pairs.PairSet:
    """Return pairs whose right sentence has `bada` where the wrong one has `kefe`."""
    texts = [[" ".join(words) for words in sentences(rows, number)] for number in range(paradigms)]
    flat = [text for each in texts for text in each]
    names = [f"paradigm {number}" for number, each in enumerate(texts) for _ in each]
    good, bad = [f"{text} bada" for text in flat], [f"{text} kefe" for text in flat]
    return minimal_pairs.sealed("toy", "minimal-pairs", good, bad, {"paradigm": names})


def pairs(paradigms: int = 6) -> LinearProbe:
    return sealed(datasets.of_pairs(pair_set(paradigms)), SPEC)


def test_a_tagger_learns_what_words_say_and_tells_its_layers(encoder: Path) -> None:
    task = word_baselines.added(tagger(), encoder.parent / "cache")
    score = take(encoder, task, SPEC, 0, CPU)
    assert score.value == score.values["test"]["accuracy"] > 85
    layers = score.details["layers"]
    assert list(layers) == ["0", "1", "2", "mixed"]
    assert score.values["test, layer 1"] == layers["1"]["values"]["test"]
    assert all(each["strength"] in readout.STRENGTHS for each in layers.values())
    assert (score.train_rows, score.test_rows) == (task.train.count(), task.tests["test"].count())  # type: ignore[union-attr]
    assert score.baselines["bag-of-words"] == 100.0 and score.baselines["majority"] < 40
    assert score.suite == "linear" and json.loads(json.dumps(score.to_json()))["layers"] == layers


def test_equal_calls_agree_to_the_last_digit(encoder: Path) -> None:
    once, again = (take(encoder, tagger(), SPEC, 0, CPU) for _ in range(2))
    assert replace(once, seconds=0) == replace(again, seconds=0)


def test_labels_of_test_rows_choose_nothing(encoder: Path) -> None:
    task = tagger()
    rows = task.tests["test"]
    assert isinstance(rows, Tagged)
    other = replace(task, tests={"test": replace(rows, targets=[[4 - t for t in row] for row in rows.targets])})
    one, two = (take(encoder, each, SPEC, 0, CPU).details["layers"] for each in (task, other))
    for name in one:
        assert {key: one[name][key] for key in ("strength", "held_out_losses")} == {
            key: two[name][key] for key in ("strength", "held_out_losses")
        }
        assert one[name]["values"] != two[name]["values"]


def test_copies_of_a_row_choose_the_penalty_together() -> None:
    rows = [["bada"], ["kefe", "logo"]] * 10 + sentences(30, 3)
    probe = sealed(replace(tagger(), train=Tagged(rows, [by_end(words) for words in rows])), SPEC)
    marks = problem.held(probe)
    assert len(set(marks[:20:2])) == len(set(marks[1:20:2])) == 1
    assert 0.1 < np.mean(marks) < 0.5
    aside = problem.held(pairs())
    assert {label for label, mark in zip(problem.groups(pairs()), aside, strict=True) if mark}.isdisjoint(
        label for label, mark in zip(problem.groups(pairs()), aside, strict=True) if not mark
    )


def test_pairs_are_learnt_on_other_paradigms(encoder: Path) -> None:
    task = word_baselines.added(pairs(), encoder.parent / "cache")
    train, test = task.train, task.tests["held-out paradigms"]
    assert set(train.targets).isdisjoint(test.targets) and len(set(test.targets)) == 2  # type: ignore[arg-type]
    score = take(encoder, task, SPEC, 0, CPU)
    assert score.value > 95 and score.baselines == {"majority": 50.0, "bag-of-words": 100.0}
    assert set(score.details["layers"]["mixed"]["paradigms"]) == {task.labels[int(t)] for t in set(test.targets)}  # type: ignore[arg-type]


def test_equal_sentences_are_ties(encoder: Path) -> None:
    task = pairs()
    same = {"held-out paradigms": Examples(["bada", "kefe logo " * 9], ["bada", "kefe logo " * 9], [0, 0])}
    assert take(encoder, replace(task, tests=same), SPEC, 0, CPU).value == 50.0


def test_a_control_task_can_only_be_learnt_word_by_word(encoder: Path) -> None:
    spec = SPEC.model_copy(update={"control": True})
    task = tagger()
    control = take(encoder, task, spec, 0, CPU).details["layers"]["mixed"]["control"]
    score = take(encoder, task, SPEC, 0, CPU)
    assert control["selectivity"] == pytest.approx(score.value - control["accuracy"])
    assert control["accuracy"] > 80  # twenty words, all of them seen
    tags = measure._targets(task, task.train)
    drawn = measure._drawn(task, task.train, tags)
    words = [word for row in task.train.words for word in row]  # type: ignore[union-attr]
    assert len(set(zip(words, drawn.tolist(), strict=True))) == len(set(words))
    unseen = Tagged([[f"{word}x" for word in WORDS * 50]], [[0] * 1000])
    shares = np.bincount(measure._drawn(task, unseen, tags), minlength=5) / 1000
    assert np.abs(shares - np.bincount(tags) / len(tags)).max() < 0.25
    assert "control" not in score.details["layers"]["mixed"]
    assert task.settings(spec) != task.settings(SPEC)


def test_matthews_weighs_labels_alike(encoder: Path) -> None:
    rows = sentences(400, 5)
    has = [int("bada" in words and "kefe" in words) for words in rows]
    texts = Examples([" ".join(words) for words in rows], None, has)
    task = Task("rare", "table", ("no", "yes"), "matthews", ("matthews", "accuracy"), 1.0, texts, {"dev": texts})
    probe = sealed(datasets.of_task(task), SPEC)
    assert np.mean(has) < 0.2 and take(encoder, probe, SPEC, 0, CPU).value > 20


def test_entities_count_when_type_and_both_ends_are_right() -> None:
    labels = ("B-LOC", "B-PER", "I-PER", "O")
    rows = Tagged([["a", "b", "c"], ["d", "e"]], [[1, 2, 3], [0, 3]])
    probe = LinearProbe("n", "words", labels, "entity_f1", ("entity_f1", "accuracy"), rows, {"test": rows})
    assert points(probe, rows, np.array([1, 2, 3, 0, 3])) == {"entity_f1": 100.0, "accuracy": 100.0}
    assert points(probe, rows, np.array([1, 3, 3, 0, 3])) == {"entity_f1": 50.0, "accuracy": 80.0}
    assert points(probe, rows, np.array([2, 2, 3, 0, 0]))["entity_f1"] == pytest.approx(80.0)  # a stray I- begins one
    assert points(probe, rows, np.array([3, 3, 3, 3, 3]))["entity_f1"] == 0.0


def test_words_alone_take_their_most_frequent_tag() -> None:
    train = Tagged([["a", "b", "a"], ["a", "c"]], [[0, 1, 0], [1, 1]])
    test = Tagged([["a", "b", "new"]], [[0, 1, 1]])
    probe = LinearProbe("n", "words", ("X", "Y"), "accuracy", ("accuracy",), train, {"test": test})
    assert word_baselines._computed(probe) == {"majority": pytest.approx(200 / 3), "bag-of-words": 100.0}


# ---- rows and names ----


def test_rows_are_capped_and_held_out_by_content() -> None:
    whole = tagger()
    small = sealed(whole, SPEC.model_copy(update={"rows": 30}))
    assert len(small.train) == 30 and small.tests == whole.tests and small.fingerprint != whole.fingerprint
    asked = sealed(whole, SPEC.model_copy(update={"held_out": 0.25}))
    assert list(asked.tests) == ["held-out"] and len(asked.tests["held-out"]) == 30 and len(asked.train) == 90


def test_no_more_words_are_learnt_from_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem, "ROWS", 100)
    train = sealed(tagger(), SPEC).train
    assert isinstance(train, Tagged) and 80 < train.count() <= 100


def conllu(path: Path, count: int, seed: int) -> None:
    rows = []
    for words in sentences(count, seed):
        tags = zip(words, by_end(words), strict=True)
        rows.append("".join(f"{n}\t{word}\t_\t{'ABCDE'[t]}" + "\t_" * 6 + "\n" for n, (word, t) in enumerate(tags, 1)))
    path.write_text("\n".join(rows), encoding="utf-8")


def test_files_folders_and_parts(tmp_path: Path) -> None:
    for seed, part in enumerate(("train", "dev", "test")):
        conllu(tmp_path / f"xx_toy-ud-{part}.conllu", 20 + seed, seed)
    for name in (tmp_path, tmp_path / "xx_toy-ud-train.conllu", tmp_path / "xx_toy-ud-test.conllu"):
        probe = datasets.of_tagged(str(name))
        assert probe.name == "linear:xx_toy-ud-pos" and len(probe.train) == 20
        assert [(part, len(rows)) for part, rows in probe.tests.items()] == [("test", 22), ("dev", 21)]
    (tmp_path / "xx_toy-ud-train.conllu").unlink()
    probe = datasets.of_tagged(str(tmp_path))
    assert len(probe.train) == 21 and list(probe.tests) == ["test"]
    alone = tmp_path / "alone"
    alone.mkdir()
    conllu(alone / "some.conllu", 100, 9)
    probe = datasets.of_tagged(str(alone / "some.conllu"))
    assert probe.name == "linear:some-pos" and 5 < len(probe.tests["test"]) < 40
    assert len(probe.train) + len(probe.tests["test"]) == 100


def test_what_cannot_be_probed_is_said_in_a_sentence(tmp_path: Path) -> None:
    conllu(tmp_path / "a-train.conllu", 5, 0)
    conllu(tmp_path / "b-test.conllu", 5, 1)
    with pytest.raises(InputError, match="holds several sets"):
        datasets.of_tagged(str(tmp_path))
    with pytest.raises(InputError, match="there is no such file"):
        datasets.of_tagged(str(tmp_path / "no.conllu"))
    (tmp_path / "one.iob2").write_text("a\tO\n\nb\tO\n\n" * 40, encoding="utf-8")
    with pytest.raises(InputError, match="every training word has the tag 'O'"):
        datasets.of_tagged(str(tmp_path / "one.iob2"))
    with pytest.raises(InputError, match="2 paradigms, and at least 3 are needed"):
        datasets.of_pairs(pair_set(2))
    number = Task("n", "table", (), "spearman", ("spearman",), 1.0, Examples(["a"], None, [1.0]), {})
    with pytest.raises(InputError, match="linear probes classify"):
        datasets.of_task(number)
    for name, message in (("linear:nosuch", "no linear probe 'nosuch'"), ("linear:", "no linear probe ''"),
                          ("linear:packge", "did you mean 'package'")):  # fmt: skip
        with pytest.raises(InputError, match=message):
            tasks.load(TasksSpec(names=(name,)))
    few = sealed(replace(tagger(), train=Tagged([["bada"]], [[0]])), SPEC)
    with pytest.raises(InputError, match="1 rows to train on are too few or too alike"):
        measure.read_out(np.zeros((1, 2)), np.zeros(1), np.array(problem.held(few)), [])


def test_names_choose_linear_probes(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    rows = [f"{' '.join(words)},{int('bada' in words)}" for words in sentences(80, 7)]
    table.write_text("text,label\n" + "\n".join(dict.fromkeys(rows)) + "\n", encoding="utf-8")
    conllu(tmp_path / "some.conllu", 60, 9)
    names = (f"linear:{table}", str(tmp_path / "some.conllu"), f"linear:{tmp_path / 'some.conllu'}", str(table))
    suite = tasks.load(TasksSpec(names=names[:2] + names[3:]), tmp_path / "cache")
    assert [(task.name, task.suite) for task in suite.tasks] == [
        ("mine", "table"), ("linear:mine", "linear"), ("linear:some-pos", "linear"),
    ]  # fmt: skip
    assert tasks.load(TasksSpec(names=names[2:3]), tmp_path / "cache").tasks[0] == suite.tasks[2]
    assert all(0 <= value <= 100 for task in suite.tasks for value in task.baselines.values())
    assert [(task.name, seed) for task, seed, _ in expected(Suite(suite.tasks[1:]), TasksSpec(seeds=3))] == [
        ("linear:mine", 0), ("linear:some-pos", 0),
    ]  # fmt: skip
    folder = tmp_path / "zorro"
    folder.mkdir()
    made = pair_set(3)
    for paradigm in sorted(set(made.groups["paradigm"])):
        of = [row for row, name in enumerate(made.groups["paradigm"]) if name == paradigm]
        found = [{"sentence_good": made.good[row], "sentence_bad": made.bad[row]} for row in of]
        (folder / f"{paradigm}.jsonl").write_text("\n".join(map(json.dumps, found)), encoding="utf-8")
    (zorro,) = tasks.load(TasksSpec(names=(f"linear:{folder}",)), tmp_path / "cache").tasks
    assert (zorro.name, zorro.suite, zorro.baselines["majority"]) == ("linear:zorro", "linear", 50.0)
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
    assert task.train.count() == count and task.baselines["bag-of-words"] == pytest.approx(bag, abs=0.1)
    few = sealed(
        replace(task, tests={"test": task.tests["test"].take(list(range(20)))}), SPEC.model_copy(update={"rows": 60})
    )
    assert 0 <= take(encoder, few, SPEC, 0, CPU).value <= 100
