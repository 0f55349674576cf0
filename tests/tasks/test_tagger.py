"""Tagging: each word is read once, what is learned, and scores that other scorers give to the last digit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tagged_made import CPU, SPEC, WORDS, as_spans, by_end, load, task_of

from workbench.errors import Diverged, InputError
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.store.run_directory import RunDir
from workbench.tasks import _tagger as tagger
from workbench.tasks._tagger import word_windows
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.encoder_folders import load_encoder
from workbench.tasks.common.examples import Tagged
from workbench.tasks.common.fine_tuning import Unfinished
from workbench.tasks.common.token_rows import SHORTEST, Splitter, open_splitter
from workbench.tasks.tagging import fingerprinted

# ---- alignment ----


def test_a_long_sentence_is_read_whole(encoder: Path) -> None:
    task = replace(
        task_of(100, 4, 40), tests={"test": Tagged([WORDS * 20], [[WORDS.index(w) % 5 for w in WORDS * 20]])}
    )
    score = take(fingerprinted(task, SPEC), Model(encoder, SPEC, 0), CPU)
    assert score.test_rows == 400 and score.details["windows"]["test"] > 20
    assert score.value > 90 and score.files[".test.conll"].count("\n") == 401


# ---- learning ----


def test_parts_of_speech_are_learned(encoder: Path, folder: Callable[..., Path]) -> None:
    path = folder(by_end)
    task = load(path)
    score = take(task, Model(encoder, SPEC, 0), CPU)
    assert (task.name, task.scheme, task.metric, list(score.values)) == ("tag:toy", "", "accuracy", ["test", "dev"])
    assert score.value == score.values["test"]["accuracy"] > 95
    assert score.baselines["word-lookup"] == 100.0 and 15 < score.baselines["majority"] < 40
    assert (score.train_rows, score.test_rows) == (task.train.count(), task.tests["test"].count())
    assert score.steps == (8 * -(-200 // 16)) and score.details["read_at"] == "first piece of each word"
    again = take(task, Model(encoder, SPEC, 0), CPU)
    assert replace(again, seconds=0) == replace(score, seconds=0)
    assert take(task, Model(encoder, SPEC, 1), CPU).files != score.files or score.value == 100


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


def test_an_interrupted_fine_tuning_goes_on_exactly(encoder: Path, tmp_path: Path) -> None:
    task, spec = task_of(60, 8), SPEC.model_copy(update={"dropout": 0.1, "epochs": 2.0})
    (tmp_path / "run").mkdir()
    state = Unfinished(RunDir(tmp_path / "run"), "a.json", {"encoder": "0"})

    def stop(step: int, steps: int) -> None:
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take(task, Model(encoder, spec, 0, stop, state), Host(device="cpu", threads=1, save_every=2))
    rest: list[int] = []
    score = take(task, Model(encoder, spec, 0, lambda step, _: rest.append(step), state), CPU)
    assert rest == [5, 6, 7, 8]
    assert replace(score, seconds=0) == replace(take(task, Model(encoder, spec, 0), CPU), seconds=0)
    assert score.peak_memory_bytes


def test_outputs_that_are_not_finite_are_no_predictions(electra: Callable[..., Path]) -> None:
    with pytest.raises(Diverged, match="not finite"):
        take(task_of(20, 3), Model(electra(initializer_range=1e30), SPEC, 0), CPU)
    config = (model := tagger.Tagger(load_encoder(electra(), 0.0), 5, 0.0).eval()).encoder.config
    torch.nn.init.constant_(model.head.bias, float("inf"))
    data = word_windows(open_splitter(electra(), config, 16, "tagging"), [["bada"]], last=False)
    with pytest.raises(Diverged, match="the outputs after fine-tuning on toy are not finite"):
        tagger.predict(model, data, "cpu", "toy")
    with pytest.raises(InputError, match="pieces of a text fit into a row, and tagging needs 4"):
        take(task_of(20, 3), Model(electra(max_position_embeddings=5), SPEC, 0), CPU)


# ---- scores ----


# ---- data ----


def test_words_without_pieces_are_counted_and_predicted(encoder: Path) -> None:
    task = task_of(40, 6)
    words = [["\u200d", *each] for each in task.tests["test"].words]
    test = Tagged(words, [[0, *targets] for targets in task.tests["test"].targets])
    score = take(fingerprinted(replace(task, tests={"test": test}), SPEC), Model(encoder, SPEC, 0), CPU)
    assert score.details["words_without_pieces"] == {"train": 0, "test": 40} and score.test_rows == test.count()
    assert score.details["notes"] == [
        "40 of the words have no pieces in this tokenizer and are read as the unknown token"
    ]


# ---- names ----


# ---- Words in windows: every word is read once, at its own piece ----


class Plain:
    """A slow tokenizer: a piece for each letter, and none for a word of `x`."""

    is_fast = False
    unk_token_id, eos_token_id, bos_token_id, pad_token_id = 1, None, None, 0

    def __call__(self, texts: Any, add_special_tokens: bool = True, verbose: bool = True) -> dict[str, Any]:
        return {"input_ids": [[ord(letter) for letter in text if letter not in "x "] for text in texts]}


WORD = st.text(alphabet="abcx", min_size=1, max_size=9)


@settings(deadline=None, max_examples=150)
@given(
    texts=st.lists(st.lists(WORD, min_size=1, max_size=30), min_size=1, max_size=4),
    room=st.integers(SHORTEST, 24), last=st.booleans(),
)  # fmt: skip
def test_every_word_is_read_once_at_its_own_piece(texts: list[list[str]], room: int, last: bool) -> None:
    splitter = Splitter(Path("x"), Plain(), (2,), (3,), room)
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
    config = load_encoder(encoder, 0.0).config
    data = word_windows(open_splitter(encoder, config, 16, "tagging"), texts, last=False)
    rows = np.arange(len(data.rows))[::-1]
    inputs, places, numbers = data.batch(rows, "cpu")
    ids = inputs["input_ids"].flatten()[places].tolist()
    firsts = {n: data.rows.ids[r][p] for r, where in enumerate(data.places) for p, n in zip(*where, strict=True)}
    assert ids == [firsts[number] for number in numbers]
