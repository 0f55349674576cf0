"""Names of linear probes: which of them a word selects, and what has to be downloaded for it."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from toy_probes import CPU, SPEC, WORDS, by_end, conllu, pairs, sentences, tagger, toy_pair_set
from transformers import AutoModel, AutoTokenizer

from workbench import tasks
from workbench.errors import Diverged, InputError
from workbench.spec.parts import TasksSpec
from workbench.spec.scoring import LINEAR, PROBES
from workbench.tasks import _linear_readout as linear_readout
from workbench.tasks import glue, linear_probe, minimal_pairs
from workbench.tasks._linear_readout import STRENGTHS, Reader, Regression, features, open_reader, read_out
from workbench.tasks.common import token_rows
from workbench.tasks.common.contract import Model, Suite, expected, take
from workbench.tasks.common.examples import Examples, Tagged, Task
from workbench.tasks.common.token_rows import cuts, word_pieces
from workbench.tasks.linear_probe import LinearProbe, by_paradigm, flattened, limited, points

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


@pytest.mark.parametrize("known", [*PROBES, *glue.ROWS, *minimal_pairs.NAMED])
def test_every_task_of_ours_is_found_in_any_case(known: str) -> None:
    for name in (f"linear:{known}", f"LINEAR:{known.upper()}", f"Linear:{known.lower()}"):
        assert linear_probe.place(name) == [known]


@pytest.mark.parametrize(
    "name", ["CoLA", "order", "probes", "none", "mine.csv", "linearly", "pairs.jsonl", "sets", "notes.md"]
)
def test_other_tasks_are_left_to_others(files: Path, name: str) -> None:
    assert linear_probe.place(name) is None
    assert not reads(name) & {"glue", "blimp"}


@pytest.mark.parametrize(
    ("names", "members"),
    [
        (("linear", "LINEAR", "linear:probes", "Linear:Probes"), list(PROBES)),
        (("linear:qnli-devsplit",), ["qnli-devsplit"]),  # a substitute keeps its own name
        *(((name, f"linear:{name}"), [name]) for name in ("größe.iob2", "tagged")),
        *(((f"linear:{name}",), [name]) for name in ("pairs.jsonl", "sets", "empty", "rows.csv", "missing.csv")),
    ],
)
def test_words_select_probes_and_paths(files: Path, names: tuple[str, ...], members: list[str]) -> None:
    assert [linear_probe.place(name) for name in names] == [members] * len(names)
    assert linear_probe.place(str(files / "tagged")) == [str(files / "tagged")] and "glue" in reads("linear:QNLI-x")


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
    rows = linear_probe.names
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


def test_what_cannot_be_probed_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "one.iob2").write_text("a\tO\n\nb\tO\n\n" * 40, encoding="utf-8")
    with pytest.raises(InputError, match="every training word has the tag 'O'"):
        linear_probe.of_tagged(str(tmp_path / "one.iob2"))
    with pytest.raises(InputError, match="2 paradigms, and at least 3 are needed"):
        linear_probe.of_pairs(toy_pair_set(2))
    number = Task("n", "table", (), "spearman", ("spearman",), 1.0, Examples(["a"], None, [1.0]), {})
    with pytest.raises(InputError, match="linear probes classify"):
        linear_probe.of_task(number)


# ---- Linear probes as plain data: which rows they are fitted to ----


def test_rows_are_capped_and_held_out_by_content() -> None:
    whole = tagger()
    small = limited(whole, SPEC.model_copy(update={"rows": 30}))
    assert len(small.train) == 30 and small.tests == whole.tests and small.fingerprint != whole.fingerprint
    asked = limited(whole, SPEC.model_copy(update={"held_out": 0.25}))
    assert list(asked.tests) == ["held-out"] and len(asked.tests["held-out"]) == 30 and len(asked.train) == 90


def test_no_more_words_are_learnt_from_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_probe, "ROWS", 100)
    train = limited(tagger(), SPEC).train
    assert isinstance(train, Tagged) and 80 < sum(map(len, train.words)) <= 100


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
    probe = linear_probe.of_task(task)
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
    monkeypatch.setattr(linear_probe, "word_baselines", lambda probe: pytest.fail("computed again"))
    assert pairs().baselines(tmp_path) == expected


def test_equal_sentences_are_ties_for_words_alone() -> None:
    rows = Examples(["a b c", "b c a", "c d"], ["a b c", "b c a", "c d"], [0, 0, 0])
    probe = LinearProbe("n", "pairs", ("p",), "accuracy", ("accuracy",), rows, {"test": rows})
    assert probe.baselines() == {"majority": 50.0, "bag-of-words": 50.0}


def test_a_tagger_learns_what_words_say_and_tells_its_layers(encoder: Path) -> None:
    task = tagger()
    score = take(task, Model(encoder, SPEC, 0), CPU)
    assert score.value == score.values["test"]["accuracy"] > 85
    layers = score.details["layers"]
    assert list(layers) == ["0", "1", "2", "mixed"]
    assert score.values["test, layer 1"] == layers["1"]["values"]["test"]
    assert all(each["strength"] in linear_readout.STRENGTHS for each in layers.values())
    assert (score.train_rows, score.test_rows) == (len(flattened(task.train)), len(flattened(task.tests["test"])))
    assert score.baselines["bag-of-words"] == 100.0 and score.baselines["majority"] < 40
    assert score.suite == "linear" and json.loads(json.dumps(score.to_json()))["layers"] == layers


def test_copies_of_a_row_choose_the_penalty_together() -> None:
    rows = [["bada"], ["kefe", "logo"]] * 10 + sentences(30, 3)
    probe = replace(tagger(), train=Tagged(rows, [by_end(words) for words in rows]))
    marks = linear_probe.held(probe)
    assert len(set(marks[:20:2])) == len(set(marks[1:20:2])) == 1
    assert 0.1 < np.mean(marks) < 0.5
    aside, paradigms = linear_probe.held(pairs()), pairs().train.targets
    assert {label for label, mark in zip(paradigms, aside, strict=True) if mark}.isdisjoint(
        label for label, mark in zip(paradigms, aside, strict=True) if not mark
    )


def test_pairs_are_learnt_on_other_paradigms(encoder: Path, tmp_path: Path) -> None:
    task = pairs()
    train, test = task.train, task.tests["held-out paradigms"]
    assert set(train.targets).isdisjoint(test.targets) and len(set(test.targets)) == 2  # type: ignore[arg-type]
    score = take(task, Model(encoder, SPEC, 0), CPU)
    assert score.value > 95 and task.baselines(tmp_path) == {"majority": 50.0, "bag-of-words": 100.0}
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
    tags = np.array(flattened(task.train))
    drawn = linear_readout._drawn(task, task.train)
    words = [word for row in task.train.words for word in row]  # type: ignore[union-attr]
    assert len(set(zip(words, drawn.tolist(), strict=True))) == len(set(words))
    unseen = Tagged([[f"{word}x" for word in WORDS * 50]], [[0] * 1000])
    shares = np.bincount(linear_readout._drawn(task, unseen), minlength=5) / 1000
    assert np.abs(shares - np.bincount(tags) / len(tags)).max() < 0.25
    assert "control" not in score.details["layers"]["mixed"]
    assert task.settings(spec) != task.settings(SPEC)


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


def test_real_sentences(encoder: Path, real_data: Path, tmp_path: Path) -> None:
    if not (folder := real_data / "uner_danish_ddt").is_dir():
        pytest.skip(f"no tagged sentences at {folder}")
    (task,) = tasks.load(TasksSpec(names=(str(folder),)), tmp_path).tasks
    assert isinstance(task, LinearProbe) and isinstance(task.train, Tagged)
    assert len(flattened(task.train)) == 19_985
    assert task.baselines(tmp_path)["bag-of-words"] == pytest.approx(25.2, abs=0.1)
    few = replace(task, train=task.train.take(range(60)), tests={"test": task.tests["test"].take(range(20))})
    assert 0 <= take(few, Model(encoder, SPEC, 0), CPU).value <= 100


# ---- The readout ----


def problem(rows: int = 300, features: int = 6, labels: int = 3, seed: int = 0) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(rows, features)).astype(np.float32)
    scores = inputs @ random.normal(size=(features, labels)) + random.gumbel(size=(rows, labels))
    return inputs, scores.argmax(1)


def solved(inputs: Any, targets: Any, strength: float, labels: int) -> Any:
    """Return the weights (features + 1, labels) of the penalised softmax regression, the intercept last."""
    wide = np.hstack([inputs, np.ones((len(inputs), 1))]).astype(np.float64)
    truth = np.eye(labels)[targets]

    def loss(flat: Any) -> tuple[float, Any]:
        weights = flat.reshape(wide.shape[1], labels)
        scores = wide @ weights
        logs = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
        penalised = np.vstack([weights[:-1], np.zeros((1, labels))])
        gradient = strength * wide.T @ (np.exp(logs) - truth) + penalised
        return -strength * (truth * logs).sum() + (penalised**2).sum() / 2, gradient.ravel()

    start = np.zeros(wide.shape[1] * labels)
    found: Any = minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-7, "maxiter": 2000})
    return found.x.reshape(wide.shape[1], labels)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_the_fit_is_that_of_the_problem_written_out(strength: float) -> None:
    inputs, targets = problem()
    model = Regression(pairs=False)
    for each in STRENGTHS[: STRENGTHS.index(strength) + 1]:  # on the path, as `read_out` goes it
        model.fit(inputs, targets, each)
    weights = solved(inputs, targets, strength, 3)
    scores = inputs @ weights[:-1] + weights[-1]
    logs = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    assert np.abs(model.model.predict_proba(inputs) - np.exp(logs)).max() < 5e-3
    assert model.loss(inputs, targets) == pytest.approx(-logs[np.arange(len(targets)), targets].mean(), abs=1e-3)
    assert model.converged


def test_test_rows_choose_nothing() -> None:
    inputs, targets = problem()
    held = np.arange(300) % 5 == 0
    one = read_out(inputs, targets, held, [inputs[:50], inputs[50:]])
    other = read_out(inputs, targets, held, [1e6 * inputs[::-1]])
    assert one[1] == other[1]
    again = read_out(inputs, targets, held, [inputs])
    assert (np.concatenate(one[0]) == again[0][0]).all()


def test_the_strength_is_the_one_of_the_lowest_loss_on_rows_set_aside() -> None:
    inputs, targets = problem(rows=120, features=60, labels=2)
    held = np.arange(120) % 5 == 0
    _, found = read_out(inputs, targets, held, [inputs])
    assert found["strength"] == STRENGTHS[int(np.argmin(found["held_out_losses"]))] < STRENGTHS[-1]
    noise = np.where(held, 1 - targets, targets)  # turned round where the choice is made: no fit at all is best
    assert read_out(inputs, noise, held, [inputs])[1]["strength"] == STRENGTHS[0]


def test_scales_of_features_change_nothing() -> None:
    inputs, targets = problem()
    held = np.arange(300) % 5 == 0
    stretched = (inputs * np.array([1, 1e3, 1e-3, 1, 1e4, 1e-2]) + 7).astype(np.float32)
    plain, other = (read_out(each, targets, held, [each])[0][0] for each in (inputs, stretched))
    assert (plain == other).mean() > 0.99
    constant = np.hstack([inputs, np.full((300, 1), 1e-20, dtype=np.float32)])
    assert (read_out(constant, targets, held, [constant])[0][0] == plain).all()


def test_pairs_are_ordered_by_a_direction_and_equal_ones_are_ties() -> None:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(400, 5)).astype(np.float32)
    inputs[:, 2] += 1.0  # right less wrong
    targets, held = np.arange(400) % 2, np.arange(400) % 7 == 0
    test = np.stack([np.array([0, 0, 3, 0, 0]), np.zeros(5), np.array([0, 0, -3, 0, 0])]).astype(np.float32)
    assert read_out(inputs, targets, held, [test], pairs=True)[0][0].tolist() == [1.0, 0.5, 0.0]
    flipped = read_out(inputs, 1 - targets, held, [inputs], pairs=True)[0][0]
    assert (flipped == read_out(inputs, targets, held, [inputs], pairs=True)[0][0]).mean() > 0.99


def test_labels_that_only_the_rows_set_aside_have_cost_but_do_not_stop_it() -> None:
    inputs, targets = problem()
    held = np.arange(300) % 5 == 0
    targets = np.where(np.arange(300) == 5, 3, targets)
    _, found = read_out(inputs, targets, held, [inputs])
    assert max(found["held_out_losses"]) < 10 and np.isfinite(found["held_out_losses"]).all()


def test_balanced_rows_find_the_rare_label() -> None:
    random = np.random.default_rng(0)
    targets = (np.arange(1000) % 20 == 0).astype(int)
    inputs = (random.normal(size=(1000, 3)) + targets[:, None]).astype(np.float32)
    held = np.arange(1000) // 20 % 5 == 0
    plain, balanced = (read_out(inputs, targets, held, [inputs], balanced=b)[0][0] for b in (False, True))
    assert plain[targets == 1].mean() < 0.4 and balanced[targets == 1].mean() > 0.6
    repeated = np.repeat(np.arange(1000), np.where(targets == 1, 19, 1))
    same = read_out(inputs[repeated], targets[repeated], held[repeated], [inputs])[0][0]
    assert (same == balanced).mean() > 0.97


def test_too_few_rows_are_an_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, targets = problem(rows=6)
    for held in (np.zeros(6, dtype=bool), np.ones(6, dtype=bool), targets != targets[0]):
        with pytest.raises(InputError, match="6 rows to train on are too few or too alike"):
            read_out(inputs, targets, held, [inputs])
    inputs, targets = problem()
    monkeypatch.setattr(linear_readout, "MOST_STEPS", 2)
    assert not read_out(inputs, targets, np.arange(300) % 5 == 0, [inputs])[1]["converged"]


def test_weights_that_are_not_finite_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, targets = problem()
    regression = Regression(pairs=False)
    monkeypatch.setattr(regression.model, "fit", lambda *_: setattr(regression.model, "coef_", np.array([[np.nan]])))
    with pytest.raises(Diverged, match="weights of a linear readout"):
        regression.fit(inputs, targets, 1.0)


# ---- The state of a word is that of its first subword ----

ODD_WORDS = ["bada", "kefe", "logo", "mini", "badakefe", "zzz", "Bada", "ke-fe", "42", ".", "\u0301", "\u200d", "日本"]


@pytest.fixture(scope="module")
def reader(encoder: Path) -> Reader:
    return open_reader(encoder, 20, "cpu")


loaded = functools.cache(AutoModel.from_pretrained)


def by_hugging_face(folder: Path, ids: list[int]) -> Any:
    """Return the states (layers, L, D) of one row, computed by transformers alone."""
    with torch.no_grad():
        found = loaded(folder).eval()(torch.tensor([ids]), output_hidden_states=True)
    return torch.stack(found.hidden_states)[:, 0].numpy()


def states_of_words(reader: Reader, sentences: list[list[str]]) -> Any:
    return features(reader, Tagged(sentences, []), "words")


@pytest.fixture(scope="module")
def wide_reader(encoder: Path) -> Reader:
    return open_reader(encoder, 48, "cpu")


@settings(deadline=None, max_examples=40)
@given(sentences=st.lists(st.lists(st.sampled_from(ODD_WORDS), min_size=1, max_size=7), min_size=1, max_size=5))
def test_a_words_state_is_its_first_subwords(encoder: Path, wide_reader: Reader, sentences: list[list[str]]) -> None:
    found = states_of_words(wide_reader, sentences)
    tokenizer, count = AutoTokenizer.from_pretrained(encoder), 0
    for words in sentences:
        pieces = [tokenizer(word, add_special_tokens=False)["input_ids"] or [tokenizer.unk_token_id] for word in words]
        ids = [tokenizer.cls_token_id, *(piece for part in pieces for piece in part), tokenizer.sep_token_id]
        if len(ids) > 48:
            count += len(words)
            continue
        expected = by_hugging_face(encoder, ids)
        place = 1
        for part in pieces:
            assert np.allclose(found[:, count], expected[:, place], atol=2e-5)
            place, count = place + len(part), count + 1
    assert count == found.shape[1]


def test_a_long_sentence_is_read_in_windows(reader: Reader) -> None:
    words = ["bada", "kefe", "logo", "mini", "tuni"] * 30
    rows, firsts, _ = word_pieces(reader.splitter, [words])
    found = states_of_words(reader, [words])
    assert found.shape[:2] == (3, 150) and len(rows[0]) > 5 * reader.splitter.room
    assert (np.abs(found).sum((0, 2)) > 0).all()
    first, last = rows[0][: reader.splitter.room], rows[0][-reader.splitter.room :]
    whole = by_hugging_face(reader.splitter.folder, [*reader.splitter.before, *first, *reader.splitter.after])
    assert np.allclose(found[:, 0], whole[:, 1], atol=2e-5)
    middle = [i for i, place in enumerate(firsts[0]) if len(rows[0]) - reader.splitter.room <= place]
    end = cuts(len(rows[0]), reader.splitter.room)[-1][0]
    ids = rows[0][end : end + reader.splitter.room]
    tail = by_hugging_face(reader.splitter.folder, [*reader.splitter.before, *ids, *reader.splitter.after])
    assert np.allclose(found[:, middle[-1]], tail[:, 1 + firsts[0][middle[-1]] - end], atol=2e-5)
    assert len(last) == reader.splitter.room


def test_a_texts_state_is_the_mean_over_its_pieces(reader: Reader) -> None:
    texts = ["bada kefe logo", "mini", "", "kefe " * 40]
    found = features(reader, Examples(texts, None, [0] * len(texts)), "texts")
    tokenizer = AutoTokenizer.from_pretrained(reader.splitter.folder)
    for number, text in enumerate(texts):
        bare = tokenizer(text, add_special_tokens=False)["input_ids"][: reader.splitter.room] or [
            tokenizer.unk_token_id
        ]
        expected = by_hugging_face(reader.splitter.folder, [*reader.splitter.before, *bare, *reader.splitter.after])[
            :, 1:-1
        ].mean(1)
        assert np.allclose(found[:, number], expected, atol=2e-5)


def test_batches_and_their_order_change_nothing_but_rounding(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = [["bada"] * n for n in (1, 9, 3, 30, 2)]
    together = states_of_words(reader, sentences)
    assert (states_of_words(reader, sentences) == together).all()
    monkeypatch.setattr(token_rows, "TOKENS", 1)
    assert np.allclose(states_of_words(reader, sentences), together, atol=1e-5)


def test_what_cannot_be_read_is_said_in_a_sentence(electra: Callable[..., Path], encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pieces of a text fit into a row, and a linear probe needs 4"):
        open_reader(encoder, 5, "cpu")
    huge = electra(initializer_range=1e30)
    reader = open_reader(huge, 20, "cpu")
    with pytest.raises(Diverged, match="not all finite"):
        states_of_words(reader, [["bada", "kefe"]])
    other = tmp_path / "other"
    shutil.copytree(encoder, other)
    for file in ("config.json", "model.safetensors"):
        shutil.copy(electra(vocab_size=20) / file, other / file)
    small = open_reader(other, 20, "cpu")
    with pytest.raises(InputError, match="do not belong together"):
        states_of_words(small, [["bada", "kefe", "logo", "mini", "tu"]])
