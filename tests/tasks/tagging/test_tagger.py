"""Tagging: each word is read once, what is learned, and scores that other scorers give to the last digit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
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
from workbench.tasks.common.token_rows import open_splitter
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
