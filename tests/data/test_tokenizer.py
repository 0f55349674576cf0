"""Trained vocabularies: the same on every run and machine, readable without workbench."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import process
from workbench.data import built_in_text, tokenizer
from workbench.errors import InputError
from workbench.spec.parts import DataSpec


@pytest.fixture(scope="module")
def texts(workbench_cache: Path) -> list[str]:
    """Some English with letters that are rare and equally so, where the order of a hash table would show."""
    rare = " ".join(chr(code) for code in range(0x391, 0x3C9)) + " Ærø Øst Łódź 東京 ½ → ™"
    return [entry.text for entry in built_in_text.entries("train")[:400]] + [rare]


@pytest.fixture(scope="module")
def folder(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer.train_or_load(DataSpec(), 2000, texts, cache=tmp_path_factory.mktemp("tokenizers"))


def test_frequent_words_are_tokens_and_rare_letters_unknown(folder: Path):
    fast = tokenizer.fast(folder)
    for word in ("the", "return", "function"):
        assert fast.encode(word.upper(), add_special_tokens=False).tokens == [word]
    assert fast.encode("Ḃ क", add_special_tokens=False).tokens[-1] == "[UNK]"


def test_special_tokens_in_a_text_are_text(folder: Path):
    found = tokenizer.fast(folder).encode("the [MASK] [SEP]", add_special_tokens=False).ids
    assert min(found) > 4


LOAD = """
import json, sys
sys.modules["workbench"] = None  # to import it is an error from here on
from transformers import AutoTokenizer
t = AutoTokenizer.from_pretrained(sys.argv[1])
pair = t("The function returns.", "It is a list.")
print(json.dumps([t.mask_token_id, t.pad_token_id, t.convert_ids_to_tokens(pair["input_ids"]), pair["token_type_ids"],
                  t.decode(pair["input_ids"], skip_special_tokens=True)]))
"""


def test_transformers_loads_it_without_workbench(folder: Path, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOAD, str(folder)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    mask, pad, tokens, types, text = json.loads(done.stdout)
    assert (mask, pad) == (4, 0)
    first = tokens.index("[SEP]") + 1
    assert tokens[0] == "[CLS]" and tokens[-1] == "[SEP]"
    assert types == [0] * first + [1] * (len(tokens) - first)
    assert text.replace(" ", "") == "thefunctionreturns.itisalist."


def test_a_folder_or_an_exported_tokenizer_serves_as_well(folder: Path, tmp_path: Path):
    tokenizer.load(folder).save_pretrained(str(tmp_path / "exported"))
    spec = DataSpec(tokenizer=str(tmp_path / "exported"))
    again = tokenizer.train_or_load(spec, 9, [], cache=tmp_path / "cache")
    assert tokenizer.content(again) == tokenizer.content(folder)
    assert tokenizer.special(again) == tokenizer.special(folder)
    assert again == tokenizer.train_or_load(spec, 9, [], cache=tmp_path / "cache")


def test_a_size_beyond_all_words_is_harmless():
    """The trainer reserves memory for as many tokens as it is asked for."""
    assert 10 < tokenizer.train(["the cat sat on the mat and the cat " * 20], 2**32).get_vocab_size() < 60


def test_the_cache_is_used_and_keyed(texts: list[str], tmp_path: Path):
    def unread() -> Any:
        raise AssertionError("documents were read although the vocabulary is there")
        yield

    first = tokenizer.train_or_load(DataSpec(), 1000, texts, "k", tmp_path)
    assert tokenizer.train_or_load(DataSpec(), 1000, unread(), "k", tmp_path) == first
    for spec, vocab, key in ((DataSpec(), 1001, "k"), (DataSpec(lowercase=False), 1000, "k"), (DataSpec(), 1000, "l")):
        assert tokenizer.train_or_load(spec, vocab, texts, key, tmp_path) != first
    assert not [leaf for leaf in (tmp_path / "tokenizers").iterdir() if leaf.name.startswith(".")]


@pytest.mark.parametrize("name", ["/dev/null", "a/folder/that/is/nowhere", "./words.json"])
def test_a_file_or_what_is_no_name_on_the_hub_is_refused_without_asking_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "transformers", None)  # which asks the hub, for a minute without a network
    with pytest.raises(InputError, match="nor the folder of a tokenizer, nor can it be a name on the hub; choose"):
        tokenizer.train_or_load(DataSpec(tokenizer=name), 9, [], "k", tmp_path)


@pytest.mark.parametrize(
    ("spec", "vocab", "words"),
    [
        (DataSpec(), 3, "encoder.vocab=3"),
        (DataSpec(), 60, "encoder.vocab=60 is too small"),
        (DataSpec(), 2**32 + 1, "encoder.vocab=4294967297"),
        (DataSpec(tokenizer="no/name"), 9, "'no/name' is neither 'wordpiece' nor 'bpe' nor 'unigram' nor a tok"),
        (DataSpec(tokenizer="wordpeice"), 9, "'wordpeice' is neither 'wordpiece' nor 'bpe' nor 'unigram' nor a tok"),
    ],
)
def test_what_cannot_be(
    spec: DataSpec, vocab: int, words: str, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError) as caught:
        tokenizer.train_or_load(spec, vocab, texts, "k", tmp_path)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert not list(tmp_path.glob("tokenizers/*"))


def test_an_empty_folder_is_no_tokenizer(tmp_path: Path):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match="nothing holds no tokenizer"):
        tokenizer.train_or_load(DataSpec(tokenizer=str(tmp_path / "nothing")), 9, [], cache=tmp_path)


@pytest.mark.parametrize(("largest", "refused"), [(99, False), (100_000, True), (2**31, True)])
def test_ids_with_large_gaps_are_refused(folder: Path, tmp_path: Path, largest: int, refused: bool) -> None:
    """Each id up to the largest would get a row of weights."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    words = json.loads((tmp_path / "tokenizer.json").read_text())
    vocabulary = words["model"]["vocab"]
    vocabulary[next(reversed(vocabulary))] = max(largest, len(vocabulary))
    (tmp_path / "tokenizer.json").write_text(json.dumps(words))
    load = functools.partial(tokenizer.train_or_load, DataSpec(tokenizer=str(tmp_path)), 9, [], cache=tmp_path)
    if refused:
        with pytest.raises(InputError, match=f"tokens with ids up to {largest:,}, and an encoder has weights for ev"):
            load()
    else:
        load()


def test_a_tokenizer_without_mask_is_refused(folder: Path, tmp_path: Path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    del config["mask_token"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="no mask token"):
        tokenizer.special(tmp_path)


@given(
    st.lists(st.text(st.sampled_from("ab cd\n.é\u0301東\t\x1c\u2028[SEP]"), max_size=60), max_size=6), st.integers(1, 9)
)
@settings(max_examples=200, deadline=None)
def test_pieces_give_the_same_tokens_as_the_whole(folder: Path, lines: list[str], length: int):
    document = "\n".join(lines)
    parts = list(tokenizer.pieces(document, length))
    assert "".join(parts) == document
    fast = tokenizer.fast(folder)
    encoded = [number for part in parts for number in fast.encode(part, add_special_tokens=False).ids]
    assert encoded == fast.encode(document, add_special_tokens=False).ids


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(50, 2000))
@settings(max_examples=100, deadline=None)
def test_a_sample_is_spread_evenly(sizes: list[int], limit: int):
    documents = [f"{number} " * size for number, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer, "PIECE", 40)
        whole = [piece for document in documents for piece in tokenizer.pieces(document, 40)]
        kept = tokenizer.sample(documents, limit)
    total = sum(map(len, whole))
    if total <= limit:
        assert kept == whole
    else:
        assert sum(map(len, kept)) <= limit or len(kept) == 1
        assert any(kept == whole[::step] for step in (2**power for power in range(20)))
        assert sum(map(len, kept)) >= limit / 2 - 200 or len(kept) <= 2


def test_a_vocabulary_is_not_trained_in_too_few_addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limit = process.FOR_TEXT
    monkeypatch.setattr(process.resource, "getrlimit", lambda _: (limit, limit))
    texts = ["some words of a text"]
    with pytest.raises(InputError, match=r"training a vocabulary on this text needs 0\.7 GB or more"):
        tokenizer.train_or_load(DataSpec(), 200, texts, cache=tmp_path)
    limit += tokenizer.TRAINING * sum(map(len, texts))
    assert tokenizer.train_or_load(DataSpec(), 200, texts, cache=tmp_path).is_dir()
