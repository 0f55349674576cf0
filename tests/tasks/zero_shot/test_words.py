"""Which tokens are of one word, for tokenizers that split a text in many ways or not at all; one of them by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pair_runs import CPU
from test_published_scorer import GOOD, SIZES, pairs, write
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks._preferences import Tokenized
from workbench.tasks.common.contract import Model, take
from workbench.tasks.minimal_pairs import pair_set

TEXTS = ["It's naïve of the caterpillar,  is it?", "the\tcat overestimates a 🤗 there", "Caterpillars!", "the cat the"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MARK = normalizers.Replace(" ", "\u2581")
BLANKS: dict[str, tuple[Any, Any]] = {  # a normaliser and a pre-tokenizer, none of which splits words further
    "mark, nothing splits": (MARK, None),
    "mark, split at blanks of which none is left": (MARK, pre_tokenizers.Split(" ", "merged_with_previous")),
    "mark before the text too": (normalizers.Sequence([MARK, normalizers.Prepend("\u2581")]), None),
    "nothing": (None, None),
    "bytes that nothing splits": (None, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)),
    "bytes after a blank": (None, pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False, trim_offsets=False)),
    "blanks at the end of words": (None, pre_tokenizers.Split(Regex(".+"), "isolated")),
    "metaspace": (None, pre_tokenizers.Metaspace()),
    "metaspace that splits nothing": (None, pre_tokenizers.Metaspace(split=False)),
}
OWN: dict[str, Any] = {  # with more words than those between blanks
    "bert": pre_tokenizers.BertPreTokenizer(),
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "digits": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits()]),
}


def save(folder: Path, normalizer: Any, splitter: Any, texts: list[str] = TEXTS, size: int = 90) -> Path:
    """Write a byte-pair vocabulary of these texts, of which many words have several tokens."""
    words = Tokenizer(models.BPE(unk_token="[UNK]"))
    if normalizer is not None:
        words.normalizer = normalizer
    if splitter is not None:
        words.pre_tokenizer = splitter
    each = [f"{before}{word}" for text in texts for word in text.split() for before in ("", " ")]
    words.train_from_iterator(each, trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False))
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    words.decoder = decoders.Fuse()
    names = {f"{name.strip('[]').lower()}_token": name for name in SPECIAL}
    PreTrainedTokenizerFast(tokenizer_object=words, **names).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", BLANKS)
def test_words_are_between_blanks_where_the_tokenizer_splits_no_further(name: str, tmp_path: Path) -> None:
    found = Tokenized(save(tmp_path / "t", *BLANKS[name]), TEXTS, 60)
    loaded = PreTrainedTokenizerFast.from_pretrained(tmp_path / "t")
    for text, words, encoding in zip(TEXTS, found.words, loaded(TEXTS).encodings, strict=True):
        spans = [match.span() for match in re.finditer(r"\S+", text)]
        by_word: dict[int, set[int]] = {}
        for word, (start, end) in zip(words, encoding.offsets, strict=True):
            if word >= 0 and text[start:end].strip():
                first = start + len(text[start:end]) - len(text[start:end].lstrip())
                by_word.setdefault(word, set()).add(next(n for n, (a, b) in enumerate(spans) if a <= first < b))
        assert list(by_word.values()) == [{number} for number in range(len(spans))]
        assert [word < 0 for word in words] == [id in (2, 3) for id in encoding.ids]


@pytest.mark.parametrize("name", OWN)
def test_words_are_those_of_the_tokenizer_where_no_blank_is_within_one(name: str, tmp_path: Path) -> None:
    found = Tokenized(save(tmp_path / "t", None, OWN[name]), TEXTS, 60)
    encodings = PreTrainedTokenizerFast.from_pretrained(tmp_path / "t")(TEXTS).encodings
    assert found.words == [[-1 if word is None else word for word in each.word_ids] for each in encodings]


def test_a_mark_that_is_a_token_by_itself_begins_the_word_after_it(tmp_path: Path) -> None:
    """The tokens are those of a vocabulary of single characters."""
    words = Tokenizer(models.BPE({**{name: n for n, name in enumerate(SPECIAL)}, "\u2581": 5, "a": 6, "b": 7}, []))
    words.normalizer = MARK
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(tmp_path)
    assert Tokenized(tmp_path, ["ab ba a"], 60).words == [[0, 0, 1, 1, 1, 2, 2]]


CHINESE = ["我喜欢吃苹果和香蕉", "他昨天去了北京大学"]


@pytest.mark.parametrize("splitter", [None, pre_tokenizers.Metaspace(), pre_tokenizers.ByteLevel()])
def test_text_without_blanks_is_refused_unless_the_tokenizer_finds_words(splitter: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write(folder, "BertForMaskedLM", **SIZES)
    task = pair_set("toy", "minimal-pairs", CHINESE, CHINESE[::-1], {"paradigm": ["a"] * 2})
    by_word = TasksSpec(scorers=("pll-word-l2r",))
    assert take(task, Model(folder, by_word, 0), CPU).value == 50.0  # each character is a word of BERT's
    save(folder, None, splitter, GOOD, 34)
    with pytest.raises(
        InputError, match=r"tasks\.scorers=pll-word-l2r: the tokenizer of .* does not say where the wor"
    ):
        take(task, Model(folder, by_word, 0), CPU)
    assert take(task, Model(folder, TasksSpec(), 0), CPU).value == 50.0
    take(pairs(), Model(folder, by_word, 0), CPU)
