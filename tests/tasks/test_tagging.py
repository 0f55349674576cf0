"""Names of tagging under --tasks: columns, folders and named sets."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tagged_made import CPU, SPEC, WORDS, as_spans, by_end, load, sentences, task_of, write

from workbench import tasks
from workbench.errors import Diverged, InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks import _tagger as tagger
from workbench.tasks import tagging
from workbench.tasks._tagger import word_windows
from workbench.tasks.common.contract import Model, expected, take
from workbench.tasks.common.encoder_folders import load_encoder
from workbench.tasks.common.examples import Tagged
from workbench.tasks.common.token_rows import SHORTEST, Splitter, open_splitter
from workbench.tasks.tagging import Tagging, by_type, columns, limited, points


def conllu(path: Path, count: int, seed: int) -> None:
    lines = (
        f"{n}\t{w}\t_\t{w[2:].upper()}\t{w[:2]}" + "\t_" * 4 + f"\tname={'B-X' if w[2:3] == 'd' else 'O'}\n"
        for words in sentences(count, seed) for n, w in enumerate([*words, "."], 1)
    )  # fmt: skip
    text = "".join(f"\n{line}" if line.startswith("1\t") else line for line in lines)
    path.write_text(text.replace("\t.\t_\t\t", "\t.\t_\tPUNCT\tZ"), encoding="utf-8")


@pytest.fixture
def dane(tmp_path: Path) -> Path:
    for seed, part in enumerate(("train", "dev", "test")):
        conllu(tmp_path / f"ddt.{part}.conllu", 30, seed)
    return tmp_path


def test_columns_are_chosen_by_the_name(dane: Path) -> None:
    names = {
        f"tag:{dane}": ("tag:ddt-pos", "accuracy", 6), f"tag:{dane}#XPOS": ("tag:ddt-xpos", "accuracy", 5),
        f"TAG:{dane / 'ddt.dev.conllu'}#ner": ("tag:ddt-ner", "entity_f1", 2),
    }  # fmt: skip
    suite = tasks.load(SPEC.model_copy(update={"names": tuple(names)}), dane / "cache")
    for task, wanted in zip(suite.tasks, names.values(), strict=True):
        assert isinstance(task, Tagging) and (task.name, task.metric, task.known) == wanted
    (dane / "a#b.txt").write_text("".join(f"a{n} A\nb B\n\n" for n in range(60)), encoding="utf-8")
    assert load(dane / "a#b.txt").name == "tag:a#b"
    assert load(f"{dane}/a#b.txt#2").name == "tag:a#b-2"


def test_named_sets_are_read_from_their_folder(dane: Path, tmp_path: Path) -> None:
    spec = SPEC.model_copy(update={"names": ("NER-DaNE",), "tagging": str(dane)})
    (task,) = tasks.load(spec, tmp_path / "cache").tasks
    assert (task.name, task.suite, task.metric) == ("ner-dane", "tagging", "entity_f1")
    (tmp_path / "sets" / "conll2003").mkdir(parents=True)
    for seed, name in enumerate(("eng.train", "eng.testa", "eng.testb")):
        write(tmp_path / "sets" / "conll2003" / name, sentences(30, seed), as_spans)
    both = SPEC.model_copy(update={"names": ("conll2003",), "tagging": str(tmp_path / "sets")})
    (task,) = tasks.load(both, tmp_path / "cache").tasks
    assert task.name == "conll2003" and tasks.local(both)
    (tmp_path / "sets" / "conll2003" / "eng.testa").unlink()
    for wrong in (both, SPEC.model_copy(update={"names": ("conll2003",)}),
                  SPEC.model_copy(update={"names": ("ner-dane",), "tagging": str(tmp_path / "sets")})):  # fmt: skip
        with pytest.raises(InputError, match=r"is not available: --set tasks.tagging=DIR must name a folder with"):
            tasks.load(wrong, tmp_path / "cache")
    assert set(tagging.NAMED) <= {row["name"] for row in tasks.known() if row["suite"] == "tagging"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tag:", "give a file or folder of tagged sentences"), ("tag:nowhere.conll", "there is no such file"),
        ("tag:nowhere#ner", "there is no such file"),
    ],
)  # fmt: skip
def test_what_is_no_set_is_refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tasks.load(SPEC.model_copy(update={"names": (name,)}))


# ---- Scores of tagging against seqeval and scikit-learn ----


def read_columns(text: str) -> tuple[list[list[str]], list[list[str]]]:
    blocks = [[line.split(" ") for line in block.split("\n") if line] for block in text.split("\n\n") if block.strip()]
    return [[row[1] for row in block] for block in blocks], [[row[2] for row in block] for block in blocks]


SPANS = ("B-A", "B-B", "I-A", "I-B", "O")

ROWS = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=9), min_size=1, max_size=6
)


@settings(deadline=None, max_examples=50)
@given(rows=ROWS)
def test_span_scores_are_seqevals_to_the_last_digit(rows: list[list[tuple[int, int]]]) -> None:
    seqeval = pytest.importorskip("seqeval.metrics", reason="seqeval is not installed")
    gold = Tagged([["w"] * len(row) for row in rows], [[true for true, _ in row] for row in rows])
    task = Tagging("n", SPANS, 5, "IOB2", gold, {"test": gold})
    predicted = np.array([guess for row in rows for _, guess in row])
    found = points(task, gold, predicted)
    true, guess = read_columns(columns(task, gold, predicted))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # F1 is undefined where there are no spans
        wanted = [f(true, guess) for f in (seqeval.f1_score, seqeval.precision_score, seqeval.recall_score,
                                           seqeval.accuracy_score)]  # fmt: skip
        report = seqeval.classification_report(true, guess, output_dict=True)
    assert list(found) == ["entity_f1", "entity_precision", "entity_recall", "accuracy"]
    assert list(found.values()) == [100 * value for value in wanted]
    types = by_type(task, gold, predicted)
    assert set(types) == set(report) - {"micro avg", "macro avg", "weighted avg"}
    for kind, values in types.items():
        other = report[kind]
        assert values["gold"] == other["support"]
        for ours, theirs in (("f1", "f1-score"), ("precision", "precision"), ("recall", "recall")):
            assert values[ours] == 100 * other[theirs]


@settings(deadline=None, max_examples=50)
@given(rows=ROWS)
def test_scores_of_words_are_scikit_learns_to_the_last_digit(rows: list[list[tuple[int, int]]]) -> None:
    from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

    gold = Tagged([["w"] * len(row) for row in rows], [[true for true, _ in row] for row in rows])
    task = Tagging("n", ("C", "D", "E", "A", "B"), 3, "", gold, {"test": gold})  # two tags occur in tests only
    predicted = np.array([guess % 3 for row in rows for _, guess in row])
    found = points(task, gold, predicted)
    true, guess = ([tag for tags in side for tag in tags] for side in read_columns(columns(task, gold, predicted)))
    macro = f1_score(true, guess, average="macro", zero_division=0)
    assert found == {"accuracy": 100 * accuracy_score(true, guess), "macro_f1": 100 * macro}
    types = by_type(task, gold, predicted)
    each = precision_recall_fscore_support(true, guess, labels=list(types), zero_division=0)
    for (values, *numbers), name in zip(zip(types.values(), *each, strict=True), types, strict=True):
        right = [100 * number for number in numbers[:3]]
        assert [values["precision"], values["recall"], values["f1"]] == pytest.approx(right), name
        assert values["gold"] == numbers[3]


def test_blanks_of_a_word_do_not_make_columns() -> None:
    rows = Tagged([["10 000", "a"], ["b"]], [[0, 1], [1]])
    task = Tagging("n", ("A", "B"), 2, "", rows, {"test": rows})
    assert columns(task, rows, np.array([0, 0, 1])) == "10_000 A A\na B A\n\nb B B\n\n"


def test_baselines_are_the_most_frequent_tags(tmp_path: Path) -> None:
    train = Tagged([["a", "b", "a"], ["a", "c", "c"]], [[0, 1, 0], [1, 1, 1]])
    test = Tagged([["a", "c", "d"]], [[0, 1, 0]])
    task = Tagging("n", ("A", "B"), 2, "", train, {"test": test})
    assert task.baselines(tmp_path) == pytest.approx({"majority": 100 / 3, "word-lookup": 200 / 3})
    assert task.baselines(tmp_path) == pytest.approx({"majority": 100 / 3, "word-lookup": 200 / 3})  # from the cache


# ---- Sets of tagged sentences: what is unusual is counted, and what is unseen is an error ----


def test_what_is_unusual_is_counted_and_named(tmp_path: Path) -> None:
    (tmp_path / "xx-train.conll").write_text("a O\nb B-X\n\nc I-X\nd O\n\n# sent_id = 3\n\n", encoding="utf-8")
    (tmp_path / "xx-test.conll").write_text("a O\nb B-X\n\ne B-Y\nf I-Y\ng I-X\n\n", encoding="utf-8")
    task = load(tmp_path / "xx-train.conll")
    assert task.notes == (
        "xx-test.conll, first at line 6: 1 tag does not follow IOB2 (I-X), read as conlleval reads them",
        "xx-train.conll, first at line 7: 1 sentence without words, left out",
        "xx-train.conll, first at line 4: 1 tag does not follow IOB2 (I-X), read as conlleval reads them",
        "xx-test.conll, first at line 4: 2 words of test have tags that no training word has (B-Y, I-Y), counted as "
        "errors",
        "xx-test.conll, first at line 1: 1 of 2 sentences of test is also a training sentence, word by word",
    )
    assert task.labels == ("B-X", "O", "B-Y", "I-Y") and task.known == 2
    assert sum(map(len, task.tests["test"].targets)) == 5  # the gold standard keeps every word


def test_a_dev_file_that_is_trained_on_is_named(tmp_path: Path) -> None:
    (tmp_path / "xx-dev.conll").write_text("a O\nb B-X\n\n", encoding="utf-8")
    (tmp_path / "xx-test.conll").write_text("c O\nb B-X\n\n", encoding="utf-8")
    assert load(tmp_path / "xx-dev.conll").notes == ("xx-dev.conll is trained on, as there is no training file",)
    (tmp_path / "xx-train.conll").write_text("d O\nb B-X\n\n", encoding="utf-8")
    assert load(tmp_path / "xx-dev.conll").notes == ()


def test_tags_that_training_lacks_are_errors(encoder: Path) -> None:
    task = task_of(100, 5)
    unseen = Tagged(task.tests["test"].words, [[5] * len(words) for words in task.tests["test"].words])
    with_unseen = replace(task, labels=(*task.labels, "ZZ"), tests={"test": unseen})
    score = take(with_unseen, Model(encoder, SPEC, 0), CPU)
    assert score.value == 0.0 and " ZZ ZZ" not in score.files[".test.conll"]


@pytest.mark.parametrize(
    ("name", "labels", "lookup"),
    [("ud_czech_cltt", 15, 85.0), ("ud_danish_ddt", 16, 78.6), ("uner_danish_ddt", 7, 38.3)],
)
def test_real_sentences(name: str, labels: int, lookup: float, real_data: Path, encoder: Path, tmp_path: Path) -> None:
    if not (real_data / name).is_dir():
        pytest.skip("the tagged sentences are not here")
    spec = SPEC.model_copy(update={"names": (f"tag:{real_data / name}",), "rows": 40, "epochs": 1.0})
    (task,) = tasks.load(spec, tmp_path).tasks
    assert isinstance(task, Tagging) and task.known == labels
    (whole,) = tasks.load(spec.model_copy(update={"rows": None}), tmp_path).tasks
    assert whole.baselines(tmp_path)["word-lookup"] == pytest.approx(lookup, abs=0.1)
    few = limited(replace(task, tests={"test": task.tests["test"].take(list(range(30)))}), spec)
    score = take(few, Model(encoder, spec, 0), CPU)
    assert score.test_rows == sum(len(words) for words in few.tests["test"].words)


# ---- Tagging as plain data: what its name follows, and which sentences are held out ----


def test_settings_that_change_a_score_change_its_name() -> None:
    task = task_of(20, 7)
    names = {
        name
        for spec in (SPEC, SPEC.model_copy(update={"lr": 1e-4}), SPEC.model_copy(update={"lm_weight": 0.5}))
        for _, _, name in expected(tasks.Suite((task,)), spec)
    }
    assert len(names) == 2 * SPEC.seeds  # lm_weight concerns texts


def test_rows_and_held_out_sentences_are_chosen_once_for_all(folder: Callable[..., Path]) -> None:
    path = folder(by_end)
    few, all_rows = (load(path, SPEC.model_copy(update={"rows": rows})) for rows in (50, None))
    assert len(few.train) == 50 and few.tests == all_rows.tests and few.fingerprint != all_rows.fingerprint
    assert load(path, SPEC.model_copy(update={"rows": 50})) == few
    aside = load(path, SPEC.model_copy(update={"held_out": 0.2}))
    assert [(part, len(rows)) for part, rows in aside.tests.items()] == [("held-out", 40)] and len(aside.train) == 160
    assert sorted(aside.train.words + aside.tests["held-out"].words) == sorted(all_rows.train.words)


def test_a_long_sentence_is_read_whole(encoder: Path) -> None:
    task = replace(
        task_of(100, 4, 40), tests={"test": Tagged([WORDS * 20], [[WORDS.index(w) % 5 for w in WORDS * 20]])}
    )
    score = take(task, Model(encoder, SPEC, 0), CPU)
    assert score.test_rows == 400 and score.details["windows"]["test"] > 20
    assert score.value > 90 and score.files[".test.conll"].count("\n") == 401


def test_parts_of_speech_are_learned(encoder: Path, folder: Callable[..., Path]) -> None:
    path = folder(by_end)
    task = load(path)
    score = take(task, Model(encoder, SPEC, 0), CPU)
    assert (task.name, task.scheme, task.metric, list(score.values)) == ("tag:toy", "", "accuracy", ["test", "dev"])
    assert score.value == score.values["test"]["accuracy"] > 95
    assert score.baselines["word-lookup"] == 100.0 and 15 < score.baselines["majority"] < 40
    counts = [sum(map(len, rows.words)) for rows in (task.train, task.tests["test"])]
    assert [score.train_rows, score.test_rows] == counts
    assert score.steps == (8 * -(-200 // 16)) and score.details["read_at"] == "first piece of each word"


def test_spans_are_learned_from_their_context(encoder: Path, folder: Callable[..., Path]) -> None:
    """Whether a word in `fe` goes on with a span depends on the words before it, which a look-up does not see."""
    task = load(folder(as_spans, 400), TasksSpec(epochs=15.0, **SPEC.model_dump(exclude={"epochs", "names"})))
    score = take(task, Model(encoder, SPEC.model_copy(update={"epochs": 15.0}), 0), CPU)
    assert (task.scheme, task.metric) == ("IOB2", "entity_f1") and score.details["scheme"] == "IOB2"
    assert score.value > max(score.baselines.values()) + 5


def test_a_causal_encoder_reads_a_word_at_its_last_piece(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2Model, PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel()
    made.train_from_iterator(["a b"], trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<s>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    ))  # fmt: skip
    PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<s>", pad_token="<s>").save_pretrained(tmp_path)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {"n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2, "initializer_range": 0.2}
        GPT2Model(GPT2Config(vocab_size=len(made.get_vocab()), **sizes)).save_pretrained(tmp_path)
    score = take(task_of(200, 3), Model(tmp_path, SPEC, 0), CPU)
    assert score.details["read_at"] == "last piece of each word"
    assert score.value > 90  # the tag is the end of the word, which the state of its first piece does not see


def test_outputs_that_are_not_finite_are_no_predictions(electra: Callable[..., Path]) -> None:
    with pytest.raises(Diverged, match="not finite"):
        take(task_of(20, 3), Model(electra(initializer_range=1e30), SPEC, 0), CPU)
    model = tagger.Tagger(load_encoder(electra(), 0.0), 5, 0.0).eval()
    torch.nn.init.constant_(model.head.bias, float("inf"))
    data = word_windows(open_splitter(electra(), 16, "tagging"), [["bada"]], last=False)
    with pytest.raises(Diverged, match="the outputs after fine-tuning on toy are not finite"):
        tagger.predict(model, data, "cpu", "toy")
    with pytest.raises(InputError, match="pieces of a text fit into a row, and tagging needs 4"):
        take(task_of(20, 3), Model(electra(max_position_embeddings=5), SPEC, 0), CPU)


def test_words_without_pieces_are_counted_and_predicted(encoder: Path) -> None:
    task = task_of(40, 6)
    words = [["\u200d", *each] for each in task.tests["test"].words]
    test = Tagged(words, [[0, *targets] for targets in task.tests["test"].targets])
    score = take(replace(task, tests={"test": test}), Model(encoder, SPEC, 0), CPU)
    assert score.details["words_without_pieces"] == {"train": 0, "test": 40}
    assert score.test_rows == sum(map(len, test.words))
    assert score.details["notes"] == [
        "40 of the words have no pieces in this tokenizer and are read as the unknown token"
    ]


# ---- Words in windows: every word is read once, at its own piece ----


class Plain:
    """A slow tokenizer: a piece for each letter, and none for a word of `x`."""

    is_fast = False
    unk_token_id, eos_token_id, bos_token_id, pad_token_id = 1, None, None, 0

    def __call__(self, texts: Any, add_special_tokens: bool = True, verbose: bool = True) -> dict[str, Any]:
        return {"input_ids": [[ord(letter) for letter in text if letter not in "x "] for text in texts]}


WORD = st.text(alphabet="abcx", min_size=1, max_size=9)


@settings(deadline=None, max_examples=80)
@given(
    texts=st.lists(st.lists(WORD, min_size=1, max_size=30), min_size=1, max_size=4),
    room=st.integers(SHORTEST, 24), last=st.booleans(),
)  # fmt: skip
def test_every_word_is_read_once_at_its_own_piece(texts: list[list[str]], room: int, last: bool) -> None:
    splitter = Splitter(Path("x"), Plain(), (2,), (3,), room, 1)
    data = word_windows(splitter, texts, last)
    words = [word for each in texts for word in each]
    read = np.concatenate([numbers for _, numbers in data.places])
    assert data.count == len(words) and sorted(read.tolist()) == list(range(len(words)))
    assert data.empty == sum(set(word) == {"x"} for word in words)
    for ids, (positions, numbers) in zip(data.rows.ids, data.places, strict=True):
        assert len(positions) and len(ids) <= room + 2 and (ids[0], ids[-1]) == (2, 3)
        for position, number in zip(positions, numbers, strict=True):
            letters = words[number].replace("x", "")
            assert ids[position] == (ord(letters[-last]) if letters else 1)
            if room >= 8:  # with context on both sides, unless the sentence ends there
                assert position > 1 or number == 0 or ids[1] == ids[position]


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(
        st.lists(st.sampled_from([*WORDS, "\u200d", "日本"]), min_size=1, max_size=40), min_size=1, max_size=3
    )
)
def test_batches_hold_each_words_state(texts: list[list[str]], encoder: Path) -> None:
    data = word_windows(open_splitter(encoder, 16, "tagging"), texts, last=False)
    rows = np.arange(len(data.rows))[::-1]
    inputs, places, numbers = data.batch(rows, "cpu")
    ids = inputs["input_ids"].flatten()[places].tolist()
    firsts = {n: data.rows.ids[r][p] for r, where in enumerate(data.places) for p, n in zip(*where, strict=True)}
    assert ids == [firsts[number] for number in numbers]
