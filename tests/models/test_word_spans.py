"""Picks of whole words in spans: against a loop over rows, and how often each number of words is picked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from objective_oracle import CLS, SEP, synthetic, tiny

from workbench.data.tokenizer import save, train, word_starts
from workbench.models.corruption import UP_TO, WordStarts
from workbench.rng import uniform
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch

LENGTHS = (24, 7, 2, 15, 3, 23, 24, 24, 12, 24, 19, 4)
STARTS = np.arange(40) % 3 > 0  # a third of the tokens continue a word


def marked(spec: RunSpec) -> WordStarts:
    picker = WordStarts(spec)
    picker.table.copy_(torch.from_numpy(STARTS))
    return picker


def slow_picks(batch: Batch, spec: RunSpec, row: int, sizes: list[int], noise: list[float]) -> list[int]:
    """The picked positions of a row in their order, from the drawn sizes of spans and their random order."""
    ids = batch.ids[row].tolist()
    tokens = len(ids) if batch.attention is None else int(batch.attention[row].sum())
    words: list[list[int]] = []
    for place, token in enumerate(ids[:tokens]):
        if token in (CLS, SEP, spec.data.special.mask):
            continue
        if STARTS[token] or ids[place - 1] in (CLS, SEP, spec.data.special.mask):
            words.append([])
        words[-1].append(place)
    spans, left = [], words
    for size in sizes:
        spans.append(left[:size])
        left = left[size:]
    due, picked = spec.picked(tokens), list[int]()
    for _, span in sorted((noise[number], span) for number, span in enumerate(spans) if span):
        for word in span:
            if len(picked) + len(word) > due:
                return picked
            picked += word
    return picked


@pytest.mark.parametrize("pairs", [None, "order"])
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "padded"])
def test_picks_equal_a_loop_over_words(lengths: tuple[int, ...] | None, pairs: str | None) -> None:
    spec = tiny("bert-mlm", {"data.pairs": pairs})
    batch = synthetic(spec, rows=12, lengths=lengths)
    positions, weights = marked(spec)(batch)
    draws, noise = uniform(batch.keys, "spans", 24), uniform(batch.keys, "picks", 24)
    assert positions.shape == weights.shape == (12, spec.picks)
    for row in range(12):
        sizes = [1 + int(draw >= UP_TO[0]) + int(draw >= UP_TO[1]) for draw in draws[row].tolist()]
        expected = slow_picks(batch, spec, row, sizes, noise[row].tolist())
        assert positions[row][weights[row] > 0].tolist() == expected
        assert weights[row].tolist() == [1.0] * len(expected) + [0.0] * (spec.picks - len(expected))


def test_spans_of_one_two_and_three_words_are_as_frequent_as_in_the_paper() -> None:
    """Of long rows with few picks, so that no span is cut; a span's tokens follow each other."""
    spec = tiny("bert-mlm", {"encoder.positions": 512, "data.length": 512, "corruption.rate": 0.02})
    batch = synthetic(spec, rows=3000)
    positions, weights = WordStarts(spec)(batch)  # every token is a word
    assert weights.all()
    longer = (positions[:, 1:4] == positions[:, :1] + torch.arange(1, 4)).long().cumprod(1)  # of the first span
    sizes = 1 + longer.sum(1)
    shares = [(sizes == size).float().mean().item() for size in (1, 2, 3)]
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.03) and pytest.approx([6 / 11, 9 / 11, 1]) == UP_TO


def test_without_marks_every_token_is_a_word() -> None:
    spec = tiny("bert-mlm")
    batch = synthetic(spec, rows=50)
    _, weights = WordStarts(spec)(batch)
    assert weights.all()
    assert not marked(spec)(batch)[1].all(), "a word that does not fit leaves slots without a pick"


def test_words_begin_where_the_tokenizer_says(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    trained = train(["unbelievable believers believe , 42"] * 50, 60)
    save(trained, tmp_path, lowercase=True)
    starts = word_starts(tmp_path, 60)
    for token, number in trained.get_vocab().items():
        assert starts[number] == (not token.startswith("##")), token
    assert not starts.all() and word_starts(tmp_path / "none", 3).tolist() == [True] * 3

    bytes_ = Tokenizer(models.BPE(vocab={"a": 0, "Ġa": 1, "b": 2}, merges=[]))
    bytes_.pre_tokenizer, bytes_.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    for folder, tokenizer, expected in (
        ("bytes", bytes_, [False, True, False]),
        ("pieces", Tokenizer(models.Unigram([("\u2581a", -1.0), ("b", -2.0)], 1)), [True, False]),
        ("words", Tokenizer(models.WordLevel({"a": 0, "b": 1}, "a")), [True, True]),
    ):
        (tmp_path / folder).mkdir()
        tokenizer.save(str(tmp_path / folder / "tokenizer.json"))
        assert word_starts(tmp_path / folder, len(expected)).tolist() == expected
