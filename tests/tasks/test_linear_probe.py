"""Names of linear probes: which of them a word selects, and what has to be downloaded for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_probes import CPU, SPEC, conllu, pairs, sentences, tagger, toy_pair_set

from workbench import tasks
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.spec.scoring import LINEAR, PROBES
from workbench.tasks import _linear_readout as linear_readout
from workbench.tasks import glue, linear_probe, minimal_pairs
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.examples import Examples, Tagged, Task
from workbench.tasks.linear_probe import LinearProbe, by_paradigm, fingerprinted, points

TAGGED = "".join(f"w{n}\tO\nw{n % 5}\tB-X\n\n" for n in range(40))
PAIR = '{"sentence_good": "a b", "sentence_bad": "b a"}\n'


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, with files of every kind that a name may stand for."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("größe.iob2", TAGGED), ("pairs.jsonl", PAIR), ("rows.jsonl", '{"text": "a", "label": 1}\n'),
                       ("rows.csv", "text,label\na,1\nb,0\nc,1\nd,0\n"), ("notes.md", "x")):  # fmt: skip
        (tmp_path / name).write_text(text, encoding="utf-8")
    for folder, file, text in (("tagged", "a.conllu", ""), ("sets", "b.jsonl", PAIR), ("empty", "", "")):
        (tmp_path / folder).mkdir()
        if file:
            (tmp_path / folder / file).write_text(text)
    return tmp_path


def reads(word: str) -> set[str]:
    """The settings that a word reads."""
    return linear_probe.reads(word, TasksSpec())


@pytest.mark.parametrize("name", ["linear", "LINEAR", "linear:probes", "Linear:Probes"])
def test_one_word_selects_all_probes(name: str) -> None:
    assert linear_probe.place(name) == list(PROBES)


@pytest.mark.parametrize("known", [*PROBES, *glue.ROWS, *minimal_pairs.NAMED])
def test_every_task_of_ours_is_found_in_any_case(known: str) -> None:
    for name in (f"linear:{known}", f"LINEAR:{known.upper()}", f"Linear:{known.lower()}"):
        assert linear_probe.place(name) == [known]


def test_a_substitute_keeps_its_own_name() -> None:
    assert linear_probe.place("linear:qnli-devsplit") == ["qnli-devsplit"]
    assert "glue" in reads("linear:QNLI-devsplit")


@pytest.mark.parametrize(
    "name", ["CoLA", "order", "probes", "none", "mine.csv", "linearly", "pairs.jsonl", "sets", "notes.md"]
)
def test_other_tasks_are_left_to_others(files: Path, name: str) -> None:
    assert linear_probe.place(name) is None
    assert not reads(name) & {"glue", "blimp"}


@pytest.mark.parametrize("name", ["größe.iob2", "tagged"])
def test_tagged_sentences_are_a_probe_with_and_without_the_prefix(files: Path, name: str) -> None:
    assert linear_probe.place(name) == linear_probe.place(f"linear:{name}") == [name]
    assert linear_probe.place(str(files / name)) == [str(files / name)]


@pytest.mark.parametrize("name", ["pairs.jsonl", "sets", "empty", "rows.csv", "rows.jsonl", "missing.csv"])
def test_other_paths_need_the_prefix(files: Path, name: str) -> None:
    assert linear_probe.place(f"linear:{name}") == [name]


@pytest.mark.parametrize(("rest", "near"), [("ordr", "order"), ("COLAA", "CoLA"), ("blimp-fats", "blimp-fast")])
def test_an_unknown_name_is_told_with_the_nearest(rest: str, near: str) -> None:
    with pytest.raises(InputError, match=f"linear:{rest}.*'{near}'"):
        linear_probe.place(f"linear:{rest}")


@pytest.mark.parametrize("rest", ["", "nowhere/größe", "notes.md", "linear:order"])
def test_what_stands_for_no_probe_is_refused(files: Path, rest: str) -> None:
    for ask in (linear_probe.place, linear_probe.accepts, reads):
        with pytest.raises(InputError, match=f"linear:{rest}"):
            ask(f"linear:{rest}")


def test_what_is_read_from_glue_and_from_blimp_is_told_apart(files: Path) -> None:
    asked = [
        "linear",
        "linear:order",
        *(f"linear:{row}" for row in glue.ROWS),
        *(f"linear:{each}" for each in minimal_pairs.NAMED),
    ]
    asked += ["größe.iob2", "linear:rows.csv"]
    assert [name for name in asked if "glue" in reads(name)] == [f"linear:{row}" for row in glue.ROWS]
    assert [name for name in asked if "blimp" in reads(name)] == [f"linear:{each}" for each in minimal_pairs.NAMED]


def test_probes_that_are_listed_are_those_that_the_word_selects() -> None:
    rows = linear_probe.names()
    assert tuple(name for name, *_ in rows) == LINEAR and {suite for _, suite, _, _ in rows} == {"linear"}
    assert all(metric and summary for *_, metric, summary in rows)
    assert [linear_probe.place(name) for name, *_ in rows] == [[name] for name in PROBES]


def test_a_probe_named_twice_is_loaded_once(files: Path) -> None:
    found = linear_probe.load(["größe.iob2", "linear:rows.csv", "größe.iob2"], TasksSpec())
    assert [probe.name for probe in found] == ["linear:größe-ner", "linear:rows"]
    assert all(probe.fingerprint for probe in found) and found[0].labels == ("B-X", "O")
    assert linear_probe.load([], TasksSpec()) == []


def test_a_task_of_glue_that_is_not_in_its_folder_is_named(files: Path) -> None:
    with pytest.raises(InputError, match=r"linear:CoLA\b.*empty"):
        linear_probe.load(["linear:CoLA"], TasksSpec(glue=str(files / "empty")))


# ---- What linear probes are made of: files, folders, tasks and pairs ----


def test_files_folders_and_parts(tmp_path: Path) -> None:
    for seed, part in enumerate(("train", "dev", "test")):
        conllu(tmp_path / f"xx_toy-ud-{part}.conllu", 20 + seed, seed)
    for name in (tmp_path, tmp_path / "xx_toy-ud-train.conllu", tmp_path / "xx_toy-ud-test.conllu"):
        probe = linear_probe.of_tagged(str(name))
        assert probe.name == "linear:xx_toy-ud-pos" and len(probe.train) == 20
        assert [(part, len(rows)) for part, rows in probe.tests.items()] == [("test", 22), ("dev", 21)]
    (tmp_path / "xx_toy-ud-train.conllu").unlink()
    probe = linear_probe.of_tagged(str(tmp_path))
    assert len(probe.train) == 21 and list(probe.tests) == ["test"]
    alone = tmp_path / "alone"
    alone.mkdir()
    conllu(alone / "some.conllu", 100, 9)
    probe = linear_probe.of_tagged(str(alone / "some.conllu"))
    assert probe.name == "linear:some-pos" and 5 < len(probe.tests["test"]) < 40
    assert len(probe.train) + len(probe.tests["test"]) == 100


def test_what_cannot_be_probed_is_said_in_a_sentence(tmp_path: Path) -> None:
    conllu(tmp_path / "a-train.conllu", 5, 0)
    conllu(tmp_path / "b-test.conllu", 5, 1)
    with pytest.raises(InputError, match="holds several sets"):
        linear_probe.of_tagged(str(tmp_path))
    with pytest.raises(InputError, match="there is no such file"):
        linear_probe.of_tagged(str(tmp_path / "no.conllu"))
    (tmp_path / "one.iob2").write_text("a\tO\n\nb\tO\n\n" * 40, encoding="utf-8")
    with pytest.raises(InputError, match="every training word has the tag 'O'"):
        linear_probe.of_tagged(str(tmp_path / "one.iob2"))
    with pytest.raises(InputError, match="2 paradigms, and at least 3 are needed"):
        linear_probe.of_pairs(toy_pair_set(2))
    number = Task("n", "table", (), "spearman", ("spearman",), 1.0, Examples(["a"], None, [1.0]), {})
    with pytest.raises(InputError, match="linear probes classify"):
        linear_probe.of_task(number)
    for name, message in (("linear:nosuch", "no linear probe 'nosuch'"), ("linear:", "no linear probe ''"),
                          ("linear:packge", "did you mean 'package'")):  # fmt: skip
        with pytest.raises(InputError, match=message):
            tasks.load(TasksSpec(names=(name,)))
    few = fingerprinted(replace(tagger(), train=Tagged([["bada"]], [[0]])), SPEC)
    with pytest.raises(InputError, match="1 rows to train on are too few or too alike"):
        linear_readout.read_out(np.zeros((1, 2)), np.zeros(1), np.array(linear_probe.held(few)), [])


# ---- Linear probes as plain data: which rows they are fitted to ----


def test_rows_are_capped_and_held_out_by_content() -> None:
    whole = tagger()
    small = fingerprinted(whole, SPEC.model_copy(update={"rows": 30}))
    assert len(small.train) == 30 and small.tests == whole.tests and small.fingerprint != whole.fingerprint
    asked = fingerprinted(whole, SPEC.model_copy(update={"held_out": 0.25}))
    assert list(asked.tests) == ["held-out"] and len(asked.tests["held-out"]) == 30 and len(asked.train) == 90


def test_no_more_words_are_learnt_from_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_probe, "ROWS", 100)
    train = fingerprinted(tagger(), SPEC).train
    assert isinstance(train, Tagged) and 80 < train.count() <= 100


# ---- Scores of linear probes ----


def test_equal_sentences_are_ties(encoder: Path) -> None:
    task = pairs()
    same = {"held-out paradigms": Examples(["bada", "kefe logo " * 9], ["bada", "kefe logo " * 9], [0, 0])}
    assert take(replace(task, tests=same), Model(encoder, SPEC, 0), CPU).value == 50.0


def test_matthews_weighs_labels_alike(encoder: Path) -> None:
    rows = sentences(400, 5)
    has = [int("bada" in words and "kefe" in words) for words in rows]
    texts = Examples([" ".join(words) for words in rows], None, has)
    task = Task("rare", "table", ("no", "yes"), "matthews", ("matthews", "accuracy"), 1.0, texts, {"dev": texts})
    probe = fingerprinted(linear_probe.of_task(task), SPEC)
    assert np.mean(has) < 0.2 and take(probe, Model(encoder, SPEC, 0), CPU).value > 20


def test_entities_count_when_type_and_both_ends_are_right() -> None:
    labels = ("B-LOC", "B-PER", "I-PER", "O")
    rows = Tagged([["a", "b", "c"], ["d", "e"]], [[1, 2, 3], [0, 3]])
    probe = LinearProbe("n", "words", labels, "entity_f1", ("entity_f1", "accuracy"), rows, {"test": rows})
    assert points(probe, rows, np.array([1, 2, 3, 0, 3])) == {"entity_f1": 100.0, "accuracy": 100.0}
    assert points(probe, rows, np.array([1, 3, 3, 0, 3])) == {"entity_f1": 50.0, "accuracy": 80.0}
    assert points(probe, rows, np.array([2, 2, 3, 0, 0]))["entity_f1"] == pytest.approx(80.0)  # a stray I- begins one
    assert points(probe, rows, np.array([3, 3, 3, 3, 3]))["entity_f1"] == 0.0


def test_paradigms_weigh_alike_however_many_pairs_they_have() -> None:
    rows = Examples(["x"] * 5, ["y"] * 5, [0, 0, 0, 0, 2])
    probe = LinearProbe("n", "pairs", ("a", "b", "c"), "accuracy", ("accuracy",), rows, {"test": rows})
    predicted = np.array([1.0, 0.5, 0.0, 1.0, 0.0])
    assert by_paradigm(probe, rows, predicted) == {"a": 62.5, "c": 0.0}  # a tie counts half; b has no pair
    assert points(probe, rows, predicted) == {"accuracy": 31.25}


# ---- Baselines of linear probes that need no encoder ----


def test_words_alone_take_their_most_frequent_tag() -> None:
    train = Tagged([["a", "b", "a"], ["a", "c"]], [[0, 1, 0], [1, 1]])
    test = Tagged([["a", "b", "new"]], [[0, 1, 1]])
    probe = LinearProbe("n", "words", ("X", "Y"), "accuracy", ("accuracy",), train, {"test": test})
    assert probe.baselines() == {"majority": pytest.approx(200 / 3), "bag-of-words": 100.0}


def test_pairs_are_told_by_the_words_in_which_they_differ_and_the_baselines_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each pair the right sentence has `bada` where the wrong one has `kefe`; an even split is 50 points."""
    expected = {"majority": 50.0, "bag-of-words": 100.0}
    assert pairs().baselines(tmp_path) == expected
    monkeypatch.setitem(linear_probe.BASELINES, "pairs", lambda probe: pytest.fail("computed again"))
    assert pairs().baselines(tmp_path) == expected


def test_equal_sentences_are_ties_for_words_alone() -> None:
    rows = Examples(["a b c", "b c a", "c d"], ["a b c", "b c a", "c d"], [0, 0, 0])
    probe = LinearProbe("n", "pairs", ("p",), "accuracy", ("accuracy",), rows, {"test": rows})
    assert probe.baselines() == {"majority": 50.0, "bag-of-words": 50.0}
