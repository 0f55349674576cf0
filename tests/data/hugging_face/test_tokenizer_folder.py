"""The files of a tokenizer that others made, and what they say of it, before a library reads any of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import refused
from safetensors.numpy import save

from workbench.data.hugging_face import (
    MOST_GROWTH,
    NO_LIMIT,
    TOKENIZER_FILES,
    check_tokenizer_folder,
    kind_of_tokenizer,
    longest_text,
)
from workbench.data.model_files import INDEX, LARGEST_VOCABULARY, SINGLE
from workbench.errors import InputError

WORDS = {"model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}}, "added_tokens": [{"id": 0, "content": "[UNK]"}]}


def tokenizer(folder: Path, **files: Any) -> Path:
    """Write these files of JSON, by their names before the dot."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def refusal(folder: Path) -> str:
    return refused.refusal(folder, lambda: check_tokenizer_folder(folder))


def test_files_of_a_tokenizer_are_found_and_nothing_else(tmp_path: Path) -> None:
    tokenizer(
        tmp_path, tokenizer=WORDS, tokenizer_config={}, special_tokens_map={}, added_tokens={}, config={}, other={}
    )
    for name in ("merges.txt", "vocab.txt", "tokenizer.py", "chat_template.jinja"):
        (tmp_path / name).write_text("a")
    whole = tmp_path.resolve()
    names = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt",
             "vocab.txt"}  # fmt: skip
    assert check_tokenizer_folder(tmp_path) == {name: whole / name for name in names}
    assert names <= set(TOKENIZER_FILES)


@pytest.mark.parametrize(
    "name",
    ["tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "spm.model", "sentencepiece.bpe.model",
     "tokenizer.model"],
)  # fmt: skip
def test_one_vocabulary_is_enough(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(json.dumps(WORDS))
    assert list(check_tokenizer_folder(tmp_path)) == [name]


def test_a_folder_without_a_vocabulary_holds_no_tokenizer(tmp_path: Path) -> None:
    """A library would make an empty one up."""
    assert "tokenizer.json" in refusal(tmp_path / "gone")
    tokenizer(tmp_path, tokenizer_config={}, special_tokens_map={}, added_tokens={"a": 1})
    (tmp_path / "merges.txt").write_text("a b")
    (tmp_path / "tokenizer.json").mkdir()
    assert "tokenizer.json" in refusal(tmp_path)


def replaces(*contents: str) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": [{"type": "Replace", "content": content} for content in contents]}


@pytest.mark.parametrize(
    ("normalizer", "growth"),
    [
        (None, 1), ("a" * 999, 1), ({"type": "Lowercase"}, 1), ({"type": "Sequence", "normalizers": 3}, 1),
        ({"type": "Replace", "content": 10**9}, 1), ({"type": "Replace", "content": "a" * 101}, 101),
        ({"type": "Prepend", "prepend": "a" * 120}, 120), ({"type": "Replace", "content": "a" * 100}, 100),
        (replaces("a" * 10, "", "a" * 10), 100), (replaces("a" * 10, "", "a" * 11), 110), (replaces(*["aa"] * 7), 128),
        ({"type": "Sequence", "normalizers": [replaces("a" * 20), replaces("a" * 20)]}, 400),
    ],
)  # fmt: skip
def test_a_normaliser_writes_up_to_a_hundred_characters_for_one(tmp_path: Path, normalizer: Any, growth: int) -> None:
    tokenizer(tmp_path, tokenizer=WORDS | {"normalizer": normalizer})
    if growth <= MOST_GROWTH:
        assert check_tokenizer_folder(tmp_path)
    else:
        assert f" {growth} " in refusal(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt", "spiece.model"])
def test_a_vocabulary_larger_than_any_is_not_read(tmp_path: Path, name: str) -> None:
    (tokenizer(tmp_path, tokenizer=WORDS) / name).touch()
    os.truncate(tmp_path / name, LARGEST_VOCABULARY + 1)
    said = refusal(tmp_path)
    assert name in said and str(LARGEST_VOCABULARY + 1) in said


@pytest.mark.parametrize("name", ["special_tokens_map", "added_tokens", "tokenizer_config", "tokenizer"])
def test_settings_are_objects_that_name_no_code(tmp_path: Path, name: str) -> None:
    for content in ([], {"auto_map": {"AutoTokenizer": ["mine.Mine", None]}}):
        tokenizer(tmp_path, tokenizer=WORDS)
        tokenizer(tmp_path, **{name: content})
        assert f"{name}.json" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("kind", "sound"),
    [("BertTokenizerFast", True), ("T5Tokenizer", True), ("TokenizersBackend", True), (None, True),
     ("Tokenizer", False), ("mine.BertTokenizer", False), ("BertTokenizer\n", False), ("pipeline", False),
     (3, False), ([], False)],
)  # fmt: skip
def test_the_class_is_one_of_tokenizers(tmp_path: Path, kind: Any, sound: bool) -> None:
    tokenizer(tmp_path, tokenizer=WORDS, tokenizer_config={"tokenizer_class": kind})
    if sound:
        assert check_tokenizer_folder(tmp_path)
    else:
        assert ascii(kind) in refusal(tmp_path)


@pytest.mark.parametrize(
    ("told", "length"),
    [(512, 512), (8, 8), (8.5, 8), (NO_LIMIT - 1, NO_LIMIT - 1), (NO_LIMIT, None), (1e30, None), (10**40, None),
     (None, None)],
)  # fmt: skip
def test_the_longest_text_is_what_the_settings_allow(tmp_path: Path, told: Any, length: int | None) -> None:
    assert longest_text(tokenizer(tmp_path, tokenizer=WORDS)) is None  # without settings
    found = longest_text(tokenizer(tmp_path, tokenizer_config={"model_max_length": told}))
    assert found == length and type(found) is type(length)


@pytest.mark.parametrize("told", [7, 0, -512, True, "512", [512]])
def test_a_text_has_room_for_a_few_tokens(tmp_path: Path, told: Any) -> None:
    tokenizer(tmp_path, tokenizer=WORDS, tokenizer_config={"model_max_length": told})
    with pytest.raises(InputError, match="model_max_length") as caught:
        longest_text(tmp_path)
    assert ascii(told) in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"model_type": "xlm-roberta"}, {"model_type": "xlm-roberta"}),
        ({"model_type": "bert", "tokenizer_class": "BertTokenizer", "hidden_size": 9},
         {"model_type": "bert", "tokenizer_class": "BertTokenizer"}),
        ({"model_type": "bert", "tokenizer_class": "os.system"}, {"model_type": "bert"}),
        ({"model_type": "bert", "tokenizer_class": None}, {"model_type": "bert"}),
        ({"tokenizer_class": "BertTokenizer"}, None), ({"model_type": "../bert"}, None), ({"model_type": ""}, None),
        ({"model_type": "a" * 61}, None), ({"model_type": ["bert"]}, None), ({}, None), (None, None),
    ],
)  # fmt: skip
def test_the_kind_is_what_the_settings_beside_it_say(
    tmp_path: Path, settings: Any, kind: dict[str, str] | None
) -> None:
    if settings is not None:
        tokenizer(tmp_path, config=settings)
    assert kind_of_tokenizer(tmp_path) == kind


def test_the_kind_follows_from_the_weights_in_one_file_or_in_shards(tmp_path: Path) -> None:
    tensors = {"electra.embeddings.word_embeddings.weight": np.ones((2, 2), "f")}
    for folder, name in (("whole", SINGLE), ("shards", "part.safetensors")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(save(tensors))
        tokenizer(tmp_path / folder, config={"hidden_size": 2})
    places = dict.fromkeys(tensors, "part.safetensors")
    (tmp_path / "shards" / INDEX).write_text(json.dumps({"weight_map": places}))
    for folder in ("whole", "shards"):
        assert kind_of_tokenizer(tmp_path / folder) == {"model_type": "electra"}
